"""Tables of text: what we write as CSV, and what we read of the dialects of CSV and tab-separated files."""

import csv
import io
import re
from collections.abc import Collection, Iterable, Iterator
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from ncl_bench.errors import NclBenchError, listed, shorten, shown
from ncl_bench.foreign import decoded, readable, text_lines

if TYPE_CHECKING:
    import pandas as pd

_FORMULA = re.compile("'*[=+@\t\r\n\uff1d\uff0b\uff20\uff0d-]")
_NUMBER = re.compile(r"[+-]?(\d+\.?\d*|\.\d+)(e[+-]?\d+)?|[+-]?inf(inity)?|nan", re.IGNORECASE | re.ASCII)


class _Lines(list[str]):
    """Lines of CSV with ``\\n`` ends; the writer is told of ``\\r\\n``, so that it quotes cells that hold either."""

    def write(self, line: str) -> None:
        self.append(line.removesuffix("\r\n") + "\n")


def as_csv(rows: Iterable[Iterable[object]], delimiter: str = ",") -> str:
    """Format rows as a table with ``\\n`` line ends; every text as :func:`csv_cell`, which :func:`read_table` undoes.

    Args:
        rows: the cells; None is empty.
        delimiter: between cells; between tabs no cell is quoted, as in the published files.
    """
    lines = _Lines()
    safe = ([csv_cell(cell) for cell in row] for row in rows)
    if delimiter == "\t":
        lines.extend("\t".join("" if cell is None else str(cell) for cell in row) + "\n" for row in safe)
    else:
        csv.writer(lines, delimiter=delimiter, lineterminator="\r\n").writerows(safe)
    return "".join(lines)


def csv_of(table: "pd.DataFrame") -> str:
    """Format a frame as :func:`as_csv`, without its index; missing values are empty."""
    columns = [
        column.astype(str if column.dtype.kind == "M" else object).where(column.notna(), None)
        if column.dtype.kind not in "fiub"
        else np.where(column.isna(), "", column.astype(str))
        for _, column in table.items()
    ]
    return as_csv([list(table.columns), *zip(*columns, strict=True)])


def csv_cell(value: object) -> object:
    """A cell that a spreadsheet shows and does not compute: a text like a formula gets an apostrophe; numbers stay."""
    formula = isinstance(value, str) and _FORMULA.match(value) and not _NUMBER.fullmatch(value)
    return f"'{value}" if formula else value


def from_csv_cell(cell: str) -> str:
    """The text that :func:`csv_cell` was given."""
    return cell[1:] if cell.startswith("'") and _FORMULA.match(cell) else cell


Rows = Iterator[tuple[str, dict[str, str]]]
"""Rows of a table: file and line, such as ``captions.csv line 7``, and column to cell."""


def read_table(
    path: Path,
    error: type[NclBenchError],
    needed: Collection[str] = (),
    *,
    expected: str = "a table",
    filled: bool = True,
) -> tuple[list[str], Rows]:
    """Read a table in UTF-8 whose first line names its columns; blanks around a name do not count.

    Tabs separate the cells of a ``.tsv`` file, and of others whose first line holds a tab; a quotation mark is then an
    ordinary character, as in the published files. Otherwise it is CSV with commas, or if the first line holds no comma
    with semicolons or bars. Blank lines are skipped, and missing cells are empty. The apostrophe of
    :func:`csv_cell` is taken off.

    Args:
        path: of the file.
        error: class of what is raised, also while rows are read.
        needed: columns that the table must have.
        expected: what the file should be.
        filled: whether missing cells at the end of a row are empty; otherwise the row is refused.

    Returns:
        The columns, and an iterator over the rows.
    """
    try:
        content = readable(path, error, expected).read_bytes()
    except OSError as problem:
        raise error(f"{path} cannot be read ({problem.strerror}); check its permissions") from None
    delimiter = delimiter_of(path, content.split(b"\n", 1)[0])
    tabs = delimiter == "\t"
    lines = _tab_separated(content, str(path), error) if tabs else _quoted(content, path, delimiter, error)
    rows = ((where, [*map(from_csv_cell, cells)]) for where, cells in lines if any(cells))
    _, first = next(rows, ("", []))
    columns = [name.strip() for name in first]
    lacking = [name for name in needed if name not in columns]
    if lacking:
        raise error(
            f"{path} has no column {' or '.join(lacking)}, expected {expected}; its first line holds "
            f"{listed(columns)}: correct these names, or write a line of names above it if it "
            "is a row already"
        )
    named = [name.casefold() for name in columns if name]
    if len(set(named)) < len(named):
        twice = next(name for name in named if named.count(name) > 1)
        raise error(f"{path} has two columns {shown(twice)}; rename one of them")
    return columns, _as_dicts(columns, rows, error, filled)


def delimiter_of(path: Path, head: bytes) -> str:
    """What separates the cells of a table, by its name and its first line; see :func:`read_table`."""
    if path.suffix.lower() == ".tsv" or b"\t" in head:
        return "\t"
    return next((each for each in ",;|" if each.encode() in head), ",")


def _as_dicts(
    columns: list[str], rows: Iterator[tuple[str, list[str]]], error: type[NclBenchError], filled: bool
) -> Rows:
    for where, cells in rows:
        if len(cells) < len(columns) and not filled:
            raise error(
                f"{where}: it has fewer cells than the first line ({len(cells)}, not {len(columns)}); complete it"
            )
        if len(cells) > len(columns):
            raise error(
                f"{where}: it has more cells than the first line ({len(cells)}, not {len(columns)}); quote a cell that "
                "holds the separator, or remove the cell"
            )
        yield where, dict(zip(columns, [*cells, *[""] * (len(columns) - len(cells))], strict=True))


def _tab_separated(content: bytes, name: str, error: type[NclBenchError]) -> Iterator[tuple[str, list[str]]]:
    before = [""]
    for number, line in enumerate(text_lines(content, name, error), start=1):
        cells, last = line.split("\t"), before[-1]
        # where a program quoted a cell that holds a line break, the rest of the cell is no row
        if last.startswith('"') and last.count('"') % 2 and line.count('"') % 2 and len(cells) < len(before):
            raise error(
                f"{name} line {number}: a quoted cell goes on here, but between tabs a quotation mark is an ordinary "
                "character; remove the line break, or save the table as CSV"
            )
        before = cells if line else before
        yield f"{name} line {number}", cells


LONGEST_CELL = 1_000_000
"""Most characters of a cell of CSV."""


def _quoted(
    content: bytes, path: Path, delimiter: str, error: type[NclBenchError]
) -> Iterator[tuple[str, list[str]]]:
    """Rows of CSV text; a cell that swallowed rows after an open quotation mark is refused."""
    csv.field_size_limit(LONGEST_CELL)  # the process's; no other limit is set
    rows = csv.reader(
        io.StringIO(decoded(content, str(path), error), newline=""), delimiter=delimiter, strict=True
    )
    while True:
        begins = rows.line_num + 1
        where = f"{path} line {begins}"
        try:
            cells = next(rows, None)
        except csv.Error as problem:
            if "field larger" in str(problem):
                raise error(
                    f"{where}: a cell has more than {LONGEST_CELL:,} characters; shorten it or close its quotes"
                ) from None
            until = "" if rows.line_num <= begins else f", read up to line {rows.line_num}"
            raise error(
                f"{where}: the quotation marks are wrong ({problem}{until}); close each, and double those inside a cell"
            ) from None
        if cells is None:
            return
        if rows.line_num > begins and (inside := _swallowed(cells, delimiter)):
            raise error(
                f"{where}: a quoted cell goes on to line {rows.line_num} and holds what looks like rows "
                f"({shorten(inside)}); close its quotation mark, or remove its line breaks"
            )
        yield where, cells


def _swallowed(cells: list[str], delimiter: str) -> str | None:
    """A line inside a cell that looks like a row: the cell's lines hold the separators that their rows need."""
    after = len(cells) - 1
    for place, cell in enumerate(cells):
        first, *inner = re.split(r"\r\n|\n|\r", cell)
        if not inner or first.count(delimiter) < after - place or inner[-1].count(delimiter) < place:
            continue
        if found := next((line for line in (first, *inner) if _is_row(line.split(delimiter))), None):
            return found
    return None


_ID = re.compile(r"\S|\S*(?:\d\S*|\.[A-Za-z]{3,4})")
_FILE = re.compile(r"\S+\.[A-Za-z]{3,4}")


def _is_row(cells: list[str]) -> bool:
    """Whether a line inside a cell is more likely a row than prose, which may hold the separator too.

    A row has a file, a number or a letter beside another cell, or a word beside a sentence: ``7,A dog``, ``rex,A dog``,
    and not ``with,dogs`` or ``2,000 dogs``.
    """
    for before, after in pairwise(cells):
        if not after or after[0].isspace() or not before or before[-1].isspace():
            continue
        in_number = re.fullmatch("[0-9]{2}", before[-1] + after[0])
        if _FILE.fullmatch(after) or (not in_number and _ID.fullmatch(before)):
            return True
        if after[0].isupper() and not any(map(str.isspace, before)):
            return True
    return False
