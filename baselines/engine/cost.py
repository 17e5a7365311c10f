"""What a step and scoring cost: arithmetic, bytes moved and launches, counted operation by operation.

The code that is counted is the code that runs, on torch's ``meta`` device, where tensors have shapes and no values.

* FLOP: of matrix products, a multiply-add as two, by ``torch.utils.flop_counter``.
* Bytes: what an operation reads and what it writes, in float32, as if no cache kept anything in between.
* Launches: operations that write; views are free.
* A GRU is one kernel per direction, as cuDNN's: it reads items and weights once, and writes its states once.

A card's limit is the arithmetic at its peak or the bytes at its bandwidth, whichever takes longer. Real steps take
longer; the optimiser and the way of the features to the card come on top.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from typing import Any, NamedTuple, cast
from unittest.mock import patch

import torch
from torch import Tensor
from torch.nn.utils.rnn import PackedSequence
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves
from torch.utils.flop_counter import FlopCounterMode

from baselines.backbones import BACKBONES, build_backbone
from baselines.kit.backbone import Backbone
from baselines.kit.batches import Batch
from baselines.kit.losses import mean_triplet

META = torch.device("meta")
WORDS = 8481  # rows of the word embedding, as Flickr30K's
LOOKED_UP = {"aten::embedding", "aten::index", "aten::index_select", "aten::gather"}


class Cost(NamedTuple):
    """FLOPs of matrix products, bytes read and written in float32, and operations that write."""

    flops: float
    bytes: float
    launches: float


class Card(NamedTuple):
    """A GPU's dense peaks as its maker publishes them: FLOP/s, and bytes/s of its memory."""

    source: str
    fp32: float
    tf32: float
    bf16: float
    bandwidth: float

    def seconds(self, cost: Cost, precision: str = "32-true") -> float:
        """Return the least time; ``precision`` is ``32-true``, ``tf32`` or ``bf16-mixed``."""
        peak = {"32-true": self.fp32, "tf32": self.tf32, "bf16-mixed": self.bf16}[precision]
        size = cost.bytes / 2 if precision == "bf16-mixed" else cost.bytes
        return max(cost.flops / peak, size / self.bandwidth)


CARDS = {
    "H200": Card("NVIDIA H200 datasheet, SXM, without sparsity", 67e12, 494.5e12, 989.5e12, 4.8e12),
    "H100": Card("NVIDIA H100 datasheet, SXM, without sparsity", 67e12, 494.5e12, 989.5e12, 3.35e12),
    "A100": Card("NVIDIA A100 datasheet, SXM, 80 GB", 19.5e12, 156e12, 312e12, 2.039e12),
    "RTX 4090": Card("NVIDIA Ada architecture whitepaper, 24 GB", 82.6e12, 82.6e12, 165.2e12, 1.008e12),
}


class _Moved(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Counts bytes and launches while it is entered."""

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.bytes = self.launches = 0
        self.open = True  # closed while a fused kernel computes

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        found = func(*args, **(kwargs or {}))
        name = func._schema.name
        written = [x for x in tree_leaves(found) if isinstance(x, Tensor) and x.device == META]
        if (
            self.open
            and written
            and not func.is_view
            and "empty" not in name
            and name != "aten::_unsafe_view"
        ):
            read = [x for x in tree_leaves((args, kwargs)) if isinstance(x, Tensor)]
            if name in LOOKED_UP:
                read = [*written, *read[1:]]  # of a table, what is looked up
            self.bytes += sum(map(_bytes, (*read, *written)))
            self.launches += 1
        return found

    @contextmanager
    def kernels(self, n: int, *touched: Tensor) -> Iterator[None]:
        """Count what is computed inside as ``n`` kernels that read or write each of these tensors once."""
        self.bytes += sum(map(_bytes, touched))
        self.launches += n
        self.open = False
        yield
        self.open = True


class _FusedGRU(torch.autograd.Function):
    """The products and the traffic of a GRU of one layer over packed items, without its values."""

    @staticmethod
    def forward(ctx: Any, moved: _Moved, items: Tensor, *weights: Tensor) -> Tensor:
        directions, hidden = len(weights) // 4, weights[1].shape[1]
        states = items.new_empty(len(items), directions * hidden)
        ctx.moved = moved
        ctx.save_for_backward(items, states, *weights)
        with moved.kernels(directions, items, *weights, states):
            for k in range(directions):
                w, u = weights[4 * k : 4 * k + 2]
                _ = items @ w.T, states[:, :hidden] @ u.T
        return states

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        items, states, *weights = ctx.saved_tensors
        directions, hidden = len(weights) // 4, weights[1].shape[1]
        of_items, of_weights = torch.empty_like(items), [torch.empty_like(x) for x in weights]
        written = [of_items, *of_weights] if ctx.needs_input_grad[1] else of_weights
        with ctx.moved.kernels(directions, grad, states, items, *weights, *written):
            gates = items.new_empty(len(items), 3 * hidden)
            for k in range(directions):
                w, u = weights[4 * k : 4 * k + 2]
                _ = gates.T @ items, gates.T @ states[:, :hidden], gates @ u
                _ = gates @ w if ctx.needs_input_grad[1] else None
        return None, of_items if ctx.needs_input_grad[1] else None, *of_weights


def _fused(moved: _Moved) -> Callable[..., Any]:
    """``torch.nn.GRU.forward`` of one layer that counts in ``moved``."""

    run = cast("Callable[..., Tensor]", _FusedGRU.apply)

    def forward(gru: torch.nn.GRU, sequences: Any) -> tuple[Any, None]:
        if isinstance(sequences, PackedSequence):
            return sequences._replace(data=run(moved, sequences.data, *gru._flat_weights)), None
        states = run(moved, sequences.flatten(0, 1), *gru._flat_weights)
        return states.view(*sequences.shape[:2], -1), None

    return forward


def _bytes(x: Tensor) -> int:
    """Without what is read again because it was expanded."""
    size = x.element_size()
    for n, stride in zip(x.shape, x.stride(), strict=True):
        size *= n if stride or not n else 1
    return size


def count(run: Callable[[], object]) -> Cost:
    """Return the cost of a call whose tensors lie on ``meta``."""
    float32 = patch.multiple(  # autocast does not know the device meta
        torch,
        autocast=lambda *_, **__: nullcontext(),
        is_autocast_enabled=lambda *_: False,
        get_autocast_dtype=lambda *_: torch.float32,
    )
    moved = _Moved()
    fused = patch.object(torch.nn.GRU, "forward", _fused(moved))
    with float32, fused, FlopCounterMode(display=False) as flops, moved:
        run()
    return Cost(flops.get_total_flops(), moved.bytes, moved.launches)


def step_cost(network: Backbone, pairs: Batch) -> Cost:
    """Return the cost of a step with the mean triplet loss, forward and backward; both arguments are hollow."""
    network.train()

    def step() -> None:
        images, captions = network.encode(pairs)
        loss = mean_triplet(network.compare(images, captions), 0.2).sum()
        (loss + network.auxiliary_losses(images, pairs).mean()).backward()  # type: ignore[no-untyped-call]

    return count(step)


@torch.no_grad()
def scoring_cost(network: Backbone, block: Batch, images: int, captions: int) -> Cost:
    """Return the cost of encoding images and captions once and of comparing all; a block is counted, all follow."""
    network.eval()
    seen: list[Any] = []
    of_images = count(lambda: seen.append(network.encode_images(block.image_features, block.image_lengths)))
    of_captions = count(
        lambda: seen.append(network.encode_captions(block.caption_tokens, block.caption_lengths))
    )
    of_pairs = count(lambda: network.similarities(*seen))
    rows, columns = images / len(block), captions / len(block)
    parts = zip(of_images, of_captions, of_pairs, strict=True)
    return Cost(*(rows * i + columns * c + rows * columns * p for i, c, p in parts))


def hollow(
    name: str, regions: int = 36, feature_dim: int = 2048, words: int = WORDS, **options: Any
) -> Backbone:
    """Return a backbone without values in its weights; ``options`` are its ``Config``'s, by default as published."""
    config = BACKBONES[name].Config(**options)
    with META:
        return build_backbone(name, config, feature_dim=feature_dim, n_regions=regions, vocabulary_size=words)


def hollow_batch(pairs: int, longest: int = 20, regions: int = 36, feature_dim: int = 2048) -> Batch:
    """Return a batch without values, captions of 8 to ``longest`` words; the host knows the lengths."""
    lengths = 8 + torch.arange(pairs) % max(longest - 7, 1)
    return Batch(
        image_features=torch.empty(pairs, regions, feature_dim, device=META),
        image_lengths=torch.full((pairs,), regions),
        caption_tokens=torch.zeros(pairs, longest, dtype=torch.int64),
        caption_lengths=lengths.clamp(max=longest),
        pair_ids=torch.arange(pairs),
    ).to(META)
