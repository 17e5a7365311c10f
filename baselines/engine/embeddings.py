"""Networks and a split to embeddings whose dot products are the similarities, shared out over the ranks."""

from collections.abc import Callable, Iterable, Sequence
from typing import cast

import numpy as np
import torch
from numpy.typing import NDArray
from torch import nn

from baselines.engine.similarities import CAPTION_BLOCK, IMAGE_BLOCK
from baselines.kit.backbone import Backbone
from baselines.kit.batches import Ids, in_blocks
from baselines.kit.distributed import gathered_on_first, rank, world_size
from ncl_bench.data.paired import PairedDataset
from ncl_bench.progress import Advance

Embeddings = NDArray[np.float32]


@torch.no_grad()
def embed(
    networks: Iterable[nn.Module], dataset: PairedDataset, device: torch.device, advance: Advance
) -> tuple[Embeddings, Embeddings]:
    """Embeddings of all images and captions of a split.

    The mean of several networks' similarities is the dot product of their embeddings side by side, each divided by the
    root of the number of networks.

    Args:
        networks: backbones in evaluation mode, with ``dot_products``.
        dataset: dev or test.
        device: where the networks are.
        advance: called with the number of images and captions done.

    Returns:
        float32 ``(n_images, dim)`` and ``(n_captions, dim)``; without rows on every rank but the first.
    """
    backbones = [cast(Backbone, network) for network in networks]

    def images(network: Backbone, rows: Ids) -> torch.Tensor:
        features = torch.from_numpy(dataset.image_features[rows]).float().to(device)
        lengths = torch.full((len(rows),), features.shape[1], device=device)
        return network.encode_images(features, lengths).vectors

    def captions(network: Backbone, rows: Ids) -> torch.Tensor:
        tokens, lengths = (torch.from_numpy(x).to(device) for x in dataset.tokens.padded(rows))
        return network.encode_captions(tokens, lengths).vectors

    return (
        _side(backbones, images, dataset.n_images, IMAGE_BLOCK, device, advance),
        _side(backbones, captions, len(dataset), CAPTION_BLOCK, device, advance),
    )


def _side(
    networks: Sequence[Backbone],
    encode: Callable[[Backbone, Ids], torch.Tensor],
    n: int,
    block: int,
    device: torch.device,
    advance: Advance,
) -> Embeddings:
    dim = sum(network.embed_size for network in networks)
    blocks, found = list(in_blocks(np.arange(n), block)), []
    for start in range(0, len(blocks), world_size()):
        turn = blocks[start : start + world_size()]
        own = torch.empty(dim, 0, device=device)
        if rank() < len(turn):
            own = torch.cat([encode(network, turn[rank()]) for network in networks], dim=1).T
        parts = gathered_on_first(own / len(networks) ** 0.5, [len(rows) for rows in turn])
        found += [part.T.float().cpu().numpy() for part in parts]
        advance(sum(map(len, turn)))
    return np.concatenate(found) if found else np.empty((0, dim), np.float32)
