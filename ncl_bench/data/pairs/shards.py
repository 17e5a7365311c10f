"""WebDataset shards."""

import io
import json
import lzma
import tarfile
import zlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import pandas as pd

from ncl_bench.data.columns import Int64Array
from ncl_bench.data.pairs.form import LARGEST_TEXT, PICTURE_ENDINGS, Form
from ncl_bench.data.pairs.tables import parsed_object
from ncl_bench.errors import DataError, first_line, listed
from ncl_bench.files import atomic_path
from ncl_bench.foreign import readable, text_lines

LARGEST_PICTURE = 300_000_000
"""Largest file of a picture in a shard, in bytes."""
_TEXTS = ("txt", "caption", "text")
_LARGEST_HEADER = 2**20
_LONG_HEADERS = (
    tarfile.XHDTYPE,
    tarfile.XGLTYPE,
    tarfile.SOLARIS_XHDTYPE,
    tarfile.GNUTYPE_LONGNAME,
    tarfile.GNUTYPE_LONGLINK,
)
_MOST_MEMBERS = 1_000_000
"""Files in one shard; common shards have 10,000. tarfile keeps about 1 kB of each in memory."""
_LARGEST_TEXTS = 2**30
"""All texts of the shards, in bytes."""


class _Entry(tarfile.TarInfo):
    """A header of a shard, refused where tarfile would stop early or read without a limit."""

    @classmethod
    def frombuf(cls, buf: bytes | bytearray, encoding: str | None, errors: str) -> "_Entry":
        # tarfile reads a long header whole right after this
        entry = super().frombuf(buf, encoding, errors)  # type: ignore[arg-type]
        if entry.size < 0 or (entry.type in _LONG_HEADERS and entry.size > _LARGEST_HEADER):
            raise tarfile.ReadError(f"a header states {entry.size:,} bytes")
        if entry.type == tarfile.GNUTYPE_SPARSE:
            raise tarfile.ReadError(f"{entry.name} is a sparse file")
        return entry

    @classmethod
    def fromtarfile(cls, tarfile_: tarfile.TarFile) -> "_Entry":
        # tarfile takes every other bad header for the end of the archive, too
        try:
            entry = super().fromtarfile(tarfile_)
        except tarfile.HeaderError as error:
            if type(error).__name__ == "EOFHeaderError":
                raise
            raise tarfile.ReadError(f"it is cut short or damaged: {error}") from None
        if entry.size < 0:
            raise tarfile.ReadError(f"a header states {entry.size:,} bytes")
        return entry

    def _refuse_sparse(self, *_: Any) -> None:
        raise tarfile.ReadError("it holds a sparse file")

    # the maps of sparse files have no largest size
    _proc_gnusparse_00 = _proc_gnusparse_01 = _proc_gnusparse_10 = _refuse_sparse


@dataclass(frozen=True)
class _Member:
    """A file of a shard: where it lies, the sample that it belongs to, and the name of its field."""

    archive: tarfile.TarFile
    entry: tarfile.TarInfo
    key: str
    field: str

    def read(self) -> bytes:
        try:
            stream = self.archive.extractfile(self.entry)
            return b"" if stream is None else stream.read(self.entry.size)
        except _UNREADABLE as error:
            raise _unreadable(self.archive.name, error) from None


_UNREADABLE = (
    tarfile.TarError,
    EOFError,
    zlib.error,
    lzma.LZMAError,
    OSError,
    OverflowError,
    ValueError,
    RecursionError,  # long headers one after another
)


def _unreadable(shard: object, error: Exception) -> DataError:
    return DataError(f"{shard} cannot be read as a WebDataset shard ({first_line(error)}); write it again")


def _members(shards: Sequence[Path]) -> Iterator[_Member]:
    """Regular files of known endings and stated sizes, in order; everything else is passed over unread."""
    for shard in shards:
        readable(shard, DataError, "a WebDataset shard")
        try:
            with tarfile.open(shard, tarinfo=_Entry) as archive:
                for number, entry in enumerate(archive):
                    if number == _MOST_MEMBERS:
                        raise DataError(f"{shard} has more than {_MOST_MEMBERS:,} files; split it")
                    place, _, name = entry.name.rpartition("/")
                    stem, dot, name = name.partition(".")
                    ending = f".{name.lower()}".rpartition(".")[2]
                    kind = "." + ending
                    if not (entry.isreg() and dot) or stem == "":
                        continue
                    if kind not in PICTURE_ENDINGS and ending not in (*_TEXTS, "json"):
                        continue
                    largest = LARGEST_PICTURE if kind in PICTURE_ENDINGS else LARGEST_TEXT
                    if entry.size > largest:
                        raise DataError(
                            f"{shard}: {entry.name} has {entry.size:,} bytes, expected at most {largest:,}; leave it "
                            "out"
                        )
                    yield _Member(archive, entry, f"{place}/{stem}" if place else stem, name)
        except _UNREADABLE as error:
            raise _unreadable(shard, error) from None


def shards_form(folder: Path, shards: Sequence[Path]) -> Form:
    """WebDataset shards: files of one key are a row, and what follows the key names a column.

    A picture ``1.jpg`` is in the column ``image``, ``1.mask.png`` in ``mask``; a text ``1.txt`` in ``caption``,
    ``1.outputs.txt`` in ``outputs``; ``1.json`` holds other columns.
    """
    rows: dict[tuple[str, str], dict[str, Any]] = {}
    columns: dict[str, str] = {}
    fields: set[str] = set()
    size = 0
    for member in _members(shards):
        if f".{member.field.lower()}".rpartition(".")[2] in (*_TEXTS, "json"):
            size += member.entry.size
            if size > _LARGEST_TEXTS:
                raise DataError(
                    f"{folder}: the texts of the shards have over {_LARGEST_TEXTS:,} bytes; split them"
                )
        # a key is that of one shard: two shards may count from 0 both
        row = rows.setdefault((str(member.archive.name), member.key), {"__key__": member.key})
        fields.add(member.field)
        before, _, ending = member.field.rpartition(".")
        if ending.lower() == "json":
            facts = parsed_object(member.read(), f"{folder} {member.entry.name}")
            row |= {str(name): fact for name, fact in facts.items() if str(name) not in row}
            continue
        is_picture = f".{ending.lower()}" in PICTURE_ENDINGS
        column = before or ("image" if is_picture else "caption")
        # one column cannot hold both; the rows would lose one
        if columns.setdefault(column, "picture" if is_picture else "text") != (
            "picture" if is_picture else "text"
        ):
            raise DataError(f"{folder}: {column} is a picture and a text; name the fields apart")
        if is_picture:
            if isinstance(row.get(column), tarfile.TarInfo):
                raise DataError(
                    f"{folder}: {row[column].name} and {member.entry.name} are pictures of one sample; name the fields "
                    "apart, as in 1.image.jpg and 1.mask.png"
                )
            row[column] = member.entry
        else:
            content = member.read()
            row[column] = "\n".join(text_lines(content, f"{folder} {member.entry.name}", DataError)).strip()
    pictures = [column for column, kind in columns.items() if kind == "picture"]
    if not pictures:
        raise DataError(
            f"{folder}: the shards hold {listed(sorted(fields)) or 'no field of a known ending'}, and no picture; "
            "expected fields such as jpg and txt"
        )
    order = {key: place for place, key in enumerate(rows)}

    def of_rows(column: str) -> Iterator[bytes | Path | None]:
        # the pictures of a row lie together, so one pass in the order of the shards serves all rows
        found: dict[int, bytes] = {}
        reached = 0
        for member in _members(shards):
            place = order[str(member.archive.name), member.key]
            while reached < place:
                yield found.pop(reached, None)
                reached += 1
            before, _, ending = member.field.rpartition(".")
            if (before or "image") == column and f".{ending.lower()}" in PICTURE_ENDINGS:
                found[place] = member.read()
        while reached < len(order):
            yield found.pop(reached, None)
            reached += 1

    # nothing but text stays in the table; a fact of the json gives way to the picture of its name
    texts = [{name: cell for name, cell in row.items() if name not in pictures} for row in rows.values()]
    table = pd.DataFrame(texts, dtype=object)

    def write(target: Path, chosen: Int64Array, column: str, captions: Mapping[int, str]) -> Path:
        """One shard; where two shards use a key, samples are named after theirs too."""
        target = target.with_name(f"{target.name}.tar")
        samples, apart = list(rows), len({key for _, key in rows}) < len(rows)
        wanted = {samples[row] for row in chosen.tolist()}
        with atomic_path(target) as temporary, tarfile.open(temporary, "w") as archive:
            for member in _members(shards):
                shard = str(member.archive.name)
                if (shard, member.key) in wanted:
                    name = f"{Path(shard).stem}/{member.entry.name}" if apart else member.entry.name
                    new = captions.get(order[shard, member.key])
                    entry = tarfile.TarInfo(name)
                    content = member.read() if new is None else _with_caption(member, column, new)
                    entry.size = len(content)
                    archive.addfile(entry, io.BytesIO(content))
        return target

    return Form(folder.name, table, write, None, {column: partial(of_rows, column) for column in pictures})


def _with_caption(member: _Member, column: str, caption: str) -> bytes:
    """The content of a file with another caption, if it is the text or the facts that hold the captions."""
    content = member.read()
    before, _, ending = member.field.rpartition(".")
    if ending.lower() in _TEXTS and (before or "caption") == column:
        return caption.encode()
    if ending.lower() != "json":
        return content
    facts = parsed_object(content, member.entry.name)
    return json.dumps(facts | {column: caption}, ensure_ascii=False).encode() if column in facts else content
