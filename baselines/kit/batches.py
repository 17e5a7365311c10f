"""PairedDataset to Batch: padded tensors, the orders in which an epoch visits the pairs, and where they are read."""

import signal
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import count
from typing import Literal, Protocol, runtime_checkable

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.utils.data import DataLoader, Dataset

from baselines.kit.randomness import derive_seed
from ncl_bench.data.columns import FloatArray
from ncl_bench.data.paired import PairedDataset
from ncl_bench.errors import TrainingError

Ids = NDArray[np.int64]
Wanted = tuple[Ids, int | None]
"""Rows of a batch, and the seed of random changes of its images; None changes nothing."""
Features = Literal["auto", "mapped", "gpu"]
"""Where training features lie: on disk, mapped into memory, or on the device; ``auto`` chooses."""

READERS = 2
"""Processes that read batches from disk for a GPU."""
SHARE_OF_FREE = 0.5
"""Of a GPU's free memory, what features may take where nobody asked for them to lie there; the rest is for networks."""
IMAGES_AT_ONCE = 512


@dataclass(frozen=True)
class Batch:
    """What a network sees of a list of pairs. It never holds the true correspondence.

    Attributes:
        image_features: float ``(pairs, regions, feature_dim)``; the regions of an image itself are its patches.
        image_lengths: int64 ``(pairs,)``, valid regions of each image; the rest is zero padding.
        caption_tokens: int64 ``(pairs, longest)``, padded with 0.
        caption_lengths: int64 ``(pairs,)``, start and end token included.
        pair_ids: int64 ``(pairs,)``, positions in the full training split.

    Lengths lie on the CPU wherever the batch is: the shapes of the work follow from them, and a step that read them
    from a GPU would wait until it has done all its work.
    """

    image_features: Tensor
    image_lengths: Tensor
    caption_tokens: Tensor
    caption_lengths: Tensor
    pair_ids: Tensor

    def __len__(self) -> int:
        return len(self.pair_ids)

    def pin_memory(self) -> "Batch":
        """The same batch in page-locked memory, as a ``DataLoader`` asks for it."""
        return replace(self, **{name: x.pin_memory() for name, x in vars(self).items()})

    def to(self, device: torch.device) -> "Batch":
        """The same batch on a device; its lengths stay on the CPU."""
        moved = {
            name: sent(vars(self)[name], device) for name in ("image_features", "caption_tokens", "pair_ids")
        }
        return replace(self, **moved)


def sent(values: Tensor, device: torch.device) -> Tensor:
    """A tensor on a device; a GPU fetches it from page-locked memory, so that the CPU need not wait."""
    if device.type == "cpu" or values.device.type != "cpu":
        return values.to(device)
    return (values.pin_memory() if device.type == "cuda" else values).to(device, non_blocking=True)


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
        features = resident[sent(torch.from_numpy(images), resident.device)].float()
    tokens, lengths = dataset.tokens.padded(rows)
    return Batch(
        image_features=features,
        image_lengths=torch.full((len(rows),), features.shape[1]),
        caption_tokens=torch.from_numpy(tokens),
        caption_lengths=torch.from_numpy(lengths),
        pair_ids=torch.from_numpy(dataset.pair_ids[rows]),
    )


class _Reader(Dataset[Batch]):
    """What a process that reads batches is given."""

    def __init__(self, dataset: PairedDataset) -> None:
        self._dataset = dataset

    def __getitem__(self, wanted: Wanted) -> Batch:
        rows, seed = wanted
        return collate(self._dataset, rows, seed=seed)


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

    Attributes:
        features: ``mapped`` or ``gpu``.
        readers: processes that read batches ahead; 0 reads them in this one, where no GPU would wait for the disk.

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
        self.readers = READERS if self._device.type == "cuda" and self._resident is None else 0
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

    def _read(self, wanted: Iterable[Wanted]) -> Iterator[Batch]:
        for batch in self._collated(wanted):
            moved = batch.to(self._device)
            if self._on_batch is not None:
                self._on_batch(len(moved))
            yield moved

    def _collated(self, wanted: Iterable[Wanted]) -> Iterable[Batch]:
        if self.readers == 0:
            return (collate(self._dataset, rows, self._resident, seed=seed) for rows, seed in wanted)
        return DataLoader(
            _Reader(self._dataset),
            batch_size=None,  # an entry of the sampler is a batch
            sampler=wanted,
            num_workers=self.readers,
            pin_memory=self._device.type == "cuda",
            worker_init_fn=_ignore_ctrl_c,
            generator=torch.Generator(),  # it draws a seed, which may not come from the generator of the training
        )


def _ignore_ctrl_c(_: int) -> None:
    """A terminal sends Ctrl-C to every process, but only the training process handles it; it ends its readers."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)


def in_blocks(rows: Ids, size: int) -> Iterable[Ids]:
    """Consecutive blocks of at most ``size`` rows."""
    return (rows[start : start + size] for start in range(0, len(rows), size))


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
