"""The numbers of a leaderboard as one frame, ``results.jsonl``: computed by ``build``, recomputed by ``build --check``.

The first line holds the hash of the evidence that the frame was computed from (results, printed numbers and the list of
reproduced seeds) and the number of the lines that follow. Each of them is one result under one protocol: a
:class:`Line`. Whoever reads the frame of the present evidence needs no evidence, so it travels with the package; a
frame of other evidence is not read.
"""

import hashlib
import json
from collections.abc import Iterable
from itertools import groupby
from pathlib import Path
from typing import Any, cast

from pydantic import TypeAdapter

from leaderboard.entries import Entry, Row
from leaderboard.folder import REPRODUCED, published_folder, result_files
from ncl_bench.errors import SubmissionError
from ncl_bench.foreign import reading

FRAME = "results.jsonl"


class Line(Row):
    """A result with the place of its row: lines of one row have the same.

    Attributes:
        place: of the row among those that it is ranked with, so that a new row changes no line of other conditions.
        row_intervals, row_notes, row_doubts: of the row, where they are not those of its results: intervals over seeds,
            and the remarks of all papers that print it.
    """

    place: int
    row_intervals: dict[str, tuple[float, float]] | None = None
    row_notes: tuple[str, ...] | None = None
    row_doubts: tuple[str, ...] | None = None


_PLACE = ("rank", "rank_interval", "also")
_OF_ROW = ("intervals", "notes", "doubts")
_LINES = TypeAdapter(list[Line])


def frame_text(seeds: Iterable[Entry], rows: Iterable[Row], evidence: str) -> str:
    """The frame as text: one JSON object per line, without what has its default.

    Args:
        seeds: all results, from :func:`leaderboard.board.read_content`.
        rows: likewise, ranked.
        evidence: from :func:`evidence_sha256`.
    """
    from leaderboard.board import (  # slow to import, and reading needs none
        group_of,
        merged_remarks,
        results_of_rows,
    )

    ranked: dict[int, tuple[int, Row]] = {}
    for _, group in groupby(rows, key=group_of):
        ranked |= {row.number: (place, row) for place, row in enumerate(group)}
    lines: list[dict[str, Any]] = []
    for number, results in enumerate(results_of_rows(seeds)):
        at, row = ranked[number]
        place = {"place": at} | {name: getattr(row, name) for name in _PLACE}
        # the merged results say the rest again, whenever the frame is read
        place |= {
            f"row_{name}": getattr(row, name)
            for name, merged in merged_remarks(results).items()
            if getattr(row, name) != merged
        }
        changed = {name: value for name, value in place.items() if value != Line.model_fields[name].default}
        lines += [one.model_dump(mode="json", exclude_defaults=True) | changed for one in results]
    head = {"evidence": evidence, "lines": len(lines)}
    return "".join(f"{json.dumps(line, ensure_ascii=False)}\n" for line in (head, *lines))


def read_frame(root: Path, dataset: str = "") -> list[Line] | None:
    """The results of a leaderboard; None if there is no frame, or it was computed from other evidence.

    Args:
        root: folder of the leaderboard. Without ``results/``, as in an installed package, its frame is the evidence.
        dataset: read only the results on this dataset.
    """
    path = root / FRAME
    if not path.is_file():
        return None
    with reading(path, SubmissionError, fix="write it again with `ncl-bench leaderboard build`"):
        first, *lines, _ = path.read_text(encoding="utf-8").split("\n")
        head = json.loads(first)
        if (root / "results").is_dir() and head["evidence"] != evidence_sha256(root):
            return None
        if (
            len(lines) != head["lines"]
        ):  # a file cut at a line end would be a shorter leaderboard, without a word
            raise ValueError(f"it has {len(lines):,} results, its first line says {head['lines']}")
        wanted = f'"dataset": "{dataset}"' if dataset else '"'
        return _LINES.validate_json(f"[{','.join(line for line in lines if wanted in line)}]")


def rows_of(lines: Iterable[Line]) -> list[Row]:
    """The ranked rows of the results, in the order of the pages."""
    from leaderboard.board import group_of, merge, results_of_rows

    placed = []
    for number, results in enumerate(results_of_rows(lines)):
        first = cast(Line, results[0])
        facts = {name: getattr(first, name) for name in _PLACE} | {"number": number}
        facts |= {name: value for name in _OF_ROW if (value := getattr(first, f"row_{name}")) is not None}
        placed.append((first.place, Row.of(merge(results), **facts)))
    return [row for _, row in sorted(placed, key=lambda one: (group_of(one[1]), one[0]))]


def evidence_sha256(root: Path) -> str:
    """Hash (hex) of everything that the frame and the tables of README.md are computed from."""
    evidence = [*result_files(root / "results"), *root.glob(REPRODUCED)]
    names = {path: path.relative_to(root).as_posix() for path in evidence}
    names |= {path: f"published/{path.name}" for path in published_folder(root).iterdir() if path.is_file()}
    lines = sorted(f"{name} {hashlib.sha256(path.read_bytes()).hexdigest()}" for path, name in names.items())
    return hashlib.sha256("\n".join(lines).encode()).hexdigest()
