"""PairedDataset: the one type that flows from load_dataset to training, scoring and evaluation."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from ncl_bench.noise import NoiseRecord
from ncl_bench.text import Vocabulary

Int64Array = NDArray[np.int64]
FloatArray = NDArray[np.floating]


class ImageFeatures(Protocol):
    """Region features, ``(n_images, n_regions, feature_dim)``: an array in memory or mapped from disk."""

    @property
    def shape(self) -> tuple[int, ...]: ...

    @property
    def dtype(self) -> np.dtype[np.floating]: ...

    def __getitem__(self, rows: Int64Array, /) -> FloatArray:
        """A fresh, writable copy of the chosen rows, in the order asked for (repeats allowed)."""
        ...


@dataclass(frozen=True, eq=False)
class TokenTable:
    """Token ids of many captions without padding: caption ``c`` is ``ids[offsets[c]:offsets[c + 1]]``.

    Attributes:
        ids: int32, all captions end to end; start and end token included.
        offsets: int64 ``(n_captions + 1,)``, rising from 0 to ``len(ids)``.
    """

    ids: NDArray[np.int32]
    offsets: Int64Array

    def __len__(self) -> int:
        return len(self.offsets) - 1

    @property
    def lengths(self) -> Int64Array:
        """Length of each caption, int64 ``(n_captions,)``."""
        return np.diff(self.offsets)

    def padded(self, rows: Int64Array) -> tuple[Int64Array, Int64Array]:
        """Captions as a rectangle.

        Args:
            rows: int64 ``(n,)``, which captions, in any order.

        Returns:
            tokens int64 ``(n, longest)`` padded with 0, lengths int64 ``(n,)``.
        """
        starts, lengths = self.offsets[rows], self.lengths[rows]
        columns = np.arange(lengths.max(initial=0))
        valid = columns < lengths[:, None]
        tokens = np.zeros(valid.shape, dtype=np.int64)
        tokens[valid] = self.ids[(starts[:, None] + columns)[valid]]
        return tokens, lengths


@dataclass(frozen=True, eq=False)
class PairedDataset:
    """Images, captions, and which image each caption is (perhaps wrongly) paired with.

    A method sees ``caption_to_image`` only. The true pairing is joined for diagnosis by
    :func:`ncl_bench.datasets.truth.true_correspondence`, which lives apart so that no training loop reads it by accident.

    Attributes:
        name: registry key of the dataset.
        split: ``train``, ``dev`` or ``test``.
        image_features: ``(n_images, n_regions, feature_dim)``.
        image_ids: source ids of the images, ``(n_images,)``.
        caption_to_image: int64 ``(n_captions,)``, row of the image each caption is paired with.
        pair_ids: int64 ``(n_captions,)``, positions in the full split; they survive subsetting and sharding.
        tokens: token ids of each caption.
        captions: caption texts, or None where licence or source give none.
        vocabulary: the words behind the token ids.
        captions_per_image: of the full, clean split.
        noise: what corruption ``caption_to_image`` carries.
        fingerprint: sha256 (hex) of the split's content, before noise.
    """

    name: str
    split: str
    image_features: ImageFeatures
    image_ids: NDArray[np.generic]
    caption_to_image: Int64Array
    pair_ids: Int64Array
    tokens: TokenTable
    captions: Sequence[str] | None
    vocabulary: Vocabulary
    captions_per_image: int
    noise: NoiseRecord
    fingerprint: str

    def __len__(self) -> int:
        """Number of pairs, which is the number of captions."""
        return len(self.caption_to_image)

    @property
    def n_images(self) -> int:
        """Number of unique images."""
        return self.image_features.shape[0]

    @property
    def n_regions(self) -> int:
        """Regions per image."""
        return self.image_features.shape[1]

    @property
    def feature_dim(self) -> int:
        """Dimension of one region feature."""
        return self.image_features.shape[2]
