"""Which entries of the leaderboard can be told apart, by the test of ``ncl_bench.evaluation.difference``."""

from collections.abc import Mapping, Sequence

import numpy as np

from leaderboard.entries import Entry
from leaderboard.results import Run
from ncl_bench.evaluation.difference import Hits, difference_interval, told_apart


class ToldApart:
    """Callable on two entries: whether they can be told apart; True for entries without evidence.

    Args:
        hits: of every measured entry before seeds are merged, by cell, seed and protocol.
    """

    def __init__(self, hits: Mapping[Run, Hits]) -> None:
        self.hits = hits

    def __call__(self, a: Entry, b: Entry) -> bool:
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
