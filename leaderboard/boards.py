"""Rows into boards: one per cell, divided so that only comparable rows are ranked against each other."""

import math
import statistics
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from leaderboard.rows import RECALLS, STATUSES, Cell, Recalls, Row
from ncl_bench.datasets import DATASETS

DIVISIONS = {
    "single": "Region features, single network",
    "ensemble": "Region features, several networks averaged",
    "unstated": "Region features, number of networks not stated",
    "extra": "Extra clean data or a pre-trained filter",
    "pretrained": "Pre-trained vision-language encoder",
    "encoder-unstated": "Encoder not stated",
    "controls": "Ablations and oracles, not ranked",
}
UNITS = {
    "none": "no added noise",
    "caption": "caption noise",
    "image": "image noise",
    "unknown": "noise, unit unknown",
    "natural": "natural noise",
}
PROTOCOLS = {"1k": "1K test", "5fold-1k": "mean of five 1K folds", "5k": "5K test", "200": "200 test images"}

ToldApart = Callable[[Row, Row], bool]


@dataclass(frozen=True)
class Ranked:
    """A row and its rank.

    Attributes:
        rank: from 1; None for a row that takes none.
        row: the row.
        also: rows of other sources that print the very same numbers.
    """

    rank: int | None
    row: Row
    also: tuple[Row, ...] = ()


@dataclass(frozen=True)
class Division:
    """Rows that may be ranked against each other, best first."""

    key: str
    rows: tuple[Ranked, ...]

    @property
    def title(self) -> str:
        """Heading of the division."""
        return DIVISIONS[self.key]

    @property
    def best(self) -> Row | None:
        """The row of rank 1, one that we reproduced or recomputed first; None where nothing is ranked."""
        leaders = [ranked.row for ranked in self.rows if ranked.rank == 1]
        return max(leaders, key=lambda row: STATUSES.index(row.status), default=None)

    @property
    def not_told_apart(self) -> list[Row]:
        """The rows that share rank 1 with ``best``."""
        return [r.row for r in self.rows if r.rank == 1 and r.row != self.best]

    @property
    def best_of_ours(self) -> Row | None:
        """The best row that we recomputed or reproduced; None where there is none."""
        ours = (r.row for r in self.rows if r.rank is not None)
        return next((row for row in ours if row.status in ("recomputed", "reproduced")), None)


@dataclass(frozen=True)
class Board:
    """All rows of one cell."""

    cell: Cell
    divisions: tuple[Division, ...]

    @property
    def rows(self) -> list[Row]:
        """The rows of all divisions."""
        entries = (ranked for division in self.divisions for ranked in division.rows)
        return [row for ranked in entries for row in (ranked.row, *ranked.also)]


def division_of(row: Row) -> str:
    """Key in ``DIVISIONS`` of the division a row belongs to."""
    if row.kind != "entry":
        return "controls"
    if row.features != "region":
        return "pretrained" if row.features == "pretrained" else "encoder-unstated"
    if row.extra:
        return "extra"
    return {"single": "single", "ensemble": "ensemble", "unknown": "unstated"}[row.networks]


def boards_of(rows: Iterable[Row], told_apart: ToldApart = lambda a, b: True) -> list[Board]:
    """All boards, in the order of ``Cell.order``.

    Args:
        rows: rows of any cells.
        told_apart: whether a test tells two rows apart (``leaderboard.significance``); reported rows, which
            have no evidence, are ranked by rSum alone.
    """
    cells: dict[Cell, dict[str, list[Row]]] = {}
    for row in rows:
        cells.setdefault(row.cell, {}).setdefault(division_of(row), []).append(row)
    return [
        Board(
            cell,
            tuple(
                Division(key, _ranked(cells[cell][key], told_apart))
                for key in DIVISIONS
                if key in cells[cell]
            ),
        )
        for cell in sorted(cells, key=lambda cell: cell.order)
    ]


def _ranked(rows: Sequence[Row], told_apart: ToldApart) -> tuple[Ranked, ...]:
    """Best first; a row's rank is one more than the number of rows above that are told apart from it.

    It is never better than the rank of the row above. So every pair within reach of the best rows is tested, and
    no row is pushed down by rows that nothing tells from it: where A and B, and B and C are alike, but not A
    and C, the ranks are 1, 1 and 2.
    """
    ordered = sorted(
        rows, key=lambda row: (-(row.r_sum or 0.0), row.method, row.backbone, row.source, row.table)
    )
    ranked: list[Ranked] = []
    above: list[Row] = []
    rank = 1
    for row, *also in _folded(ordered):
        if row.ranked:
            better = sum(not _equal(other, row) and told_apart(other, row) for other in above)
            rank = max(rank, 1 + better)
            above.append(row)
        ranked.append(Ranked(rank if row.ranked else None, row, tuple(also)))
    return tuple(ranked)


def _folded(rows: Sequence[Row]) -> list[list[Row]]:
    """Rows of one method with the same numbers and remarks together, that of the method's own paper first."""
    groups: dict[tuple[object, ...], list[Row]] = {}
    for number, row in enumerate(rows):
        same = (
            row.method,
            row.backbone,
            row.recalls,
            row.printed_r_sum if row.recalls.r_sum is None else None,
        )
        remarks = (row.notes, row.doubts, row.extra)
        groups.setdefault((*same, *remarks) if row.status == "reported" else (number,), []).append(row)
    return [sorted(group, key=lambda row: not row.own) for group in groups.values()]


def _equal(a: Row, b: Row) -> bool:
    return f"{a.r_sum:.1f}" == f"{b.r_sum:.1f}"


def merge_seeds(rows: Iterable[Row]) -> list[Row]:
    """Rows that differ only in their training seed as one row: mean, standard deviation, and the seeds.

    Reported rows are left as they are. The status of a merged row is the weakest of its parts, its intervals
    are dropped (each belongs to one trained model), and the sum of the mean recalls is its rSum.
    """
    groups: dict[tuple[object, ...], list[Row]] = {}
    for number, row in enumerate(rows):
        what = (row.method, row.backbone, row.features, row.networks, row.extra, row.kind)
        how = (row.noise, row.selection, row.precision)
        same = (*what, row.cell, *how, row.paper, row.code)
        groups.setdefault((number,) if row.status == "reported" else same, []).append(row)
    return [_merged(group) for group in groups.values()]


def _merged(rows: list[Row]) -> Row:
    if len(rows) == 1:
        return rows[0]
    values = {name: [getattr(row.recalls, name) for row in rows] for name in RECALLS}
    sums = [row.r_sum for row in rows]
    spread = {name: statistics.stdev(column) for name, column in {**values, "r_sum": sums}.items()}
    return rows[0].model_copy(
        update={
            "recalls": Recalls(**{name: math.fsum(column) / len(column) for name, column in values.items()}),
            "intervals": {},
            "spread": spread,
            "seeds": tuple(sorted(seed for row in rows for seed in row.seeds)),
            "status": min((row.status for row in rows), key=STATUSES.index),
            "files": tuple(sorted(path for row in rows for path in row.files)),
            "trained_on": tuple(dict.fromkeys(one for row in rows for one in row.trained_on)),
            "notes": tuple(dict.fromkeys(note for row in rows for note in row.notes)),
        }
    )


def cell_title(cell: Cell) -> str:
    """A cell in words, such as ``Flickr30K, 1K test, 40 % caption noise``."""
    noise = UNITS[cell.noise_unit]
    if cell.noise_ratio:
        noise = f"{cell.percent} % {noise}"
    text = f" ({cell.text})" if cell.text else ""
    return f"{DATASETS[cell.dataset].title}, {PROTOCOLS.get(cell.protocol, cell.protocol)}, {noise}{text}"
