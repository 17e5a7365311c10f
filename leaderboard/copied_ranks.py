"""Ranks that a reviewer has to ask about: near those of another result, or ranks that no one matrix can give."""

from collections.abc import Mapping

import numpy as np
from numpy.typing import NDArray
from scipy.stats import rankdata

from ncl_bench.evaluation.ranks import Ranks

NEARLY = 0.05
"""Relative difference up to which two ranks of a query count as near."""
NEAR_COPY = 0.55
"""Share of near ranks above which a result resembles another one.

Of the 454,692 pairs of this repository's results on one dataset, most have less than .1. The nearest two have .475, on
digits, where both answer nine queries in ten. A copy in which three ranks in ten become 1 has .65 or more.
"""

CORRELATED = 0.9
"""Rank correlation with another result from which on a remark says so; halved and shifted copies have more.

Independent results of one dataset rarely reach it; two filters on one warm-up, and two settings of one method, do.
"""


def near_copies(ranks: Mapping[str, NDArray[np.int64]], run: str) -> dict[str, float]:
    """Results that one resembles, and the share of its ranks near theirs, largest first.

    The share is over the queries that not both answer at rank 1, which any two good models have in common.

    Args:
        ranks: name of a result to the ranks of all queries ``(n,)``; all of one dataset.
        run: name of the result to compare with the others.
    """
    ours, shares = ranks[run], {}
    for other, theirs in ranks.items():
        low, high = np.minimum(ours, theirs), np.maximum(ours, theirs)
        share = float(np.mean((high <= (1 + NEARLY) * low)[high > 1])) if high.max() > 1 else 1.0
        if other != run and share > NEAR_COPY:
            shares[other] = share
    return dict(sorted(shares.items(), key=lambda one: -one[1]))


def correlated(ranks: Mapping[str, NDArray[np.int64]], run: str) -> dict[str, float]:
    """Results whose ranks order the queries as this one's do, and Spearman's correlation, largest first.

    Args:
        ranks, run: as of :func:`near_copies`, over the same queries.
    """
    ours, correlations = ranks[run], {}
    for other, theirs in ranks.items():
        asked = np.maximum(ours, theirs) > 1
        if other == run or asked.sum() < 3:
            continue
        pair = np.stack([rankdata(ours[asked]), rankdata(theirs[asked])])
        if pair.std(axis=1).all() and (value := float(np.corrcoef(pair)[0, 1])) > CORRELATED:
            correlations[other] = value
    return dict(sorted(correlations.items(), key=lambda one: -one[1]))


def contradicts(ranks: Ranks) -> bool:
    """Whether no matrix can give the ranks of both directions.

    Two sums bound each other. Order the images by the score of their best true caption, the highest first. Take image
    number ``k`` from 0, and a wrong caption that scores at least as high as its best true one. If this caption belongs
    to an image of the same place or later, its own true score is no higher, so the image also outranks the truth of
    this caption. At most ``k`` images, with ``n`` captions each, are earlier. So the captions are outranked at least
    ``sum(max(0, rank - 1 - k * n))`` times. No order gives less than that by ascending ranks, because the summand is
    convex. The same holds for captions, of which ``k`` earlier ones belong to at most ``k`` images.

    Args:
        ranks: of all images and captions, from one matrix.
    """
    each = len(ranks.t2i) // len(ranks.i2t)
    pairs = ((ranks.i2t, ranks.t2i, each), (ranks.t2i, ranks.i2t, 1))
    return any(
        int((there - 1).sum()) < int(np.maximum(0, np.sort(here) - 1 - np.arange(len(here)) * step).sum())
        for here, there, step in pairs
    )
