"""Similarity nodes in one pass over a GPU's fast memory; the plain form is in ``squared_difference.py``.

Plain torch writes and reads the attended regions three times: as they are, at unit length, and as a squared
difference, each of size items x positions x dim. Here a program makes the nodes of a few positions of one
item and keeps all that in registers. The attended regions are made twice, first for their length: with a few
dozen keys that is a small part of the projection's work.
"""

import torch
import triton
import triton.language as tl
from torch import Tensor

from baselines.backbones.encoders import EPSILON
from ncl_bench.errors import TrainingError

POSITIONS = 64
"""Positions of one program."""

SLICE = 32
"""Dimensions of the joint space that are read at once."""


@triton.jit  # type: ignore[untyped-decorator]
def _attended(shares, of_item, regions, here, n_keys, dim, PRECISION: tl.constexpr):  # type: ignore[no-untyped-def]
    """Some dimensions of the attended regions."""
    values = tl.load(
        of_item + regions[:, None] * dim + here[None, :],
        mask=(regions < n_keys)[:, None] & (here < dim)[None, :],
        other=0.0,
    )
    return tl.dot(shares, values, input_precision=PRECISION)


@triton.jit  # type: ignore[untyped-decorator]
def _attended_nodes(  # type: ignore[no-untyped-def]
    attention,
    keys,
    queries,
    weight,
    bias,
    nodes,
    lengths,
    n_positions,
    n_keys,
    dim,
    sim_dim,
    epsilon,
    POSITIONS: tl.constexpr,
    KEYS: tl.constexpr,
    SLICE: tl.constexpr,
    SIM: tl.constexpr,
    PRECISION: tl.constexpr,
):
    """Nodes of some positions (first axis of the grid) of one item (second axis)."""
    item = tl.program_id(1).to(tl.int64)
    positions = tl.program_id(0) * POSITIONS + tl.arange(0, POSITIONS)
    regions, sims, columns = tl.arange(0, KEYS), tl.arange(0, SIM), tl.arange(0, SLICE)
    in_item = positions < n_positions

    shares = tl.load(
        attention + (item * n_positions + positions[:, None]) * n_keys + regions[None, :],
        mask=in_item[:, None] & (regions < n_keys)[None, :],
        other=0.0,
    )
    of_item = keys + item * n_keys * dim

    squares = tl.zeros((POSITIONS,), tl.float32)
    for first in range(0, dim, SLICE):
        here = first + columns
        attended = _attended(shares, of_item, regions, here, n_keys, dim, PRECISION)
        squares += tl.sum(attended * attended, axis=1)
    length = tl.sqrt(squares)
    tl.store(lengths + item * n_positions + positions, length, mask=in_item)

    result = tl.zeros((POSITIONS, SIM), tl.float32)
    for first in range(0, dim, SLICE):
        here = first + columns
        query = tl.load(
            queries + positions[:, None] * dim + here[None, :],
            mask=in_item[:, None] & (here < dim)[None, :],
            other=0.0,
        )
        projection = tl.load(
            weight + sims[None, :] * dim + here[:, None],
            mask=(sims < sim_dim)[None, :] & (here < dim)[:, None],
            other=0.0,
        )
        attended = _attended(shares, of_item, regions, here, n_keys, dim, PRECISION)
        difference = attended / (length + epsilon)[:, None] - query.to(tl.float32)
        squared = (difference * difference).to(projection.dtype)
        result = tl.dot(squared, projection, result, input_precision=PRECISION)
    result += tl.load(bias + sims, mask=sims < sim_dim, other=0.0).to(tl.float32)[None, :]
    tl.store(
        nodes + (item * n_positions + positions[:, None]) * sim_dim + sims[None, :],
        result.to(nodes.dtype.element_ty),
        mask=in_item[:, None] & (sims < sim_dim)[None, :],
    )


INTERPRETED = not isinstance(_attended_nodes, triton.JITFunction)
"""Whether the kernel runs on a CPU, by ``TRITON_INTERPRET=1``."""


def attended_nodes(
    attention: Tensor, keys: Tensor, queries: Tensor, weight: Tensor, bias: Tensor
) -> tuple[Tensor, Tensor]:
    """``linear((unit_length(attention @ keys) - queries) ** 2)``, and the lengths.

    Numbers are read and written in autocast's precision where it is enabled, else in that of ``keys``; sums are
    kept in float32. Products of float32 follow ``torch.get_float32_matmul_precision``.

    Args:
        attention: float ``(items, n, keys)``.
        keys: float ``(items, keys, dim)``, at most 32 bits wide.
        queries: float ``(n, dim)``.
        weight: float ``(sim_dim, dim)``.
        bias: float ``(sim_dim,)``.

    Returns:
        Nodes, float ``(items, n, sim_dim)``; lengths of ``attention @ keys``, float32 ``(items, n, 1)``.

    Raises:
        TrainingError: the tensors are not on a CUDA device, and Triton does not interpret.
    """
    kind = keys.device.type
    if kind != "cuda" and not INTERPRETED:
        raise TrainingError(
            f"backbone.kernel is triton, but the network is on the {kind}; compute on a CUDA device, or leave "
            "the kernel out"
        )
    (n_items, n_positions, n_keys), dim, sim_dim = attention.shape, keys.shape[-1], len(weight)
    dtype = torch.get_autocast_dtype(kind) if torch.is_autocast_enabled(kind) else keys.dtype
    nodes = keys.new_empty(n_items, n_positions, sim_dim, dtype=dtype)
    lengths = keys.new_empty(n_items, n_positions, 1, dtype=torch.float32)
    exact = torch.get_float32_matmul_precision() == "highest"
    _attended_nodes[(triton.cdiv(n_positions, POSITIONS), n_items)](
        *(x.to(dtype).contiguous() for x in (attention, keys, queries, weight, bias)),
        nodes,
        lengths,
        n_positions,
        n_keys,
        dim,
        sim_dim,
        EPSILON,
        POSITIONS=POSITIONS,
        KEYS=max(16, triton.next_power_of_2(n_keys)),
        SLICE=SLICE,
        SIM=max(16, triton.next_power_of_2(sim_dim)),
        PRECISION="ieee" if exact else "tf32",
        num_warps=8,
        num_stages=2,  # more would not fit into the shared memory of a smaller GPU
    )
    return nodes, lengths
