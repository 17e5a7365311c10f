"""The scores file: a float ``.npy`` matrix, images as rows; written whole or not at all, opened mapped."""

from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ncl_bench.data import dataset_spec
from ncl_bench.errors import ScoresError
from ncl_bench.evaluation.arrays import as_array
from ncl_bench.evaluation.matrix import FloatArray
from ncl_bench.evaluation.protocol import check_matrix
from ncl_bench.files import atomic_path
from ncl_bench.npy import map_npy, read_header

ROWS_AT_ONCE = 100


def write_scores(path: str | Path, similarities: Any) -> None:
    """Write similarities as float32.

    Args:
        path: the ``.npy`` file to write.
        similarities: float ``(n_images, n_captions)``, images as rows; an array, perhaps memory-mapped, or a tensor
            of the CPU.

    Raises:
        ScoresError: it is no matrix of floats, or holds numbers that are not finite.
        NclBenchError: the place cannot be written.
    """
    similarities = as_array(similarities)
    if similarities.ndim != 2 or similarities.dtype.kind != "f":
        raise ScoresError(
            f"similarities have shape {similarities.shape} and dtype {similarities.dtype}, "
            "expected a matrix of floats with images as rows"
        )
    path = Path(path)
    with atomic_path(path) as temporary, temporary.open("wb") as stream:
        header = {"descr": "<f4", "fortran_order": False, "shape": similarities.shape}
        np.lib.format.write_array_header_1_0(stream, header)
        for start in range(0, len(similarities), ROWS_AT_ONCE):
            with np.errstate(over="ignore"):
                rows = np.ascontiguousarray(similarities[start : start + ROWS_AT_ONCE], "<f4")
            _refuse_non_finite(rows, start)
            stream.write(rows.tobytes())


def _refuse_non_finite(rows: NDArray[np.float32], start: int) -> None:
    if not np.isfinite(rows).all():
        row, column = np.argwhere(~np.isfinite(rows))[0]
        raise ScoresError(
            f"similarities are not finite as float32 in row {start + row}, column {column}; "
            "score this pair again"
        )


def open_scores(path: str | Path, *, dataset: str, split: str = "test") -> FloatArray:
    """Open the similarities of a split, memory-mapped and read-only.

    Args:
        path: an ``.npy`` file of float16, float32 or float64, images as rows.
        dataset: its name.
        split: ``test`` or ``dev``.

    Returns:
        float ``(n_images, n_captions)``.

    Raises:
        ScoresError: missing, damaged, pickled, or of another type or shape than the split needs.
    """
    path = Path(path)
    header = read_header(path)
    check_matrix(header.shape, header.dtype, dataset_spec(dataset), split, str(path))
    return map_npy(path, header)
