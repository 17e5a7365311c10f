"""Read the embeddings that an audit of a user's pairs may be given instead of pictures."""

from pathlib import Path
from typing import Any

import numpy as np

from baselines.kit.cca import ROWS_AT_ONCE
from ncl_bench.data.pairs.listing import Parts, natural, refuse_other_parts
from ncl_bench.errors import DataError, named
from ncl_bench.evaluation.scores import as_array, check_embeddings, read_array
from ncl_bench.foreign import reading
from ncl_bench.npy import FloatArray


def read_embeddings(images: Any, captions: Any) -> tuple[FloatArray, FloatArray, Parts]:
    """Both sides, checked: as many of each, of one length, finite and not zero; and their files with their rows.

    A ``.npy`` file is mapped. A folder is one array, whose parts are its ``.npy`` files in natural order.
    """
    if images is None or captions is None:
        raise DataError(
            f"embeddings of one side are given; give both {named('image_embeddings')} and {named('caption_embeddings')}"
        )
    sides: list[FloatArray] = []
    parts: list[Parts] = []
    for given, name in ((images, "image embeddings"), (captions, "caption embeddings")):
        label = str(given) if isinstance(given, str | Path) else name
        if label is name:
            arrays = {name: np.asarray(as_array(given))}
        else:
            files = sorted(Path(label).glob("*.npy"), key=natural) or [Path(label)]
            arrays = {str(file): read_array(file) for file in files}
        first, *more = arrays.values()
        with reading(label):
            array = np.concatenate([first, *more]) if more else first  # one file stays mapped
        if array.ndim != 2 or array.dtype.kind != "f":
            raise DataError(
                f"{label} holds {array.dtype} of shape {array.shape}, expected floats of shape (pairs, dim)"
            )
        parts.append([(file, len(each)) for file, each in arrays.items()])
        check_embeddings(array, label, "cosine")
        sides.append(array)
    x, y = sides
    if x.shape != y.shape:
        repeat = ""
        if x.shape[1] == y.shape[1] and len(y) % max(1, len(x)) == 0 and len(x) < len(y):
            times = len(y) // len(x)
            repeat = (
                f", such as numpy.repeat(images, {times}, axis=0) if the captions of an image are neighbours"
            )
        raise DataError(
            f"the image embeddings have shape {x.shape}, those of the captions {y.shape}; give one row of each per "
            f"pair and one length{repeat}"
        )
    refuse_other_parts(*parts)
    for side, name in ((x, "image"), (y, "caption")):
        if len(side) > 1 and _along(side, np.broadcast_to(side[0], side.shape)):
            raise DataError(
                f"all {name} embeddings have one direction, so every pair looks alike; compute them anew, one for each "
                "row"
            )
    # both sides from one file would fit perfectly, and no pair would be called wrong
    if _along(x, y):
        raise DataError(
            "every caption embedding lies along the embedding of its image; give the vectors of the captions, not "
            "those of the images"
        )
    return x, y, parts[0]


def _along(x: FloatArray, y: FloatArray) -> bool:
    """Whether every row of one array is a positive or negative multiple of the other's, up to half precision."""
    if x.shape[1] == 1:
        return False  # in one dimension all vectors are
    for start in range(0, len(x), ROWS_AT_ONCE):
        a, b = (np.asarray(each[start : start + ROWS_AT_ONCE], np.float64) for each in (x, y))
        cosine = np.einsum("nd,nd->n", a, b) / (np.linalg.norm(a, axis=1) * np.linalg.norm(b, axis=1))
        if (np.abs(cosine) < 1 - 1e-5).any():
            return False
    return True
