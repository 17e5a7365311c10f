"""HTML and SVG from templates: every value is escaped, and a misspelt name is an error."""

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
