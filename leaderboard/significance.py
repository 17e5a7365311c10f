"""Test which rows of the leaderboard differ, by ``ncl_bench.evaluation.difference``."""

from collections.abc import Iterable, Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from leaderboard.entries import Row
from leaderboard.results import Run
from ncl_bench.evaluation.difference import Hits, difference_interval, significant_pairs


class SignificanceTest:
    """Tests which measured rows of a condition differ significantly; every pair of a condition is tested once.

    Args:
        hits: hits of every measured entry before seeds are merged, by row file, seed and protocol.
        rows: all rows that may be compared, of any conditions, from :meth:`leaderboard.entries.Entry.row`.
    """

    def __init__(self, hits: Mapping[Run, Hits], rows: Iterable[Row]) -> None:
        self.hits = hits
        conditions: dict[str, list[Row]] = {}
        for row in rows:
            if self._models(row):
                conditions.setdefault(row["slug"], []).append(row)
        self._places: dict[str, dict[tuple[str, tuple[str, ...]], int]] = {}
        self._apart: dict[str, NDArray[np.bool_]] = {}
        for slug, members in conditions.items():
            models = [self._models(row) for row in members]
            groups = [np.stack([model.parts() for model in each]) for each in models]
            self._places[slug] = {(row["file"], row["runs"]): place for place, row in enumerate(members)}
            self._apart[slug] = significant_pairs(groups, models[0][0].images_per_fold)

    def __call__(self, rows: Sequence[Row]) -> NDArray[np.bool_]:
        """Bool ``(n, n)`` over the rows of one condition; True if either row of a pair has no evidence."""
        apart = np.ones((len(rows), len(rows)), np.bool_)
        measured = [number for number, row in enumerate(rows) if self._models(row)]
        if measured:
            places, known = self._places[rows[0]["slug"]], self._apart[rows[0]["slug"]]
            at = [places[rows[number]["file"], rows[number]["runs"]] for number in measured]
            apart[np.ix_(measured, measured)] = known[np.ix_(at, at)]
        return apart

    def interval(self, row: Row) -> tuple[float, float] | None:
        """95 % interval of a row's mean rSum, over seeds and images together; None without evidence.

        It is the interval of the difference from models that answer nothing, for any seed and image.
        """
        models = self._models(row)
        if not models:
            return None
        parts = np.stack([model.parts() for model in models])
        return difference_interval(parts, np.zeros((2, parts.shape[1])), models[0].images_per_fold)

    def difference(self, first: Row, second: Row) -> tuple[float, float] | None:
        """95 % interval of the difference of two mean rSums of one condition; None without evidence of both."""
        mine, theirs = self._models(first), self._models(second)
        if not mine or not theirs:
            return None
        parts, others = (np.stack([model.parts() for model in each]) for each in (mine, theirs))
        return difference_interval(parts, others, mine[0].images_per_fold)

    def _models(self, row: Row) -> Sequence[Hits]:
        found = [self.hits.get((row["file"], run, row["protocol"])) for run in row["runs"]]
        known = [hits for hits in found if hits is not None]
        return known if len(known) == len(found) else ()
