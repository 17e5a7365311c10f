"""Ranks from complete rankings: position of the first true item, and among the items of its fold."""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from ncl_bench.errors import ScoresError
from ncl_bench.evaluation.matrix import BLOCK, release_pages
from ncl_bench.evaluation.ranks import Counted, Int64Array, Ranks


def count_rankings(
    i2t: NDArray[Any],
    t2i: NDArray[Any],
    *,
    captions_per_image: int,
    images_per_fold: int | None,
    names: tuple[str, str] = ("i2t", "t2i"),
) -> Counted:
    """Ranks of every query; ties are unknown.

    Args:
        i2t: integers ``(n_images, n_captions)``, every row a permutation of the captions, best first.
        t2i: integers ``(n_captions, n_images)``, every row a permutation of the images, best first.
        captions_per_image: a fact of the dataset.
        images_per_fold: size of consecutive folds, or None.
        names: what error messages call the two.

    Raises:
        ScoresError: a row is no permutation.
    """
    fold = images_per_fold or len(i2t)
    found = (
        _positions(i2t, names[0], 1, captions_per_image, fold),
        _positions(t2i, names[1], captions_per_image, 1, fold),
    )
    whole, within = (Ranks(found[0][s], found[1][s]) for s in (0, 1))
    return Counted(whole, within if images_per_fold else None, None, i2t.dtype.name)


def _positions(
    rankings: NDArray[Any], name: str, queries_per_image: int, items_per_image: int, images_per_fold: int
) -> tuple[Int64Array, Int64Array]:
    n_queries = len(rankings)
    whole, within = np.empty((2, n_queries), np.int64)
    for query in range(n_queries):
        if query % BLOCK == 0:
            release_pages(rankings, max(query - BLOCK, 0), query)
        row = np.asarray(rankings[query], np.int64)
        _check_permutation(row, query, name)
        image = query // queries_per_image
        images = row // items_per_image
        first = int(np.argmax(images == image))
        whole[query] = first + 1
        same_fold = images[:first] // images_per_fold == image // images_per_fold
        within[query] = np.count_nonzero(same_fold) + 1
    return whole, within


def _check_permutation(row: Int64Array, query: int, name: str) -> None:
    outside = np.flatnonzero((row < 0) | (row >= len(row)))
    if len(outside):
        raise ScoresError(
            f"{name} ranks item {row[outside[0]]} in row {query}, expected items 0 to {len(row) - 1}; "
            "give complete rankings of the split"
        )
    counts = np.bincount(row, minlength=len(row))
    if counts.max() > 1:
        raise ScoresError(
            f"{name} ranks item {int(counts.argmax())} {counts.max()} times in row {query} and item "
            f"{int(counts.argmin())} not at all; every row must hold every item once"
        )
