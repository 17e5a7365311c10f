"""PairedDataset to Batch: padded tensors, and the orders in which an epoch visits the pairs."""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from baselines.randomness import derive_seed
from ncl_bench.datasets.paired import PairedDataset

Ids = NDArray[np.int64]


@dataclass(frozen=True)
class Batch:
    """What a network sees of a list of pairs. It never holds the true correspondence.

    Attributes:
        image_features: float ``(pairs, regions, feature_dim)``.
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

    def to(self, device: torch.device) -> "Batch":
        """The same batch on a device."""
        return replace(self, **{name: x.to(device, non_blocking=True) for name, x in vars(self).items()})


def collate(dataset: PairedDataset, rows: Ids) -> Batch:
    """Read pairs from a dataset.

    Args:
        dataset: any split.
        rows: int64 ``(pairs,)``, positions in this dataset, in any order.
    """
    features = torch.from_numpy(dataset.image_features[dataset.caption_to_image[rows]]).float()
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
    epoch visits the pairs as the interrupted one did.

    Args:
        dataset: the training split.
        batch_size: pairs in a batch; an incomplete last batch is kept, a single left-over pair is not, since
            batch normalisation and in-batch negatives need two.
        seed: the run's seed.
        device: where batches go.
        pair_rows: positions that may be visited; all by default.
        on_batch: called with the number of pairs of each batch handed out, for the progress bar.
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
    ) -> None:
        if dataset.split != "train":
            raise ValueError(f"training reads the train split only, got {dataset.name}/{dataset.split}")
        self._dataset = dataset
        self.batch_size = batch_size
        self.seed = seed
        self._device = device or torch.device("cpu")
        self._rows = np.arange(len(dataset)) if pair_rows is None else pair_rows
        self._on_batch = on_batch
        self.epoch_key: tuple[object, ...] = ()

    @property
    def pair_ids(self) -> Tensor:
        """Every pair that may be visited, int64 ``(n,)``, ascending."""
        return torch.from_numpy(self._rows)

    def shuffled(self, *purpose: object, pair_ids: Tensor | None = None) -> Iterator[Batch]:
        """One pass over the pairs in random order.

        Args:
            purpose: names the order within the epoch, such as ``("clean", 0)``.
            pair_ids: int64, the pairs to visit; all by default.
        """
        rows = self._rows if pair_ids is None else pair_ids.cpu().numpy()
        seed = derive_seed(self.seed, "order", *self.epoch_key, *purpose)
        order = np.random.default_rng(seed).permutation(rows)
        for start in range(0, len(order), self.batch_size):
            chosen = order[start : start + self.batch_size]
            if len(chosen) > 1:
                yield self._read(chosen)

    def endless(self, *purpose: object, pair_ids: Tensor) -> Iterator[Batch]:
        """Passes over the pairs without end, each in its own order; needs at least two pairs."""
        if len(pair_ids) < 2:
            raise ValueError("an endless pass needs at least two pairs")
        turn = 0
        while True:
            yield from self.shuffled(*purpose, turn, pair_ids=pair_ids)
            turn += 1

    def _read(self, rows: Ids) -> Batch:
        if self._on_batch is not None:
            self._on_batch(len(rows))
        return collate(self._dataset, rows).to(self._device)


def in_blocks(rows: Ids, size: int) -> Iterable[Ids]:
    """Consecutive blocks of at most ``size`` rows."""
    return (rows[start : start + size] for start in range(0, len(rows), size))
