"""PairedDataset: the type that load_dataset returns, and training, scoring and evaluation use."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from inspect import Signature
from numbers import Integral
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, SupportsIndex

import numpy as np
from numpy.typing import NDArray

from ncl_bench import plugins
from ncl_bench.arguments import Count, Index, Seed, as_list, checked_arguments
from ncl_bench.data.columns import CaptionTokens, ImageFeatures, Rows, TableColumn, row_numbers, taken
from ncl_bench.data.judgements import JUDGEMENT_COLUMNS, Judgements, read_judgements
from ncl_bench.data.vocabulary import Vocabulary
from ncl_bench.errors import DataError, RowError, known_name, shorten
from ncl_bench.extras import require
from ncl_bench.foreign import reading
from ncl_bench.html import html_table
from ncl_bench.noise import unit_of
from ncl_bench.noise.draw import Noise
from ncl_bench.npy import FloatArray, Int64Array

if TYPE_CHECKING:
    import pandas as pd

    # a DataLoader is typed to take this class only; at run time its methods are enough
    from torch.utils.data import Dataset

    from ncl_bench.data.encoding import Encoding

    class _TorchDataset(Dataset[dict[str, Any]]): ...

else:
    _TorchDataset = object


@dataclass(frozen=True, eq=False)
class Pairs:
    """Some pairs of a dataset, in memory.

    Attributes:
        image_features: ``(n, n_regions, feature_dim)``, features of the image paired with each caption.
        image_lengths: int64 ``(n,)``, valid regions of each image.
        caption_tokens: int64 ``(n, longest)``, padded with 0.
        caption_lengths: int64 ``(n,)``, with start and end token.
        pair_ids: int64 ``(n,)``, positions in the full split: keys for per-pair memory, not rows of a subset.
    """

    image_features: FloatArray
    image_lengths: Int64Array
    caption_tokens: Int64Array
    caption_lengths: Int64Array
    pair_ids: Int64Array

    def __len__(self) -> int:
        """Number of pairs."""
        return len(self.pair_ids)


BATCH_COLUMNS = ("image_features", "image_lengths", "caption_tokens", "caption_lengths", "pair_ids")
"""What a pair holds by default: the arrays of :class:`Pairs`."""
MORE_COLUMNS = ("caption", "image_id", "image", "row")
"""What a pair can hold too; see ``columns`` of :func:`ncl_bench.load_dataset`."""

HF_ROWS = 256
"""Pairs read per block for the library ``datasets``."""


@dataclass(frozen=True, eq=False)
class PairedDataset(_TorchDataset):
    """Images, captions, and the image each caption is (perhaps wrongly) paired with.

    Example::

        train = ncl_bench.load_dataset("digits", noise_ratio=0.4)
        pairs = train.read(range(8))  # pairs.image_features, pairs.caption_tokens, ...
        loader = torch.utils.data.DataLoader(train, batch_size=128, shuffle=True)

    :func:`ncl_bench.load_dataset` opens it. Methods see ``caption_to_image`` only.
    :func:`ncl_bench.data.true_correspondence` gives the true pairing for diagnosis; it is a separate function so that
    no training loop reads it by accident.

    Attributes:
        name: registry key of the dataset.
        split: ``train``, ``dev`` or ``test``.
        image_features: ``(n_images, n_regions, feature_dim)``.
        image_ids: source ids of the images, ``(n_images,)``; a prepared dataset reads them from disk on demand, and
            ``numpy.asarray`` reads all of them.
        caption_to_image: int64 ``(n_captions,)``, row of the image each caption is paired with.
        pair_ids: int64 ``(n_captions,)``, positions in the full split; subsets and shards keep them. They are keys, not
            rows of this dataset.
        tokens: token ids of each caption.
        captions: caption texts, or None if licence or source give none.
        vocabulary: words of the token ids.
        captions_per_image: captions per image of the full, clean split.
        noise: noise of ``caption_to_image``.
        fingerprint: sha256 (hex) of the split's content, before noise.
        encoding: how ``ncl-bench features`` made the features; None for features from elsewhere.
        images: encoded file of each image, such as a JPEG, in the order of ``image_ids``; None if the dataset has only
            features. Not part of the fingerprint.
        columns: what a pair of ``dataset[row]`` and of a ``DataLoader`` holds.
        judgement_files: kind to the file of people's judgements; see :meth:`judgements`.
    """

    # help() would begin with 16 arguments that nobody passes
    __signature__: ClassVar[Signature] = Signature()

    name: str
    split: str
    image_features: ImageFeatures
    image_ids: NDArray[np.str_] | TableColumn
    caption_to_image: Int64Array
    pair_ids: Int64Array
    tokens: CaptionTokens
    captions: Sequence[str] | None
    vocabulary: Vocabulary
    captions_per_image: int
    noise: Noise
    fingerprint: str
    encoding: "Encoding | None" = None
    images: Sequence[bytes] | None = None
    columns: tuple[str, ...] = BATCH_COLUMNS
    judgement_files: Mapping[str, Path] = field(default_factory=dict)

    @checked_arguments(DataError)
    def judgements(self, kind: str) -> "pd.DataFrame":
        """What people say of pairs of an image and a caption, nearly all of them not each other's.

        Args:
            kind: ``expert``: three people rate from 1 (does not describe the image) to 4 (describes it); or ``crowd``:
                how many people say Yes and No.

        Returns:
            A frame with one row per pair: ``image`` and ``caption``, their rows in the full split; then ``rating_1`` to
            ``rating_3``, or ``yes`` and ``no``.
        """
        return self.judged(kind).to_pandas()

    @checked_arguments(DataError)
    def judged(self, kind: str) -> Judgements:
        """The judgements of one kind, in memory."""
        if known_name("kind of judgement", kind, JUDGEMENT_COLUMNS) not in self.judgement_files:
            raise DataError(
                f"{self.name}/{self.split} has no judgements by {kind}s; where people judged pairs of test, the "
                "download must hold their files when it is prepared"
            )
        return read_judgements(self.judgement_files[kind], kind, self.captions_per_image)

    def __repr__(self) -> str:
        return (
            f"<PairedDataset {self.name}/{self.split}: {len(self):,} captions, {self.n_images:,} images,\n"
            f" {self._features}, {self._moved}>"
        )

    def _repr_html_(self) -> str:
        """HTML table for notebooks."""
        facts = {
            "captions": f"{len(self):,}",
            "images": f"{self.n_images:,}",
            "each image": self._features,
            "noise": self._moved,
            "first caption": "no text" if self.captions is None else self.captions[0],
        }
        return html_table(facts.items(), ("", f"{self.name}/{self.split}"))

    @property
    def _features(self) -> str:
        return f"{self.n_regions} x {self.feature_dim} features ({self.image_features.dtype})"

    @property
    def _moved(self) -> str:
        noise = self.noise
        if not noise.unit:
            return "no synthetic noise"
        moved = unit_of(noise.unit, drawn=False).title
        # of these pairs: a subset may hold more or fewer than the split
        wrong = np.mean(self.caption_to_image != self.pair_ids // self.captions_per_image) if len(self) else 0
        return f"{noise.ratio:.0%} of {moved}, {wrong:.1%} of captions wrong"

    def __len__(self) -> int:
        """Number of pairs, equal to the number of captions."""
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

    @checked_arguments(DataError)
    def subset(self, rows: Rows) -> "PairedDataset":
        """Select pairs; images, ``pair_ids`` and vocabulary are kept.

        Args:
            rows: positions in this dataset, in any order, or a mask, bool ``(len(self),)``.

        Raises:
            RowError: a row does not exist.
        """
        rows = np.array(row_numbers(rows, len(self)))  # a copy, because texts and tokens are read by it later
        captions = None if self.captions is None else taken(self.captions, rows)
        part = replace(
            self,
            caption_to_image=self.caption_to_image[rows],
            pair_ids=self.pair_ids[rows],
            tokens=self.tokens.take(rows),
            captions=captions,
        )
        return part.pickled_as(partial(PairedDataset.subset, self, rows))

    @checked_arguments(DataError)
    def shard(self, n_shards: Count, index: Index) -> "PairedDataset":
        """Return one of ``n_shards`` consecutive parts of nearly equal length.

        Args:
            n_shards: number of parts, at least 1.
            index: number of the part, in [0, n_shards).

        Raises:
            DataError: a number is out of range.
        """
        if index >= n_shards:
            raise DataError(f"index is {index}, expected 0 to {n_shards - 1} for {n_shards} shards")
        size, rest = divmod(len(self), n_shards)
        # the first shards have one pair more, as many as remain
        start = index * size + min(index, rest)
        return self.subset(np.arange(start, start + size + (index < rest)))

    @checked_arguments(DataError)
    def first_images(self, n_images: Count) -> "PairedDataset":
        """Return the first images and their pairs; all if there are fewer.

        Args:
            n_images: number of images, at least 1, such as 1,000 for selection on dev.

        Raises:
            DataError: ``n_images`` is not a whole number, or too small.
        """
        n_images = min(n_images, self.n_images)
        # by the pairing, because noise gives a caption an image of another place
        part = self.subset(np.flatnonzero(self.caption_to_image < n_images))
        part = replace(
            part, image_features=self.image_features[:n_images], image_ids=self.image_ids[:n_images]
        )
        return part.pickled_as(partial(PairedDataset.first_images, self, n_images))

    def in_ram(self) -> "PairedDataset":
        """Read the features into memory; another process maps the files again."""
        # by rows: a slice of features on disk would stay on disk
        copy = replace(self, image_features=self.image_features[np.arange(self.n_images)])
        again = vars(self).get("_again")
        return copy if again is None else copy.pickled_as(again)

    def pickled_as(self, again: Callable[[], "PairedDataset"]) -> "PairedDataset":
        """Return this dataset with a pickle that reloads it instead of storing its arrays.

        A worker process then opens the same files and receives no arrays. ``dataclasses.replace`` drops the call: its
        result may differ, so its arrays are pickled.

        Args:
            again: returns this dataset in any process.
        """
        # no field of the frozen class, because `replace` would hand it on
        object.__setattr__(self, "_again", again)
        return self

    def __reduce_ex__(self, protocol: SupportsIndex) -> str | tuple[Any, ...]:
        again = vars(self).get("_again")
        if again is None:
            return super().__reduce_ex__(protocol)
        return _reopened, (tuple(plugin.given for plugin in plugins.loaded()), again)

    def __getitem__(self, row: int) -> dict[str, Any]:
        """Return one pair with the keys of :meth:`to_torch`, as ``torch.utils.data`` expects.

        Args:
            row: position in this dataset; -1 is the last.

        Returns:
            ``image_features`` ``(n_regions, feature_dim)``, ``image_lengths`` int, ``caption_tokens`` int64
            ``(length,)``, ``caption_lengths`` int, ``pair_ids`` int; or the columns that
            ``load_dataset`` was asked for.

        Raises:
            RowError: ``row`` does not exist or is not a whole number; use :meth:`read` for several rows.
        """
        given: Any = row
        if type(given) is bool or not isinstance(given, Integral):  # a bool is a whole number to Python
            raise RowError(
                f"row is {shorten(row)}, expected a whole number; read and subset take several rows"
            )
        return self.__getitems__([row])[0]

    def __getitems__(self, rows: Rows) -> list[dict[str, Any]]:
        """Return several pairs, read at once; a ``DataLoader`` calls this and stacks them.

        Args:
            rows: as for :meth:`read`.

        Returns:
            Pairs as from :meth:`__getitem__`, with tokens padded to the longest caption.
        """
        rows = row_numbers(rows, len(self))
        # the features are read only if a column needs them
        arrays = {} if {*self.columns} <= {*MORE_COLUMNS} else vars(self.read(rows))
        columns = {name: arrays[name] if name in arrays else self._more(name, rows) for name in self.columns}
        return [{name: values[row] for name, values in columns.items()} for row in range(len(rows))]

    def _more(self, name: str, rows: Int64Array) -> Any:
        """One of :data:`MORE_COLUMNS` for some rows."""
        if name == "row":
            return rows
        if name == "caption":
            return list(taken(self.captions or (), rows))
        images = self.caption_to_image[rows]
        if name == "image":
            return list(taken(self.images or (), images))
        return [str(each) for each in taken(self.image_ids, images)]

    @checked_arguments(DataError)
    def with_columns(self, columns: str | Sequence[str]) -> "PairedDataset":
        """Return the same pairs with other columns; see ``columns`` of :func:`ncl_bench.load_dataset`."""
        columns = tuple(as_list(columns))
        for name in columns:
            known_name("column", name, (*BATCH_COLUMNS, *MORE_COLUMNS))
        missing = {"caption": self.captions, "image": self.images}
        for name in columns:
            # `self` stands for the columns that every dataset has
            if missing.get(name, self) is None:
                raise DataError(f"{self.name}/{self.split} holds no {name}s; leave the column {name!r} out")
        return replace(self, columns=columns)

    def __iter__(self) -> Iterator[dict[str, Any]]:
        """Iterate over single pairs, in order."""
        return (self[row] for row in range(len(self)))

    @checked_arguments(DataError)
    def read(self, rows: Rows) -> Pairs:
        """Read pairs into arrays.

        Args:
            rows: positions in this dataset, in any order, where -1 is the last; or a mask, bool ``(len(self),)``.

        Raises:
            RowError: a row does not exist, a mask has another length, or the rows are not whole numbers.
        """
        rows = row_numbers(rows, len(self))
        tokens, lengths = self.tokens.padded(rows)
        return Pairs(
            image_features=self.image_features[self.caption_to_image[rows]],
            image_lengths=np.full(len(rows), self.n_regions),
            caption_tokens=tokens,
            caption_lengths=lengths,
            pair_ids=self.pair_ids[rows],
        )

    @checked_arguments(DataError)
    def batches(self, batch_size: Count, *, seed: Seed | None = None) -> Iterator[Pairs]:
        """Iterate once over the pairs.

        Args:
            batch_size: pairs per batch, at least 1; the last batch may be smaller.
            seed: seed of the random order, at least 0; None keeps the order.

        Returns:
            Batches as from :meth:`read`.

        Raises:
            DataError: a number is out of range.
        """
        order = np.arange(len(self))
        if seed is not None:
            order = np.random.default_rng(seed).permutation(len(self))
        return (self.read(order[start : start + batch_size]) for start in range(0, len(order), batch_size))

    @checked_arguments(DataError)
    def to_torch(self, rows: Rows | None = None) -> dict[str, Any]:
        """Read pairs as torch tensors, with the names of :meth:`read` (default: all pairs). Needs torch.

        A ``DataLoader`` over the dataset gives the same tensors in batches, also from workers.

        Args:
            rows: as for :meth:`read`.
        """
        require("baselines", "torch", needed_by="to_torch")
        import torch

        pairs = self.read(np.arange(len(self)) if rows is None else rows)
        return {name: torch.from_numpy(array) for name, array in vars(pairs).items()}

    def to_hf(self) -> Any:
        """Convert to a ``datasets.Dataset`` in the format ``numpy``.

        The library copies the features of every pair into its cache, once: 0.3 MB per pair on Flickr30K. Training on a
        PairedDataset copies nothing.

        Returns:
            One row per pair: ``pair_id``, ``image_id``, ``image_features`` ``(n_regions, feature_dim)``,
            ``caption_tokens`` and, if the dataset has texts, ``caption``.
        """
        require("data", "datasets", needed_by="to_hf")
        from datasets import Array2D, Dataset, Features, List, Value

        kinds = {
            "pair_id": Value("int64"),
            "image_id": Value("string"),
            "image_features": Array2D((self.n_regions, self.feature_dim), str(self.image_features.dtype)),
            "caption_tokens": List(Value("int32")),
        }
        if self.captions is not None:
            kinds["caption"] = Value("string")
        content = f"{self.fingerprint} {self.noise.sha256} {self.vocabulary.sha256}"
        source = {"dataset": self, "content": content}
        return Dataset.from_generator(_hf_rows, features=Features(kinds), gen_kwargs=source).with_format(
            "numpy"
        )


def _reopened(given: tuple[str, ...], again: Callable[[], PairedDataset]) -> PairedDataset:
    """Open a dataset in another process, with the plugins that may have registered it."""
    plugins.load_plugins(given)
    return again()


def _hf_rows(dataset: PairedDataset, content: str) -> Iterator[dict[str, Any]]:
    """Rows for :meth:`PairedDataset.to_hf`; the library uses these arguments as its cache key."""
    columns = ("image_id", "image_features", "caption_tokens", "caption_lengths", "pair_ids")
    chosen = dataset.with_columns(columns if dataset.captions is None else (*columns, "caption"))
    for start in range(0, len(chosen), HF_ROWS):
        for pair in chosen.__getitems__(range(start, min(start + HF_ROWS, len(chosen)))):
            pair["pair_id"] = pair.pop("pair_ids")
            pair["caption_tokens"] = pair["caption_tokens"][: pair.pop("caption_lengths")]
            yield pair


@checked_arguments(DataError)
def collate(pairs: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Stack single pairs into the tensors of :meth:`PairedDataset.to_torch`. Needs torch.

    A ``DataLoader`` over a :class:`PairedDataset` does not need it. Use it as ``collate_fn`` for a ``ConcatDataset`` or
    a wrapper, which read pairs one by one, with captions of different lengths.

    Args:
        pairs: from :meth:`PairedDataset.__getitem__`, at least one.
    """
    import torch

    batch: dict[str, Any] = {}
    for name in pairs[0]:
        with reading(name, fix="give pairs of one dataset, or collate it on its own"):
            arrays = [np.asarray(pair[name]) for pair in pairs]
            if name == "caption_tokens":
                longest = max(map(len, arrays))
                arrays = [np.pad(array, (0, longest - len(array))) for array in arrays]
            stacked = np.stack(arrays)
            batch[name] = torch.from_numpy(stacked.astype(stacked.dtype.newbyteorder("="), copy=False))
    return batch
