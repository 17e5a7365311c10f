"""Tokenizing in parallel: the same result as one caption after the other."""

from collections import Counter
from itertools import chain, pairwise

import numpy as np
import pytest

from ncl_bench.data import tokenize
from ncl_bench.data.tokenizers import tokenizer
from ncl_bench.data.vocabulary import build_vocabulary

CAPTIONS = [f"dog number {i % 37} isn't at gate {i % 11}" for i in range(500)]


@pytest.mark.parametrize("chunk", [7, 60, 10_000])
def test_tokenized_captions_equal_one_after_the_other(chunk, monkeypatch):
    monkeypatch.setattr(tokenize, "CAPTIONS_PER_CHUNK", chunk)
    if chunk == 7:
        monkeypatch.setattr(tokenize.os, "cpu_count", lambda: 1)
    done = []
    different, rows = tokenize.tokenize_captions(CAPTIONS, "word", None, done.append)
    words = [tokenizer("word")(caption) for caption in CAPTIONS]
    vocabulary = build_vocabulary(Counter(chain.from_iterable(words)), threshold=12)
    assert sum(done) == len(CAPTIONS)
    assert [[different[i] for i in rows.ids[a:b]] for a, b in pairwise(rows.offsets)] == words
    table = tokenize.with_ids(different, rows, vocabulary)
    for c, expected in enumerate(words):
        ids = table.ids[table.offsets[c] : table.offsets[c + 1]]
        assert ids.tolist() == vocabulary.encode(expected)
    assert table.ids.dtype == np.int32


def test_other_vocabularies_make_unknown_words(monkeypatch):
    vocabulary = build_vocabulary({"dog": 4})
    words = tokenize.tokenize_captions(["a dog", "", "cat"], "word", None, lambda n: None)
    table = tokenize.with_ids(*words, vocabulary)
    assert table.ids.tolist() == [1, 3, 4, 2, 1, 2, 1, 3, 2]
    assert table.offsets.tolist() == [0, 4, 6, 9]
