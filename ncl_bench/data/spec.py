"""Specification of a dataset: facts fixed by docs/protocol.md, origin of its files, and how to read them."""

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar, Literal, Protocol

import numpy as np

from ncl_bench.arguments import checked_arguments
from ncl_bench.data.columns import TokenTable
from ncl_bench.data.download import Download
from ncl_bench.data.judgements import Judgements
from ncl_bench.data.paired import PairedDataset
from ncl_bench.data.tokenizers import default_tokenizer
from ncl_bench.errors import DataError, NoiseError, known_name
from ncl_bench.noise import unit_of
from ncl_bench.noise.draw import Noise, NoiseUnit, clean_pairing, inject_noise, record_of
from ncl_bench.noise.files import KnownNoise
from ncl_bench.npy import BoolArray, FloatArray, Int64Array
from ncl_bench.plugins import Registry
from ncl_bench.progress import Progress, silent

if TYPE_CHECKING:  # records, which are slow to import
    from ncl_bench.data.encoding import Encoding

SplitName = Literal["train", "dev", "test"]
SPLITS = ("train", "dev", "test")

TokenKey = tuple[str | None, str]
"""Key of token ids: caption language (None if captions mix languages) and tokenizer."""


@dataclass(frozen=True)
class KnownFile:
    """A published file with a known hash.

    Attributes:
        name: name of the file.
        sha256: hash (hex), or its first digits if no more is known.
        bytes: size in bytes, or None if unknown.
        where: a place that shares it, as the end of a sentence.
    """

    name: str
    sha256: str
    bytes: int | None = None
    where: str = ""


@dataclass(frozen=True)
class HubFile(KnownFile):
    """A known file in a dataset repository of the Hugging Face Hub.

    Attributes:
        repository: ``owner/name``.
        revision: first digits of the commit.
    """

    repository: str = ""
    revision: str = ""


CLEAN_PAIRS = (
    "The pairs are clean. The benchmark corrupts only train, by exchanging the images of single captions or of whole "
    "groups of captions."
)
"""``Origin.noise`` of datasets with several captions per image."""
NATURAL_NOISE = "Natural: some pairs are wrong, and no list of them exists."


@dataclass(frozen=True, kw_only=True)
class Origin:
    """Origin of a dataset, as its card and ``ncl-bench datasets show`` print it; what is empty is left out.

    Attributes:
        summary: what the dataset is, in one or two sentences.
        homepage: page that describes it.
        obtain: ways to get the files, one sentence each; links reported dead are left out.
        folders: possible names of the folder with the features.
        files: files of each split, with ``{split}`` for the prefix.
        licence: name of the licence.
        licence_id: its identifier on the Hugging Face Hub.
        terms: what the licence permits, in one or two sentences.
        noise: source of wrong pairs (default: a sentence on :attr:`DatasetSpec.noise`).
        upload: tables that may be uploaded: ``images``, ``captions``, both or none.
        upload_reason: why these and no more.
        citation: BibTeX.
        licence_urls: addresses of the licences, or none.
        published: year in which the files were published (ISO 8601), or empty.
        prefixes: ``train``, ``dev`` and ``test`` to the prefix of their files.
        extra_files: other files to read, each found by its name.
        judgements: kind of people's judgements of test pairs to its file, which a download may lack.
        dtypes: number types that the published features may have.
        ids_span_splits: ids of all splits come from one list, so no image may be in two splits.
        vocabulary: published vocabulary of the captions, or None.
        archive: published archive, which ``prepare --download`` fetches, or None.
    """

    files: tuple[str, ...]
    licence: str
    citation: str = ""
    summary: str = ""
    homepage: str = ""
    obtain: tuple[str, ...] = ()
    folders: tuple[str, ...] = ()
    licence_id: str = "other"
    terms: str = ""
    noise: str = ""
    upload: tuple[str, ...] = ()
    upload_reason: str = "its module states no table that may be uploaded"
    licence_urls: tuple[str, ...] = ()
    published: str = ""
    prefixes: Mapping[str, str] = field(default_factory=lambda: {split: split for split in SPLITS})
    extra_files: tuple[str, ...] = ()
    judgements: Mapping[str, str] = field(default_factory=dict)
    dtypes: tuple[str, ...] = ("float32",)
    ids_span_splits: bool = True
    vocabulary: KnownFile | None = None
    archive: HubFile | None = None

    def split_files(self, split: str) -> tuple[str, ...]:
        """File names of a split."""
        return tuple(name.format(split=self.prefixes[split]) for name in self.files)


class FeatureRows(Protocol):
    """Region features of the unique images of a split, in order, read from a file."""

    @property
    def dtype(self) -> np.dtype[np.floating]: ...

    def blocks(self, size: int) -> Iterator[FloatArray]:
        """Iterate over blocks of ``size`` images (the last may be smaller), in one buffer."""
        ...


@dataclass(frozen=True, eq=False)
class Split:
    """One split of clean pairs, in a download or in the package.

    Attributes:
        image_ids: one id per unique image.
        captions: language to captions, in the order of the clean pairing; empty if only token ids are published.
        tokens: token ids: the published ones, and those that ``prepare`` makes.
        warnings: what deserves a look, in sentences.
        image_features: ``(n_images, n_regions, feature_dim)``; empty if only the texts were read.
        fingerprint: sha256 (hex) of an embedded split's content; a download's is computed while it is written.
        judgements: kind to people's judgements of pairs of this split.
    """

    image_ids: Sequence[str]
    captions: Mapping[str, Sequence[str]] = field(default_factory=dict)
    tokens: Mapping[TokenKey, TokenTable] = field(default_factory=dict)
    warnings: tuple[str, ...] = ()
    image_features: FloatArray | FeatureRows = field(default_factory=lambda: np.empty((0, 0, 0), np.float32))
    fingerprint: str = ""
    judgements: Mapping[str, Judgements] = field(default_factory=dict)

    def blocks(self, size: int) -> Iterator[FloatArray]:
        """Iterate over the features in blocks of ``size`` images; the last may be smaller."""
        features = self.image_features
        if isinstance(features, np.ndarray):
            return (features[start : start + size] for start in range(0, len(features), size))
        return features.blocks(size)


@dataclass(frozen=True, eq=False)
class Matches:
    """True matches of the queries of one direction.

    Attributes:
        query: int64 ``(n_matches,)``, ascending; image (i2t) or caption (t2i) by its position in the split.
        item: int64 ``(n_matches,)``, a true match of that query, by its position in the split.
        total: int64 ``(n_queries,)``, number of true matches of each query, in ascending order of queries; includes
            matches outside the split, which can never be found.
    """

    query: Int64Array
    item: Int64Array
    total: Int64Array


@dataclass(frozen=True, eq=False)
class Labels:
    """True matches by the labels of ECCV Caption and CxC, ``(i2t, t2i)`` each."""

    eccv: tuple[Matches, Matches]
    cxc: tuple[Matches, Matches]


@dataclass(frozen=True)
class LabelSource:
    """A package with labels of a split that has more true matches than the pairs of the dataset.

    Attributes:
        package: name of the module to import.
        extra: extra of ``pyproject.toml`` that installs it.
        read: returns the labels for the ids of all images of the split in order; raises a ScoresError for other images.
    """

    package: str
    extra: str
    read: Callable[[Iterable[object]], Labels]


def protocol_title(protocol: str) -> str:
    """Name a protocol in words: ``1K test``, ``200 test images``, or ``mean of five 1K folds``."""
    if protocol == "5fold-1k":
        return "mean of five 1K folds"
    return f"{protocol[:-1]}K test" if protocol.endswith("k") else f"{protocol} test images"


def protocol_images(protocol: str) -> int:
    """Number of images a protocol is named after: 1,000 for ``1k``, 200 for ``200``, 5,000 for ``5fold-1k``.

    Raises:
        DataError: the name has no such form.
    """
    if protocol == "5fold-1k":
        return 5_000
    match = re.fullmatch("([0-9]{1,15})(k?)", protocol)
    if match is None:
        raise DataError(
            f"no protocol {protocol!r} exists; name it after the number of test images, such as 200 or 1k"
        )
    return int(match[1]) * (1_000 if match[2] else 1)


@dataclass(frozen=True, kw_only=True)
class DatasetSpec:
    """One dataset; a subclass implements how its files are read, an object is registered once.

    Attributes:
        name: the registry key, such as ``"flickr30k"``.
        title: the name as papers print it (default: ``name``).
        images: number of unique images per split (``train``, ``dev``, ``test``).
        captions_per_image: captions of every image; stated, never inferred from data.
        n_regions: regions per image.
        feature_dim: dimension of one region feature.
        noise: ``"synthetic"`` (clean pairs, corrupted by the benchmark) or ``"natural"`` (mismatches from the web).
        protocols: evaluation protocols of the test split, the default first (default: all test images). Each is named
            after the number of images to rank: ``200`` or ``1k`` for a test split of 200 or 1,000, ``5fold-1k`` for the
            mean over five folds of 1,000.
        languages: caption languages, first one is the default.
        tokenizers: default tokenizer of each language (default: the language's own).
        origin: source of its files, and permitted uploads.
        order_fingerprints: known order fingerprints of dev and test (see :mod:`ncl_bench.data.order`), so that scores
            can be checked without the data.
        shipped_tokenizers: tokenizers whose token ids are published instead of text; empty if text is published.
            Results state which one was used.
        noise_files: noise files of train that papers share. The first file of a unit and ratio sets the protocol's seed
            for both; without a seed it is 0.
        all_captions: split to its number of captions including those that the protocol leaves out, because their image
            already has ``captions_per_image``.
        labels: split to labels with more true matches than the pairs of the dataset.
        judged: kind of people's judgements of test pairs to the number of those that a result is measured on, and the
            sha256 of what they say, sorted (:func:`ncl_bench.evaluation.people.in_order`).
        pair_labels: CSV file of labels of training pairs with natural noise (:mod:`ncl_bench.data.pair_labels`).
    """

    name: str
    title: str = ""
    images: Mapping[str, int]
    captions_per_image: int
    n_regions: int
    feature_dim: int
    noise: Literal["synthetic", "natural"] = "synthetic"
    protocols: tuple[str, ...] = ()
    languages: tuple[str, ...] = ("en",)
    tokenizers: Mapping[str, str] = field(default_factory=dict)
    origin: Origin
    order_fingerprints: Mapping[str, str] = field(default_factory=dict)
    shipped_tokenizers: tuple[str, ...] = ()
    noise_files: tuple[KnownNoise, ...] = ()
    all_captions: Mapping[str, int] = field(default_factory=dict)
    labels: Mapping[str, LabelSource] = field(default_factory=dict)
    judged: Mapping[str, tuple[int, str]] = field(default_factory=dict)
    pair_labels: Path | None = None

    embedded: ClassVar[bool] = False
    """Whether the dataset comes with the package and needs no prepared files."""

    def __post_init__(self) -> None:
        for fact, default in (
            ("title", self.name),
            ("protocols", (str(self.images["test"]),)),
            ("tokenizers", {language: default_tokenizer(language) for language in self.languages}),
        ):
            if not getattr(self, fact):
                object.__setattr__(self, fact, default)  # the object is frozen from here on

    def __hash__(self) -> int:
        return hash(self.name)  # names are unique, and some of the facts are not hashable

    @property
    def noise_in_words(self) -> str:
        """Source of wrong pairs, in sentences."""
        return self.origin.noise or (CLEAN_PAIRS if self.noise == "synthetic" else NATURAL_NOISE)

    def n_captions(self, split: str) -> int:
        """Number of captions of a split: images times ``captions_per_image``."""
        return self.images[split] * self.captions_per_image

    def standard_seed(self, unit: NoiseUnit, ratio: float) -> int:
        """The protocol's noise seed, which draws the file that papers share; 0 if no seed does.

        Args:
            unit: name of a unit; those that read captions have the seeds of ``"caption"``.
            ratio: nominal, in [0, 1).
        """
        unit = "caption" if unit_of(unit, drawn=False).reads_captions else unit
        shared = (file.seed for file in self.noise_files if (file.unit, file.ratio) == (unit, ratio))
        # the seed of a file that no seed draws is None
        return next(shared, None) or 0

    def train_captions(self) -> Sequence[str] | None:
        """Captions of train in the first language, or None if a prepared folder is needed to read them."""
        return None

    def draw_noise(
        self,
        *,
        noise_ratio: float,
        noise_unit: NoiseUnit,
        seed: int | None = None,
        captions: Sequence[str] | None = None,
        progress: Progress = silent,
    ) -> tuple[Int64Array, Noise]:
        """Draw the noise of the train split; see :func:`ncl_bench.noise.draw.inject_noise`.

        Args:
            noise_ratio: nominal share, in [0, 1).
            noise_unit: ``"caption"``, ``"image"``, ``"similar"`` or ``"noun"``.
            seed: None for the protocol's seed.
            captions: captions of train in the first language, for units that read them; embedded datasets have their
                own.
            progress: reports the captions that ``"similar"`` has compared.

        Returns:
            ``caption_to_image`` int64 ``(n_captions,)``, and its record.

        Raises:
            NoiseError: a setting is refused.
        """
        unit = unit_of(noise_unit)
        chosen = self.standard_seed(unit.name, noise_ratio) if seed is None else seed
        if captions is None and unit.reads_captions and self.embedded:
            noisy, record = _noise_of_own_captions(self, unit.name, noise_ratio, chosen)
            # the cached array serves all callers, and one may write to it
            return noisy.copy(), record
        noisy = inject_noise(
            clean_pairing(self.images["train"], self.captions_per_image),
            noise_ratio=noise_ratio,
            noise_unit=unit.name,
            seed=chosen,
            captions_per_image=self.captions_per_image,
            captions=captions,
            progress=progress,
        )
        return noisy, record_of(noisy, self.captions_per_image, unit.name, noise_ratio, chosen)

    def read_captions(self, download: Download, paths: Sequence[str], split: str) -> Split:
        """Read captions (or token ids) and image ids of one split of a download; a class for another layout writes it.

        ``prepare`` checks the numbers of ids and captions, and reads the features from ``paths[0]`` itself.

        Args:
            download: the folder or zip file that the user gave; ``download.open(path)`` opens a file of it, and
                :func:`ncl_bench.data.download.read_text` reads one whole.
            paths: ``origin.files`` of this split, in the download: features first.
            split: ``train``, ``dev`` or ``test``.

        Returns:
            One id per image, in the order of the features, and the captions of every language, those of an image in a
            row.

        Raises:
            DataError: a file is missing or damaged.
        """
        raise NotImplementedError(f"{type(self).__name__} reads no download")

    def read_vocabularies(self, download: Download) -> dict[TokenKey, tuple[bytes, str]]:
        """Read the vocabularies of shipped token ids: json bytes of each, and their source (default: none)."""
        return {}

    def drawn_images(self, split: str) -> Sequence[bytes] | None:
        """Images of a split as PNG, made when they are asked for; None if the package has none to show (default)."""
        return None


DATASETS: Registry[DatasetSpec] = Registry("dataset")
"""Every dataset by its name; :func:`ncl_bench.data.register` adds one."""


def dataset_spec(name: str) -> DatasetSpec:
    """Facts of a dataset, by name.

    Raises:
        DataError: the name is not in ``DATASETS``.
    """
    return DATASETS[known_name("dataset", name, DATASETS)]


def refuse_noise(spec: DatasetSpec, *given: object) -> None:
    """Refuse noise that is asked for, if it would come on top of natural noise: the protocol has no such setting."""
    if spec.noise == "natural" and any(given):
        raise NoiseError(
            f"{spec.name} carries natural noise, and the protocol adds none to it; leave the noise out"
        )


@checked_arguments(DataError)
def true_correspondence(dataset: PairedDataset) -> BoolArray:
    """Whether each caption is paired with its own image; for diagnosis, never an input to training.

    It is not an attribute of :class:`PairedDataset`, so that no training loop reads it by accident.

    Args:
        dataset: any split of a dataset with synthetic noise, or a dev or test split; also subsets and shards.

    Returns:
        bool ``(n_captions,)``.

    Raises:
        DataError: train of a dataset with natural noise, whose true correspondence is unknown.
    """
    if dataset.split == "train" and dataset_spec(dataset.name).noise == "natural":
        raise DataError(
            f"{dataset.name}/train carries natural noise, so its true correspondence is unknown; "
            "use a dataset with synthetic noise for diagnosis"
        )
    own: BoolArray = dataset.caption_to_image == dataset.pair_ids // dataset.captions_per_image
    return own


@lru_cache(typed=True)
def _noise_of_own_captions(
    spec: DatasetSpec, unit: NoiseUnit, ratio: float, seed: int
) -> tuple[Int64Array, Noise]:
    """Comparing the captions takes a second, and a board states the same noise in every row."""
    return spec.draw_noise(noise_ratio=ratio, noise_unit=unit, seed=seed, captions=spec.train_captions())


@dataclass(frozen=True)
class Material:
    """A whole dataset with checked names, sizes and texts; a download's numbers are not read yet.

    Attributes:
        splits: content of each split.
        vocabularies: json bytes behind the published token ids, with their source.
        identity: names and sizes of the source files, or the fingerprints of an embedded dataset.
        times: modification times of those files; an interrupted preparation resumes only if they are unchanged.
        download: the folder or zip file; None for an embedded dataset.
        texts: every file that is read, except the features, by its path in the download.
        encoding: how ``ncl-bench features`` made the features; None for features from elsewhere.
    """

    splits: Mapping[str, Split]
    vocabularies: Mapping[TokenKey, tuple[bytes, str]]
    identity: object
    times: tuple[int, ...] = ()
    download: Download | None = None
    texts: tuple[str, ...] = ()
    encoding: "Encoding | None" = None
