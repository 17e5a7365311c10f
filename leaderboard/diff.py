"""What moved between two leaderboards, as Markdown for people who review a change."""

import csv
import io
from pathlib import Path

from leaderboard.board import read_content
from leaderboard.entries import Cell
from leaderboard.exports import csv_text, escape
from ncl_bench.errors import SubmissionError
from ncl_bench.files import readable

Line = dict[str, str]
_CELL = ("dataset", "protocol", "noise_unit", "noise_ratio", "text")
_IDENTITY = (
    *_CELL,
    "method",
    "backbone",
    "networks",
    "extra",
    "noise",
    "selection",
    "precision",
    "settings",
    "source",
    "table",
)
_NUMBERS = ("i2t_r1", "i2t_r5", "i2t_r10", "t2i_r1", "t2i_r5", "t2i_r10", "r_sum", "status", "seeds")


def diff(base: Path, root: Path, *, published: bool = True, only_new: bool = False) -> str:
    """New, removed and changed rows, and ranks that moved because of them.

    Args:
        base: a leaderboard's folder, or the ``leaderboard.csv`` of a built site.
        root: the leaderboard's folder; its entries are read from their files.
        published: whether both show published rows.
        only_new: refuse changes to rows that stood already.

    Raises:
        SubmissionError: ``base`` is neither, a row is refused, or, with ``only_new``, an old row is touched.
    """
    before = _before(base, published)
    after = _lines(csv_text(read_content(root, published=published).boards))
    new = [key for key in after if key not in before]
    removed = [key for key in before if key not in after]
    changed = [key for key in after if key in before and _moved(before[key], after[key])]
    if only_new and (removed or changed):
        first = after.get((changed or removed)[0]) or before[removed[0]]
        raise SubmissionError(
            f"{len(removed) + len(changed)} rows that stood already are touched, the first is "
            f"{first['method']} in {_place(first)}; change only rows of your own"
        )
    if not (new or removed or changed):
        return "No row of the leaderboard moved.\n"
    parts = [
        _section("New rows", [_new(after[key]) for key in new]),
        _section("Removed rows", [_removed(before[key]) for key in removed]),
        _section("Changed rows", [_changed(before[key], after[key]) for key in changed]),
        _section("Ranks that moved", _ranks(before, after, skip={*new, *changed})),
    ]
    return "\n".join(part for part in parts if part)


def _before(base: Path, published: bool) -> dict[tuple[str, ...], Line]:
    if (base / "results").is_dir():
        return _lines(csv_text(read_content(base, published=published).boards))
    try:
        return _lines(readable(base, SubmissionError, "a leaderboard.csv").read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError, KeyError):
        raise SubmissionError(
            f"{base} is no leaderboard; give a folder that holds results/, or leaderboard.csv"
        ) from None


def _lines(text: str) -> dict[tuple[str, ...], Line]:
    return {tuple(line[name] for name in _IDENTITY): line for line in csv.DictReader(io.StringIO(text))}


def _moved(before: Line, after: Line) -> bool:
    return any(before[name] != after[name] for name in _NUMBERS)


def _section(title: str, items: list[str]) -> str:
    return (
        f"### {title} ({len(items)})\n\n" + "\n".join(f"- {item}" for item in items) + "\n" if items else ""
    )


def _place(line: Line) -> str:
    ratio = float(line["noise_ratio"]) if line["noise_ratio"] else None
    return Cell.model_validate({name: line[name] for name in _CELL} | {"noise_ratio": ratio}).title


def _name(line: Line) -> str:
    backbone = f" ({line['backbone']})" if line["backbone"] and line["backbone"] not in line["method"] else ""
    differs = [line["precision"]] if line["precision"] not in ("", "32-true") else []
    differs += filter(None, [line["settings"]])
    changed = f" ({', '.join(differs)})" if differs else ""
    return f"**{escape(line['method'] + backbone + changed)}**"


def _new(line: Line) -> str:
    rank = f"rank {line['rank']}" if line["rank"] else "no rank"
    doubt = f"; doubtful: {escape(line['doubts'])}" if line["doubts"] else ""
    return f"{_name(line)}, {_place(line)}: rSum {line['r_sum']}, {rank}, {line['status']}{doubt}"


def _removed(line: Line) -> str:
    return f"{_name(line)}, {_place(line)}: rSum {line['r_sum']}, {line['status']}"


def _changed(before: Line, after: Line) -> str:
    moves = [f"{name} {before[name]} → {after[name]}" for name in _NUMBERS if before[name] != after[name]]
    return f"{_name(after)}, {_place(after)}: {escape('; '.join(moves))}"


def _ranks(
    before: dict[tuple[str, ...], Line], after: dict[tuple[str, ...], Line], skip: set[tuple[str, ...]]
) -> list[str]:
    same = (key for key in after if key in before and key not in skip)
    return [
        f"{_name(after[key])}, {_place(after[key])}: "
        f"{before[key]['rank'] or '–'} → {after[key]['rank'] or '–'}"
        for key in same
        if before[key]["rank"] != after[key]["rank"]
    ]
