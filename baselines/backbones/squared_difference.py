"""Squared differences projected to similarity nodes, without keeping the wide differences in memory.

The backward pass of ``linear((a - b) ** 2)`` needs the difference again. It is recomputed from the inputs, so that only
inputs and result stay in memory. Expanding the square would save no multiplication, because ``a * b`` must be projected
for every pair just like the square. It would also lose digits if a and b are close: equal regions differ by zero, and
the network then reads an offset of 1e-6.

A compiled step keeps the differences of attended vectors on the chip of a GPU (``difference_kernels.py``).
"""

import warnings
from functools import cache
from importlib.util import find_spec
from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable
from torch.nn import functional

from baselines.backbones.encoders import EPSILON


def attended_difference(
    attention: Tensor,
    keys: Tensor,
    queries: Tensor,
    weight: Tensor,
    bias: Tensor,
    read: Tensor | None = None,
) -> Tensor:
    """Compute ``linear((unit_length(attention @ keys) - queries) ** 2)``.

    Args:
        attention: float ``(items, n, keys)``.
        keys: float ``(items, keys, dim)``.
        queries: float ``(n, dim)``.
        weight: float ``(sim_dim, dim)``.
        bias: float ``(sim_dim,)``.
        read: bool ``(n,)``, queries whose nodes are read (default: all); a compiled step may leave others zero.

    Returns:
        float ``(items, n, sim_dim)``.
    """
    nodes: Tensor
    if torch.compiler.is_compiling() and _fit_on_the_chip(attention, keys, queries, weight):
        if read is None:
            read = torch.ones(len(queries), dtype=torch.bool, device=keys.device)
        nodes = _OnTheChip.apply(attention, keys, queries, weight, bias, read)  # type: ignore[no-untyped-call]
    else:
        nodes = _AttendedDifference.apply(attention, keys, queries, weight, bias)  # type: ignore[no-untyped-call]
    return nodes


def positionwise_difference(items: Tensor, anchors: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
    """Compute ``linear((items[:, None] - anchors[None]) ** 2)``.

    Args:
        items: float ``(items, ..., dim)``.
        anchors: float ``(anchors, ..., dim)``.
        weight: float ``(sim_dim, dim)``.
        bias: float ``(sim_dim,)``.

    Returns:
        float ``(items, anchors, ..., sim_dim)``.
    """
    nodes: Tensor = _PositionwiseDifference.apply(items, anchors, weight, bias)  # type: ignore[no-untyped-call]
    return nodes


def _same_autocast(x: Tensor) -> torch.autocast:
    kind = x.device.type
    return torch.autocast(kind, dtype=torch.get_autocast_dtype(kind), enabled=torch.is_autocast_enabled(kind))


class _AttendedDifference(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any,
        attention: Tensor,
        keys: Tensor,
        queries: Tensor,
        weight: Tensor,
        bias: Tensor,
    ) -> Tensor:
        ctx.autocast = _same_autocast(keys)
        context = torch.bmm(attention, keys)
        length = torch.linalg.vector_norm(context, dim=-1, keepdim=True)
        difference = torch.addcdiv(-queries, context, length + EPSILON, out=context)
        nodes = functional.linear(difference.square_(), weight, bias)
        ctx.save_for_backward(attention, keys, queries, weight, length)
        return nodes

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, ...]:
        attention, keys, queries, weight, length = ctx.saved_tensors
        with ctx.autocast:
            weights = attention / (length + EPSILON)
            difference = torch.baddbmm(queries, weights, keys, beta=-1)
            inner = (grad @ (2 * weight)).mul_(difference)
            flat = grad.flatten(0, 1)
            grad_weight = flat.T @ difference.square_().flatten(0, 1)
            grad_queries = -inner.sum(dim=0)
            along = torch.bmm(inner, keys.transpose(1, 2))
            of_keys = torch.bmm(weights.transpose(1, 2), inner)
            grad_attention, grad_keys = _without_radial(along, of_keys, weights, keys, length)
        return grad_attention, grad_keys, grad_queries, grad_weight, flat.sum(dim=0)


def _without_radial(
    along: Tensor, of_keys: Tensor, weights: Tensor, keys: Tensor, length: Tensor
) -> tuple[Tensor, Tensor]:
    """Gradients of attention and keys: normalising removes the part of the gradient along the context.

    Written with the inner products of the keys, this needs no tensor of width dim per query.

    Args:
        along: float ``(items, n, keys)``, gradient of ``weights`` if contexts were not normalised.
        of_keys: float ``(items, keys, dim)``, likewise of the keys.
        weights: float ``(items, n, keys)``, attention divided by the length of its context.
        keys: float ``(items, keys, dim)``.
        length: float ``(items, n, 1)``.
    """
    radial = (along * weights).sum(dim=-1, keepdim=True) * (1 + EPSILON / length.clamp_min(EPSILON**2))
    gram = torch.bmm(keys, keys.transpose(1, 2))
    grad_attention = (along - radial * torch.bmm(weights, gram)) / (length + EPSILON)
    overlap = torch.bmm((radial * weights).transpose(1, 2), weights)
    return grad_attention, of_keys - torch.bmm(overlap, keys)


class _PositionwiseDifference(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, items: Tensor, anchors: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
        ctx.save_for_backward(items, anchors, weight)
        ctx.autocast = _same_autocast(items)
        return functional.linear((items[:, None] - anchors).square_(), weight, bias)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, ...]:
        items, anchors, weight = ctx.saved_tensors
        with ctx.autocast:
            difference = items[:, None] - anchors
            inner = (grad @ (2 * weight)).mul_(difference)
            flat = grad.flatten(0, -2)
            grad_weight = flat.T @ difference.square_().flatten(0, -2)
        return inner.sum(dim=1), -inner.sum(dim=0), grad_weight, flat.sum(dim=0)


@torch.library.custom_op("ncl_bench::attended_nodes", mutates_args=())
def attended_nodes(
    attention: Tensor, keys: Tensor, queries: Tensor, weight: Tensor, bias: Tensor, read: Tensor, mixed: bool
) -> tuple[Tensor, Tensor]:
    """Compute :func:`attended_difference` as one operation.

    Args:
        attention: float32 ``(items, keys, n)``.
        keys: float32 ``(items, keys, dim)``.
        queries: float32 ``(n, dim)``.
        weight: float32 ``(sim_dim, dim)``.
        bias: float32 ``(sim_dim,)``.
        read: bool ``(n,)``; the nodes of other queries are zero, and the length of their context is one.
        mixed: whether products are in bfloat16, not in TF32.

    Returns:
        Nodes, float32 or bfloat16 ``(items, n, sim_dim)``, and lengths of the contexts, float32 ``(items, n)``.
    """
    from baselines.backbones import difference_kernels

    inputs = (attention, keys, queries, weight, bias, read)
    return difference_kernels.attended(*inputs, mixed=mixed, epsilon=EPSILON)


@torch.library.custom_op("ncl_bench::attended_gradients", mutates_args=())
def attended_gradients(
    grad: Tensor, shares: Tensor, keys: Tensor, queries: Tensor, weight: Tensor, read: Tensor, mixed: bool
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Compute gradients of :func:`attended_nodes`, as if contexts were not normalised.

    Args:
        grad: float32 or bfloat16 ``(items, n, sim_dim)``.
        shares: float32 ``(items, keys, n)``, attention divided by the length of its context.
        keys: as there, like all others.
        queries: as there.
        weight: as there.
        read: as there.
        mixed: as there.

    Returns:
        Gradients of shares, keys, queries and weight, float32, of their shapes.
    """
    from baselines.backbones import difference_kernels

    return difference_kernels.gradients(grad, shares, keys, queries, weight, read, mixed=mixed)


@attended_nodes.register_fake
def _(
    attention: Tensor, keys: Tensor, queries: Tensor, weight: Tensor, bias: Tensor, read: Tensor, mixed: bool
) -> tuple[Tensor, Tensor]:
    shape = len(keys), len(queries)
    dtype = torch.bfloat16 if mixed else torch.float32
    return keys.new_empty(*shape, len(bias), dtype=dtype), keys.new_empty(shape)


@attended_gradients.register_fake
def _(
    grad: Tensor, shares: Tensor, keys: Tensor, queries: Tensor, weight: Tensor, read: Tensor, mixed: bool
) -> tuple[Tensor, ...]:
    return tuple(x.new_empty(x.shape) for x in (shares, keys, queries, weight))


class _OnTheChip(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any, attention: Tensor, keys: Tensor, queries: Tensor, weight: Tensor, bias: Tensor, read: Tensor
    ) -> Tensor:
        ctx.autocast, ctx.mixed = _same_autocast(keys), torch.is_autocast_enabled(keys.device.type)
        by_key = attention.transpose(1, 2)
        nodes, lengths = attended_nodes(by_key, keys, queries, weight, bias, read, ctx.mixed)
        ctx.save_for_backward(by_key, keys, queries, weight, read, lengths)
        return nodes

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        by_key, keys, queries, weight, read, lengths = ctx.saved_tensors
        shares = by_key / (lengths + EPSILON)[:, None]
        along, of_keys, *others = attended_gradients(grad, shares, keys, queries, weight, read, ctx.mixed)
        with ctx.autocast:
            grad_attention, grad_keys = _without_radial(
                along.transpose(1, 2), of_keys, shares.transpose(1, 2), keys, lengths[..., None]
            )
        return grad_attention, grad_keys, *others, grad.sum(dim=(0, 1), dtype=weight.dtype), None


def _fit_on_the_chip(attention: Tensor, keys: Tensor, queries: Tensor, weight: Tensor) -> bool:
    """Whether the kernels compute this: in TF32 or bfloat16, as they have no registers for products in float32."""
    n_out, dim = weight.shape
    exact = torch.get_float32_matmul_precision() == "highest"
    return (
        not (exact and not torch.is_autocast_enabled(keys.device.type))
        and all(x.dtype == torch.float32 for x in (attention, keys, queries, weight))
        and keys.shape[1] <= MOST_KEYS
        and n_out in NODES
        and dim % COLUMNS == 0
        and kernels_run(keys.device)
    )


MOST_KEYS, NODES, COLUMNS = 64, {64, 128, 256}, 64
"""What the kernels hold at once: numbers of keys, dimensions of nodes, and a divisor of ``dim``."""


@torch.compiler.assume_constant_result  # type: ignore[no-untyped-call]
@cache
def kernels_run(device: torch.device) -> bool:
    """Whether the device runs the kernels; says once why a GPU does not."""
    if device.type != "cuda" or find_spec("triton") is None:
        return False
    shapes = (1, MOST_KEYS, 64), (1, MOST_KEYS, 128), (64, 128), (256, 128), (256,)
    attention, keys, queries, weight, bias = (torch.ones(shape, device=device) for shape in shapes)
    read = torch.ones(64, dtype=torch.bool, device=device)
    try:
        nodes, _ = attended_nodes(attention, keys, queries, weight, bias, read, False)
        attended_gradients(nodes, attention, keys, queries, weight, read, False)
        torch.cuda.synchronize(device)
    except (
        Exception
    ) as error:  # no compiler, an old driver, a small chip: whatever Triton raises, torch can do it
        why = str(error).strip().partition("\n")[0] or type(error).__name__
        warnings.warn(
            f"torch compares regions and words, because Triton's kernels fail here: {why}", stacklevel=2
        )
        return False
    return True
