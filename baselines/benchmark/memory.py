"""How much memory one pass of a variant takes beyond what it finds.

On a GPU in this process, as the allocator counts; on a CPU in a process of its own, as the system counts (Linux).
"""

from collections.abc import Callable, Mapping
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from multiprocessing import get_context
from pathlib import Path

import torch

from baselines.backbones import BACKBONES
from baselines.benchmark import workloads
from baselines.benchmark.sizes import Sizes
from baselines.benchmark.stopwatch import Stopwatch, Variant

MEBIBYTE = 2**20
WORKLOADS: dict[str, Callable[[Sizes, torch.device, str], Mapping[str, Variant]]] = {
    "step": lambda sizes, device, name: workloads.training_step(name, sizes, device),
    "similarities": lambda sizes, device, name: workloads.similarities(name, "pairs", sizes, device),
    "scoring": lambda sizes, device, name: workloads.scoring(name, sizes, device),
    "images": lambda sizes, device, name: workloads.similarities(name, "images", sizes, device),
    "captions": lambda sizes, device, name: workloads.similarities(name, "captions", sizes, device),
    "pc2": lambda sizes, device, name: workloads.pc2_step(sizes, device),
}
"""Workloads that are compared with the loop, for a network."""


def peak_mebibytes(workload: str, name: str, variant: str, sizes: Sizes, device: torch.device) -> float:
    """Peak memory of one pass, above what the networks and data take, in MiB."""
    if device.type == "cuda":
        run = WORKLOADS[workload](sizes, device, name)[variant]
        run(Stopwatch(device))
        torch.cuda.reset_peak_memory_stats(device)
        before = torch.cuda.memory_allocated(device)
        run(Stopwatch(device))
        return (torch.cuda.max_memory_allocated(device) - before) / MEBIBYTE
    server = get_context("forkserver")
    server.set_forkserver_preload(["baselines.benchmark.measure"])  # imported once for all
    with ProcessPoolExecutor(1, server) as fresh:
        return fresh.submit(_peak_of_this_process, workload, name, variant, sizes).result()


@dataclass(frozen=True)
class ScoringMemory:
    """What scoring takes beyond networks and data.

    Attributes:
        network: title of the backbone.
        images: scored.
        captions: scored.
        kept: image vectors and the matrix of similarities, which grow with the set, in MiB.
        peak: measured, in MiB; the rest of it is a block of images or captions and the tensors of one block of pairs.
    """

    network: str
    images: int
    captions: int
    kept: float
    peak: float


def scoring_memory(name: str, n_images: int, sizes: Sizes, device: torch.device) -> ScoringMemory:
    """Peak memory of scoring so many images with their captions."""
    sizes = sizes.model_copy(update={"images": n_images})
    n_captions, cls = n_images * sizes.captions_per_image, BACKBONES[name]
    vectors = 1 if cls.pools else sizes.regions
    kept = 4 * n_images * (vectors * sizes.embed_size + n_captions) / MEBIBYTE
    peak = peak_mebibytes("scoring", name, workloads.BLOCKS, sizes, device)
    return ScoringMemory(cls.title, n_images, n_captions, kept, peak)


def resident_mebibytes(field: str) -> float:
    """Resident memory of this process as Linux counts it, in MiB.

    Args:
        field: ``VmRSS`` for all of it, ``VmHWM`` for its peak, ``RssAnon`` for what belongs to the process alone,
            ``RssFile`` and ``RssShmem`` for pages of mapped files.
    """
    lines = Path("/proc/self/status").read_text(encoding="ascii").splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith(field)) / 1024


def _peak_of_this_process(workload: str, name: str, variant: str, sizes: Sizes) -> float:
    device, few = torch.device("cpu"), sizes.model_copy(update={"batch": 4, "images": 4})
    WORKLOADS[workload](few, device, name)[variant](Stopwatch(device))  # what stays for good
    run = WORKLOADS[workload](sizes, device, name)[variant]
    Path("/proc/self/clear_refs").write_text("5", encoding="ascii")  # the peak starts anew
    before = resident_mebibytes("VmRSS")
    run(Stopwatch(device))
    return resident_mebibytes("VmHWM") - before
