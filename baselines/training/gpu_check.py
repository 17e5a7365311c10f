"""What `ncl-bench doctor --gpu` prints: a step of every backbone beside the CPU's, and its times or its profile.

A network has its published size, but no dropout, whose random numbers differ between devices. Its pairs are random.
The loss after the step is compared with the CPU's in float32.
"""

import time
from collections.abc import Callable, Iterator, Mapping
from importlib.util import find_spec
from itertools import pairwise, product
from statistics import median, quantiles
from typing import Any, NamedTuple, get_args

import torch
from torch import Tensor, nn
from torch._C._autograd import DeviceType
from torch.profiler import ProfilerActivity, profile, record_function

from baselines.backbones import BACKBONES, build_backbone
from baselines.kit.batches import Batch
from baselines.kit.distributed import set_products
from baselines.kit.losses import mean_triplet
from ncl_bench import __version__
from ncl_bench.errors import NclBenchError, first_line
from ncl_bench.schema import Precision

STEPS, WARM_UP = 100, 10  # the steps before the timed ones choose kernels and reserve memory
COMPARED = 8  # pairs of the step that a CPU does too
TABLE_HEAD = (
    "| backbone | precision | loss beside the CPU's | pairs | warm-up s | host ms | device ms | middle half ms | "
    "peak GiB |\n| --- | --- | ---: | ---: | ---: | ---: | ---: | ---: | ---: |"
)
PROFILE_HEAD = (
    "| backbone | precision | pairs | host ms | operations | kernels | copies | synchronisations |\n"
    "| --- | --- | ---: | ---: | ---: | ---: | ---: | ---: |"
)


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


def gpu_report(*, profiling: bool = False) -> Iterator[str]:
    """Check the first CUDA device: Markdown, line by line as the numbers come.

    Args:
        profiling: profile one step of every backbone in place of timing many.
    """
    if not torch.cuda.is_available():
        fix = "run it on a machine with a GPU and a torch that is built for CUDA"
        raise NclBenchError(f"`doctor --gpu` needs a CUDA device, and torch finds none; {fix}")
    name = torch.cuda.get_device_name()
    yield f"{name}, torch {torch.__version__}, CUDA {torch.version.cuda}, ncl_bench {__version__}\n"
    yield from (profile_table if profiling else table)(torch.device("cuda"), published())


def table(device: torch.device, sizes: Mapping[str, Size], steps: int = STEPS) -> Iterator[str]:
    """Train every backbone in every precision; a backbone that fails says why, and the others follow.

    On a GPU it also trains compiled, as ``train --compile on`` does.
    """

    def numbers(name: str, precision: str, size: Size, *, compiled: bool) -> str:
        expected = last_loss(training(name, size, "32-true", torch.device("cpu"), COMPARED), 2)
        loss = last_loss(training(name, size, precision, device, COMPARED, compiled=compiled), 2)
        step = training(name, size, precision, device, size.pairs, compiled=compiled)
        timing = timed(step, device, steps)
        first, _, third = (1e3 * x for x in quantiles(timing.device, n=4))
        peak = "-" if timing.peak is None else f"{timing.peak / 2**30:.1f}"
        return (
            f"{abs(loss / expected - 1):.1e} | {size.pairs} | {timing.warm_up:.1f} | "
            f"{1e3 * median(timing.host):.1f} | {1e3 * median(timing.device):.1f} | {first:.1f} to {third:.1f} | {peak}"
        )

    yield TABLE_HEAD
    yield from _rows(device, sizes, numbers)


def profile_table(device: torch.device, sizes: Mapping[str, Size]) -> Iterator[str]:
    """Profile one step of every backbone in every precision."""

    def numbers(name: str, precision: str, size: Size, *, compiled: bool) -> str:
        step = profiled(training(name, size, precision, device, size.pairs, compiled=compiled), device)
        return (
            f"{size.pairs} | {1e3 * step.host:.1f} | {step.operations:,} | {step.kernels:,} | {step.copies:,} | "
            f"{step.synchronisations:,}"
        )

    yield PROFILE_HEAD
    yield from _rows(device, sizes, numbers)


def _rows(device: torch.device, sizes: Mapping[str, Size], numbers: Callable[..., str]) -> Iterator[str]:
    compilation = (False, True) if device.type == "cuda" else (False,)
    for name, size in sizes.items():
        for compiled, precision in product(compilation, get_args(Precision)):
            try:
                measured = numbers(name, precision, size, compiled=compiled)
            except (RuntimeError, NclBenchError) as error:  # no memory, no such kernel
                measured = f"failed: {first_line(error)}"
            finally:
                set_products("32-true")
            yield f"| {name} | {precision}{', compiled' * compiled} | {measured} |"


def training(
    name: str, size: Size, precision: str, device: torch.device, pairs: int, *, compiled: bool = False
) -> Callable[[], Tensor]:
    """Return a gradient step on one batch, from the same weights on every device; it returns the loss before it."""
    set_products(precision)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        facts = {"feature_dim": size.dim, "n_regions": size.regions, "vocabulary_size": size.words}
        network = build_backbone(name, size.config, **facts).to(device).train()
        tokens, lengths = torch.randint(4, size.words, (pairs, 20)), 8 + torch.arange(pairs) % 13
        tokens[torch.arange(20) >= lengths[:, None]] = 0
        images, regions = torch.rand(pairs, size.regions, size.dim), torch.full((pairs,), size.regions)
        batch = Batch(images, regions, tokens, lengths, torch.arange(pairs)).to(device)
    network.mixed, network.compiled = precision == "bf16-mixed", pairs if compiled else 0
    for module in network.modules():
        if isinstance(module, nn.Dropout):
            module.eval()
    optimizer = torch.optim.Adam(network.parameters(), lr=2e-4, fused=device.type == "cuda" or None)

    def step() -> Tensor:
        loss = mean_triplet(network(batch).similarities, 0.2).sum()
        optimizer.zero_grad()
        loss.backward()  # type: ignore[no-untyped-call]
        optimizer.step()
        return loss.detach()

    return step


def last_loss(step: Callable[[], Tensor], steps: int) -> float:
    """Take some steps and read the last loss."""
    return [step() for _ in range(steps)][-1].item()


class Timing(NamedTuple):
    """Times of a step.

    Attributes:
        warm_up: seconds of the steps before the timed ones.
        host: seconds in which the host issues each step.
        device: seconds from the end of the step before to the end of each step, on the device.
        peak: largest memory of the steps in bytes; None on a CPU.
    """

    warm_up: float
    host: list[float]
    device: list[float]
    peak: int | None


def timed(step: Callable[[], Tensor], device: torch.device, steps: int = STEPS) -> Timing:
    """Time steps without waiting for the device between them."""
    cuda = device.type == "cuda"
    begun = time.perf_counter()
    last_loss(step, WARM_UP)  # reading the loss waits for the device
    warm_up, moments = time.perf_counter() - begun, [time.perf_counter()]
    if cuda:
        torch.cuda.reset_peak_memory_stats(device)
    events = [torch.cuda.Event(enable_timing=True) for _ in range(1 + steps)] if cuda else []  # type: ignore[no-untyped-call]
    for event in events[:1]:
        event.record()
    for number in range(steps):
        step()
        for event in events[1 + number : 2 + number]:
            event.record()
        moments.append(time.perf_counter())
    host = [after - before for before, after in pairwise(moments)]
    if not cuda:
        return Timing(warm_up, host, host, None)
    torch.cuda.synchronize(device)
    on_device = [before.elapsed_time(after) / 1e3 for before, after in pairwise(events)]
    return Timing(warm_up, host, on_device, torch.cuda.max_memory_allocated(device))


class Profile(NamedTuple):
    """What one step does.

    Attributes:
        host: seconds in which the host issues it, the profiler's own work included.
        operations: operations of torch that no other one calls.
        kernels: kernels that run on the device.
        copies: copies within the device, and between it and the host.
        synchronisations: how often the host waits for the device.
    """

    host: float
    operations: int
    kernels: int
    copies: int
    synchronisations: int


def profiled(step: Callable[[], Tensor], device: torch.device) -> Profile:
    """Profile one step after the warm-up."""
    last_loss(step, WARM_UP)
    activities = [ProfilerActivity.CPU, *([ProfilerActivity.CUDA] if device.type == "cuda" else [])]
    with profile(activities=activities) as profiler, record_function("step"):
        begun = time.perf_counter()
        step()
        host = time.perf_counter() - begun
    events: list[Any] = list(profiler.events())
    on_host = [event for event in events if event.device_type == DeviceType.CPU]
    on_device = [
        event for event in events if event.device_type != DeviceType.CPU and not event.is_user_annotation
    ]
    (whole,) = (event.time_range for event in on_host if event.name == "step")
    copies = sum(event.name.startswith("Memcpy") for event in on_device)
    filled = sum(event.name.startswith("Memset") for event in on_device)
    return Profile(
        host=host,
        operations=sum(_is_outermost(event) for event in on_host),
        kernels=len(on_device) - copies - filled,
        copies=copies,
        # the profiler waits too, after the step
        synchronisations=sum(
            event.name.endswith("Synchronize") and event.time_range.start < whole.end for event in on_host
        ),
    )


def _is_outermost(event: Any) -> bool:
    parent = event.cpu_parent
    return event.name.startswith("aten::") and (parent is None or not parent.name.startswith("aten::"))
