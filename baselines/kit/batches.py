"""Batches of a PairedDataset: padded tensors, random orders of the pairs, and the place of the features.

Random numbers depend only on (seed, purpose, round, epoch), never on a shared stream. A resumed run therefore draws the
same numbers as an uninterrupted one, and two runs in one process cannot influence each other.
"""

import hashlib
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, replace
from itertools import count
from typing import Literal, Protocol, runtime_checkable

import numpy as np
import torch
from torch import Tensor
from torch.utils.data import DataLoader, Dataset

from ncl_bench.arguments import Features as Features
from ncl_bench.data.paired import PairedDataset
from ncl_bench.errors import TrainingError, as_size, named
from ncl_bench.npy import FloatArray, Int64Array
from ncl_bench.processes import ctrl_c_ignored

Ids = Int64Array
Wanted = tuple[Ids, int | None]
"""Rows of a batch, and the seed of its image augmentation; None applies none."""

READERS = 2
"""Number of processes that read batches from disk for a GPU."""
SHARE_OF_FREE = 0.5
"""Largest share of a GPU's free memory that ``auto`` gives to features; the networks need the rest."""
IMAGES_PER_COPY = 512
CPU_BYTES = 32 * 2**20
SHARE_OF_BLOCK = 4
"""A block's temporary tensors get one part in this many of a GPU's memory."""


def derive_seed(seed: int, *purpose: object) -> int:
    """Derive a seed for one purpose.

    Args:
        seed: seed of the run.
        purpose: purpose of the random numbers, such as ``("epoch", 0, 3)``; compared by their ``str``.

    Returns:
        An integer in [0, 2**32), the same on every machine and Python version.
    """
    text = "/".join(str(part) for part in (seed, *purpose))
    return int.from_bytes(hashlib.sha256(text.encode()).digest()[:4], "little")


@dataclass(frozen=True)
class Batch:
    """A batch of pairs as a network sees them, without the true correspondence.

    Attributes:
        image_features: float ``(pairs, regions, feature_dim)``; for raw images, the regions are patches.
        image_lengths: int64 ``(pairs,)``, valid regions of each image; the rest is zero padding.
        caption_tokens: int64 ``(pairs, longest)``, padded with 0.
        caption_lengths: int64 ``(pairs,)``, start and end token included.
        pair_ids: int64 ``(pairs,)``, positions in the full training split.

    Lengths always stay on the CPU.
    """

    image_features: Tensor
    image_lengths: Tensor
    caption_tokens: Tensor
    caption_lengths: Tensor
    pair_ids: Tensor

    def __len__(self) -> int:
        return len(self.pair_ids)

    def pin_memory(self) -> "Batch":
        """Return the batch in page-locked memory; ``DataLoader`` calls this."""
        return replace(self, **{name: x.pin_memory() for name, x in vars(self).items()})

    def to(self, device: torch.device) -> "Batch":
        """Return the batch on a device; lengths stay on the CPU."""
        # lengths determine shapes of tensors; reading them from a GPU would make every step wait for it
        moved = {
            name: to_device(vars(self)[name], device)
            for name in ("image_features", "caption_tokens", "pair_ids")
        }
        return replace(self, **moved)


def to_device(values: Tensor, device: torch.device) -> Tensor:
    """Move a tensor to a device; a copy to a GPU goes through page-locked memory, so that the CPU need not wait."""
    if device.type == "cpu" or values.device.type != "cpu":
        return values.to(device)
    # a copy from pageable memory would block, whatever non_blocking says
    return (values.pin_memory() if device.type == "cuda" else values).to(device, non_blocking=True)


def valid_items(lengths: Tensor, longest: int, device: torch.device) -> Tensor:
    """Bool ``(n, longest)`` on ``device``: True for the first ``lengths[i]`` items of row i."""
    return to_device(torch.arange(longest, device=lengths.device) < lengths[:, None], device)


@runtime_checkable
class AugmentedImages(Protocol):
    """Images that are augmented at random in training."""

    def augmented(self, rows: Ids, seeds: Sequence[Sequence[int]]) -> FloatArray:
        """Return chosen images, ``(n, regions, feature_dim)``, each augmented with its seed."""
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
        resident: image features that are already on a device; read from the dataset by default.
        image_rows: int64 ``(pairs,)``, pairs whose images are combined with the captions; ``rows`` by default.
        seed: seed of the image augmentation, if the images have one; None applies none.
    """
    images = dataset.caption_to_image[rows if image_rows is None else image_rows]
    if seed is not None and isinstance(dataset.image_features, AugmentedImages):
        # by pair, not by position in the batch: the crop of a pair is the same in every order
        seeds = [(seed, pair) for pair in dataset.pair_ids[rows].tolist()]
        features = torch.from_numpy(dataset.image_features.augmented(images, seeds))
    elif resident is None:
        # stored as float16 perhaps, which is half the bytes to read
        features = torch.from_numpy(dataset.image_features[images]).float()
    else:
        features = resident[to_device(torch.from_numpy(images), resident.device)].float()
    tokens, lengths = dataset.tokens.padded(rows)
    return Batch(
        image_features=features,
        image_lengths=torch.full((len(rows),), features.shape[1]),
        caption_tokens=torch.from_numpy(tokens),
        caption_lengths=torch.from_numpy(lengths),
        pair_ids=torch.from_numpy(dataset.pair_ids[rows]),
    )


class _Reader(Dataset[Batch]):
    """Dataset of the reader processes: an index is the rows of a batch, an item is the batch."""

    def __init__(self, dataset: PairedDataset) -> None:
        self._dataset = dataset

    def __getitem__(self, wanted: Wanted) -> Batch:
        rows, seed = wanted
        return collate(self._dataset, rows, seed=seed)


class TrainingBatches:
    """The training pairs of an epoch, in random orders.

    Every order depends only on the run's seed, the epoch's key and the purpose named by the caller, so a resumed epoch
    visits the pairs in the same order. The same holds for image augmentation, which :meth:`covering` and :meth:`read`
    do not apply.

    Args:
        dataset: training split.
        batch_size: pairs per batch. An incomplete last batch is kept unless it has one pair, because batch
            normalisation and in-batch negatives need two.
        seed: seed of the run.
        device: device of the batches.
        pair_rows: positions that may be visited; all by default.
        on_batch: called with the number of pairs of each batch, for the progress bar.
        features: ``mapped`` reads features batch by batch, ``gpu`` keeps all on the device, ``auto`` chooses, see
            :func:`where_features_lie`; the batches are the same.

    Attributes:
        features: ``mapped`` or ``gpu``.
        readers: processes that read batches ahead; 0 if no GPU would wait for the disk.
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
    ) -> None:
        if dataset.split != "train":
            raise ValueError(f"training reads the train split only, got {dataset.name}/{dataset.split}")
        self._dataset = dataset
        self.batch_size = batch_size
        self.seed = seed
        self.device = device or torch.device("cpu")
        self._rows = np.arange(len(dataset)) if pair_rows is None else pair_rows
        self._on_batch = on_batch
        self.features = where_features_lie(features, self.device, dataset)
        self._resident = features_on(self.device, dataset) if self.features == "gpu" else None
        self.readers = READERS if self.device.type == "cuda" and self._resident is None else 0
        self.epoch_key: tuple[object, ...] = ()

    @property
    def pair_ids(self) -> Tensor:
        """Ids of all pairs that may be visited, int64 ``(n,)``, ascending."""
        return torch.from_numpy(self._rows)

    @property
    def shown_images(self) -> Tensor:
        """Image that each pair of the split is shown with, int64 ``(n_pairs,)``."""
        return torch.from_numpy(self._dataset.caption_to_image)

    def shuffled(
        self, *purpose: object, pair_ids: Tensor | None = None, batch_size: int | None = None
    ) -> Iterator[Batch]:
        """Visit the pairs once in random order.

        Args:
            purpose: name of the order within the epoch, such as ``("clean", 0)``.
            pair_ids: int64, pairs to visit; all by default.
            batch_size: pairs per batch; the recipe's by default.
        """
        rows = self._rows if pair_ids is None else pair_ids.cpu().numpy()
        seed = derive_seed(self.seed, "images", *self.epoch_key, *purpose)
        size = batch_size or self.batch_size
        return self._read((chosen, seed) for chosen in self._order(rows, self.epoch_key, purpose, size))

    def covering(self, *purpose: object) -> Iterator[Batch]:
        """Visit every pair exactly once in random order, for passes that measure all pairs.

        Unlike in :meth:`shuffled`, a single pair left over is not dropped but joins the last batch, which then has
        ``batch_size + 1`` pairs.
        """
        order = self._permutation(self._rows, self.epoch_key, purpose)
        blocks = list(in_blocks(order, self.batch_size))
        if len(blocks) > 1 and len(blocks[-1]) == 1:
            # every pair must be measured, and a block of one has no negatives
            blocks[-2:] = [np.concatenate(blocks[-2:])]
        return self._read((chosen, None) for chosen in blocks)

    def endless(self, *purpose: object, pair_ids: Tensor) -> Iterator[Batch]:
        """Visit the pairs again and again, each time in another random order; needs at least two pairs."""
        if len(pair_ids) < 2:  # it would look for a batch for ever
            raise ValueError("an endless pass needs at least two pairs")
        rows, key = pair_ids.cpu().numpy(), self.epoch_key
        return self._read(
            (chosen, derive_seed(self.seed, "images", *key, *purpose, turn))
            # each turn is an order of its own, so the n-th batch follows from the seed, without a generator
            # to save
            for turn in count()
            for chosen in self._order(rows, key, (*purpose, turn), self.batch_size)
        )

    def read(self, pair_ids: Tensor, images_of: Tensor | None = None) -> Batch:
        """Read pairs in the given order; they need not be among :attr:`pair_ids`.

        Args:
            pair_ids: int64 ``(n,)``.
            images_of: int64 ``(n,)``, pairs whose images are combined with the captions; their own by default.
        """
        rows = pair_ids.cpu().numpy()
        images = rows if images_of is None else images_of.cpu().numpy()
        return collate(self._dataset, rows, self._resident, image_rows=images).to(self.device)

    def _order(
        self, rows: Ids, key: tuple[object, ...], purpose: tuple[object, ...], batch_size: int
    ) -> Iterator[Ids]:
        order = self._permutation(rows, key, purpose)
        # a block of one pair is dropped: it has no negatives, and batch normalisation fails on it
        return (chosen for chosen in in_blocks(order, batch_size) if len(chosen) > 1)

    def _permutation(self, rows: Ids, key: tuple[object, ...], purpose: tuple[object, ...]) -> Ids:
        seed = derive_seed(self.seed, "order", *key, *purpose)
        # a generator per pass: whatever else draws numbers, or resumes, the order stays
        return np.random.default_rng(seed).permutation(rows)

    def _read(self, wanted: Iterable[Wanted]) -> Iterator[Batch]:
        for batch in self._collated(wanted):
            moved = batch.to(self.device)
            if self._on_batch is not None:
                self._on_batch(len(moved))
            yield moved

    def _collated(self, wanted: Iterable[Wanted]) -> Iterable[Batch]:
        if self.readers == 0:
            return (collate(self._dataset, rows, self._resident, seed=seed) for rows, seed in wanted)
        loader = DataLoader(
            _Reader(self._dataset),
            batch_size=None,  # no batching by torch: each entry of the sampler is already a batch
            sampler=wanted,
            num_workers=self.readers,
            pin_memory=self.device.type == "cuda",
            generator=torch.Generator(),  # DataLoader draws a seed; the training's own generator must not change
        )
        with ctrl_c_ignored():  # only the training process handles it; it ends its readers
            return iter(loader)


def in_blocks(rows: Ids, size: int) -> Iterable[Ids]:
    """Consecutive blocks of at most ``size`` rows."""
    return (rows[start : start + size] for start in range(0, len(rows), size))


def where_features_lie(
    asked: Features, device: torch.device, dataset: PairedDataset
) -> Literal["mapped", "gpu"]:
    """Resolve ``auto``: the GPU if the features fit into half of its free memory, else the disk.

    Args:
        asked: place of the features; returned unchanged unless it is ``auto``.
        device: device that trains.
        dataset: training split; augmented images always stay on disk.
    """
    if asked != "auto":
        return asked
    free = free_memory(device)
    # augmentation works on single images, on the CPU
    if free is None or isinstance(dataset.image_features, AugmentedImages):
        return "mapped"
    return "gpu" if size_of_features(dataset) <= SHARE_OF_FREE * free else "mapped"


def features_on(device: torch.device, dataset: PairedDataset) -> Tensor:
    """Copy all image features of a split to a device, in their stored dtype; float16 needs half as much as float32.

    Args:
        device: target device; for a CPU this is main memory.
        dataset: training split.

    Returns:
        ``(n_images, n_regions, feature_dim)``.
    """
    features = dataset.image_features
    dtype = torch.from_numpy(np.empty(0, features.dtype)).dtype
    needed, free = size_of_features(dataset), free_memory(device)
    if free is not None and needed > free:
        raise TrainingError(
            f"{named('features', 'gpu')} needs {as_size(needed)} for the features of {dataset.name}, but {device} has "
            f"{as_size(free)} free, {as_size(needed - free)} too little; use {named('features', 'mapped')}"
        )
    # filled in parts, so that main memory never holds a second copy of a mapped file
    resident = torch.empty(features.shape, dtype=dtype, device=device)
    for start in range(0, dataset.n_images, IMAGES_PER_COPY):
        rows = np.arange(start, min(start + IMAGES_PER_COPY, dataset.n_images))
        resident[start : start + len(rows)] = torch.from_numpy(features[rows])
    return resident


def size_of_features(dataset: PairedDataset) -> int:
    """Return the size of all image features in bytes, in their stored dtype."""
    features = dataset.image_features
    return int(np.prod(features.shape)) * np.dtype(features.dtype).itemsize


def free_memory(device: torch.device) -> int | None:
    """Return the free memory of a GPU in bytes; None for a CPU, which can swap."""
    return torch.cuda.mem_get_info(device)[0] if device.type == "cuda" else None


_recorded_budget: ContextVar[int | None] = ContextVar("memory budget that a run has recorded", default=None)


@contextmanager
def recorded_budget(n_bytes: int | None) -> Iterator[None]:
    """Within it, :func:`memory_budget` returns what a run has recorded; with None, the device's own."""
    token = _recorded_budget.set(n_bytes)
    try:
        yield
    finally:
        _recorded_budget.reset(token)


def memory_budget(device: torch.device) -> int:
    """Return the memory for the temporary tensors of one block, in bytes.

    The block size influences the last bits of a result, because blocks are summed one after another. It therefore
    depends only on the device, not on its free memory: a constant on a CPU, a quarter of the total memory on a GPU. A
    resumed run keeps the budget that it has recorded, see :func:`recorded_budget`.
    """
    recorded = _recorded_budget.get()
    if recorded is not None:
        return recorded
    if device.type != "cuda":
        return CPU_BYTES
    total: int = torch.cuda.get_device_properties(device).total_memory
    return total // SHARE_OF_BLOCK
