"""Make token ids of every caption for every requested tokenizer, and their vocabularies."""

import hashlib
import os
from collections.abc import Iterable, Iterator, Mapping, Sequence, Set
from dataclasses import dataclass, replace
from functools import cache, partial
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Literal

import numpy as np
from numpy.typing import NDArray

from ncl_bench.data.columns import TokenTable
from ncl_bench.data.spec import DatasetSpec, Material, Split, TokenKey
from ncl_bench.data.tokenizers import Tokenizer, tokenizer, train_bpe, turkic
from ncl_bench.data.vocabulary import (
    Vocabulary,
    build_vocabulary,
    load_vocabulary,
    parse_vocabulary,
    vocabulary_json,
)
from ncl_bench.errors import DataError, named
from ncl_bench.files import write_bytes
from ncl_bench.npy import Int64Array
from ncl_bench.progress import Advance, Progress

if TYPE_CHECKING:
    from ncl_bench.data.layout import Dtype, Tokenization

CAPTIONS_PER_CHUNK = 5_000
"""Captions per job; fewer than four jobs run without worker processes."""

MOST_UNKNOWN = 1 / 3
"""Share of unknown words above which a vocabulary does not fit the captions."""

Origin = Literal["built", "imported", "shipped"]
_Chunk = tuple[list[str], NDArray[np.int32], NDArray[np.int32]]


def with_ids(words: Sequence[str], tokens: TokenTable, vocabulary: Vocabulary) -> TokenTable:
    """Return the ids of a vocabulary, between start and end token, equal to :meth:`Vocabulary.encode`.

    Args:
        words: different words.
        tokens: caption ``c`` is ``words[i] for i in tokens.ids[offsets[c]:offsets[c + 1]]``.
        vocabulary: of the ids.
    """
    known = np.array([vocabulary.index.get(word, vocabulary.unknown) for word in words], np.int32)
    n = len(tokens)
    places = np.repeat(tokens.offsets, 2)[
        1:-1
    ]  # where a caption ends and the next begins, the end comes first
    # one insert for all captions instead of a loop over millions
    ids = np.insert(known[tokens.ids], places, np.tile([vocabulary.start, vocabulary.end], n))
    return TokenTable(ids, tokens.offsets + 2 * np.arange(n + 1))


def tokenize_captions(
    captions: Sequence[str],
    tokenizer_name: str,
    file: Path | None = None,
    advance: Advance = lambda _: None,
) -> tuple[list[str], TokenTable]:
    """Split captions into words; the result does not depend on the number of processes.

    Args:
        captions: captions, in order.
        tokenizer_name: see :func:`ncl_bench.data.tokenizers.tokenizer`.
        file: its ``tokenizer.json``, if needed.
        advance: called with the number of captions done.

    Returns:
        Every different word once, in order of first use, and the captions as rows of that list, int32.
    """
    chunks = [
        list(captions[start : start + CAPTIONS_PER_CHUNK])
        for start in range(0, len(captions), CAPTIONS_PER_CHUNK)
    ]
    words: dict[str, int] = {}
    ids, lengths = [], []
    for chunk_words, chunk_ids, chunk_lengths in _tokenize_chunks(chunks, tokenizer_name, file):
        # each chunk numbers its own words, so few strings travel between processes; here they get common numbers
        numbers = np.array([words.setdefault(word, len(words)) for word in chunk_words], np.int32)
        ids.append(numbers[chunk_ids])
        lengths.append(chunk_lengths)
        advance(len(chunk_lengths))
    offsets: Int64Array = np.concatenate([[0], np.cumsum(np.concatenate(lengths))]).astype(np.int64)
    return list(words), TokenTable(np.concatenate(ids), offsets)


def counted(words: Sequence[str], tokens: TokenTable) -> dict[str, int]:
    """Count the words of captions, given as from :func:`tokenize_captions`."""
    return dict(zip(words, np.bincount(tokens.ids, minlength=len(words)).tolist(), strict=True))


def _tokenize_chunks(chunks: list[list[str]], name: str, file: Path | None) -> Iterator[_Chunk]:
    # starting a process costs about as much as four chunks
    processes = min(len(chunks) // 4, os.cpu_count() or 1)
    if processes < 2:
        split = tokenizer(name, file=file)
        yield from (_tokenize_chunk(chunk, split) for chunk in chunks)
        return
    from ncl_bench.processes import worker_pool  # embedded datasets need none, and it is slow to import

    with worker_pool(processes) as pool:
        yield from pool.map(partial(_tokenize_in_worker, name, file), chunks)


# made once in each worker process, because a tokenizer may read a dictionary first
_tokenizer_of_worker = cache(tokenizer)


def _tokenize_in_worker(name: str, file: Path | None, captions: list[str]) -> _Chunk:
    return _tokenize_chunk(captions, _tokenizer_of_worker(name, file=file))


def _tokenize_chunk(captions: Iterable[str], split: Tokenizer) -> _Chunk:
    split_captions = list(map(split, captions))
    every = list(chain.from_iterable(split_captions))
    words = {word: number for number, word in enumerate(dict.fromkeys(every))}
    ids = np.fromiter(map(words.__getitem__, every), np.int32, len(every))
    return list(words), ids, np.fromiter(map(len, split_captions), np.int32, len(split_captions))


@dataclass(frozen=True)
class PrepareOptions:
    """Options of the prepared folder.

    Attributes:
        dtype: number type of the features; None keeps the download's.
        tokenizers: names of tokenizers; empty for each language's default.
        tokenizer_file: ``tokenizer.json`` of the tokenizer ``bert``.
        vocabulary: a published json file for ``word`` and ``word-punkt``; None builds it from train.
    """

    dtype: "Dtype | None" = None
    tokenizers: tuple[str, ...] = ()
    tokenizer_file: Path | None = None
    vocabulary: Path | None = None


def planned_tokenizations(spec: DatasetSpec, material: Material, options: PrepareOptions) -> list[TokenKey]:
    """Token ids to make, in addition to those in the download.

    Raises:
        DataError: a tokenizer is unknown or does not fit, or a file is missing or has no use.
    """
    languages = material.splits["train"].captions
    if options.tokenizers and not languages:
        shipped = ", ".join(sorted(name for _, name in material.vocabularies))
        raise DataError(
            f"{spec.name} is published as token ids ({shipped}) only; leave {named('tokenizers')} out"
        )
    planned: list[TokenKey] = [
        (language, name)
        for language in languages
        for name in options.tokenizers or (spec.tokenizers[language],)
        if (language, name) not in material.vocabularies
    ]
    names = {name for _, name in planned}
    refuse_tokenizers(spec.name, names, options.tokenizer_file)
    if options.vocabulary and not names & {"word", "word-punkt"}:
        raise DataError(
            f"{named('vocabulary', options.vocabulary)} fits the tokenizers word and word-punkt only; leave it out"
        )
    return planned


def refuse_tokenizers(dataset: str, names: Set[str], file: Path | None) -> None:
    """Refuse tokenizers that are unknown or miss a package or their file, and a file that none of them reads.

    Args:
        dataset: name of the dataset, whose captions are text.
        names: names of the tokenizers.
        file: ``tokenizer.json`` of the tokenizer ``bert``.
    """
    if "ids" in names:
        raise DataError(
            f"tokenizer ids reads captions that are token ids, {dataset} has text; choose another"
        )
    if file and "bert" not in names:
        raise DataError(
            f"{named('tokenizer_file', file)} is for the tokenizer bert; add {named('tokenizers', 'bert')}"
        )
    # made once here, so that a missing package or file is told before anything is written
    for name in names - {"bpe"}:
        tokenizer(name, file=file if name == "bert" else None)


def token_name(language: str | None, tokenizer: str, languages: tuple[str, ...]) -> str:
    """Return the name of the token files; it contains the language only if there are several texts."""
    name = tokenizer.replace("-", "_")
    return f"{language}_{name}" if language is not None and len(languages) > 1 else name


def make_tokens(
    folder: Path, spec: DatasetSpec, material: Material, options: PrepareOptions, progress: Progress
) -> "tuple[dict[str, Split], list[Tokenization]]":
    """Write the vocabularies, and make the token ids of every caption.

    Args:
        folder: becomes the prepared folder; gets ``vocab/``.
        spec: the dataset.
        material: the captions.
        options: options accepted by :func:`planned_tokenizations`.
        progress: shows the captions done.

    Returns:
        The splits, each with the token ids of every tokenization, and the manifest's record of each.
    """
    languages = tuple(material.splits["train"].captions)
    tokenizations = [
        _describe(folder, key, version, token_name(*key, languages), content, "shipped")
        for key, (content, version) in material.vocabularies.items()
    ]
    splits = dict(material.splits)
    for key in planned_tokenizations(spec, material, options):
        own, tokens = _tokenize(folder, key, material, options, progress)
        tokenizations.append(own)
        splits = {
            split: replace(content, tokens={**content.tokens, key: tokens[split]})
            for split, content in splits.items()
        }
    return splits, tokenizations


def unknown_words(
    folder: Path, spec: DatasetSpec, splits: Mapping[str, Split], tokenizations: "Sequence[Tokenization]"
) -> Iterator[str]:
    """Warn of a vocabulary that knows less than two thirds of the words of dev or test; refuse one for train."""
    for own in tokenizations:
        vocabulary = parse_vocabulary((folder / own.vocabulary).read_bytes(), own.vocabulary)
        for split, content in splits.items():
            unknown = unknown_share(content.tokens[own.key], vocabulary)
            if unknown > MOST_UNKNOWN:
                fault = _misfit(spec.name, split, own, unknown)
                if split == "train":
                    raise DataError(fault)
                yield fault


def unknown_share(tokens: TokenTable, vocabulary: Vocabulary) -> float:
    """Return the share of unknown words among all words of the captions, in [0, 1]."""
    words = len(tokens.ids) - 2 * len(tokens)  # without start and end tokens
    return float(np.isin(tokens.ids, vocabulary.unknown_ids).sum() / max(words, 1))


def _misfit(dataset: str, split: str, own: "Tokenization", unknown: float) -> str:
    fix = {
        "built": "words that occur fewer than four times in train are left out; for few, or much inflected, captions "
        f"give {named('tokenizers', 'bpe')}, for scripts without blanks {named('tokenizers', 'char')}, and name the "
        f"language of the captions with {named('languages')} if it is another",
        "imported": "the vocabulary that was given or that lies beside the download was made from other "
        "captions; replace it, or remove it to build one from train",
        "shipped": "the files do not belong together; download them again",
    }[own.origin]
    language = f" (language {own.language})" if own.language else ""
    return (
        f"{dataset}: {unknown:.1%} of the words of {split}{language} are unknown to the vocabulary of the tokenizer "
        f"{own.tokenizer}, expected at most a third; {fix}"
    )


def _tokenize(
    folder: Path, key: TokenKey, material: Material, options: PrepareOptions, progress: Progress
) -> "tuple[Tokenization, dict[str, TokenTable]]":
    language, name = key
    own = token_name(language, name, tuple(material.splits["train"].captions))
    texts = {split: content.captions[str(language)] for split, content in material.splits.items()}
    if language in (
        "tr",
        "az",
    ):  # `lower` makes two letters of one capital i there, and the wrong one of the other
        texts = {split: list(map(turkic, captions)) for split, captions in texts.items()}
    file = _tokenizer_file(folder, name, own, texts["train"], options)
    words_of: dict[str, tuple[list[str], TokenTable]] = {}
    for split, captions in texts.items():
        with progress(f"tokenizing {split} ({name})", len(captions)) as advance:
            words_of[split] = tokenize_captions(captions, name, file, advance)
    described = tokenizer(name, file=file)
    imported = options.vocabulary if name in ("word", "word-punkt") else None
    if imported:
        content, vocabulary = imported.read_bytes(), load_vocabulary(imported)
    else:
        # of train alone: dev and test must not decide which words are known
        vocabulary = build_vocabulary(counted(*words_of["train"]), threshold=described.threshold)
        content = vocabulary_json(vocabulary).encode()
    origin: Origin = "imported" if imported else "built"
    tokenization = _describe(folder, key, described.version, own, content, origin)
    return tokenization, {split: with_ids(*each, vocabulary) for split, each in words_of.items()}


def _tokenizer_file(
    folder: Path, name: str, own: str, train: Sequence[str], options: PrepareOptions
) -> Path | None:
    """A tokenizer.json, trained or given, stored with the vocabularies."""
    if name not in ("bpe", "bert"):
        return None
    file = folder / "vocab" / f"{own}_tokenizer.json"
    file.parent.mkdir(parents=True, exist_ok=True)
    if name == "bpe":
        train_bpe(train, file)
    elif options.tokenizer_file:
        write_bytes(file, options.tokenizer_file.read_bytes())
    return file


def _describe(
    folder: Path, key: TokenKey, version: str, name: str, vocabulary: bytes, origin: Origin
) -> "Tokenization":
    from ncl_bench.data.layout import Tokenization  # its records are slow to import

    described = Tokenization(
        language=key[0],
        tokenizer=key[1],
        version=version,
        name=name,
        vocabulary_sha256=hashlib.sha256(vocabulary).hexdigest(),
        origin=origin,
    )
    write_bytes(folder / described.vocabulary, vocabulary)
    return described
