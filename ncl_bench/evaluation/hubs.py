"""Take hubs out of similarities: images and captions that are near everything.

In spaces of many dimensions a few items are among the nearest of most queries: hubs (Radovanovic, Nanopoulos and
Ivanovic, JMLR 2010). Cross-domain similarity local scaling (CSLS: Conneau et al., ICLR 2018) subtracts from each
similarity how near its two items are to everything. Here, everything is a bank of training items, as in QB-Norm
(Bogolin et al., CVPR 2022), so the scores of a query do not depend on other queries, and no pairing is read.
"""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from ncl_bench.arguments import Count, checked_arguments
from ncl_bench.errors import ScoresError
from ncl_bench.evaluation.scores import as_array
from ncl_bench.npy import Float64Array, FloatArray

ROWS_AT_ONCE = 256


@checked_arguments(ScoresError)
def without_hubs(
    similarities: Any,
    to_bank_of_captions: Any,
    to_bank_of_images: Any,
    weight: float = 1.0,
    neighbours: Count = 10,
) -> FloatArray:
    """Subtract from each similarity how near its image and its caption are to a bank of training items (CSLS).

    The result is ``S(i, c) - weight / 2 * r(i) - weight / 2 * r(c)``, where ``r(i)`` is the mean of the ``neighbours``
    highest similarities of image ``i`` to the captions of the bank, and ``r(c)`` that of caption ``c`` to its images::

        ncl_bench.without_hubs(images @ captions.T, images @ bank_captions.T, bank_images @ captions.T)

    Choose ``weight`` and ``neighbours`` on dev. The papers are named in ``ncl_bench/evaluation/hubs.py``.

    Args:
        similarities: float ``(n_images, n_captions)``, images as rows; an array, a tensor, or the path of a file.
        to_bank_of_captions: float ``(n_images, n_bank_captions)``, the same images with training captions.
        to_bank_of_images: float ``(n_bank_images, n_captions)``, training images with the same captions.
        weight: 0 leaves the similarities as they are, 1 is CSLS.
        neighbours: number of highest similarities to a bank that are averaged.

    Returns:
        float ``(n_images, n_captions)``; float64 for float64 similarities, else float32.
    """
    scores, captions, images = map(as_array, (similarities, to_bank_of_captions, to_bank_of_images))
    # numpy would broadcast banks of one row, and an array with captions as rows fits if both sides are equally many
    shapes = [each.shape for each in (scores, captions, images)]
    are_matrices = all(each.ndim == 2 and each.dtype.kind in "iuf" for each in (scores, captions, images))
    if not are_matrices or shapes[1][0] != shapes[0][0] or shapes[2][1] != shapes[0][1]:
        raise ScoresError(
            f"to_bank_of_captions {shapes[1]} and to_bank_of_images {shapes[2]} do not fit similarities {shapes[0]}; "
            "expected three matrices of numbers: the same images as rows, and the same captions as columns"
        )
    of_images = weight / 2 * mean_of_highest(captions, neighbours)
    of_captions = weight / 2 * mean_of_highest(images.T, neighbours)
    result = np.empty(scores.shape, np.float64 if scores.dtype.itemsize > 4 else np.float32)
    for start in range(0, len(scores), ROWS_AT_ONCE):
        rows = slice(start, start + ROWS_AT_ONCE)
        result[rows] = scores[rows] - of_images[rows, None] - of_captions  # in float64, rounded once
    return result


def mean_of_highest(similarities: NDArray[Any], neighbours: int) -> Float64Array:
    """Mean of the highest values of each row, float64 ``(n,)``.

    Args:
        similarities: float ``(n, n_bank)``, also memory-mapped or transposed; read in blocks of rows.
        neighbours: number of values to average, at most ``n_bank``.
    """
    if neighbours > similarities.shape[1]:
        raise ScoresError(f"neighbours is {neighbours}, but a bank holds {similarities.shape[1]} items only")
    result = np.empty(len(similarities))
    for start in range(0, len(similarities), ROWS_AT_ONCE):
        # a copy in C order, because partition is slow along the columns of a transposed block
        block = np.array(similarities[start : start + ROWS_AT_ONCE], order="C")
        block.partition(block.shape[1] - neighbours, axis=1)
        result[start : start + len(block)] = block[:, -neighbours:].mean(axis=1, dtype=np.float64)
    return result
