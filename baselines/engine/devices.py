"""Choice of the device and its precision, and start-up of several processes, one device each."""

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
"""Time after which a process that hears nothing from the others gives up."""

_LAUNCHER, _RANK, _ADDRESS = (f"NCL_BENCH_{name}" for name in ("LAUNCHER", "RANK", "ADDRESS"))
"""Environment variables by which a process tells its copies who they are."""
_copies: list[subprocess.Popen[bytes]] = []


class Processes(NamedTuple):
    """The processes that share the work.

    Attributes:
        here: number of processes on this machine.
        machines: number of machines, each with the same number of processes.
        rank: rank of this process, from 0.
        local_rank: rank of this process on its machine, from 0.
        address: ``init_method`` of torch.distributed; empty if the other processes are not started yet.
    """

    here: int
    machines: int
    rank: int = 0
    local_rank: int = 0
    address: str = ""


def device_for(device: str, precision: str, devices: int | None = None) -> torch.device:
    """Choose the device, set the precision of matrix products, and connect the processes if there are several.

    The processes are those that torchrun or SLURM started, else this one and ``devices - 1`` copies of its command.
    For ``bf16-mixed`` see :meth:`baselines.kit.backbone.Backbone.autocast`.

    Args:
        device: ``cpu``, ``cuda``, or ``auto`` for CUDA if available. Apple's GPU is never chosen, because the methods
            are not tested on it.
        precision: ``tf32`` multiplies float32 in TF32, on the tensor cores of a GPU.
        devices: number of processes on this machine; by default those that torchrun or SLURM started, else one.

    Raises:
        TrainingError: there are too few devices, or another number of processes was started.
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
    """Start ``n`` copies of this command, and return the address for all processes."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        address = f"tcp://127.0.0.1:{free.getsockname()[1]}"
    for number in range(1, n + 1):
        told = {_LAUNCHER: str(os.getpid()), _RANK: str(number), _ADDRESS: address}
        command = [sys.executable, *sys.orig_argv[1:]]
        _copies.append(subprocess.Popen(command, env=os.environ | told))  # noqa: S603 (our own command)
    return address


def machine_of(device: torch.device) -> Machine:
    """Describe the torch version, the device (with the number of processes, if several) and its memory budget."""
    if device.type == "cuda":
        name = torch.cuda.get_device_name(device)
    else:
        threads = torch.get_num_threads()
        name = f"CPU, {threads} thread{'s' if threads > 1 else ''}"
    several = f"{world_size()} x {name}" if world_size() > 1 else name
    return Machine(torch=str(torch.__version__), device=several, block_bytes=memory_budget(device))


def set_products(precision: str) -> None:
    """Allow TF32 products for ``tf32`` only; by default cuDNN's GRU would use them for ``32-true`` too."""
    torch.set_float32_matmul_precision("high" if precision == "tf32" else "highest")
    torch.backends.cudnn.allow_tf32 = precision == "tf32"


def started_processes(devices: int | None) -> Processes:
    """Return the processes that torchrun, SLURM or this command started, else ``devices`` processes to start.

    Args:
        devices: value of ``--devices``, at least 1; None takes the number from the environment.

    Raises:
        TrainingError: ``devices`` contradicts the environment, or SLURM does not say how many tasks a node has.
    """
    said = os.environ
    if dist.is_torchelastic_launched():
        here = int(said["LOCAL_WORLD_SIZE"])
        machines = int(said["WORLD_SIZE"]) // here
        found = Processes(here, machines, int(said["RANK"]), int(said["LOCAL_RANK"]), "env://")
    elif int(said.get("SLURM_STEP_NUM_TASKS", "1")) > 1:
        if "SLURM_NTASKS_PER_NODE" not in said:
            raise TrainingError("SLURM_NTASKS_PER_NODE is not set; start the job with --ntasks-per-node")
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
    """Return a port on the first node that depends only on the job id, so that every task computes the same one."""
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
        raise TrainingError("--device is cuda, but torch finds no CUDA device; use --device cpu")
    if device != "cpu" and 0 < count < needed:
        raise TrainingError(
            f"{needed} processes need {needed} CUDA devices, but torch finds {count}; start fewer with --devices"
        )


def _leave() -> None:
    """End the communication threads, which otherwise sometimes crash the interpreter at exit."""
    if dist.is_initialized():
        dist.destroy_process_group()


def _end_with(launcher: int) -> None:
    """End this process when its launcher is gone, even if it waits for a message."""

    def watch() -> None:
        while os.getppid() == launcher:
            time.sleep(0.5)
        os._exit(1)

    threading.Thread(target=watch, daemon=True, name="end-with-launcher").start()
