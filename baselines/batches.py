"""PairedDataset to Batch: padded tensors, and the orders in which an epoch visits the pairs."""

from collections.abc import Iterator
from dataclasses import dataclass, replace

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from baselines.randomness import derive_seed
from ncl_bench.datasets.paired import PairedDataset


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
        moved = {name: tensor.to(device, non_blocking=True) for name, tensor in vars(self).items()}
        return replace(self, **moved)
