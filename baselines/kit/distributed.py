"""Several processes, one loss: the pairwise matrices of a batch are split by columns over the ranks.

Every rank encodes the whole batch (little work), compares all images with its own block of captions (nearly all the
work), and gathers the blocks, so that each rank holds the same matrix and computes the same loss, labels and
divisions as a single process. Gradients are then averaged: what is replicated counts once, and the gradient that
enters a rank's own block is scaled by the number of ranks, so that blocks add up. A symmetric matrix within one
modality is dealt out in strips and summed.

Networks that spend their time on encoding, such as CLIP, split that instead: each rank encodes its share of the
batch, and all compare everything.

Ranks start every epoch from rank 0's networks and memories and take over its mixture fits, so that rounding
cannot part them; all of them draw the same random numbers. Rank 0 alone touches the run folder.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from itertools import cycle
from typing import Any, TypeVar

import torch
import torch.distributed as dist
from torch import Tensor, nn

from ncl_bench.errors import NclBenchError, TrainingError

T = TypeVar("T")


class ProcessLost(TrainingError):
    """Another process that shares the work has ended or does not answer."""


def world_size() -> int:
    """Number of processes that share the work."""
    return dist.get_world_size() if dist.is_available() and dist.is_initialized() else 1


def rank() -> int:
    """Number of this process, from 0."""
    return dist.get_rank() if world_size() > 1 else 0


@contextmanager
def answered() -> Iterator[None]:
    """A message between the ranks.

    Raises:
        ProcessLost: another rank has ended, or has not answered for long.
    """
    try:
        yield
    except RuntimeError as error:
        raise ProcessLost(
            "another process of this command has ended or does not answer; run the same command again to go on "
            f"from what is done ({' '.join(str(error).split())[:200]})"
        ) from None


def from_first_rank(make: Callable[[], T]) -> T:
    """What rank 0 makes, on every rank; the others do not call ``make``.

    Args:
        make: returns a value that can be pickled.

    Raises:
        NclBenchError: as raised on rank 0, on every rank.
    """
    if world_size() == 1:
        return make()
    outcome: list[Any] = [None, None]
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


@torch.no_grad()
def copy_first_rank(module: nn.Module) -> None:
    """Overwrite a module's parameters and buffers by rank 0's."""
    if world_size() > 1:
        with answered():
            for tensor in module.state_dict().values():
                dist.broadcast(tensor, 0)


def own_columns(n_columns: int) -> slice:
    """This rank's consecutive share of the columns; shares differ by one at most."""
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
    token = _captions_split.set(n_captions)
    try:
        own = compare(own_columns(n_captions))
    finally:
        _captions_split.reset(token)
    gathered: Tensor = _GatherColumns.apply(own, n_captions)  # type: ignore[no-untyped-call]
    return gathered


def encoded_in_shares(encode: Callable[[slice], Tensor], n: int) -> Tensor:
    """Encode a batch in shares, one per rank; for encoders that are most of the work.

    What is made of the result must be computed by every rank alike, without a split of its own: each rank then has
    the whole gradient of its own rows.

    Args:
        encode: vectors of a slice of the batch, float ``(share, dim)``.
        n: rows of the batch.

    Returns:
        float ``(n, dim)``, equal on all ranks.
    """
    if not _is_split(n):
        return encode(slice(0, n))
    gathered: Tensor = _GatherColumns.apply(encode(own_columns(n)).T, n)  # type: ignore[no-untyped-call]
    return gathered.T


def own_strips(n: int, size: int) -> list[slice]:
    """This rank's strips of a symmetric matrix, of which each holds the entries on and below the diagonal.

    Strips get shorter from left to right, so they are dealt out to and fro. A matrix of fewer columns than ranks
    is not split.

    Args:
        n: columns.
        size: most columns of a strip; fewer where a rank would get less than two strips.
    """
    split, ranks = _is_split(n), range(world_size())
    if split:
        size = min(size, max(1, n // (2 * len(ranks))))
    strips = [slice(first, min(first + size, n)) for first in range(0, n, size)]
    turns = cycle([*ranks, *reversed(ranks)])
    return [strip for strip, turn in zip(strips, turns, strict=False) if not split or turn == rank()]


def summed_over_ranks(own: Tensor) -> Tensor:
    """A symmetric matrix from what every rank has made of it, zero elsewhere.

    Args:
        own: float ``(n, n, ...)``, made of :func:`own_strips`.
    """
    if not _is_split(len(own)):
        return own
    whole: Tensor = _Sum.apply(own)  # type: ignore[no-untyped-call]
    return whole


def _is_split(n: int) -> bool:
    return n >= world_size() > 1


def of_all_captions(values: Tensor) -> Tensor:
    """One value per caption, in the order of the batch, from every rank's block; without gradient.

    Args:
        values: float ``(block,)``, of this rank's captions while a matrix is split, else of all captions.
    """
    n_captions = _captions_split.get()
    return values if n_captions is None else _gather(values.detach()[None], n_captions)[0]


_captions_split: ContextVar[int | None] = ContextVar(
    "captions of the matrix that is being split", default=None
)


def _gather(own: Tensor, n_columns: int) -> Tensor:
    share, rest = divmod(n_columns, world_size())
    padded = own.new_zeros(share + (rest > 0), own.shape[0])
    padded[: own.shape[1]] = own.T
    blocks = [torch.empty_like(padded) for _ in range(world_size())]
    with answered():
        dist.all_gather(blocks, padded)
    return torch.cat([block[: share + (r < rest)] for r, block in enumerate(blocks)]).T.contiguous()


def gathered_on_first(own: Tensor, sizes: Sequence[int]) -> list[Tensor]:
    """Blocks of columns from every rank, on rank 0; without gradient.

    Args:
        own: float ``(rows, columns)``, this rank's block; ``(rows, 0)`` where it has none.
        sizes: columns of each rank's block, in the order of ranks, without those that have none.

    Returns:
        The blocks on rank 0, nothing on the others.
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
        return gradients[0][:, ctx.columns] * world_size(), None


class _Sum(torch.autograd.Function):
    """The sum over the ranks; its gradient too, since each rank may use the sum for strips of its own."""

    @staticmethod
    def forward(ctx: Any, own: Tensor) -> Tensor:
        return _sum(own)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> Tensor:
        return _sum(gradients[0])


def _sum(own: Tensor) -> Tensor:
    whole = own.to(torch.promote_types(own.dtype, torch.float32), copy=True).contiguous()
    with answered():
        dist.all_reduce(whole)
    return whole.to(own.dtype)


def average_gradients(parameters: Iterable[nn.Parameter]) -> None:
    """Replace every gradient by its mean over the ranks, in one message."""
    if world_size() == 1:
        return
    gradients = [p.grad for p in parameters if p.grad is not None]
    flat = torch.cat([gradient.flatten() for gradient in gradients])
    with answered():
        dist.all_reduce(flat)
    flat /= world_size()
    start = 0
    for gradient in gradients:
        gradient.copy_(flat[start : start + gradient.numel()].view_as(gradient))
        start += gradient.numel()
