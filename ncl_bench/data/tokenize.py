"""Token ids of every caption, for every tokenizer asked for, and the vocabularies behind them."""

import hashlib
from dataclasses import dataclass, field
from pathlib import Path

from ncl_bench.data.layout import Tokenization, token_column
from ncl_bench.data.material import Cut, Material
from ncl_bench.data.paired import TokenTable
from ncl_bench.data.spec import DatasetSpec
from ncl_bench.data.text import load_vocabulary, tokenizer, train_bpe, vocabulary_json
from ncl_bench.data.tokens import CutCaptions, cut_captions
from ncl_bench.errors import DataError
from ncl_bench.files import write_bytes
from ncl_bench.progress import Progress


@dataclass(frozen=True)
class TextOptions:
    """How to cut the captions.

    Attributes:
        tokenizers: names; each language's default where empty.
        tokenizer_file: ``tokenizer.json`` of the tokenizer ``bert``.
        vocabulary: a published json file for ``word`` and ``word-punkt``; built from train where None.
    """

    tokenizers: tuple[str, ...] = ()
    tokenizer_file: Path | None = None
    vocabulary: Path | None = None


@dataclass
class CutTables:
    """Token ids by split and column, and what is to be said about each column."""

    tokenizations: list[Tokenization] = field(default_factory=list)
    tokens: dict[str, dict[str, TokenTable]] = field(default_factory=dict)


def planned_cuts(spec: DatasetSpec, material: Material, options: TextOptions) -> list[Cut]:
    """Languages and tokenizers that have to be cut, beyond those that the source gives as ids.

    Raises:
        DataError: a tokenizer is unknown or cannot be used here, or a needed file is missing or not used.
    """
    languages = material.captions["train"].texts
    if options.tokenizers and not languages:
        shipped = ", ".join(sorted(name for _, name in material.vocabularies))
        raise DataError(f"{spec.name} is published as token ids ({shipped}) only; leave --tokenizer out")
    cuts: list[Cut] = [
        (language, name)
        for language in languages
        for name in options.tokenizers or (spec.tokenizers[language],)
        if (language, name) not in material.vocabularies
    ]
    names = {name for _, name in cuts}
    if "ids" in names:
        raise DataError(
            f"tokenizer ids reads captions that are token ids, {spec.name} has text; choose another"
        )
    if options.vocabulary and not names & {"word", "word-punkt"}:
        raise DataError(
            f"--vocabulary {options.vocabulary} fits the tokenizers word and word-punkt only; leave it out"
        )
    if options.tokenizer_file and "bert" not in names:
        raise DataError(
            f"--tokenizer-file {options.tokenizer_file} is for the tokenizer bert; add --tokenizer bert"
        )
    for name in names - {"bpe"}:
        tokenizer(name, file=options.tokenizer_file if name == "bert" else None)
    if options.vocabulary:
        load_vocabulary(options.vocabulary)
    return cuts


def make_tokens(
    folder: Path, spec: DatasetSpec, material: Material, options: TextOptions, progress: Progress
) -> CutTables:
    """Write the vocabularies and number the words of every caption.

    Args:
        folder: becomes the prepared folder; gets ``vocab/``.
        spec: the protocol's facts.
        material: the captions.
        options: see :func:`planned_cuts`, which has accepted them.
        progress: shows the captions cut.
    """
    languages = tuple(material.captions["train"].texts)
    result = CutTables(tokens={split: {} for split in material.captions})
    for cut, (content, version) in material.vocabularies.items():
        column = token_column(*cut, languages)
        result.tokenizations.append(_describe(folder, cut, version, column, content, "shipped"))
        for split, captions in material.captions.items():
            result.tokens[split][column] = captions.tokens[cut]
    for cut in planned_cuts(spec, material, options):
        _cut_one(folder, cut, languages, material, options, progress, result)
    return result


def _cut_one(
    folder: Path,
    cut: Cut,
    languages: tuple[str, ...],
    material: Material,
    options: TextOptions,
    progress: Progress,
    result: CutTables,
) -> None:
    language, name = cut
    column = token_column(language, name, languages)
    texts = {split: captions.texts[str(language)] for split, captions in material.captions.items()}
    file = _tokenizer_file(folder, name, column, texts["train"], options)
    found: dict[str, CutCaptions] = {}
    for split, captions in texts.items():
        with progress(f"cutting {split} ({name})", len(captions)) as advance:
            found[split] = cut_captions(captions, name, file, advance)
    described = tokenizer(name, file=file)
    imported = options.vocabulary if name in ("word", "word-punkt") else None
    if imported:
        content, vocabulary = imported.read_bytes(), load_vocabulary(imported)
    else:
        vocabulary = found["train"].vocabulary(described.threshold)
        content = vocabulary_json(vocabulary).encode()
    origin = "imported" if imported else "built"
    result.tokenizations.append(_describe(folder, cut, described.version, column, content, origin))
    for split in texts:
        result.tokens[split][column] = found[split].encoded(vocabulary)


def _tokenizer_file(
    folder: Path, name: str, column: str, train: list[str], options: TextOptions
) -> Path | None:
    """A tokenizer.json, trained or given, kept beside the vocabularies."""
    if name not in ("bpe", "bert"):
        return None
    file = folder / "vocab" / f"{column.removeprefix('tokens_')}_tokenizer.json"
    file.parent.mkdir(parents=True, exist_ok=True)
    if name == "bpe":
        train_bpe(train, file)
    elif options.tokenizer_file:
        write_bytes(file, options.tokenizer_file.read_bytes())
    return file


def _describe(
    folder: Path, cut: Cut, version: str, column: str, vocabulary: bytes, origin: str
) -> Tokenization:
    name = f"vocab/{column.removeprefix('tokens_')}.json"
    write_bytes(folder / name, vocabulary)
    language, tokenizer_name = cut
    return Tokenization.model_validate(
        {
            "language": language,
            "tokenizer": tokenizer_name,
            "version": version,
            "column": column,
            "vocabulary": name,
            "vocabulary_sha256": hashlib.sha256(vocabulary).hexdigest(),
            "origin": origin,
        }
    )
