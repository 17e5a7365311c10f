"""Networks and a split to similarities: every image encoded once, captions in blocks, shared out over the ranks."""

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
    for captions, block in score_blocks(networks, dataset, n_images=n_images, device=device):
        similarities[:, captions] = block
    return similarities


@torch.no_grad()
def score_blocks(
    networks: Iterable[nn.Module],
    dataset: PairedDataset,
    *,
    n_images: int,
    device: torch.device | None = None,
    first_caption: int = 0,
    rank_by: Iterable[RankingScores] | None = None,
) -> Iterator[tuple[slice, NDArray[np.float32]]]:
    """Blocks of captions in order, compared with all images; each rank computes every world-size-th block.

    A block holds the same bits however many ranks share the work, as far as their machines are alike.

    Args:
        networks: backbones in evaluation mode; their similarities are averaged with equal weight.
        dataset: dev or test.
        n_images: score the first images and their captions only.
        device: where the networks are.
        first_caption: where to begin.
        rank_by: for each network what its similarities become before the mean; nothing else by default.

    Yields:
        The captions and their float32 ``(n_images, captions)``; nothing on every rank but the first, which
        must go through the blocks all the same.
    """
    device = device or torch.device("cpu")
    backbones = [cast(Backbone, network) for network in networks]
    scores_of = list(rank_by or repeat(_unchanged, len(backbones)))
    images = [_encode_images(network, dataset, n_images, device) for network in backbones]
    blocks = list(in_blocks(np.arange(first_caption, n_images * dataset.captions_per_image), CAPTION_BLOCK))
    for start in range(0, len(blocks), world_size()):
        turn = blocks[start : start + world_size()]
        own = torch.empty(n_images, 0, device=device)
        if rank() < len(turn):
            tokens, lengths = (torch.from_numpy(x).to(device) for x in dataset.tokens.padded(turn[rank()]))
            each = [
                change(network.similarities(encoded, network.encode_captions(tokens, lengths)))
                for network, encoded, change in zip(backbones, images, scores_of, strict=True)
            ]
            own = torch.stack(each).mean(dim=0)
        parts = gathered_on_first(own, [len(block) for block in turn])
        for captions, part in zip(turn, parts, strict=False):
            yield slice(int(captions[0]), int(captions[-1]) + 1), part.cpu().numpy()


def _unchanged(similarities: torch.Tensor) -> torch.Tensor:
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
