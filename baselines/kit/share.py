"""Estimate how many pairs are wrong, and of each pair how probably, from pairs that are wrong for certain.

Planted pairs are images with captions of other images. A logistic regression learns to tell them from the given pairs;
no image is scored by a regression that has seen it. Far on the planted side lie no right pairs, so the given pairs
there, divided by the planted ones, are the share of wrong pairs (best bin estimation: Garg et al., NeurIPS 2021). The
probability is the share times the ratio of both densities along the score, which an isotonic regression estimates.
"""

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from ncl_bench.npy import BoolArray, Float64Array, FloatArray, Int64Array

PARTS = np.arange(0.2, 0.81, 0.05)
"""Parts of the planted pairs, the most suspicious ones, from which the share may be read off. In smaller parts planted
and really wrong pairs may differ, in larger ones are right pairs."""
MODEL_ERROR = 0.1, 0.002
"""Part of the share, and a constant, by which the range is wider at each end than counting makes it: pairs are not
wrong quite as the planted ones are. docs/audit-judge.md measures the ranges."""
SURE = 0.95
"""The largest probability that is stated: where half of the pairs were wrong, that many of the surest ones were."""


@dataclass(frozen=True)
class Share:
    """The estimated share of wrong pairs with a range, and of each pair the probability that it is wrong.

    Attributes:
        share, low, high: in [0, 1].
        probability: float64 ``(n,)``, rises with the score.
    """

    share: float
    low: float
    high: float
    probability: Float64Array


def suspicion(given: FloatArray, planted: FloatArray, fold: Int64Array) -> tuple[Float64Array, Float64Array]:
    """Score pairs by logarithmic odds of being planted.

    Args:
        given: ``(n, views)``, what is measured of each pair.
        planted: ``(n, draws, views)``, of each pair's image with captions of other images.
        fold: int64 ``(n,)``, number of each pair's fold; all pairs of an image are of one.

    Returns:
        Scores of the given pairs, float64 ``(n,)``, and of the planted ones, ``(n, draws)``; larger is more suspicious.
    """
    from sklearn.linear_model import LogisticRegression

    views = planted.shape[-1]
    flat = planted.reshape(-1, views).astype(np.float64)
    mean, deviation = flat.mean(axis=0), flat.std(axis=0) + 1e-12
    x, z = (given - mean) / deviation, (planted - mean) / deviation
    scores, scores_planted = np.empty(x.shape[0]), np.empty(z.shape[:2])
    for rows, others in folds_by_number(fold):
        wrong = z[others].reshape(-1, views)
        weight = np.repeat((1.0, len(others) / len(wrong)), (len(others), len(wrong)))
        label = np.repeat((0, 1), (len(others), len(wrong)))
        model = LogisticRegression().fit(np.concatenate([x[others], wrong]), label, sample_weight=weight)
        scores[rows] = model.decision_function(x[rows])
        scores_planted[rows] = model.decision_function(z[rows].reshape(-1, views)).reshape(len(rows), -1)
    return scores, scores_planted


def told_apart(scores: Float64Array, planted: Float64Array) -> float:
    """AUROC of planted against given pairs."""
    from sklearn.metrics import roc_auc_score

    label = np.repeat((0, 1), (len(scores), planted.size))
    return float(roc_auc_score(label, np.append(scores, planted)))


def folds_by_number(fold: Int64Array) -> Iterator[tuple[Int64Array, Int64Array]]:
    """Yield the pairs of each fold, and the others."""
    for number in range(fold.max() + 1):
        yield np.flatnonzero(fold == number), np.flatnonzero(fold != number)


def share_of_wrong(
    scores: Float64Array, planted: Float64Array, image_of: Int64Array, counted: BoolArray
) -> Share:
    """Read off the share, and calibrate the scores.

    Args:
        scores, planted: of :func:`suspicion`.
        image_of: int64 ``(n,)``; pairs of one image are counted as one observation where they are wrong together.
        counted: bool ``(n,)``, the pairs among which wrong ones are counted; the others have a probability too.
    """
    s, p, image = scores[counted], planted[counted], image_of[counted]
    # the part is chosen on one half of the images and read off on the other: the smallest of many numbers is too small
    one, two = image % 2 == 0, image % 2 == 1
    halves = [
        _read_off(s[on], p[on], image[on], _best_part(s[by], p[by], image[by]))[0]
        for by, on in ((one, two), (two, one))
    ]
    _, low, high = _read_off(s, p, image, _best_part(s, p, image))
    relative, constant = MODEL_ERROR
    share = sum(halves) / 2
    low, high = max(0.0, low - relative * share - constant), min(1.0, high + relative * share + constant)
    share = min(max(share, low), high)
    return Share(share, low, high, _calibrated(scores, s, p, share))


def _best_part(scores: Float64Array, planted: Float64Array, image_of: Int64Array) -> float:
    """The part whose upper end is lowest: right pairs lift it in large parts, and small counts in small ones."""
    return float(min(PARTS, key=lambda part: _read_off(scores, planted, image_of, part)[2]))


def _read_off(
    scores: Float64Array, planted: Float64Array, image_of: Int64Array, part: float
) -> tuple[float, float, float]:
    """Share from the given pairs among a part of the planted ones; range of their count (Garwood, 1936), 95 %."""
    from scipy.stats import gamma

    beyond = scores >= np.quantile(planted, 1 - part)
    of_image = np.unique(image_of[beyond], return_counts=True)[1]
    together = float((of_image**2).sum() / of_image.sum()) if len(of_image) else 1.0
    count = beyond.sum() / together
    low, high = gamma.ppf(0.025, count) if count else 0.0, gamma.ppf(0.975, count + 1)
    share, low, high = (min(1.0, float(each * together / len(scores) / part)) for each in (count, low, high))
    return share, low, high


def _calibrated(
    scores: Float64Array, given: Float64Array, planted: Float64Array, share: float
) -> Float64Array:
    """Probability of every score, by the densities of the given and the planted pairs along it."""
    from sklearn.isotonic import IsotonicRegression

    n, m = len(given), planted.size
    label, weight = np.repeat((0.0, 1.0), (n, m)), np.repeat((1.0, n / m), (n, m))
    curve = IsotonicRegression(out_of_bounds="clip").fit(
        np.append(given, planted), label, sample_weight=weight
    )
    wrong = curve.predict(scores)
    estimated = share * wrong / np.maximum(1 - wrong, 1e-12)
    probability: Float64Array = np.minimum(estimated, most_supported(estimated))
    return probability


def most_supported(estimated: Float64Array) -> float:
    """The largest probability that pairs with these estimates can show, at most :data:`SURE`.

    That k pairs are all wrong shows a probability of (k + 1) / (k + 2), by Laplace's rule of succession. An estimate is
    a ratio of densities, and where pairs are few it has no largest value: one pair beyond all others has any.
    """
    shown = 1 - 1 / np.arange(2, len(estimated) + 3)  # by no pair, by one, ...
    held = np.append(np.inf, np.sort(estimated)[::-1]) >= shown
    return min(SURE, float(shown[held].max()))
