"""The prepared folder: its files, and its manifest.

::

    <root>/<dataset>/
      README.md            card: what the data are, where they come from, how to open them
      manifest.json        sources, settings, fingerprints, and size and sha256 of every file
      features/            {split}.npy: (images, regions, dim), mapped into memory
      tokens/<split>/      {name}.npy: token ids of all captions, concatenated, int32
                           {name}_offsets.npy: start of each caption, int64 (captions + 1,)
      captions/<split>/    one row per caption, as `datasets` saves it: caption_id, image_row, image_id, texts
      judgements/          {split}_{kind}.parquet: what people say of pairs; only Flickr8K's test split has them
      vocab/               vocabularies in the published json format
      image_files/         if images were added: manifest.json, and one row per unique image in <split>/
"""

import hashlib
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from ncl_bench.data.encoding import Encoding
from ncl_bench.errors import DataError
from ncl_bench.files import sha256_of_file, write_text
from ncl_bench.foreign import readable, reading
from ncl_bench.schema import FileName, Record

if TYPE_CHECKING:
    import datasets

LAYOUT_VERSION = 2
MANIFEST = "manifest.json"
JUDGEMENTS = "judgements"
IMAGE_FILES = "image_files"
Dtype = Literal["float32", "float16"]


class FileRecord(Record):
    """A downloaded file, or a file of the prepared folder.

    Attributes:
        name: path in the download or the prepared folder.
        bytes: size in bytes.
        sha256: hash (hex).
        published: whether the hash equals the published file's; None if that is unknown.
    """

    name: FileName
    bytes: int
    sha256: str
    published: bool | None = None


class Tokenization(Record):
    """One tokenization of the captions.

    Attributes:
        language: caption language; None if captions mix languages.
        tokenizer: name of the tokenizer.
        version: fixes its behaviour.
        name: name of its files, such as ``word`` or ``zh_jieba``.
        vocabulary_sha256: hash of its vocabulary, ``vocab/{name}.json``.
        origin: ``built`` from train, ``imported`` from a published file, or ``shipped`` with the ids.
    """

    language: str | None
    tokenizer: str
    version: str
    name: FileName
    vocabulary_sha256: str
    origin: Literal["built", "imported", "shipped"]

    @property
    def key(self) -> tuple[str | None, str]:
        """Language and tokenizer, which name the token ids of a :class:`ncl_bench.data.spec.Split`."""
        return self.language, self.tokenizer

    @property
    def vocabulary(self) -> str:
        """Vocabulary file in the prepared folder."""
        return f"vocab/{self.name}.json"

    def token_files(self, split: str) -> tuple[str, str]:
        """Files with the token ids and the offsets of a split, in the prepared folder."""
        return f"tokens/{split}/{self.name}.npy", f"tokens/{split}/{self.name}_offsets.npy"


class SplitRecord(Record):
    """Facts of one split.

    Attributes:
        images: number of images.
        captions: number of captions.
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
        layout_version: ``LAYOUT_VERSION`` of the writing program.
        tool: name and version of the writing program.
        key: sha256 (hex) of the settings and of the downloaded files' names and sizes; equal for a repeated command.
        name: name of the dataset.
        dtype: number type of the features.
        captions_per_image: number of captions per image.
        n_regions: regions per image.
        feature_dim: dimension of one region feature.
        texts: language to its column in the captions table.
        tokenizations: tokenizations of the captions.
        sources: the downloaded files.
        encoding: how ``ncl-bench features`` made the features; None for features from elsewhere.
        splits: facts of each split.
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
    """Images of each split: the parts of its table, and all their files, in ``image_files/``."""

    parts: dict[str, tuple[FileName, ...]]
    files: tuple[FileRecord, ...]


def how_to_prepare(folder: Path) -> str:
    """How to replace an unusable prepared folder."""
    command = f"ncl-bench prepare {folder.name} --from DOWNLOADS --to {folder.parent}"
    return f"delete {folder} and run `{command}`"


def write_manifest(folder: Path, manifest: Manifest | ImageFiles) -> None:
    """Write ``manifest.json``, with its hash next to it in the format of ``sha256sum``."""
    content = manifest.model_dump_json(indent=2) + "\n"
    digest = hashlib.sha256(content.encode()).hexdigest()
    # the hash first: a manifest without its hash would look damaged, a hash without its manifest does nothing
    write_text(folder / f"{MANIFEST}.sha256", f"{digest}  {MANIFEST}\n")
    write_text(folder / MANIFEST, content)


def read_manifest(folder: Path) -> Manifest:
    """Read the manifest of a prepared folder.

    Raises:
        DataError: the manifest is missing, damaged or of another layout version.
    """
    path = readable(folder / MANIFEST, DataError, "a prepared dataset", fix="run `ncl-bench prepare`")
    with reading(path, fix=how_to_prepare(folder)):
        content = json.loads(path.read_bytes())
        # before validation: another layout has other keys, and deserves its own sentence
        if (version := content.get("layout_version")) not in (None, LAYOUT_VERSION):
            raise ValueError(f"it has layout version {version}, this version reads {LAYOUT_VERSION}")
        return Manifest.model_validate(content)


def read_image_files(folder: Path) -> ImageFiles:
    """Read ``image_files/manifest.json`` of a prepared folder; empty if no images were added.

    Raises:
        DataError: the manifest is damaged, or a file is missing or has another size.
    """
    images_folder = folder / IMAGE_FILES
    if not images_folder.exists():
        return ImageFiles(parts={}, files=())
    path, fix = images_folder / MANIFEST, f"delete {images_folder} and add the images again"
    with reading(path, fix=fix):
        content = readable(path, DataError, "the record of images", fix=fix).read_bytes()
        record = ImageFiles.model_validate_json(content)
    # sizes at every opening, hashes with `doctor --deep` alone, which reads every byte
    check_sizes(images_folder, record.files, fix)
    return record


def check_sizes(folder: Path, files: Sequence[FileRecord], remedy: str = "") -> None:
    """Refuse a folder whose files are missing or have another size.

    Args:
        folder: folder of the files.
        files: records of the files.
        remedy: what to do, as the end of a sentence (default: prepare the folder again).

    Raises:
        DataError: a file is missing or has another size.
    """
    for record in files:
        path = folder / record.name
        size = path.stat().st_size if path.is_file() else None
        if size != record.bytes:
            state = "is missing" if size is None else f"has {size} bytes"
            raise DataError(
                f"{path} {state}, expected {record.bytes} bytes; {remedy or how_to_prepare(folder)}"
            )


def records_of(folder: Path, known: Mapping[str, str]) -> tuple[FileRecord, ...]:
    """Size and sha256 of every file in a folder but its manifest, sorted by name.

    Args:
        folder: folder of the files.
        known: file name to a hash (hex) that is already known.
    """
    files = (path for path in folder.rglob("*") if path.is_file())
    # an interrupted run may have left a manifest
    names = sorted(path.relative_to(folder).as_posix() for path in files if MANIFEST not in path.name)
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
    save_quietly(datasets.Dataset.from_dict(dict(columns), features=types), folder)


def save_quietly(table: "datasets.Dataset", folder: Path) -> None:
    """Write a table with ``save_to_disk``, without the library's own bar."""
    import datasets

    # the library's bars would stand between ours; the user's setting is restored
    quiet = datasets.are_progress_bars_disabled()
    datasets.disable_progress_bars()
    try:
        table.save_to_disk(str(folder))
    finally:
        if not quiet:
            datasets.enable_progress_bars()
