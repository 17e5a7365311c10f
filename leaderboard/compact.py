"""Scores in a quarter of the space, with every rank unchanged.

Ranks depend only on how a query's true items compare with the wrong ones. Scores between which no query
distinguishes may therefore take one value. The result is an ordinary float16 scores file: evaluated like any
other, it gives the same ranks, ties and recalls as the original.
"""

import itertools

import numpy as np
from numpy.typing import NDArray

from ncl_bench.errors import ScoresError

Float16 = NDArray[np.float16]
_LEVELS = 0x7C00
"""Non-negative finite float16 numbers."""


def compact_scores(similarities: NDArray[np.floating], *, captions_per_image: int) -> Float16:
    """Merge scores that no query distinguishes, keep the order of all others.

    Args:
        similarities: float ``(n_images, n_captions)``, finite; caption ``c`` belongs to image
            ``c // captions_per_image``.
        captions_per_image: a fact of the dataset.

    Returns:
        float16 of the same shape, non-negative; every comparison of a true item with a wrong item of the same
        query (greater, equal, less) is that of the input.

    Raises:
        ScoresError: more distinctions are needed than float16 has numbers.
    """
    n_images, n_captions = similarities.shape
    order = np.argsort(similarities, axis=None, kind="stable")
    images, captions = np.divmod(order, n_captions)
    values = similarities.reshape(-1)[order]
    starts = np.flatnonzero(np.append(True, values[1:] != values[:-1])).tolist()
    own = (captions // captions_per_image == images).tolist()
    levels = _levels(images.tolist(), captions.tolist(), own, [*starts, len(order)], n_images, n_captions)
    if levels[-1] >= _LEVELS:
        raise ScoresError(
            f"scores need {levels[-1] + 1:,} distinct values, float16 has {_LEVELS:,}; keep ranks instead"
        )
    result = np.empty(n_images * n_captions, np.uint16)
    result[order] = levels
    return result.view(np.float16).reshape(n_images, n_captions)


def _levels(
    images: list[int], captions: list[int], own: list[bool], bounds: list[int], n_images: int, n_captions: int
) -> list[int]:
    """Level of each entry in ascending order: a new one begins where merging would hide a comparison.

    A true entry is compared with the wrong ones of its row (image query) and of its column (caption query).
    ``*_true`` and ``*_wrong`` hold the last level at which a row or column saw such an entry.
    """
    row_true, row_wrong = [-1] * n_images, [-1] * n_images
    column_true, column_wrong = [-1] * n_captions, [-1] * n_captions
    levels, level = [0] * len(images), 0
    for start, stop in itertools.pairwise(bounds):
        for place in range(start, stop):
            i, c = images[place], captions[place]
            rows, columns = (row_wrong, column_wrong) if own[place] else (row_true, column_true)
            if rows[i] == level or columns[c] == level:
                level += 1
                break
        for place in range(start, stop):
            rows, columns = (row_true, column_true) if own[place] else (row_wrong, column_wrong)
            rows[images[place]] = columns[captions[place]] = levels[place] = level
    return levels
