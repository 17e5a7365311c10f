"""Triton kernels of :mod:`baselines.backbones.squared_difference`: no tensor of width ``dim`` per pair leaves the chip.

Rows are the words that attend, items the images that they attend to. Products are in TF32 or bfloat16 and summed in
float32. Every sum is made in a fixed order, so a step repeated gives the same bits.

A program holds a tile of rows and columns. The tiles are the largest of those tried whose registers and shared memory
suffice on an H100, as its assembler reports them.
"""

from typing import Any

import torch
import triton
import triton.language as tl
from torch import Tensor

ROWS = COLUMNS = 64
"""Rows and columns of ``dim`` of a tile."""
PARTS = 8
"""Parts of the weight's gradient that are summed side by side."""


@triton.jit  # type: ignore[untyped-decorator]
def _tile(first, size: tl.constexpr):  # type: ignore[no-untyped-def]
    return first + tl.arange(0, size)


@triton.jit  # type: ignore[untyped-decorator]
def _rows(places, count, block, ROWS: tl.constexpr):  # type: ignore[no-untyped-def]
    order = _tile(block * ROWS, ROWS)
    inside = order < tl.load(count)
    return tl.load(places + order, mask=inside, other=0), inside


@triton.jit  # type: ignore[untyped-decorator]
def _attended(  # type: ignore[no-untyped-def]
    attention, keys, queries, weight, bias, places, count, nodes, lengths, n_rows, epsilon,
    KEYS: tl.constexpr, DIM: tl.constexpr, OUT: tl.constexpr, PADDED: tl.constexpr,
    ROWS: tl.constexpr, COLUMNS: tl.constexpr, LOW: tl.constexpr,
):  # fmt: skip
    if tl.program_id(0) * ROWS >= tl.load(count):
        return
    item = tl.program_id(1).to(tl.int64)
    rows, inside = _rows(places, count, tl.program_id(0), ROWS)
    key, out = tl.arange(0, PADDED), tl.arange(0, OUT)
    is_key = key < KEYS
    attention, keys = attention + item * KEYS * n_rows, keys + item * KEYS * DIM
    nodes, lengths = nodes + item * n_rows * OUT, lengths + item * n_rows
    narrow = key * n_rows + rows[:, None]
    weights = tl.load(attention + narrow, mask=inside[:, None] & is_key, other=0.0).to(LOW)
    squared = tl.zeros((ROWS,), tl.float32)
    for first in range(0, DIM, COLUMNS):  # the length needs all columns, and the difference needs the length
        wide = key[:, None] * DIM + _tile(first, COLUMNS)
        context = tl.dot(weights, tl.load(keys + wide, mask=is_key[:, None], other=0.0).to(LOW))
        squared += tl.sum(context * context, axis=1)
    length = tl.sqrt(squared)
    found = tl.zeros((ROWS, OUT), tl.float32)
    for first in range(0, DIM, COLUMNS):
        column = _tile(first, COLUMNS)
        seen = tl.load(keys + key[:, None] * DIM + column, mask=is_key[:, None], other=0.0)
        context = tl.dot(weights, seen.to(LOW)) / (length + epsilon)[:, None]
        difference = context - tl.load(queries + rows[:, None] * DIM + column)
        projection = tl.load(weight + out * DIM + column[:, None]).to(LOW)
        found = tl.dot((difference * difference).to(LOW), projection, found)
    found = (found + tl.load(bias + out)).to(nodes.dtype.element_ty)
    tl.store(nodes + rows[:, None] * OUT + out, found, mask=inside[:, None])
    tl.store(lengths + rows, length, mask=inside)


@triton.jit  # type: ignore[untyped-decorator]
def _of_inputs(  # type: ignore[no-untyped-def]
    grad, shares, keys, queries, weight, places, count, along, grad_keys, grad_queries, n_items, n_rows,
    KEYS: tl.constexpr, DIM: tl.constexpr, OUT: tl.constexpr, PADDED: tl.constexpr,
    ROWS: tl.constexpr, COLUMNS: tl.constexpr, LOW: tl.constexpr,
):  # fmt: skip
    chunk, block = tl.program_id(0).to(tl.int64), tl.program_id(1).to(tl.int64)
    if block * ROWS >= tl.load(count):
        return
    rows, inside = _rows(places, count, block, ROWS)
    key, column = tl.arange(0, PADDED), _tile(tl.program_id(0) * COLUMNS, COLUMNS)
    is_key = key < KEYS
    narrow, wide = key * n_rows + rows[:, None], key[:, None] * DIM + column
    along += chunk * n_items * KEYS * n_rows
    grad_keys += block * n_items * KEYS * DIM
    anchors = tl.load(queries + rows[:, None] * DIM + column)
    of_queries = tl.zeros((ROWS, COLUMNS), tl.float32)
    for _ in range(n_items):  # the pointers move from item to item
        weights = tl.load(shares + narrow, mask=inside[:, None] & is_key, other=0.0).to(LOW)
        seen = tl.load(keys + wide, mask=is_key[:, None], other=0.0).to(LOW)
        inner = tl.zeros((ROWS, COLUMNS), tl.float32)
        for first in range(0, OUT, PADDED):  # all outputs at once would not fit into the registers
            out = _tile(first, PADDED)
            coming = tl.load(grad + rows[:, None] * OUT + out, mask=inside[:, None], other=0.0).to(LOW)
            inner = tl.dot(coming, tl.load(weight + out[:, None] * DIM + column).to(LOW), inner)
        inner *= 2 * (tl.dot(weights, seen) - anchors)
        of_queries -= inner
        inner = inner.to(LOW)
        of_weights, of_keys = tl.dot(inner, tl.trans(seen)), tl.dot(tl.trans(weights), inner)
        tl.store(along + narrow, of_weights, mask=inside[:, None] & is_key)
        tl.store(grad_keys + wide, of_keys, mask=is_key[:, None])
        shares, along, grad = shares + KEYS * n_rows, along + KEYS * n_rows, grad + OUT * n_rows
        keys, grad_keys = keys + KEYS * DIM, grad_keys + KEYS * DIM
    tl.store(grad_queries + rows[:, None] * DIM + column, of_queries, mask=inside[:, None])


@triton.jit  # type: ignore[untyped-decorator]
def _of_weight(  # type: ignore[no-untyped-def]
    grad, shares, keys, queries, places, count, grad_weight, n_items, n_rows,
    KEYS: tl.constexpr, DIM: tl.constexpr, OUT: tl.constexpr, PADDED: tl.constexpr,
    ROWS: tl.constexpr, COLUMNS: tl.constexpr, LOW: tl.constexpr,
):  # fmt: skip
    part, parts = tl.program_id(1).to(tl.int64), tl.num_programs(1)
    key, out, column = tl.arange(0, PADDED), tl.arange(0, OUT), _tile(tl.program_id(0) * COLUMNS, COLUMNS)
    is_key, blocks = key < KEYS, tl.cdiv(tl.load(count), ROWS)
    shares, keys, grad = shares + part * KEYS * n_rows, keys + part * KEYS * DIM, grad + part * OUT * n_rows
    found = tl.zeros((OUT, COLUMNS), tl.float32)
    for _ in range(tl.program_id(1), n_items, parts):
        seen = tl.load(keys + key[:, None] * DIM + column, mask=is_key[:, None], other=0.0).to(LOW)
        for block in range(blocks):
            rows, inside = _rows(places, count, block, ROWS)
            narrow = key * n_rows + rows[:, None]
            weights = tl.load(shares + narrow, mask=inside[:, None] & is_key, other=0.0).to(LOW)
            coming = tl.load(grad + rows[:, None] * OUT + out, mask=inside[:, None], other=0.0).to(LOW)
            difference = tl.dot(weights, seen) - tl.load(queries + rows[:, None] * DIM + column)
            found = tl.dot(tl.trans(coming), (difference * difference).to(LOW), found)
        shares, keys, grad = (
            shares + parts * KEYS * n_rows,
            keys + parts * KEYS * DIM,
            grad + parts * OUT * n_rows,
        )
    tl.store(grad_weight + (part * OUT + out)[:, None] * DIM + column, found)


def attended(
    attention: Tensor,
    keys: Tensor,
    queries: Tensor,
    weight: Tensor,
    bias: Tensor,
    read: Tensor,
    *,
    mixed: bool,
    epsilon: float,
) -> tuple[Tensor, Tensor]:
    """Run the forward kernel; see :func:`baselines.backbones.squared_difference.attended_nodes`."""
    n_items, n_keys, n_rows = attention.shape
    nodes = keys.new_zeros(n_items, n_rows, len(weight), dtype=torch.bfloat16 if mixed else torch.float32)
    lengths = keys.new_ones(n_items, n_rows)
    _attended[triton.cdiv(n_rows, ROWS), n_items](
        *(x.contiguous() for x in (attention, keys, queries, weight, bias, *_places(read))),
        *(nodes, lengths, n_rows, epsilon),
        **_constants(n_keys, weight, mixed, stages=2),
    )
    return nodes, lengths


def gradients(
    grad: Tensor,
    shares: Tensor,
    keys: Tensor,
    queries: Tensor,
    weight: Tensor,
    read: Tensor,
    *,
    mixed: bool,
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Run the backward kernels; see :func:`baselines.backbones.squared_difference.attended_gradients`."""
    n_items, n_keys, n_rows = shares.shape
    n_out, dim = weight.shape
    chunks, blocks = dim // COLUMNS, triton.cdiv(n_rows, ROWS)
    inputs = [x.contiguous() for x in (grad, shares, keys, queries, weight, *_places(read))]
    # each program writes its part of a sum, because atomic additions would come in any order
    along = keys.new_zeros(chunks, n_items, n_keys, n_rows)
    grad_keys = keys.new_zeros(blocks, n_items, n_keys, dim)
    grad_queries = keys.new_zeros(n_rows, dim)
    grad_weight = keys.new_empty(PARTS, n_out, dim)
    constants = _constants(n_keys, weight, mixed, stages=1)
    _of_inputs[chunks, blocks](*inputs, along, grad_keys, grad_queries, n_items, n_rows, **constants)
    del inputs[4]
    _of_weight[chunks, PARTS](*inputs, grad_weight, n_items, n_rows, **constants)
    return along.sum(dim=0), grad_keys.sum(dim=0), grad_queries, grad_weight.sum(dim=0)


def _places(read: Tensor) -> tuple[Tensor, Tensor]:
    """Rows that are read, int32 ``(n,)``, before all others, and their number: on the device, without waiting."""
    return torch.argsort(~read, stable=True).int(), read.sum(dtype=torch.int32)


def _constants(n_keys: int, weight: Tensor, mixed: bool, *, stages: int) -> dict[str, Any]:
    n_out, dim = weight.shape
    sizes = {"KEYS": n_keys, "DIM": dim, "OUT": n_out, "PADDED": max(16, triton.next_power_of_2(n_keys))}
    held = {"ROWS": ROWS, "COLUMNS": COLUMNS, "LOW": tl.bfloat16 if mixed else tl.float32}
    return {**sizes, **held, "num_warps": 8, "num_stages": stages}
