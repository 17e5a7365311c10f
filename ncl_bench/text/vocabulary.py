"""Tokenizers and vocabularies: caption text to token ids."""

import hashlib
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

SPECIAL_WORDS = ("<pad>", "<start>", "<end>", "<unk>")
PAD, START, END, UNKNOWN = range(4)


@dataclass(frozen=True)
class Vocabulary:
    """Words and their ids.

    Attributes:
        words: word of id i at position i; published files may hold more ids than words, see ``size``.
        size: rows of the word embedding, at least ``len(words)``.
    """

    words: tuple[str, ...]
    size: int

    @cached_property
    def index(self) -> Mapping[str, int]:
        """Word to id."""
        return {word: position for position, word in enumerate(self.words)}

    @cached_property
    def sha256(self) -> str:
        """Hash (hex) of the words in order and the size."""
        text = "\n".join((*self.words, str(self.size)))
        return hashlib.sha256(text.encode()).hexdigest()

    def encode(self, words: Iterable[str]) -> list[int]:
        """Ids of a tokenised caption between ``<start>`` and ``<end>``; unknown words become ``<unk>``."""
        return [START, *(self.index.get(word, UNKNOWN) for word in words), END]

    def decode(self, ids: Iterable[int]) -> list[str]:
        """Words of token ids, special words left out."""
        return [self.words[i] for i in ids if i >= len(SPECIAL_WORDS)]


def build_vocabulary(captions: Iterable[Sequence[str]], *, threshold: int = 4) -> Vocabulary:
    """Words that occur at least ``threshold`` times, after the special ones.

    Args:
        captions: tokenised training captions.
        threshold: smallest count, at least 1.

    Returns:
        A vocabulary in the order of falling count, ties in alphabetical order of code points.
    """
    counts = Counter(word for caption in captions for word in caption)
    kept = sorted((word for word, count in counts.items() if count >= threshold), key=lambda w: (-counts[w], w))
    words = (*SPECIAL_WORDS, *(word for word in kept if word not in SPECIAL_WORDS))
    return Vocabulary(words, len(words))
