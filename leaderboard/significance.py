"""Whether a paired bootstrap can tell two measured rows apart (protocol.md, Metrics)."""

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from leaderboard.rows import Row
from ncl_bench.counting import Int64Array
from ncl_bench.metrics import CUTOFFS, bootstrap_recalls, interval


@dataclass(frozen=True, eq=False)
class Hits:
    """What one trained model answered, per test image.

    Attributes:
        per_image: int64 ``(n_images, 6)``: queries of the image answered within each cut-off, in the order of
            ``ncl_bench.metrics.RECALLS``.
        captions_per_image: a fact of the dataset.
        images_per_fold: images are resampled within their fold.
    """

    per_image: Int64Array
    captions_per_image: int
    images_per_fold: int


class Alike:
    """Callable on two rows: True when the 95 % interval of their rSum difference holds 0.

    The same resampled images are used for both rows, and all training seeds of a row are averaged, so the
    interval is about the test images and not about training. Rows without evidence are never alike.

    Args:
        hits: of every measured row before seeds are merged, by row file and protocol.
    """

    def __init__(self, hits: Mapping[tuple[str, str], Hits]) -> None:
        self.hits = hits

    def __call__(self, a: Row, b: Row) -> bool:
        first, second = self._summed(a), self._summed(b)
        if first is None or second is None:
            return False
        difference = first.per_image * len(b.files) - second.per_image * len(a.files)
        queries = np.array([1] * len(CUTOFFS) + [first.captions_per_image] * len(CUTOFFS))
        low, high = interval(bootstrap_recalls(difference, queries, first.images_per_fold).sum(axis=1))
        return low <= 0.0 <= high

    def _summed(self, row: Row) -> Hits | None:
        found = [self.hits.get((path, row.cell.protocol)) for path in row.files]
        known = [hits for hits in found if hits is not None]
        if not known or len(known) < len(found):
            return None
        total = np.sum([hits.per_image for hits in known], axis=0)
        return Hits(total, known[0].captions_per_image, known[0].images_per_fold)
