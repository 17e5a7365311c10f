"""Read somebody's images and captions in the forms that people have, as rows that keep their order and columns.

Tables (CSV, TSV, JSON Lines, Parquet), Kaggle's ``captions.txt``, lines such as ``name.jpg#0<TAB>caption``, Karpathy's
JSON, captions with URLs without a header, a folder with a metadata table, a folder saved with ``datasets``, WebDataset
shards, and in Python a frame or a ``datasets.Dataset``.
"""

import csv
import gzip
import json
import os
import re
import shutil
import tarfile
import tempfile
import zlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from ncl_bench.data.columns import Int64Array
from ncl_bench.data.layout import save_quietly
from ncl_bench.errors import DataError, first_line, listed, shorten, shown
from ncl_bench.files import (
    Rows,
    atomic_folder,
    atomic_path,
    delimiter_of,
    read_limited,
    read_table,
    readable,
    text_lines,
    write_text,
)

IMAGE_COLUMNS = (
    "image",
    "file_name",
    "path",
    "filename",
    "image_path",
    "filepath",
    "image_name",
    "img",
    "file",
)
CAPTION_COLUMNS = (
    "caption",
    "text",
    "title",
    "alt",
    "sentence",
    "comment",
    "description",
    "captions",
    "texts",
    "sentences",
)
PICTURE_COLUMNS = ("image", "img", "picture", "photo", "jpg", "png", "webp")
URL_COLUMNS = ("url", "image_url", "link")
TABLES = (".csv", ".tsv", ".txt", ".jsonl", ".ndjson", ".json", ".parquet", ".token")
METADATA = ("metadata.csv", "metadata.jsonl", "metadata.parquet")
EXPECTED = "a table of images and captions (.csv, .tsv, .txt, .jsonl, .json or .parquet)"
_NUMBERED = re.compile(r"(?P<id>(?P<image>\S.*?)#(?:[A-Za-z]+#)?\d+)[\t ]+(?P<caption>.*)")
URL = re.compile(r"https?://\S+")
NUMBER = re.compile(r"[0-9]{1,19}")
LARGEST_TEXT = 10_000_000
"""Largest text of one caption or of the facts of one picture, in bytes."""
LARGEST_PICTURE = 300_000_000
"""Largest file of a picture in a shard, in bytes."""
MOST_CELLS = 100_000_000
MOST_PACKED = 100
"""Rows times columns of a Parquet file, and how often its size the columns may take in memory."""
PICTURE_ENDINGS = (".jpg", ".jpeg", ".png", ".webp", ".bmp", ".gif", ".tif", ".tiff")
_TEXTS = ("txt", "caption", "text")
_SIGNATURES = (b"\xff\xd8\xff", b"\x89PNG", b"RIFF", b"GIF8", b"BM", b"II*\0", b"MM\0*", b"\xff\x4f\xff\x51")
"""First bytes of pictures."""


PicturesOfRows = Callable[[], Iterator[bytes | Path | None]]


@dataclass(frozen=True)
class Form:
    """Rows as somebody wrote them, and how to write some of them again.

    Attributes:
        name: of the file or folder, for messages.
        table: the rows, in order, with all columns but pictures.
        save: writes chosen rows, int64 ``(n,)``, to a path without an ending, and returns the path with it.
        folder: that image paths start from if no other is given.
        pictures: column of pictures in the rows to a function that iterates over them, as bytes or files.
        places: where each row stands, such as ``captions.csv line 7`` (default: its number).
    """

    name: str
    table: pd.DataFrame
    save: Callable[[Path, Int64Array], Path]
    folder: Path | None = None
    pictures: Mapping[str, PicturesOfRows] = field(default_factory=dict)
    places: Sequence[str] = ()

    def place(self, row: int) -> str:
        """Where a row stands, for messages."""
        return self.places[row] if self.places else f"{self.name} row {row + 1}"


def form_of(source: Any) -> Form:
    """Read a file, a folder, a frame or a ``datasets.Dataset``."""
    if isinstance(source, pd.DataFrame):
        return _frame(source.reset_index(drop=True).rename(columns=str), "the frame")
    if isinstance(source, str | Path):
        path = Path(source)
        return _folder(path) if path.is_dir() else _file(path)
    import datasets

    if isinstance(source, datasets.DatasetDict):
        source = datasets.concatenate_datasets(list(source.values()))
    if isinstance(source, datasets.Dataset):
        return _dataset(source, "the dataset")
    raise DataError(
        f"pairs are {type(source).__name__}, expected a path, a pandas.DataFrame or a datasets.Dataset"
    )


def is_table(path: Path) -> bool:
    """Whether a file's name is one of a form."""
    name = path.name.lower().removesuffix(".gz")
    return name.endswith((*TABLES, ".tar", ".tgz"))


def rows_in(path: Path) -> bool:
    """Whether a file or folder holds rows of images, and not images alone."""
    return _kind_of(path)[0] != "" if path.is_dir() else is_table(path)


def _unpacked(path: Path) -> Form:
    """A table that gzip packed, read from a copy; chosen rows are written without packing."""
    largest = max(LARGEST_TEXT, MOST_PACKED * path.stat().st_size)
    try:
        with gzip.open(path) as stream:
            content = stream.read(largest + 1)
    except (OSError, EOFError, zlib.error) as error:
        raise DataError(f"{path} cannot be unpacked ({first_line(error)}); fetch it again") from None
    if len(content) > largest:
        raise DataError(
            f"{path} holds over {largest:,} bytes, which is more than is read into memory; split it"
        )
    with tempfile.TemporaryDirectory() as scratch:
        copy = Path(scratch, path.stem)
        copy.write_bytes(content)
        try:
            form = _file(copy)
        except DataError as error:
            raise DataError(str(error).replace(str(copy), str(path))) from None
    places = [each.replace(str(copy), str(path)) for each in form.places]
    return replace(form, name=path.name, folder=path.parent, places=places)


def _file(path: Path) -> Form:
    readable(path, DataError, EXPECTED)
    ending = path.suffix.lower()
    if ending == ".gz" and not path.name.lower().endswith(".tar.gz"):
        return _unpacked(path)
    try:
        if ending == ".parquet":
            return _parquet(path)
        if ending in (".jsonl", ".ndjson"):
            return _json_lines(path)
        if ending == ".json":
            return _json(path)
        if ending == ".npy":
            raise DataError(
                f"{path} is an array; give embeddings with --image-embeddings and --caption-embeddings"
            )
        head = path.open("rb").readline(10_000).decode("utf-8-sig", "replace").rstrip("\r\n")
    except OSError as error:
        raise DataError(f"{path} cannot be read ({error.strerror}); check its permissions") from None
    if ending in (".tar", ".tgz") or path.name.lower().endswith(".tar.gz"):
        return _shards(path, [path])
    if _NUMBERED.fullmatch(head):
        return _numbered(path)
    if "\t" in head and any(URL.fullmatch(cell.strip()) for cell in head.split("\t")):
        return _captions_and_urls(path)
    return _table(path)


def _table(path: Path) -> Form:
    """A table with a line of names; its separator is kept."""
    columns, rows = read_table(path, DataError, expected=EXPECTED)
    found = [*rows]
    table = pd.DataFrame([row for _, row in found], columns=columns, dtype=object)
    delimiter = delimiter_of(path, path.open("rb").readline())

    def save(target: Path, chosen: Int64Array) -> Path:
        target = target.with_name(target.name + path.suffix)
        lines = [columns, *table.iloc[chosen].to_numpy().tolist()]
        with atomic_path(target) as temporary, temporary.open("w", encoding="utf-8", newline="") as stream:
            if delimiter == "\t":  # a quotation mark is an ordinary character there
                stream.writelines("\t".join(line) + "\n" for line in lines)
            else:
                csv.writer(stream, delimiter=delimiter, lineterminator="\n").writerows(lines)
        return target

    return Form(path.name, table, save, path.parent, places=[where for where, _ in found])


def _lines_form(path: Path, lines: list[str], numbers: list[int], table: pd.DataFrame) -> Form:
    """A file of one line per row without a header: chosen lines are written as they are."""

    def save(target: Path, chosen: Int64Array) -> Path:
        target = target.with_name(target.name + path.suffix)
        write_text(target, "".join(f"{lines[row]}\n" for row in chosen.tolist()))
        return target

    return Form(path.name, table, save, path.parent, places=[f"{path} line {number}" for number in numbers])


def _filled_lines(path: Path) -> tuple[list[str], list[int]]:
    """Lines that are not blank, and their numbers from 1."""
    every = text_lines(path.read_bytes(), str(path), DataError)
    numbers = [number for number, line in enumerate(every, 1) if line.strip()]
    return [every[number - 1] for number in numbers], numbers


def _numbered(path: Path) -> Form:
    lines, numbers = _filled_lines(path)
    rows = []
    for line, number in zip(lines, numbers, strict=True):
        found = _NUMBERED.fullmatch(line) or re.fullmatch(
            r"(?P<id>(?P<image>\S.*?)#\S*)(?P<caption>)\s*", line
        )
        if found is None:
            raise DataError(
                f"{path} line {number}: expected name.jpg#0, a tab and a caption as in the first line, got "
                f"{shorten(line)}; correct it"
            )
        rows.append(found.group("id", "image", "caption"))
    return _lines_form(
        path, lines, numbers, pd.DataFrame(rows, columns=["id", "image", "caption"], dtype=object)
    )


def _captions_and_urls(path: Path) -> Form:
    lines, numbers = _filled_lines(path)
    cells = [line.split("\t") for line in lines]
    n_columns = len(cells[0])
    url = next(place for place, cell in enumerate(cells[0]) if URL.fullmatch(cell.strip()))
    caption = next((place for place in range(n_columns) if place != url), None)
    if caption is None:
        raise DataError(f"{path} line 1 has a URL and no caption; expected a caption, a tab and a URL")
    for row, number in zip(cells, numbers, strict=True):
        if len(row) != n_columns:
            raise DataError(f"{path} line {number} has {len(row)} cells, line 1 has {n_columns}; correct it")
    names = [f"column_{place + 1}" for place in range(n_columns)]
    names[url], names[caption] = "url", "caption"
    return _lines_form(path, lines, numbers, pd.DataFrame(cells, columns=names, dtype=object))


def _json_lines(path: Path) -> Form:
    lines, numbers = _filled_lines(path)
    rows = []
    for line, number in zip(lines, numbers, strict=True):
        rows.append(_parsed(line.encode(), f"{path} line {number}"))
    return _lines_form(path, lines, numbers, pd.DataFrame(rows, dtype=object))


def _json(path: Path) -> Form:
    """Karpathy's splits, COCO's captions, or a list of objects."""
    try:
        content = json.loads(path.read_bytes())
    except json.JSONDecodeError as error:
        raise DataError(
            f"{path} line {error.lineno} column {error.colno} is no JSON ({error.msg}); download the file again"
        ) from None
    except (ValueError, RecursionError):
        raise DataError(f"{path} is no JSON in UTF-8; download the file again") from None
    if isinstance(content, list):
        if not all(isinstance(row, dict) for row in content):
            raise DataError(f"{path} is a list, expected one of objects with an image and a caption")
        table = pd.DataFrame(content, dtype=object)

        def save_list(target: Path, chosen: Int64Array) -> Path:
            target = target.with_name(f"{target.name}.json")
            kept = [content[row] for row in chosen.tolist()]
            write_text(target, json.dumps(kept, ensure_ascii=False, indent=1) + "\n")
            return target

        return Form(path.name, table, save_list, path.parent)
    columns, rows = _read_images(path, content)
    found = [*rows]
    places = [where for where, _ in found]
    table = pd.DataFrame([row for _, row in found], columns=columns, dtype=object)
    if "annotations" in content:

        def save_coco(target: Path, chosen: Int64Array) -> Path:
            target = target.with_name(f"{target.name}.json")
            own = [content["annotations"][row] for row in chosen.tolist()]
            ids = {each["image_id"] for each in own}
            images = [each for each in content["images"] if each["id"] in ids]
            kept = content | {"images": images, "annotations": own}
            write_text(target, json.dumps(kept, ensure_ascii=False) + "\n")
            return target

        return Form(path.name, table, save_coco, path.parent, places=places)

    def save(target: Path, chosen: Int64Array) -> Path:
        target, kept, row, images = target.with_name(f"{target.name}.json"), set(chosen.tolist()), 0, []
        for image in content["images"]:
            sentences = image["sentences"]
            own = [sentence for place, sentence in enumerate(sentences) if row + place in kept]
            row += len(sentences)
            if own:
                images.append(image | {"sentences": own})
        write_text(target, json.dumps(content | {"images": images}, ensure_ascii=False) + "\n")
        return target

    return Form(path.name, table, save, path.parent, places=places)


def _parquet(path: Path) -> Form:
    return _frame(_read_parquet(path), path.name, path.parent, ".parquet")


def _read_parquet(path: Path) -> pd.DataFrame:
    """All columns of a Parquet file; its footer is checked before anything is decompressed."""
    import pyarrow as pa
    import pyarrow.compute as pc
    import pyarrow.parquet as pq

    readable(path, DataError, EXPECTED)
    try:
        with pq.ParquetFile(path) as file:
            facts = file.metadata
            parts = [facts.row_group(group) for group in range(facts.num_row_groups)]
            size, packed = sum(part.total_byte_size for part in parts), path.stat().st_size
            # equal rows are stored once, so rows count too: each takes memory when it is read
            if facts.num_rows * facts.num_columns > MOST_CELLS or size > max(
                LARGEST_TEXT, MOST_PACKED * packed
            ):
                raise DataError(
                    f"{path} has {packed:,} bytes and holds {facts.num_rows:,} rows of {size:,} bytes, which is more "
                    "than is read into memory; split it into several files"
                )
            for name in file.schema_arrow.names:
                if file.schema_arrow.names.count(name) > 1:
                    raise DataError(f"{path} has two columns {shown(name)}; rename one of them")
            schema = file.schema_arrow
            flat = (
                pa.types.is_string,
                pa.types.is_large_string,
                pa.types.is_binary,
                pa.types.is_large_binary,
            )
            texts = [each.name for each in schema if any(check(each.type) for check in flat)]
        batches, decoded = [], 0
        with pq.ParquetFile(path, read_dictionary=texts) as file:
            for batch in file.iter_batches(1_000):  # equal cells stay one until their size is known
                for column in batch.columns:
                    if pa.types.is_dictionary(column.type):
                        lengths = pc.take(pc.binary_length(column.dictionary), column.indices)
                        decoded += pc.sum(lengths).as_py() or 0
                if decoded > max(LARGEST_TEXT, MOST_PACKED * packed):
                    raise DataError(
                        f"{path} has {packed:,} bytes and holds over {decoded:,} bytes of text, which is more than is "
                        "read into memory; split it into several files"
                    )
                batches.append(batch)
        if not batches:
            return pd.DataFrame(columns=schema.names, dtype=object)
        coded = pa.Table.from_batches(batches)
        arrays = [coded.column(place).cast(each.type) for place, each in enumerate(schema)]
        found: pd.DataFrame = pa.Table.from_arrays(arrays, schema=schema).to_pandas(ignore_metadata=True)
        return found.drop(columns="__index_level_0__", errors="ignore")  # an index without a name
    except DataError:
        raise
    except Exception as error:  # pyarrow raises many classes for a damaged file
        raise DataError(f"{path} cannot be read as Parquet ({first_line(error)}); write it again") from None


def _frame(frame: pd.DataFrame, name: str, folder: Path | None = None, ending: str = "") -> Form:
    """A frame, whose cells may be pictures as ``datasets`` stores them: ``{"bytes": ..., "path": ...}``.

    Args:
        frame: the rows.
        name: of the frame, for messages.
        folder: that image paths start from.
        ending: of the files to write (default: .csv, or .parquet for pictures).
    """
    columns = list(frame.columns)
    if len(set(columns)) < len(columns):
        twice = next(column for column in columns if columns.count(column) > 1)
        raise DataError(f"{name} has two columns {shown(twice)}; rename one of them")
    pictures = [str(column) for column in columns if _holds_pictures(frame[column])]

    def save(target: Path, chosen: Int64Array) -> Path:
        kept = frame.iloc[chosen]
        suffix = ending or (".parquet" if pictures else ".csv")
        target = target.with_name(f"{target.name}{suffix}")
        with atomic_path(target) as temporary:
            if suffix == ".csv":
                kept.to_csv(temporary, index=False, lineterminator="\n")
            elif suffix == ".jsonl":
                kept.to_json(temporary, orient="records", lines=True, force_ascii=False)
            else:
                kept.to_parquet(temporary, index=False)
        return target

    # map() is called anew for every pass over the pictures
    of_rows = {column: partial(map, _picture_of, frame[column]) for column in pictures}
    return Form(name, frame.drop(columns=pictures), save, folder, of_rows)


def exploded(form: Form, column: str) -> tuple[Form, Int64Array]:
    """Give each caption of a list a row of its own.

    Args:
        form: the rows.
        column: of captions; a cell may be a list of several.

    Returns:
        The new form, and the row of the old one for each new row, int64 ``(n,)``.
    """
    cells = [
        [cell] if not isinstance(cell, list | tuple | np.ndarray) else [*cell] or [""]
        for cell in form.table[column].tolist()
    ]
    row_of = np.repeat(np.arange(len(cells)), [len(each) for each in cells])
    flat = np.empty(len(row_of), object)
    flat[:] = [text for each in cells for text in each]
    table = form.table.iloc[row_of].reset_index(drop=True).assign(**{column: flat})

    def of_rows(name: str) -> Iterator[bytes | Path | None]:
        for own, picture in zip(cells, form.pictures[name](), strict=True):
            yield from [picture] * len(own)

    def save(target: Path, chosen: Int64Array) -> Path:
        suffix = ".parquet" if pictures else ".jsonl"
        target = target.with_name(f"{target.name}{suffix}")
        with atomic_path(target) as temporary:
            if pictures:
                _with_pictures(table, pictures, chosen).to_parquet(temporary, index=False)
            else:
                table.iloc[chosen].to_json(temporary, orient="records", lines=True, force_ascii=False)
        return target

    pictures = {name: partial(of_rows, name) for name in form.pictures}
    places = [form.place(row) for row in row_of.tolist()]
    return Form(form.name, table, save, form.folder, pictures, places), row_of


def _with_pictures(
    table: pd.DataFrame, pictures: Mapping[str, PicturesOfRows], chosen: Int64Array
) -> pd.DataFrame:
    """Chosen rows with their pictures, as ``datasets`` stores them."""
    wanted, kept = set(chosen.tolist()), table.iloc[chosen]
    for name, of_rows in pictures.items():
        cells: list[Any] = [
            {"bytes": picture, "path": None}
            if isinstance(picture, bytes)
            else {"bytes": None, "path": None if picture is None else str(picture)}
            for row, picture in enumerate(of_rows())
            if row in wanted
        ]
        kept = kept.assign(**{name: cells})
    return kept


def _holds_pictures(cells: "pd.Series[Any]") -> bool:
    """Whether most of the first filled cells are pictures; bytes may be a hash or a sound."""
    filled = [cell for cell in cells.head(1000) if isinstance(cell, bytes | dict)][:100]
    return 2 * sum(map(_is_picture, filled)) > len(filled)


def _is_picture(cell: object) -> bool:
    if isinstance(cell, dict) and {"bytes", "path"} <= cell.keys():
        content, path = cell["bytes"], cell["path"]
        if content is None:
            return isinstance(path, str) and path.lower().endswith(PICTURE_ENDINGS)
        cell = content
    return isinstance(cell, bytes) and (cell.startswith(_SIGNATURES) or cell[4:8] in (b"ftyp", b"jP  "))


def _picture_of(cell: Any) -> bytes | Path | None:
    if isinstance(cell, bytes):
        return cell
    content, path = (cell.get("bytes"), cell.get("path")) if isinstance(cell, dict) else (None, None)
    if isinstance(content, bytes):
        return content
    return Path(path) if isinstance(path, str) and path else None


def _dataset(found: Any, name: str, folder: Path | None = None) -> Form:
    """A ``datasets.Dataset``; pictures are read when they are needed."""
    import datasets

    pictures = [column for column, feature in found.features.items() if isinstance(feature, datasets.Image)]
    for column in pictures:
        found = found.cast_column(column, datasets.Image(decode=False))
    table = (
        found.remove_columns(pictures).to_pandas()
        if len(found.column_names) > len(pictures)
        else pd.DataFrame(index=range(len(found)))
    )

    def save(target: Path, chosen: Int64Array) -> Path:
        kept = found.select(chosen)
        for column in pictures:
            kept = kept.cast_column(column, datasets.Image())
        shutil.rmtree(target, ignore_errors=True)  # of the same audit with other labels
        if len(kept):  # an empty folder cannot be loaded
            with atomic_folder(target) as temporary:
                save_quietly(kept, temporary)
        return target

    def of_rows(column: str) -> Iterator[bytes | Path | None]:
        return (_picture_of(row[column]) for row in found.select_columns([column]))

    return Form(name, table, save, folder, {column: partial(of_rows, column) for column in pictures})


def _kind_of(path: Path) -> tuple[str, list[Path]]:
    """Kind of a folder and the files that hold its rows; an empty kind for a folder of other files.

    The kinds are ``saved``, ``metadata``, ``.tar``, ``.parquet`` and ``texts``.
    """
    inside: dict[str, list[Path]] = {}

    def refuse(error: OSError) -> None:
        raise DataError(f"{error.filename} cannot be read ({error.strerror}); check its permissions")

    for place, folders, names in os.walk(path, onerror=refuse, followlinks=True):
        folders[:] = sorted(each for each in folders if not each.startswith("."))
        for each in sorted(names):
            kind = "metadata" if each in METADATA else Path(each).suffix.lower()
            if not each.startswith("."):
                inside.setdefault(kind, []).append(Path(place, each))
    own = {each.name for each in path.iterdir()}
    if own & {"dataset_info.json", "dataset_dict.json"}:
        return "saved", []
    kinds = [kind for kind in ("metadata", ".tar", ".parquet") if kind in inside]
    if kinds[:2] == ["metadata", ".parquet"] or kinds[:2] == [".tar", ".parquet"]:
        kinds.pop(1)  # img2dataset writes a table of the same rows beside each shard
    if len(kinds) > 1:
        both = " and ".join(inside[kind][0].relative_to(path).as_posix() for kind in kinds)
        raise DataError(f"{path} holds {both}; give the one that holds your pairs")
    if kinds in (["metadata"], [".tar"]):
        return kinds[0], inside[kinds[0]]
    tables = sorted(
        name for name in own if Path(name).suffix.lower() in TABLES and Path(name).suffix != ".txt"
    )
    if kinds == [".parquet"] and not [name for name in tables if not name.endswith(".parquet")]:
        return ".parquet", inside[".parquet"]
    if ".txt" in inside and not tables:
        texts = {each.with_suffix("") for each in inside[".txt"]}
        pictures = [
            each
            for ending in PICTURE_ENDINGS
            for each in inside.get(ending, ())
            if each.with_suffix("") in texts
        ]
        if pictures:
            return "texts", pictures
    return "", []


def _folder(path: Path) -> Form:
    """A folder of one kind: what ``datasets`` saves, metadata tables, Parquet parts, shards, or pictures with texts."""
    kind, files = _kind_of(path)
    if kind == "saved":
        return _saved(path)
    if kind == "metadata":
        return _metadata(path, files)
    if kind == ".tar":
        return _shards(path, files)
    if kind == ".parquet":
        frames = [_read_parquet(each) for each in files]
        return (
            _frame(frames[0], files[0].name, files[0].parent, ".parquet")
            if len(files) == 1
            else _joined(path, files, frames, ".parquet")
        )
    if kind == "texts":
        return _pictures_with_texts(path, files)
    others = sorted(each.name for each in path.iterdir() if is_table(each))
    hint = f"; it holds {listed(others)}: give that file, and the pictures with --images" if others else ""
    raise DataError(
        f"{path} is a folder without metadata.csv, metadata.jsonl, shards (*.tar), texts beside pictures (1.jpg and "
        f"1.txt), what datasets saves, or the run.json of a training; expected one of them or {EXPECTED}"
        f"{hint or ', with the pictures as --images'}"
    )


def _saved(path: Path) -> Form:
    import datasets

    try:
        found = datasets.load_from_disk(str(path))
        if isinstance(found, datasets.DatasetDict):
            found = datasets.concatenate_datasets(list(found.values()))
    except Exception as error:  # the library raises many classes for a damaged folder
        raise DataError(f"{path} cannot be read by datasets ({first_line(error)}); save it again") from None
    return _dataset(found, path.name, path)


def _joined(folder: Path, files: Sequence[Path], parts: Sequence[pd.DataFrame], ending: str) -> Form:
    """One table of several files with the same columns."""
    first = set(parts[0].columns)
    for file, part in zip(files, parts, strict=True):
        if set(part.columns) != first:
            raise DataError(
                f"{file} has the columns {listed(list(map(str, part)), 30)}, {files[0]} has "
                f"{listed(list(map(str, parts[0])), 30)}; give both the same columns, or give one file alone"
            )
    return _frame(pd.concat(parts, ignore_index=True), folder.name, folder, ending)


def _metadata(folder: Path, tables: Sequence[Path]) -> Form:
    """The metadata tables of a folder and its subfolders, such as ``train`` and ``test``: one table of all rows.

    Image paths start from the outer folder, so that files of one name in two subfolders stay apart.
    """
    places = [each.parent for each in tables]
    if len(set(places)) < len(places):
        twice = next(place for place in places if places.count(place) > 1)
        names = " and ".join(each.name for each in tables if each.parent == twice)
        raise DataError(f"{twice} holds {names}; give the one that holds your pairs, or remove the other")
    if places == [folder]:
        return _file(tables[0])
    parts = []
    for each in tables:
        part = _file(each).table
        image = next((name for name in part if str(name).casefold() in IMAGE_COLUMNS), None)
        if image is None:
            raise DataError(
                f"{each} has the columns {listed(list(map(str, part)), 30)}, and none is called file_name; name the "
                "column of image paths file_name"
            )
        inner = each.parent.relative_to(folder)
        paths = [
            (inner / cell).as_posix() if isinstance(cell, str) and cell else cell for cell in part[image]
        ]
        parts.append(part.assign(**{str(image): paths}))
    return _joined(folder, tables, parts, tables[0].suffix)


def _pictures_with_texts(folder: Path, pictures: Sequence[Path]) -> Form:
    """Pictures with a caption in a text of the same name, such as ``1.jpg`` and ``1.txt``; each line is a caption."""
    names = [each.with_suffix("") for each in pictures]
    if len(set(names)) < len(names):
        twice = next(name for name in names if names.count(name) > 1)
        same = listed([each.name for each in pictures if each.with_suffix("") == twice])
        raise DataError(f"{twice}.txt may belong to {same}; keep one of them")
    rows = []
    for each in sorted(pictures):
        text = each.with_suffix(".txt")
        content = read_limited(text, LARGEST_TEXT, DataError, "give one caption per text")
        captions = [line for line in text_lines(content, str(text), DataError) if line.strip()]
        rows += [(each.relative_to(folder).as_posix(), line) for line in captions or [""]]
    return _frame(pd.DataFrame(rows, columns=["image", "caption"], dtype=object), folder.name, folder)


@dataclass(frozen=True)
class _Member:
    """A file of a shard: where it lies, the sample that it belongs to, and the name of its field."""

    archive: tarfile.TarFile
    entry: tarfile.TarInfo
    key: str
    field: str

    def read(self) -> bytes:
        stream = self.archive.extractfile(self.entry)
        return b"" if stream is None else stream.read(self.entry.size)


def _members(shards: Sequence[Path]) -> Iterator[_Member]:
    """Regular files of known endings and stated sizes, in order; everything else is passed over unread."""
    for shard in shards:
        readable(shard, DataError, "a WebDataset shard")
        try:
            with tarfile.open(shard) as archive:
                for entry in archive:
                    place, _, name = entry.name.rpartition("/")
                    stem, dot, name = name.partition(".")
                    ending = f".{name.lower()}".rpartition(".")[2]
                    kind = "." + ending
                    if not (entry.isreg() and dot) or stem == "" or entry.issparse():
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
        except (tarfile.TarError, EOFError, zlib.error, OSError, ValueError) as error:
            raise DataError(
                f"{shard} cannot be read as a WebDataset shard ({first_line(error)}); write it again"
            ) from None


def _shards(folder: Path, shards: Sequence[Path]) -> Form:
    """WebDataset shards: files of one key are a row, and what follows the key names a column.

    A picture ``1.jpg`` is in the column ``image``, ``1.mask.png`` in ``mask``; a text ``1.txt`` in ``caption``,
    ``1.outputs.txt`` in ``outputs``; ``1.json`` holds other columns.
    """
    rows: dict[tuple[str, str], dict[str, Any]] = {}
    columns: dict[str, str] = {}
    fields: set[str] = set()
    for member in _members(shards):
        row = rows.setdefault((str(member.archive.name), member.key), {"__key__": member.key})
        fields.add(member.field)
        before, _, ending = member.field.rpartition(".")
        if ending.lower() == "json":
            facts = _parsed(member.read(), f"{folder} {member.entry.name}")
            row |= {str(name): fact for name, fact in facts.items() if str(name) not in row}
            continue
        is_picture = f".{ending.lower()}" in PICTURE_ENDINGS
        column = before or ("image" if is_picture else "caption")
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

    def save(target: Path, chosen: Int64Array) -> Path:
        target = target.with_name(f"{target.name}.csv")
        with atomic_path(target) as temporary:
            table.iloc[chosen].to_csv(temporary, index=False, lineterminator="\n")
        return target

    return Form(folder.name, table, save, None, {column: partial(of_rows, column) for column in pictures})


def _parsed(content: bytes, where: str) -> dict[str, Any]:
    """A JSON object; a name that stands twice is refused, because Python would keep the last alone."""

    def once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        names = [name for name, _ in pairs]
        if len(set(names)) < len(names):
            twice = next(name for name in names if names.count(name) > 1)
            raise DataError(f"{where} has {shown(twice)} twice in one object; keep one")
        return dict(pairs)

    try:
        found = json.loads(content, object_pairs_hook=once)
    except (ValueError, RecursionError):
        found = None
    if not isinstance(found, dict):
        raise DataError(
            f"{where} is {shorten(content.decode(errors='replace'))}, expected a JSON object; correct it"
        )
    return found


_SPLITS_OF_KARPATHY = {"restval": "train", "val": "dev"}


def _read_images(path: Path, content: Any) -> tuple[list[str], Rows]:
    """Columns and rows of Karpathy's ``dataset_*.json`` or COCO's captions; both hold a list of images."""
    images = content.get("images") if isinstance(content, dict) else None
    if isinstance(images, list) and isinstance(content.get("annotations"), list):
        return ["image", "caption"], _coco_rows(path, images, content["annotations"])
    if not isinstance(images, list):
        raise DataError(
            f"{path} has no list `images`, expected Karpathy's dataset_*.json, or lists `images` and `annotations`; "
            "convert it to CSV with the columns image and caption"
        )
    return ["image", "split", "caption"], _karpathy_rows(path, images)


def _coco_rows(path: Path, images: list[object], annotations: list[object]) -> Rows:
    """COCO's captions: a list of images with ids, and a list of captions that name them."""
    name_of: dict[object, str] = {}
    for number, image in enumerate(images):
        match image:
            case {"id": int() | str() as id_, "file_name": str(name)} if (
                name_of.setdefault(id_, name) == name
            ):
                pass
            case _:
                raise DataError(
                    f"{path} images[{number}] is {shorten(image)}, expected an id of its own and file_name; correct it"
                )
    for number, each in enumerate(annotations):
        match each:
            case {"image_id": int() | str() as id_, "caption": str(text)} if id_ in name_of:
                yield f"{path} annotations[{number}]", {"image": name_of[id_], "caption": text}
            case _:
                raise DataError(
                    f"{path} annotations[{number}] is {shorten(each)}, expected a caption and the image_id of one of "
                    "images; give the file of captions"
                )


def _karpathy_rows(path: Path, images: list[object]) -> Rows:
    for number, image in enumerate(images):
        where = f"{path} images[{number}]"
        match image:
            case {"filename": str(name), "split": str(split), "sentences": [_, *_] as sentences, **others}:
                folder = others.get("filepath")
            case _:
                raise DataError(
                    f"{where} is {shorten(image)}, expected filename, split and at least one of sentences; correct it"
                )
        for sentence in sentences:
            match sentence:
                case {"raw": str(text)}:
                    pass
                case {"tokens": [*words]}:
                    text = " ".join(map(str, words))
                case _:
                    raise DataError(
                        f"{where} has the sentence {shorten(sentence)}, expected raw or tokens; correct it"
                    )
            yield (
                where,
                {
                    "image": f"{folder}/{name}" if folder else name,
                    "split": _SPLITS_OF_KARPATHY.get(split, split),
                    "caption": text,
                },
            )
