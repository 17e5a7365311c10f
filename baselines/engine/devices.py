"""Where networks compute: device, arithmetic, and the processes that share the work, one device each."""

import atexit
import os
import re
import socket
import subprocess
import sys
import threading
import time
from datetime import timedelta
from typing import NamedTuple

import torch
import torch.distributed as dist

from baselines.backbones.pairwise import memory_budget
from baselines.engine.run_folder import Machine
from baselines.kit.distributed import answered, world_size
from ncl_bench.errors import TrainingError

PATIENCE = timedelta(minutes=10)
"""How long a process waits for an answer of the others."""

_LAUNCHER, _RANK, _ADDRESS = (f"NCL_BENCH_{name}" for name in ("LAUNCHER", "RANK", "ADDRESS"))
"""What a copy of the command is told by the process that started it."""
_copies: list[subprocess.Popen[bytes]] = []


class Processes(NamedTuple):
    """Who shares the work.

    Attributes:
        here: processes on this machine.
        machines: machines with as many processes each.
        rank: of this process, from 0.
        local_rank: of this process among those on its machine, from 0.
        address: where they meet, as torch.distributed takes it; empty if the others are still to be started.
    """

    here: int
    machines: int
    rank: int = 0
    local_rank: int = 0
    address: str = ""


def device_for(device: str, precision: str, devices: int | None = None) -> torch.device:
    """Choose the device and set its products; connect the processes where several share the work.

    These are the processes that torchrun or SLURM started, else this one and ``devices - 1`` copies of the command
    that started it. ``bf16-mixed`` is the networks' own, see :meth:`baselines.kit.backbone.Backbone.autocast`.

    Args:
        device: ``cpu``, ``cuda``, or ``auto`` for CUDA where there is such a device; Apple's GPU is never chosen, since
            nobody tested the methods on it.
        precision: ``tf32`` multiplies float32 in TF32, with the tensor cores of a GPU.
        devices: processes on this machine; what torchrun or SLURM started by default, else one.

    Raises:
        TrainingError: there are fewer devices, or another number of processes was started.
    """
    set_products(precision)
    processes = started_processes(devices)
    _check_cuda(device, processes.here)
    chosen = torch.device("cpu")
    if device == "cuda" or (device == "auto" and torch.cuda.is_available()):
        chosen = torch.device("cuda", processes.local_rank)
        torch.cuda.set_device(chosen)
    if processes.here * processes.machines > 1 and not dist.is_initialized():
        _connect(processes, chosen)
    return chosen


def _connect(processes: Processes, device: torch.device) -> None:
    address = processes.address or _start_copies(processes.here - 1)
    if _LAUNCHER in os.environ:
        _end_with(int(os.environ[_LAUNCHER]))
    if device.type == "cpu" and "OMP_NUM_THREADS" not in os.environ:
        cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
        torch.set_num_threads(max(1, cores // processes.here))
    with answered():
        dist.init_process_group(
            "nccl" if device.type == "cuda" else "gloo",
            init_method=address,
            rank=processes.rank,
            world_size=processes.here * processes.machines,
            timeout=PATIENCE,
        )
    atexit.register(_leave)


def _start_copies(n: int) -> str:
    """Start the command ``n`` more times, and return where all meet."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        address = f"tcp://127.0.0.1:{free.getsockname()[1]}"
    for number in range(1, n + 1):
        told = {_LAUNCHER: str(os.getpid()), _RANK: str(number), _ADDRESS: address}
        command = [sys.executable, *sys.orig_argv[1:]]
        _copies.append(subprocess.Popen(command, env=os.environ | told))  # noqa: S603 (our own command)
    return address


def machine_of(device: torch.device) -> Machine:
    """The version of ``torch``, the ``device`` with its number where several share the work, and its memory budget."""
    if device.type == "cuda":
        name = torch.cuda.get_device_name(device)
    else:
        threads = torch.get_num_threads()
        name = f"CPU, {threads} thread{'s' if threads > 1 else ''}"
    several = f"{world_size()} x {name}" if world_size() > 1 else name
    return Machine(torch=str(torch.__version__), device=several, block_bytes=memory_budget(device))


def set_products(precision: str) -> None:
    """Multiply float32 in TF32 for ``tf32`` alone; by default cuDNN's GRU would do so for ``32-true`` too."""
    torch.set_float32_matmul_precision("high" if precision == "tf32" else "highest")
    torch.backends.cudnn.allow_tf32 = precision == "tf32"


def started_processes(devices: int | None) -> Processes:
    """The processes that torchrun, SLURM or this command started, else ``devices`` that are still to be started.

    Args:
        devices: of ``--devices``, at least 1; None leaves the choice to the environment.

    Raises:
        TrainingError: ``devices`` is another number than the environment's, or SLURM's tasks cannot be placed.
    """
    said = os.environ
    if dist.is_torchelastic_launched():
        here = int(said["LOCAL_WORLD_SIZE"])
        machines = int(said["WORLD_SIZE"]) // here
        found = Processes(here, machines, int(said["RANK"]), int(said["LOCAL_RANK"]), "env://")
    elif int(said.get("SLURM_STEP_NUM_TASKS", "1")) > 1:
        if "SLURM_NTASKS_PER_NODE" not in said:
            raise TrainingError("SLURM does not say how many tasks a node has; set --ntasks-per-node")
        here, machines = int(said["SLURM_NTASKS_PER_NODE"]), int(said["SLURM_NNODES"])
        rank, local_rank = int(said["SLURM_PROCID"]), int(said["SLURM_LOCALID"])
        found = Processes(here, machines, rank, local_rank, _address_on_slurm())
    else:
        rank = int(said.get(_RANK, "0"))
        return Processes(devices or 1, 1, rank, rank, said.get(_ADDRESS, ""))
    if devices not in (None, found.here):
        raise TrainingError(
            f"--devices is {devices}, but {found.here} processes were started on this machine; leave --devices out"
        )
    return found


def _address_on_slurm() -> str:
    """A port of the first node, which follows from the job's number: every task finds the same."""
    nodes = os.environ.get("SLURM_NODELIST", "127.0.0.1")  # such as a1,a2 or gpu[03-05,9]
    first = re.sub(r"\[([^],-]*)[^]]*\]", r"\1", nodes).split(",")[0]
    port = 15_000 + int(os.environ.get("SLURM_JOB_ID", "0")) % 10_000
    return f"tcp://{os.environ.get('MASTER_ADDR', first)}:{os.environ.get('MASTER_PORT', port)}"


def first_of_machine() -> bool:
    """Whether this process is the first of those that share the work on this machine."""
    return started_processes(None).local_rank == 0


def _check_cuda(device: str, needed: int) -> None:
    count = torch.cuda.device_count()
    if device == "cuda" and count == 0:
        raise TrainingError("--device is cuda, but torch finds no CUDA device; compute with --device cpu")
    if device != "cpu" and 0 < count < needed:
        raise TrainingError(
            f"{needed} processes need {needed} CUDA devices, but torch finds {count}; start fewer with --devices"
        )


def _leave() -> None:
    """End the threads that wait for messages, of which an interpreter that ends would make a crash now and then."""
    if dist.is_initialized():
        dist.destroy_process_group()


def _end_with(launcher: int) -> None:
    """End this process as soon as the one that started it is gone, even amid a message that waits for it."""

    def watch() -> None:
        while os.getppid() == launcher:
            time.sleep(0.5)
        os._exit(1)

    threading.Thread(target=watch, daemon=True, name="end-with-launcher").start()
