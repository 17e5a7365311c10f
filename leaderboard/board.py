"""Boards: one per cell, divided so that only comparable entries are ranked against each other.

``read_content`` reads all entries of a leaderboard and makes the boards; every output is written from them.
"""

import math
import statistics
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from leaderboard.entries import STATUSES, Cell, Entry, Recalls
from leaderboard.methods import with_look_alikes
from leaderboard.published import own_published, read_published
from leaderboard.results import Run, read_measured
from leaderboard.significance import ToldApart
from ncl_bench.evaluation.difference import Hits
from ncl_bench.evaluation.metrics import RECALLS
from ncl_bench.papers import (
    PUBLISHED,
    Family,
    Paper,
    PrintedDetection,
    read_families,
    read_papers,
    read_printed_detection,
)
from ncl_bench.progress import Progress, silent

DIVISIONS = {
    "single": "Region features, single network",
    "ensemble": "Region features, several networks averaged",
    "unstated": "Region features, number of networks not stated",
    "extra": "Extra clean data or a pre-trained filter",
    "pretrained": "Pre-trained vision-language encoder",
    "images": "Vision-language network on images, from drawn weights",
    "encoder-unstated": "Encoder not stated",
    "controls": "Ablations and oracles, not ranked",
}


@dataclass(frozen=True)
class Ranked:
    """An entry and its rank, shown as one row.

    Attributes:
        rank: from 1; None for an entry that is not ranked.
        entry: the entry.
        also: entries of other papers that print the same numbers.
    """

    rank: int | None
    entry: Entry
    also: tuple[Entry, ...] = ()


@dataclass(frozen=True)
class Division:
    """Comparable entries, best first.

    Attributes:
        key: key in ``DIVISIONS``.
        encoder: pre-trained encoder of all entries; empty in other divisions.
        ranked: entries with their ranks.
    """

    key: str
    encoder: str
    ranked: tuple[Ranked, ...]

    @property
    def title(self) -> str:
        """Heading of the division."""
        return f"{DIVISIONS[self.key]}: {self.encoder}" if self.encoder else DIVISIONS[self.key]

    @property
    def best(self) -> Entry | None:
        """An entry of rank 1, a reproduced one if possible; None if nothing is ranked."""
        leaders = [ranked.entry for ranked in self.ranked if ranked.rank == 1]
        return max(leaders, key=lambda entry: STATUSES.index(entry.status), default=None)

    @property
    def not_told_apart(self) -> list[Entry]:
        """Other entries of rank 1, which do not differ significantly from ``best``."""
        return [one.entry for one in self.ranked if one.rank == 1 and one.entry != self.best]

    @property
    def best_of_ours(self) -> Entry | None:
        """Best entry reproduced by this project; None if there is none."""
        ours = (one.entry for one in self.ranked if one.rank is not None)
        return next((entry for entry in ours if entry.status == "reproduced"), None)


@dataclass(frozen=True)
class Board:
    """All entries of one cell."""

    cell: Cell
    divisions: tuple[Division, ...]

    @property
    def ranks(self) -> list[tuple[int | None, Entry]]:
        """Rank and entry, by division; entries with the same numbers share a rank."""
        ranked = (one for division in self.divisions for one in division.ranked)
        return [(one.rank, entry) for one in ranked for entry in (one.entry, *one.also)]

    @property
    def has_eccv(self) -> bool:
        """Whether any entry was evaluated with the labels of ECCV Caption."""
        return any(entry.eccv for entry in self.entries)

    @property
    def entries(self) -> list[Entry]:
        """The entries of all divisions."""
        return [entry for _, entry in self.ranks]


def division_of(entry: Entry) -> str:
    """Key in ``DIVISIONS`` of an entry's division."""
    if entry.kind != "method":
        return "controls"
    if entry.features != "region":
        return "encoder-unstated" if entry.features == "unknown" else entry.features
    if entry.extra:
        return "extra"
    return {"single": "single", "ensemble": "ensemble", "unknown": "unstated"}[entry.networks]


TellApart = Callable[[Sequence[Entry]], NDArray[np.bool_]]
"""Test which pairs of entries of one cell differ significantly, bool ``(n, n)``."""


def by_r_sum_alone(entries: Sequence[Entry]) -> NDArray[np.bool_]:
    """Treat all pairs as different, for reported entries, which have no scores to test."""
    return np.ones((len(entries), len(entries)), np.bool_)


def boards_of(entries: Iterable[Entry], told_apart: TellApart = by_r_sum_alone) -> list[Board]:
    """Make all boards, in the order of ``Cell.order``.

    Args:
        entries: entries of any cells.
        told_apart: tests which pairs differ significantly, such as :class:`~leaderboard.significance.ToldApart`.
    """
    cells: dict[Cell, dict[tuple[int, str], list[Entry]]] = {}
    keys = list(DIVISIONS)
    for entry in entries:
        key = division_of(entry)
        division = (keys.index(key), entry.encoder if key == "pretrained" else "")
        cells.setdefault(entry.cell, {}).setdefault(division, []).append(entry)
    return [
        Board(
            cell,
            tuple(
                Division(keys[key], encoder, ranked(members, told_apart))
                for (key, encoder), members in sorted(cells[cell].items())
            ),
        )
        for cell in sorted(cells, key=lambda cell: cell.order)
    ]


def ranked(entries: Sequence[Entry], told_apart: TellApart) -> tuple[Ranked, ...]:
    """Sort entries best first; a rank is one more than the number of better entries that differ significantly.

    Preliminary entries take no rank and stand below all others: a lone lucky seed must not lead.

    Ranks never improve down the list. An entry is pushed down only by entries that differ significantly from it: if A
    and B, and B and C do not differ, but A and C do, the ranks are 1, 1 and 2.
    """
    ordered = sorted(
        entries,
        key=lambda entry: (
            *(entry.preliminary, -(entry.r_sum or 0.0)),
            *(entry.method, entry.backbone, entry.source, entry.table),
        ),
    )
    folded = _folded(ordered)
    leads = [lead for lead, *_ in folded if lead.ranked]
    apart = told_apart(leads)
    shown = [f"{lead.r_sum:.1f}" for lead in leads]
    placed: list[Ranked] = []
    rank = place = above = 0
    for lead, *also in folded:
        if lead.ranked:
            if shown[place] != shown[place - 1]:  # entries with equal printed sums share a rank
                above = place
            rank = max(rank, 1 + int(apart[:above, place].sum()))
            place += 1
        placed.append(Ranked(rank if lead.ranked else None, lead, tuple(also)))
    return tuple(placed)


def _folded(entries: Sequence[Entry]) -> list[list[Entry]]:
    """Group entries of one method with the same recalls, the method's own paper first, with all remarks."""
    groups: dict[tuple[object, ...], list[Entry]] = {}
    for number, entry in enumerate(entries):
        same = (
            entry.quoted_as,
            entry.recalls,
            entry.printed_r_sum if entry.recalls.r_sum is None else None,
        )
        facts = (entry.doubts, entry.extra, entry.selection, entry.noise)
        groups.setdefault((*same, *facts) if entry.status == "reported" else (number,), []).append(entry)
    folded = []
    for group in groups.values():
        lead, *also = sorted(group, key=lambda entry: (not entry.own, entry.printed_gap is not None))
        notes = tuple(dict.fromkeys(note for entry in (lead, *also) for note in entry.notes))
        folded.append([lead.model_copy(update={"notes": notes}), *also])
    return folded


def merge_seeds(entries: Iterable[Entry]) -> list[Entry]:
    """Merge the seeds of a cell file into one entry: mean, standard deviation, and the seeds.

    Reported entries do not change. A merged entry has the weakest status of its parts. It has no intervals, because
    each belongs to one trained model (see :func:`compared`). Its rSum is the sum of the mean recalls.
    """
    groups: dict[tuple[object, ...], list[Entry]] = {}
    for number, entry in enumerate(entries):
        groups.setdefault((entry.file, entry.cell) if entry.file else (number,), []).append(entry)
    return [_merged(group) for group in groups.values()]


def _merged(entries: list[Entry]) -> Entry:
    if len(entries) == 1:
        return entries[0]
    values = {name: [getattr(entry.recalls, name) for entry in entries] for name in RECALLS}
    sums = [entry.r_sum for entry in entries]
    spread = {name: statistics.stdev(column) for name, column in {**values, "r_sum": sums}.items()}
    return entries[0].model_copy(
        update={
            "recalls": Recalls(**{name: math.fsum(column) / len(column) for name, column in values.items()}),
            "intervals": {},
            "eccv": _means([entry.eccv for entry in entries]),
            "cxc": _means([entry.cxc for entry in entries]),
            "spread": spread,
            "seeds": tuple(sorted(seed for entry in entries for seed in entry.seeds)),
            "status": min((entry.status for entry in entries), key=STATUSES.index),
            "pairs_seen": _mean([entry.pairs_seen for entry in entries]),
            "cost": _mean([entry.cost for entry in entries]),
            "last_epoch": _mean([entry.last_epoch for entry in entries]),
            "curves": tuple(curve for entry in entries for curve in entry.curves),
            "found": tuple(each for entry in entries for each in entry.found),
            "runs": tuple(run for entry in entries for run in entry.runs),
            "trained_on": tuple(dict.fromkeys(one for entry in entries for one in entry.trained_on)),
            "notes": tuple(dict.fromkeys(note for entry in entries for note in entry.notes)),
        }
    )


def _means(values: Sequence[dict[str, float]]) -> dict[str, float]:
    """Mean by name; empty if any part is empty."""
    return {name: math.fsum(one[name] for one in values) / len(values) for name in values[0] if all(values)}


def _mean(values: Sequence[float | None]) -> float | None:
    """Mean; None if any value is unknown."""
    known = [value for value in values if value is not None]
    return math.fsum(known) / len(known) if known and len(known) == len(values) else None


@dataclass(frozen=True)
class Content:
    """Everything that a leaderboard shows.

    Attributes:
        unmerged: all entries, one per seed.
        entries: all entries as shown, with seeds merged.
        boards: entries by cell, ranked.
        families: methods by key.
        papers: papers of reported entries by key; empty without published results.
        printed_detection: what papers print of finding wrong pairs; empty without published results.
        told_apart: tests whether two entries differ significantly, and gives the interval of one.
    """

    unmerged: tuple[Entry, ...]
    entries: tuple[Entry, ...]
    boards: tuple[Board, ...]
    families: dict[str, Family]
    papers: dict[str, Paper]
    printed_detection: tuple[PrintedDetection, ...]
    told_apart: ToldApart


def read_content(root: Path, *, published: bool, progress: Progress = silent) -> Content:
    """Read and check every entry.

    Args:
        root: folder with ``results/`` and optionally ``published/``.
        published: include the numbers that papers print.
        progress: reports the rows read and evaluated.

    Raises:
        SubmissionError: a file or field is refused.
    """
    families = read_families()
    folder = published_folder(root)
    reported = read_published(families, folder) if published else []
    measured, hits = read_measured(root, families, progress)
    submitted = _with_lone_ablations(measured)
    unmerged = (*reported, *with_look_alikes(submitted, families))
    entries, boards, told_apart = compared(merge_seeds(unmerged), hits)
    return Content(
        unmerged,
        entries,
        boards,
        _with_own_pages(families, entries),
        read_papers(folder) if published else {},
        tuple(read_printed_detection(folder)) if published else (),
        told_apart,
    )


def compared(
    entries: Sequence[Entry], hits: Mapping[Run, Hits]
) -> tuple[tuple[Entry, ...], tuple[Board, ...], ToldApart]:
    """Rank merged entries and add the interval of rSum to those with several seeds, but too few for a rank.

    Args:
        entries: all entries, of any cells.
        hits: of every measured run.
    """
    told_apart = ToldApart(hits, entries)

    def shown(entry: Entry) -> Entry:
        interval = told_apart.interval(entry) if entry.preliminary and not entry.intervals else None
        if interval is None:
            return entry
        low, high = (
            max(interval[0], 0.0),
            min(interval[1], 600.0),
        )  # two seeds alone may give more than rSum can be
        return entry.model_copy(update={"intervals": {"r_sum": (low, high)}})

    known = tuple(map(shown, entries))
    return known, tuple(boards_of(known, told_apart)), told_apart


def _with_lone_ablations(entries: Sequence[Entry]) -> list[Entry]:
    """The full method of an ablation takes no rank under a noise that nothing else was trained on."""
    alone = {entry.cell for entry in entries if entry.kind == "ablation"}
    alone -= {entry.cell for entry in entries if not entry.ablation}
    return [
        entry.model_copy(update={"kind": "ablation"}) if entry.cell in alone else entry for entry in entries
    ]


def published_folder(root: Path) -> Path:
    """Folder of published results: the leaderboard's own, or else this repository's."""
    return own_published(root) or PUBLISHED


def _with_own_pages(families: dict[str, Family], entries: Iterable[Entry]) -> dict[str, Family]:
    """Add a family for every submitted method that no family claims."""
    own = {
        entry.family: Family(
            title=entry.method,
            summary="Submitted to this leaderboard. Its authors describe it.",
            names=(entry.method,),
        )
        for entry in entries
        if entry.family not in families
    }
    return {**families, **dict(sorted(own.items()))}
