"""What a training step asks of a GPU, counted without one: operations, bytes moved and memory of each backbone.

    pytest tests/benchmarks/bench_dispatch.py -m benchmark -s

Every tensor is on ``meta``, which has shapes and no values, and takes the path of a GPU with 80 GiB. The step is the
forward and backward pass of the mean triplet with the pairs of a recipe's batch, in float32, dropout included. An
operation reads its arguments and writes its results; views and fresh memory are no operations. cuDNN runs a GRU as one
operation forward and one backward, so it is counted as that.

What a GPU keeps in its caches, and what a kernel does inside, is not seen: seconds need a card.

Compiled steps are counted as Inductor plans them for a CPU: after its fusion, one kernel is one operation, products are
kernels of their own, and GRUs are loops over captions that are padded to 24 words. For a GPU, Inductor plans otherwise.
"""

import weakref
from collections import Counter
from contextlib import contextmanager
from types import SimpleNamespace
from typing import NamedTuple
from unittest.mock import patch

import pytest
import torch
from benchmarks.inputs import random_batch
from benchmarks.published_loop import Loop
from support.stand_in_device import DEVICE, tensors
from torch import nn
from torch._inductor import config as inductor
from torch._inductor import memory
from torch._inductor.graph import GraphLowering
from torch._inductor.scheduler import NopKernelSchedulerNode
from torch._subclasses import FakeTensorMode
from torch.nn.utils.rnn import PackedSequence
from torch.utils._python_dispatch import TorchDispatchMode

from baselines.backbones import build_backbone
from baselines.kit import batches
from baselines.kit.batches import SHARE_OF_BLOCK
from baselines.kit.losses import mean_triplet
from baselines.training.gpu_check import published

pytestmark = [pytest.mark.benchmark, pytest.mark.timeout(3600)]

CARD = 80 * 2**30
SMALL_CARD = 4 * 2**30


class Limit(NamedTuple):
    """The most that a step may take."""

    operations: int
    gigabytes: float
    peak: float


LIMITS = {
    "sgr": Limit(400, 72, 4.5),
    "saf": Limit(400, 43, 3.7),
    "scan": Limit(310, 5, 0.4),
    "vse_infinity": Limit(180, 1.5, 0.3),
    "vsrn": Limit(1280, 18, 1.9),
    "imram": Limit(1760, 112, 6.7),
}
COMPILED_LIMITS = {"sgr": Limit(510, 71, 7.1), "saf": Limit(455, 42, 7.1)}
COMPARING = ["sgr", "saf", "scan", "imram"]
"""Backbones that compare all items of all pairs, which their papers' code does caption by caption."""
NO_KERNEL = {
    "_unsafe_view",
    "detach",
    "empty",
    "empty_like",
    "empty_strided",
    "new_empty",
    "new_empty_strided",
}
"""Operations that are not declared as views and still neither read nor write."""


class Plan(NamedTuple):
    """What Inductor plans for the forward and backward graph of a step.

    Attributes:
        kernels: number of kernels, after fusion.
        moved: bytes that they read and write.
        peak: estimate of the largest memory of a graph in bytes, what it reads included.
    """

    kernels: int
    moved: int
    peak: int


def planned(name):
    """Compile a step of a backbone at published size, up to the kernels' code, without values."""
    size, graphs = published()[name], []

    def plan(graph):
        graph._update_scheduler()
        nodes, inputs = graph.scheduler.nodes, set(graph.graph_inputs)
        peak, _ = memory.estimate_peak_memory(
            nodes, memory.get_freeable_input_buf(nodes, inputs), set(graph.get_output_names())
        )
        kernels = sum(not isinstance(node, NopKernelSchedulerNode) for node in nodes)
        graphs.append(Plan(kernels, graph.count_bytes()[0], peak))
        return SimpleNamespace(call=lambda inputs: graph.orig_gm(*inputs))

    with (
        patch.object(batches, "CPU_BYTES", CARD // SHARE_OF_BLOCK),
        patch.object(GraphLowering, "compile_to_module", plan),
        inductor.patch(force_disable_caches=True),
        FakeTensorMode(allow_non_fake_inputs=True),
    ):
        network = build_backbone(
            name, size.config, feature_dim=size.dim, n_regions=size.regions, vocabulary_size=size.words
        ).train()
        network.compiled = size.pairs
        output = network(random_batch(size.pairs, size.regions, size.dim, size.words))
        loss = mean_triplet(output.similarities, 0.2).sum() + output.auxiliary.mean()
        loss.backward()
    assert len(graphs) == 2
    kernels, moved, peaks = zip(*graphs, strict=True)
    return Plan(sum(kernels), sum(moved), max(peaks))


class Counts(TorchDispatchMode):
    """Counts the operations on the device while it is entered.

    Attributes:
        operations: number of operations by name.
        moved: bytes that they read and write.
        live: bytes of the tensors made here that are still held.
        peak: the largest ``live`` so far.
    """

    def __init__(self):
        super().__init__()
        self.operations = Counter()
        self.moved = self.live = self.peak = 0
        self._held = set()

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        found = func(*args, **(kwargs or {}))
        results = [x for x in tensors(found) if x.device == DEVICE]
        name = func.overloadpacket.__name__
        if results and not func.is_view and name not in NO_KERNEL:
            self.operations[name] += 1
            self.moved += sum(x.nbytes for x in [*tensors((args, kwargs)), *results])
        for result in results:
            self._hold(result.untyped_storage())
        return found

    def _hold(self, storage):
        key, size = storage._cdata, storage.nbytes()
        if key in self._held:
            return
        self._held.add(key)
        self.live += size
        self.peak = max(self.peak, self.live)
        weakref.finalize(storage, self._release, key, size)

    def _release(self, key, size):
        self._held.discard(key)
        self.live -= size


LIBRARY = torch.library.Library("benchmarks", "DEF")
LIBRARY.define("gru(Tensor items, Tensor[] weights, int width) -> Tensor")
LIBRARY.define("gru_backward(Tensor grad, Tensor states, Tensor[] inputs) -> Tensor[]")
LIBRARY.impl("gru", lambda items, weights, width: items.new_empty(*items.shape[:-1], width), "Meta")
LIBRARY.impl("gru_backward", lambda grad, states, inputs: [torch.empty_like(x) for x in inputs], "Meta")


class OneGRU(torch.autograd.Function):
    """A GRU that is one operation in each pass."""

    @staticmethod
    def forward(ctx, items, width, *weights):
        states = torch.ops.benchmarks.gru(items, list(weights), width)
        ctx.save_for_backward(states, items, *weights)
        return states

    @staticmethod
    def backward(ctx, *grads):
        states, *inputs = ctx.saved_tensors
        d_items, *d_weights = torch.ops.benchmarks.gru_backward(grads[0], states, inputs)
        return d_items, None, *d_weights


def run_gru(gru, items):
    """Stand for ``nn.GRU.forward``; nothing reads the last states."""
    of_one = OneGRU.apply
    width = gru.hidden_size * (1 + gru.bidirectional)
    if isinstance(items, PackedSequence):
        return items._replace(data=of_one(items.data, width, *gru.parameters())), None
    return of_one(items, width, *gru.parameters()), None


@contextmanager
def card(size):
    """``meta`` is a GPU with this memory, and without autocast, which ``meta`` does not have."""
    autocast = torch.autocast
    with (
        patch.object(batches, "CPU_BYTES", size // SHARE_OF_BLOCK),
        patch.object(nn.GRU, "forward", run_gru),
        patch.object(torch, "autocast", lambda kind, *rest, **named: autocast("cpu", enabled=False)),
        patch.object(torch, "is_autocast_enabled", lambda kind: False),
        patch.object(torch, "get_autocast_dtype", lambda kind: torch.bfloat16),
    ):
        yield


def counted(name, size_of_card=CARD, *, loop=False):
    """Count a step of a backbone at published size, or of its paper's loop."""
    size = published()[name]
    with card(size_of_card):
        with DEVICE:
            network = build_backbone(
                name,
                size.config,
                feature_dim=size.dim,
                n_regions=size.regions,
                vocabulary_size=size.words,
            )
        batch = random_batch(size.pairs, size.regions, size.dim, size.words).to(DEVICE)
        run = (Loop(network) if loop else network).train()
        with Counts() as counts:
            output = run(batch)
            loss = mean_triplet(output.similarities, 0.2).sum() + output.auxiliary.mean()
            loss.backward()
    return counts


def row(name, what, counts):
    """A row of the table of docs/scale.md."""
    moved, peak = counts.moved / 1e9, counts.peak / 1e9
    return f"| {name} | {what} | {counts.operations.total():,} | {moved:.1f} | {peak:.1f} |"


@pytest.mark.parametrize("name", LIMITS)
def test_a_step_stays_below_its_limits(name):
    found, limit = counted(name), LIMITS[name]
    print("\n" + row(name, "80 GiB", found), end="")
    assert found.operations.total() < limit.operations
    assert found.moved < 1e9 * limit.gigabytes
    assert found.peak < 1e9 * limit.peak


@pytest.mark.parametrize("name", COMPARING)
def test_a_small_card_recomputes_blocks_and_the_loop_takes_more_operations(name):
    whole, small, loop = counted(name), counted(name, SMALL_CARD), counted(name, loop=True)
    print("\n" + row(name, "4 GiB", small) + "\n" + row(name, "the paper's loop", loop), end="")
    assert small.peak <= whole.peak < loop.peak
    assert small.peak < SMALL_CARD
    assert small.operations.total() < loop.operations.total()


@pytest.mark.parametrize("name", COMPILED_LIMITS)
def test_a_compiled_step_stays_below_its_limits(name):
    found, limit = planned(name), COMPILED_LIMITS[name]
    numbers = f"{found.kernels:,} | {found.moved / 1e9:.1f} | {found.peak / 1e9:.1f}"
    print(f"\n| {name} | compiled | {numbers} |", end="")
    assert found.kernels < limit.operations
    assert found.moved < 1e9 * limit.gigabytes
    assert found.peak < 1e9 * limit.peak
