"""Cut many captions in parallel and number their words, in constant memory per caption."""

import os
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from ncl_bench.data.paired import Int64Array, TokenTable
from ncl_bench.data.text import Tokenizer, Vocabulary, tokenizer, vocabulary_from_counts
from ncl_bench.processes import worker_pool
from ncl_bench.progress import Advance

CHUNK = 5_000
"""Captions per piece of work; fewer than four pieces are not worth a process."""

_Chunk = tuple[list[str], NDArray[np.int32], NDArray[np.int32]]


@dataclass(frozen=True)
class CutCaptions:
    """Captions as words, each different word stored once.

    Attributes:
        words: every word, in order of first use.
        tokens: caption ``c`` is ``words[i] for i in tokens.ids[offsets[c]:offsets[c + 1]]``.
    """

    words: list[str]
    tokens: TokenTable

    def vocabulary(self, threshold: int) -> Vocabulary:
        """The vocabulary of these captions, in its stable order."""
        counts = np.bincount(self.tokens.ids, minlength=len(self.words)).tolist()
        return vocabulary_from_counts(dict(zip(self.words, counts, strict=True)), threshold=threshold)

    def encoded(self, vocabulary: Vocabulary) -> TokenTable:
        """Token ids between start and end token, as :meth:`Vocabulary.encode` gives them."""
        known = [vocabulary.index.get(word, vocabulary.unknown) for word in self.words]
        offsets = self.tokens.offsets + 2 * np.arange(len(self.tokens) + 1)
        ids = np.empty(offsets[-1], np.int32)
        first, last = offsets[:-1], offsets[1:] - 1
        inner = np.ones(len(ids), bool)
        inner[first] = inner[last] = False
        ids[first], ids[last] = vocabulary.start, vocabulary.end
        ids[inner] = np.array(known, np.int32)[self.tokens.ids]
        return TokenTable(ids, offsets)


def cut_captions(
    captions: Sequence[str], tokenizer_name: str, file: Path | None, advance: Advance
) -> CutCaptions:
    """Cut captions; the result does not depend on the number of processes.

    Args:
        captions: in order.
        tokenizer_name: see :func:`ncl_bench.data.text.tokenizer`.
        file: its ``tokenizer.json``, where it needs one.
        advance: called with the captions done.
    """
    chunks = [list(captions[start : start + CHUNK]) for start in range(0, len(captions), CHUNK)]
    words: dict[str, int] = {}
    ids, lengths = [], []
    for chunk_words, chunk_ids, chunk_lengths in _cut_chunks(chunks, tokenizer_name, file):
        numbers = np.array([words.setdefault(word, len(words)) for word in chunk_words], np.int32)
        ids.append(numbers[chunk_ids])
        lengths.append(chunk_lengths)
        advance(len(chunk_lengths))
    offsets: Int64Array = np.concatenate([[0], np.cumsum(np.concatenate(lengths))]).astype(np.int64)
    return CutCaptions(list(words), TokenTable(np.concatenate(ids), offsets))


def _cut_chunks(chunks: list[list[str]], name: str, file: Path | None) -> Iterator[_Chunk]:
    processes = min(len(chunks) // 4, os.cpu_count() or 1)
    if processes < 2:
        cut = tokenizer(name, file=file)
        yield from (_cut_chunk(chunk, cut) for chunk in chunks)
        return
    with worker_pool(processes, _start_worker, (name, file)) as pool:
        yield from pool.map(_cut_in_worker, chunks)


_worker_tokenizer: list[Tokenizer] = []


def _start_worker(name: str, file: Path | None) -> None:
    _worker_tokenizer.append(tokenizer(name, file=file))


def _cut_in_worker(captions: list[str]) -> _Chunk:
    return _cut_chunk(captions, _worker_tokenizer[0])


def _cut_chunk(captions: Iterable[str], cut: Tokenizer) -> _Chunk:
    words: dict[str, int] = {}
    ids: list[int] = []
    lengths: list[int] = []
    for caption in captions:
        found = cut(caption)
        ids.extend(words.setdefault(word, len(words)) for word in found)
        lengths.append(len(found))
    return list(words), np.array(ids, np.int32), np.array(lengths, np.int32)
