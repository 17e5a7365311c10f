"""Decode a file or folder of rows: from a path to text, Arrow tables or entries of an archive, and nothing else.

Each function takes paths and gives picklable results, so that it can run in a process of its own.
"""

import gzip
import io
import tarfile
from pathlib import Path
from typing import Any, NamedTuple

import pyarrow as pa

from ncl_bench.data.pairs.listing import PICTURE_ENDINGS, TEXT_ENDINGS
from ncl_bench.errors import DataError
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
    content = gzip.decompress(path.read_bytes()) if path.name.lower().endswith(".gz") else path.read_bytes()
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


def parquet(path: Path) -> pa.Table:
    """A Parquet file, checked: that texts are UTF-8 shows only when they are used."""
    import pyarrow.parquet as pq

    table = pq.ParquetFile(path).read()
    table.validate(full=True)
    return table


def saved(path: Path) -> dict[str, pa.Table]:
    """Split to the rows of what ``datasets`` saved; a single set has the name ``""``."""
    import datasets

    found = datasets.load_from_disk(str(path))
    return {
        name: of_dataset(each) for name, each in (found if isinstance(found, dict) else {"": found}).items()
    }


def of_dataset(found: Any) -> pa.Table:
    """The rows of a ``datasets.Dataset``, whatever its format hides, with its features in the schema."""
    table = found.with_format("arrow")[:]
    table.validate(full=True)
    return table.replace_schema_metadata(found.features.arrow_schema.metadata)


def shard(path: Path) -> list[tuple[str, Any]]:
    """Names of the pictures, texts and facts of a shard, each with its :class:`Span` or its bytes."""
    found: list[tuple[str, Any]] = []
    with tarfile.open(path) as archive:
        packed = not isinstance(archive.fileobj, io.BufferedReader)
        for entry in archive:
            ending = Path(entry.name.lower()).suffix
            if not entry.isreg() or ending not in (*PICTURE_ENDINGS, *TEXT_ENDINGS, ".text", ".json"):
                continue
            if ending in PICTURE_ENDINGS and not packed:
                found.append((entry.name, Span(str(path), entry.offset_data, entry.size)))
            elif stream := archive.extractfile(entry):
                found.append((entry.name, stream.read()))
        # tarfile takes a damaged header for the end of the archive and gives the files before it
        archive.fileobj.seek(archive.offset)
        end = archive.fileobj.read(tarfile.BLOCKSIZE)
        if len(end) < tarfile.BLOCKSIZE or end.strip(b"\0"):
            raise tarfile.ReadError("it is cut short, or a header is damaged")
    return found
