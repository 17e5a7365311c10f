"""HTML and SVG: from templates, where a misspelt name is an error, and tables for notebooks; values are escaped."""

from collections.abc import Iterable, Sequence
from html import escape
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from jinja2 import Environment


def environment(folder: Path) -> "Environment":
    """Templates of a folder; texts from elsewhere, such as captions, cannot act as markup."""
    from jinja2 import Environment, FileSystemLoader, StrictUndefined

    return Environment(
        loader=FileSystemLoader(folder),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
    )


def html_table(rows: Iterable[Sequence[str]], heads: Sequence[str] = ()) -> str:
    """An HTML table for a notebook, which needs neither a template nor pandas.

    Args:
        rows: texts of the cells.
        heads: titles of the columns (default: none are shown).
    """
    cells = [[f"<td>{escape(cell)}</td>" for cell in row] for row in rows]
    if heads:
        cells.insert(0, [f"<th>{escape(head)}</th>" for head in heads])
    return "<table>" + "".join(f"<tr>{''.join(row)}</tr>" for row in cells) + "</table>"


def html_lines(lines: Iterable[str]) -> str:
    """Paragraphs for a notebook."""
    return "".join(f"<p>{escape(line)}</p>" for line in lines)
