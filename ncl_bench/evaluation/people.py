"""The protocol ``people``: does a model order pairs of image and caption as people do (docs/protocol.md, People)?

Recall asks which of a query's candidates comes first. The judgements of Flickr8K's test split ask more: similarities of
different images and captions are compared with each other. Tau-b, tau-c and AUROC compare an order with judgements.
With weights ``w`` of the observations, all three are ``offset + scale * A / sqrt(B C)`` of quadratic forms in ``w``::

    A = sum_ij w[i] w[j] sign(s_i - s_j) sign(y_i - y_j)    concordant minus discordant pairs, twice
    B, C                                                    the pairs that could be either

So the derivative by each weight is known exactly: the influence of an observation (the infinitesimal jackknife; Efron
1982, section 6.3). Judged pairs share images and captions, so the influences within an image depend on each other, and
so do those within a caption. The variance over both is that of the sums over images, plus that of the sums over
captions, minus that of the single pairs, which both hold (Cameron, Gelbach and Miller 2011). All sums of signs are
integers in float64, so they are exact in any order and equal on every CPU.
"""

import hashlib
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ncl_bench.data.judgements import Judgements
from ncl_bench.evaluation.difference import FIXED, OfOneRun, interval_of
from ncl_bench.evaluation.results import PeopleResult
from ncl_bench.evaluation.scores import BLOCK, Rows
from ncl_bench.npy import BoolArray, Float64Array, Int64Array

PRINTED = {"expert_tau_c": ("CLIPScore", 51.2), "crowd_tau_b": ("CLIPScore", 34.4)}
"""What Hessel et al. (EMNLP 2021, Table 1 and Table 2) print for the same pairs."""
MEASURES = ("expert_tau_c", "expert_auroc", "crowd_tau_b", "crowd_auroc")
TIED = 128
"""Bit 7 of :func:`in_order`."""
DESCRIBES = 3
"""Median rating from which on a caption describes the image, up to minor mistakes."""


@dataclass(frozen=True, eq=False)
class Agreement:
    """A statistic of agreement, and how far each judged pair, image and caption moves it.

    Attributes:
        value: the statistic.
        pairs: float64 ``(n_pairs,)``, its derivative by the weight of each judged pair; the sum is 0.
        images: float64 ``(n_images,)``, sums of ``pairs`` over the pairs of each image.
        captions: float64 ``(n_captions,)``, sums of ``pairs`` over the pairs of each caption.
    """

    value: float
    pairs: Float64Array
    images: Float64Array
    captions: Float64Array


def agreement_interval(
    first: Sequence[Agreement],
    second: Sequence[Agreement] = (),
    of_one: tuple[OfOneRun, OfOneRun] = (FIXED, FIXED),
) -> tuple[float, float]:
    """95 % interval of the mean agreement of runs, over images, captions and training seeds together.

    Args:
        first: the runs of one side, of one measure.
        second: runs of another side on the same judgements: the interval is that of the difference, first minus second.
        of_one: variance over seeds of both sides, read where a side has one run.
    """
    sides = [_stacked(side) for side in (first, second) if side]
    difference = [one.mean(axis=0) for one in sides[0]]
    if second:
        difference = [mine - other.mean(axis=0) for mine, other in zip(difference, sides[1], strict=True)]
    # the interaction of a seed with images and captions is part of the variance over seeds too, and counts once
    both = sum(_interaction(side) for side in sides if len(side[0]) > 1)
    mine, theirs = (np.array([one.value for one in side] or [0.0, 0.0]) for side in (first, second))
    # images or captions that the judged pairs have, whichever are fewer
    n = max(min(int(np.count_nonzero(one)) for one in difference[1:]), 2)
    data = max(_crossed(*difference) - both, 0.0) * n / (n - 1)
    return interval_of(float(mine.mean() - theirs.mean()), mine, theirs, data, n - 1, of_one)


def _stacked(side: Sequence[Agreement]) -> list[Float64Array]:
    """Influences of all runs by pair, image and caption, each float64 ``(n_runs, n)``."""
    return [
        np.stack(kind) for kind in zip(*((one.pairs, one.images, one.captions) for one in side), strict=True)
    ]


def _crossed(pairs: Float64Array, images: Float64Array, captions: Float64Array) -> float:
    """Variance over images and captions crossed; never below that over either alone."""
    of_images, of_captions = float(images @ images), float(captions @ captions)
    return max(of_images + of_captions - float(pairs @ pairs), of_images, of_captions)


def _interaction(side: Sequence[Float64Array]) -> float:
    """Variance of a side's mean by what only one of its runs shows of images and captions."""
    rest = [one - one.mean(axis=0) for one in side]
    n = len(rest[0])
    return sum(_crossed(*(one[run] for one in rest)) for run in range(n)) / (n * (n - 1))


def judged_scores(scores: Rows, judgements: Mapping[str, Judgements]) -> dict[str, Float64Array]:
    """Read the similarities of the judged pairs.

    Args:
        scores: ``(n_images, n_captions)``, images as rows.
        judgements: kind to judgements.

    Returns:
        Kind to similarities, float64 ``(n,)``.
    """
    scores_of = {kind: np.empty(len(one.image)) for kind, one in judgements.items()}
    order = {kind: np.argsort(one.image, kind="stable") for kind, one in judgements.items()}
    for start in range(0, scores.shape[0], BLOCK):
        stop = min(start + BLOCK, scores.shape[0])
        block = scores.rows(start, stop)
        for kind, one in judgements.items():
            first, last = np.searchsorted(one.image[order[kind]], [start, stop])
            here = order[kind][first:last]
            scores_of[kind][here] = block[one.image[here] - start, one.caption[here]]
        scores.release(start, stop)
    return scores_of


def agreements(
    scores: Mapping[str, Float64Array], judgements: Mapping[str, Judgements], shape: tuple[int, int]
) -> dict[str, Agreement]:
    """The measures of one model.

    Args:
        scores: ``expert`` and ``crowd``, or one of them, to the similarities of the judged pairs, ``(n,)``; only their
            order counts.
        judgements: the judgements of the same pairs by the same keys.
        shape: images and captions of the split.

    Returns:
        Name from ``MEASURES`` to the measure.
    """
    agreement = {}
    if "expert" in scores:
        expert = judgements["expert"]
        others = ~expert.own
        score, ratings = scores["expert"][others], expert.judged[others]
        positive = np.median(ratings, axis=1) >= DESCRIBES
        agreement["expert_tau_c"] = _on(expert, others, _tau_c(score, ratings), shape)
        agreement["expert_auroc"] = _on(expert, others, _auroc(score, positive), shape)
    if "crowd" in scores:
        crowd = judgements["crowd"]
        score, share, others = scores["crowd"], crowd.judged[:, 0], ~crowd.own
        agreement["crowd_tau_b"] = _on(crowd, np.ones_like(others), _tau_b(score, share), shape)
        agreement["crowd_auroc"] = _on(crowd, others, _auroc(score[others], share[others] > 0.5), shape)
    return agreement


def _on(judgements: Judgements, kept: BoolArray, statistic: "Statistic", shape: tuple[int, int]) -> Agreement:
    value, pairs = statistic
    image, caption = judgements.image[kept], judgements.caption[kept]
    images, captions = (
        np.bincount(of, pairs, n).astype(np.float64) for of, n in zip((image, caption), shape, strict=True)
    )
    return Agreement(value, pairs, images, captions)


def people_of(
    scores: Mapping[str, Float64Array],
    judgements: Mapping[str, Judgements],
    shape: tuple[int, int],
    *,
    intervals: bool = True,
) -> dict[str, PeopleResult]:
    """Every measure of one model, with its interval over images and captions.

    Args:
        scores, judgements, shape: see :func:`agreements`.
        intervals: compute the 95 % intervals.
    """
    results = {}
    for name, one in agreements(scores, judgements, shape).items():
        expert = judgements["expert"] if name == "expert_tau_c" else None
        results[name] = PeopleResult(
            value=one.value,
            interval=_within(name, agreement_interval([one])) if intervals else None,
            printed=PRINTED.get(name),
            ceiling=None if expert is None else ceiling(expert),
            persons=() if expert is None else persons(expert),
        )
    return results


def _within(name: str, interval: tuple[float, float]) -> tuple[float, float]:
    """The interval without what the measure cannot be."""
    lowest, highest = (0.0, 1.0) if name.endswith("auroc") else (-100.0, 100.0)
    return max(interval[0], lowest), min(interval[1], highest)


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
    codes = {}
    for kind, own_scores in scores.items():
        one = judgements[kind]
        kept = ~one.own if kind == "expert" else np.ones_like(one.own)
        code = _said(one)
        order = np.lexsort((code[kept], own_scores[kept]))  # equal scores say nothing of their own order
        tied = np.diff(own_scores[kept][order], prepend=-np.inf) == 0
        codes[kind] = (code[kept][order] | tied.astype(np.int64) << 7).astype(np.uint8)
    return codes


def crossing(
    scores: Mapping[str, Float64Array], judgements: Mapping[str, Judgements], shape: tuple[int, int]
) -> dict[str, NDArray[np.generic]]:
    """What a test of ``expert_tau_c`` over images and captions needs beside :func:`in_order`; it names no judged pair.

    Args:
        scores, judgements, shape: see :func:`agreements`.

    Returns:
        ``pairs``, uint16: place of each pair in the order of :func:`in_order`; ``images`` and ``captions``, float32, as
        in :class:`Agreement`. The pairs are sorted by a hash of image and caption, so that all models have one order,
        which only the judgements tell. Empty without experts.
    """
    if "expert" not in scores:
        return {}
    expert, agreement = judgements["expert"], agreements({"expert": scores["expert"]}, judgements, shape)
    kept = ~expert.own
    order = np.lexsort((_said(expert)[kept], scores["expert"][kept]))
    position = np.empty(len(order), np.uint16)
    position[order] = np.arange(len(order))
    names = [
        hashlib.sha256(f"{image} {caption}".encode()).digest() for image, caption in expert.rows[kept, :2]
    ]
    return {
        "pairs": position[sorted(range(len(names)), key=names.__getitem__)],
        "images": agreement["expert_tau_c"].images.astype(np.float32),
        "captions": agreement["expert_tau_c"].captions.astype(np.float32),
    }


def agreement_of(
    said: Mapping[str, NDArray[np.uint8]], crossed: Mapping[str, NDArray[np.generic]]
) -> Agreement | None:
    """``expert_tau_c`` from :func:`in_order` and :func:`crossing` alone; None without either."""
    if "expert" not in said or not crossed:
        return None
    position, ratings = _experts_in_order(said["expert"])
    value, pairs = _tau_c(position.astype(np.float64), ratings.astype(np.float64))
    images, captions = (crossed[name].astype(np.float64) for name in ("images", "captions"))
    return Agreement(value, pairs[crossed["pairs"].astype(np.int64)], images, captions)


def _experts_in_order(codes: NDArray[np.uint8]) -> tuple[Int64Array, Int64Array]:
    """Place of each pair, equal for equal similarities, ``(n,)``, and its ratings in ascending order, ``(n, 3)``."""
    code = (codes % TIED).astype(np.int64)
    return np.cumsum(codes < TIED), np.stack([code >> 4, code >> 2 & 3, code & 3], axis=1) + 1


def _said(judgements: Judgements) -> Int64Array:
    """What people said of each pair, as a code of :func:`in_order` without bit 7."""
    said = judgements.rows[:, 2:]
    if judgements.kind == "crowd":
        return judgements.own.astype(np.int64) << 6 | said[:, 0] << 3 | said[:, 1]
    low, middle, high = (np.sort(said, axis=1) - 1).T
    code: Int64Array = low << 4 | middle << 2 | high
    return code


def agreement_in_order(said: Mapping[str, NDArray[np.uint8]]) -> dict[str, float]:
    """Compute the measures from :func:`in_order` alone: name from ``MEASURES`` to value."""
    agreement = {}
    for kind, codes in said.items():
        if kind == "expert":
            position, ratings = _experts_in_order(codes)
            times, levels = np.repeat(position, ratings.shape[1]), ratings.ravel()
            m = min(int(np.count_nonzero(np.bincount(levels))), int(position[-1]) + 1 - int(position[0]))
            shared = len(times) ** 2 * (m - 1) / m  # Stuart's tau-c; see _tau_c
            agreement["expert_tau_c"] = 100 * 2 * _in_order(times, levels) / shared if m > 1 else 0.0
            agreement["expert_auroc"] = _auroc_in_order(position, ratings[:, 1] >= DESCRIBES)  # 1: the median
        else:
            position, code = np.cumsum(codes < TIED), codes % TIED
            own, yes, no = code >> 6 == 1, code >> 3 & 7, code & 7
            answers = np.arange(64)
            shares = (answers >> 3) / np.maximum((answers >> 3) + (answers & 7), 1)
            levels = np.unique(shares, return_inverse=True)[1][code & 63]
            untied = [len(code) ** 2 - int((np.bincount(each) ** 2).sum()) for each in (position, levels)]
            agreement["crowd_tau_b"] = 100 * 2 * _in_order(position, levels) / math.sqrt(math.prod(untied))
            agreement["crowd_auroc"] = _auroc_in_order(position[~own], (yes > no)[~own])
    return agreement


def _in_order(position: Int64Array, levels: NDArray[np.integer[Any]]) -> float:
    """Pairs whose places and levels have one order, minus those with the opposite one.

    Args:
        place: ascending integers ``(n,)``; equal ones are tied.
        levels: few different integers ``(n,)``.
    """
    order = np.argsort(levels.astype(np.uint8), kind="stable")  # by radix, as of small integers alone
    by_level, concordant, begin = position[order], 0, 0
    for n in filter(None, np.bincount(levels).tolist()):
        here, higher = by_level[begin : begin + n], by_level[begin + n :]
        before = np.searchsorted(here, higher).sum() + np.searchsorted(here, higher, "right").sum()
        # of this level: those before each observation of a higher one, minus those after it
        concordant += int(before) - n * len(higher)
        begin += n
    return float(concordant)


def _auroc_in_order(position: Int64Array, positive: BoolArray) -> float:
    starts = np.flatnonzero(np.diff(position, prepend=-1))
    times = np.diff(starts, append=len(position))
    # of each pair: those before its place and those up to it
    around, n = np.repeat(2 * starts + times, times), int(positive.sum())
    apart = int(around[positive].sum()) - n * len(position)
    return 0.5 + 0.5 * apart / (n * (len(position) - n))


def ceiling(judgements: Judgements) -> float:
    """Tau-c of the experts' mean rating against their ratings: no order of pairs agrees much better with them."""
    ratings = judgements.judged[~judgements.own]
    return _tau_c(ratings.mean(axis=1), ratings)[0]


def persons(judgements: Judgements) -> tuple[float, ...]:
    """Tau-c of each expert's rating against the mean of the others: the level of one person."""
    ratings = judgements.judged[~judgements.own]
    return tuple(
        _tau_c(np.delete(ratings, one, axis=1).mean(axis=1), ratings[:, [one]])[0]
        for one in range(ratings.shape[1])
    )


Statistic = tuple[float, Float64Array]
"""A statistic, and the influence of each pair on it, float64 ``(n,)``."""


def _tau_b(scores: Float64Array, judged: Float64Array) -> Statistic:
    """Kendall's tau-b times 100 (Kendall 1945): ties of either side leave its denominator."""
    untied = [len(judged) - _times(values) for values in (scores, judged)]
    return _ratio(concordance(scores, judged), untied[0], untied[1], 100.0)


def _tau_c(scores: Float64Array, ratings: Float64Array) -> Statistic:
    """Stuart's tau-c times 100 (Stuart 1953): ``2 m (P - Q) / (n^2 (m - 1))`` with ``m`` levels of the shorter side.

    Each of the ratings ``(n, people)`` of a pair is an observation of its own, as Hessel et al. (2021) count.
    """
    people = ratings.shape[1]
    concordant = concordance(np.repeat(scores, people), ratings.ravel())
    m = min(len(np.unique(ratings)), len(np.unique(scores)))
    every = np.full(len(concordant), len(concordant), np.float64)
    value, influence = _ratio(concordant, every, every, 100.0 * m / (m - 1) if m > 1 else 0.0)
    return value, influence.reshape(-1, people).sum(axis=1)


def _auroc(scores: NDArray[np.generic], positive: BoolArray) -> Statistic:
    """Area under the ROC curve: the probability that a positive pair scores above a negative one, ties half."""
    others = np.where(positive, np.sum(~positive), np.sum(positive)).astype(np.float64)
    value, influence = _ratio(concordance(scores, positive), others, others, 0.5)
    return 0.5 + value, influence


def _ratio(concordant: Float64Array, first: Float64Array, second: Float64Array, scale: float) -> Statistic:
    """``scale * A / sqrt(B C)`` and its derivatives; each argument is half the derivative of a form, and sums to it."""
    above, below = concordant.sum(), np.sqrt(first.sum() * second.sum())
    change = 2 * concordant - above * (first / first.sum() + second / second.sum())
    return float(scale * above / below), scale * change / below


def _times(values: NDArray[np.generic]) -> Float64Array:
    """How often each value stands among all, float64 ``(n,)``."""
    _, group, times = np.unique(values, return_inverse=True, return_counts=True)
    own_times: Float64Array = times[group].astype(np.float64)
    return own_times


def concordance(scores: NDArray[np.generic], judged: NDArray[np.generic]) -> Float64Array:
    """Concordant minus discordant partners of each observation, float64 ``(n,)``.

    Args:
        scores: ``(n,)``, numbers.
        judged: ``(n,)``, few different values.
    """
    position, level = (np.unique(each, return_inverse=True)[1] for each in (scores, judged))
    n_levels = int(level.max()) + 1
    cells = position * n_levels + level
    here = np.bincount(cells, minlength=n_levels * (int(position.max()) + 1)).reshape(-1, n_levels)
    # of each level at each score: those with a lower score minus those with a higher one
    lower = (2 * np.cumsum(here, axis=0) - here - here.sum(axis=0)).astype(np.float64)
    to_level = np.cumsum(lower, axis=1)
    # lower levels should score lower, higher levels higher
    balance: Float64Array = ((to_level - lower) - (to_level[:, -1:] - to_level)).ravel()[cells]
    return balance
