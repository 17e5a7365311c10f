"""Read a prepared folder: memory-mapped Arrow files, opened without a copy."""

import mmap
import re
from bisect import bisect_right
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, Literal, TypeVar

import numpy as np
from numpy.typing import NDArray

from ncl_bench.data.layout import (
    IMAGE_FILES,
    FileRecord,
    Manifest,
    Tokenization,
    read_image_files,
    read_manifest,
)
from ncl_bench.data.paired import (
    CaptionsOnDisk,
    ChosenTokens,
    FloatArray,
    Int64Array,
    PairedDataset,
    row_numbers,
)
from ncl_bench.data.spec import DatasetSpec
from ncl_bench.data.vocabulary import load_vocabulary
from ncl_bench.errors import DataError, shorten, unknown_name
from ncl_bench.noise.draw import clean_pairing, clean_record

T = TypeVar("T", bound=np.generic)


class ArrowFeatures:
    """Region features in memory-mapped Arrow files; rows are copied only when asked for.

    Args:
        column: the fixed-size list column, ``regions * dim`` numbers per row.
        shape: ``(n_images, n_regions, feature_dim)``.
    """

    def __init__(self, column: Any, shape: tuple[int, int, int]) -> None:
        dtype = np.dtype(f"f{column.type.value_type.bit_width // 8}")
        self._blocks: list[FloatArray] = [
            _view(chunk.values, dtype).reshape(-1, *shape[1:])[chunk.offset : chunk.offset + len(chunk)]
            for chunk in column.chunks
        ]
        self._starts = np.cumsum([0, *map(len, self._blocks)]).tolist()
        self.shape: tuple[int, ...] = shape
        self.dtype: np.dtype[np.floating] = dtype

    def __getitem__(self, rows: Int64Array, /) -> FloatArray:
        """A fresh, writable copy of the chosen rows, in the order asked for (repeats allowed)."""
        chosen = row_numbers(rows, self.shape[0])
        result = np.empty((*chosen.shape, *self.shape[1:]), self.dtype)
        for place, row in zip(result.reshape(-1, *self.shape[1:]), chosen.ravel().tolist(), strict=True):
            block = bisect_right(self._starts, row) - 1
            place[...] = self._blocks[block][row - self._starts[block]]
        return result


class ArrowTokens:
    """Token ids of captions in a memory-mapped Arrow file, seen as one array of int32.

    A record batch holds the token ids of its captions end to end, and where each caption begins among them.
    So a few numbers per record batch say where in the file to look, and nothing is kept for a caption.

    Args:
        column: lists of int32, valid throughout, all within one file.
        file: the mapped file, an Arrow buffer.

    Raises:
        ValueError: numbers of the column lie elsewhere, since they are compressed, or not at a multiple of 4 bytes.
    """

    def __init__(self, column: Any, file: Any) -> None:
        self._file = np.frombuffer(file, np.int32, file.size // 4)
        chunks = [chunk for chunk in column.chunks if len(chunk)]
        self._first = np.cumsum([0, *map(len, chunks)])  # caption of each record batch, and their number
        self._begins = np.array([_place(chunk.offsets, file) for chunk in chunks])
        self._ids = np.array([_place(chunk.values, file) for chunk in chunks])

    def __len__(self) -> int:
        return int(self._first[-1])

    @property
    def lengths(self) -> Int64Array:
        """Length of each caption, int64 ``(n_captions,)``."""
        result = np.empty(len(self), np.int64)
        for first, last, at in zip(self._first, self._first[1:], self._begins, strict=False):
            result[first:last] = np.diff(self._file[at : at + last - first + 1])
        return result

    def padded(self, rows: Int64Array) -> tuple[Int64Array, Int64Array]:
        """Captions as a rectangle, int64 ``(n, longest)`` padded with 0, and their lengths, int64 ``(n,)``."""
        rows = row_numbers(rows, len(self))
        batch = np.searchsorted(self._first, rows, side="right") - 1
        at = self._begins[batch] + rows - self._first[batch]
        starts = self._ids[batch] + self._file[at]
        lengths = (self._file[at + 1] - self._file[at]).astype(np.int64)
        columns = np.arange(lengths.max(initial=0))
        valid = columns < lengths[:, None]
        tokens = np.zeros(valid.shape, np.int64)
        tokens[valid] = self._file[(starts[:, None] + columns)[valid]]
        return tokens, lengths

    def take(self, rows: Int64Array) -> ChosenTokens:
        """The captions ``rows``, int64 ``(n,)``, in the order asked for."""
        return ChosenTokens(self, row_numbers(rows, len(self)))


def _place(numbers: Any, file: Any) -> int:
    """Where in a file, in steps of 4 bytes, the numbers of an Arrow array begin; 0 where there are none."""
    if not len(numbers):
        return 0
    at = numbers.buffers()[1].address + 4 * numbers.offset - file.address
    if not 0 <= at <= file.size - 4 * len(numbers) or at % 4:
        raise ValueError("its numbers do not lie in the file as they are")
    return int(at // 4)


class ArrowIds:
    """Ids in an Arrow column, decoded when they are asked for.

    Args:
        column: of strings.
    """

    def __init__(self, column: Any) -> None:
        self._column = column

    def __len__(self) -> int:
        return len(self._column)

    def __iter__(self) -> Iterator[str]:
        return (own for chunk in self._column.chunks for own in chunk.to_pylist())

    def __getitem__(self, rows: Any, /) -> Any:
        """One id, those of a slice, still on disk, or an array of those that an array of rows chooses."""
        if isinstance(rows, int | np.integer):
            return self._column[int(rows)].as_py()
        if isinstance(rows, slice):
            return ArrowIds(self._column[rows])
        return np.array(self._column.take(row_numbers(rows, len(self))).to_pylist(), np.str_)

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> NDArray[np.str_]:
        return np.array(self.tolist(), dtype or np.str_)

    def tolist(self) -> list[str]:
        """Every id."""
        return list(self)


class ArrowStrings(CaptionsOnDisk):
    """Captions of an Arrow column, decoded one at a time."""

    def __init__(self, column: Any) -> None:
        self._column = column

    def __len__(self) -> int:
        return len(self._column)

    def text(self, row: int) -> str:
        """The text of one caption."""
        text: str = self._column[row].as_py()
        return text


class ArrowImages:
    """Encoded images of an Arrow column, copied one at a time."""

    def __init__(self, column: Any) -> None:
        self._column = column

    def __len__(self) -> int:
        return len(self._column)

    def __getitem__(self, row: int, /) -> bytes:
        """The file of an image."""
        content: bytes = self._column[row]["bytes"].as_py()
        return content


def load_prepared(
    root: Path,
    spec: DatasetSpec,
    split: str,
    *,
    language: str | None = None,
    tokenizer: str | None = None,
    preload: Literal["ram"] | None = None,
) -> PairedDataset:
    """Open one split of a prepared dataset, on clean pairs.

    Args:
        root: the folder that holds prepared datasets, or the dataset's own folder.
        spec: which dataset.
        split: ``train``, ``dev`` or ``test``.
        language: of the captions; the dataset's first by default.
        tokenizer: which token ids; the language's default tokenizer by default.
        preload: ``"ram"`` reads the features into memory; by default they stay on disk.

    Raises:
        DataError: nothing is prepared there, or it is damaged, or lacks the split, language or tokenizer.
    """
    folder = root if (root / "manifest.json").exists() else root / spec.name
    manifest = read_manifest(folder)
    _check_facts(manifest, spec, folder)
    if split not in manifest.splits:
        raise DataError(unknown_name(f"split of {spec.name}", split, manifest.splits))
    tokenization = _tokenization(manifest, spec, language, tokenizer)
    images, _ = _open_table(folder, manifest, split, "images")
    captions, files = _open_table(folder, manifest, split, "captions")
    _check_columns(images, captions, folder, spec, split, tokenization.column)
    pairing = clean_pairing(images.num_rows, spec.captions_per_image)
    if not _holds(captions["image_row"], pairing):
        raise DataError(
            f"{folder}/captions/{split} is not in the order of the clean pairing; prepare it again"
        )
    text = manifest.texts.get(language or spec.languages[0])
    vocabulary = load_vocabulary(folder / tokenization.vocabulary)
    tokens = _tokens(captions[tokenization.column], files, f"{folder}/captions/{split}")
    if not _all_below(captions[tokenization.column], vocabulary.size):
        raise DataError(
            f"{folder}/captions/{split} holds token ids outside {tokenization.vocabulary}, "
            f"which has {vocabulary.size} words; prepare it again"
        )
    if text is not None:
        _check_column(captions, text, "string", f"{folder}/captions/{split}")
    dataset = PairedDataset(
        name=spec.name,
        split=split,
        image_features=ArrowFeatures(
            images["image_features"], (images.num_rows, spec.n_regions, spec.feature_dim)
        ),
        image_ids=ArrowIds(images["image_id"]),
        caption_to_image=pairing,
        pair_ids=np.arange(len(pairing)),
        tokens=tokens,
        captions=None if text is None else ArrowStrings(captions[text]),
        vocabulary=vocabulary,
        captions_per_image=spec.captions_per_image,
        noise=clean_record(pairing),
        fingerprint=manifest.splits[split].fingerprint,
        encoding=manifest.encoding,
        images=_image_files(folder, split, images["image_id"]),
    )
    return dataset if preload is None else dataset.in_ram()


def _check_facts(manifest: Manifest, spec: DatasetSpec, folder: Path) -> None:
    facts = {
        "name": (manifest.name, spec.name),
        "captions_per_image": (manifest.captions_per_image, spec.captions_per_image),
        "n_regions": (manifest.n_regions, spec.n_regions),
        "feature_dim": (manifest.feature_dim, spec.feature_dim),
        "images": ({split: record.images for split, record in manifest.splits.items()}, dict(spec.images)),
    }
    for fact, (found, expected) in facts.items():
        if found != expected:
            raise DataError(
                f"{folder}/manifest.json: {fact} is {found}, {spec.name} has {expected}; prepare it again"
            )
    for language in manifest.texts:
        if language not in spec.languages:
            raise DataError(
                f"{folder}/manifest.json: texts has language {shorten(language)}, {spec.name} has "
                f"{', '.join(spec.languages)}; prepare it again"
            )


def _tokenization(
    manifest: Manifest, spec: DatasetSpec, language: str | None, tokenizer: str | None
) -> Tokenization:
    language = language or spec.languages[0]
    if language not in spec.languages:
        raise DataError(unknown_name(f"language of {spec.name}", language, spec.languages))
    found = {own.tokenizer: own for own in manifest.tokenizations if own.language in (None, language)}
    tokenizer = tokenizer or spec.tokenizers[language]
    if tokenizer not in found:
        raise DataError(
            f"{spec.name} was prepared without tokenizer {tokenizer!r} for language {language!r}, "
            f"only with: {', '.join(sorted(found)) or 'none'}; prepare it again with --tokenizer {tokenizer}"
        )
    return found[tokenizer]


def _image_files(folder: Path, split: str, image_ids: Any) -> ArrowImages | None:
    found = read_image_files(folder)
    if found is None:
        return None
    where = f"{folder / IMAGE_FILES}/{split}"
    table, _ = _map_files(folder / IMAGE_FILES, found.splits.get(split, ()), where)
    _check_column(table, "image_id", "string", where)
    _check_column(table, "image", "struct<bytes: binary, path: string>", where)
    if not table["image_id"].equals(image_ids):
        raise DataError(
            f"{where} holds other images than the features; delete {folder / IMAGE_FILES} and add them again"
        )
    return ArrowImages(table["image"])


def _open_table(folder: Path, manifest: Manifest, split: str, table: str) -> tuple[Any, list[Any]]:
    if manifest.format != "arrow":
        raise DataError(
            f"{folder} was prepared as {manifest.format}, for uploading; prepare it with --format arrow"
        )
    records = [record for record in manifest.splits[split].files if record.name.startswith(f"{table}/")]
    return _map_files(folder, records, f"{folder}/{table}/{split}")


def _map_files(folder: Path, records: Sequence[FileRecord], where: str) -> tuple[Any, list[Any]]:
    """A table that lies in some files, and these files as Arrow buffers, in order."""
    import pyarrow as pa

    parts, files = [], []
    for record in records:
        path = folder / record.name
        found = path.stat().st_size if path.is_file() else None
        if found != record.bytes:
            state = "is missing" if found is None else f"has {found} bytes"
            raise DataError(f"{path} {state}, expected {record.bytes} bytes; prepare the dataset again")
        try:
            part, file = _map_table(path)
        except (pa.ArrowException, OSError, ValueError, MemoryError) as error:
            raise DataError(
                f"{path} is not a readable Arrow file ({error}); prepare the dataset again"
            ) from None
        parts.append(part)
        files.append(file)
    try:
        return pa.concat_tables(parts), files
    except (pa.ArrowException, ValueError) as error:
        raise DataError(
            f"{where} has files that do not fit together ({error}); prepare the dataset again"
        ) from None


def _check_columns(
    images: Any, captions: Any, folder: Path, spec: DatasetSpec, split: str, tokens: str
) -> None:
    """Refuse tables whose columns are not of the layout, or whose insides point outside of them."""
    where = {table: f"{folder}/{table}/{split}" for table in ("images", "captions")}
    if images.num_rows != spec.images[split]:
        raise DataError(
            f"{where['images']} has {images.num_rows} rows, {spec.name} has {spec.images[split]} images; "
            "prepare it again"
        )
    _check_column(images, "image_id", "string", where["images"])
    numbers = [
        f"fixed_size_list<{dtype}>[{spec.n_regions * spec.feature_dim}]" for dtype in ("float", "halffloat")
    ]
    _check_column(images, "image_features", " or ".join(numbers), where["images"], full=False)
    _check_column(captions, "image_row", "int64", where["captions"])
    _check_column(captions, tokens, "list<int32>", where["captions"])


def _check_column(table: Any, name: str, types: str, where: str, *, full: bool = True) -> None:
    import pyarrow as pa

    try:
        column = table[name]
        column.validate(full=full)
        found = re.sub(r"<\w+: (\w+)( not null)?>", r"<\1>", str(column.type))
    except (
        pa.ArrowException,
        KeyError,
        ValueError,
    ) as error:  # a name may be missing, twice there or no text
        raise DataError(f"{where}: column {name} is damaged ({error}); prepare the dataset again") from None
    if found not in types.split(" or "):
        raise DataError(f"{where}: {name} is {column.type}, expected {types}; prepare the dataset again")
    if column.null_count or not column.num_chunks:
        raise DataError(f"{where}: {name} is empty in places; prepare the dataset again")


def _map_table(path: Path) -> tuple[Any, Any]:
    """Map an Arrow file and read its headers only; ``pyarrow.memory_map`` has the disk read it all ahead.

    Returns:
        Its table, and the mapped file as an Arrow buffer.
    """
    import pyarrow as pa

    with path.open("rb") as file:
        mapped = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
    mapped.madvise(mmap.MADV_RANDOM)
    file = pa.py_buffer(mapped)
    table = pa.ipc.open_stream(pa.BufferReader(file)).read_all()
    mapped.madvise(mmap.MADV_NORMAL)
    return table, file


def _holds(column: Any, numbers: Int64Array) -> bool:
    """Whether a column holds these numbers, without a copy of it."""
    first = np.cumsum([0, *map(len, column.chunks)])
    return len(column) == len(numbers) and all(
        np.array_equal(_view(chunk, numbers.dtype), numbers[start : start + len(chunk)])
        for start, chunk in zip(first, column.chunks, strict=False)
    )


def _tokens(column: Any, files: Sequence[Any], where: str) -> ArrowTokens:
    try:
        (file,) = files
        return ArrowTokens(column, file)
    except ValueError as error:
        raise DataError(f"{where}: token ids cannot be read ({error}); prepare the dataset again") from None


def _all_below(column: Any, size: int) -> bool:
    """Whether all numbers of a column of lists are 0 to ``size - 1``."""
    ids = (_view(chunk.values, np.dtype(np.int32)) for chunk in column.chunks if len(chunk.values))
    return all(own.min() >= 0 and own.max() < size for own in ids)


def _view(array: Any, dtype: np.dtype[T]) -> NDArray[T]:
    """A read-only view of an Arrow array of numbers; its own ``to_numpy`` takes a second to import pandas."""
    return np.frombuffer(array.buffers()[1], dtype, len(array), array.offset * dtype.itemsize)
