"""Caption text to token ids: tokenizers and vocabularies."""

from ncl_bench.data.text.tokenizers import TOKENIZERS, Tokenizer, tokenizer, train_bpe
from ncl_bench.data.text.vocabulary import (
    SPECIAL_WORDS,
    Vocabulary,
    build_vocabulary,
    load_vocabulary,
    parse_vocabulary,
    vocabulary_from_counts,
    vocabulary_json,
)

__all__ = [
    "SPECIAL_WORDS",
    "TOKENIZERS",
    "Tokenizer",
    "Vocabulary",
    "build_vocabulary",
    "load_vocabulary",
    "parse_vocabulary",
    "tokenizer",
    "train_bpe",
    "vocabulary_from_counts",
    "vocabulary_json",
]
