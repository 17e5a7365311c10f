"""The prepared folder: what lies in it, and its manifest.

::

    <root>/<dataset>/
      README.md            card: what the data are, where they come from, how to open them
      manifest.json        sources, settings, fingerprints, and size and sha256 of every file
      features/            {split}.npy: (images, regions, dim), mapped into memory
      tokens/<split>/      {name}.npy: token ids of all captions end to end, int32
                           {name}_offsets.npy: where each caption begins, int64 (captions + 1,)
      captions/<split>/    one row per caption, as `datasets` saves it: caption_id, image_row, image_id, texts
      vocab/               vocabularies in the published json format
      image_files/         where images were added: manifest.json, and one row per unique image in <split>/
"""

import hashlib
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Literal

from pydantic import ValidationError

from ncl_bench.data.encoding import Encoding
from ncl_bench.errors import DataError, first_problem
from ncl_bench.files import readable, sha256_of_file, write_text
from ncl_bench.plugins import command_name
from ncl_bench.schema import FileName, Record

LAYOUT_VERSION = 2
MANIFEST = "manifest.json"
IMAGE_FILES = "image_files"
Dtype = Literal["float32", "float16"]


class FileRecord(Record):
    """A downloaded file, or a file of the prepared folder.

    Attributes:
        name: path below the download or the prepared folder.
        bytes: its size.
        sha256: its hash (hex).
        published: whether that is the hash of the published file; None where that hash is not known.
    """

    name: FileName
    bytes: int
    sha256: str
    published: bool | None = None


class Tokenization(Record):
    """One way in which the captions were tokenized.

    Attributes:
        language: caption language; None where a caption may be in any of them.
        tokenizer: its name.
        version: what fixes its behaviour.
        name: of its files, such as ``word`` or ``zh_jieba``.
        vocabulary_sha256: of its vocabulary, ``vocab/{name}.json``.
        origin: ``built`` from train, ``imported`` from a published file, or ``shipped`` with the ids.
    """

    language: str | None
    tokenizer: str
    version: str
    name: FileName
    vocabulary_sha256: str
    origin: Literal["built", "imported", "shipped"]

    @property
    def vocabulary(self) -> str:
        """File with the words, below the prepared folder."""
        return f"vocab/{self.name}.json"

    def token_files(self, split: str) -> tuple[str, str]:
        """Files with the token ids and the offsets of a split, below the prepared folder."""
        return f"tokens/{split}/{self.name}.npy", f"tokens/{split}/{self.name}_offsets.npy"


class SplitRecord(Record):
    """What one split holds.

    Attributes:
        images: their number.
        captions: their number.
        fingerprint: sha256 (hex) of its content, features included.
        order_fingerprint: sha256 (hex) of image ids and captions in order (see :mod:`ncl_bench.data.order`).
    """

    images: int
    captions: int
    fingerprint: str
    order_fingerprint: str


class Manifest(Record):
    """Content and origin of a prepared folder.

    Attributes:
        layout_version: ``LAYOUT_VERSION`` of what wrote it.
        tool: name and version of what wrote it.
        key: sha256 (hex) of the settings and of the downloaded files' names and sizes: equal if the same command is
            given again.
        name: name of the dataset.
        dtype: number type of the features.
        captions_per_image: a fact of the dataset.
        n_regions: regions per image.
        feature_dim: dimension of one region feature.
        texts: language to its column in the captions table.
        tokenizations: token ids that were made.
        sources: the downloaded files it was made from.
        encoding: how ``ncl-bench features`` made the features; None where they come from elsewhere.
        splits: what each split holds.
        files: every other file of the folder.
        checked: what the downloaded files were compared with, in sentences.
        warnings: what deserves a look, in sentences.
    """

    layout_version: int
    tool: str
    key: str
    name: str
    dtype: Dtype
    captions_per_image: int
    n_regions: int
    feature_dim: int
    texts: dict[str, str]
    tokenizations: tuple[Tokenization, ...]
    sources: tuple[FileRecord, ...]
    encoding: Encoding | None = None
    splits: dict[str, SplitRecord]
    files: tuple[FileRecord, ...]
    checked: tuple[str, ...] = ()
    warnings: tuple[str, ...] = ()


class ImageFiles(Record):
    """The images of each split: the parts of its table, and every file of them, below ``image_files/``."""

    parts: dict[str, tuple[FileName, ...]]
    files: tuple[FileRecord, ...]


def how_to_prepare(folder: Path) -> str:
    """What to do about a prepared folder that cannot be used."""
    command = f"{command_name()} prepare {folder.name} --from DOWNLOADS --to {folder.parent}"
    return f"delete {folder} and run `{command}`"


def write_manifest(folder: Path, manifest: Manifest | ImageFiles) -> None:
    """Write ``manifest.json``, and next to it its hash in the format of ``sha256sum``."""
    content = manifest.model_dump_json(indent=2) + "\n"
    digest = hashlib.sha256(content.encode()).hexdigest()
    write_text(folder / f"{MANIFEST}.sha256", f"{digest}  {MANIFEST}\n")
    write_text(folder / MANIFEST, content)


def read_manifest(folder: Path) -> Manifest:
    """The manifest of a prepared folder.

    Raises:
        DataError: it is missing, damaged or of another layout version.
    """
    path = folder / MANIFEST
    if not path.is_file():
        raise DataError(
            f"{folder} is not a prepared dataset (no manifest.json); run `{command_name()} prepare`"
        )
    try:
        content = json.loads(path.read_bytes())
    except (OSError, ValueError, RecursionError):
        content = None
    found = content.get("layout_version") if isinstance(content, dict) else None
    if found is not None and found != LAYOUT_VERSION:
        raise DataError(
            f"{path} has layout version {found}, this version reads {LAYOUT_VERSION}; {how_to_prepare(folder)}"
        )
    try:
        return Manifest.model_validate(content)
    except ValidationError as error:
        raise DataError(f"{path} is damaged ({first_problem(error)}); {how_to_prepare(folder)}") from None


def read_image_files(folder: Path) -> ImageFiles:
    """What ``image_files/manifest.json`` of a prepared folder says; nothing where no images were added.

    Raises:
        DataError: it is damaged, or a file is missing or of another size.
    """
    place = folder / IMAGE_FILES
    if not place.exists():
        return ImageFiles(parts={}, files=())
    path, fix = place / MANIFEST, f"delete {place} and add the images again"
    readable(path, DataError, "a manifest", fix=fix)
    try:
        found = ImageFiles.model_validate_json(path.read_bytes())
    except (OSError, ValidationError):
        raise DataError(f"{path} is damaged; {fix}") from None
    check_sizes(place, found.files, fix)
    return found


def check_sizes(folder: Path, files: Sequence[FileRecord], remedy: str) -> None:
    """Refuse a folder whose files are missing or of another size.

    Args:
        folder: that holds them.
        files: their records.
        remedy: what to do then, in words that end a sentence.

    Raises:
        DataError: a file is missing or of another size.
    """
    for record in files:
        path = folder / record.name
        found = path.stat().st_size if path.is_file() else None
        if found != record.bytes:
            state = "is missing" if found is None else f"has {found} bytes"
            raise DataError(f"{path} {state}, expected {record.bytes} bytes; {remedy}")


def records_of(folder: Path, known: Mapping[str, str]) -> tuple[FileRecord, ...]:
    """Size and sha256 of every file below a folder, in the order of their names.

    Args:
        folder: that holds them.
        known: hashes (hex) by name, of files that need not be read for it.
    """
    names = sorted(path.relative_to(folder).as_posix() for path in folder.rglob("*") if path.is_file())
    return tuple(
        FileRecord(
            name=name,
            bytes=(folder / name).stat().st_size,
            sha256=known.get(name) or sha256_of_file(folder / name),
        )
        for name in names
    )


def text_column(language: str, languages: tuple[str, ...]) -> str:
    """Return the column of the caption text; it names the language only if there are several."""
    return "caption" if len(languages) == 1 else f"caption_{language}"


def save_table(folder: Path, columns: Mapping[str, Any], features: Mapping[str, str]) -> None:
    """Write a table as ``datasets.load_from_disk`` opens it.

    Args:
        folder: to write.
        columns: name to values, all of the same length.
        features: name to number type of the library.
    """
    import datasets

    types = datasets.Features({name: datasets.Value(kind) for name, kind in features.items()})
    table = datasets.Dataset.from_dict(dict(columns), features=types)
    quiet = datasets.are_progress_bars_disabled()
    datasets.disable_progress_bars()
    try:
        table.save_to_disk(str(folder))
    finally:
        if not quiet:
            datasets.enable_progress_bars()
