"""Embed a split with a user's model, batch by batch; of what framework it is, is not asked."""

from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from ncl_bench.data import dataset_spec
from ncl_bench.data.load import load_dataset
from ncl_bench.data.paired import PairedDataset
from ncl_bench.data.pictures import open_picture
from ncl_bench.errors import ScoresError
from ncl_bench.evaluation.protocol import evaluated_images
from ncl_bench.evaluation.scores import as_array
from ncl_bench.progress import Progress, silent

Kind = Literal["images", "captions"]
Encode = Callable[[Any, Kind, Any], Any]
"""Called with the model, the kind and a batch; returns float ``(n, dim)``."""


def embeddings_of(
    model: Any,
    encode: Encode | None,
    dataset: str,
    split: Literal["test", "dev"],
    *,
    batch_size: int = 256,
    pictures: bool | None = None,
    root: Path | None = None,
    progress: Progress = silent,
) -> tuple[NDArray[Any], NDArray[Any]]:
    """Embed each image and each caption of an evaluated split once.

    Args:
        model: an object with ``encode_images`` and ``encode_captions``, or any with ``encode``.
        encode: replaces the two methods.
        dataset: name of the dataset.
        split: ``test`` or ``dev``.
        batch_size: images or captions per call.
        pictures: give PIL images (True) or features (False); None gives pictures if the dataset has them.
        root: folder of prepared datasets.
        progress: reports the images and captions.

    Returns:
        Embeddings of the images ``(n_images, dim)`` and of the captions ``(n_captions, dim)``.
    """
    missing = [name for name in ("encode_images", "encode_captions") if not hasattr(model, name)]
    if encode is None and missing:
        raise ScoresError(
            f"{type(model).__name__} has no {missing[0]}; add it, or give encode=, which is called with the model, "
            '"images" or "captions", and a batch'
        )
    if batch_size < 1:
        raise ScoresError(f"batch_size is {batch_size}, expected at least 1")
    data = load_dataset(dataset, split=split, root=root)
    data = data.first_images(evaluated_images(dataset_spec(dataset), split))
    if data.captions is None:
        raise ScoresError(
            f"{dataset}/{split} holds no caption texts; embed its tokens yourself and give the embeddings"
        )
    if pictures and data.images is None:
        raise ScoresError(
            f"{dataset}/{split} holds no pictures; add them with `ncl-bench add-images`, or leave pictures out"
        )
    pictures = data.images is not None if pictures is None else pictures

    def embed(kind: Kind, batches: Iterable[Any]) -> NDArray[Any]:
        parts = []
        for batch in batches:
            given = encode(model, kind, batch) if encode else getattr(model, f"encode_{kind}")(batch)
            part = as_array(given)  # before the next batch: a tensor with gradients would keep its graph
            if part.ndim != 2 or len(part) != len(batch):
                raise ScoresError(
                    f"the model returned shape {part.shape} for {len(batch)} {kind}, expected one vector each: "
                    f"({len(batch)}, dim)"
                )
            parts.append(part)
            advance(len(batch))
        return np.concatenate(parts)

    with progress("encode", data.n_images + len(data)) as advance:
        images = _pictures(data, batch_size) if pictures else _features(data, batch_size)
        return embed("images", images), embed("captions", _texts(data, batch_size))


def _slices(n: int, size: int) -> Iterator[range]:
    return (range(start, min(start + size, n)) for start in range(0, n, size))


def _features(data: PairedDataset, size: int) -> Iterator[Any]:
    return (data.image_features[np.arange(rows.start, rows.stop)] for rows in _slices(data.n_images, size))


def _texts(data: PairedDataset, size: int) -> Iterator[list[str]]:
    assert data.captions is not None
    for rows in _slices(len(data), size):
        yield [data.captions[row] for row in rows]


def _pictures(data: PairedDataset, size: int) -> Iterator[list[Any]]:
    assert data.images is not None
    for rows in _slices(data.n_images, size):
        with ExitStack() as opened:
            yield [
                opened.enter_context(open_picture(data.images[row], str(data.image_ids[row]))) for row in rows
            ]
