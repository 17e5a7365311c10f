"""Decode a file or folder of rows: from a path to text, Arrow tables or entries of an archive, and nothing else.

What unpacks, or runs a library that may crash on damaged bytes, runs in a worker of :mod:`ncl_bench.decoding`.
"""

import io
import json
import os
import tarfile
from pathlib import Path
from typing import Any, NamedTuple

import pyarrow as pa

from ncl_bench.data.pairs.listing import PACKED, PICTURE_ENDINGS, TEXT_ENDINGS
from ncl_bench.decoding import decode
from ncl_bench.errors import DataError, shown
from ncl_bench.foreign import decoded

_OTHER_KINDS = {
    b"PK\x03\x04": "an Excel file or another ZIP archive",
    b"\xd0\xcf\x11\xe0": "a file of an old Excel",
    b"ARROW1": "an Arrow or Feather file",
    b"FEA1": "a Feather file",
    b"PAR1": "a Parquet file",
    b"%PDF": "a PDF",
    b"\x93NUMPY": "an array",
    b"\x1f\x8b": "packed twice, or packed under another name",
    b"SQLite": "a database",
}
"""First bytes to what a file is that is no text."""


_OF_SAMPLES = (*PICTURE_ENDINGS, *TEXT_ENDINGS, ".text", ".json")


class Span(NamedTuple):
    """Where a picture lies in an archive that is not packed: file, first byte, number of bytes."""

    file: str
    start: int
    size: int

    def read(self) -> bytes:
        """The bytes of the picture."""
        with open(self.file, "rb") as stream:
            stream.seek(self.start)
            return stream.read(self.size)


def text(path: Path) -> str:
    """The text of a file, unpacked; UTF-8, or UTF-16 with its mark."""
    content = decode(unpacked, path) if path.suffix.lower() in PACKED else path.read_bytes()
    kind = next((kind for head, kind in _OTHER_KINDS.items() if content.startswith(head)), None)
    if kind or content[:200].lstrip().startswith(b"<?xml"):
        # CVAT and other tools of annotation export XML or a ZIP of it
        raise DataError(
            f"{path} is {kind or 'XML'}, expected a table of text or .parquet; save its rows as CSV with the columns "
            "image and caption"
        )
    if content[:2] in (b"\xff\xfe", b"\xfe\xff"):
        return content.decode("utf-16")
    return decoded(content, str(path), DataError)


def unpacked(path: Path, _: str) -> bytes:
    """The bytes that a packed file holds; called in a worker."""
    with pa.input_stream(str(path), compression=PACKED[path.suffix.lower()]) as stream:
        return bytes(stream.read())


def parquet(path: Path) -> pa.Table:
    """A Parquet file."""
    return decode(table_of_parquet, path)


def table_of_parquet(path: Path, _: str) -> pa.Table:
    """A Parquet file, checked: that texts are UTF-8 shows only when they are used; called in a worker."""
    import pyarrow.parquet as pq

    table = pq.ParquetFile(path).read()
    table.validate(full=True)
    return table


def saved(path: Path) -> dict[str, pa.Table]:
    """Split to the rows of what ``datasets`` saved; a single set has the name of the folder."""
    index = path / "dataset_dict.json"
    names = json.loads(index.read_bytes())["splits"] if index.is_file() else [""]
    for name in names:
        state = path / name / "state.json"
        files = [each["filename"] for each in json.loads(state.read_bytes())["_data_files"]]
        # a folder from somebody else may name any file of this machine
        if outside := [each for each in (*names, *files) if each and Path(each).name != each]:
            raise DataError(f"{path} names {shown(outside[0])}, which is not in the folder; save it again")
    return {name or path.name: decode(table_of_saved, path / name) for name in names}


def table_of_saved(path: Path, _: str) -> pa.Table:
    """The rows of one set that ``datasets`` saved; called in a worker."""
    import datasets

    return of_dataset(datasets.Dataset.load_from_disk(str(path)))


def of_dataset(dataset: Any) -> pa.Table:
    """The rows of a ``datasets.Dataset``, whatever its format hides, with its features in the schema."""
    table = dataset.with_format("arrow")[:]
    table.validate(full=True)
    return table.replace_schema_metadata(dataset.features.arrow_schema.metadata)


def shard(path: Path) -> list[tuple[str, Any]]:
    """Names of the pictures, texts and facts of a shard, each with its :class:`Span` or its bytes."""
    return [
        (os.fsdecode(name), Span(str(path), start, size) if content is None else content)
        for name, content, start, size in zip(*decode(table_of_shard, path).to_pydict().values(), strict=True)
    ]


def table_of_shard(path: Path, _: str) -> pa.Table:
    """The files of a shard: name, bytes, and in place of the bytes first byte and size; called in a worker."""
    members: list[dict[str, Any]] = []
    with tarfile.open(path) as archive:
        packed = not isinstance(archive.fileobj, io.BufferedReader)
        for entry in archive:
            name = Path(entry.name)
            hidden = name.name.startswith(".")  # as a Mac adds to an archive
            if hidden or not entry.isreg() or name.suffix.lower() not in _OF_SAMPLES:
                continue
            file: dict[str, Any] = {"name": os.fsencode(entry.name)}
            if name.suffix.lower() in PICTURE_ENDINGS and not packed:
                file |= {"start": entry.offset_data, "size": entry.size}
            elif stream := archive.extractfile(entry):
                file["content"] = stream.read()
            members.append(file)
        # tarfile takes a damaged header for the end of the archive and gives the files before it
        archive.fileobj.seek(archive.offset)
        end = archive.fileobj.read(tarfile.BLOCKSIZE)
        if len(end) < tarfile.BLOCKSIZE or end.strip(b"\0"):
            raise tarfile.ReadError("it is cut short, or a header is damaged")
    kinds = {"name": pa.binary(), "content": pa.large_binary(), "start": pa.int64(), "size": pa.int64()}
    return pa.Table.from_pylist(members, pa.schema(kinds))
