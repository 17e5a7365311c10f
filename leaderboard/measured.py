"""Measured tables: rows that this project trained at equal steps (docs/measured-tables.md).

A table holds one dataset, backbone and number of steps. It quotes one number from papers: the share of its clean score
that a method loses under noise.
"""

import statistics
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from leaderboard.board import Content, Ranked, ranked
from leaderboard.entries import UNITS, Cell, Entry
from ncl_bench.data import DATASETS
from ncl_bench.data.spec import protocol_title
from ncl_bench.evaluation.statement import TrainingCurve
from ncl_bench.papers import Paper

REFERENCE = ("caption", 0.6)
"""Unit and ratio of the noise that orders the lines and defines the drop from the clean score."""


@dataclass(frozen=True)
class Line:
    """One method of a table: its entry under every noise.

    Attributes:
        title: the method, with “tuned” if its recipe was tuned.
        entries: by cell.
    """

    title: str
    entries: dict[Cell, Entry]

    @property
    def first(self) -> Entry:
        """One of the entries, for facts shared by all."""
        return next(iter(self.entries.values()))

    @property
    def method(self) -> str:
        """The title without “tuned”."""
        return _title(self.first, tuned=False)

    @property
    def tuned(self) -> bool:
        """Whether its recipe was tuned, here or on another dataset."""
        return self.first.tuned

    @property
    def seeds(self) -> str:
        """Number of training seeds per mean: ``5``, or ``3–5`` if it differs between noises."""
        numbers = sorted({entry.n_seeds for entry in self.entries.values()})
        return "–".join(map(str, numbers[:1] + numbers[1:][-1:]))

    @property
    def detects(self) -> bool:
        """Whether the method estimates a clean probability for every pair."""
        return any(detection(entry) is not None for entry in self.entries.values())

    @property
    def pairs_seen(self) -> float | None:
        """Captions that each network encoded in training, mean over the noises; None if any is unknown."""
        return _mean([entry.pairs_seen for entry in self.entries.values()])

    @property
    def cost(self) -> float | None:
        """Training time relative to the same number of plain triplet steps, mean over the noises; None if unknown."""
        return _mean([entry.cost for entry in self.entries.values()])


@dataclass(frozen=True)
class Place:
    """An entry under one noise.

    Attributes:
        rank: from 1; None for a control and a preliminary entry.
        line: number of the method's line in its table.
        entry: the entry.
        interval: 95 % interval of the mean rSum over seeds and images; None without ranks of queries.
    """

    rank: int | None
    line: int
    entry: Entry
    interval: tuple[float, float] | None


@dataclass(frozen=True)
class Drop:
    """The share of the clean rSum that a method loses, in percent.

    Attributes:
        label: dataset, backbone, noise and source.
        percent: share of the clean rSum.
    """

    label: str
    percent: float


@dataclass(frozen=True)
class Drops:
    """The loss of a method under the reference noise, here and in papers.

    Attributes:
        title: the method.
        here, tuned: with the default and the tuned recipe, in percent of the clean rSum; None if a row is missing.
        printed: drops printed in papers.
    """

    title: str
    here: float | None
    tuned: float | None
    printed: list[Drop]


@dataclass(frozen=True)
class MeasuredTable:
    """Entries of one dataset, protocol, text, backbone and number of steps.

    Attributes:
        cells: the noises, in order.
        lines: the methods, sorted by rSum under the reference noise, best first, preliminary ones last.
        places: by cell, best first, preliminary entries last.
        groups: by cell, first and last index of runs of ``places`` in which no two entries differ significantly.
    """

    cells: tuple[Cell, ...]
    lines: tuple[Line, ...]
    places: dict[Cell, tuple[Place, ...]]
    groups: dict[Cell, tuple[tuple[int, int], ...]]

    @property
    def budget(self) -> int:
        """Gradient steps per network, averaged over a method's networks."""
        return self.lines[0].first.budget or 0

    @property
    def backbone(self) -> str:
        """Backbone of all lines."""
        return self.lines[0].first.backbone

    @property
    def slug(self) -> str:
        """Name in links."""
        cell = self.cells[0]
        parts = (cell.dataset, cell.protocol, cell.text, self.backbone, str(self.budget))
        return "-".join(filter(None, parts)).lower().replace("∞", "-infinity").replace(" ", "-")

    @property
    def title(self) -> str:
        """Dataset, protocol, backbone and steps in words."""
        cell = self.cells[0]
        protocol = protocol_title(cell.protocol)
        return (
            f"{DATASETS[cell.dataset].title}, {protocol}, {self.backbone}, {self.budget:,} steps per network"
        )

    def entries(self, cell: Cell) -> list[Entry]:
        """Entries under one noise, best first."""
        return [place.entry for place in self.places[cell]]

    def found(self, cell: Cell) -> list[Line]:
        """Lines whose runs recorded which wrong pairs they found under one noise."""
        return [line for line in self.lines if cell in line.entries and line.entries[cell].found]

    def rank(self, entry: Entry) -> int | None:
        """Rank of an entry within its noise; None for a control and a preliminary entry."""
        return next(place.rank for place in self.places[entry.cell] if place.entry == entry)


def measured_tables(content: Content) -> list[MeasuredTable]:
    """All measured tables, sorted by dataset; empty if nothing was trained at equal steps."""
    groups: dict[tuple[object, ...], list[Entry]] = {}
    for entry in content.entries:
        if entry.budget is not None and entry.status != "reported" and entry.kind != "ablation":
            cell = entry.cell
            key = (cell.dataset, cell.protocol, cell.text, entry.backbone, entry.budget)
            groups.setdefault(key, []).append(entry)
    return [_table(group, content) for _, group in sorted(groups.items(), key=lambda one: str(one[0]))]


def _table(entries: Sequence[Entry], content: Content) -> MeasuredTable:
    cells = tuple(sorted({entry.cell for entry in entries}, key=lambda cell: cell.order))
    lines: dict[str, dict[Cell, Entry]] = {}
    for entry in entries:
        lines.setdefault(title_of(entry), {})[entry.cell] = entry
    reference = next((cell for cell in cells if (cell.noise_unit, cell.noise_ratio) == REFERENCE), cells[-1])

    def order(title: str) -> tuple[bool, float, str]:
        found = lines[title].get(reference)
        return found is None or found.preliminary, -(found.r_sum or 0.0 if found else -1.0), title

    ordered = sorted(lines, key=order)
    number = {title: index for index, title in enumerate(ordered)}
    places, groups = {}, {}
    for cell in cells:
        placed = ranked([entry for entry in entries if entry.cell == cell], content.told_apart)
        places[cell] = tuple(_place(one, number, content) for one in placed)
        firm = [place.entry for place in places[cell] if not place.entry.preliminary]
        groups[cell] = alike(content.told_apart(firm))
    return MeasuredTable(cells, tuple(Line(title, lines[title]) for title in ordered), places, groups)


def _place(one: Ranked, number: Mapping[str, int], content: Content) -> Place:
    return Place(one.rank, number[title_of(one.entry)], one.entry, content.told_apart.interval(one.entry))


def title_of(entry: Entry) -> str:
    """A line's name: the method, “tuned” if its recipe was tuned, and other changed settings."""
    return _title(entry, tuned=True)


def _title(entry: Entry, *, tuned: bool) -> str:
    kept = [
        difference
        for difference in entry.differs
        if not difference.endswith(" steps") and (tuned or difference != entry.recipe)
    ]
    return f"{entry.method} ({', '.join(kept)})" if kept else entry.method


def alike(apart: NDArray[np.bool_]) -> tuple[tuple[int, int], ...]:
    """First and last index of the longest runs of at least two entries in which no two differ significantly.

    Args:
        apart: which pairs differ significantly, bool ``(n, n)``.
    """
    runs: list[tuple[int, int]] = []
    first = 0
    for last in range(len(apart)):
        before = np.flatnonzero(apart[first:last, last])
        begin = (
            first + int(before[-1]) + 1 if len(before) else first
        )  # start after the nearest entry that differs significantly
        if begin > first and last - 1 > first:
            runs.append((first, last - 1))
        first = begin
    if len(apart) - 1 > first:
        runs.append((first, len(apart) - 1))
    return tuple(runs)


def drop(clean: Entry, noisy: Entry) -> float:
    """Share of the clean rSum lost under noise, in percent."""
    assert clean.r_sum is not None
    assert noisy.r_sum is not None
    return 100 * (clean.r_sum - noisy.r_sum) / clean.r_sum


def drops(table: MeasuredTable, content: Content) -> list[Drops]:
    """Drops of all methods in a table that were trained both without noise and under the reference noise."""
    found: dict[str, dict[bool, Line]] = {}
    for line in table.lines:
        if drop_here(line) is not None:
            found.setdefault(line.method, {})[line.tuned] = line
    rows = []
    for title, lines in found.items():
        here, tuned = (drop_here(lines[kind]) if kind in lines else None for kind in (False, True))
        family = next(iter(lines.values())).first.family
        rows.append(Drops(title, here, tuned, printed_drops(family, content.entries, content.papers)))
    return rows


def drop_here(line: Line) -> float | None:
    """Drop of a line in percent; None if it lacks the clean or the reference noise."""
    clean = next((e for cell, e in line.entries.items() if cell.noise_unit == "none"), None)
    noisy = next((e for c, e in line.entries.items() if (c.noise_unit, c.noise_ratio) == REFERENCE), None)
    return None if clean is None or noisy is None else drop(clean, noisy)


def printed_drops(family: str, entries: Iterable[Entry], papers: Mapping[str, Paper]) -> list[Drop]:
    """Drops that papers print for a method at the ratio of the reference noise, without doubtful rows.

    A drop that several papers print for one row is listed once.
    """
    rows: dict[tuple[object, ...], dict[str, Entry]] = {}
    for entry in entries:
        usable = entry.status == "reported" and entry.family == family and entry.ranked
        if usable and entry.cell.noise_ratio in (0.0, REFERENCE[1]):
            cell = entry.cell
            key = (entry.source, entry.method, entry.backbone, entry.networks, cell.dataset, cell.protocol)
            rows.setdefault(key, {})[cell.noise_unit] = entry
    found: dict[tuple[str, str], list[str]] = {}
    for row in rows.values():
        for unit, noisy in row.items():
            if unit != "none" and "none" in row:
                where = f"{DATASETS[noisy.cell.dataset].title}, {protocol_title(noisy.cell.protocol)}, {noisy.backbone}"
                said = (f"{where}, {UNITS[noisy.cell.noise_unit]}", f"{drop(row['none'], noisy):.1f}")
                found.setdefault(said, []).append(papers[noisy.source].short.split(",")[0])
    return [
        Drop(f"{where} ({', '.join(dict.fromkeys(sources))})", float(percent))
        for (where, percent), sources in found.items()
    ]


@dataclass(frozen=True)
class Detection:
    """How well a method separates true pairs from wrong ones after training, mean over seeds, in [0, 1].

    Attributes:
        auroc, average_precision: of the clean probability.
        best_auroc: highest AUROC of any epoch.
    """

    auroc: float
    average_precision: float
    best_auroc: float


def detection(entry: Entry) -> Detection | None:
    """Detection of an entry; None if its method estimates nothing or no pair was wrong."""
    curves = [curve for curve in entry.curves if curve.auroc]
    if not curves:
        return None
    return Detection(
        statistics.fmean(curve.auroc[-1] for curve in curves),
        statistics.fmean(curve.average_precision[-1] for curve in curves),
        statistics.fmean(max(curve.auroc) for curve in curves),
    )


PRECISION_AT = (50, 200, 1_000)
"""Numbers of most suspicious pairs on the page Detection."""


def found_pairs(entry: Entry) -> dict[str, float | None] | None:
    """Wrong pairs found at the method's own threshold, by measure, mean over seeds; None if no run recorded them."""
    if not entry.found:
        return None
    names = ("accuracy", "precision", "recall", "f1", "average_precision_wrong")
    means: dict[str, float | None] = {
        name: statistics.fmean(getattr(each, name) for each in entry.found) for name in names
    }
    return means | {str(k): _mean([each.precision_at.get(k) for each in entry.found]) for k in PRECISION_AT}


def mean_curve(
    curves: Sequence[TrainingCurve], of: Callable[[TrainingCurve], Sequence[float]]
) -> list[tuple[float, float]]:
    """Mean over seeds at twenty steps, linear between epochs, as ``(step, value)``."""
    used = [curve for curve in curves if of(curve)]
    if not used:
        return []
    end = min(curve.steps[-1] for curve in used)
    start = max(curve.steps[0] for curve in used)
    if start >= end:
        return [(float(end), statistics.fmean(of(curve)[-1] for curve in used))]
    places = [start + (end - start) * n / 19 for n in range(20)]
    return [(x, statistics.fmean(_at(curve.steps, of(curve), x) for curve in used)) for x in places]


def _at(xs: Sequence[float], ys: Sequence[float], x: float) -> float:
    for (x0, y0), (x1, y1) in pairwise(zip(xs, ys, strict=True)):
        if x0 <= x <= x1 and x1 > x0:
            return y0 + (y1 - y0) * (x - x0) / (x1 - x0)
    return ys[-1]


def _mean(values: Sequence[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return statistics.fmean(known) if known and len(known) == len(values) else None
