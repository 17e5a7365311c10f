"""Networks and a split to similarities: images in strips, captions in blocks, which are shared out over the ranks.

Every image is encoded once. Captions are encoded once for each strip, and 5,000 images of every network are one strip.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import repeat
from typing import cast

import numpy as np
import torch
from numpy.typing import NDArray
from torch import nn

from baselines.kit.backbone import Backbone, Encoded
from baselines.kit.batches import in_blocks
from baselines.kit.distributed import gathered_on_first, rank, world_size
from ncl_bench.data.paired import PairedDataset

CAPTION_BLOCK = 256
IMAGE_BLOCK = 256
MOST_VECTORS = 4 * 2**30
"""Bytes of image vectors, of all networks together, after which a strip of images ends."""

RankingScores = Callable[[torch.Tensor], torch.Tensor]
"""Similarities to what a network ranks by, see :meth:`baselines.kit.method.Method.ranking_scores`."""


def score(
    networks: Iterable[nn.Module],
    dataset: PairedDataset,
    *,
    n_images: int | None = None,
    device: torch.device | None = None,
) -> NDArray[np.float32]:
    """Mean similarity of several networks for every image with every caption; see :func:`score_blocks`.

    Returns:
        float32 ``(n_images, n_captions)``, images as rows; empty on every rank but the first.
    """
    n_images = dataset.n_images if n_images is None else n_images
    shape = (n_images, n_images * dataset.captions_per_image)
    similarities = np.empty(shape if rank() == 0 else (0, 0), np.float32)
    for images, captions, block in score_blocks(networks, dataset, n_images=n_images, device=device):
        similarities[images, captions] = block
    return similarities


@torch.no_grad()
def score_blocks(
    networks: Iterable[nn.Module],
    dataset: PairedDataset,
    *,
    n_images: int,
    device: torch.device | None = None,
    first_image: int = 0,
    first_caption: int = 0,
    rank_by: Iterable[RankingScores] | None = None,
) -> Iterator[tuple[slice, slice, NDArray[np.float32]]]:
    """Strips of images, each compared with blocks of captions in order; a rank computes every world-size-th block.

    A block holds the same bits however many ranks share the work, as far as their machines are alike.

    Args:
        networks: backbones in evaluation mode; their similarities are averaged with equal weight.
        dataset: dev or test.
        n_images: score the first images and their captions only.
        device: where the networks are.
        first_image: where to begin: the first of a strip.
        first_caption: where to begin in that strip.
        rank_by: for each network what its similarities become before the mean; nothing else by default.

    Yields:
        Images, captions and their float32 ``(images, captions)``; nothing on every rank but the first, which must go
        through the blocks all the same.
    """
    device = device or torch.device("cpu")
    backbones = [cast(Backbone, network) for network in networks]
    scores_of = list(rank_by or repeat(_unchanged, len(backbones)))
    while first_image < n_images:
        strip = _encode_strip(backbones, dataset, range(first_image, n_images), device)
        images = slice(first_image, first_image + len(strip[0].vectors))
        captions = np.arange(first_caption, n_images * dataset.captions_per_image)
        blocks = list(in_blocks(captions, CAPTION_BLOCK))
        for start in range(0, len(blocks), world_size()):
            turn = blocks[start : start + world_size()]
            own = torch.empty(images.stop - images.start, 0, device=device)
            if rank() < len(turn):
                tokens, lengths = (
                    torch.from_numpy(x).to(device) for x in dataset.tokens.padded(turn[rank()])
                )
                each = [
                    change(network.similarities(encoded, network.encode_captions(tokens, lengths)))
                    for network, encoded, change in zip(backbones, strip, scores_of, strict=True)
                ]
                own = torch.stack(each).mean(dim=0)
            parts = gathered_on_first(own, [len(block) for block in turn])
            for block, part in zip(turn, parts, strict=False):
                yield images, slice(int(block[0]), int(block[-1]) + 1), part.cpu().numpy()
        first_image, first_caption = images.stop, 0


def _unchanged(similarities: torch.Tensor) -> torch.Tensor:
    return similarities


def _encode_strip(
    networks: Sequence[Backbone], dataset: PairedDataset, images: range, device: torch.device
) -> list[Encoded]:
    """The first of these images as each network sees them, until their vectors take much memory."""
    parts: list[list[Encoded]] = [[] for _ in networks]
    kept = 0
    for rows in in_blocks(np.arange(images.start, images.stop), IMAGE_BLOCK):
        features = torch.from_numpy(dataset.image_features[rows]).float().to(device)
        lengths = torch.full((len(rows),), features.shape[1], device=device)
        for network, own in zip(networks, parts, strict=True):
            own.append(network.encode_images(features, lengths))
            kept += own[-1].vectors.nbytes
        if kept >= MOST_VECTORS:
            break
    return [_joined(own) for own in parts]


def _joined(parts: Sequence[Encoded]) -> Encoded:
    pooled = [part.pooled for part in parts if part.pooled is not None]
    return Encoded(
        vectors=torch.cat([part.vectors for part in parts]),
        lengths=torch.cat([part.lengths for part in parts]),
        pooled=torch.cat(pooled) if pooled else None,
    )
