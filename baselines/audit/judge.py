"""Judge pairs: how suspicious each is, how probably it is wrong, and how many are.

Two views that err differently are averaged: the cosine of image and caption, and LEMoN among the pairs of other folds.
Both are measured in standard deviations of chance: the same images with captions of other images.
"""

import tempfile
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from baselines.audit.cca import Fold, cross_fitted, folds_of, pooled
from baselines.audit.lemon import LEMON, LemonSetting, lemon
from baselines.kit.cca import ROWS_AT_ONCE, unit
from baselines.kit.share import share_of_wrong
from ncl_bench.data.columns import Int64Array, taken
from ncl_bench.data.paired import PairedDataset
from ncl_bench.progress import Advance

MOST_REFERENCE = 5_000
"""Pairs of other folds among which LEMoN looks for neighbours."""
SAMPLE, BETTER = 1_000, 3
"""Pairs whose captions are compared with every image, and how many of the best are named."""
MOST_DRAWS, CHANCE = 10, 20_000
"""Chance is scored with captions of other images: at most 10 for each pair, about 20,000 in all, one each at least."""
OBTAINED = (
    "Every image was also scored with captions of other images. A wrong pair scores like these, a right pair higher. "
    "The number says how many pairs score like these (a mixture of their scores and two normal distributions). The "
    "range comes from 200 resamples of the images and is widened, because a vague caption scores like a wrong one. A "
    "wrong caption of a similar image scores higher and is not counted."
)


@dataclass(frozen=True)
class OrderFault:
    """Pairs ``first`` to ``last`` carry the caption of the pair ``offset`` away; numbers from 0."""

    first: int
    last: int
    offset: int

    def says(self, numbers: Int64Array, what: str = "Rows") -> str:
        """A sentence; ``numbers`` are what people call the pairs, and ``what`` they are."""
        away, where = abs(self.offset), "before" if self.offset < 0 else "after"
        one = what[:-1].lower()
        other = f"the {one} {where}" if away == 1 else f"the {one} {away} {where}"
        return f"{what} {numbers[self.first]:,} to {numbers[self.last]:,} carry the caption of {other}."


@dataclass(frozen=True)
class Judged:
    """What is known of ``n`` pairs.

    Attributes:
        table: of all pairs in their order: ``score`` (larger is more suspicious), ``probability`` that the pair is
            wrong, in [0, 1], what the score was made from: ``similarity`` (cosine) and ``lemon``; and ``reason``: why
            else the pair should be looked at, or empty.
        share, low, high: estimated share of wrong pairs, with a range: bootstrap over images, widened (share.py).
        obtained: how the share was obtained, in a sentence.
        better: int64 ``(n, 3)``, pairs whose captions fit better, the best first; -1 where there are fewer.
        order_faults: neighbours whose captions are shifted.
        enough: whether there are enough pairs for a share; otherwise it is NaN, and only the order holds.
        unseen: what cannot be seen, in a sentence; or empty.
    """

    table: pd.DataFrame
    share: float
    low: float
    high: float
    obtained: str
    better: Int64Array
    order_faults: tuple[OrderFault, ...] = ()
    enough: bool = True
    unseen: str = ""

    @property
    def numbers(self) -> tuple[float, float, float]:
        """``share``, ``low`` and ``high`` as numbers of pairs, not rounded; NaN if there are too few pairs."""
        n = len(self.table)
        return n * self.share, n * self.low, n * self.high


def judge_pairs(
    features: NDArray[np.floating],
    image_of: Int64Array,
    captions: Sequence[str],
    *,
    work: Path,
    seed: int = 0,
    advance: Advance = lambda amount: None,
) -> Judged:
    """Judge pairs from region features of their images; finished steps below ``work`` are not repeated.

    Args:
        features: ``(n_images, regions, dim)``, such as those of ``ncl-bench features``.
        image_of: int64 ``(n,)``, row of each pair's image.
        captions: text of each pair.
        work: folder of what is kept; it belongs to these pairs and this seed.
        seed: of everything random.
        advance: called with the number of pairs done.
    """
    kept = work / "pooled.npy"
    vectors = np.load(kept, mmap_mode="r", allow_pickle=False) if kept.exists() else pooled(features, kept)
    folds = cross_fitted(vectors, image_of, captions, seed=seed)
    return _judged(folds, image_of, seed, advance)


def judge_split(
    train: PairedDataset, rows: Int64Array, *, seed: int = 0, advance: Advance = lambda amount: None
) -> Judged:
    """Judge pairs of a training split from its features and captions; without texts the token ids are the words.

    Args:
        train: the split with its noise, whole.
        rows: int64 ``(n,)``, the pairs to judge.
        seed: of everything random.
        advance: called with the number of pairs done.
    """
    if train.captions is not None:
        captions = list(map(str, taken(train.captions, rows)))
    else:
        captions = []
        for start in range(0, len(rows), ROWS_AT_ONCE):
            ids, lengths = train.tokens.padded(rows[start : start + ROWS_AT_ONCE])
            captions += [" ".join(map(str, row[:n])) for row, n in zip(ids, lengths, strict=True)]
    features: Any = train.image_features  # an array, or read from disk like one
    with tempfile.TemporaryDirectory() as work:
        image_of = train.caption_to_image[rows]
        return judge_pairs(features, image_of, captions, work=Path(work), seed=seed, advance=advance)


def judge_embeddings(
    images: NDArray[np.floating],
    captions: NDArray[np.floating],
    image_of: Int64Array,
    *,
    seed: int = 0,
    advance: Advance = lambda amount: None,
) -> Judged:
    """Judge pairs from vectors of one space, such as those of CLIP.

    Args:
        images, captions: ``(n, dim)``, the vectors of each pair; they may be mapped from files.
        image_of: int64 ``(n,)``, a number for each pair's image.
        seed: of everything random.
        advance: called with the number of pairs done.
    """
    folds = (
        Fold(rows, others, partial(_units, images), partial(_units, captions))
        for rows, others in folds_of(image_of, seed)
    )
    return _judged(folds, image_of, seed, advance)


def _units(vectors: NDArray[np.floating], pairs: Int64Array) -> NDArray[np.float32]:
    return unit(np.asarray(vectors[pairs], np.float64))


def _judged(folds: Iterable[Fold], image_of: Int64Array, seed: int, advance: Advance) -> Judged:
    """Judge by two views that err differently: the cosine of a pair, and LEMoN among pairs of other folds.

    Args:
        folds: of all pairs.
        image_of: int64 ``(n,)``.
        seed: of the draws.
        advance: called with the number of pairs done.
    """
    n = len(image_of)
    random = np.random.default_rng(seed)
    sample = np.sort(random.permutation(n)[:SAMPLE])
    draws = max(1, min(MOST_DRAWS, CHANCE // n))
    own, chance = np.zeros((2, n), np.float32), np.zeros((2, n, draws), np.float32)
    better = np.full((n, BETTER), -1, np.int64)
    for fold in folds:
        reference = np.sort(random.permutation(fold.others)[:MOST_REFERENCE])
        near = fold.images(reference), fold.captions(reference)
        sampled = fold.captions(sample)
        by_image = fold.rows[np.argsort(image_of[fold.rows], kind="stable")]
        for start in range(0, len(fold.rows), ROWS_AT_ONCE):
            block = fold.rows[start : start + ROWS_AT_ONCE]
            x, y = fold.images(block), fold.captions(block)
            drawn = fold.captions(_foreign(block, by_image, image_of, draws, random).reshape(-1))
            r, m = len(block), len(reference)
            number = np.concatenate([np.arange(r), np.repeat(np.arange(r), draws), r + np.arange(m)])
            found = lemon(
                np.concatenate([x, near[0]]),
                np.concatenate([y, drawn, near[1]]),
                number,
                len(number) - m + np.arange(m),
                LemonSetting(k=min(LemonSetting().k, m - 1)),
                asked=len(number) - m,
            )
            for view, values in enumerate((1 - found.distance, -found.score)):
                own[view, block], chance[view, block] = values[:r], values[r:].reshape(r, draws)
            better[block] = _better(x @ sampled.T, own[0, block], image_of[block], image_of[sample], sample)
            advance(r)
    mean, deviation = chance.mean(axis=(1, 2)), chance.std(axis=(1, 2)) + 1e-12
    z = ((own - mean[:, None]) / deviation[:, None]).mean(axis=0)
    z_chance = ((chance - mean[:, None, None]) / deviation[:, None, None]).mean(axis=0)
    share = share_of_wrong(z, z_chance, image_of, seed=seed)
    columns = {"score": -z, "probability": share.probability, "similarity": own[0], LEMON: own[1]}
    table = pd.DataFrame(columns).assign(reason="")
    return Judged(table, share.share, share.low, share.high, OBTAINED, better)


def _foreign(
    block: Int64Array, by_image: Int64Array, image_of: Int64Array, draws: int, random: np.random.Generator
) -> Int64Array:
    """Draw pairs of other images for each pair of a block, int64 ``(len(block), draws)``.

    Args:
        block: int64, some pairs of a fold.
        by_image: int64, all pairs of the fold, those of an image next to each other.
        image_of: int64 ``(n,)``, of all pairs.
        draws: for each pair.
        random: where the draws come from.
    """
    images = image_of[by_image]
    first = np.searchsorted(images, image_of[block], "left")[:, None]
    own = np.searchsorted(images, image_of[block], "right")[:, None] - first
    place = (random.random((len(block), draws)) * (len(by_image) - own)).astype(np.int64)
    drawn: Int64Array = by_image[place + own * (place >= first)]
    return drawn


def _better(
    fits: NDArray[np.float32],
    own: NDArray[np.float32],
    image_of: Int64Array,
    sampled_image: Int64Array,
    sample: Int64Array,
) -> Int64Array:
    """The sampled pairs of other images whose captions fit better than the own one, the best first."""
    fits[(image_of[:, None] == sampled_image) | (fits <= own[:, None])] = -np.inf
    best = np.argsort(-fits, axis=1, kind="stable")[:, :BETTER]
    found = np.full((len(fits), BETTER), -1, np.int64)
    found[:, : best.shape[1]] = np.where(
        np.isfinite(np.take_along_axis(fits, best, axis=1)), sample[best], -1
    )
    return found
