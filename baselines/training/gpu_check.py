"""What `ncl-bench doctor --gpu` prints: a step of every backbone beside the CPU's, and the time that a step takes.

A network has its published size, but no dropout, whose random numbers differ between devices. Its pairs are random.
The loss after the step is compared with the CPU's in float32.
"""

import time
from collections.abc import Iterator, Mapping
from importlib.util import find_spec
from typing import Any, NamedTuple, get_args

import torch
from torch import nn

from baselines.backbones import BACKBONES, build_backbone
from baselines.kit.batches import Batch
from baselines.kit.distributed import set_products
from baselines.kit.losses import mean_triplet
from ncl_bench import __version__
from ncl_bench.errors import NclBenchError, first_line
from ncl_bench.schema import Precision

STEPS, UNTIMED = 10, 3  # the steps before the timed ones choose kernels and reserve memory
COMPARED = 8  # pairs of the step that a CPU does too
HEAD = "| backbone | precision | loss beside the CPU's | pairs | ms per step |\n| --- | --- | ---: | ---: | ---: |"


class Size(NamedTuple):
    """How a backbone is built, and the pairs of a timed batch; by default as in Flickr30K's recipes."""

    config: Any
    pairs: int = 128
    regions: int = 36
    dim: int = 2048
    words: int = 8481


def published() -> dict[str, Size]:
    """Return the published size of every backbone; CLIP only if open_clip is installed."""
    sizes = {name: Size(BACKBONES[name].Config()) for name in BACKBONES if name not in ("clip", "linear")}
    sizes["imram"] = sizes["imram"]._replace(pairs=64)
    if find_spec("open_clip") is not None:  # ViT-B/32
        sizes["clip"] = Size(BACKBONES["clip"].Config(), 128, (224 // 32) ** 2, 3 * 32**2, 49_408)
    return sizes


def gpu_report() -> Iterator[str]:
    """Check the first CUDA device: Markdown, line by line as the numbers come."""
    if not torch.cuda.is_available():
        fix = "run it on a machine with a GPU and a torch that is built for CUDA"
        raise NclBenchError(f"doctor --gpu needs a CUDA device, and torch finds none; {fix}")
    name = torch.cuda.get_device_name()
    yield f"{name}, torch {torch.__version__}, CUDA {torch.version.cuda}, ncl_bench {__version__}\n"
    yield from table(torch.device("cuda"), published())


def table(device: torch.device, sizes: Mapping[str, Size]) -> Iterator[str]:
    """Train every backbone in every precision; a backbone that fails says why, and the others follow."""
    yield HEAD
    for name, size in sizes.items():
        for precision in get_args(Precision):
            try:
                expected, _ = trained(name, size, "32-true", torch.device("cpu"), COMPARED, 2)
                found, _ = trained(name, size, precision, device, COMPARED, 2)
                _, seconds = trained(name, size, precision, device, size.pairs, UNTIMED + STEPS)
                numbers = f"{abs(found / expected - 1):.1e} | {size.pairs} | {1e3 * seconds:.1f}"
            except (RuntimeError, NclBenchError) as error:  # no memory, no such kernel
                numbers = f"failed: {first_line(error)} | {size.pairs} | "
            yield f"| {name} | {precision} | {numbers} |"


def trained(
    name: str, size: Size, precision: str, device: torch.device, pairs: int, steps: int
) -> tuple[float, float]:
    """Train on one batch, from the same weights on every device; return the last loss, and seconds per timed step."""
    set_products(precision)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        facts = {"feature_dim": size.dim, "n_regions": size.regions, "vocabulary_size": size.words}
        network = build_backbone(name, size.config, **facts).to(device).train()
        tokens, lengths = torch.randint(4, size.words, (pairs, 20)), 8 + torch.arange(pairs) % 13
        tokens[torch.arange(20) >= lengths[:, None]] = 0
        images, regions = torch.rand(pairs, size.regions, size.dim), torch.full((pairs,), size.regions)
        batch = Batch(images, regions, tokens, lengths, torch.arange(pairs)).to(device)
    network.mixed = precision == "bf16-mixed"
    for module in network.modules():
        if isinstance(module, nn.Dropout):
            module.eval()
    optimizer = torch.optim.Adam(network.parameters(), lr=2e-4, fused=device.type == "cuda" or None)
    last, begun = 0.0, time.perf_counter()
    for number in range(steps):
        if number == UNTIMED:
            begun = time.perf_counter()
        loss = mean_triplet(network(batch).similarities, 0.2).sum()
        optimizer.zero_grad()
        loss.backward()  # type: ignore[no-untyped-call]
        optimizer.step()
        last = loss.item()  # waits for the device
    set_products("32-true")
    return last, (time.perf_counter() - begun) / max(1, steps - UNTIMED)
