"""Estimate how many pairs are wrong, from scores of the pairs and of chance.

Chance is the score of an image with another image's caption. A wrong pair looks like it, unless its caption resembles
the true one. True pairs are a mixture of two normals to the right of chance. This is the two-groups model with a known
null (Efron, Statistical Science 2008).
"""

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ncl_bench.data.columns import Int64Array

BINS = 400
"""Scores are counted in bins, so a fit takes as long for a million pairs as for a thousand."""
SMOOTH, TAIL = 0.2, 0.01
"""Chance is smoothed by a fifth of its deviation; a hundredth of it is a normal of twice its deviation."""
RESAMPLES = 200
MODEL_ERROR = 0.1, 0.005
"""Part of the share, and a constant, by which the interval is wider at each end than resampling makes it: true pairs
that fit no better than chance count as wrong. docs/audit.md measures how many these are."""
ITERATIONS = 1_000
LEAST_MEAN, DEVIATIONS = 1.0, (0.4, 2.0)
"""Bounds of the true pairs' components: nearer to chance they could not be told from wrong pairs."""
Float64Array = NDArray[np.float64]


@dataclass(frozen=True)
class Share:
    """The estimated share of wrong pairs with a range, and of each pair the probability that it is wrong.

    Attributes:
        share, low, high: in [0, 1].
        probability: float64 ``(n,)``, falls with the score.
    """

    share: float
    low: float
    high: float
    probability: Float64Array


def share_of_wrong(
    score: NDArray[np.floating], chance: NDArray[np.floating], image_of: Int64Array, *, seed: int = 0
) -> Share:
    """Fit the mixture, and resample images for the interval.

    Args:
        score: ``(n,)``, larger means more likely right.
        chance: ``(n, draws)``, scores of each pair's image with captions of other images.
        image_of: int64 ``(n,)``; pairs of one image are resampled together.
        seed: of the resamples.
    """
    from scipy.ndimage import gaussian_filter1d
    from scipy.stats import norm

    centre, unit = chance.mean(), chance.std() + 1e-12
    z, z_chance = (score - centre) / unit, (chance.reshape(-1) - centre) / unit
    edges = np.linspace(min(z.min(), z_chance.min()) - 1, max(z.max(), z_chance.max()) + 1, BINS + 1)
    middle, width = (edges[1:] + edges[:-1]) / 2, edges[1] - edges[0]
    place = np.searchsorted(edges, z) - 1
    drawn = np.histogram(z_chance, edges)[0] / (len(z_chance) * width)
    # the wide normal keeps a wrong pair possible where chance was not drawn
    wrong = (1 - TAIL) * gaussian_filter1d(drawn, SMOOTH / width) + TAIL * norm.pdf(middle, 0, 2)
    start = np.array([0.1, 0.45, 0.45]), np.array([1.0, 2.5]), np.array([1.0, 1.0])
    counts = np.bincount(place, minlength=BINS)
    weights, means, deviations = _fitted(counts, middle, wrong, *start)
    random = np.random.default_rng(seed)
    image = np.unique(image_of, return_inverse=True)[1]
    n_images = image.max() + 1
    found = []
    for _ in range(RESAMPLES):
        drawn = np.bincount(random.integers(n_images, size=n_images), minlength=n_images)
        resampled = np.bincount(place, drawn[image], BINS)
        found.append(_fitted(resampled, middle, wrong, weights, means, deviations)[0][0])
    low, high = np.quantile(found, (0.025, 0.975))
    right = sum(w * norm.pdf(middle, m, s) for w, m, s in zip(weights[1:], means, deviations, strict=True))
    probability = np.interp(z, middle, weights[0] * wrong / (weights[0] * wrong + right))
    # a wide component of true pairs would make the lowest scores look right again
    order = np.argsort(z, kind="stable")
    probability[order] = np.maximum.accumulate(probability[order][::-1])[::-1]
    share = float(weights[0])
    error = MODEL_ERROR[0] * share + MODEL_ERROR[1]
    return Share(share, max(0.0, float(low) - error), min(1.0, float(high) + error), probability)


def _fitted(
    counts: NDArray[Any],
    middle: Float64Array,
    wrong: Float64Array,
    weights: Float64Array,
    means: Float64Array,
    deviations: Float64Array,
) -> tuple[Float64Array, Float64Array, Float64Array]:
    """Maximise the likelihood by EM: weights ``(3,)``, the first of wrong pairs, and the two true components."""
    n = counts.sum()
    for _ in range(ITERATIONS):
        right = np.exp(-(((middle - means[:, None]) / deviations[:, None]) ** 2) / 2)
        right /= deviations[:, None] * np.sqrt(2 * np.pi)
        joint = weights[:, None] * np.vstack([wrong, right])
        shared = joint / np.maximum(joint.sum(axis=0), 1e-300) * counts
        mass = shared.sum(axis=1)
        change = np.abs(mass / n - weights).max()
        weights = mass / n
        of_true = np.maximum(mass[1:], 1e-12)
        means = np.maximum(shared[1:] @ middle / of_true, LEAST_MEAN)
        variance = (shared[1:] * (middle - means[:, None]) ** 2).sum(axis=1) / of_true
        deviations = np.clip(np.sqrt(variance), *DEVIATIONS)
        if change < 1e-6:
            break
    return weights, means, deviations
