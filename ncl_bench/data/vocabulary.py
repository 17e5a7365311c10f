"""Words and their ids: built from training captions, or read from published json files."""

import hashlib
import json
import unicodedata
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from ncl_bench.errors import DataError
from ncl_bench.foreign import readable, reading

SPECIAL_WORDS = ("<pad>", "<start>", "<end>", "<unk>")
UNKNOWN_WORDS = ("<unk>", "[UNK]")
"""What stands for unknown words: in these vocabularies, and in BERT's."""
LARGEST_VOCABULARY = 2_000_000
"""Rows of a word embedding; the largest published vocabulary has 56,271."""


@dataclass(frozen=True)
class Vocabulary:
    """Words and their ids.

    Attributes:
        words: word of each id; empty string for an id without a word.
        size: rows of the word embedding, at least ``len(words)``.
    """

    words: tuple[str, ...]
    size: int

    @cached_property
    def index(self) -> Mapping[str, int]:
        """Word to id; a word in another Unicode form is found under its NFC form too."""
        # published vocabularies hold composed and decomposed spellings; an exact match wins
        exact = {word: position for position, word in enumerate(self.words) if word}
        return {unicodedata.normalize("NFC", word): position for word, position in exact.items()} | exact

    @cached_property
    def sha256(self) -> str:
        """Hash (hex) of the words in order and the size."""
        text = "\n".join((*self.words, str(self.size)))
        return hashlib.sha256(text.encode()).hexdigest()

    @property
    def start(self) -> int:
        """Id of ``<start>``."""
        return self.index["<start>"]

    @property
    def end(self) -> int:
        """Id of ``<end>``."""
        return self.index["<end>"]

    @property
    def unknown(self) -> int:
        """Id of ``<unk>``, which replaces words outside the vocabulary."""
        return self.index["<unk>"]

    @cached_property
    def unknown_ids(self) -> list[int]:
        """Ids that stand for unknown words."""
        return [self.index[word] for word in UNKNOWN_WORDS if word in self.index]

    def encode(self, words: Iterable[str]) -> list[int]:
        """Return the ids of a tokenized caption, with ``<start>``, ``<end>`` and ``<unk>`` for unknown words."""
        # one look at the index for a caption: a property for every word takes longer than the words
        index, unknown = self.index, self.index["<unk>"]
        return [index["<start>"], *[index.get(word, unknown) for word in words], index["<end>"]]

    def decode(self, ids: Iterable[int]) -> list[str]:
        """Return the words of token ids, without special words and ids without a word."""
        words = (self.words[i] for i in ids if i < len(self.words))
        return [word for word in words if word and word not in SPECIAL_WORDS]


def build_vocabulary(counts: Mapping[str, int], *, threshold: int = 4) -> Vocabulary:
    """Build a vocabulary of words that occur at least ``threshold`` times, after the special words.

    Args:
        counts: occurrences of each word in the training captions.
        threshold: smallest count, at least 1.

    Returns:
        A vocabulary by decreasing count, ties in order of code points.
    """
    # byte-pair encoding writes <unk> for what it does not know; it must not get a second id
    kept = [word for word, count in counts.items() if count >= threshold and word not in SPECIAL_WORDS]
    # ties by spelling: the ids depend on the counts alone, not on the order of the captions
    words = (*SPECIAL_WORDS, *sorted(kept, key=lambda word: (-counts[word], word)))
    return Vocabulary(words, len(words))


def vocabulary_json(vocabulary: Vocabulary) -> str:
    """Format a vocabulary as published, ``{"word2idx": ..., "idx2word": ..., "idx": size}``."""
    known = [(i, word) for i, word in enumerate(vocabulary.words) if word]
    content = {
        "word2idx": {word: i for i, word in known},
        "idx2word": {str(i): word for i, word in known},
        "idx": vocabulary.size,
    }
    return json.dumps(content)


def load_vocabulary(path: Path) -> Vocabulary:
    """Read a vocabulary file as published by SCAN, NCR and PC2; ids are kept.

    Raises:
        DataError: the file is missing or not in the published format.
    """
    content = readable(path, DataError, "a vocabulary, a json file").read_bytes()
    return parse_vocabulary(content, str(path))


def parse_vocabulary(content: bytes, name: str) -> Vocabulary:
    """Read the bytes of a published vocabulary file.

    It holds ``{"word2idx": {word: id}, "idx2word": {"id": word}, "idx": size}``.

    Args:
        content: the file's bytes.
        name: name of the file in errors.

    Raises:
        DataError: not json, not the published keys, an id not a whole number below ``idx``, ``word2idx`` and
            ``idx2word`` disagree, or ``<start>``, ``<end>`` or ``<unk>`` is missing.
    """
    with reading(f"vocabulary {name}", fix="fetch the published file again"):
        data = json.loads(content)
        word_to_id, size = data["word2idx"], data["idx"]
        # an escape in JSON may be half a character, which no file can hold
        "".join(word_to_id).encode()
        by_id = {i: word for word, i in word_to_id.items()}
        # not isinstance, because true and false are whole numbers to it
        whole = all(type(i) is int for i in (size, *by_id)) and all(0 <= i < size for i in by_id)
        if not whole or size > LARGEST_VOCABULARY:
            raise ValueError(f"its ids are no whole numbers below idx, or idx is above {LARGEST_VOCABULARY}")
        if {str(i): word for i, word in by_id.items()} != data["idx2word"]:
            raise ValueError("word2idx and idx2word disagree")
        if missing := [word for word in SPECIAL_WORDS[1:] if word not in word_to_id]:
            raise ValueError(f"it lacks {', '.join(missing)}")
    # published vocabularies have gaps: an id without a word stays empty, so that the others keep their place
    return Vocabulary(tuple(by_id.get(i, "") for i in range(max(by_id) + 1)), size)
