"""Tables of text that this project writes: CSV and tab-separated files, and how they are read again."""

import csv
import io
import re
from collections.abc import Collection, Iterable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, Literal

import numpy as np

from ncl_bench.errors import NclBenchError, listed, shown
from ncl_bench.foreign import decoded, readable, reading

if TYPE_CHECKING:
    import pandas as pd

MARK = "'\u2060"
"""Before a text that a spreadsheet would compute: an apostrophe and a word joiner, by which it is known as ours."""
_FORMULA = re.compile("'*[=+@\t\r\n\uff1d\uff0b\uff20\uff0d-]")
_NUMBER = re.compile(r"[+-]?(\d+\.?\d*|\.\d+)(e[+-]?\d+)?|[+-]?inf(inity)?|nan", re.IGNORECASE | re.ASCII)


def as_csv(rows: Iterable[Iterable[object]], delimiter: str = ",") -> str:
    """Format rows as a table with ``\\n`` line ends; every text as :func:`csv_cell`, which :func:`read_table` undoes.

    Args:
        rows: the cells; None is empty.
        delimiter: between cells; between tabs no cell is quoted, as in the published files, unless one holds a tab or a
            line end.
    """
    safe = [[csv_cell(cell) for cell in row] for row in rows]
    if delimiter == "\t" and not any(set("\t\n") & set(str(cell)) for row in safe for cell in row):
        return "".join("\t".join("" if cell is None else str(cell) for cell in row) + "\n" for row in safe)
    lines: list[str] = []
    # a writer that ends lines with \r\n quotes cells that hold either
    sink = SimpleNamespace(write=lambda line: lines.append(line.removesuffix("\r\n") + "\n"))
    csv.writer(sink, delimiter=delimiter, lineterminator="\r\n").writerows(safe)
    return "".join(lines)


def csv_of(table: "pd.DataFrame", delimiter: str = ",") -> str:
    """Format a frame as :func:`as_csv`, without its index; missing values are empty."""
    columns = [
        column.astype(str if column.dtype.kind == "M" else object).where(column.notna(), None)
        if column.dtype.kind not in "fiub"
        else np.where(column.isna(), "", column.astype(str))
        for _, column in table.items()
    ]
    return as_csv([list(table.columns), *zip(*columns, strict=True)], delimiter)


def csv_cell(value: object) -> object:
    """A cell that a spreadsheet shows and does not compute: a text like a formula gets a mark; numbers stay."""
    formula = isinstance(value, str) and _FORMULA.match(value) and not _NUMBER.fullmatch(value)
    return f"{MARK}{value}" if formula else value


def from_csv_cell(cell: str) -> str:
    """The text that :func:`csv_cell`, or the page of an audit with an apostrophe alone, was given."""
    return (
        cell[1:].removeprefix(MARK[1:])
        if cell.startswith("'") and _FORMULA.match(cell.replace(MARK[1:], "", 1))
        else cell
    )


Rows = Iterator[tuple[str, dict[str, str]]]
"""Rows of a table: file and line, such as ``captions.csv line 7``, and column to cell."""


def read_table(
    path: Path,
    error: type[NclBenchError],
    needed: Collection[str] = (),
    *,
    expected: str = "a table",
) -> tuple[list[str], Rows]:
    """Read a table in UTF-8 whose first line names its columns; blanks around a name do not count.

    Between tabs a quotation mark is an ordinary character. Blank lines are skipped, and missing cells are empty. The
    mark of :func:`csv_cell` is taken off.

    Args:
        path: of the file.
        error: class of what is raised.
        needed: columns that the table must have.
        expected: what the file should be.

    Returns:
        The columns, and an iterator over the rows.
    """
    with reading(path, error):
        text = decoded(readable(path, error, expected).read_bytes(), str(path), error)
        separator = separator_of(path, text)
        quoting: Literal[0, 3] = csv.QUOTE_NONE if separator == "\t" else csv.QUOTE_MINIMAL
        lines = csv.reader(io.StringIO(text, newline=""), delimiter=separator, quoting=quoting, strict=True)
        rows = [(lines.line_num, [*map(from_csv_cell, cells)]) for cells in lines if any(cells)]
    columns = [name.strip() for name in rows[0][1]] if rows else []
    if lacking := [name for name in needed if name not in columns]:
        raise error(
            f"{path} has no column {' or '.join(lacking)}, expected {expected}; its first line holds "
            f"{listed(columns)}: correct these names, or write a line of names above it if it is a row already"
        )
    if twice := [name for name in columns if name and columns.count(name) > 1]:
        raise error(f"{path} has two columns {shown(twice[0])}; rename one of them")
    for number, cells in rows:
        # one column too many shifts cells into other columns in silence
        if len(cells) > len(columns):
            raise error(
                f"{path} line {number}: it has more cells than the first line ({len(cells)}, not {len(columns)}); "
                "quote a cell that holds the separator"
            )
    filling = [""] * len(columns)
    return columns, (
        (f"{path} line {number}", dict(zip(columns, [*cells, *filling], strict=False)))
        for number, cells in rows[1:]
    )


def separator_of(path: Path, text: str) -> str:
    """What separates the cells of a table: tabs in ``.tsv`` or if the first line has one, else most of , ; and |."""
    head = next(filter(str.strip, text.split("\n")), "")
    return "\t" if ".tsv" in path.name.lower() or "\t" in head else max(",;|", key=head.count)
