"""The board: one row per entry, ranked within its condition and category; every page is written from these rows."""

import math
import statistics
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby
from pathlib import Path
from typing import TYPE_CHECKING, Any

from leaderboard.entries import STATUSES, Condition, Entry, Recalls, Row, Run, grouped
from leaderboard.folder import published_folder
from ncl_bench.evaluation.metrics import RECALLS
from ncl_bench.names import lookalike
from ncl_bench.papers import (
    DetectionLine,
    Family,
    Paper,
    base_name,
    family_of,
    read_families,
    read_papers,
    read_printed_detection,
)
from ncl_bench.progress import Progress, silent

if TYPE_CHECKING:  # slow to import, and who reads the frame computes nothing
    from leaderboard.significance import SignificanceTest
    from ncl_bench.evaluation.difference import Hits
    from ncl_bench.evaluation.people import Agreement

CATEGORIES = {
    "single": "Region features, single network",
    "ensemble": "Region features, several networks averaged",
    "unstated": "Region features, number of networks not stated",
    "extra": "Extra clean data or a pre-trained filter",
    "pretrained": "Pre-trained vision-language encoder",
    "images": "Vision-language network on images, from drawn weights",
    "encoder-unstated": "Encoder not stated",
    "controls": "Ablations, controls on clean pairs and several noise draws, not ranked",
}


@dataclass(frozen=True)
class Category:
    """The rows of a board that are ranked against each other.

    Attributes:
        key: in ``CATEGORIES``, or ``all``.
        title: shown above the rows.
        rows: those that lead, best first.
    """

    key: str
    title: str
    rows: list[Row]


@dataclass(frozen=True)
class Board:
    """The rows of one condition.

    Attributes:
        condition: of all rows.
        n: number of rows, also of those that others lead.
        categories: in the order of ``CATEGORIES``.
        eccv, people: whether any row was evaluated with the labels of ECCV Caption, or with people's judgements.
    """

    condition: Condition
    n: int
    categories: list[Category]
    eccv: bool
    people: bool


def board_of(entries: Iterable[Entry], test: "SignificanceTest") -> list[Row]:
    """Rank all rows within their condition and category.

    Args:
        entries: of any conditions, seeds merged.
        test: of every pair of rows.

    Returns:
        The rows in the order of the pages; ``number`` is their place in ``entries``.
    """
    rows = [Row.of(entry, number=number) for number, entry in enumerate(entries)]

    groups = groupby(sorted(rows, key=group_of), key=group_of)
    return [row for _, members in groups for row in ranked(list(members), test)]


def group_of(row: Row) -> tuple[Any, ...]:
    """Sort key of the rows that are ranked together: condition, category, and encoder."""
    return *row.condition.order, list(CATEGORIES).index(row.category), _encoder(row)


def ranked(rows: Sequence[Row], test: "SignificanceTest") -> list[Row]:
    """Sort rows best first; a rank is one more than the number of better rows that differ significantly.

    Its interval is simultaneous for all rows; None without a rank or evidence.

    Preliminary rows take no rank and stand below all others: a lone lucky seed must not lead. A closed form takes a
    rank with one result, but none where every trained row is preliminary: it would lead a table of one.

    Ranks never improve down the list. A row is pushed down only by rows that differ significantly from it: if A and B,
    and B and C do not differ, but A and C do, the ranks are 1, 1 and 2.
    """
    ordered = sorted(
        rows,
        key=lambda row: (
            *(row.preliminary, -row.r_sum_or_0),
            *(row.method, row.backbone, row.source, row.table),
        ),
    )
    folded = _folded(ordered)
    leads = [lead for lead, *_ in folded if lead.ranked]
    # a closed form needs one result, so it would be first of a table whose trained rows all wait for seeds
    compared = not all(lead.closed_form for lead in leads)
    apart, intervals = test(leads), iter(test.rank_intervals(leads) if compared else ())
    shown = [lead.shown_sum for lead in leads]
    placed: list[Row] = []
    rank = n_ranked = above = 0
    for lead, *also in folded:
        if lead.ranked:
            if shown[n_ranked] != shown[n_ranked - 1]:  # rows with equal printed sums share a rank
                above = n_ranked
            # never better than the row above: a wide spread alone, which differs from little, must not win places
            rank = max(rank, 1 + int(apart[:above, n_ranked].sum()))
            n_ranked += 1
        shown_rank = rank if lead.ranked and compared else None
        sources = tuple(other.source for other in also)
        interval = None if shown_rank is None else next(intervals)
        placed.append(
            lead.model_copy(update={"rank": shown_rank, "rank_interval": interval, "also": sources})
        )
        placed += [
            other.model_copy(update={"rank": shown_rank, "rank_interval": None, "also": None})
            for other in also
        ]
    return placed


def _folded(rows: Sequence[Row]) -> list[list[Row]]:
    """Group printed rows of one method with the same numbers, the method's own paper first, with all remarks."""
    groups: list[list[Row]] = []
    of_model: dict[tuple[object, ...], list[list[Row]]] = {}
    for row in rows:
        model = (row.quoted_as, bool(row.doubts), row.extra, row.selection, row.noise)
        known = of_model.setdefault(model, []) if row.status == "reported" else []
        # papers copy tables: one measurement printed five times is one row with five sources, not five votes
        group = next((one for one in known if all(_agree(row, other) for other in one)), [])
        if not group:
            groups.append(group)
            known.append(group)
        group.append(row)
    folded = []
    for group in groups:
        lead, *also = sorted(
            group,
            key=lambda row: (
                *(not row.own, row.printed_gap is not None),
                None in row.recalls.values.values(),
            ),
        )
        remarks = {
            name: tuple(dict.fromkeys(text for row in (lead, *also) for text in getattr(row, name)))
            for name in ("doubts", "notes")
        }
        folded.append([lead.model_copy(update=remarks), *also])
    return folded


def _agree(first: Row, second: Row) -> bool:
    """Whether two rows print the same sum, or none, and the same of every recall that both print."""
    pairs = zip(first.recalls.values.values(), second.recalls.values.values(), strict=True)
    shared = [(a, b) for a, b in pairs if a is not None and b is not None]
    same_sum = first.shown_sum == second.shown_sum and bool(first.shown_sum or shared)
    return same_sum and all(a == b for a, b in shared)


def boards(rows: Iterable[Row]) -> list[Board]:
    """The boards of ranked rows in their order: one per condition, with a table per category."""
    boards_found = []
    for shown in grouped(rows, lambda row: row.condition).values():
        categories = []
        for (key, encoder), group in groupby(shown, key=lambda row: (row.category, _encoder(row))):
            title = f"{CATEGORIES[key]}: {encoder}" if encoder else CATEGORIES[key]
            leads = [row for row in group if row.also is not None]
            categories.append(Category(key, title, leads))
        eccv, people = (any(getattr(row, name) for row in shown) for name in ("eccv", "people"))
        boards_found.append(Board(shown[0].condition, len(shown), categories, eccv, people))
    return boards_found


def _encoder(row: Row) -> str:
    """Rows on pre-trained encoders are divided by encoder."""
    return row.encoder if row.category == "pretrained" else ""


def merge_seeds(entries: Iterable[Entry]) -> list[Entry]:
    """Merge the seeds of a row file into one entry: mean, standard deviation, and the seeds.

    Reported entries do not change. A merged entry has the weakest status of its parts. It has no intervals, because
    each belongs to one trained model (see :func:`compared`). Its rSum is the sum of the mean recalls.
    """
    return [merge(results) for results in results_of_rows(entries)]


def results_of_rows(entries: Iterable[Entry]) -> list[list[Entry]]:
    """The results of every row: those of one file under one condition, and each printed number alone."""
    # a printed number has no file, and so a key of its own
    groups = grouped(entries, lambda one: (one.file, one.condition) if one.file else id(one))
    return [*groups.values()]


def merge(entries: Sequence[Entry]) -> Entry:
    """The results of a row as one entry, see :func:`merge_seeds`."""
    if len(entries) == 1:
        return entries[0]
    # a single seed returned above: it keeps its intervals, and the standard deviation of one number is undefined
    values = {name: [getattr(entry.recalls, name) for entry in entries] for name in RECALLS}
    sums = [entry.r_sum for entry in entries]
    spread = {name: statistics.stdev(column) for name, column in {**values, "r_sum": sums}.items()}
    people = _means([entry.people for entry in entries])
    spread |= {name: statistics.stdev(entry.people[name] for entry in entries) for name in people}
    # one per seed, in one order, so that curve k belongs to run k
    joined = {
        name: tuple(one for entry in entries for one in getattr(entry, name))
        for name in ("curves", "found", "separated", "runs", "trained_on")
    }
    # machines are mostly the same for all seeds: each is shown once
    once = {"trained_on": tuple(dict.fromkeys(joined["trained_on"]))}
    # unknown if any seed does not say it: a mean over the others would be of another row
    means = {
        name: mean([getattr(entry, name) for entry in entries])
        for name in ("pairs_seen", "cost", "last_epoch")
    }
    return entries[0].model_copy(
        update={
            # fsum is exact before its one rounding, so the order of the seeds does not matter
            "recalls": Recalls(**{name: math.fsum(column) / len(column) for name, column in values.items()}),
            "eccv": _means([entry.eccv for entry in entries]),
            "cxc": _means([entry.cxc for entry in entries]),
            "people": people,
            "spread": spread,
            "seeds": tuple(sorted(seed for entry in entries for seed in entry.seeds)),
            # as weak as the weakest part: one unverified seed makes the mean unverified
            "status": min((entry.status for entry in entries), key=STATUSES.index),
        }
        | merged_remarks(entries)
        | joined
        | once
        | means
    )


def merged_remarks(entries: Sequence[Entry]) -> dict[str, Any]:
    """Intervals, notes and doubts of the results of a row as one entry."""
    if len(entries) == 1:
        return {name: getattr(entries[0], name) for name in ("intervals", "notes", "doubts")}
    return {
        # an interval over queries belongs to one trained model, not to the mean of several
        "intervals": {},
        # remarks are mostly the same for all seeds: each is shown once
        "notes": tuple(dict.fromkeys(note for entry in entries for note in entry.notes)),
        "doubts": entries[0].doubts,
    }


def _means(values: Sequence[dict[str, float]]) -> dict[str, float]:
    """Mean by name; empty if any part is empty."""
    return {name: math.fsum(one[name] for one in values) / len(values) for name in values[0] if all(values)}


def mean(values: Sequence[float | None]) -> float | None:
    """Mean; None if there is no value or any is unknown."""
    known = [value for value in values if value is not None]
    return math.fsum(known) / len(known) if known and len(known) == len(values) else None


@dataclass(frozen=True)
class Content:
    """Everything that a leaderboard shows.

    Attributes:
        seeds: all entries, one per seed and protocol.
        rows: the board with seeds merged, from :func:`board_of`.
        families: methods by key.
        papers: papers of reported entries by key; empty without published results.
        printed_detection: what papers print of finding wrong pairs; empty without published results.
        significantly_different: tests whether two rows differ significantly, and gives the interval of one.
    """

    seeds: tuple[Entry, ...]
    rows: list[Row]
    families: dict[str, Family]
    papers: dict[str, Paper]
    printed_detection: tuple[DetectionLine, ...]
    significantly_different: "SignificanceTest"


def read_content(root: Path, *, published: bool, dataset: str = "", progress: Progress = silent) -> Content:
    """Read and check every entry.

    Args:
        root: folder with ``results/`` and optionally ``published/``.
        published: include the numbers that papers print.
        dataset: of the measured results, include only those on this dataset.
        progress: reports the rows read and evaluated.
    """
    from leaderboard.read_entries import read_measured, read_published

    families = read_families()
    folder = published_folder(root)
    reported = read_published(families, folder) if published else []
    measured = read_measured(root, families, progress, dataset=dataset)
    submitted = _with_lone_ablations(measured.entries)
    seeds = (*reported, *with_look_alikes(submitted, families))
    rows, significantly_different = compared(seeds, measured.hits, measured.agreements)
    return Content(
        seeds,
        rows,
        _with_own_pages(families, seeds),
        read_papers(folder) if published else {},
        tuple(read_printed_detection(folder)) if published else (),
        significantly_different,
    )


def compared(
    seeds: Iterable[Entry],
    hits: "Mapping[Run, Hits]",
    agreements: "Mapping[tuple[str, str], Agreement] | None" = None,
) -> "tuple[list[Row], SignificanceTest]":
    """Merge seeds and rank the rows; several seeds that are too few for a rank, or draws, have an interval of rSum.

    Args:
        seeds: all entries, of any conditions.
        hits: of every measured run.
        agreements: with experts, see :class:`~leaderboard.significance.SignificanceTest`.
    """
    from leaderboard.significance import SignificanceTest

    merged = merge_seeds(seeds)
    significantly_different = SignificanceTest(hits, merged, agreements)
    for number, entry in enumerate(merged):
        if (
            (entry.preliminary or entry.kind == "draws")
            and not entry.intervals
            and (interval := significantly_different.interval(entry))
        ):
            # two seeds alone may give more than rSum can be
            limited = {"r_sum": (max(interval[0], 0.0), min(interval[1], 600.0))}
            merged[number] = entry.model_copy(update={"intervals": limited})
    return board_of(merged, significantly_different), significantly_different


def with_look_alikes(entries: Iterable[Entry], families: Mapping[str, Family]) -> list[Entry]:
    """Add a remark to entries whose name looks like another method's name in other letters."""
    entries = list(entries)
    standing = [name for family in families.values() for name in family.names]
    standing += sorted({base_name(entry.method) for entry in entries if entry.method.isascii()})
    remarks = {
        name: lookalike(base_name(name), () if family_of(name, dict(families)) else standing)
        for name in {entry.method for entry in entries}
    }
    return [
        entry.model_copy(update={"notes": (remark, *entry.notes)})
        if (remark := remarks[entry.method])
        else entry
        for entry in entries
    ]


def _with_lone_ablations(entries: Sequence[Entry]) -> list[Entry]:
    """The full method of an ablation takes no rank under a noise that nothing else was trained on."""
    alone = {entry.condition for entry in entries if entry.kind == "ablation"}
    alone -= {entry.condition for entry in entries if not entry.ablation}
    return [
        entry.model_copy(update={"kind": "ablation"}) if entry.condition in alone else entry
        for entry in entries
    ]


def _with_own_pages(families: dict[str, Family], entries: Iterable[Entry]) -> dict[str, Family]:
    """Add a family for every submitted method that no family claims."""
    submitted = {
        entry.family: Family(
            title=entry.method,
            summary="Submitted to this leaderboard. Its authors describe it.",
            names=(entry.method,),
        )
        for entry in entries
        if entry.family not in families
    }
    return {**families, **dict(sorted(submitted.items()))}
