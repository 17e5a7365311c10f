"""Comparison of every item with every anchor, block by block, in bounded memory.

The largest tensor of a pairwise similarity, items x anchors x positions x dim, exists for one block of anchors at a
time. If there are several blocks, the backward pass recomputes it instead of keeping it.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.nn import functional
from torch.utils.checkpoint import checkpoint

from baselines.backbones.encoders import unit_length
from baselines.kit.backbone import Encoded
from baselines.kit.batches import memory_budget, to_device, valid_items

SHARPNESS = 9.0
SLOPE = 0.1
HIDDEN = -1e9


@dataclass(frozen=True)
class Block:
    """Anchors that are compared with all items at once.

    Attributes:
        anchors: int64 ``(anchors,)``, positions in the caller's order.
        longest: length of the longest anchor.
        valid: bool ``(anchors, longest)``, or ``(anchors, 1 + longest)`` with a global node first; None if there is no
            padding.
    """

    anchors: Tensor
    longest: int
    valid: Tensor | None


def plan_blocks(
    anchors: Encoded, n_items: int, bytes_per_position: int, size: int | None = None
) -> list[Block]:
    """Split anchors into blocks of similar length, the longest first.

    Args:
        anchors: vectors of their positions.
        n_items: number of items that every anchor is compared with.
        bytes_per_position: temporary memory of one item and one anchor position.
        size: anchors per block; chosen from the memory budget by default.
    """
    budget = memory_budget(anchors.vectors.device)
    by_length = longest_first(anchors)
    counts, blocks, start = by_length.counts, [], 0
    while start < len(counts):
        longest = counts[start]
        fitting = size or max(1, budget // (n_items * longest * bytes_per_position))
        blocks.append(by_length.block(start, min(start + fitting, len(counts)), whole=True))
        start += fitting
    return blocks


class LongestFirst(NamedTuple):
    """Anchors sorted by decreasing length; equal lengths keep their order.

    Attributes:
        counts: lengths of the anchors.
        lengths: the same, int64 ``(anchors,)``, on the CPU.
        order: int64 ``(anchors,)``, positions in the caller's order, on the device.
    """

    counts: list[int]
    lengths: Tensor
    order: Tensor

    def block(self, start: int, end: int, *, whole: bool) -> Block:
        """Build the block of anchors from ``start`` to ``end``; ``whole`` adds a global node before their positions."""
        longest, anchors, more = self.counts[start], self.order[start:end], int(whole)
        if not may_pad(self.counts[start:end]):
            return Block(anchors, longest, None)
        valid = valid_items(self.lengths[start:end] + more, longest + more, anchors.device)
        return Block(anchors, longest, valid)


def longest_first(anchors: Encoded) -> LongestFirst:
    """Sort anchors for blocks; in a compiled step they keep their order."""
    lengths, device = anchors.lengths, anchors.vectors.device
    if torch.compiler.is_compiling():
        return LongestFirst(counts_of(anchors), lengths, torch.arange(len(anchors), device=device))
    falling, order = torch.sort(lengths, descending=True, stable=True)
    return LongestFirst(falling.tolist(), falling, to_device(order, device))


def counts_of(side: Encoded) -> list[int]:
    """Lengths of images or captions as numbers; in a compiled step, whose shapes no length changes, the longest."""
    if torch.compiler.is_compiling():
        return [side.vectors.shape[1]] * len(side)
    counts: list[int] = side.lengths.tolist()
    return counts


def may_pad(counts: Sequence[int]) -> bool:
    """Whether there may be padding among images or captions with these :func:`counts_of`."""
    return torch.compiler.is_compiling() or min(counts) < max(counts)


def in_given_order(columns: Sequence[Tensor], blocks: Sequence[Block]) -> Tensor:
    """Concatenate per-block results along the last dimension, in the caller's order."""
    in_blocks = torch.cat(list(columns), dim=-1)
    return torch.empty_like(in_blocks).index_copy(
        -1, torch.cat([block.anchors for block in blocks]), in_blocks
    )


def attention(queries: Tensor, keys: Tensor, valid_keys: Tensor | None = None) -> Tensor:
    """Compute the attention of each query to each key of each item (SGRAF, section 3.1; SCAN).

    Inner products go through a leaky ReLU, are normalised over the positions of an anchor, then go through a softmax
    over the keys of an item.

    Args:
        queries: float ``(anchors, positions, dim)``, zero beyond an anchor's length.
        keys: float ``(items, keys, dim)``.
        valid_keys: bool ``(items, keys)``; all by default.

    Returns:
        float ``(items, anchors * positions, keys)``, each row sums to 1.
    """
    n_items, n_keys, _ = keys.shape
    scores = keys.flatten(0, 1) @ queries.flatten(0, 1).T
    scores = functional.leaky_relu(scores, SLOPE).view(n_items, n_keys, *queries.shape[:2])
    scores = SHARPNESS * unit_length(scores)
    if valid_keys is not None:
        scores = scores.masked_fill(~valid_keys[..., None, None], HIDDEN)
    return torch.softmax(scores, dim=1).flatten(2).transpose(1, 2)


class Nodes(NamedTuple):
    """Similarity nodes of a block before normalisation.

    Attributes:
        whole: float ``(items, anchors, sim_dim)``, the global node.
        parts: float ``(items, anchors, positions, sim_dim)``.
    """

    whole: Tensor
    parts: Tensor


def joined(nodes: Nodes) -> Tensor:
    """Normalise and concatenate all nodes, float ``(items, anchors, 1 + positions, sim_dim)``."""
    return torch.cat([unit_length(nodes.whole)[..., None, :], unit_length(nodes.parts)], dim=-2)


def kept(function: Callable[..., Any], *args: Any) -> Any:
    """Call a function and keep its inner tensors for the backward pass."""
    return function(*args)


def within_memory(n_blocks: int) -> Callable[..., Any]:
    """Return the caller of a block's function: plain for one block, which fits into memory; else checkpointed."""
    return kept if n_blocks == 1 else recomputed


def recomputed(function: Callable[..., Any], *args: Any) -> Any:
    """Call a function, and call it again in the backward pass instead of keeping its inner tensors.

    The function must draw no random numbers.
    """
    if not torch.is_grad_enabled():
        return function(*args)
    return checkpoint(function, *args, use_reentrant=False, preserve_rng_state=False)


def mirrored(n: int, lower: Sequence[Tensor], upper: Sequence[Tensor]) -> Tensor:
    """Assemble a square matrix from blocks of columns, each starting at the row of its first anchor.

    Args:
        n: number of rows and columns.
        lower: blocks ``(n - first, anchors, ...)`` from left to right; they fill the matrix on and below the diagonal.
        upper: blocks of the same shapes; their entries below the diagonal are transposed to fill the matrix above it.

    Returns:
        float ``(n, n, ...)``, zero outside the blocks.
    """
    below, above = _stacked(n, lower), _stacked(n, upper)
    ranks = torch.arange(len(below), device=below.device)
    chosen = (ranks[:, None] >= ranks).view(*below.shape[:2], *[1] * (below.dim() - 2))
    return torch.where(chosen, below, above.transpose(0, 1))


def _stacked(n: int, blocks: Sequence[Tensor]) -> Tensor:
    parts, filled = [], 0
    for block in blocks:
        first, (width, *rest) = n - len(block), block.shape[1:]
        parts += [block.new_zeros(n, first - filled, *rest)]
        parts += [torch.cat([block.new_zeros(first, width, *rest), block])]
        filled = first + width
    return torch.cat([*parts, parts[0].new_zeros(n, n - filled, *parts[0].shape[2:])], dim=1)
