"""Triton kernels of :mod:`baselines.backbones.squared_difference`: no tensor of width ``dim`` per pair leaves the chip.

Rows are the words that attend, items the images that they attend to. Products are summed in float32. Every sum is made
in a fixed order, so a step repeated gives the same bits.
"""

from typing import Any, NamedTuple

import torch
import triton
import triton.language as tl
from torch import Tensor


class Tile(NamedTuple):
    """Rows and columns of ``dim`` that a program holds at once, its warps, and the stages of its loads."""

    rows: int
    columns: int
    warps: int
    stages: int


FORWARD = {"tf32x3": Tile(64, 64, 8, 2), "tf32": Tile(64, 64, 8, 2), "bf16": Tile(64, 64, 8, 2)}
BACKWARD = {"tf32x3": Tile(64, 64, 8, 1), "tf32": Tile(64, 64, 8, 1), "bf16": Tile(64, 64, 8, 1)}
"""The fastest of those tried on an H100, by the precision of products."""


@triton.jit  # type: ignore[untyped-decorator]
def _attended(  # type: ignore[no-untyped-def]
    attention, keys, queries, weight, bias, places, nodes, lengths, n_rows, n_places, epsilon,
    KEYS: tl.constexpr, DIM: tl.constexpr, OUT: tl.constexpr,
    ROWS: tl.constexpr, COLUMNS: tl.constexpr, PADDED: tl.constexpr,
    LOW: tl.constexpr, PRECISION: tl.constexpr,
):  # fmt: skip
    item = tl.program_id(1).to(tl.int64)
    order = tl.program_id(0) * ROWS + tl.arange(0, ROWS)
    inside = order < n_places
    rows = tl.load(places + order, mask=inside, other=0)
    key, out = tl.arange(0, PADDED), tl.arange(0, OUT)
    of_item = item * KEYS + key
    weights = tl.load(
        attention + of_item * n_rows + rows[:, None], mask=inside[:, None] & (key < KEYS), other=0.0
    ).to(LOW)
    squared = tl.zeros((ROWS,), tl.float32)
    for first in range(0, DIM, COLUMNS):  # the length needs all columns, and the difference the length
        column = first + tl.arange(0, COLUMNS)
        seen = tl.load(keys + of_item[:, None] * DIM + column, mask=(key < KEYS)[:, None], other=0.0).to(LOW)
        context = tl.dot(weights, seen, input_precision=PRECISION)
        squared += tl.sum(context * context, axis=1)
    length = tl.sqrt(squared)
    found = tl.zeros((ROWS, OUT), tl.float32)
    for first in range(0, DIM, COLUMNS):
        column = first + tl.arange(0, COLUMNS)
        seen = tl.load(keys + of_item[:, None] * DIM + column, mask=(key < KEYS)[:, None], other=0.0).to(LOW)
        context = tl.dot(weights, seen, input_precision=PRECISION) / (length + epsilon)[:, None]
        difference = context - tl.load(queries + rows[:, None] * DIM + column)
        projection = tl.load(weight + out * DIM + column[:, None]).to(LOW)
        found = tl.dot((difference * difference).to(LOW), projection, found, input_precision=PRECISION)
    found += tl.load(bias + out)
    at = item * n_rows + rows
    tl.store(nodes + at[:, None] * OUT + out, found.to(nodes.dtype.element_ty), mask=inside[:, None])
    tl.store(lengths + at, length, mask=inside)


@triton.jit  # type: ignore[untyped-decorator]
def _gradients(  # type: ignore[no-untyped-def]
    grad, weights_of, keys, queries, weight, places, along, grad_keys, grad_queries, grad_weight,
    n_items, n_rows, n_places,
    KEYS: tl.constexpr, DIM: tl.constexpr, OUT: tl.constexpr,
    ROWS: tl.constexpr, COLUMNS: tl.constexpr, PADDED: tl.constexpr,
    LOW: tl.constexpr, PRECISION: tl.constexpr,
):  # fmt: skip
    chunk, block = tl.program_id(0).to(tl.int64), tl.program_id(1).to(tl.int64)
    order = block * ROWS + tl.arange(0, ROWS)
    inside = order < n_places
    rows = tl.load(places + order, mask=inside, other=0)
    key, out = tl.arange(0, PADDED), tl.arange(0, OUT)
    narrow = inside[:, None] & (key < KEYS)
    column = chunk * COLUMNS + tl.arange(0, COLUMNS)
    anchors = tl.load(queries + rows[:, None] * DIM + column)
    projection = (2 * tl.load(weight + out[:, None] * DIM + column)).to(LOW)
    of_queries = tl.zeros((ROWS, COLUMNS), tl.float32)
    of_weight = tl.zeros((OUT, COLUMNS), tl.float32)
    for item in range(n_items):
        of_item = (item * KEYS + key).to(tl.int64)
        narrow_at = of_item * n_rows + rows[:, None]
        wide_at = of_item[:, None] * DIM + column
        weights = tl.load(weights_of + narrow_at, mask=narrow, other=0.0).to(LOW)
        seen = tl.load(keys + wide_at, mask=(key < KEYS)[:, None], other=0.0).to(LOW)
        at = (item * n_rows + rows).to(tl.int64)[:, None]
        coming = tl.load(grad + at * OUT + out, mask=inside[:, None], other=0.0).to(LOW)
        difference = tl.dot(weights, seen, input_precision=PRECISION) - anchors
        inner = tl.dot(coming, projection, input_precision=PRECISION) * difference
        of_queries -= inner
        squares = (difference * difference).to(LOW)
        of_weight = tl.dot(tl.trans(coming), squares, of_weight, input_precision=PRECISION)
        inner = inner.to(LOW)
        share = tl.dot(inner, tl.trans(seen), input_precision=PRECISION)
        tl.store(along + chunk * n_items * KEYS * n_rows + narrow_at, share, mask=narrow)
        of_keys = tl.dot(tl.trans(weights), inner, input_precision=PRECISION)
        tl.store(grad_keys + block * n_items * KEYS * DIM + wide_at, of_keys, mask=(key < KEYS)[:, None])
    tl.store(grad_queries + rows[:, None] * DIM + column, of_queries, mask=inside[:, None])
    tl.store(grad_weight + (block * OUT + out)[:, None] * DIM + column, of_weight)


def attended(
    attention: Tensor,
    keys: Tensor,
    queries: Tensor,
    weight: Tensor,
    bias: Tensor,
    places: Tensor,
    *,
    epsilon: float,
    mixed: bool,
    products: str,
) -> tuple[Tensor, Tensor]:
    """Run the forward kernel; see :func:`baselines.backbones.squared_difference.attended_nodes`."""
    n_items, n_keys, n_rows = attention.shape
    n_out, dim = weight.shape
    tile = FORWARD["bf16" if mixed else products]
    nodes = keys.new_zeros(n_items, n_rows, n_out, dtype=torch.bfloat16 if mixed else torch.float32)
    lengths = keys.new_ones(n_items, n_rows)
    _attended[(triton.cdiv(len(places), tile.rows), n_items)](
        *(x.contiguous() for x in (attention, keys, queries, weight, bias, places)),
        *(nodes, lengths, n_rows, len(places), epsilon),
        **_sizes(n_keys, dim, n_out, mixed, products, tile),
    )
    return nodes, lengths


def gradients(
    grad: Tensor,
    weights: Tensor,
    keys: Tensor,
    queries: Tensor,
    weight: Tensor,
    places: Tensor,
    *,
    mixed: bool,
    products: str,
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Run the backward kernel; see :func:`baselines.backbones.squared_difference.attended_gradients`."""
    n_items, n_keys, n_rows = weights.shape
    n_out, dim = weight.shape
    tile = BACKWARD["bf16" if mixed else products]
    chunks, blocks = dim // tile.columns, triton.cdiv(len(places), tile.rows)
    # each program writes its part of a sum, because atomic additions would come in any order
    along = keys.new_zeros(chunks, n_items, n_keys, n_rows)
    grad_keys, grad_weight = (
        keys.new_empty(blocks, *shape) for shape in ((n_items, n_keys, dim), (n_out, dim))
    )
    grad_queries = torch.zeros_like(queries, memory_format=torch.contiguous_format)
    _gradients[(chunks, blocks)](
        *(x.contiguous() for x in (grad, weights, keys, queries, weight, places)),
        *(along, grad_keys, grad_queries, grad_weight, n_items, n_rows, len(places)),
        **_sizes(n_keys, dim, n_out, mixed, products, tile),
    )
    return along.sum(dim=0), grad_keys.sum(dim=0), grad_queries, grad_weight.sum(dim=0)


def _sizes(n_keys: int, dim: int, n_out: int, mixed: bool, products: str, tile: Tile) -> dict[str, Any]:
    sizes = {"KEYS": n_keys, "DIM": dim, "OUT": n_out, "PADDED": max(16, triton.next_power_of_2(n_keys))}
    exact = {"LOW": tl.bfloat16 if mixed else tl.float32, "PRECISION": products}
    held = {"ROWS": tile.rows, "COLUMNS": tile.columns}
    return {**sizes, **exact, **held, "num_warps": tile.warps, "num_stages": tile.stages}
