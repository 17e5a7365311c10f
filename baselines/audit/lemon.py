"""LEMoN (Zhang et al., ICML 2025): wrong pairs by the neighbours of their image and caption; nothing is trained.

A caption should be near the captions of the images nearest to its own image, and likewise for images.

Deviations from the published code: neighbours are all pairs of other images, so that no twin of the own pair and no
sister caption stands among them; the search for the six numbers, which needs to know wrong pairs, is left out.
"""

from dataclasses import dataclass
from typing import Literal

import numpy as np
import torch
from torch import Tensor
from torch.nn.functional import normalize

from ncl_bench.errors import TrainingError
from ncl_bench.npy import FloatArray, Int64Array
from ncl_bench.progress import Advance
from ncl_bench.schema import Record

MOST_NUMBERS = 2**26
"""Similarities or neighbouring vectors in memory at once."""
MOST_REFERENCE = 50_000
"""Pairs of the reference, as in the published code."""
LEMON = "lemon"


class LemonSetting(Record):
    """The numbers of LEMoN; the defaults are its fixed setting, LEMoN_fix.

    Attributes:
        k: neighbours on each side.
        distance: 1 minus the cosine, or the squared Euclidean distance of unit vectors.
        beta, gamma: weights of the two terms.
        tau_1n, tau_2n: decay of the image neighbours with their distance, and with that of their own pair.
        tau_1m, tau_2m: likewise for caption neighbours.
        exponent: of ``tau_1`` under the cosine: minus the cosine as in the published code, for which the defaults were
            chosen, or the distance as in the paper. It only scales the terms.
    """

    k: int = 30
    distance: Literal["cosine", "euclidean"] = "cosine"
    beta: float = 5.0
    gamma: float = 5.0
    tau_1n: float = 0.1
    tau_2n: float = 5.0
    tau_1m: float = 0.1
    tau_2m: float = 5.0
    exponent: Literal["published", "paper"] = "published"


FIXED = LemonSetting()


@dataclass(frozen=True)
class LemonScores:
    """Of every pair, in the precision of the vectors, ``(n,)`` each; larger means more likely wrong.

    Attributes:
        distance: d of image and caption.
        image_term: s_n, how far the caption is from those of the nearest images.
        caption_term: s_m, how far the image is from those of the nearest captions.
        score: distance + beta image_term + gamma caption_term.
        neighbours: int64 ``(2, n, k)``, pairs of the reference with the nearest images and captions, nearest first.
    """

    distance: FloatArray
    image_term: FloatArray
    caption_term: FloatArray
    score: FloatArray
    neighbours: Int64Array


@torch.no_grad()
def lemon(
    images: FloatArray,
    captions: FloatArray,
    image_of: Int64Array,
    reference: Int64Array,
    setting: LemonSetting = FIXED,
    *,
    asked: int | None = None,
    device: torch.device | None = None,
    advance: Advance = lambda amount: None,
) -> LemonScores:
    """Score every pair against a reference.

    Args:
        images: ``(n_images, dim)``, of a space that the captions share, of any length but zero.
        captions: ``(n, dim)``.
        image_of: int64 ``(n,)``, row of the image that each caption is paired with, wrongly or not.
        reference: int64 ``(m,)``, pairs whose images and captions may be neighbours; those of the own image never are.
        setting: the numbers.
        asked: number of pairs to score, the first ones (default: all).
        device: where to compute; the CPU by default.
        advance: called with the number of pairs done.

    Raises:
        TrainingError: a pair has fewer than k pairs of other images in the reference.
    """
    x, y = (normalize(torch.from_numpy(side).to(device), eps=1e-12) for side in (images, captions))
    image = torch.from_numpy(image_of).to(x.device)
    pairs = torch.from_numpy(reference).to(x.device)
    most = int(np.bincount(image_of[reference]).max())
    if len(reference) - most < setting.k:
        raise TrainingError(
            f"LEMoN compares every pair with {setting.k} pairs of other images, but there are {len(reference) - most} "
            "for some; audit more pairs"
        )
    near_x, near_y = x[image[pairs]], y[pairs]
    trust = _distance((near_x * near_y).sum(dim=1), setting)
    rows = max(1, MOST_NUMBERS // max(len(reference), setting.k * x.shape[1]))
    parts = []
    n = len(y) if asked is None else asked
    for start in range(0, n, rows):
        block = torch.arange(start, min(start + rows, n), device=x.device)
        own = image[block, None] == image[pairs]
        sides = (x[image[block]], near_x), (y[block], near_y)
        places, terms = [], []
        for (asks, near_asks), (others, near_others), tau_1, tau_2 in (
            (*sides, setting.tau_1n, setting.tau_2n),
            (*sides[::-1], setting.tau_1m, setting.tau_2m),
        ):
            cosine, near = (asks @ near_asks.T).masked_fill_(own, -torch.inf).topk(setting.k, dim=1)
            across = torch.einsum("nd,nkd->nk", others, near_others[near])
            weight = torch.exp(-tau_1 * _exponent(cosine, setting) - tau_2 * trust[near])
            places.append(pairs[near])
            terms.append((_distance(across, setting) * weight).mean(dim=1))  # by k, not by the sum of weights
        distance = _distance((sides[0][0] * sides[1][0]).sum(dim=1), setting)
        parts.append((distance, *terms, *places))
        advance(len(block))
    distance, image_term, caption_term, *neighbours = (
        torch.cat(each).cpu() for each in zip(*parts, strict=True)
    )
    score = distance + setting.beta * image_term + setting.gamma * caption_term
    return LemonScores(
        distance.numpy(),
        image_term.numpy(),
        caption_term.numpy(),
        score.numpy(),
        torch.stack(neighbours).numpy(),
    )


def _distance(cosine: Tensor, setting: LemonSetting) -> Tensor:
    return 1 - cosine if setting.distance == "cosine" else 2 - 2 * cosine


def _exponent(cosine: Tensor, setting: LemonSetting) -> Tensor:
    published = setting.distance == "cosine" and setting.exponent == "published"
    return -cosine if published else _distance(cosine, setting)
