"""Compare two leaderboards, as Markdown for reviewers of a change.

The published files are compared: the table of all rows by row, every other file of the site by its bytes. A site that
other code built is read as data, and its texts cannot act as Markdown.
"""

import csv
import io
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from leaderboard.build import README, ROWS, Built, built
from leaderboard.exports import RANKS
from ncl_bench.errors import SubmissionError
from ncl_bench.progress import Progress, silent
from ncl_bench.schema import read_short

Row = dict[str, str]
"""A line of the table of all rows: column to text."""
Key = tuple[str, ...]
_CONDITION = ("dataset", "protocol", "noise_unit", "noise_ratio", "text")
_PRINTED = ("source", "table", "method", "backbone", *_CONDITION)
_NAMED = ("rank", "r_sum", "seeds", "status", "selection", "extra", "encoder", "notes", "doubts")
"""What is said of a new row, also where it is empty."""
_MOST_LINES, _MOST_LETTERS, _MOST_FILES = 200, 300, 5_000
_LARGEST = 50_000_000
_PLAIN = re.compile(r"[\w ]*|-?[\d.]+", re.ASCII)


@dataclass(frozen=True)
class Moves:
    """What differs between two leaderboards.

    Attributes:
        new, removed: rows that only one of them has.
        changed: row, and the columns that differ, with both texts.
        files: paths of the other published files that differ.
    """

    new: list[Row]
    removed: list[Row]
    changed: list[tuple[Row, dict[str, tuple[str, str]]]]
    files: list[str]

    @property
    def rows(self) -> list[Row]:
        """All rows that moved."""
        return [*self.removed, *(row for row, _ in self.changed), *self.new]

    def markdown(self, code: Sequence[str] = ()) -> str:
        """List the moves.

        Args:
            code: changed files of the code, which are named where rows moved.
        """
        ranks = [(row, facts) for row, facts in self.changed if facts.keys() <= set(RANKS)]
        others = [(row, facts) for row, facts in self.changed if not facts.keys() <= set(RANKS)]
        parts = [
            section("Removed rows", [_described(row) for row in self.removed]),
            section("Changed rows", [f"{place(row)}: {_changes(facts)}" for row, facts in others]),
            section("New rows", [_described(row) for row in self.new]),
            section("Ranks that moved", [f"{place(row)}: {_changes(facts)}" for row, facts in ranks]),
        ]
        if not self.rows:
            parts.insert(0, "No row of the leaderboard moved.\n")
        elif code:
            parts.insert(0, f"Rows moved, and the change touches code: {_listed(code)}.\n")
        if self.files and (code or not self.rows):  # new rows alone change most pages
            parts.append(
                section("Other files of the site that differ", [in_markdown(name) for name in self.files])
            )
        return "\n".join(part for part in parts if part)


def moves(
    base: Path,
    root: Path,
    site: Path | None = None,
    *,
    published: bool = True,
    progress: Progress = silent,
) -> Moves:
    """Compare two leaderboards.

    Args:
        base: folder of a leaderboard, evaluated by this code.
        root: folder of the leaderboard after the change.
        site: what the change's own code built from ``root``; by default this code evaluates ``root``.
        published: whether to include published rows.
        progress: reports the rows read and evaluated.
    """
    for folder in (base, root):
        if not (folder / "results").is_dir():
            raise SubmissionError(f"{folder} is no leaderboard; give a folder that holds results/")
    before = _texts(built(base, published=published, progress=progress))
    after = read_site(site) if site else _texts(built(root, published=published, progress=progress))
    old, new = rows_by_place(before[ROWS], base), rows_by_place(after[ROWS], site or root)
    names = sorted(name for name in before.keys() | after.keys() if name != ROWS)
    changed = [(row, _differing(old[key], row)) for key, row in new.items() if key in old]
    return Moves(
        [row for key, row in new.items() if key not in old],
        [row for key, row in old.items() if key not in new],
        [(row, facts) for row, facts in changed if facts],
        [name for name in names if before.get(name) != after.get(name)],
    )


def _texts(one: Built) -> dict[str, str]:
    return {**one.files, README: one.readme}


def read_site(folder: Path) -> dict[str, str]:
    """Read a built site as data: text by path."""
    paths = sorted(path for path in folder.rglob("*") if path.is_symlink() or not path.is_dir())
    if folder / ROWS not in paths:
        raise SubmissionError(
            f"{folder} holds no {ROWS}; build the site with `ncl-bench leaderboard build --to {folder}`"
        )
    if len(paths) > _MOST_FILES:
        raise SubmissionError(f"{folder} holds {len(paths):,} files, a site has at most {_MOST_FILES:,}")
    files = {}
    left = _LARGEST
    for path in paths:
        if path.is_symlink():
            raise SubmissionError(f"{path} is a link; put the file itself there")
        content = read_short(path, largest=left)
        left -= len(content)
        files[path.relative_to(folder).as_posix()] = content.decode("utf-8", errors="replace")
    return files


def rows_by_place(text: str, where: Path) -> dict[Key, Row]:
    """Rows of the table of all rows by their identity, which stays when numbers change.

    A measured row is known by its row file and protocol, a printed one by its place in the paper. Further rows of the
    same identity are numbered, so that none stands for another.
    """
    rows: dict[Key, Row] = {}
    try:
        for line in csv.DictReader(io.StringIO(text), restkey="more", restval=""):
            row = {name: value if isinstance(value, str) else ",".join(value) for name, value in line.items()}
            key = tuple(row.get(name, "") for name in (("file", "protocol") if row.get("file") else _PRINTED))
            again = 1
            while (*key, str(again)) in rows:
                again += 1
            rows[*key, str(again)] = row
    except csv.Error as error:
        raise SubmissionError(f"{where}: {ROWS} is no table ({error}); build the site again") from None
    return rows


def _differing(old: Row, new: Row) -> dict[str, tuple[str, str]]:
    """Columns whose texts differ, also where only one side has the column."""
    pairs = {name: (old.get(name, ""), new.get(name, "")) for name in {**old, **new}}
    return {name: both for name, both in pairs.items() if both[0] != both[1]}


def in_markdown(text: str) -> str:
    """A stranger's text in Markdown: one line of bounded length that links, calls and renders nothing."""
    line = " ".join(text.split())
    line = "".join(letter if letter.isprintable() else "\N{REPLACEMENT CHARACTER}" for letter in line)
    line = line if len(line) <= _MOST_LETTERS else f"{line[:_MOST_LETTERS]}…"
    if _PLAIN.fullmatch(line):
        return line
    fence = "`" * (1 + max(map(len, re.findall("`+", line)), default=0))
    pad = " " if line.startswith("`") or line.endswith("`") else ""
    return f"{fence}{pad}{line}{pad}{fence}"


def _listed(names: Sequence[str], most: int = 5) -> str:
    more = f" and {len(names) - most:,} more" if len(names) > most else ""
    return ", ".join(map(in_markdown, names[:most])) + more


def _changes(facts: Mapping[str, tuple[str, str]]) -> str:
    """Facts that differ, such as ``r_sum 480.1 → 481.3; seeds 0 1 → 0 1 2``."""
    return "; ".join(f"{in_markdown(name)} {_arrow(*both)}" for name, both in facts.items())


def _arrow(old: str, new: str) -> str:
    return f"{in_markdown(old) or 'nothing'} → {in_markdown(new) or 'nothing'}"


def section(title: str, items: Iterable[str]) -> str:
    """A Markdown list below a heading with its length; empty without items, and cut where it is long."""
    lines = [f"- {item}" for item in items]
    if not lines:
        return ""
    more = [f"- and {len(lines) - _MOST_LINES:,} more"] if len(lines) > _MOST_LINES else []
    return f"### {title} ({len(lines):,})\n\n" + "\n".join([*lines[:_MOST_LINES], *more]) + "\n"


def place(row: Row) -> str:
    """Method, backbone and condition of a row, and its file or source, as Markdown."""
    condition = in_markdown(" ".join(filter(None, (row.get(name, "") for name in _CONDITION))))
    source = " ".join(filter(None, (row.get("source", ""), row.get("table", ""))))
    names = [
        in_markdown(row.get("method", "")),
        in_markdown(row.get("backbone", "")),
        condition,
        in_markdown(row.get("file") or source),
    ]
    return ", ".join(filter(None, names))


def _described(row: Row) -> str:
    return f"{place(row)}: " + "; ".join(
        f"{name} {in_markdown(row.get(name, '')) or 'none'}" for name in _NAMED
    )
