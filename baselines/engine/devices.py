"""Where networks compute: device, arithmetic, and the processes that share the work, one device each."""

import atexit
import logging
import os
import threading
import time
from datetime import timedelta
from typing import NamedTuple

import torch
from lightning_fabric import Fabric
from lightning_fabric.plugins.environments.cluster_environment import ClusterEnvironment
from lightning_fabric.plugins.environments.lightning import LightningEnvironment
from lightning_fabric.plugins.environments.slurm import SLURMEnvironment
from lightning_fabric.plugins.environments.torchelastic import TorchElasticEnvironment
from lightning_fabric.strategies.ddp import DDPStrategy

from baselines.backbones.pairwise import memory_budget
from baselines.engine.records import Machine
from baselines.kit.distributed import answered, world_size
from ncl_bench.errors import TrainingError

PATIENCE = timedelta(minutes=10)
"""How long a process waits for an answer of the others."""

_LAUNCHER = "NCL_BENCH_LAUNCHER"


class Processes(NamedTuple):
    """Who shares the work.

    Attributes:
        here: processes on this machine.
        machines: machines with as many processes each.
        environment: says which of them this one is.
    """

    here: int
    machines: int
    environment: ClusterEnvironment


def fabric_for(device: str, precision: str, devices: int | None = None) -> Fabric:
    """Device and products; ``bf16-mixed`` is the networks' own, see :meth:`baselines.kit.backbone.Backbone.autocast`.

    Where several processes share the work they are connected when this returns: those that torchrun or SLURM
    started, else this one and ``devices - 1`` copies of the command that started it.

    Args:
        device: ``cpu``, ``cuda``, or ``auto`` for CUDA where there is such a device; Apple's GPU is never chosen, since
            nobody tested the methods on it.
        precision: ``tf32`` multiplies float32 in TF32, with the tensor cores of a GPU.
        devices: processes on this machine; what torchrun or SLURM started by default, else one.

    Raises:
        TrainingError: there are fewer devices, or another number of processes was started.
    """
    logging.getLogger("lightning_fabric").setLevel(logging.WARNING)  # it announces processes
    set_products(precision)
    processes = started_processes(devices)
    _check_cuda(device, processes.here)
    several = processes.here * processes.machines > 1
    chosen = device if device != "auto" else "cuda" if torch.cuda.is_available() else "cpu"
    fabric = Fabric(
        accelerator=chosen,
        devices=processes.here,
        num_nodes=processes.machines,
        strategy=DDPStrategy(timeout=PATIENCE) if several else "auto",
        plugins=[processes.environment],
    )
    if several:
        if not processes.environment.creates_processes_externally:
            os.environ[_LAUNCHER] = str(os.getpid())
        elif _LAUNCHER in os.environ:
            _end_with(int(os.environ[_LAUNCHER]))
        with answered():
            fabric.launch()
        atexit.register(_leave)
    return fabric


def machine_of(fabric: Fabric) -> Machine:
    """The version of ``torch``, the ``device`` with its number where several share the work, and its memory budget."""
    if fabric.device.type == "cuda":
        device = torch.cuda.get_device_name(fabric.device)
    else:
        threads = torch.get_num_threads()
        device = f"CPU, {threads} thread{'s' if threads > 1 else ''}"
    several = f"{world_size()} x {device}" if world_size() > 1 else device
    return Machine(torch=str(torch.__version__), device=several, block_bytes=memory_budget(fabric.device))


def set_products(precision: str) -> None:
    """Multiply float32 in TF32 for ``tf32`` alone; by default cuDNN's GRU would do so for ``32-true`` too."""
    torch.set_float32_matmul_precision("high" if precision == "tf32" else "highest")
    torch.backends.cudnn.allow_tf32 = precision == "tf32"


def started_processes(devices: int | None) -> Processes:
    """The processes that torchrun or SLURM started, else ``devices`` that are still to be started.

    Args:
        devices: of ``--devices``, at least 1; None leaves the choice to the environment.

    Raises:
        TrainingError: ``devices`` is another number than the environment's, or SLURM's tasks cannot be placed.
    """
    if torch.distributed.is_torchelastic_launched():
        started, here = int(os.environ["WORLD_SIZE"]), int(os.environ["LOCAL_WORLD_SIZE"])
        found = Processes(here, started // here, TorchElasticEnvironment())
    elif int(os.environ.get("SLURM_STEP_NUM_TASKS", "1")) > 1:
        if "SLURM_NTASKS_PER_NODE" not in os.environ:
            raise TrainingError("SLURM does not say how many tasks a node has; set --ntasks-per-node")
        here, machines = int(os.environ["SLURM_NTASKS_PER_NODE"]), int(os.environ["SLURM_NNODES"])
        found = Processes(here, machines, SLURMEnvironment(auto_requeue=False))
    else:
        return Processes(devices or 1, 1, LightningEnvironment())
    if devices not in (None, found.here):
        raise TrainingError(
            f"--devices is {devices}, but {found.here} processes were started on this machine; leave --devices out"
        )
    return found


def first_of_machine() -> bool:
    """Whether this process is the first of those that share the work on this machine."""
    return started_processes(None).environment.local_rank() == 0


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
    if torch.distributed.is_initialized():
        torch.distributed.destroy_process_group()


def _end_with(launcher: int) -> None:
    """End this process as soon as the one that started it is gone, even amid a message that waits for it."""

    def watch() -> None:
        while os.getppid() == launcher:
            time.sleep(0.5)
        os._exit(1)

    threading.Thread(target=watch, daemon=True, name="end-with-launcher").start()
