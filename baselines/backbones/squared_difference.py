"""Squared differences projected to similarity nodes, without keeping the wide differences in memory.

The backward pass of ``linear((a - b) ** 2)`` needs the difference again. It is recomputed from the inputs, so that only
inputs and result stay in memory. Expanding the square would save no multiplication, because ``a * b`` must be projected
for every pair just like the square. It would also lose digits if a and b are close: equal regions differ by zero, and
the network then reads an offset of 1e-6.

On a GPU, kernels of our own keep the differences of attended vectors on the chip (``difference_kernels.py``).
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
    places: Tensor | None = None,
) -> Tensor:
    """Compute ``linear((unit_length(attention @ keys) - queries) ** 2)``.

    Args:
        attention: float ``(items, n, keys)``.
        keys: float ``(items, keys, dim)``.
        queries: float ``(n, dim)``.
        weight: float ``(sim_dim, dim)``.
        bias: float ``(sim_dim,)``.
        places: int32, the queries that are read, on the device (default: all); a GPU may leave other nodes zero.

    Returns:
        float ``(items, n, sim_dim)``.
    """
    nodes: Tensor
    if _fit_on_the_chip(attention, keys, queries, weight):
        if places is None:
            places = torch.arange(len(queries), device=keys.device, dtype=torch.int32)
        nodes = _OnTheChip.apply(attention, keys, queries, weight, bias, places)  # type: ignore[no-untyped-call]
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


@torch.library.custom_op("ncl_bench::attended_nodes", mutates_args=())
def attended_nodes(
    attention: Tensor,
    keys: Tensor,
    queries: Tensor,
    weight: Tensor,
    bias: Tensor,
    places: Tensor,
    mixed: bool,
    products: str,
) -> tuple[Tensor, Tensor]:
    """Compute :func:`attended_difference` as one operation, with attention ``(items, keys, n)``.

    Args:
        attention: float32 ``(items, keys, n)``.
        keys: float32 ``(items, keys, dim)``.
        queries: float32 ``(n, dim)``.
        weight: float32 ``(sim_dim, dim)``.
        bias: float32 ``(sim_dim,)``.
        places: int32, the queries that are read; the nodes of others are zero, and their length is one.
        mixed: whether products are in bfloat16.
        products: Triton's precision of products in float32.

    Returns:
        Nodes, float32 or bfloat16 ``(items, n, sim_dim)``, and the contexts' lengths, float32 ``(items, n)``.
    """
    from baselines.backbones import difference_kernels

    inputs = (attention, keys, queries, weight, bias, places)
    return difference_kernels.attended(*inputs, epsilon=EPSILON, mixed=mixed, products=products)


@attended_nodes.register_fake
def _(
    attention: Tensor,
    keys: Tensor,
    queries: Tensor,
    weight: Tensor,
    bias: Tensor,
    places: Tensor,
    mixed: bool,
    products: str,
) -> tuple[Tensor, Tensor]:
    shape = len(keys), len(queries)
    return keys.new_empty(
        *shape, len(bias), dtype=torch.bfloat16 if mixed else torch.float32
    ), keys.new_empty(shape)


@torch.library.custom_op("ncl_bench::attended_gradients", mutates_args=())
def attended_gradients(
    grad: Tensor,
    weights: Tensor,
    keys: Tensor,
    queries: Tensor,
    weight: Tensor,
    places: Tensor,
    mixed: bool,
    products: str,
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Compute gradients of :func:`attended_nodes`, as if contexts were not normalised.

    Args:
        grad: float32 or bfloat16 ``(items, n, sim_dim)``.
        weights: float32 ``(items, keys, n)``, attention divided by the length of its context.
        keys: as there, like the others.
        queries: as there.
        weight: as there.
        places: as there.
        mixed: as there.
        products: as there.

    Returns:
        Gradients of weights, keys, queries and weight, float32, of their shapes.
    """
    from baselines.backbones import difference_kernels

    inputs = (grad, weights, keys, queries, weight, places)
    return difference_kernels.gradients(*inputs, mixed=mixed, products=products)


@attended_gradients.register_fake
def _(
    grad: Tensor,
    weights: Tensor,
    keys: Tensor,
    queries: Tensor,
    weight: Tensor,
    places: Tensor,
    mixed: bool,
    products: str,
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    return tuple(x.new_empty(x.shape) for x in (weights, keys, queries, weight))  # type: ignore[return-value]


class _OnTheChip(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any,
        attention: Tensor,
        keys: Tensor,
        queries: Tensor,
        weight: Tensor,
        bias: Tensor,
        places: Tensor,
    ) -> Tensor:
        ctx.how = torch.is_autocast_enabled("cuda"), _products()
        ctx.autocast = _same_autocast(keys)
        by_key = attention.transpose(1, 2)
        nodes, lengths = attended_nodes(by_key, keys, queries, weight, bias, places, *ctx.how)
        ctx.save_for_backward(by_key, keys, queries, weight, places, lengths)
        return nodes

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        by_key, keys, queries, weight, places, lengths = ctx.saved_tensors
        weights = by_key / (lengths + EPSILON)[:, None]
        along, of_keys, *others = attended_gradients(grad, weights, keys, queries, weight, places, *ctx.how)
        with ctx.autocast:
            grad_attention, grad_keys = _without_radial(
                along.transpose(1, 2), of_keys, weights.transpose(1, 2), keys, lengths[..., None]
            )
        return grad_attention, grad_keys, *others, grad.sum(dim=(0, 1), dtype=weight.dtype), None


def _products() -> str:
    """Triton's name of the precision of products in float32: three in TF32 for one, or one."""
    return "tf32" if torch.get_float32_matmul_precision() == "high" else "tf32x3"


def _fit_on_the_chip(attention: Tensor, keys: Tensor, queries: Tensor, weight: Tensor) -> bool:
    n_out, dim = weight.shape
    return (
        kernels_run(keys.device)
        and all(x.dtype == torch.float32 for x in (attention, keys, queries, weight))
        and keys.shape[1] <= MOST_KEYS
        and n_out in POWERS
        and dim % WHOLE_COLUMNS == 0
    )


MOST_KEYS, POWERS, WHOLE_COLUMNS = 64, {16, 32, 64, 128, 256}, 64
"""Sizes that the kernels hold on the chip: keys, nodes' dimensions, and the divisor of ``dim``."""


@torch.compiler.assume_constant_result  # type: ignore[no-untyped-call]
@cache
def kernels_run(device: torch.device) -> bool:
    """Whether the device runs the kernels; says once why a GPU does not."""
    if (
        device.type != "cuda"
        or find_spec("triton") is None
        or torch.cuda.get_device_capability(device) < (8, 0)
    ):
        return False
    small = [
        torch.ones(shape, device=device) for shape in ((1, 16, 64), (1, 16, 64), (64, 64), (16, 64), (16,))
    ]
    places = torch.arange(64, device=device, dtype=torch.int32)
    try:
        attended_nodes(*small, places, False, "tf32")
    except (
        Exception
    ) as error:  # no compiler, an old driver: whatever Triton raises, torch's own kernels remain
        why = str(error).strip().partition("\n")[0] or type(error).__name__
        warnings.warn(
            f"torch's own kernels compare regions and words, because Triton's do not run here: {why}",
            stacklevel=2,
        )
        return False
    return True


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
