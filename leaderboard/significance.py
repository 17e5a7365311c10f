"""Which entries of the leaderboard can be told apart, by the test of ``ncl_bench.evaluation.difference``."""

from collections.abc import Iterable, Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from leaderboard.entries import Cell, Entry
from leaderboard.results import Run
from ncl_bench.evaluation.difference import Hits, difference_interval, told_apart, told_apart_pairs


class ToldApart:
    """Callable on two entries: whether they can be told apart; True for entries without evidence.

    Args:
        hits: of every measured entry before seeds are merged, by cell, seed and protocol.
    """

    def __init__(self, hits: Mapping[Run, Hits]) -> None:
        self.hits = hits
        self._known: dict[Cell, tuple[dict[str, int], NDArray[np.bool_]]] = {}

    def remember(self, entries: Iterable[Entry]) -> None:
        """Compare all measured entries of each cell with each other at once."""
        cells: dict[Cell, list[Entry]] = {}
        for entry in entries:
            if self._models(entry):
                cells.setdefault(entry.cell, []).append(entry)
        for cell, members in cells.items():
            models = [self._models(entry) for entry in members]
            groups = [np.stack([model.parts() for model in each]) for each in models]
            places = {entry.file: place for place, entry in enumerate(members)}
            self._known[cell] = places, told_apart_pairs(groups, models[0][0].images_per_fold)

    def __call__(self, a: Entry, b: Entry) -> bool:
        places, apart = self._known.get(a.cell, ({}, None))
        if apart is not None and a.file in places and b.file in places:
            return bool(apart[places[a.file], places[b.file]])
        first, second = self._models(a), self._models(b)
        if not first or not second:
            return True
        size = first[0].images_per_fold
        return told_apart(np.stack([m.parts() for m in first]), np.stack([m.parts() for m in second]), size)

    def interval(self, entry: Entry) -> tuple[float, float] | None:
        """95 % interval of an entry's mean rSum, over seeds and images together; None without evidence.

        It is that of the difference from models that answer nothing, whatever the seed and the image.
        """
        models = self._models(entry)
        if not models:
            return None
        parts = np.stack([model.parts() for model in models])
        return difference_interval(parts, np.zeros((2, parts.shape[1])), models[0].images_per_fold)

    def _models(self, entry: Entry) -> Sequence[Hits]:
        found = [self.hits.get((entry.file, run, entry.cell.protocol)) for run in entry.runs]
        known = [hits for hits in found if hits is not None]
        return known if len(known) == len(found) else ()
