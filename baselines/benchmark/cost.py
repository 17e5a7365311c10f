"""What a workload costs: arithmetic, bytes moved and launches, counted operation by operation; nothing is computed.

The code that is counted is the code that runs. For a GPU, network and batch lie on torch's ``meta`` device, where
operations find shapes alone; for a CPU, the weights are fake tensors, and code that asks where it runs is told a CPU.

How an operation counts:
  * Arithmetic: matrix products by torch's formulas, a multiply-add as two. Everything else is counted by its bytes.
  * Bytes: what it reads and what it writes, whole tensors, even where a cache still holds them. Of a table that is
    looked up in, what is looked up.
  * Launches: one for each operation that writes. Views are free, and so is memory that is only set aside.
  * A GRU off the CPU is cuDNN's: one launch forwards and one backwards, which read the weights once; its gates are
    written forwards and read backwards.
"""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, field
from typing import Any, NamedTuple
from unittest.mock import patch

import numpy as np
import torch
from torch import Tensor, nn
from torch._subclasses.fake_tensor import FakeTensor, FakeTensorMode
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils.flop_counter import flop_registry, shape_wrapper

from baselines.backbones import BACKBONES
from baselines.benchmark.sizes import Sizes
from baselines.benchmark.stopwatch import Stopwatch, Variant
from baselines.benchmark.workloads import make_batch, make_network, step_of
from baselines.engine.similarities import CAPTION_BLOCK, IMAGE_BLOCK
from baselines.kit.backbone import Backbone, Encoded
from baselines.kit.on_host import uploaded

CPU, META = torch.device("cpu"), torch.device("meta")
ROWS = 384
"""Images whose similarities are counted; blocks of images repeat, so those of more images cost in proportion."""


def _of_product(_: torch.Size, left: torch.Size, right: torch.Size, **__: Any) -> int:
    return 2 * left.numel() * right[-1]


IN_PLACE = {torch.ops.aten.baddbmm_: _of_product}
"""Products that torch's own counter does not know; a CPU's GRU adds such."""
FREE = ("empty", "new_empty", "_unsafe_view")
FORMULAS = {**flop_registry, **{x: shape_wrapper(formula) for x, formula in IN_PLACE.items()}}  # type: ignore[no-untyped-call]
LOOKED_UP = {"embedding", "index", "index_select", "gather"}
SAVED_GATES = 4
"""Vectors of the state's size that a GRU keeps of every item for its backward pass."""


@dataclass(frozen=True)
class Cost:
    """A multiset of operations.

    Attributes:
        operations: FLOPs and bytes of an operation, to how often it occurs; not always a whole number, where a cost
            is a part of another one.
    """

    operations: Mapping[tuple[int, int], float] = field(default_factory=dict)

    @property
    def flops(self) -> float:
        """Of matrix products."""
        return sum(times * flops for (flops, _), times in self.operations.items())

    @property
    def bytes(self) -> float:
        """Read and written."""
        return sum(times * size for (_, size), times in self.operations.items())

    @property
    def launches(self) -> float:
        """Operations that write."""
        return sum(self.operations.values())

    def seconds(self, flops_per_second: float, bytes_per_second: float) -> float:
        """At least so long, one operation after the other: each computes or moves, whatever takes longer."""
        return sum(
            times * max(flops / flops_per_second, size / bytes_per_second)
            for (flops, size), times in self.operations.items()
        )

    def __add__(self, other: "Cost") -> "Cost":
        return Cost(Counter(self.operations) + Counter(other.operations))

    def __mul__(self, times: float) -> "Cost":
        return Cost({operation: times * n for operation, n in self.operations.items()})


class _Counted(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Counts every operation while it is entered."""

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.operations: Counter[tuple[int, int]] = Counter()

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        found = func(*args, **kwargs)
        name = func._schema.name.removeprefix("aten::")
        if func.is_view or name.startswith(FREE):
            return found
        given = (*args, *(x for key, x in kwargs.items() if key != "out"))
        read, written = list(_tensors(given)), list(_tensors((found,)))
        if name in LOOKED_UP:
            read = [*written, *read[1:]]
        if written:
            formula = FORMULAS.get(func.overloadpacket)
            flops = formula(*args, **kwargs, out_val=found) if formula else 0
            self.operations[flops, sum(map(_bytes, (*read, *written)))] += 1
        return found


def _tensors(values: Iterable[Any]) -> Iterator[Tensor]:
    for x in values:
        if isinstance(x, Tensor):
            yield x
        elif isinstance(x, list | tuple):
            yield from _tensors(x)


def _bytes(x: Tensor) -> int:
    """Without what is read again and again because it was expanded."""
    size = x.element_size()
    for n, stride in zip(x.shape, x.stride(), strict=True):
        size *= n if stride or not n else 1
    return size


class _Answered(TorchFunctionMode):
    """Answers in place of what needs values: NumPy, asked about a fake tensor, and cuDNN's GRU."""

    def __init__(self, operations: Counter[tuple[int, int]]) -> None:
        super().__init__()
        self._operations = operations

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if func is Tensor.numpy and isinstance(args[0], FakeTensor):
            return np.zeros(args[0].shape, str(args[0].dtype).removeprefix("torch."))
        if getattr(func, "__name__", "") == "gru" and args[0].device == META:
            weights = next(x for x in args if isinstance(x, list))
            states: Tensor = _StatedGRU.apply(self._operations, args[0], *weights)  # type: ignore[no-untyped-call]
            directions, hidden = len(weights) // 4, weights[1].shape[1]
            return states, states.new_empty(directions, 1, hidden)
        return func(*args, **(kwargs or {}))


class _StatedGRU(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, operations: Counter[tuple[int, int]], items: Tensor, *weights: Tensor) -> Tensor:
        hidden, directions = weights[1].shape[1], len(weights) // 4
        states = items.new_empty(*items.shape[:-1], directions * hidden)
        gates = items.new_empty(*states.shape, SAVED_GATES)
        n_items = states.numel() // (directions * hidden)
        flops = n_items * sum(2 * x.numel() for x in weights if x.dim() == 2)
        parts = (items, *weights, states, *([gates] if any(ctx.needs_input_grad) else []))
        operations[flops, sum(map(_bytes, parts))] += 1
        ctx.operations, ctx.backward = operations, (2 * flops, sum(map(_bytes, (*parts, *parts[:-1]))))
        ctx.save_for_backward(items, *weights)
        return states

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        ctx.operations[ctx.backward] += 1
        return None, *map(torch.empty_like, ctx.saved_tensors)


@contextmanager
def _counting() -> Iterator[Counter[tuple[int, int]]]:
    float32 = patch.multiple(  # autocast does not know the device meta
        torch,
        autocast=lambda *_, **__: nullcontext(),
        is_autocast_enabled=lambda *_: False,
        get_autocast_dtype=lambda *_: torch.float32,
    )
    with float32, _Counted() as counted, _Answered(counted.operations):
        yield counted.operations


def counted(variant: Variant) -> Cost:
    """The cost of a pass of a workload whose network is hollow.

    Args:
        variant: as it would be timed.
    """
    with _counting() as operations:
        variant(Stopwatch(CPU))
    return Cost(dict(operations))


def hollow(name: str, sizes: Sizes, device: torch.device) -> Backbone:
    """A network whose weights have a shape and no values.

    Args:
        name: of the network.
        sizes: of the network.
        device: ``meta`` for the path of a GPU, or the CPU.
    """
    with META:
        network = make_network(name, sizes, META)
    if device == CPU:
        with FakeTensorMode(allow_non_fake_inputs=True):
            for module in network.modules():
                for key, weight in module.named_parameters(recurse=False):
                    module._parameters[key] = nn.Parameter(torch.empty_like(weight, device=CPU))
                for key, state in module.named_buffers(recurse=False):
                    module._buffers[key] = torch.empty_like(state, device=CPU)
    return network


def step_cost(name: str, sizes: Sizes) -> Cost:
    """Of a training step on a GPU, without the optimiser's.

    Args:
        name: of the network.
        sizes: of network and batch.
    """
    return counted(step_of(hollow(name, sizes, META), make_batch(sizes, sizes.batch, META)))


class ScoringCost(NamedTuple):
    """Of scoring on a GPU.

    Attributes:
        encoding: every image and every caption, once.
        comparing: every image with every caption.
    """

    encoding: Cost
    comparing: Cost


@torch.no_grad()
def scoring_cost(name: str, sizes: Sizes, n_images: int) -> ScoringCost:
    """Of the similarities of images and their captions.

    One block of images, one of captions and their comparison are counted; those of all are so many times more.

    Args:
        name: of the network.
        sizes: of the network.
        n_images: scored, each with ``sizes.captions_per_image`` captions.
    """
    network, n_captions = hollow(name, sizes, META).eval(), n_images * sizes.captions_per_image
    images, captions = (make_batch(sizes, block, META) for block in (IMAGE_BLOCK, CAPTION_BLOCK))
    with _counting() as of_images:
        some = network.encode_images(images.image_features, images.image_lengths)
    with _counting() as of_captions:
        block = network.encode_captions(captions.caption_tokens, captions.caption_lengths)
    rows = n_images if network.pools else min(n_images, ROWS)
    with _counting() as of_pairs:
        network.similarities(_of_length(some, rows), block)
    blocks = n_captions / CAPTION_BLOCK
    return ScoringCost(
        Cost(dict(of_images)) * (n_images / IMAGE_BLOCK) + Cost(dict(of_captions)) * blocks,
        Cost(dict(of_pairs)) * (n_images / rows * blocks),
    )


def _of_length(encoded: Encoded, n: int) -> Encoded:
    vectors, pooled = (
        None if x is None else x.new_empty(n, *x.shape[1:]) for x in (encoded.vectors, encoded.pooled)
    )
    assert vectors is not None
    lengths = torch.full((n,), vectors.shape[1] if vectors.dim() > 2 else 1)
    return Encoded(vectors, uploaded(lengths, META), pooled)


def weights_of(name: str, sizes: Sizes) -> int:
    """Trained numbers of a network."""
    return sum(x.numel() for x in hollow(name, sizes, META).parameters())


def published(name: str, sizes: Sizes) -> Sizes:
    """Sizes that a network was published with, where they differ from the others'."""
    size = BACKBONES[name].Config.model_fields["embed_size"].default
    return sizes.of(name).model_copy(update={"embed_size": size})
