"""PairedDataset to Batch: padded tensors, the orders in which an epoch visits the pairs, and where they are read."""

from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, replace
from itertools import count
from typing import Literal, Protocol, TypeVar, runtime_checkable

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from baselines.kit.on_host import remember, sent
from baselines.kit.randomness import derive_seed
from ncl_bench.data.columns import FloatArray
from ncl_bench.data.paired import PairedDataset
from ncl_bench.errors import TrainingError

Ids = NDArray[np.int64]
Features = Literal["auto", "mapped", "gpu"]
"""Where training features lie: on disk, mapped into memory, or on the device; ``auto`` chooses."""

AHEAD, READERS = 6, 3
"""Batches that wait in page-locked memory for a GPU, and threads that read them; a few even out the disk."""
SHARE_OF_FREE = 0.5
"""Of a GPU's free memory, what features may take where nobody asked for them to lie there; the rest is for networks."""
IMAGES_AT_ONCE = 512

Given = TypeVar("Given")
Made = TypeVar("Made")


@dataclass(frozen=True)
class Batch:
    """What a network sees of a list of pairs. It never holds the true correspondence.

    Attributes:
        image_features: float ``(pairs, regions, feature_dim)``; the regions of an image itself are its patches.
        image_lengths: int64 ``(pairs,)``, valid regions of each image; the rest is zero padding.
        caption_tokens: int64 ``(pairs, longest)``, padded with 0.
        caption_lengths: int64 ``(pairs,)``, start and end token included.
        pair_ids: int64 ``(pairs,)``, positions in the full training split.
    """

    image_features: Tensor
    image_lengths: Tensor
    caption_tokens: Tensor
    caption_lengths: Tensor
    pair_ids: Tensor

    def __len__(self) -> int:
        return len(self.pair_ids)

    def pinned(self) -> "Batch":
        """The same batch in page-locked memory, from where a GPU fetches it without waiting."""
        return replace(self, **{name: x.pin_memory() for name, x in vars(self).items()})

    def to(self, device: torch.device) -> "Batch":
        """The same batch on a device; lengths and pairs stay known on the host."""
        moved = {name: sent(x, device) for name, x in vars(self).items()}
        for name in ("image_lengths", "caption_lengths", "pair_ids"):
            remember(moved[name], vars(self)[name])
        return replace(self, **moved)


@runtime_checkable
class AugmentedImages(Protocol):
    """Images that come in another random version whenever they are trained on."""

    def augmented(self, rows: Ids, seeds: Sequence[Sequence[int]]) -> FloatArray:
        """Chosen images, ``(n, regions, feature_dim)``, each changed at random as its seed says."""
        ...


def collate(
    dataset: PairedDataset,
    rows: Ids,
    resident: Tensor | None = None,
    *,
    image_rows: Ids | None = None,
    seed: int | None = None,
) -> Batch:
    """Read pairs from a dataset.

    Args:
        dataset: any split.
        rows: int64 ``(pairs,)``, positions in this dataset, in any order.
        resident: the dataset's image features on a device; from the dataset by default.
        image_rows: int64 ``(pairs,)``, pairs whose images stand beside the captions; ``rows`` by default.
        seed: of the random changes of images that have such; None changes nothing.
    """
    images = dataset.caption_to_image[rows if image_rows is None else image_rows]
    if seed is not None and isinstance(dataset.image_features, AugmentedImages):
        seeds = [(seed, pair) for pair in dataset.pair_ids[rows].tolist()]
        features = torch.from_numpy(dataset.image_features.augmented(images, seeds))
    elif resident is None:
        features = torch.from_numpy(dataset.image_features[images]).float()
    else:
        features = resident[torch.from_numpy(images).to(resident.device)].float()
    tokens, lengths = dataset.tokens.padded(rows)
    return Batch(
        image_features=features,
        image_lengths=torch.full((len(rows),), features.shape[1]),
        caption_tokens=torch.from_numpy(tokens),
        caption_lengths=torch.from_numpy(lengths),
        pair_ids=torch.from_numpy(dataset.pair_ids[rows]),
    )


class TrainingBatches:
    """The training pairs, in the orders that one epoch asks for.

    Every order is a function of the run's seed, the epoch's key and the purpose named by the caller, so a resumed
    epoch visits the pairs as the interrupted one did. So are the random changes of images, which passes that train
    make, and :meth:`covering` and :meth:`read` do not.

    Args:
        dataset: the training split.
        batch_size: pairs in a batch; an incomplete last batch is kept, a single left-over pair is not, since
            batch normalisation and in-batch negatives need two.
        seed: the run's seed.
        device: where batches go.
        pair_rows: positions that may be visited; all by default.
        on_batch: called with the number of pairs of each batch handed out, for the progress bar.
        features: ``mapped``, read batch by batch, ``gpu``, kept on the device whole, or ``auto``, see
            :func:`where_features_lie`; batches are the same.
        ahead: batches that threads read before they are asked for, at least 0; by default some for a GPU that
            reads mapped features.

    Attributes:
        features: ``mapped`` or ``gpu``.

    Raises:
        TrainingError: the features do not fit on the device.
    """

    def __init__(
        self,
        dataset: PairedDataset,
        *,
        batch_size: int,
        seed: int,
        device: torch.device | None = None,
        pair_rows: Ids | None = None,
        on_batch: Callable[[int], None] | None = None,
        features: Features = "auto",
        ahead: int | None = None,
    ) -> None:
        if dataset.split != "train":
            raise ValueError(f"training reads the train split only, got {dataset.name}/{dataset.split}")
        self._dataset = dataset
        self.batch_size = batch_size
        self.seed = seed
        self._device = device or torch.device("cpu")
        self._rows = np.arange(len(dataset)) if pair_rows is None else pair_rows
        self._on_batch = on_batch
        self.features = where_features_lie(features, self._device, dataset)
        self._resident = features_on(self._device, dataset) if self.features == "gpu" else None
        self._pinned = self._device.type == "cuda" and self._resident is None
        self._ahead = (AHEAD if self._pinned else 0) if ahead is None else ahead
        self.epoch_key: tuple[object, ...] = ()

    @property
    def pair_ids(self) -> Tensor:
        """Every pair that may be visited, int64 ``(n,)``, ascending."""
        return torch.from_numpy(self._rows)

    def shuffled(
        self, *purpose: object, pair_ids: Tensor | None = None, batch_size: int | None = None
    ) -> Iterator[Batch]:
        """One pass over the pairs in random order.

        Args:
            purpose: names the order within the epoch, such as ``("clean", 0)``.
            pair_ids: int64, the pairs to visit; all by default.
            batch_size: pairs in a batch; the recipe's by default.
        """
        rows = self._rows if pair_ids is None else pair_ids.cpu().numpy()
        seed = derive_seed(self.seed, "images", *self.epoch_key, *purpose)
        return self._read((chosen, seed) for chosen in self._order(rows, self.epoch_key, purpose, batch_size))

    def covering(self, *purpose: object) -> Iterator[Batch]:
        """One pass over all pairs in random order that leaves none out: a single left-over pair joins the last batch.

        For passes that measure every pair. Batches of the others have at most ``batch_size`` pairs.
        """
        order = self._permutation(self._rows, self.epoch_key, purpose)
        blocks = list(in_blocks(order, self.batch_size))
        if len(blocks) > 1 and len(blocks[-1]) == 1:
            blocks[-2:] = [np.concatenate(blocks[-2:])]
        return self._read((chosen, None) for chosen in blocks)

    def endless(self, *purpose: object, pair_ids: Tensor, batch_size: int | None = None) -> Iterator[Batch]:
        """Passes over the pairs without end, each in its own order; needs at least two pairs."""
        if len(pair_ids) < 2:
            raise ValueError("an endless pass needs at least two pairs")
        rows, key = pair_ids.cpu().numpy(), self.epoch_key
        return self._read(
            (chosen, derive_seed(self.seed, "images", *key, *purpose, turn))
            for turn in count()
            for chosen in self._order(rows, key, (*purpose, turn), batch_size)
        )

    def read(self, pair_ids: Tensor, images_of: Tensor | None = None) -> Batch:
        """Some pairs, in the given order; they need not be among :attr:`pair_ids`.

        Args:
            pair_ids: int64 ``(n,)``.
            images_of: int64 ``(n,)``, pairs whose images stand beside the captions; their own by default.
        """
        rows = pair_ids.cpu().numpy()
        images = rows if images_of is None else images_of.cpu().numpy()
        return collate(self._dataset, rows, self._resident, image_rows=images).to(self._device)

    def _order(
        self, rows: Ids, key: tuple[object, ...], purpose: tuple[object, ...], batch_size: int | None
    ) -> Iterator[Ids]:
        order = self._permutation(rows, key, purpose)
        return (chosen for chosen in in_blocks(order, batch_size or self.batch_size) if len(chosen) > 1)

    def _permutation(self, rows: Ids, key: tuple[object, ...], purpose: tuple[object, ...]) -> Ids:
        seed = derive_seed(self.seed, "order", *key, *purpose)
        return np.random.default_rng(seed).permutation(rows)

    def _read(self, wanted: Iterable[tuple[Ids, int | None]]) -> Iterator[Batch]:
        read = made_ahead(wanted, self._collate, self._ahead, threads=READERS)
        for batch in sent_ahead(read, self._device) if self._pinned else (x.to(self._device) for x in read):
            if self._on_batch is not None:
                self._on_batch(len(batch))
            yield batch

    def _collate(self, wanted: tuple[Ids, int | None]) -> Batch:
        rows, seed = wanted
        if not self._pinned:
            return collate(self._dataset, rows, self._resident, seed=seed)
        with torch.cuda.device(self._device):
            return collate(self._dataset, rows, seed=seed).pinned()


def in_blocks(rows: Ids, size: int) -> Iterable[Ids]:
    """Consecutive blocks of at most ``size`` rows."""
    return (rows[start : start + size] for start in range(0, len(rows), size))


def sent_ahead(batches: Iterable[Batch], device: torch.device) -> Iterator[Batch]:
    """Batches on a GPU, each copied there while the one before is computed with.

    Args:
        batches: in page-locked memory.
        device: a CUDA device.
    """
    copying = torch.cuda.Stream(device)  # type: ignore[no-untyped-call]
    waiting: deque[tuple[Batch, torch.cuda.Event]] = deque()

    def ready() -> Batch:
        batch, copied = waiting.popleft()
        computing = torch.cuda.current_stream(device)
        computing.wait_event(copied)
        for tensor in vars(batch).values():
            tensor.record_stream(
                computing
            )  # its memory is not given to the next copy before it has been used
        return batch

    for batch in batches:
        with torch.cuda.stream(copying):
            waiting.append((batch.to(device), copying.record_event()))
        if len(waiting) > 1:
            yield ready()
    while waiting:
        yield ready()


def where_features_lie(
    asked: Features, device: torch.device, dataset: PairedDataset
) -> Literal["mapped", "gpu"]:
    """What ``auto`` chooses: a GPU where half of its free memory holds the features, else the disk.

    Args:
        asked: what is not ``auto`` is kept.
        device: that trains.
        dataset: the training split; images that are trained on themselves stay on disk.
    """
    if asked != "auto":
        return asked
    free = free_memory(device)
    if free is None or isinstance(dataset.image_features, AugmentedImages):
        return "mapped"
    return "gpu" if size_of_features(dataset) <= SHARE_OF_FREE * free else "mapped"


def features_on(device: torch.device, dataset: PairedDataset) -> Tensor:
    """All image features of a split, in the type they are stored in; float16 takes half the memory of float32.

    Args:
        device: where they go; on a CPU this is main memory.
        dataset: the training split.

    Returns:
        ``(n_images, n_regions, feature_dim)``.

    Raises:
        TrainingError: they do not fit into the GPU's free memory.
    """
    features = dataset.image_features
    dtype = torch.from_numpy(np.empty(0, features.dtype)).dtype
    needed, free = size_of_features(dataset), free_memory(device)
    if free is not None and needed > free:
        raise TrainingError(
            f"--features gpu needs {needed / 1e9:.1f} GB for the features of {dataset.name}, but {device} has "
            f"{free / 1e9:.1f} GB free; use --features mapped"
        )
    resident = torch.empty(features.shape, dtype=dtype, device=device)
    for start in range(0, dataset.n_images, IMAGES_AT_ONCE):
        rows = np.arange(start, min(start + IMAGES_AT_ONCE, dataset.n_images))
        resident[start : start + len(rows)] = torch.from_numpy(features[rows])
    return resident


def size_of_features(dataset: PairedDataset) -> int:
    """Bytes of all image features, in the type they are stored in."""
    features = dataset.image_features
    return int(np.prod(features.shape)) * np.dtype(features.dtype).itemsize


def free_memory(device: torch.device) -> int | None:
    """Free bytes of a GPU; None for a CPU, which can swap."""
    return torch.cuda.mem_get_info(device)[0] if device.type == "cuda" else None


def made_ahead(
    items: Iterable[Given], make: Callable[[Given], Made], depth: int, *, threads: int = 1
) -> Iterator[Made]:
    """``map(make, items)`` with up to ``depth`` results waiting before they are asked for.

    Results come in the order of ``map``; an error comes out where its result would have. When the iteration is left
    early, nothing more is made and the threads end.

    Args:
        items: what results are made from, read in the caller's thread.
        make: called once for each item.
        depth: at least 0; with 0 there is no thread.
        threads: that call ``make``, which must not depend on the order of its calls.
    """
    if depth == 0:
        yield from map(make, items)
        return
    waiting: deque[Future[Made]] = deque()
    with ThreadPoolExecutor(threads, thread_name_prefix="prefetch") as worker:
        try:
            for item in items:
                waiting.append(worker.submit(make, item))
                if len(waiting) > depth:
                    yield waiting.popleft().result()
            while waiting:
                yield waiting.popleft().result()
        finally:
            worker.shutdown(cancel_futures=True)
