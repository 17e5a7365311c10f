"""Compare two leaderboards, as Markdown for reviewers of a change."""

from collections.abc import Iterable
from pathlib import Path

from leaderboard.board import read_content
from leaderboard.entries import Entry
from leaderboard.exports import escape
from ncl_bench.errors import SubmissionError

Key = tuple[str, ...]
Row = tuple[int | None, Entry]
"""Rank and entry."""
_TEXTS = ("status", "paper", "code", "recipe", "budget", "cost", "extra", "selection", "notes", "doubts")


def row_key(entry: Entry) -> Key:
    """Identity of a row when its numbers change: cell file and protocol, or the place of a printed number."""
    if entry.file:
        return (entry.file, entry.cell.protocol)
    return (entry.source, entry.table, entry.method, entry.backbone, entry.cell.slug)


def diff(base: Path, root: Path, *, published: bool = True) -> str:
    """List new, removed and changed rows, and ranks that moved because of them.

    Args:
        base: folder of a leaderboard.
        root: folder of the leaderboard after the change.
        published: whether to include published rows.

    Raises:
        SubmissionError: a folder is not a leaderboard, or a row is refused.
    """
    before, after = (_rows(folder, published) for folder in (base, root))
    changes = {key: _changes(before[key][1], row[1]) for key, row in after.items() if key in before}
    changed = {key: moves for key, moves in changes.items() if moves}
    new = [after[key] for key in after if key not in before]
    removed = [before[key] for key in before if key not in after]
    if not (new or removed or changed):
        return "No row of the leaderboard moved.\n"
    moved = [key for key in changes if key not in changed and before[key][0] != after[key][0]]
    parts = [
        _section("New rows", [_new(*row) for row in new]),
        _section("Removed rows", [_described(entry) for _, entry in removed]),
        _section("Changed rows", [f"{_place(after[key][1])}: {moves}" for key, moves in changed.items()]),
        _section(
            "Ranks that moved",
            [f"{_place(after[key][1])}: {before[key][0] or '–'} → {after[key][0] or '–'}" for key in moved],
        ),
    ]
    return "\n".join(part for part in parts if part)


def _rows(folder: Path, published: bool) -> dict[Key, Row]:
    if not (folder / "results").is_dir():
        raise SubmissionError(f"{folder} is no leaderboard; give a folder that holds results/")
    boards = read_content(folder, published=published).boards
    return {row_key(entry): (rank, entry) for board in boards for rank, entry in board.ranks}


def _changes(before: Entry, after: Entry) -> str:
    """Facts that differ, such as ``r_sum 480.1 → 481.3; seeds 0 1 → 0 1 2``."""
    old, new = _facts(before), _facts(after)
    return "; ".join(
        f"{escape(name)} {_shown(old[name])} → {_shown(new[name])}" for name in old if old[name] != new[name]
    )


def _facts(entry: Entry) -> dict[str, str]:
    numbers = entry.recalls.values | {"r_sum": entry.r_sum}
    texts = {name: _words(getattr(entry, name)) for name in _TEXTS}
    return {
        **{name: "" if value is None else f"{round(value, 2):g}" for name, value in numbers.items()},
        "seeds": _words(entry.runs),
        **texts,
    }


def _words(value: object) -> str:
    parts: Iterable[object] = value if isinstance(value, tuple) else (() if value is None else (value,))
    return " ".join(" ".join(map(str, parts)).split())


def _shown(text: str) -> str:
    return escape(text) or "nothing"


def _section(title: str, items: list[str]) -> str:
    return (
        f"### {title} ({len(items)})\n\n" + "\n".join(f"- {item}" for item in items) + "\n" if items else ""
    )


def _place(entry: Entry) -> str:
    backbone = f" ({entry.backbone})" if entry.backbone and entry.backbone not in entry.method else ""
    return f"**{escape(entry.label + backbone)}**, {entry.cell.title}"


def _described(entry: Entry) -> str:
    seeds = f", seeds {_words(entry.runs)}" if entry.runs else ""
    return f"{_place(entry)}: rSum {_facts(entry)['r_sum']}{seeds}, {entry.status}"


def _new(rank: int | None, entry: Entry) -> str:
    remarks = "; doubtful: " * bool(entry.doubts) + escape(_words(entry.doubts))
    return f"{_described(entry)}, {f'rank {rank}' if rank else 'no rank'}{remarks}"
