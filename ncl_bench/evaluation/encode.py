"""Embed a split with a user's model, batch by batch; of what framework it is, is not asked."""

from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from ncl_bench.data import dataset_spec
from ncl_bench.data.load import load_dataset
from ncl_bench.data.pictures import open_picture
from ncl_bench.errors import ScoresError
from ncl_bench.evaluation.protocol import evaluated_images
from ncl_bench.evaluation.scores import as_array
from ncl_bench.progress import Progress

Kind = Literal["images", "captions"]
Encode = Callable[[Any, Kind, Any], Any]
"""Called with the model, the kind and a batch; returns float ``(n, dim)``."""


def embeddings_of(
    model: Any,
    encode: Encode | None,
    dataset: str,
    split: Literal["test", "dev"],
    batch_size: int,
    pictures: bool | None,
    root: Path | None,
    progress: Progress,
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
    data = load_dataset(dataset, split=split, root=root)
    data = data.first_images(evaluated_images(dataset_spec(dataset), split))
    texts, files = data.captions, data.images
    if texts is None:
        raise ScoresError(
            f"{dataset}/{split} holds no caption texts; embed its tokens yourself and give the embeddings"
        )
    if pictures and files is None:
        raise ScoresError(
            f"{dataset}/{split} holds no pictures; add them with `ncl-bench add-images`, or leave pictures out"
        )

    def features(rows: range) -> Any:
        return data.image_features[np.arange(rows.start, rows.stop)]

    def embed(kind: Kind, n: int, batch_of: Callable[[range], Any]) -> NDArray[Any]:
        parts = []
        for start in range(0, n, batch_size):
            batch = batch_of(range(start, min(start + batch_size, n)))
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

    with progress("encode", data.n_images + len(data)) as advance, ExitStack() as opened:

        def shown(rows: range) -> list[Any]:
            opened.close()  # the pictures of the batch before
            assert files is not None
            return [opened.enter_context(open_picture(files[row], str(data.image_ids[row]))) for row in rows]

        images = features if pictures is False or files is None else shown
        return embed("images", data.n_images, images), embed(
            "captions", len(data), lambda rows: [texts[row] for row in rows]
        )
