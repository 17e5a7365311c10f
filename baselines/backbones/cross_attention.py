"""Shared parts of SCAN and IMRAM: unit vectors of regions and words, attention of one side to the other, and tiles.

One side looks and the other is seen: each looking item (a word, say) attends to all seen items (the regions) and is
compared with its attended vector. The attended vectors are never computed. Their inner product with the looking item is
a weighted sum of products that the attention already has, and their length follows from the inner products among the
seen items (their Gram matrix).
"""

from collections.abc import Callable
from typing import NamedTuple

import torch
from pydantic import PositiveInt
from torch import Tensor
from torch.nn import functional

from baselines.backbones.encoders import EPSILON, WordEncoder, on_gpu_path, unit_length, xavier_linear
from baselines.backbones.pairwise import (
    SLOPE,
    Block,
    LongestFirst,
    counts_of,
    in_given_order,
    kept,
    longest_first,
    may_pad,
    recomputed,
)
from baselines.kit.backbone import Backbone, Encoded
from baselines.kit.batches import memory_budget, valid_items
from baselines.kit.options import Options

SMALLEST_PRODUCT, SMALLEST_SQUARE = 1e-8, 1e-24
"""Lower bounds of the product of two lengths in a cosine, and of one length."""
TILE_ROWS = 128
"""Maximum rows of a tile: enough for fast matrix products."""
LEAST_FILLED = 0.75
"""Minimum length of a tile's columns relative to its longest; the rest of a tile is padding."""


class CrossAttentionConfig(Options):
    """Sizes of the encoders.

    Attributes:
        embed_size: dimension of the joint space (code: 1024).
        word_dim: dimension of a word embedding (code: 300).
        block_captions: captions compared at once (default: chosen from the free memory). Results change only by
            rounding.
    """

    embed_size: PositiveInt = 1024
    word_dim: PositiveInt = 300
    block_captions: PositiveInt | None = None


class Side(NamedTuple):
    """Images or captions of a tile.

    Attributes:
        vectors: float ``(n, items, dim)``, zero where ``valid`` is False.
        valid: bool ``(n, items)``; None without padding.
    """

    vectors: Tensor
    valid: Tensor | None


def products(looking: Side, seen: Side) -> Tensor:
    """Inner products of all pairs of items, float ``(n seen, seen items, n looking, looking items)``."""
    every = seen.vectors.flatten(0, 1) @ looking.vectors.flatten(0, 1).T
    return every.view(*seen.vectors.shape[:2], *looking.vectors.shape[:2])


def gram(side: Side) -> Tensor:
    """Inner products among the items of each image or caption, float ``(n, items, items)``."""
    return side.vectors @ side.vectors.transpose(1, 2)


def attention(scores: Tensor, seen: Tensor | None, sharpness: float) -> Tensor:
    """Attention weights of each looking item, which sum to 1 over the seen items (dimension 1).

    Scores pass a leaky ReLU, are scaled to unit length over the looking items, then go through a softmax over the
    seen items.

    Args:
        scores: float ``(n seen, seen items, n looking, looking items)``, zero for padded looking items.
        seen: bool ``(n seen, seen items)``, False for padding (default: no padding).
        sharpness: factor in the softmax, the inverse temperature.
    """
    scores = functional.leaky_relu(scores, SLOPE)
    if on_gpu_path(scores):
        scores = sharpness * unit_length(scores)
    else:  # one product per score, not two
        scores = scores * (sharpness / (torch.linalg.vector_norm(scores, dim=-1, keepdim=True) + EPSILON))
    if seen is not None:
        scores = scores.masked_fill(~seen[..., None, None], -torch.inf)
    return torch.softmax(scores, dim=1)


def relevance(looking: Side, between: Tensor, weights: Tensor, among: Tensor) -> Tensor:
    """Cosine of each looking item with its attended vector, float ``(n seen, n looking, looking items)``.

    Args:
        looking: the looking items.
        between: their :func:`products` with the seen items.
        weights: from :func:`attention`.
        among: :func:`gram` of the seen items.
    """
    flat = weights.flatten(2)
    squared = (flat * torch.bmm(among, flat)).sum(dim=1).view(len(flat), *weights.shape[2:])
    lengths = squared.clamp(min=SMALLEST_SQUARE).sqrt() * torch.linalg.vector_norm(looking.vectors, dim=-1)
    cosines: Tensor = (weights * between).sum(dim=1) / lengths.clamp(min=SMALLEST_PRODUCT)
    return cosines


def unmixed(function: Callable[..., Tensor], looking: Side, *inputs: Side | Tensor) -> Tensor:
    """Call ``function(looking, *inputs)`` without autocast: cosines need more than the 8 bits of bfloat16."""
    own = looking.vectors
    with torch.autocast(own.device.type, enabled=False):
        return function(looking, *(x.to(own.dtype) if isinstance(x, Tensor) else x for x in inputs))


def mean_over_items(values: Tensor, valid: Tensor | None) -> Tensor:
    """Mean over the items without padding: float ``(m, n, items)`` to ``(m, n)``."""
    if valid is None:
        return values.mean(dim=-1)
    return (values * valid).sum(dim=-1) / valid.sum(dim=-1)


def in_tiles(
    rows: Encoded,
    columns: Encoded,
    prepare: Callable[[Side], tuple[Tensor, ...]],
    compare: Callable[..., Tensor],
    bytes_of_pair: Callable[[int, int], int],
    size: int | None,
) -> Tensor:
    """Compute a similarity matrix in tiles of rows and columns of similar length.

    The inner tensors of a tile are recomputed in the backward pass instead of stored, unless those of all tiles fit
    into the memory budget.

    Args:
        rows: float vectors ``(n_rows, items, dim)``.
        columns: likewise.
        prepare: computes what all tiles of the same rows share.
        compare: ``compare(rows, columns, *prepared)``, maps two sides to float ``(rows, columns)``.
        bytes_of_pair: temporary memory of a row and a column with these numbers of items.
        size: columns per tile (default: chosen from the memory budget).

    Returns:
        float ``(n_rows, n_columns)``.
    """
    device = rows.vectors.device
    row_counts, by_length = counts_of(rows), longest_first(columns)
    items, budget = max(row_counts), memory_budget(device)
    height = max(1, min(len(rows), TILE_ROWS, budget // bytes_of_pair(items, by_length.counts[0])))
    blocks = _blocks(by_length, size, lambda n: budget // (height * bytes_of_pair(items, n)))
    needed = sum(len(rows) * len(block.anchors) * bytes_of_pair(items, block.longest) for block in blocks)
    run = recomputed if needed > budget else kept
    parts = []
    for start in range(0, len(rows), height):
        counts, vectors = row_counts[start : start + height], rows.vectors[start : start + height, :items]
        valid = None
        if may_pad([*counts, items]):
            valid = valid_items(rows.lengths[start : start + height], items, device)
        side = Side(vectors, valid)
        prepared = prepare(side)
        tiles = [
            run(compare, side, Side(columns.vectors[block.anchors, : block.longest], block.valid), *prepared)
            for block in blocks
        ]
        parts.append(in_given_order(tiles, blocks))
    return torch.cat(parts)


def _blocks(by_length: LongestFirst, size: int | None, fitting: Callable[[int], int]) -> list[Block]:
    """Blocks of columns of similar length, longest first; ``fitting`` gives how many of a length fit at once."""
    counts, blocks, start = by_length.counts, [], 0
    while start < len(counts):
        longest = counts[start]
        fit = counts[start : start + (size or max(1, fitting(longest)))]
        # lengths decrease, so these come first
        end = start + sum(count >= LEAST_FILLED * longest for count in fit)
        blocks.append(by_length.block(start, end, whole=False))
        start = end
    return blocks


class CrossAttention(Backbone):
    """Encoders of SCAN and IMRAM: regions and words one by one, without pooling.

    Args as for every backbone; any number of regions is allowed, and padding takes no part in the attention.
    """

    config: CrossAttentionConfig

    def __init__(
        self, config: CrossAttentionConfig, feature_dim: int, n_regions: int, vocabulary_size: int
    ) -> None:
        super().__init__()
        self.config, self.embed_size = config, config.embed_size
        self.regions = xavier_linear(feature_dim, config.embed_size)
        self.words = WordEncoder(vocabulary_size, config.word_dim, config.embed_size)

    def encode_images(self, image_features: Tensor, image_lengths: Tensor) -> Encoded:
        """Unit vectors of the regions, zero beyond an image's length."""
        vectors = unit_length(self.autocast(self.regions, image_features))
        valid = valid_items(image_lengths, vectors.shape[1], vectors.device)
        return Encoded(vectors.masked_fill(~valid[..., None], 0.0), image_lengths)

    def encode_captions(self, caption_tokens: Tensor, caption_lengths: Tensor) -> Encoded:
        """Unit vectors of the words, zero beyond a caption's length."""
        words = self.autocast(self.words, caption_tokens, caption_lengths)
        return Encoded(unit_length(words), caption_lengths)
