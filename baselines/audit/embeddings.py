"""Read the embeddings that an audit of somebody's pairs may be given instead of pictures."""

from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ncl_bench.errors import DataError
from ncl_bench.evaluation.scores import as_array, check_embeddings, read_array


def read_embeddings(images: Any, captions: Any) -> tuple[NDArray[np.floating], NDArray[np.floating]] | None:
    """Both sides, checked: as many of each, of one length, finite and not zero. A ``.npy`` file is mapped."""
    if images is None and captions is None:
        return None
    if images is None or captions is None:
        raise DataError(
            "embeddings of one side are given; give both --image-embeddings and --caption-embeddings"
        )
    sides: list[NDArray[np.floating]] = []
    for given, name in ((images, "image embeddings"), (captions, "caption embeddings")):
        is_file = isinstance(given, str | Path)
        array, label = (
            (read_array(Path(given)), str(given)) if is_file else (np.asarray(as_array(given)), name)
        )
        if array.ndim != 2 or array.dtype.kind != "f":
            raise DataError(
                f"{label} holds {array.dtype} of shape {array.shape}, expected floats of shape (pairs, dim)"
            )
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
    return x, y
