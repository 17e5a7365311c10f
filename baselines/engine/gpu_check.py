"""What `ncl-bench doctor --gpu` prints: ten steps of every backbone, against the CPU's losses and the counted limit.

A network has its published size, but no dropout, whose random numbers differ between devices. Its pairs are random: the
losses are compared on a few, which a CPU trains too, and the steps are timed on as many as recipes put into a batch.
"""

import os
import platform
import time
from collections.abc import Iterator, Mapping
from importlib.util import find_spec
from typing import Any, NamedTuple, get_args

import torch
from torch import nn

from baselines.backbones import BACKBONES, build_backbone
from baselines.engine.cost import CARDS, META, WORDS, Card, Cost, hollow_batch, step_cost
from baselines.engine.step import OptimiserStep
from baselines.kit.backbone import Backbone
from baselines.kit.batches import Batch
from baselines.kit.distributed import set_products
from baselines.kit.losses import mean_triplet
from ncl_bench import __version__
from ncl_bench.errors import NclBenchError, first_line
from ncl_bench.precision import Precision

CPU = torch.device("cpu")
STEPS, UNTIMED = 10, 3
"""Steps that are compared and timed, and steps before the timed ones, which choose kernels and reserve memory."""
COMPARED = 8
"""Pairs of a batch whose losses are compared."""
LEARNING_RATE, GRADIENT_CLIP, MARGIN = 2e-4, 2.0, 0.2
Reference = tuple[list[float], Cost]
HEAD = "| backbone | precision | loss beside the CPU's | pairs | ms per step | counted limit, ms | ratio |"


class Size(NamedTuple):
    """How a backbone is built, and the pairs of a timed batch; the defaults are those of Flickr30K's recipes."""

    config: Any
    pairs: int = 128
    regions: int = 36
    feature_dim: int = 2048
    words: int = WORDS

    def network(self, name: str) -> Backbone:
        """Build a network; its weights come from torch's generator."""
        return build_backbone(
            name,
            self.config,
            feature_dim=self.feature_dim,
            n_regions=self.regions,
            vocabulary_size=self.words,
        )

    def batch(self, pairs: int) -> Batch:
        """Draw pairs with captions of 8 to 20 words from torch's generator."""
        lengths = 8 + torch.arange(pairs) % 13
        tokens = torch.randint(4, self.words, (pairs, 20))
        return Batch(
            image_features=torch.rand(pairs, self.regions, self.feature_dim),
            image_lengths=torch.full((pairs,), self.regions),
            caption_tokens=tokens.masked_fill(torch.arange(20) >= lengths[:, None], 0),
            caption_lengths=lengths,
            pair_ids=torch.arange(pairs),
        )


def published() -> dict[str, Size]:
    """Return the published size of every backbone; CLIP only if open_clip is installed."""
    sizes = {name: Size(BACKBONES[name].Config()) for name in BACKBONES if name != "clip"}
    sizes["imram"] = sizes["imram"]._replace(pairs=64)
    if find_spec("open_clip") is not None:
        patches, numbers, words = (224 // 32) ** 2, 3 * 32**2, 49_408  # of ViT-B/32
        sizes["clip"] = Size(BACKBONES["clip"].Config(), 128, patches, numbers, words)
    return sizes


def known_card(device: str) -> Card | None:
    """Return the published peaks of a device by its name, such as ``NVIDIA H100 80GB HBM3``; None for others."""
    return next((card for name, card in CARDS.items() if name in device), None)


def gpu_report() -> Iterator[str]:
    """Check the first CUDA device: Markdown, line by line as the numbers come.

    Raises:
        NclBenchError: there is no CUDA device, or a backbone failed.
    """
    if not torch.cuda.is_available():
        raise NclBenchError(
            "doctor --gpu needs a CUDA device, and torch finds none; run it on a machine with a GPU and a torch "
            "that is built for CUDA"
        )
    name = torch.cuda.get_device_name()
    yield f"{name}, torch {torch.__version__}, CUDA {torch.version.cuda}, ncl_bench {__version__}"
    yield f"compared with a CPU: {platform.machine()}, {os.cpu_count()} threads"
    yield ""
    yield from table(torch.device("cuda"), published(), known_card(name))


def table(device: torch.device, sizes: Mapping[str, Size], card: Card | None) -> Iterator[str]:
    """Train every backbone in every arithmetic; a backbone that fails says why and the others follow.

    The third column is the largest difference of a loss from the CPU's in float32, as a share of the CPU's largest
    loss. The last is the time over the counted limit.

    Args:
        device: the device to check.
        sizes: backbone to its size.
        card: published peaks of the device; None leaves the limits out.

    Raises:
        NclBenchError: after the table, if a backbone failed.
    """
    yield HEAD
    yield "| --- | --- |" + " ---: |" * 5
    failed = 0
    for name, size in sizes.items():
        on_cpu: Reference | None = None
        for precision in get_args(Precision):
            try:
                on_cpu = on_cpu or reference(name, size)
                numbers = compared(name, size, precision, device, card, on_cpu)
            except (RuntimeError, NclBenchError) as error:  # no memory, no such kernel, not finite
                failed += 1
                numbers = f"failed: {first_line(error)} | {size.pairs} | | |"
            yield f"| {name} | {precision} | {numbers} |"
    if failed:
        raise NclBenchError(f"{failed} of the rows above failed; send the table with the bug report")


def compared(
    name: str, size: Size, precision: Precision, device: torch.device, card: Card | None, on_cpu: Reference
) -> str:
    """Train on the device and return the numbers of a row, see :func:`table`."""
    expected, cost = on_cpu
    found, _ = trained(name, size, precision, device, COMPARED, STEPS)
    apart = max(abs(a - b) for a, b in zip(found, expected, strict=True)) / max(map(abs, expected))
    _, seconds = trained(name, size, precision, device, size.pairs, UNTIMED + STEPS)
    numbers = f"{apart:.1e} | {size.pairs} | {1e3 * seconds:.1f}"
    if card is None:
        return f"{numbers} | |"
    limit = card.seconds(cost, precision)
    return f"{numbers} | {1e3 * limit:.2f} | {seconds / limit:.1f}"


def reference(name: str, size: Size) -> Reference:
    """Return the losses of a CPU in float32, and the cost of a timed step."""
    with META:
        hollow = size.network(name)
    cost = step_cost(hollow, hollow_batch(size.pairs, 20, size.regions, size.feature_dim))
    return trained(name, size, "32-true", CPU, COMPARED, STEPS)[0], cost


def trained(
    name: str, size: Size, precision: Precision, device: torch.device, pairs: int, steps: int
) -> tuple[list[float], float]:
    """Train a network on one batch, from the same weights and pairs on every device.

    Args:
        name: of the backbone.
        size: of the network.
        precision: arithmetic of the network.
        device: where to train.
        pairs: of the batch.
        steps: more than ``UNTIMED``.

    Returns:
        The loss of every step, and the mean seconds of the steps after the first ``UNTIMED``.

    Raises:
        Diverged: a loss is not finite.
        RuntimeError: the device has too little memory, or cannot compute an operation.
    """
    set_products(precision)
    try:
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(0)
            network, batch = size.network(name).to(device).train(), size.batch(pairs).to(device)
        network.mixed = precision == "bf16-mixed"
        for module in network.modules():
            if isinstance(module, nn.Dropout):
                module.eval()
        fused = device.type == "cuda" or None  # as methods do
        step = OptimiserStep(GRADIENT_CLIP)
        step.optimizers[network] = torch.optim.Adam(network.parameters(), lr=LEARNING_RATE, fused=fused)
        losses, begun = [], 0.0
        for number in range(steps):
            if number == UNTIMED:
                begun = _now(device)
            images, captions = network.encode(batch)
            loss = mean_triplet(network.compare(images, captions), MARGIN).sum()
            loss = loss + network.auxiliary_losses(images, batch).mean()
            step(network, loss, batch)
            losses.append(loss.detach())
        seconds = (_now(device) - begun) / (steps - UNTIMED)
        step.check()
    finally:
        set_products("32-true")
    return torch.stack(losses).tolist(), seconds


def _now(device: torch.device) -> float:
    """Return the time once the device has nothing left to do."""
    if device.type == "cuda":
        torch.cuda.synchronize(device)
    return time.perf_counter()
