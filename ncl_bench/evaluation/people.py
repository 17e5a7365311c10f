"""The protocol ``people``: does a model order pairs of image and caption as people do (docs/protocol.md, People)?

Recall asks which of a query's candidates comes first. The judgements of Flickr8K's test split ask more: similarities of
different images and captions are compared with each other. Three statistics compare an order with judgements, and all
are a ratio of the same kind. Let observation ``i`` belong to image ``a(i)``, and let a bootstrap resample hold image
``a`` ``w[a]`` times. The number of concordant minus discordant pairs of observations is a quadratic form in ``w``::

    P - Q = 1/2 sum_ab w[a] w[b] C[a, b],   C[a, b] = sum_(i of a, j of b) sign(s_i - s_j) sign(y_i - y_j)

So ``C`` is computed once, and a thousand resamples cost one product of matrices. All sums are sums of integers in
float64, so they are exact in any order and equal on every CPU.
"""

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from ncl_bench.data.judgements import Judgements
from ncl_bench.evaluation.metrics import RESAMPLES, Float64Array, resamples
from ncl_bench.evaluation.metrics import intervals as percentiles
from ncl_bench.evaluation.ranks import Int64Array
from ncl_bench.evaluation.results import PeopleResult
from ncl_bench.evaluation.scores import BLOCK, Rows

PRINTED = {"expert_tau_c": ("CLIPScore", 51.2), "crowd_tau_b": ("CLIPScore", 34.4)}
"""What Hessel et al. (EMNLP 2021, Table 1 and Table 2) print for the same pairs."""
MEASURES = ("expert_tau_c", "expert_auroc", "crowd_tau_b", "crowd_auroc")
TIED = 128
"""Bit 7 of :func:`in_order`."""
DESCRIBES = 3
"""Median rating from which on a caption describes the image, up to minor mistakes."""
PAIRS_AT_ONCE = 160
"""Observations per block of the order; balances the pairs within blocks against the product over blocks."""


@dataclass(frozen=True, eq=False)
class Agreement:
    """A statistic of agreement as a function of how often each image counts.

    ``offset + scale * q(C) / sqrt(q(D1) q(D2))`` with quadratic forms ``q(M) = w M w``. Tau-b, tau-c and AUROC differ
    in ``D1``, ``D2`` and the two numbers.

    Attributes:
        concordance: ``C``, float64 ``(n_images, n_images)``.
        first, second: ``D1`` and ``D2``.
        scale, offset: the two numbers.
    """

    concordance: Float64Array
    first: "_Form"
    second: "_Form"
    scale: float
    offset: float = 0.0

    @property
    def value(self) -> float:
        """The statistic of the images as they are."""
        return float(self.resampled(np.ones((1, len(self.concordance))))[0])

    def resampled(self, counts: Float64Array) -> Float64Array:
        """The statistic of each resample.

        Args:
            counts: float64 ``(resamples, n_images)``, how often a resample holds each image.

        Returns:
            float64 ``(resamples,)``.
        """
        above = np.einsum("ra,ra->r", counts @ self.concordance, counts)
        below = self.first.of(counts) * self.second.of(counts)
        values: Float64Array = self.offset + self.scale * above / np.sqrt(below)
        return values

    def parts(self) -> Float64Array:
        """Contribution of each image, float64 ``(n_images,)``; their mean is the statistic.

        The statistic plus ``n_images`` times its derivative by the image's count (the infinitesimal jackknife; Efron
        1982, section 6.3). The variance of the mean of these parts is that of the statistic over images, to first
        order, so the test of the recalls serves here too.
        """
        one = np.ones(len(self.concordance))
        slope = self.concordance @ one
        above, first, second = slope.sum(), self.first.of(one[None])[0], self.second.of(one[None])[0]
        change = 2 * slope - above * (self.first.slope() / first + self.second.slope() / second)
        parts: Float64Array = self.value + len(one) * self.scale * change / np.sqrt(first * second)
        return parts


@dataclass(frozen=True, eq=False)
class _Form:
    """The quadratic form ``sum_k signs[k] (w factors[:, k])^2 - w ties w``."""

    factors: Float64Array
    signs: Float64Array
    ties: Float64Array | None = None

    def of(self, counts: Float64Array) -> Float64Array:
        """Value for each row of ``counts``."""
        value: Float64Array = (counts @ self.factors) ** 2 @ self.signs
        if self.ties is not None:
            value -= np.einsum("ra,ra->r", counts @ self.ties, counts)
        return value

    def slope(self) -> Float64Array:
        """Half of the gradient where every image counts once."""
        slope: Float64Array = self.factors @ (self.signs * self.factors.sum(axis=0))
        return slope if self.ties is None else slope - self.ties.sum(axis=0)


def judged_scores(scores: Rows, judgements: Mapping[str, Judgements]) -> dict[str, Float64Array]:
    """Read the similarities of the judged pairs.

    Args:
        scores: ``(n_images, n_captions)``, images as rows.
        judgements: kind to judgements.

    Returns:
        Kind to similarities, float64 ``(n,)``.
    """
    found = {kind: np.empty(len(one.image)) for kind, one in judgements.items()}
    order = {kind: np.argsort(one.image, kind="stable") for kind, one in judgements.items()}
    for start in range(0, scores.shape[0], BLOCK):
        stop = min(start + BLOCK, scores.shape[0])
        block = scores.rows(start, stop)
        for kind, one in judgements.items():
            first, last = np.searchsorted(one.image[order[kind]], [start, stop])
            here = order[kind][first:last]
            found[kind][here] = block[one.image[here] - start, one.caption[here]]
        scores.release(start, stop)
    return found


def agreements(
    scores: Mapping[str, Float64Array], judgements: Mapping[str, Judgements], n_images: int
) -> dict[str, Agreement]:
    """The measures of one model.

    Args:
        scores: ``expert`` and ``crowd``, or one of them, to the similarities of the judged pairs, ``(n,)``; only their
            order counts.
        judgements: the judgements of the same pairs by the same keys.
        n_images: images of the split.

    Returns:
        Name from ``MEASURES`` to the measure.
    """
    found = {}
    if "expert" in scores:
        expert = judgements["expert"]
        others = ~expert.own
        image, score, ratings = expert.image[others], scores["expert"][others], expert.judged[others]
        people = ratings.shape[1]
        # each of the three ratings is an observation of its own, as Hessel et al. (2021) count
        found["expert_tau_c"] = _tau_c(
            np.repeat(score, people), ratings.ravel(), np.repeat(image, people), n_images
        )
        found["expert_auroc"] = _auroc(score, np.median(ratings, axis=1) >= DESCRIBES, image, n_images)
    if "crowd" in scores:
        crowd = judgements["crowd"]
        share, others = crowd.judged[:, 0], ~crowd.own
        found["crowd_tau_b"] = _tau_b(scores["crowd"], share, crowd.image, n_images)
        found["crowd_auroc"] = _auroc(
            scores["crowd"][others], share[others] > 0.5, crowd.image[others], n_images
        )
    return found


def people_of(
    scores: Mapping[str, Float64Array],
    judgements: Mapping[str, Judgements],
    n_images: int,
    *,
    intervals: bool = True,
) -> dict[str, PeopleResult]:
    """Every measure of one model, with its interval over images.

    Args:
        scores, judgements, n_images: see :func:`agreements`.
        intervals: compute the 95 % intervals.
    """
    counts = image_counts(n_images)
    found = {}
    for name, one in agreements(scores, judgements, n_images).items():
        interval = percentiles(one.resampled(counts)[:, None])[0] if intervals else None
        expert = judgements["expert"] if name == "expert_tau_c" else None
        found[name] = PeopleResult(
            value=one.value,
            interval=interval,
            printed=PRINTED.get(name),
            ceiling=None if expert is None else ceiling(expert, n_images),
            persons=() if expert is None else persons(expert, n_images),
        )
    return found


def image_counts(n_images: int) -> Float64Array:
    """How often each bootstrap resample of the recalls holds each image, float64 ``(1000, n_images)``."""
    return resamples(n_images, n_images, RESAMPLES)[0].astype(np.float64)


def in_order(
    scores: Mapping[str, Float64Array], judgements: Mapping[str, Judgements]
) -> dict[str, NDArray[np.uint8]]:
    """What people say of the judged pairs, in ascending order of their similarities: evidence of the four values.

    It names no image and no caption, so it can be published where the judgements cannot. Bit 7 marks a similarity equal
    to the one before. Experts: the three ratings minus one, ascending, two bits each; pairs of an image and its own
    caption are left out. Crowd: bit 6 marks an own caption; then three bits for Yes and three for No.

    Args:
        scores: see :func:`agreements`.
        judgements: see :func:`agreements`.

    Returns:
        Kind to uint8 ``(n,)``.
    """
    found = {}
    for kind, own_scores in scores.items():
        one = judgements[kind]
        said = one.rows[:, 2:]
        if kind == "expert":
            kept, low, middle, high = ~one.own, *(np.sort(said, axis=1) - 1).T
            code = low << 4 | middle << 2 | high
        else:
            kept, code = (
                np.ones(len(said), np.bool_),
                one.own.astype(np.int64) << 6 | said[:, 0] << 3 | said[:, 1],
            )
        order = np.lexsort((code[kept], own_scores[kept]))  # equal scores say nothing of their own order
        tied = np.diff(own_scores[kept][order], prepend=-np.inf) == 0
        found[kind] = (code[kept][order] | tied.astype(np.int64) << 7).astype(np.uint8)
    return found


def agreement_in_order(said: Mapping[str, NDArray[np.uint8]]) -> dict[str, float]:
    """Compute the measures from :func:`in_order` alone: name from ``MEASURES`` to value."""
    if not said:  # the imports take a second, and most rows have no judgements
        return {}
    from scipy.stats import kendalltau
    from sklearn.metrics import roc_auc_score

    found = {}
    for kind, codes in said.items():
        place = np.cumsum(codes < TIED)  # grows where the similarity does
        code = codes % TIED
        if kind == "expert":
            ratings = np.stack([code >> 4, code >> 2 & 3, code & 3], axis=1) + 1
            tau = kendalltau(np.repeat(place, ratings.shape[1]), ratings.ravel(), variant="c")
            found["expert_tau_c"] = 100 * float(tau.statistic)
            found["expert_auroc"] = float(roc_auc_score(ratings[:, 1] >= DESCRIBES, place))  # 1: the median
        else:
            own, yes, no = code >> 6 == 1, code >> 3 & 7, code & 7
            found["crowd_tau_b"] = 100 * float(kendalltau(place, yes / (yes + no), variant="b").statistic)
            found["crowd_auroc"] = float(roc_auc_score((yes > no)[~own], place[~own]))
    return found


def ceiling(judgements: Judgements, n_images: int) -> float:
    """Tau-c of the experts' mean rating against their ratings: no order of pairs agrees much better with them."""
    mean = {"expert": judgements.judged.mean(axis=1)}
    return agreements(mean, {"expert": judgements}, n_images)["expert_tau_c"].value


def persons(judgements: Judgements, n_images: int) -> tuple[float, ...]:
    """Tau-c of each expert's rating against the mean of the others: the level of one person."""
    others = ~judgements.own
    image, ratings = judgements.image[others], judgements.judged[others]
    return tuple(
        _tau_c(np.delete(ratings, one, axis=1).mean(axis=1), ratings[:, one], image, n_images).value
        for one in range(ratings.shape[1])
    )


def _tau_b(scores: Float64Array, judged: Float64Array, image: Int64Array, n_images: int) -> Agreement:
    """Kendall's tau-b times 100 (Kendall 1945): ties of either side leave its denominator."""
    per_image, levels = _counts(judged, image, n_images)
    alone, ones = np.ones(1), np.ones(levels.shape[1])
    first = _Form(per_image, alone, _ties(scores, image, n_images))
    second = _Form(np.hstack([per_image, levels]), np.concatenate([alone, -ones]))
    return Agreement(concordance(scores, judged, image, n_images), first, second, scale=100.0)


def _tau_c(scores: Float64Array, judged: Float64Array, image: Int64Array, n_images: int) -> Agreement:
    """Stuart's tau-c times 100 (Stuart 1953): ``2 m (P - Q) / (n^2 (m - 1))`` with ``m`` levels of the shorter side."""
    per_image, levels = _counts(judged, image, n_images)
    m = min(levels.shape[1], len(np.unique(scores)))
    every = _Form(per_image, np.ones(1))
    return Agreement(
        concordance(scores, judged, image, n_images),
        every,
        every,
        scale=100.0 * m / (m - 1) if m > 1 else 0.0,
    )


def _auroc(scores: Float64Array, positive: NDArray[np.bool_], image: Int64Array, n_images: int) -> Agreement:
    """Area under the ROC curve: the probability that a positive pair scores above a negative one, ties half."""
    per_image, levels = _counts(positive, image, n_images)
    # positives times negatives, twice: p q + q p = ((p + q)^2 - (p - q)^2) / 2
    pairs = _Form(np.hstack([per_image, levels[:, 1:] - levels[:, :1]]), np.array([0.5, -0.5]))
    return Agreement(concordance(scores, positive, image, n_images), pairs, pairs, scale=0.5, offset=0.5)


def _counts(
    judged: NDArray[np.generic], image: Int64Array, n_images: int
) -> tuple[Float64Array, Float64Array]:
    """Observations of each image, ``(n_images, 1)``, and of each image and level, ``(n_images, levels)``."""
    values, level = np.unique(judged, return_inverse=True)
    n_levels = len(values)
    flat = np.bincount(image * n_levels + level, minlength=n_images * n_levels)
    levels = flat.reshape(n_images, n_levels).astype(np.float64)
    return levels.sum(axis=1, keepdims=True), levels


def _ties(scores: Float64Array, image: Int64Array, n_images: int) -> Float64Array:
    """Pairs of observations with equal scores, by their images: float64 ``(n_images, n_images)``; ordered pairs."""
    from scipy.sparse import csr_array

    group = np.unique(scores, return_inverse=True)[1]
    members = csr_array((np.ones(len(group)), (group, image)), shape=(int(group.max()) + 1, n_images))
    return np.asarray((members.T @ members).toarray(), np.float64)


def concordance(
    scores: Float64Array, judged: NDArray[np.generic], image: Int64Array, n_images: int
) -> Float64Array:
    """Concordant minus discordant pairs of observations, by their images.

    The order is cut into blocks. Pairs of different blocks are counted by one product of (block, level) counts, pairs
    within a block one by one.

    Args:
        scores: float ``(n,)``.
        judged: ``(n,)``, few different values.
        image: int64 ``(n,)``, image of each observation.
        n_images: images of the split.

    Returns:
        ``C`` of the module's docstring, float64 ``(n_images, n_images)``.
    """
    order = np.argsort(scores, kind="stable")
    rank = np.unique(scores, return_inverse=True)[1][order]
    values, level = np.unique(judged, return_inverse=True)
    level, of = level[order], image[order]
    n_levels = len(values)
    block = _blocks(rank)
    n_blocks = int(block[-1]) + 1
    counts = np.zeros((n_blocks, n_levels, n_images), np.float32)
    np.add.at(counts, (block, level, of), 1)
    lower = np.cumsum(counts, axis=0) - counts  # observations of earlier blocks
    total = counts.sum(axis=1, keepdims=True)
    upto = np.cumsum(counts, axis=1)
    higher_level = (total - upto) - (upto - counts)  # observations of higher minus those of lower levels
    flat = (n_blocks * n_levels, n_images)
    before = (lower.reshape(flat).T @ higher_level.reshape(flat)).astype(
        np.float64
    )  # exact: entries below 2^24
    starts = np.flatnonzero(np.diff(block, prepend=-1))
    for start, stop in zip(starts, [*starts[1:], len(rank)], strict=True):
        if rank[start] == rank[stop - 1]:
            continue  # one long tie
        here = slice(start, stop)
        sign = np.sign(level[here] - level[here, None]) * (rank[here] > rank[here, None])
        i, j = np.nonzero(sign)
        np.add.at(before, (of[here][i], of[here][j]), sign[i, j])
    found: Float64Array = before + before.T
    return found


def _blocks(rank: Int64Array) -> Int64Array:
    """Block of each place of the order; a tie is never cut, and a long one has a block of its own."""
    first = np.flatnonzero(np.diff(rank, prepend=-1))
    size = np.diff(first, append=len(rank))
    block = np.empty(len(first), np.int64)
    number, filled = -1, PAIRS_AT_ONCE
    for place, n in enumerate(size.tolist()):
        if filled + n > PAIRS_AT_ONCE:
            number, filled = number + 1, 0
        block[place] = number
        filled += n
    return np.repeat(block, size)
