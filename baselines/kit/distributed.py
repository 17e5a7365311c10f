"""Several processes, one loss: similarity matrices of a batch are split by columns over the ranks.

torchrun or SLURM starts the processes, one device each; :func:`device_for` connects them.

Every rank encodes the whole batch (little work), compares all images with its own block of captions (nearly all the
work), and gathers the blocks. Every rank then holds the same matrix, and computes the same loss, labels and divisions
as a single process. Gradients are averaged over the ranks. The gradient of a rank's own block is first multiplied by
the number of ranks, so that after averaging, blocks add up and replicated parts count once. A symmetric matrix within
one modality is split into strips and summed.

Networks that spend most time on encoding, such as CLIP, split the encoding instead: each rank encodes its share of the
batch, and all ranks compare everything.

Every epoch starts with rank 0's networks and memories on all ranks, and rank 0 fits the mixtures for all, so that
rounding differences cannot accumulate. All ranks draw the same random numbers. Only rank 0 touches the run folder.
"""

import atexit
import os
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from datetime import timedelta
from functools import wraps
from itertools import cycle
from typing import Any, NamedTuple, ParamSpec, TypeVar

import torch
import torch.distributed as dist
from torch import Tensor, nn

from ncl_bench.errors import NclBenchError, TrainingError, named

P = ParamSpec("P")
T = TypeVar("T")
PATIENCE_WITH_OTHERS = timedelta(minutes=10)
"""Time after which a process that hears nothing from the others gives up."""


class ProcessLost(TrainingError):
    """Another process of the same training has ended or does not answer."""


def world_size() -> int:
    """Number of processes that share the work."""
    return dist.get_world_size() if dist.is_available() and dist.is_initialized() else 1


def rank() -> int:
    """Rank of this process, from 0."""
    return dist.get_rank() if world_size() > 1 else 0


@contextmanager
def answered() -> Iterator[None]:
    """Wrap a message between the ranks.

    Raises:
        ProcessLost: another rank has ended, or has not answered in time.
    """
    try:
        yield
    except RuntimeError as error:
        raise ProcessLost(
            "another process of this command has ended or does not answer; run the same command again to resume "
            f"({' '.join(str(error).split())[:200]})"
        ) from None


def from_first_rank(make: Callable[[], T]) -> T:
    """Call ``make`` on rank 0 and return its result on every rank.

    Args:
        make: function whose result can be pickled.
    """
    if world_size() == 1:
        return make()
    outcome: list[Any] = [None, None]
    # the others wait, and raise what rank 0 raised: one that goes on alone would hang at the next message
    if rank() == 0:
        try:
            outcome[0] = make()
        except NclBenchError as error:
            outcome[1] = error
    with answered():
        dist.broadcast_object_list(outcome)
    if outcome[1] is not None:
        raise outcome[1]
    value: T = outcome[0]
    return value


def fitted_once(fit: Callable[P, T]) -> Callable[P, T]:
    """Decorate a fit so that rank 0 computes it for all ranks: equal pairs must be divided equally everywhere."""

    @wraps(fit)
    def on_first_rank(*args: P.args, **kwargs: P.kwargs) -> T:
        return from_first_rank(lambda: fit(*args, **kwargs))

    return on_first_rank


@torch.no_grad()
def copy_first_rank(module: nn.Module) -> None:
    """Overwrite a module's parameters and buffers with those of rank 0."""
    if world_size() > 1:
        with answered():
            for tensor in module.state_dict().values():
                dist.broadcast(tensor, 0)


def own_columns(n_columns: int) -> slice:
    """Return this rank's consecutive columns; the numbers of columns differ by at most one."""
    share, rest = divmod(n_columns, world_size())
    start = rank() * share + min(rank(), rest)
    return slice(start, start + share + (rank() < rest))


def split_by_captions(compare: Callable[[slice], Tensor], n_captions: int) -> Tensor:
    """Compute a similarity matrix by blocks of captions, one block per rank.

    Args:
        compare: similarities of all images with a slice of the captions, float ``(n_images, block)``.
        n_captions: columns of the whole matrix, at least one per rank.

    Returns:
        float ``(n_images, n_captions)``, equal on all ranks.
    """
    if not _is_split(n_captions):
        return compare(slice(0, n_captions))
    # a network inside may need one value of every caption, see of_all_captions
    token = _captions_split.set(n_captions)
    try:
        own = compare(own_columns(n_captions))
    finally:
        _captions_split.reset(token)
    gathered: Tensor = _GatherColumns.apply(own, n_captions)  # type: ignore[no-untyped-call]
    return gathered


def encoded_in_shares(encode: Callable[[slice], Tensor], n: int) -> Tensor:
    """Encode a batch in shares, one per rank, if encoding is most of the work.

    Every rank must compute the same loss from the result, without another split. Each rank then has the full gradient
    of its own rows.

    Args:
        encode: vectors of a slice of the batch, float ``(share, dim)``.
        n: rows of the batch.

    Returns:
        float ``(n, dim)``, equal on all ranks.
    """
    if not _is_split(n):
        return encode(slice(0, n))
    # rows as columns: the same gathering serves both
    gathered: Tensor = _GatherColumns.apply(encode(own_columns(n)).T, n)  # type: ignore[no-untyped-call]
    return gathered.T


def own_strips(n: int, size: int) -> list[slice]:
    """Return this rank's strips of columns of a symmetric matrix; a strip covers entries on and below the diagonal.

    Strips get shorter from left to right, so they are assigned to ranks 0, 1, ..., 1, 0 in turn to balance the work. A
    matrix with fewer columns than ranks is not split.

    Args:
        n: number of columns.
        size: largest number of columns of a strip; fewer if a rank would otherwise get less than two strips.
    """
    split, ranks = _is_split(n), range(world_size())
    if split:
        # two strips at least, a long and a short one, or the ranks could not balance
        size = min(size, max(1, n // (2 * len(ranks))))
    strips = [slice(first, min(first + size, n)) for first in range(0, n, size)]
    turns = cycle([*ranks, *reversed(ranks)])
    return [strip for strip, turn in zip(strips, turns, strict=False) if not split or turn == rank()]


def summed_over_ranks(own: Tensor) -> Tensor:
    """Sum the ranks' parts of a symmetric matrix.

    Args:
        own: float ``(n, n, ...)`` with the entries of :func:`own_strips`, zero elsewhere.
    """
    if not _is_split(len(own)):
        return own
    whole: Tensor = _Sum.apply(own)  # type: ignore[no-untyped-call]
    return whole


def _is_split(n: int) -> bool:
    return n >= world_size() > 1


def of_all_captions(values: Tensor) -> Tensor:
    """Gather one value per caption from every rank's block, in the order of the batch, without gradient.

    Args:
        values: float ``(block,)``, for this rank's captions while a matrix is split, else for all captions.
    """
    n_captions = None if world_size() == 1 else _captions_split.get()
    return values if n_captions is None else _gather(values.detach()[None], n_captions)[0]


_captions_split: ContextVar[int | None] = ContextVar(
    "captions of the matrix that is being split", default=None
)


def _gather(own: Tensor, n_columns: int) -> Tensor:
    share, rest = divmod(n_columns, world_size())
    # all_gather needs blocks of one shape; ranks differ by at most one column
    padded = own.new_zeros(share + (rest > 0), own.shape[0])
    padded[: own.shape[1]] = own.T
    blocks = [torch.empty_like(padded) for _ in range(world_size())]
    with answered():
        dist.all_gather(blocks, padded)
    return torch.cat([block[: share + (r < rest)] for r, block in enumerate(blocks)]).T.contiguous()


def gathered_on_first(own: Tensor, sizes: Sequence[int]) -> list[Tensor]:
    """Gather blocks of columns from every rank on rank 0, without gradient.

    Args:
        own: float ``(rows, columns)``, block of this rank; ``(rows, 0)`` if it has none.
        sizes: number of columns of each rank's block, in the order of ranks, without ranks that have none.

    Returns:
        The blocks on rank 0, an empty list on the others.
    """
    if world_size() == 1:
        return [own]
    padded = own.new_zeros(len(own), max(sizes))
    padded[:, : own.shape[1]] = own
    blocks = [torch.empty_like(padded) for _ in range(world_size())] if rank() == 0 else []
    with answered():
        dist.gather(padded, blocks or None)
    return [block[:, :size] for block, size in zip(blocks, sizes, strict=False)]


class _GatherColumns(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, own: Tensor, n_columns: int) -> Tensor:
        ctx.columns = own_columns(n_columns)
        return _gather(own, n_columns)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, None]:
        # average_gradients divides by the number of ranks, but only this rank has the gradient of its own columns
        return gradients[0][:, ctx.columns] * world_size(), None


class _Sum(torch.autograd.Function):
    """Sum over the ranks; gradients are summed too, because each rank may use another part of the result."""

    @staticmethod
    def forward(ctx: Any, own: Tensor) -> Tensor:
        return _sum(own)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> Tensor:
        return _sum(gradients[0])


def _sum(own: Tensor) -> Tensor:
    # bfloat16 parts would lose their last bits in the sum
    whole = own.to(torch.promote_types(own.dtype, torch.float32), copy=True).contiguous()
    with answered():
        dist.all_reduce(whole)
    return whole.to(own.dtype)


def average_gradients(parameters: Iterable[nn.Parameter]) -> None:
    """Replace every gradient with its mean over the ranks, in one message."""
    if world_size() == 1:
        return
    gradients = [p.grad for p in parameters if p.grad is not None]
    # one message instead of one per tensor: most gradients are small
    flat = torch.cat([gradient.flatten() for gradient in gradients])
    with answered():
        dist.all_reduce(flat)
    flat /= world_size()
    start = 0
    for gradient in gradients:
        gradient.copy_(flat[start : start + gradient.numel()].view_as(gradient))
        start += gradient.numel()


class Processes(NamedTuple):
    """The processes that share the work.

    Attributes:
        here: number of processes on this machine.
        machines: number of machines, each with the same number of processes.
        rank: rank of this process, from 0.
        local_rank: rank of this process on its machine, from 0.
        address: ``init_method`` of torch.distributed; empty for one process.
    """

    here: int = 1
    machines: int = 1
    rank: int = 0
    local_rank: int = 0
    address: str = ""


def device_for(device: str, precision: str) -> torch.device:
    """Choose the device, set the precision of matrix products, and connect the processes if there are several.

    For ``bf16-mixed`` see :meth:`baselines.kit.backbone.Backbone.autocast`.

    Args:
        device: ``cpu``, ``cuda``, or ``auto`` for CUDA if available. Apple's GPU is never chosen, because the methods
            are not tested on it.
        precision: ``tf32`` multiplies float32 in TF32, on the tensor cores of a GPU.
    """
    check_device(device)
    set_products(precision)
    processes = started_processes()
    _check_cuda(device, processes.here)
    chosen = torch.device("cpu")
    if device == "cuda" or (device == "auto" and torch.cuda.is_available()):
        chosen = torch.device("cuda", processes.local_rank)
        torch.cuda.set_device(chosen)
    if processes.here * processes.machines > 1 and not dist.is_initialized():
        _connect(processes, chosen)
    return chosen


def _connect(processes: Processes, device: torch.device) -> None:
    if device.type == "cpu" and "OMP_NUM_THREADS" not in os.environ:
        cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
        torch.set_num_threads(max(1, cores // processes.here))
    with answered():
        dist.init_process_group(
            "nccl" if device.type == "cuda" else "gloo",
            init_method=processes.address,
            rank=processes.rank,
            world_size=processes.here * processes.machines,
            timeout=PATIENCE_WITH_OTHERS,
        )
    atexit.register(_leave)


def set_products(precision: str) -> None:
    """Allow TF32 products unless all are to be in float32; by default cuDNN's GRU would use them then too.

    With ``bf16-mixed`` they are the products that are not in bfloat16.
    """
    allowed = precision != "32-true"
    torch.set_float32_matmul_precision("high" if allowed else "highest")
    torch.backends.cudnn.allow_tf32 = allowed


def started_processes() -> Processes:
    """Return the processes that torchrun or SLURM started; else this one alone."""
    said = os.environ
    if dist.is_torchelastic_launched():
        here = int(said["LOCAL_WORLD_SIZE"])
        machines = int(said["WORLD_SIZE"]) // here
        return Processes(here, machines, int(said["RANK"]), int(said["LOCAL_RANK"]), "env://")
    if int(said.get("SLURM_STEP_NUM_TASKS", "1")) == 1:
        return Processes()
    if "SLURM_NTASKS_PER_NODE" not in said:
        raise TrainingError("SLURM_NTASKS_PER_NODE is not set; start the job with `srun --ntasks-per-node`")
    here, machines = int(said["SLURM_NTASKS_PER_NODE"]), int(said["SLURM_NNODES"])
    rank, local_rank = int(said["SLURM_PROCID"]), int(said["SLURM_LOCALID"])
    return Processes(here, machines, rank, local_rank, _address_on_slurm())


def _address_on_slurm() -> str:
    """Return a port on the first node that depends only on the job id, so that every task computes the same one."""
    nodes = os.environ.get("SLURM_NODELIST", "127.0.0.1")  # such as a1,a2 or gpu[03-05,9]
    first = re.sub(r"\[([^],-]*)[^]]*\]", r"\1", nodes).split(",")[0]
    port = 15_000 + int(os.environ.get("SLURM_JOB_ID", "0")) % 10_000
    return f"tcp://{os.environ.get('MASTER_ADDR', first)}:{os.environ.get('MASTER_PORT', port)}"


def first_of_machine() -> bool:
    """Whether this process is the first of those that share the work on this machine."""
    return started_processes().local_rank == 0


def check_device(name: str) -> None:
    """Refuse what is not ``auto``, ``cpu`` or ``cuda``."""
    if name in ("auto", "cpu", "cuda"):
        return
    fix = "choose auto, cpu or cuda"
    if name == "mps":
        fix = "Apple's GPUs are not supported; use cpu"
    elif card := re.fullmatch(r"(?:cuda:)?(\d+)", name):
        fix = f"choose the card before the command, CUDA_VISIBLE_DEVICES={card[1]}, and use cuda"
    raise TrainingError(f"{named('device')} is {name!r}; {fix}")


def _check_cuda(device: str, needed: int) -> None:
    count = torch.cuda.device_count()
    if device != "cpu" and count < needed and (count or device == "cuda"):
        asked, fix = (
            (named("device", "cuda"), "") if needed == 1 else (f"processes: {needed}", "start fewer, or ")
        )
        raise TrainingError(
            f"{asked}, but torch finds {count or 'no'} CUDA device; {fix}use {named('device', 'cpu')}"
        )


def _leave() -> None:
    """End the communication threads, which otherwise sometimes crash the interpreter at exit."""
    if dist.is_initialized():
        dist.destroy_process_group()
