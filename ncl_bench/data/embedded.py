"""Base of embedded datasets: make a ``PairedDataset`` from features, ids and captions in memory."""

import hashlib
from abc import abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from pathlib import Path
from typing import Any, ClassVar, TypeVar, cast

import numpy as np
from numpy.typing import NDArray

from ncl_bench.data.columns import TokenTable
from ncl_bench.data.paired import PairedDataset
from ncl_bench.data.spec import SPLITS, DatasetSpec, Material, Split, TokenKey
from ncl_bench.data.tokenize import counted, tokenize_captions, with_ids
from ncl_bench.data.vocabulary import Vocabulary, build_vocabulary, vocabulary_json
from ncl_bench.errors import known_name
from ncl_bench.noise.draw import clean_pairing, clean_record
from ncl_bench.npy import Float32Array

TOKENIZERS_WITHOUT_FILE = ("word", "word-punkt", "jieba")

Scalar = TypeVar("Scalar", bound=np.generic)


def embedded_split(
    image_features: Float32Array, image_ids: Sequence[str], captions: Mapping[str, tuple[str, ...]]
) -> Split:
    """Make a split of an embedded dataset; its features become read-only.

    Args:
        image_features: float32 ``(n_images, n_regions, feature_dim)``.
        image_ids: one id per image.
        captions: language to captions, in the order of the clean pairing.

    Returns:
        The split, with the sha256 of features, ids and captions of every language as its fingerprint.
    """
    # little-endian, so that the fingerprint is the same on every machine
    digest = hashlib.sha256(image_features.astype("<f4", copy=False).tobytes())
    for lines in (image_ids, *captions.values()):
        digest.update("\n".join(lines).encode() + b"\n\n")
    features = frozen(image_features)
    return Split(image_ids, captions, image_features=features, fingerprint=digest.hexdigest())


@dataclass(frozen=True, eq=False)
class MadeImages(Sequence[bytes]):
    """Images as PNG, each made when it is asked for.

    Attributes:
        sources: what images are made from; a slice of it gives some of the images.
        make: one source to its image.
    """

    sources: Any
    make: Callable[[Any], bytes]

    def __len__(self) -> int:
        return len(self.sources)

    def __getitem__(self, row: Any) -> Any:
        """One image, or some that are not made yet."""
        sources = self.sources[row]
        return MadeImages(sources, self.make) if isinstance(row, slice) else self.make(sources)


class EmbeddedDataset(DatasetSpec):
    """A dataset that comes with the package; a subclass provides the content of its splits."""

    embedded = True
    word_threshold: ClassVar[int] = 1
    """Minimum count of a word in the training captions; rarer words share the vector of unknown words."""
    columns: ClassVar[Mapping[str, str]] = {}
    """Columns of the first of :attr:`files`, if it is a table, to what they hold."""

    @property
    def files(self) -> tuple[Path, ...]:
        """The files of the package that hold it."""
        return ()

    @abstractmethod
    def content(self, split: str) -> Split:
        """Content of one split, made once per process."""

    def train_captions(self) -> tuple[str, ...]:
        """The captions of train in the first language."""
        return tuple(self.content("train").captions[self.languages[0]])

    def load_embedded(
        self, split: str, language: str | None = None, tokenizer: str | None = None
    ) -> PairedDataset:
        """Open one split of the embedded dataset, with clean pairs.

        Args:
            split: ``train``, ``dev`` or ``test``.
            language: one of ``languages`` (default: the first).
            tokenizer: one of ``TOKENIZERS_WITHOUT_FILE`` (default: the language's own).

        Raises:
            DataError: language or tokenizer is unknown.
        """
        language = known_name(f"language of {self.name}", language or self.languages[0], self.languages)
        tokenizer = tokenizer or self.tokenizers[language]
        known_name(f"tokenizer of {self.name}", tokenizer, TOKENIZERS_WITHOUT_FILE)
        content = self.content(split)
        pairing = clean_pairing(len(content.image_ids), self.captions_per_image)
        return PairedDataset(
            name=self.name,
            split=split,
            # a view of one read-only array: loading twice copies nothing
            image_features=np.asarray(content.image_features).view(),
            image_ids=frozen(np.array(content.image_ids)),
            caption_to_image=pairing,
            pair_ids=np.arange(len(pairing)),
            tokens=_tokens(self, split, language, tokenizer),
            captions=tuple(content.captions[language]),
            vocabulary=_vocabulary(self, language, tokenizer),
            captions_per_image=self.captions_per_image,
            noise=clean_record(pairing),
            fingerprint=content.fingerprint,
            images=self.drawn_images(split),
        )


@lru_cache
def _words(spec: EmbeddedDataset, split: str, language: str, tokenizer: str) -> tuple[list[str], TokenTable]:
    return tokenize_captions(spec.content(split).captions[language], tokenizer)


@lru_cache
def _vocabulary(spec: EmbeddedDataset, language: str, tokenizer: str) -> Vocabulary:
    counts = counted(*_words(spec, "train", language, tokenizer))
    return build_vocabulary(counts, threshold=spec.word_threshold)


@lru_cache
def _tokens(spec: EmbeddedDataset, split: str, language: str, tokenizer: str) -> TokenTable:
    tokens = with_ids(*_words(spec, split, language, tokenizer), _vocabulary(spec, language, tokenizer))
    return TokenTable(frozen(tokens.ids), frozen(tokens.offsets))


def frozen(array: NDArray[Scalar]) -> NDArray[Scalar]:
    """Make the array read-only and return it."""
    # the arrays are cached and shared by all who load the split
    array.setflags(write=False)
    return array


def embedded_material(spec: DatasetSpec) -> Material:
    """Collect an embedded dataset in every language, so that ``prepare`` writes it like any other."""
    spec = cast(EmbeddedDataset, spec)
    keys: list[TokenKey] = [(language, spec.tokenizers[language]) for language in spec.languages]
    splits = {
        split: replace(spec.content(split), tokens={key: _tokens(spec, split, *key) for key in keys})
        for split in SPLITS
    }
    vocabularies = {key: (vocabulary_json(_vocabulary(spec, *key)).encode(), "as embedded") for key in keys}
    return Material(
        splits, vocabularies, identity={split: each.fingerprint for split, each in splits.items()}
    )
