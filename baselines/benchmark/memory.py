"""How much memory one pass of a side takes beyond what it finds.

On a GPU in this process, as the allocator counts; on a CPU in a process of its own, as the system counts (Linux).
"""

from collections.abc import Callable, Mapping
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from pathlib import Path

import torch

from baselines.benchmark import works
from baselines.benchmark.sizes import Sizes
from baselines.benchmark.stopwatch import Side, Stopwatch

MEBIBYTE = 2**20
WORKS: dict[str, Callable[[Sizes, torch.device, str], Mapping[str, Side]]] = {
    "step": lambda sizes, device, name: works.training_step(name, sizes, device),
    "scoring": lambda sizes, device, name: works.scoring(name, sizes, device),
    "images": lambda sizes, device, name: works.intra_modal(name, "images", sizes, device),
    "captions": lambda sizes, device, name: works.intra_modal(name, "captions", sizes, device),
    "pc2": lambda sizes, device, name: works.pc2_step(sizes, device),
}
"""Works that are compared with the loop, for a backbone."""


def peak_mebibytes(work: str, name: str, side: str, sizes: Sizes, device: torch.device) -> float:
    """Peak memory of one pass, above what the networks and data take, in MiB."""
    if device.type == "cuda":
        run = WORKS[work](sizes, device, name)[side]
        run(Stopwatch(device))
        torch.cuda.reset_peak_memory_stats(device)
        before = torch.cuda.memory_allocated(device)
        run(Stopwatch(device))
        return (torch.cuda.max_memory_allocated(device) - before) / MEBIBYTE
    server = get_context("forkserver")
    server.set_forkserver_preload(["baselines.benchmark.measure"])  # imported once for all
    with ProcessPoolExecutor(1, server) as fresh:
        return fresh.submit(_peak_of_this_process, work, name, side, sizes).result()


def _resident(field: str) -> float:
    """``VmRSS``, the resident memory of this process, or ``VmHWM``, its peak, in MiB."""
    lines = Path("/proc/self/status").read_text(encoding="ascii").splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith(field)) / 1024


def _peak_of_this_process(work: str, name: str, side: str, sizes: Sizes) -> float:
    device, few = torch.device("cpu"), sizes.model_copy(update={"batch": 4, "images": 4})
    WORKS[work](few, device, name)[side](Stopwatch(device))  # what stays for good
    run = WORKS[work](sizes, device, name)[side]
    Path("/proc/self/clear_refs").write_text("5", encoding="ascii")  # the peak starts anew
    before = _resident("VmRSS")
    run(Stopwatch(device))
    return _resident("VmHWM") - before
