"""Judge somebody's pairs: how suspicious each is, how probably it is wrong, and how many are.

Scores are measured against chance: the same images with captions of other images. Among the lowest scores the observed
pairs hold at most the wrong ones and so say how many these are.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from baselines.audit.cca import BETTER, DRAWS, ROWS_AT_ONCE, SAMPLE, against_others, cross_fitted, pooled
from baselines.audit.share import share_of_wrong
from ncl_bench.data.columns import Int64Array
from ncl_bench.progress import Advance

OBTAINED = (
    "The scores are a mixture of those of chance (images with captions of other images) and of two normal components; "
    "the interval is from 200 resamples of the images. A wrong caption that fits better than chance is not counted."
)


@dataclass(frozen=True)
class Judged:
    """What is known of ``n`` pairs.

    Attributes:
        table: of all pairs in their order: ``score`` (larger is more suspicious), ``probability`` that the pair is
            wrong, in [0, 1], ``similarity`` (cosine) and the columns that the score was made from.
        share, low, high: estimated share of wrong pairs, with its 95 % interval.
        obtained: how the share was obtained, in a sentence.
        better: int64 ``(n, 3)``, pairs whose captions fit better, the best first; -1 where there are fewer.
    """

    table: pd.DataFrame
    share: float
    low: float
    high: float
    obtained: str
    better: Int64Array


def judge_pairs(
    features: NDArray[np.floating],
    image_of: Int64Array,
    captions: Sequence[str],
    *,
    work: Path,
    seed: int = 0,
    budget_minutes: float | None = None,
    advance: Advance = lambda amount: None,
) -> Judged:
    """Judge pairs from region features of their images; finished steps below ``work`` are not repeated.

    Args:
        features: ``(n_images, regions, dim)``, at least 0, such as those of ``ncl-bench features``.
        image_of: int64 ``(n,)``, row of each pair's image.
        captions: text of each pair.
        work: folder of what is kept; it belongs to these pairs and this seed.
        seed: of everything random.
        budget_minutes: most time to take.
        advance: called with the number of pairs done.
    """
    vectors = pooled(features, work / "pooled.npy")
    found = cross_fitted(vectors, image_of, captions, seed=seed, advance=advance)
    return _judged(
        {"similarity": found.score, "cca": found.score},
        found.score,
        found.chance,
        image_of,
        found.better,
        seed,
    )


def judge_embeddings(
    images: NDArray[np.floating],
    captions: NDArray[np.floating],
    image_of: Int64Array,
    *,
    work: Path,
    seed: int = 0,
    advance: Advance = lambda amount: None,
) -> Judged:
    """Judge pairs from vectors of one space, such as those of CLIP: LEMoN where there are enough pairs, else cosine.

    Args:
        images, captions: ``(n, dim)``, the vectors of each pair.
        image_of: int64 ``(n,)``, a number for each pair's image.
        work: folder of what is kept.
        seed: of everything random.
        advance: called with the number of pairs done.
    """
    x, y = (_unit(side) for side in (images, captions))
    random = np.random.default_rng(seed)
    cosine = np.einsum("nd,nd->n", x, y)
    sample = np.sort(random.permutation(len(y))[:SAMPLE])
    chance = np.zeros((len(y), DRAWS), np.float32)
    better = np.full((len(y), BETTER), -1, np.int64)
    for start in range(0, len(y), ROWS_AT_ONCE):
        block = np.arange(start, min(start + ROWS_AT_ONCE, len(y)))
        chance[block], better[block] = against_others(
            x[block] @ y[sample].T,
            cosine[block],
            image_of[sample] != image_of[block][:, None],
            sample,
            random,
        )
        advance(len(block))
    return _judged({"similarity": cosine}, cosine, chance, image_of, better, seed)


def _unit(vectors: NDArray[np.floating]) -> NDArray[np.float32]:
    vectors = np.asarray(vectors, np.float32)
    unit: NDArray[np.float32] = vectors / np.maximum(np.linalg.norm(vectors, axis=1, keepdims=True), 1e-12)
    return unit


def _judged(
    columns: dict[str, NDArray[np.floating]],
    score: NDArray[np.floating],
    chance: NDArray[np.floating],
    image_of: Int64Array,
    better: Int64Array,
    seed: int,
) -> Judged:
    found = share_of_wrong(score, chance, image_of, seed=seed)
    table = pd.DataFrame({"score": -score, "probability": found.probability, **columns})
    return Judged(table, found.share, found.low, found.high, OBTAINED, better)
