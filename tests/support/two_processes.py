"""Functions in two processes that share their work, on one machine, without a network."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
import torch.multiprocessing as mp
from torch import distributed

from baselines.kit.distributed import PATIENCE_WITH_OTHERS

mp.get_context("forkserver").set_forkserver_preload(
    ["support.few_digits", "baselines.training.submit", "sklearn.mixture", "torch._dynamo", "pytest"]
)
"""Imported once for all processes; torch imports the last but one when it makes an optimiser."""


def worker(rank: int, folder: str, function: Callable[..., Any], args: tuple[Any, ...]) -> None:
    torch.set_num_threads(1)
    store = distributed.FileStore(f"{folder}/store", 2)
    distributed.init_process_group("gloo", store=store, rank=rank, world_size=2, timeout=PATIENCE_WITH_OTHERS)
    torch.save(function(*args), f"{folder}/{rank}.pt")
    distributed.barrier()
    distributed.destroy_process_group()


def in_two_processes(folder: Path, function: Callable[..., Any], *args: Any) -> list[Any]:
    """What the function returns on either rank."""
    assert ends_of_two_processes(folder, function, *args) == [0, 0]
    return [torch.load(folder / f"{rank}.pt", weights_only=True) for rank in range(2)]


def ends_of_two_processes(folder: Path, function: Callable[..., Any], *args: Any) -> list[int | None]:
    """Exit status of either rank; neither is ended because the other one has failed."""
    folder.mkdir(exist_ok=True)
    context = mp.get_context("forkserver")
    ranks = [context.Process(target=worker, args=(rank, str(folder), function, args)) for rank in range(2)]
    for rank in ranks:
        rank.start()
    for rank in ranks:
        rank.join()
    return [rank.exitcode for rank in ranks]
