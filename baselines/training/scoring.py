"""Similarities or embeddings of a split: images in strips, captions in blocks that the ranks share.

Every image is encoded once. Captions are encoded once per strip; 5,000 images usually fit into one strip.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import cast

import numpy as np
import torch
from torch import Tensor, nn

from baselines.kit.backbone import Backbone, Encoded
from baselines.kit.batches import Ids, in_blocks
from baselines.kit.distributed import gathered_on_first, rank, world_size
from ncl_bench.data.paired import PairedDataset
from ncl_bench.npy import Float32Array
from ncl_bench.progress import Advance

CAPTION_BLOCK = 256
IMAGE_BLOCK = 256
MOST_VECTORS = 4 * 2**30
"""Largest size of a strip of images: bytes of its vectors, summed over all networks."""

RankingScores = Callable[[Tensor], Tensor]
"""Maps similarities to the scores that rank, see :meth:`baselines.kit.method.Method.ranking_scores`."""
Networks = Sequence[tuple[nn.Module, RankingScores]]
"""Networks in evaluation mode, each with its map from similarities to ranking scores."""


@torch.no_grad()
def score(
    networks: Iterable[nn.Module] | Networks,
    dataset: PairedDataset,
    images: Ids | None = None,
    captions: Ids | None = None,
    *,
    captions_of: PairedDataset | None = None,
    device: torch.device | None = None,
    advance: Advance = lambda amount: None,
) -> Float32Array:
    """Compute the mean similarity of several networks for images and captions.

    Blocks do not depend on the number of ranks, so the result has the same bits on machines of the same kind.

    Args:
        networks: backbones in evaluation mode, perhaps with a map each; their similarities, or what the maps make of
            them, are averaged with equal weight.
        dataset: any split.
        images: int64 ``(n_images,)``, rows of its images; all by default.
        captions: int64 ``(n_captions,)``, rows of its captions; those of the images by default, which are then the
            first ones.
        captions_of: split of the captions, if it is another one.
        device: where the networks are; the CPU by default.
        advance: called with the number of similarities done.

    Returns:
        float32 ``(n_images, n_captions)``, images as rows; empty on every rank but the first.
    """
    images = np.arange(dataset.n_images) if images is None else images
    captions = np.arange(len(images) * dataset.captions_per_image) if captions is None else captions
    device = device or torch.device("cpu")
    texts = (captions_of or dataset).tokens
    shape = (len(images), len(captions)) if rank() == 0 else (0, 0)
    similarities = np.empty(shape, np.float32)
    mapped = [each if isinstance(each, tuple) else (each, _unchanged) for each in networks]
    backbones, maps = [cast(Backbone, network) for network, _ in mapped], [rank_by for _, rank_by in mapped]
    first = 0
    # every strip of images meets all captions, which are encoded again for each strip
    while first < len(images):
        strip = _encode_strip(backbones, dataset, images[first:], device)
        height = len(strip[0].vectors)

        def compare(places: Ids, strip: list[Encoded] = strip) -> Tensor:
            tokens, lengths = map(torch.from_numpy, texts.padded(captions[places]))
            each = [
                change(network.similarities(images, network.encode_captions(tokens.to(device), lengths)))
                for network, images, change in zip(backbones, strip, maps, strict=True)
            ]
            return torch.stack(each).mean(dim=0)

        def done(places: int, height: int = height) -> None:
            advance(height * places)

        for places, block in _shared(compare, len(captions), CAPTION_BLOCK, height, device, done):
            similarities[first : first + height, places[0] : places[-1] + 1] = block
        first += height
    return similarities


@torch.no_grad()
def embed(
    networks: Iterable[nn.Module], dataset: PairedDataset, device: torch.device, advance: Advance
) -> tuple[Float32Array, Float32Array]:
    """Compute embeddings of all images and captions of a split.

    For several networks, embeddings are concatenated and divided by the square root of the number of networks. Their
    dot product is then the mean of the networks' similarities.

    Args:
        networks: backbones in evaluation mode, with ``dot_products``.
        dataset: dev or test.
        device: device of the networks.
        advance: called with the number of images and captions done.

    Returns:
        float32 ``(n_images, dim)`` and ``(n_captions, dim)``; without rows on every rank but the first.
    """
    backbones = [cast(Backbone, network) for network in networks]
    dim = sum(network.embed_size for network in backbones)
    # on both sides: a product of two long vectors is the mean of the networks' products
    divisor: float = len(backbones) ** 0.5

    def images(rows: Ids) -> Tensor:
        return side_by_side([encoded.vectors for encoded in _encode_images(backbones, dataset, rows, device)])

    def captions(rows: Ids) -> Tensor:
        tokens, lengths = map(torch.from_numpy, dataset.tokens.padded(rows))
        return side_by_side(
            [network.encode_captions(tokens.to(device), lengths).vectors for network in backbones]
        )

    def side_by_side(vectors: list[Tensor]) -> Tensor:
        return torch.cat(vectors, dim=1).T / divisor

    def side(encode: Callable[[Ids], Tensor], n: int, block: int) -> Float32Array:
        vectors = [part.T for _, part in _shared(encode, n, block, dim, device, advance)]
        return np.concatenate(vectors) if vectors else np.empty((0, dim), np.float32)

    return side(images, dataset.n_images, IMAGE_BLOCK), side(captions, len(dataset), CAPTION_BLOCK)


def _shared(
    compute: Callable[[Ids], Tensor],
    n: int,
    block: int,
    height: int,
    device: torch.device,
    advance: Advance,
) -> Iterator[tuple[Ids, Float32Array]]:
    """Yield each block of rows with its values, float32 ``(height, rows)``, in order; the ranks take turns.

    Only the first rank yields values. The others must iterate too, because each computes its blocks meanwhile.
    """
    blocks = list(in_blocks(np.arange(n), block))
    # each rank computes one block of a turn, and the first rank collects the turn in order
    for start in range(0, len(blocks), world_size()):
        turn = blocks[start : start + world_size()]
        mine = rank() < len(turn)
        own = compute(turn[rank()]).float() if mine else torch.empty(height, 0, device=device)
        parts = gathered_on_first(own, [len(rows) for rows in turn])
        for rows, part in zip(turn, parts, strict=False):
            yield rows, part.cpu().numpy()
        advance(sum(map(len, turn)))


def _unchanged(similarities: Tensor) -> Tensor:
    return similarities


def _encode_images(
    networks: Sequence[Backbone], dataset: PairedDataset, rows: Ids, device: torch.device
) -> list[Encoded]:
    """Encode some images with each network."""
    features = torch.from_numpy(dataset.image_features[rows]).float().to(device)
    lengths = torch.full((len(rows),), features.shape[1])
    return [network.encode_images(features, lengths) for network in networks]


def _encode_strip(
    networks: Sequence[Backbone], dataset: PairedDataset, images: Ids, device: torch.device
) -> list[Encoded]:
    """Encode images from the first on with each network, until their vectors reach ``MOST_VECTORS``."""
    parts: list[list[Encoded]] = []
    kept = 0
    for rows in in_blocks(images, IMAGE_BLOCK):
        parts.append(_encode_images(networks, dataset, rows, device))
        kept += sum(encoded.vectors.nbytes for encoded in parts[-1])
        # at least one block, however large
        if kept >= MOST_VECTORS:
            break
    return [_joined(own) for own in zip(*parts, strict=True)]


def _joined(parts: Sequence[Encoded]) -> Encoded:
    pooled = [part.pooled for part in parts if part.pooled is not None]
    return Encoded(
        vectors=torch.cat([part.vectors for part in parts]),
        lengths=torch.cat([part.lengths for part in parts]),
        pooled=torch.cat(pooled) if pooled else None,
    )
