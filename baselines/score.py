"""Networks and a split to similarities: every image encoded once, captions in blocks."""

from collections.abc import Callable, Iterable, Sequence

import numpy as np
import torch
from numpy.typing import NDArray
from torch import nn

from baselines.backbones.base import Backbone, Encoded
from baselines.batches import in_blocks
from ncl_bench.datasets.paired import PairedDataset

CAPTION_BLOCK = 256
IMAGE_BLOCK = 256


@torch.no_grad()
def score(
    networks: Iterable[nn.Module],
    dataset: PairedDataset,
    *,
    n_images: int | None = None,
    device: torch.device | None = None,
    out: NDArray[np.float32] | None = None,
    on_block: Callable[[int], None] | None = None,
    first_caption: int = 0,
) -> NDArray[np.float32]:
    """Mean similarity of several networks for every image with every caption.

    Args:
        networks: backbones in evaluation mode; their similarities are averaged with equal weight.
        dataset: dev or test.
        n_images: score the first images and their captions only; all by default.
        device: where the networks are.
        out: float32 ``(n_images, n_captions)`` to fill, such as a memory-mapped file.
        on_block: called after each block with the number of captions that are done.
        first_caption: captions before this one are in ``out`` already; a multiple of ``CAPTION_BLOCK``.

    Returns:
        float32 ``(n_images, n_captions)``, images as rows.
    """
    device = device or torch.device("cpu")
    backbones = [network for network in networks if isinstance(network, Backbone)]
    n_images = dataset.n_images if n_images is None else n_images
    n_captions = n_images * dataset.captions_per_image
    similarities = np.empty((n_images, n_captions), np.float32) if out is None else out
    images = [_encode_images(network, dataset, n_images, device) for network in backbones]
    for captions in in_blocks(np.arange(first_caption, n_captions), CAPTION_BLOCK):
        tokens, lengths = (torch.from_numpy(x).to(device) for x in dataset.tokens.padded(captions))
        each = [
            network.similarities(encoded, network.encode_captions(tokens, lengths)).float()
            for network, encoded in zip(backbones, images, strict=True)
        ]
        similarities[:, captions[0] : captions[-1] + 1] = torch.stack(each).mean(dim=0).cpu().numpy()
        if on_block is not None:
            on_block(int(captions[-1]) + 1)
    return similarities


def _encode_images(network: Backbone, dataset: PairedDataset, n_images: int, device: torch.device) -> Encoded:
    parts = []
    for rows in in_blocks(np.arange(n_images), IMAGE_BLOCK):
        features = torch.from_numpy(dataset.image_features[rows]).float().to(device)
        lengths = torch.full((len(rows),), features.shape[1], device=device)
        parts.append(network.encode_images(features, lengths))
    return _joined(parts)


def _joined(parts: Sequence[Encoded]) -> Encoded:
    pooled = [part.pooled for part in parts if part.pooled is not None]
    return Encoded(
        vectors=torch.cat([part.vectors for part in parts]),
        lengths=torch.cat([part.lengths for part in parts]),
        pooled=torch.cat(pooled) if pooled else None,
    )
