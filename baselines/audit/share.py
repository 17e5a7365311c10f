"""Estimate how many pairs are wrong, from scores of the pairs and of chance.

Chance is the score of an image with another image's caption, which is what a wrong pair looks like unless its caption is
similar to the true one. Scores become normal scores of chance, so wrong pairs are standard normal; true ones are a mixture
of two normals to the right of it (the two-groups model with a known null: Efron, Statistical Science 2008).
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from ncl_bench.data.columns import Int64Array

BINS = 240
MOST = 6.0
"""Normal scores are counted in 240 bins from -6 to 6, so a fit takes as long for a million pairs as for a thousand."""
RESAMPLES = 200
ITERATIONS = 300
LEAST_MEAN, DEVIATIONS = 0.5, (0.4, 2.0)
"""Bounds of the true pairs' components: nearer to chance they could not be told from wrong pairs."""
Float64Array = NDArray[np.float64]


@dataclass(frozen=True)
class Share:
    """The estimated share of wrong pairs with its 95 % interval, and of each pair the probability that it is wrong.

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
    from scipy.special import ndtri
    from scipy.stats import norm

    null = np.sort(chance, axis=None)
    below = (np.searchsorted(null, score, "left") + np.searchsorted(null, score, "right")) / 2
    z = np.clip(ndtri((below + 0.5) / (len(null) + 1)), -MOST + 1e-6, MOST - 1e-6)
    edges = np.linspace(-MOST, MOST, BINS + 1)
    middle = (edges[1:] + edges[:-1]) / 2
    place = np.searchsorted(edges, z) - 1
    counts = np.bincount(place, minlength=BINS).astype(np.float64)
    wrong = norm.pdf(middle)
    start = np.array([0.1, 0.45, 0.45]), np.array([1.0, 2.5]), np.array([1.0, 1.0])
    weights, means, deviations = _fitted(counts, middle, wrong, *start)
    random = np.random.default_rng(seed)
    image = np.unique(image_of, return_inverse=True)[1]
    n_images = image.max() + 1
    found = []
    for _ in range(RESAMPLES):
        drawn = np.bincount(random.integers(n_images, size=n_images), minlength=n_images)
        resampled = np.bincount(place, drawn[image].astype(np.float64), BINS)
        found.append(_fitted(resampled, middle, wrong, weights, means, deviations)[0][0])
    low, high = np.quantile(found, (0.025, 0.975))
    densities = weights[0] * norm.pdf(z)
    every = densities + sum(
        w * norm.pdf(z, m, s) for w, m, s in zip(weights[1:], means, deviations, strict=True)
    )
    probability = densities / every
    # a wide component of true pairs would make the lowest scores look right again
    order = np.argsort(z, kind="stable")
    probability[order] = np.maximum.accumulate(probability[order][::-1])[::-1]
    return Share(float(weights[0]), min(low, weights[0]), max(high, weights[0]), probability)


def _fitted(
    counts: Float64Array,
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
