"""PairedDataset: the one type that flows from load_dataset to training, scoring and evaluation."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, Protocol, SupportsIndex, overload

import numpy as np
from numpy.typing import NDArray

from ncl_bench.data.encoding import Encoding
from ncl_bench.data.vocabulary import Vocabulary
from ncl_bench.errors import DataError
from ncl_bench.noise.draw import NoiseRecord

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


class ImageIds(Protocol):
    """Source ids of images, ``(n_images,)``: an array in memory, or text on disk that is read when it is asked for."""

    def __len__(self) -> int: ...

    def __iter__(self) -> Iterator[Any]: ...

    def __getitem__(self, rows: Any, /) -> Any:
        """One id, or those that a slice or an array of rows chooses."""
        ...

    def tolist(self) -> list[Any]:
        """Every id."""
        ...


class EncodedImages(Protocol):
    """Encoded images, such as JPEG files: a list in memory or a column on disk."""

    def __len__(self) -> int: ...

    def __getitem__(self, row: int, /) -> bytes:
        """The file of one image."""
        ...


class CaptionTokens(Protocol):
    """Token ids of captions: a table of them, or made of texts when they are asked for."""

    def __len__(self) -> int: ...

    @property
    def lengths(self) -> Int64Array:
        """Length of each caption, int64 ``(n_captions,)``."""
        ...

    def padded(self, rows: Int64Array) -> tuple[Int64Array, Int64Array]:
        """Captions as a rectangle, int64 ``(n, longest)`` padded with 0, and their lengths, int64 ``(n,)``."""
        ...

    def take(self, rows: Int64Array) -> "CaptionTokens":
        """The captions ``rows``, int64 ``(n,)``, in the order asked for."""
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
        starts = self.offsets[rows]
        lengths = self.offsets[rows + 1] - starts  # the lengths of all captions would be made for every batch
        columns = np.arange(lengths.max(initial=0))
        valid = columns < lengths[:, None]
        tokens = np.zeros(valid.shape, dtype=np.int64)
        tokens[valid] = self.ids[(starts[:, None] + columns)[valid]]
        return tokens, lengths

    def take(self, rows: Int64Array) -> "TokenTable":
        """The captions ``rows``, int64 ``(n,)``, in the order asked for."""
        lengths = self.offsets[rows + 1] - self.offsets[rows]
        offsets = np.concatenate([[0], np.cumsum(lengths)]).astype(np.int64)
        shift = np.repeat(self.offsets[rows] - offsets[:-1], lengths)
        return TokenTable(self.ids[np.arange(offsets[-1]) + shift], offsets)


@dataclass(frozen=True, eq=False)
class ChosenTokens:
    """Some captions of others; no token id is copied before a caption is asked for.

    Attributes:
        tokens: all captions.
        rows: int64 ``(n,)``, which of them, in any order.
    """

    tokens: CaptionTokens
    rows: Int64Array

    def __len__(self) -> int:
        return len(self.rows)

    @property
    def lengths(self) -> Int64Array:
        """Length of each caption, int64 ``(n_captions,)``."""
        return self.tokens.lengths[self.rows]

    def padded(self, rows: Int64Array) -> tuple[Int64Array, Int64Array]:
        """Captions as a rectangle, int64 ``(n, longest)`` padded with 0, and their lengths, int64 ``(n,)``."""
        return self.tokens.padded(self.rows[rows])

    def take(self, rows: Int64Array) -> "ChosenTokens":
        """The captions ``rows``, int64 ``(n,)``, in the order asked for."""
        return ChosenTokens(self.tokens, self.rows[rows])


class CaptionsOnDisk(Sequence[str], ABC):
    """Texts of captions, each read when it is asked for."""

    @abstractmethod
    def text(self, row: int) -> str:
        """The text of one caption."""

    @overload
    def __getitem__(self, index: int) -> str: ...
    @overload
    def __getitem__(self, index: slice) -> Sequence[str]: ...
    def __getitem__(self, index: int | slice) -> str | Sequence[str]:
        if isinstance(index, slice):
            return [self.text(row) for row in range(*index.indices(len(self)))]
        return self.text(index)


@dataclass(frozen=True, eq=False)
class ChosenCaptions(CaptionsOnDisk):
    """Some texts of others; none is read before it is asked for.

    Attributes:
        captions: all texts.
        rows: int64 ``(n,)``, which of them, in any order.
    """

    captions: Sequence[str]
    rows: Int64Array

    def __len__(self) -> int:
        return len(self.rows)

    def text(self, row: int) -> str:
        """The text of one caption."""
        return self.captions[int(self.rows[row])]


def row_numbers(rows: Any, n: int) -> Int64Array:
    """Rows as numbers from 0 on: a mask, a slice and rows that count from the end as what they stand for.

    An array of numbers is only looked at, so that a few rows of many cost what a few rows of few do.

    Args:
        rows: what an array of ``n`` rows can be indexed with along its first axis.
        n: rows there are.

    Raises:
        IndexError: there is no such row.
    """
    if not isinstance(rows, np.ndarray) or rows.dtype.kind not in "iu" or rows.size == 0:
        numbers: Int64Array = np.arange(n)[rows]
        return numbers
    low, high = int(rows.min()), int(rows.max())
    if low < -n or high >= n:
        raise IndexError(f"row {high if high >= n else low} is outside the {n} rows")
    return rows if low >= 0 else np.where(rows < 0, rows + n, rows)


@dataclass(frozen=True, eq=False)
class LeadingImages:
    """The first images of other features; nothing is read before a row is asked for.

    Attributes:
        features: all images.
        n_images: how many of them, at most ``features.shape[0]``.
    """

    features: ImageFeatures
    n_images: int

    @property
    def shape(self) -> tuple[int, ...]:
        """``(n_images, n_regions, feature_dim)``."""
        return (self.n_images, *self.features.shape[1:])

    @property
    def dtype(self) -> np.dtype[np.floating]:
        """Type of the stored numbers."""
        return self.features.dtype

    def __getitem__(self, rows: Int64Array, /) -> FloatArray:
        """A fresh, writable copy of the chosen rows."""
        return self.features[row_numbers(rows, self.n_images)]


@dataclass(frozen=True, eq=False)
class Pairs:
    """Some pairs of a dataset, read into memory.

    Attributes:
        image_features: ``(n, n_regions, feature_dim)``, of the image that each caption is paired with.
        image_lengths: int64 ``(n,)``, valid regions of each image.
        caption_tokens: int64 ``(n, longest)``, padded with 0.
        caption_lengths: int64 ``(n,)``, start and end token included.
        pair_ids: int64 ``(n,)``, positions in the full split: keys for what is remembered about a pair, and no
            rows of a subset.
    """

    image_features: FloatArray
    image_lengths: Int64Array
    caption_tokens: Int64Array
    caption_lengths: Int64Array
    pair_ids: Int64Array

    def __len__(self) -> int:
        """Number of pairs."""
        return len(self.pair_ids)


@dataclass(frozen=True, eq=False)
class PairedDataset:
    """Images, captions, and which image each caption is (perhaps wrongly) paired with.

    A method sees ``caption_to_image`` only. The true pairing is joined for diagnosis by
    :func:`ncl_bench.data.true_correspondence`, which lives apart so that no training loop reads it by accident.

    Attributes:
        name: registry key of the dataset.
        split: ``train``, ``dev`` or ``test``.
        image_features: ``(n_images, n_regions, feature_dim)``.
        image_ids: source ids of the images, ``(n_images,)``; those of a prepared dataset are read from disk when
            they are asked for, and ``numpy.asarray`` gives all of them.
        caption_to_image: int64 ``(n_captions,)``, row of the image each caption is paired with.
        pair_ids: int64 ``(n_captions,)``, positions in the full split; they survive subsetting and sharding, and are
            keys, not rows of this dataset.
        tokens: token ids of each caption.
        captions: caption texts, or None where licence or source give none.
        vocabulary: the words behind the token ids.
        captions_per_image: of the full, clean split.
        noise: what corruption ``caption_to_image`` carries.
        fingerprint: sha256 (hex) of the split's content, before noise.
        encoding: how ``ncl-bench features`` made the features; None where they come from elsewhere.
        images: an encoded file of each image, such as a JPEG, in the order of ``image_ids``; None where the dataset
            has features alone. They are no part of the fingerprint.
    """

    name: str
    split: str
    image_features: ImageFeatures
    image_ids: ImageIds
    caption_to_image: Int64Array
    pair_ids: Int64Array
    tokens: CaptionTokens
    captions: Sequence[str] | None
    vocabulary: Vocabulary
    captions_per_image: int
    noise: NoiseRecord
    fingerprint: str
    encoding: Encoding | None = None
    images: EncodedImages | None = None

    def __repr__(self) -> str:
        noise = self.noise
        moved = f"{noise.ratio:.0%} of {noise.unit}s moved" if noise.unit else "no synthetic noise"
        return (
            f"<PairedDataset {self.name}/{self.split}: {len(self):,} captions, {self.n_images:,} images of "
            f"{self.n_regions} x {self.feature_dim} features ({self.image_features.dtype}), {moved}>"
        )

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

    def subset(self, rows: Int64Array) -> "PairedDataset":
        """Some of the pairs; their images, ``pair_ids`` and vocabulary stay as they are.

        Args:
            rows: int64 ``(n,)``, positions in this dataset, in any order.
        """
        rows = np.array(row_numbers(rows, len(self)))  # texts and tokens are read by it later
        captions = None if self.captions is None else ChosenCaptions(self.captions, rows)
        part = replace(
            self,
            caption_to_image=self.caption_to_image[rows],
            pair_ids=self.pair_ids[rows],
            tokens=self.tokens.take(rows),
            captions=captions,
        )
        return part.pickled_as(partial(PairedDataset.subset, self, rows))

    def shard(self, n_shards: int, index: int) -> "PairedDataset":
        """One of ``n_shards`` consecutive parts of nearly equal length.

        Args:
            n_shards: how many parts, at least 1.
            index: which one, in [0, n_shards).

        Raises:
            DataError: ``index`` is outside that range.
        """
        if not 0 <= index < n_shards:
            raise DataError(f"shard index is {index}, expected 0 to {n_shards - 1} for {n_shards} shards")
        size, rest = divmod(len(self), n_shards)
        start = index * size + min(index, rest)
        return self.subset(np.arange(start, start + size + (index < rest)))

    def first_images(self, n_images: int) -> "PairedDataset":
        """The first images and the pairs that hold them; all of them where there are no more.

        Args:
            n_images: how many, such as 1,000 for selection on dev.
        """
        n_images = min(n_images, self.n_images)
        part = self.subset(np.flatnonzero(self.caption_to_image < n_images))
        features = LeadingImages(self.image_features, n_images)
        part = replace(part, image_features=features, image_ids=self.image_ids[:n_images])
        return part.pickled_as(partial(PairedDataset.first_images, self, n_images))

    def in_ram(self) -> "PairedDataset":
        """The same dataset with its features read into one array in memory; another process maps the files again."""
        copy = replace(self, image_features=self.image_features[np.arange(self.n_images)])
        again = vars(self).get("_again")
        return copy if again is None else copy.pickled_as(again)

    def pickled_as(self, again: Callable[[], "PairedDataset"]) -> "PairedDataset":
        """This dataset, of which a pickle holds a call that gives it again, in place of the arrays.

        So a worker process opens the same files, instead of being sent them. ``dataclasses.replace`` forgets the call:
        its result may hold something else, and is pickled with its arrays.

        Args:
            again: gives this dataset, in any process.
        """
        object.__setattr__(self, "_again", again)
        return self

    def __reduce_ex__(self, protocol: SupportsIndex) -> str | tuple[Any, ...]:
        again = vars(self).get("_again")
        return super().__reduce_ex__(protocol) if again is None else (again, ())

    def read(self, rows: Int64Array | Sequence[int]) -> Pairs:
        """Some pairs as arrays.

        Args:
            rows: ``(n,)``, positions in this dataset from 0 to ``len(self) - 1``, in any order.
        """
        rows = np.asarray(rows, np.int64)
        tokens, lengths = self.tokens.padded(rows)
        return Pairs(
            image_features=self.image_features[self.caption_to_image[rows]],
            image_lengths=np.full(len(rows), self.n_regions),
            caption_tokens=tokens,
            caption_lengths=lengths,
            pair_ids=self.pair_ids[rows],
        )

    def batches(self, batch_size: int, *, seed: int | None = None) -> Iterator[Pairs]:
        """One pass over the pairs.

        Args:
            batch_size: pairs in a batch; the last one may hold fewer.
            seed: of the random order; None keeps the pairs in order.

        Yields:
            What :meth:`read` returns.
        """
        order = np.arange(len(self)) if seed is None else np.random.default_rng(seed).permutation(len(self))
        for start in range(0, len(order), batch_size):
            yield self.read(order[start : start + batch_size])

    def to_torch(self, rows: Int64Array | Sequence[int] | None = None) -> dict[str, Any]:
        """The arrays of :meth:`read` as torch tensors, by name; every pair by default. Needs torch.

        As ``collate_fn`` of a ``DataLoader`` over ``range(len(dataset))`` it gives batches, from workers too.
        """
        import torch

        pairs = self.read(np.arange(len(self)) if rows is None else rows)
        return {name: torch.from_numpy(array) for name, array in vars(pairs).items()}
