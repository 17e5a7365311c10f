"""Test which rows of the leaderboard differ, by ``ncl_bench.evaluation.difference``, and what a rank is worth.

A rank counts significant differences pair by pair. With twelve equal methods, some pair of most tables differs. So a
rank has an interval that holds for all rows of a table at once, with 95 % confidence: one more than the number of rows
that are surely better, up to the number of rows that are not surely worse. A row is surely better if the simultaneous
interval of the difference lies above 0. Its width is a multiple of each pair's standard error, the same for all pairs:
the 98 % quantile of the largest studentised difference in a bootstrap over seeds and images together. The 95 % quantile
would hold in too few tables, because a bootstrap of a few seeds is too narrow: of simulated tables of equal methods,
up to 8 % had a row that is surely better. With 98 % it is at most 5 % (``pytest -m slow`` of test_significance.py).

Three seeds of one row have only ten different samples, so the bootstrap draws deviations of seeds from all rows of the
table, scaled by ``sqrt(n / (n - 1))`` for ``n`` seeds, because deviations from a mean are too small by that factor.
Each draw has a standard error of its own seeds. Images are the same for all rows of a draw.
"""

from collections.abc import Iterable, Mapping, Sequence
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from leaderboard.entries import Entry, Run
from ncl_bench.evaluation.difference import (
    FIXED,
    UNKNOWN,
    Hits,
    OfOneRun,
    PairVariances,
    difference_interval,
    pair_variances,
    significant_pairs,
)
from ncl_bench.evaluation.metrics import CONFIDENCE, Float64Array, resamples
from ncl_bench.evaluation.people import Agreement, agreement_interval
from ncl_bench.evaluation.protocol import fold_size

DRAWS = 2_000
QUANTILE = 0.98
"""Of the largest difference in the draws, for intervals that hold in 95 % of the tables."""
SEED = 0
DIFFERENCES = (5.0, 10.0, 20.0)
"""Points of rSum for which a table states its power."""
TRIALS = 20_000
"""Simulated comparisons per difference; the standard error of the power is below .004."""


class SignificanceTest:
    """Tests which measured rows of a condition differ significantly; every pair of a condition is tested once.

    Args:
        hits: hits of every measured entry before seeds are merged, by row file, seed and protocol.
        rows: all rows that may be compared, of any conditions.
        agreements: agreement with experts by row file and seed, of runs whose evidence knows images and captions.
    """

    def __init__(
        self,
        hits: Mapping[Run, Hits],
        rows: Iterable[Entry],
        agreements: Mapping[tuple[str, str], Agreement] | None = None,
    ) -> None:
        self.hits = hits
        self.agreements = agreements or {}
        self._of_runs: dict[Run, Float64Array] = {}
        conditions: dict[str, list[Entry]] = {}
        self._largest: dict[tuple[str, ...], OfOneRun] = {}
        for row in rows:
            parts = self._parts(row)
            if parts is None:
                continue
            conditions.setdefault(row.condition.slug, []).append(row)
            if len(parts) > 1 and row.kind in ("method", "clean", "corrected"):
                seen = OfOneRun(
                    float(parts.mean(axis=1).var(ddof=1)) * _runs_of_a_result(row), len(parts) - 1
                )
                # two results say little: their variance has one degree of freedom
                self._largest[_method(row)] = max(
                    seen,
                    self._largest.get(_method(row), seen),
                    key=lambda one: (one.freedom > 1, one.variance),
                )
        self._places: dict[str, dict[tuple[str, tuple[str, ...]], int]] = {}
        self._apart: dict[str, NDArray[np.bool_]] = {}
        for slug, members in conditions.items():
            self._places[slug] = {(row.file, row.runs): number for number, row in enumerate(members)}
            self._apart[slug] = significant_pairs(*self._groups(members))

    def __call__(self, rows: Sequence[Entry]) -> NDArray[np.bool_]:
        """Bool ``(n, n)`` over the rows of one condition; True if either row of a pair has no evidence."""
        # a printed row has no evidence: only its rSum places it, so nothing may be said to be alike
        apart = np.ones((len(rows), len(rows)), np.bool_)
        measured = [number for number, row in enumerate(rows) if self._parts(row) is not None]
        if measured:
            places, known = self._places[rows[0].condition.slug], self._apart[rows[0].condition.slug]
            at = [places[rows[number].file, rows[number].runs] for number in measured]
            apart[np.ix_(measured, measured)] = known[np.ix_(at, at)]
        return apart

    def interval(self, row: Entry) -> tuple[float, float] | None:
        """95 % interval of a row's mean rSum, over seeds and images together; None without evidence of either.

        It is the interval of the difference from models that answer nothing, for any seed and image.
        """
        if (parts := self._parts(row)) is None:
            return None
        nothing = np.zeros((2, parts.shape[1]))
        return _finite(
            difference_interval(parts, nothing, self._fold(row, parts), (self._of_one(row), FIXED))
        )

    def difference(self, first: Entry, second: Entry) -> tuple[float, float] | None:
        """95 % interval of the difference of two mean rSums of one condition.

        None without evidence of both, or if a row has one training run and no row says how much its method varies.
        """
        mine, theirs = self._parts(first), self._parts(second)
        if mine is None or theirs is None:
            return None
        of_one = self._of_one(first), self._of_one(second)
        return _finite(difference_interval(mine, theirs, self._fold(first, mine), of_one))

    def agreement(self, row: Entry, other: Entry | None = None) -> tuple[float, float] | None:
        """95 % interval of a row's agreement with experts, over images, captions and seeds; None without evidence.

        Args:
            row: of any condition.
            other: a second row: the interval is that of the difference, row minus other, on the same pairs.
        """
        sides = [[self.agreements.get((one.file, run)) for run in one.runs] for one in (row, other) if one]
        known = [[run for run in side if run is not None] for side in sides]
        if not all(known) or known != sides:
            return None
        # one run alone says nothing about another, unless it is a closed form
        ones = [FIXED if row.closed_form or other is None else UNKNOWN for row in (row, other or row)]
        return _finite(agreement_interval(known[0], known[1] if other else (), (ones[0], ones[1])))

    def rank_intervals(self, rows: Sequence[Entry]) -> list[tuple[int, int] | None]:
        """Simultaneous 95 % interval of the rank of each row among rows of one condition; None without evidence.

        A row without evidence stands where its rSum puts it, as in the ranks.
        """
        known = [number for number, row in enumerate(rows) if self._parts(row) is not None]
        sums = np.array([row.r_sum for row in rows], np.float64)
        better = np.greater.outer(sums, sums)
        if known:
            better[np.ix_(known, known)] = surely_better(*self._groups([rows[number] for number in known]))
        intervals = zip(
            (1 + better.sum(axis=0)).tolist(), (len(rows) - better.sum(axis=1)).tolist(), strict=True
        )
        return [ends if number in known else None for number, ends in enumerate(intervals)]

    def power(self, rows: Sequence[Entry], n_seeds: int) -> list[tuple[float, float]] | None:
        """How often the test finds a difference of two methods in this condition, by simulation.

        Args:
            rows: of one condition; those with several seeds give the variances.
            n_seeds: seeds of each of the two methods.

        Returns:
            Difference in points of rSum, and the share of simulated comparisons that are significant; None with fewer
            than two rows of several seeds.
        """
        groups = [parts for row in rows if (parts := self._parts(row)) is not None and len(parts) > 1]
        if len(groups) < 2:
            return None
        pairs = np.triu_indices(len(groups), 1)
        v = pair_variances(groups, self._fold(rows[0], groups[0]))
        of_seeds = np.stack([v.spread[pairs[0]], v.spread[pairs[1]]])
        shares = simulated_power(DIFFERENCES, of_seeds, v.images[pairs], n_seeds, groups[0].shape[1])
        return list(zip(DIFFERENCES, shares, strict=True))

    def _of_one(self, row: Entry) -> OfOneRun:
        """Variance over seeds of a row with one result: the largest of its method's rows on the dataset.

        Rows of three results or more count before those of two.

        A closed form without another row has none, and that of another method without one is unknown.
        """
        known = self._largest.get(_method(row))
        if known is None:
            return FIXED if row.closed_form else UNKNOWN
        return known._replace(variance=known.variance / _runs_of_a_result(row))

    def _parts(self, row: Entry) -> Float64Array | None:
        """Contribution of each image to the rSum of each run of a row, float64 ``(n_runs, n_images)``."""
        runs = [(row.file, run, row.condition.protocol) for run in row.runs]
        if not runs or not all(run in self.hits for run in runs):
            return None
        for run in runs:
            if run not in self._of_runs:
                self._of_runs[run] = self.hits[run].parts()
        return np.stack([self._of_runs[run] for run in runs])

    def _fold(self, row: Entry, parts: Float64Array) -> int:
        return fold_size(row.condition.protocol, parts.shape[1])

    def _groups(self, rows: Sequence[Entry]) -> tuple[list[Float64Array], int, list[OfOneRun]]:
        """Rows with evidence of one condition, as the tests of all pairs take them."""
        groups = [parts for row in rows if (parts := self._parts(row)) is not None]
        return groups, self._fold(rows[0], groups[0]), [self._of_one(row) for row in rows]


def _method(row: Entry) -> tuple[str, ...]:
    """Rows of one method, whose variances over seeds a row with one training run may borrow.

    Scores that were corrected for hubs vary otherwise, so they lend only to each other.
    """
    name = row.method.split(" (mean of")[0]
    return (name, row.backbone, row.condition.dataset, row.condition.protocol, row.correction)


def _runs_of_a_result(row: Entry) -> int:
    """Training runs behind one result: a mean of two seeds counts its runs."""
    return len(row.runs[0].split("+"))


def _finite(interval: tuple[float, float]) -> tuple[float, float] | None:
    return interval if np.isfinite(interval).all() else None


def surely_better(
    groups: Sequence[Float64Array],
    images_per_fold: int,
    of_one: Sequence[OfOneRun] = (),
    *,
    draws: int = DRAWS,
    seed: int = SEED,
) -> NDArray[np.bool_]:
    """Whether group i is above group j for all pairs at once, with 95 % confidence; bool ``(n, n)``.

    Args:
        groups: one float ``(n_seeds, n_images)`` array per group, on the same images: contribution of each image to the
            rSum of each model.
        images_per_fold: divides ``n_images``; ``n_images`` itself without folds.
        of_one: variance over seeds of each group, read for groups with one model (default: 0).
        draws: bootstrap draws.
        seed: of the draws.
    """
    v = pair_variances(groups, images_per_fold, of_one)
    error = np.sqrt(v.seeds + v.images)
    largest = largest_differences(groups, images_per_fold, draws, seed, v)
    # one limit for all pairs: then every interval of the table holds at once, not 95 % of them
    limit = np.quantile(largest, QUANTILE)
    better: NDArray[np.bool_] = np.subtract.outer(v.level, v.level) > limit * error
    return better


def largest_differences(
    groups: Sequence[Float64Array],
    images_per_fold: int,
    draws: int,
    seed: int,
    v: PairVariances,
) -> Float64Array:
    """Largest studentised deviation of any pair's difference in each bootstrap draw, float64 ``(draws,)``.

    Arguments as in :func:`surely_better`; ``v`` are the variances of the same groups.
    """
    random, n_images = np.random.default_rng(seed), groups[0].shape[1]
    means = np.stack([one.mean(axis=0) for one in groups])
    # draws lie side by side, here and below: numpy goes through long rows at once
    over_images = np.ascontiguousarray((_changes(n_images, images_per_fold, draws) @ means.T / n_images).T)
    # three seeds alone have ten different resamples: deviations of all rows together make a smooth distribution
    pool = [
        np.sqrt(len(one) / (len(one) - 1)) * (one.mean(axis=1) - one.mean()) for one in groups if len(one) > 1
    ]
    deviations = np.concatenate(pool) if pool else np.zeros(1)
    of_seeds, spread = np.empty((2, len(groups), draws))
    for number, one in enumerate(groups):
        drawn = deviations[random.integers(len(deviations), size=(draws, len(one))).T.copy()]
        # a closed form does not deviate
        of_seeds[number] = drawn.mean(axis=0) if v.of_mean[number] or len(one) > 1 else 0.0
        spread[number] = drawn.var(axis=0, ddof=1) / len(one) if len(one) > 1 else v.of_mean[number]
    largest = np.zeros(draws)
    # row by row of the pairs, since all pairs of all draws together would take gigabytes
    for i in range(1, len(groups)):
        # without the interaction of seed and image, which the seeds' deviations hold too
        share = np.sqrt(
            np.divide(v.images[i, :i], v.over_images[i, :i], where=v.over_images[i, :i] > 0, out=np.zeros(i))
        )[:, None]
        apart = share * (over_images[i] - over_images[:i]) + of_seeds[i] - of_seeds[:i]
        variance = spread[i] + spread[:i] + v.images[i, :i, None]
        ratio = np.divide(np.abs(apart), np.sqrt(variance), where=variance > 0, out=np.zeros_like(apart))
        largest = np.maximum(largest, ratio.max(axis=0))
    return largest


@lru_cache(maxsize=1)  # the groups of a condition, and mostly the conditions that follow, share it
def _changes(n_images: int, images_per_fold: int, draws: int) -> Float64Array:
    """How much oftener than once each image is in each resample, float64 ``(draws, n_images)``."""
    return np.concatenate(resamples(n_images, images_per_fold, draws), axis=1).astype(np.float64) - 1


def simulated_power(
    points: Sequence[float], of_seeds: Float64Array, of_images: Float64Array, n_seeds: int, n_images: int
) -> list[float]:
    """Share of simulated comparisons of two methods that are significant; each has the variances of a random pair.

    Args:
        points: true differences of rSum, each for a share.
        of_seeds: float64 ``(2, n_pairs)``, variance of the two methods' rSum over their seeds.
        of_images: float64 ``(n_pairs,)``, variance over images of the difference of the two methods.
        n_seeds: seeds of each method.
        n_images: test images.
    """
    from scipy.special import stdtrit  # slow to import, and few commands need it

    random = np.random.default_rng(SEED)
    pair = random.integers(len(of_images), size=TRIALS)
    of_images = of_images[pair]
    models = np.sqrt(of_seeds[:, pair, None]) * random.standard_normal((2, TRIALS, n_seeds))
    difference = np.array(points)[:, None] + np.sqrt(of_images) * random.standard_normal(TRIALS)
    difference += models[0].mean(axis=1) - models[1].mean(axis=1)
    spread = models.var(axis=2, ddof=1) / n_seeds
    variance = spread.sum(axis=0) + of_images
    squares = (spread**2).sum(axis=0) / (n_seeds - 1) + of_images**2 / (n_images - 1)
    # without variance, as of two rows that rank every query alike, any difference is beyond its limit
    freedom = np.divide(variance**2, squares, where=squares > 0, out=np.full(TRIALS, np.inf))
    limit = stdtrit(freedom, 0.5 + CONFIDENCE / 200) * np.sqrt(variance)
    return [float(share) for share in np.mean(np.abs(difference) > limit, axis=1)]
