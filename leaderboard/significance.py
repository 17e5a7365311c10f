"""Test which entries of the leaderboard differ, by ``ncl_bench.evaluation.difference``."""

from collections.abc import Iterable, Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from leaderboard.entries import Cell, Entry
from leaderboard.results import Run
from ncl_bench.evaluation.difference import Hits, difference_interval, told_apart_pairs


class ToldApart:
    """Tests which measured entries of a cell differ significantly; every pair of a cell is tested once.

    Args:
        hits: hits of every measured entry before seeds are merged, by cell file, seed and protocol.
        entries: all entries that may be compared, of any cells.
    """

    def __init__(self, hits: Mapping[Run, Hits], entries: Iterable[Entry]) -> None:
        self.hits = hits
        cells: dict[Cell, list[Entry]] = {}
        for entry in entries:
            if self._models(entry):
                cells.setdefault(entry.cell, []).append(entry)
        self._places: dict[Cell, dict[tuple[str, tuple[str, ...]], int]] = {}
        self._apart: dict[Cell, NDArray[np.bool_]] = {}
        for cell, members in cells.items():
            models = [self._models(entry) for entry in members]
            groups = [np.stack([model.parts() for model in each]) for each in models]
            self._places[cell] = {(entry.file, entry.runs): place for place, entry in enumerate(members)}
            self._apart[cell] = told_apart_pairs(groups, models[0][0].images_per_fold)

    def __call__(self, entries: Sequence[Entry]) -> NDArray[np.bool_]:
        """Bool ``(n, n)`` over the entries of one cell; True if either entry of a pair has no evidence."""
        apart = np.ones((len(entries), len(entries)), np.bool_)
        measured = [number for number, entry in enumerate(entries) if self._models(entry)]
        if measured:
            places, known = self._places[entries[0].cell], self._apart[entries[0].cell]
            at = [places[entries[number].file, entries[number].runs] for number in measured]
            apart[np.ix_(measured, measured)] = known[np.ix_(at, at)]
        return apart

    def interval(self, entry: Entry) -> tuple[float, float] | None:
        """95 % interval of an entry's mean rSum, over seeds and images together; None without evidence.

        It is the interval of the difference from models that answer nothing, for any seed and image.
        """
        models = self._models(entry)
        if not models:
            return None
        parts = np.stack([model.parts() for model in models])
        return difference_interval(parts, np.zeros((2, parts.shape[1])), models[0].images_per_fold)

    def difference(self, first: Entry, second: Entry) -> tuple[float, float] | None:
        """95 % interval of the difference of two mean rSums of one cell; None without evidence of both."""
        mine, theirs = self._models(first), self._models(second)
        if not mine or not theirs:
            return None
        parts, others = (np.stack([model.parts() for model in each]) for each in (mine, theirs))
        return difference_interval(parts, others, mine[0].images_per_fold)

    def _models(self, entry: Entry) -> Sequence[Hits]:
        found = [self.hits.get((entry.file, run, entry.cell.protocol)) for run in entry.runs]
        known = [hits for hits in found if hits is not None]
        return known if len(known) == len(found) else ()
