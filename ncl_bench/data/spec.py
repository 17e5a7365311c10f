"""Specification of a dataset: facts fixed by protocol.md, origin of its files, and how to read them."""

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import ClassVar, Literal, Protocol

import numpy as np

from ncl_bench.data.columns import FloatArray, Int64Array, TokenTable
from ncl_bench.data.download import Download
from ncl_bench.data.paired import PairedDataset
from ncl_bench.errors import DataError
from ncl_bench.noise.draw import NoiseRecord, NoiseUnit, draw_noise
from ncl_bench.noise.files import KnownNoise
from ncl_bench.progress import Progress, silent

SPLITS = ("train", "dev", "test")

TokenKey = tuple[str | None, str]
"""Which token ids of a dataset: the captions' language (None: a caption may be in any) and the tokenizer."""


@dataclass(frozen=True)
class KnownFile:
    """A published file whose hash is known.

    Attributes:
        name: of the file.
        sha256: its hash (hex), or the first digits of it where no more is known.
        bytes: size of the file, or None if unknown.
        where: a place that shares it, in words that end a sentence.
    """

    name: str
    sha256: str
    bytes: int | None = None
    where: str = ""


@dataclass(frozen=True)
class HubFile(KnownFile):
    """A known file that a dataset repository of the Hugging Face Hub holds.

    Attributes:
        repository: ``owner/name``.
        revision: the first digits of the commit.
    """

    repository: str = ""
    revision: str = ""


@dataclass(frozen=True)
class Origin:
    """Where a dataset comes from, as its card and ``ncl-bench datasets show`` print it.

    Attributes:
        summary: what the dataset is, in one or two sentences.
        homepage: where it is described.
        obtain: ways to get the files, one sentence each; links that were reported dead are left out.
        folders: names that the folder with the features may have.
        files: the files of each split, with ``{split}`` for the prefix.
        licence: the licence's name.
        licence_id: its identifier on the Hugging Face Hub.
        terms: what it allows, in one or two sentences.
        noise: where wrong pairs come from.
        upload: tables that may be uploaded: ``images``, ``captions``, both or none.
        upload_reason: why these, and no more.
        citation: BibTeX.
        prefixes: ``train``, ``dev`` and ``test`` to the prefix of their files.
        extra_files: further files that are read, each found by its name.
        dtypes: number types the published features may have.
        ids_span_splits: ids of all splits come from one list, so that no image may be in two splits.
        vocabulary: published vocabulary of the captions, or None.
        archive: published archive, or None if its hash is unknown; ``prepare --download`` fetches a
            :class:`HubFile`.
    """

    summary: str
    homepage: str
    obtain: tuple[str, ...]
    folders: tuple[str, ...]
    files: tuple[str, ...]
    licence: str
    licence_id: str
    terms: str
    noise: str
    upload: tuple[str, ...]
    upload_reason: str
    citation: str = ""
    prefixes: Mapping[str, str] = field(default_factory=lambda: {split: split for split in SPLITS})
    extra_files: tuple[str, ...] = ()
    dtypes: tuple[str, ...] = ("float32",)
    ids_span_splits: bool = True
    vocabulary: KnownFile | None = None
    archive: KnownFile | None = None

    def split_files(self, split: str) -> tuple[str, ...]:
        """File names of a split."""
        return tuple(name.format(split=self.prefixes[split]) for name in self.files)


@dataclass(frozen=True)
class SplitCaptions:
    """Captions of one split.

    Attributes:
        image_ids: one id per unique image.
        texts: language to captions, in the order of the clean pairing; empty where only token ids are
            published.
        tokens: the published token ids; empty where text is published.
        warnings: what deserves a look, in sentences.
    """

    image_ids: list[str]
    texts: Mapping[str, list[str]] = field(default_factory=dict)
    tokens: Mapping[TokenKey, TokenTable] = field(default_factory=dict)
    warnings: tuple[str, ...] = ()


@dataclass(frozen=True, eq=False)
class Matches:
    """True matches of the queries of one direction.

    Attributes:
        query: int64 ``(n_matches,)``, ascending; an image of i2t, a caption of t2i, by its place in the split.
        item: int64 ``(n_matches,)``, what is a true match of it, by its place in the split.
        total: int64 ``(n_queries,)``, true matches of each query in ascending order of queries; it also counts matches
            outside the split, which can never be found.
    """

    query: Int64Array
    item: Int64Array
    total: Int64Array


@dataclass(frozen=True, eq=False)
class Labels:
    """True matches by the labels of ECCV Caption and of CxC, as ``(i2t, t2i)`` each."""

    eccv: tuple[Matches, Matches]
    cxc: tuple[Matches, Matches]


@dataclass(frozen=True)
class LabelSource:
    """A package with labels of a split that know more true matches than the pairs of the dataset.

    Attributes:
        package: name of the module to import.
        extra: extra of ``pyproject.toml`` that installs it.
        read: the labels, given the id of every image of the split in order; raises a ScoresError for other images.
    """

    package: str
    extra: str
    read: Callable[[Iterable[object]], Labels]


def protocol_title(protocol: str) -> str:
    """A protocol in words: ``1K test``, ``200 test images``, or ``mean of five 1K folds``."""
    if protocol == "5fold-1k":
        return "mean of five 1K folds"
    return f"{protocol[:-1]}K test" if protocol.endswith("k") else f"{protocol} test images"


def protocol_images(protocol: str) -> int:
    """Images of the test split that a protocol is named after: 1,000 of ``1k``, 200 of ``200``, 5,000 of ``5fold-1k``.

    Raises:
        DataError: it is no such name.
    """
    found = re.fullmatch(r"(5fold-)?(\d+)(k?)", protocol)
    if found is None or (found[1] and protocol != "5fold-1k"):
        raise DataError(
            f"there is no protocol {protocol!r}; name it after the images of the test split, such as 200 or 1k"
        )
    return (5 if found[1] else 1) * int(found[2]) * (1_000 if found[3] else 1)


@dataclass(frozen=True)
class DatasetSpec:
    """One dataset; a subclass says how its files are read, an object is registered once.

    Attributes:
        name: the registry key, such as ``"flickr30k"``.
        title: the name as papers print it.
        images: number of unique images per split (``train``, ``dev``, ``test``).
        captions_per_image: captions of every image; a fact of the dataset, never inferred.
        n_regions: regions per image.
        feature_dim: dimension of one region feature.
        noise: ``"synthetic"`` (clean pairs, corrupted by us) or ``"natural"`` (crawled mismatches).
        protocols: evaluation protocols of the test split, first one is the default. Each is named after the images
            that it ranks among: ``200`` or ``1k`` for a test split of 200 or 1,000, ``5fold-1k`` for five folds of
            1,000 each, whose recalls are averaged.
        languages: caption languages, first one is the default.
        tokenizers: default tokenizer of each language.
        origin: where its files come from, and what may be passed on.
        order_fingerprints: of dev and test where they are known (see :mod:`ncl_bench.data.order`), so that scores can
            be checked without the data.
        shipped_tokenizers: tokenizers whose token ids are published in place of text; empty where text is. Results say
            which of them was used.
        noise_files: noise files of train that papers share. The seed of the first file of a unit and ratio is the
            protocol's seed for both; where no file has a seed, it is 0.
        best_published: protocol to the highest rSum of any published row, at any noise ratio and with any encoder.
        all_captions: split to its captions with those that the protocol leaves out, because their image has
            ``captions_per_image`` before them.
        labels: split to labels that know more true matches than the pairs of the dataset.
    """

    name: str
    title: str
    images: Mapping[str, int]
    captions_per_image: int
    n_regions: int
    feature_dim: int
    noise: Literal["synthetic", "natural"]
    protocols: tuple[str, ...]
    languages: tuple[str, ...]
    tokenizers: Mapping[str, str]
    origin: Origin
    order_fingerprints: Mapping[str, str] = field(default_factory=dict)
    shipped_tokenizers: tuple[str, ...] = ()
    noise_files: tuple[KnownNoise, ...] = ()
    best_published: Mapping[str, float] = field(default_factory=dict)
    all_captions: Mapping[str, int] = field(default_factory=dict)
    labels: Mapping[str, LabelSource] = field(default_factory=dict)

    embedded: ClassVar[bool] = False
    """Whether it comes with the package, so that it opens without prepared files."""

    def n_captions(self, split: str) -> int:
        """Number of captions of a split: images times ``captions_per_image``."""
        return self.images[split] * self.captions_per_image

    def standard_seed(self, unit: NoiseUnit, ratio: float) -> int:
        """The protocol's noise seed, which draws the file that papers share; 0 where no seed draws one.

        Args:
            unit: ``"caption"`` or ``"image"``; ``"similar"`` has the seeds of ``"caption"``.
            ratio: nominal, in [0, 1).
        """
        unit = "caption" if unit == "similar" else unit
        shared = (file.seed for file in self.noise_files if (file.unit, file.ratio) == (unit, ratio))
        return next(shared, None) or 0

    def train_captions(self) -> Sequence[str] | None:
        """The captions of train in the first language, or None where they must be read from a prepared folder."""
        return None

    def draw_noise(
        self,
        *,
        noise_ratio: float,
        noise_unit: NoiseUnit,
        seed: int | None = None,
        captions: Sequence[str] | None = None,
        progress: Progress = silent,
    ) -> tuple[Int64Array, NoiseRecord]:
        """Draw the noise of the train split; see :func:`ncl_bench.noise.draw.draw_noise`.

        Args:
            noise_ratio: nominal share, in [0, 1).
            noise_unit: ``"caption"``, ``"image"`` or ``"similar"``.
            seed: None for the protocol's seed.
            captions: of train, in the first language, for ``"similar"`` alone; an embedded dataset knows its own.
            progress: where ``"similar"`` reports the captions compared so far.

        Returns:
            ``caption_to_image`` int64 ``(n_captions,)``, and its record.

        Raises:
            NoiseError: a setting is refused.
        """
        if captions is None and noise_unit == "similar":
            captions = self.train_captions()
        return draw_noise(
            self.images["train"],
            self.captions_per_image,
            noise_ratio=noise_ratio,
            noise_unit=noise_unit,
            seed=self.standard_seed(noise_unit, noise_ratio) if seed is None else seed,
            captions=captions,
            progress=progress,
        )

    def read_captions(self, download: Download, paths: Sequence[str], split: str) -> SplitCaptions:
        """Captions (or token ids) and image ids of one split of a download.

        Args:
            download: the folder or zip file that the user gave.
            paths: ``origin.files`` of this split, below the download.
            split: ``train``, ``dev`` or ``test``.

        Raises:
            DataError: a file is missing, damaged or of another length than the protocol says.
        """
        raise NotImplementedError(f"{type(self).__name__} reads no download")

    def read_vocabularies(self, download: Download) -> dict[TokenKey, tuple[bytes, str]]:
        """Vocabularies that come with token ids: the json bytes of each, and where they are from; none by default."""
        return {}

    def load_embedded(self, split: str, language: str | None, tokenizer: str | None) -> PairedDataset:
        """One split of an embedded dataset."""
        raise NotImplementedError(f"{type(self).__name__} is not embedded")

    def picture(self, image_id: str, features: FloatArray) -> bytes | None:
        """An image as PNG, or None where there is none to show.

        Args:
            image_id: its id in the split.
            features: its regions, float ``(n_regions, feature_dim)``, from which some datasets draw it.
        """
        return None


class FeatureRows(Protocol):
    """Region features of the unique images of a split, in order."""

    @property
    def dtype(self) -> np.dtype[np.floating]: ...

    def blocks(self, first: int, size: int) -> Iterator[FloatArray]:
        """Blocks of ``size`` images (the last may be smaller) from image ``first`` on, in one buffer."""
        ...


@dataclass(frozen=True)
class Material:
    """A whole dataset whose names, sizes and texts are as expected, ready to be verified and written.

    Attributes:
        captions: of each split.
        features: of each split.
        vocabularies: json bytes behind the published token ids, with where they are from.
        fingerprints: of each split, where an embedded dataset fixes them; empty where they are computed while writing.
        identity: names and sizes of the files it comes from, or the fingerprints of an embedded dataset.
        times: modification times of those files; an interrupted preparation resumes only if they are unchanged.
    """

    captions: Mapping[str, SplitCaptions]
    features: Mapping[str, FeatureRows]
    vocabularies: Mapping[TokenKey, tuple[bytes, str]]
    fingerprints: Mapping[str, str]
    identity: object
    times: tuple[int, ...] = ()
