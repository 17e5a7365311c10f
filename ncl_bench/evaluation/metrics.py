"""Metrics of ranks, bootstrap intervals, and the correspondence track (docs/protocol.md, Numbers)."""

from collections.abc import Callable, Sequence
from functools import lru_cache, partial, reduce
from operator import add

import numpy as np
from numpy.typing import NDArray

from ncl_bench.evaluation.ranks import Ranks
from ncl_bench.npy import Float32Array, Int64Array
from ncl_bench.npy import Float64Array as Float64Array

CUTOFFS = (1, 5, 10)
RESAMPLES = 1_000
CONFIDENCE = 95.0
BOOTSTRAP_SEED = 0
DRAWN_AT_ONCE = 20
"""Random numbers drawn at once, per image; the resamples do not depend on it."""
FEWEST_IMAGES = 5
"""Images with a missed and with an answered query that a bootstrap interval needs."""


def recall_at(ranks: Int64Array, k: int) -> float:
    """Percentage of queries with rank at most ``k``.

    A hit rate: one true item among the first ``k`` is enough, as in the image-text retrieval literature.

    Args:
        ranks: int64 ``(n_queries,)``, from 1.
        k: cut-off.

    Returns:
        Percentage in [0, 100].
    """
    # integers up to the last division, so a recall is the same float on every machine
    return 100.0 * int(np.count_nonzero(ranks <= k)) / len(ranks)


def median_rank(ranks: Int64Array) -> float:
    """Median rank, rounded down between two ranks, as published code prints it.

    Args:
        ranks: int64 ``(n_queries,)``, from 1.
    """
    # published code floors the median; an even number of queries may have its median between two ranks
    return float(np.floor(np.median(ranks)))


def mean_rank(ranks: Int64Array) -> float:
    """Mean rank.

    Args:
        ranks: int64 ``(n_queries,)``, from 1.
    """
    return int(ranks.sum()) / len(ranks)


METRICS: dict[str, Callable[[Int64Array], float]] = {
    **{f"r{k}": partial(recall_at, k=k) for k in CUTOFFS},
    "median_rank": median_rank,
    "mean_rank": mean_rank,
}
RECALLS = ("i2t_r1", "i2t_r5", "i2t_r10", "t2i_r1", "t2i_r5", "t2i_r10")


def over_folds(metric: str, ranks: Int64Array, queries_per_fold: int) -> float:
    """Mean of one of ``METRICS`` over consecutive folds.

    Args:
        metric: name of the metric.
        ranks: int64 ``(n_queries,)``, each within its fold.
        queries_per_fold: queries in a fold; divides their number.
    """
    if len(ranks) == queries_per_fold:
        return METRICS[metric](ranks)
    return float(np.mean([METRICS[metric](fold) for fold in ranks.reshape(-1, queries_per_fold)]))


def recalls_and_sum(ranks: Ranks, images_per_fold: int) -> dict[str, float]:
    """The six recalls and ``r_sum`` alone, by name: what training asks for after every epoch.

    Args:
        ranks: ranks of ``n_images`` images, each within its fold.
        images_per_fold: images per fold; ``n_images`` for a single fold.
    """
    per_image = len(ranks.t2i) // len(ranks.i2t)
    sides = {"i2t": (ranks.i2t, images_per_fold), "t2i": (ranks.t2i, images_per_fold * per_image)}
    recalls = {name: over_folds(name[4:], *sides[name[:3]]) for name in RECALLS}
    # one addition after the other, as in a ProtocolResult; newer versions of Python compensate a sum
    return recalls | {"r_sum": reduce(add, recalls.values())}


def hits_per_image(ranks: Ranks) -> Int64Array:
    """Number of each image's queries answered within each cut-off.

    Args:
        ranks: ranks of ``n_images`` images and their captions.

    Returns:
        int64 ``(n_images, 6)`` in the order of ``RECALLS``; at most 1 in the first three columns, at most the number of
        captions per image in the others.
    """
    # captions go with their image: they are not independent, and resampling them one by one would make
    # intervals too narrow
    t2i = ranks.t2i.reshape(len(ranks.i2t), -1)
    columns = [ranks.i2t <= k for k in CUTOFFS] + [np.count_nonzero(t2i <= k, axis=1) for k in CUTOFFS]
    return np.stack(columns, axis=1).astype(np.int64)


def bootstrap_recalls(hits: Int64Array, queries_per_image: Int64Array, images_per_fold: int) -> Float64Array:
    """Bootstrap the six recalls over images, drawn within their fold; captions go with their image.

    A resample of a fold draws ``images_per_fold`` images with replacement by ``RandomState(0).randint``. All resamples
    of the first fold come first, then those of the next fold, from one stream. Sums are sums of integers, so the order
    of addition does not matter.

    Args:
        hits: int64 ``(n_images, m)`` from :func:`hits_per_image`.
        queries_per_image: int64 ``(m,)``: 1 for image queries, captions per image for caption queries.
        images_per_fold: divides ``n_images``; ``n_images`` itself without folds.

    Returns:
        Percentages, float64 ``(1000, m)``.
    """
    total = np.zeros((RESAMPLES, hits.shape[1]))
    for counts, start in zip(
        # one stream over all folds: each fold has other resamples
        resamples(len(hits), images_per_fold, RESAMPLES),
        range(0, len(hits), images_per_fold),
        strict=True,
    ):
        total += counts @ hits[start : start + images_per_fold].astype(np.float32)  # exact: sums below 2^24
    return 100.0 * total / (len(hits) * queries_per_image)


@lru_cache(maxsize=2)
def resamples(n_images: int, images_per_fold: int, resamples: int) -> tuple[Float32Array, ...]:
    """Counts of each image of a fold in each resample, ``(resamples, images_per_fold)``; the same for every model."""
    # the frozen stream, and the same resamples for every model, so that two of them can be compared image by
    # image
    random = np.random.RandomState(BOOTSTRAP_SEED)
    folds, left = [], np.empty(0, np.uint32)
    for _ in range(0, n_images, images_per_fold):
        counts = np.empty((resamples, images_per_fold), np.float32)
        # resample by resample: the counts of one fit the processor's cache, those of a hundred do not
        for count in counts:
            while len(left) < images_per_fold:
                left = np.concatenate([left, _drawn(random, images_per_fold)])
            drawn, left = left[:images_per_fold], left[images_per_fold:]
            count[:] = np.bincount(drawn, minlength=images_per_fold)
        folds.append(counts)
    return tuple(folds)


def _drawn(random: np.random.RandomState, n: int) -> NDArray[np.uint32]:
    """The next numbers of ``random.randint(0, n)``, somewhat more than ``10 * n``."""
    # what randint does, number by number: 32 bits of the stream, masked, and kept if below n. An array at a time takes
    # half as long, since no processor guesses which of 5,000 in 8,192 are kept.
    mask = np.uint32((1 << (n - 1).bit_length()) - 1)
    bits = np.frombuffer(random.bytes(4 * DRAWN_AT_ONCE * n), "<u4") & mask
    return bits.take(np.flatnonzero(bits < n))


def intervals_of_models(
    hits: Sequence[Int64Array], queries_per_image: Int64Array, images_per_fold: int
) -> list[list[tuple[float, float]]]:
    """95 % interval of each recall and of their sum, for every model.

    Percentiles of the bootstrap, or :func:`exact_interval` if fewer than ``FEWEST_IMAGES`` images have a missed query,
    or an answered one.

    Args:
        hits: of each model, on the same images, as in :func:`bootstrap_recalls`.
        queries_per_image, images_per_fold: as in :func:`bootstrap_recalls`.

    Returns:
        Of each model ``m`` intervals in percent, and one of the sum of the ``m`` recalls.
    """
    # the resamples are the same for all models, and reading them takes longer than to multiply
    samples = bootstrap_recalls(np.hstack(hits), np.tile(queries_per_image, len(hits)), images_per_fold)
    of_models = samples.reshape(len(samples), len(hits), -1)
    bounds = intervals(np.dstack([of_models, of_models.sum(axis=2)]).reshape(len(samples), -1))
    n, by_image = len(queries_per_image), np.stack([one.T for one in hits])
    # images with an answered query, and with a missed one: of each recall, and of all
    images = [
        np.column_stack([np.count_nonzero(side, axis=2), np.count_nonzero(side.any(axis=1), axis=1)])
        for side in (by_image > 0, by_image < queries_per_image[:, None])
    ]
    # here the bootstrap degenerates: it can only repeat the few misses that it has seen, and without any its
    # interval is a single point
    for model, column in np.argwhere(np.minimum(*images) < FEWEST_IMAGES).tolist():
        columns = [column] if column < n else list(range(n))
        queries, answered = queries_per_image[columns], hits[model][:, columns]
        # queries of one image may be missed together, so images count, each by the share of its queries
        shares = [float((side.sum(axis=0) / queries).mean()) for side in (answered, queries - answered)]
        low, high = exact_interval(*shares)
        # the last place is the sum of all recalls, whose interval is that of their mean, scaled
        bounds[model * (n + 1) + column] = (len(columns) * low, len(columns) * high)
    return [bounds[first : first + n + 1] for first in range(0, len(bounds), n + 1)]


def exact_interval(answered: float, missed: float) -> tuple[float, float]:
    """95 % interval of a percentage by Clopper and Pearson (1934): it covers the truth in at least 95 % of all cases.

    Args:
        answered: number of successes, perhaps with a fraction.
        missed: number of failures; both together are positive.
    """
    from scipy.special import betaincinv

    tail = (1 - CONFIDENCE / 100) / 2
    # the beta quantile also takes fractions, which queries of shared images make
    low = betaincinv(answered, missed + 1, tail) if answered else 0.0
    high = betaincinv(answered + 1, missed, 1 - tail) if missed else 1.0
    return 100 * float(low), 100 * float(high)


def intervals(samples: Float64Array) -> list[tuple[float, float]]:
    """95 % percentile interval of each column of bootstrap samples.

    Args:
        samples: float64 ``(n, m)``.
    """
    tail = (100.0 - CONFIDENCE) / 2
    # unsmoothed percentiles: recalls are steps, and a normal interval may leave [0, 100]
    # sorted by rows, a fourth of the time of numpy.percentile, whose rounding this is
    rows = np.sort(np.ascontiguousarray(samples.T), axis=1)
    position = (rows.shape[1] - 1) * (np.array([tail, 100.0 - tail]) / 100)
    below = position.astype(np.int64)
    share, low, high = position - below, rows[:, below], rows[:, below + 1]
    ends = np.where(share < 0.5, low + (high - low) * share, high - (high - low) * (1 - share))
    return [(first, last) for first, last in ends.tolist()]
