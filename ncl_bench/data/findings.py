"""What was found out about a download, in sentences: what it was compared with, and what deserves a look."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from ncl_bench.data.features import FeatureFile, Scan
from ncl_bench.data.layout import FileRecord
from ncl_bench.data.spec import SPLITS, DatasetSpec, KnownFile, Origin
from ncl_bench.files import sha256_of_file


@dataclass(frozen=True)
class Findings:
    """What a complete check of a download found.

    Attributes:
        files: name, size and sha256 of every file.
        checked: what they were compared with, in sentences.
        warnings: what deserves a look, in sentences.
    """

    files: tuple[FileRecord, ...] = ()
    checked: tuple[str, ...] = ()
    warnings: tuple[str, ...] = ()


def is_published(sha256: str, known: KnownFile | None) -> bool | None:
    """Whether a hash (hex) is that of the published file; None where that is not known."""
    return None if known is None else sha256.startswith(known.sha256)


def hashed(path: Path, known: KnownFile | None) -> FileRecord:
    """The record of a file that is compared with a known hash."""
    sha256 = sha256_of_file(path)
    return FileRecord(
        name=path.name, bytes=path.stat().st_size, sha256=sha256, published=is_published(sha256, known)
    )


def checked_facts(
    spec: DatasetSpec, features: Mapping[str, FeatureFile], files: Sequence[FileRecord]
) -> tuple[str, ...]:
    """What a download was compared with, after everything fitted.

    Args:
        spec: the protocol's facts.
        features: of each split.
        files: what was read.
    """
    images = " / ".join(f"{spec.images[split]:,}" for split in SPLITS)
    dtypes = " and ".join(sorted({str(file.dtype) for file in features.values()}))
    same = [file.name for file in files if file.published]
    other = [file.name for file in files if file.published is False]
    unknown = sum(file.published is None for file in files)
    hashes = [f"{', '.join(same)} has the published sha256"] if same else []
    hashes += [f"{', '.join(other)} has another sha256 than the published file"] if other else []
    hashes += (
        [f"no sha256 is known of {_files(unknown)}, so nobody compared their content"] if unknown else []
    )
    return (
        "layout: every file has its published name and place",
        f"counts: {images} images in train / dev / test, {spec.captions_per_image} caption(s) each",
        f"types: {dtypes}, {spec.n_regions} regions of {spec.feature_dim} numbers, all finite, no row all zero",
        f"content: {'; '.join(hashes)}",
    )


def _files(n: int) -> str:
    return "1 file" if n == 1 else f"{n} files"


def copies_warning(file: FeatureFile, found: Scan) -> str:
    """A sentence on images that are copies of others."""
    later, earlier = found.example
    return (
        f"{file.path}: {found.copies:,} of {file.shape[0] // file.repeat:,} images have exactly the features of an "
        f"earlier one (row {later} is row {earlier}); a download that was not finished looks like that, "
        "so compare its size and date with its source"
    )


def vocabulary_warning(origin: Origin, tokenizer: str, sha256: str | None) -> str | None:
    """A sentence where token ids are not the published ones, or None.

    Args:
        origin: of the dataset.
        tokenizer: its name.
        sha256: hash (hex) of the vocabulary file; None for a vocabulary that is built from the captions.
    """
    known = origin.vocabulary
    if known is None or not uses_vocabulary_file(tokenizer) or (sha256 and is_published(sha256, known)):
        return None
    own = "built from the training captions" if sha256 is None else "another file than the published one"
    return (
        f"the vocabulary of the tokenizer {tokenizer} is {own}, so TOKEN IDS DIFFER FROM THE PUBLISHED ONES and "
        f"published checkpoints do not fit; {how_to_get(known)}"
    )


def how_to_get(vocabulary: KnownFile) -> str:
    """Where a published vocabulary is, and what to do with it."""
    return (
        f"for the published ids put {vocabulary.name} (sha256 begins {vocabulary.sha256}; from {vocabulary.where}) "
        "beside the download, or give it with --vocabulary, before you prepare"
    )


def uses_vocabulary_file(tokenizer: str) -> bool:
    """Whether the published vocabularies are of this tokenizer's words."""
    return tokenizer in ("word", "word-punkt")
