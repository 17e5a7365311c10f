"""The prepared folder: names, table schemas, manifest and journal, shared by writing and reading.

::

    <root>/<dataset>/
      README.md            card with the `configs:` of the Hugging Face Hub
      manifest.json        sources with sha256, settings, tokenizations, fingerprints
      images/<split>/      one row per unique image: image_id, image_features (flat)
      captions/<split>/    one row per caption: caption_id, image_row, image_id, text, tokens
      vocab/               vocabularies in the published json format
      image_files/         where images were added: manifest.json, and one row per unique image in <split>/:
                           image_id, image (the encoded file)

Each split folder opens with ``datasets.load_from_disk``, its ``.arrow`` files with ``Dataset.from_file``.
"""

import json
import shutil
from pathlib import Path
from typing import Any, Literal

from pydantic import ValidationError

from ncl_bench.data.encoding import Encoding
from ncl_bench.data.spec import DatasetSpec
from ncl_bench.errors import DataError
from ncl_bench.files import write_text
from ncl_bench.schema import FileName, Record

LAYOUT_VERSION = 1
TABLES = ("captions", "images")
IMAGE_FILES = "image_files"
Dtype = Literal["float32", "float16"]
Format = Literal["arrow", "parquet"]


class FileRecord(Record):
    """A downloaded file, or a file of the prepared folder (whose sha256 is left out).

    Attributes:
        name: path below the download or the prepared folder.
        bytes: its size.
        sha256: hash (hex) of a downloaded file.
        published: whether that is the hash of the published file; None where that hash is not known.
    """

    name: FileName
    bytes: int
    sha256: str | None = None
    published: bool | None = None


class Tokenization(Record):
    """One way in which the captions were tokenized: a column of token ids.

    Attributes:
        language: caption language; None where a caption may be in any of them.
        tokenizer: its name.
        version: what fixes its behaviour.
        column: its name in the captions table.
        vocabulary: file with the words, below the prepared folder.
        vocabulary_sha256: of that file.
        origin: ``built`` from train, ``imported`` from a published file, or ``shipped`` with the ids.
    """

    language: str | None
    tokenizer: str
    version: str
    column: str
    vocabulary: FileName
    vocabulary_sha256: str
    origin: Literal["built", "imported", "shipped"]


class SplitRecord(Record):
    """What one split holds.

    Attributes:
        images: their number.
        captions: their number.
        fingerprint: sha256 (hex) of its content, features included.
        order_fingerprint: sha256 (hex) of image ids and captions in order (see :mod:`ncl_bench.data.order`); None in
            folders that were prepared before it was recorded.
        files: of its tables.
    """

    images: int
    captions: int
    fingerprint: str
    order_fingerprint: str | None = None
    files: tuple[FileRecord, ...]


class Manifest(Record):
    """What a prepared folder is and where it comes from.

    Attributes:
        layout_version: ``LAYOUT_VERSION`` of what wrote it.
        tool: name and version of what wrote it.
        key: sha256 (hex) of the settings and of the downloaded files' names and sizes: equal if the same command is
            given again.
        name: name of the dataset.
        dtype: number type of the features.
        format: file format of the tables.
        captions_per_image: a fact of the dataset.
        n_regions: regions per image.
        feature_dim: dimension of one region feature.
        texts: language to its column in the captions table.
        tokenizations: columns of token ids.
        sources: the downloaded files it was made from.
        encoding: how ``ncl-bench features`` made the features; None where they come from elsewhere.
        splits: what each split holds.
        checked: what the downloaded files were compared with, in sentences.
        warnings: what deserves a look, in sentences.
    """

    layout_version: int
    tool: str
    key: str
    name: str
    dtype: Dtype
    format: Format
    captions_per_image: int
    n_regions: int
    feature_dim: int
    texts: dict[str, str]
    tokenizations: tuple[Tokenization, ...]
    sources: tuple[FileRecord, ...]
    encoding: Encoding | None = None
    splits: dict[str, SplitRecord]
    checked: tuple[str, ...] = ()
    warnings: tuple[str, ...] = ()


class ImageFiles(Record):
    """The files that hold the images of each split, below their folder."""

    splits: dict[str, tuple[FileRecord, ...]]


def read_image_files(folder: Path) -> ImageFiles | None:
    """What ``image_files/manifest.json`` of a prepared folder says; None where no images were added.

    Raises:
        DataError: it is damaged.
    """
    path = folder / IMAGE_FILES / "manifest.json"
    if not path.exists():
        return None
    try:
        return ImageFiles.model_validate_json(path.read_bytes())
    except (OSError, ValidationError):
        raise DataError(f"{path} is damaged; delete {path.parent} and add the images again") from None


def read_manifest(folder: Path) -> Manifest:
    """The manifest of a prepared folder.

    Raises:
        DataError: it is missing, damaged or of another layout version.
    """
    path = folder / "manifest.json"
    try:
        content = json.loads(path.read_bytes())
    except OSError:
        raise DataError(
            f"{folder} is not a prepared dataset (no manifest.json); run `ncl-bench prepare`"
        ) from None
    except (ValueError, RecursionError):
        content = None
    found = content.get("layout_version") if isinstance(content, dict) else None
    if found is not None and found != LAYOUT_VERSION:
        raise DataError(
            f"{path} has layout version {found}, this tool reads {LAYOUT_VERSION}; prepare it again"
        )
    try:
        return Manifest.model_validate(content)
    except ValidationError as error:
        first = error.errors()[0]
        where = ".".join(map(str, first["loc"])) or "the file"
        raise DataError(f"{path} is damaged ({where}: {first['msg']}); prepare the dataset again") from None


def text_column(language: str, languages: tuple[str, ...]) -> str:
    """Column of the captions' text; the language is named only where there are several."""
    return "caption" if len(languages) == 1 else f"caption_{language}"


def token_column(language: str | None, tokenizer: str, languages: tuple[str, ...]) -> str:
    """Column of the token ids; the language is named only where there are several texts."""
    parts = ["tokens", tokenizer.replace("-", "_")]
    if language is not None and len(languages) > 1:
        parts.insert(1, language)
    return "_".join(parts)


def images_schema(spec: DatasetSpec, dtype: Dtype) -> dict[str, Any]:
    """Columns of the images table, in the notation of the Hugging Face library."""
    numbers = {"feature": _value(dtype), "length": spec.n_regions * spec.feature_dim, "_type": "List"}
    return {"image_id": _value("string"), "image_features": numbers}


def image_files_schema() -> dict[str, Any]:
    """Columns of the images' files, in the notation of the Hugging Face library."""
    return {"image_id": _value("string"), "image": {"_type": "Image"}}


def captions_schema(texts: list[str], tokens: list[str]) -> dict[str, Any]:
    """Columns of the captions table, in the notation of the Hugging Face library."""
    columns: dict[str, Any] = {
        "caption_id": _value("int64"),
        "image_row": _value("int64"),
        "image_id": _value("string"),
    }
    columns |= {name: _value("string") for name in texts}
    return columns | {name: {"feature": _value("int32"), "_type": "List"} for name in tokens}


def _value(dtype: str) -> dict[str, Any]:
    return {"dtype": dtype, "_type": "Value"}


class Journal:
    """Finished steps of a preparation, in its folder of unfinished work: the same command goes on where it stopped.

    Args:
        folder: where the unfinished work lies; what was begun there with other settings is deleted.
        settings: everything that the bytes of the result depend on, as json.
    """

    def __init__(self, folder: Path, settings: Any) -> None:
        self._path = folder / "journal.json"
        settings = json.loads(json.dumps(settings))
        self._content: dict[str, Any] = {"settings": settings, "done": {}}
        try:
            found = json.loads(self._path.read_bytes())
        except (OSError, ValueError):
            found = None
        if isinstance(found, dict) and found.get("settings") == settings:
            self._content = found
        elif folder.exists():
            shutil.rmtree(folder)
        folder.mkdir(parents=True, exist_ok=True)

    def result(self, step: str) -> Any:
        """What :meth:`finish` recorded for a step, or None."""
        return self._content["done"].get(step)

    def finish(self, step: str, result: Any) -> None:
        """Record a finished step and its json result."""
        self._content["done"][step] = result
        write_text(self._path, json.dumps(self._content))
