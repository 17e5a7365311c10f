"""Test whether two groups of trained models differ, over training seeds and images together (docs/protocol.md).

A model's rSum changes with the training seed and with the test images. The test asks whether the difference of two
groups is larger than both explain. It is a Welch t-test on the rSum of the seeds, with the variance over images added.
With ``y[s, i]`` the contribution of image ``i`` to the rSum of the model of seed ``s``::

    variance = var_A / n_A + var_B / n_B        var: of the rSum over a group's seeds
             + images                           of mean_A[i] - mean_B[i] over images, divided by their number

Both groups see the same images, so the second line is paired. Seeds are not paired: seed 0 of one method has nothing in
common with seed 0 of another. The seed-by-image interaction is part of both lines, so it is subtracted from the second.
The degrees of freedom are Satterthwaite's. Two groups differ if the 95 % interval of their difference excludes 0. There
is no correction for multiple comparisons.

Why no bootstrap over seeds: three seeds give only ten different samples, and their variance is two thirds of the
unbiased one. Groups of one distribution then differ significantly in more than 10 % of the cases, here in about 5 %
(tests/ncl_bench/evaluation/test_difference.py simulates both). The price: three seeds detect only large differences.

A group with one model shows no variance over seeds, and the other group's says nothing about it. :class:`OfOneRun`
states it: 0 for a closed form, and where the model alone is meant. Otherwise it is unknown, or borrowed from other rows
of the same method. With an unknown one the interval is infinite.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from ncl_bench.evaluation.metrics import CONFIDENCE, CUTOFFS
from ncl_bench.npy import BoolArray, Float64Array, Int64Array


@dataclass(frozen=True, eq=False)
class Hits:
    """Per-image hits of one trained model.

    Attributes:
        per_image: int64 ``(n_images, 6)``: queries of the image answered within each cut-off, in the order of
            ``ncl_bench.evaluation.metrics.RECALLS``.
        captions_per_image: number of captions per image.
        images_per_fold: images per fold; images vary within their fold.
    """

    per_image: Int64Array
    captions_per_image: int
    images_per_fold: int

    @property
    def queries(self) -> Int64Array:
        """Queries of an image, int64 ``(6,)``: 1 for image queries, its captions for caption queries."""
        return np.array([1] * len(CUTOFFS) + [self.captions_per_image] * len(CUTOFFS))

    def parts(self) -> Float64Array:
        """Contribution of each image, float64 ``(n_images,)``; the mean is the model's rSum."""
        parts: Float64Array = 100.0 * (self.per_image / self.queries).sum(axis=1)
        return parts


class OfOneRun(NamedTuple):
    """Variance over training seeds of a group with one model, and its degrees of freedom."""

    variance: float
    freedom: float = 1.0


FIXED = OfOneRun(0.0)
"""A closed form, or a single model that stands for itself."""
UNKNOWN = OfOneRun(np.inf)
Pair = tuple[OfOneRun, OfOneRun]


def difference_interval(
    first: Float64Array, second: Float64Array, images_per_fold: int, of_one: Pair = (FIXED, FIXED)
) -> tuple[float, float]:
    """95 % interval of the difference of mean rSum, first group minus second.

    Args:
        first: float ``(n_seeds, n_images)``: contribution of each image to the rSum of each model of one group.
        second: the same for the other group, on the same images.
        images_per_fold: divides ``n_images``; ``n_images`` itself without folds.
        of_one: variance over seeds of both groups, which a group with one model cannot show.
    """
    difference = float(first.mean() - second.mean())
    both = sum(_interaction(one) / one.size for one in (first, second) if len(one) > 1)
    # paired: both groups answer the same queries, so what is hard for all cancels. The interaction is part of
    # the seeds' variance too and counts once; by chance it may exceed this part
    images = max(_of_images(first.mean(axis=0) - second.mean(axis=0), images_per_fold) - both, 0.0)
    values = first.mean(axis=1), second.mean(axis=1)
    return interval_of(difference, *values, images, first.shape[1] - 1, of_one)


def interval_of(
    difference: float,
    first: Float64Array,
    second: Float64Array,
    data: float,
    freedom: int,
    of_one: Pair = (FIXED, FIXED),
) -> tuple[float, float]:
    """95 % interval of the difference of two groups' mean values, over training seeds and what they are measured on.

    Args:
        difference: first group minus second.
        first: float ``(n_seeds,)``, value of each model of one group.
        second: the same for the other group.
        data: variance of the difference over what both are measured on, without the interaction with seeds.
        freedom: its degrees of freedom.
        of_one: as in :func:`difference_interval`.
    """
    from scipy.special import stdtrit  # slow to import, and many calls need no interval

    parts = [_of_seeds(*each) for each in zip((first, second), of_one, strict=True)]
    seeds = sum(part.variance for part in parts)
    seeds_squared = sum(part.variance**2 / part.freedom for part in parts)
    if np.isinf(seeds):
        return -np.inf, np.inf
    variance = seeds + data
    # identical runs: the degrees of freedom would be 0 / 0
    if variance == 0.0:
        return difference, difference
    # Satterthwaite: a sum of variances with different degrees of freedom
    joint = variance**2 / (seeds_squared + data**2 / freedom)
    margin = float(stdtrit(joint, 0.5 + CONFIDENCE / 200) * np.sqrt(variance))
    return difference - margin, difference + margin


def significantly_different(
    first: Float64Array, second: Float64Array, images_per_fold: int, of_one: Pair = (FIXED, FIXED)
) -> bool:
    """Whether :func:`difference_interval` excludes 0."""
    low, high = difference_interval(first, second, images_per_fold, of_one)
    return low > 0 or high < 0


@dataclass(frozen=True, eq=False)
class PairVariances:
    """Variance of the difference of mean rSum of every pair of groups, by its parts.

    Attributes:
        level: float64 ``(n,)``, mean rSum of each group.
        spread: float64 ``(n,)``, variance of rSum over the seeds of a group; 0 for one seed.
        of_mean: float64 ``(n,)``, variance of the group's mean due to seeds; of one model as it is stated.
        freedom: float64 ``(n,)``, its degrees of freedom.
        seeds: float64 ``(n, n)``, the part due to seeds.
        over_images: float64 ``(n, n)``, variance over images of the difference of the groups' means.
        images: float64 ``(n, n)``, the same without the interaction of seed and image, at least 0.
        own: float64 ``(n, n)``, sum of both groups' own variances over images; it limits the digits of ``over_images``.
    """

    level: Float64Array
    spread: Float64Array
    of_mean: Float64Array
    freedom: Float64Array
    seeds: Float64Array
    over_images: Float64Array
    images: Float64Array
    own: Float64Array


def pair_variances(
    groups: Sequence[Float64Array], images_per_fold: int, of_one: Sequence[OfOneRun] = ()
) -> PairVariances:
    """Variances of all pairs at once; arguments as in :func:`significant_pairs`."""
    n_images = groups[0].shape[1]
    given = of_one or [FIXED] * len(groups)
    seeds = [_of_seeds(one.mean(axis=1), known) for one, known in zip(groups, given, strict=True)]
    of_mean, degrees = np.array(seeds, np.float64).T
    spread = np.array([one.mean(axis=1).var(ddof=1) if len(one) > 1 else 0.0 for one in groups])
    shared = np.array([_interaction(one) / one.size if len(one) > 1 else 0.0 for one in groups])
    # images vary within their fold alone: folds have means of their own
    folds = np.stack([one.mean(axis=0) for one in groups]).reshape(len(groups), -1, images_per_fold)
    centred = (folds - folds.mean(axis=2, keepdims=True)).reshape(len(groups), n_images)
    scale = 1 / ((images_per_fold - 1) * folds.shape[1] * n_images)
    squares = (centred**2).sum(axis=1) * scale
    total = np.add.outer(squares, squares)
    # |a - b|^2 = |a|^2 + |b|^2 - 2 ab, which cancels when both are nearly equal
    over_images = np.maximum(total - 2 * scale * (centred @ centred.T), 0.0)
    return PairVariances(
        level=np.array([one.mean() for one in groups]),
        spread=spread,
        of_mean=of_mean,
        freedom=degrees,
        seeds=np.add.outer(of_mean, of_mean),
        over_images=over_images,
        images=np.maximum(over_images - np.add.outer(shared, shared), 0.0),
        own=total,
    )


def significant_pairs(
    groups: Sequence[Float64Array], images_per_fold: int, of_one: Sequence[OfOneRun] = ()
) -> BoolArray:
    """Apply :func:`significantly_different` to every pair of groups; bool ``(n, n)``.

    Most pairs are decided at once; those too close for the rounding are tested one by one. Results are identical.

    Args:
        groups: one float ``(n_seeds, n_images)`` array per group, on the same images.
        images_per_fold: as in :func:`difference_interval`.
        of_one: variance over seeds of each group, read for groups with one model (default: 0).
    """
    from scipy.special import stdtrit

    n_images, v = groups[0].shape[1], pair_variances(groups, images_per_fold, of_one)
    squares = v.of_mean**2 / v.freedom
    squared = np.add.outer(squares, squares)
    variance = v.seeds + v.images
    with np.errstate(divide="ignore", invalid="ignore"):
        freedom = variance**2 / (squared + v.images**2 / (n_images - 1))
        ratio = np.abs(np.subtract.outer(v.level, v.level)) / np.sqrt(variance)
    # enough digits are left after the cancellation
    sure = np.isfinite(variance) & (variance > 1e-4 * v.own) & (freedom > 1)
    limit = stdtrit(np.where(sure, freedom, 1.0), 0.5 + CONFIDENCE / 200)
    above = sure & (ratio > limit * (1 + 1e-9))
    below = (sure & (ratio < limit * (1 - 1e-9))) | np.isinf(variance)
    for i, j in np.argwhere(np.tril(~(above | below), -1)).tolist():
        known = (of_one[i], of_one[j]) if of_one else (FIXED, FIXED)
        above[i, j] = significantly_different(groups[i], groups[j], images_per_fold, known)
    apart: BoolArray = np.tril(above, -1)
    return apart | apart.T


def _of_seeds(values: Float64Array, of_one: OfOneRun) -> OfOneRun:
    """Variance of a group's mean due to seeds, from the values of its models; of one model, what is stated."""
    return OfOneRun(values.var(ddof=1) / len(values), len(values) - 1) if len(values) > 1 else of_one


def _of_images(differences: Float64Array, images_per_fold: int) -> float:
    """Variance of the mean of ``(n_images,)`` differences, within folds."""
    folds = differences.reshape(-1, images_per_fold)
    return float(folds.var(axis=1, ddof=1).mean() / differences.size)


def _interaction(parts: Float64Array) -> float:
    """Mean square of the seed-by-image interaction of ``(n_seeds, n_images)``."""
    rest = parts - parts.mean(axis=1, keepdims=True) - parts.mean(axis=0) + parts.mean()
    n_seeds, n_images = parts.shape
    return float((rest**2).sum() / ((n_seeds - 1) * (n_images - 1)))
