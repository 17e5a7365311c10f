"""Functions in two processes that share their work, on one machine, without a network."""

import torch
from support import forked
from torch import distributed

from baselines.kit.distributed import PATIENCE_WITH_OTHERS


def worker(rank, folder, function, args):
    torch.set_num_threads(1)
    store = distributed.FileStore(f"{folder}/store", 2)
    distributed.init_process_group("gloo", store=store, rank=rank, world_size=2, timeout=PATIENCE_WITH_OTHERS)
    torch.save(function(*args), f"{folder}/{rank}.pt")
    distributed.barrier()
    distributed.destroy_process_group()


def in_two_processes(folder, function, *args):
    """What the function returns on either rank."""
    assert ends_of_two_processes(folder, function, *args) == [0, 0]
    return [torch.load(folder / f"{rank}.pt", weights_only=True) for rank in range(2)]


def ends_of_two_processes(folder, function, *args):
    """Exit status of either rank; neither is ended because the other one has failed."""
    folder.mkdir(exist_ok=True)
    ranks = [forked.process(worker, rank, str(folder), function, args) for rank in range(2)]
    for rank in ranks:
        rank.start()
    for rank in ranks:
        rank.join()
    return [rank.exitcode for rank in ranks]
