"""Squared differences projected to similarity nodes, without keeping the wide differences in memory.

The backward pass of ``linear((a - b) ** 2)`` needs the difference again. It is recomputed from the inputs, so that only
inputs and result stay in memory. Expanding the square would save no multiplication, because ``a * b`` must be projected
for every pair just like the square. It would also lose digits if a and b are close: equal regions differ by zero, and
the network then reads an offset of 1e-6.
"""

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
) -> Tensor:
    """Compute ``linear((unit_length(attention @ keys) - queries) ** 2)``.

    Args:
        attention: float ``(items, n, keys)``.
        keys: float ``(items, keys, dim)``.
        queries: float ``(n, dim)``.
        weight: float ``(sim_dim, dim)``.
        bias: float ``(sim_dim,)``.

    Returns:
        float ``(items, n, sim_dim)``.
    """
    nodes: Tensor = _AttendedDifference.apply(attention, keys, queries, weight, bias)  # type: ignore[no-untyped-call]
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
            # Normalising removes the part of the gradient along the context. Written with the inner products of the
            # keys, this needs no tensor of width dim.
            along = torch.bmm(inner, keys.transpose(1, 2))
            radial = (along * weights).sum(dim=-1, keepdim=True) * (
                1 + EPSILON / length.clamp_min(EPSILON**2)
            )
            gram = torch.bmm(keys, keys.transpose(1, 2))
            grad_attention = (along - radial * torch.bmm(weights, gram)) / (length + EPSILON)
            overlap = torch.bmm((radial * weights).transpose(1, 2), weights)
            grad_keys = torch.bmm(weights.transpose(1, 2), inner) - torch.bmm(overlap, keys)
        return grad_attention, grad_keys, grad_queries, grad_weight, flat.sum(dim=0)


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
