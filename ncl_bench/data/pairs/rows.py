"""Read a user's images and captions in the forms that people have, as one frame whose rows keep their order.

Tables (CSV, TSV, JSON Lines, JSON, Parquet), Kaggle's ``captions.txt``, lines such as ``name.jpg#0<TAB>caption``,
Karpathy's and COCO's JSON, captions with URLs without a header, folders of tables, parts, shards or pictures with
texts, what ``datasets`` saves, and in Python a frame or a ``datasets.Dataset``.
"""

import csv
import io
import json
import os
import re
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property, partial
from itertools import pairwise
from pathlib import Path, PurePosixPath
from typing import Any, Literal, NamedTuple

import numpy as np
import pandas as pd
import pyarrow as pa

from ncl_bench.data.columns import Int64Array
from ncl_bench.data.languages import language_tag
from ncl_bench.data.pairs import decode
from ncl_bench.data.pairs.cells import holds_pictures, picture
from ncl_bench.data.pairs.listing import (
    METADATA,
    PART,
    PICTURE_ENDINGS,
    TEXT_ENDINGS,
    ending_of,
    is_table,
    part_numbers,
    row_files,
)
from ncl_bench.data.pairs.names import TOGETHER, captions_in_columns, known_columns, plain, settled, split_of
from ncl_bench.errors import DataError, listed, named, shorten, shown
from ncl_bench.foreign import readable, reading
from ncl_bench.tables import MARK, separator_of

EXPECTED = "a table of images and captions (.csv, .tsv, .txt, .jsonl, .json or .parquet)"
URL = re.compile(r"https?://\S+")
NUMBER = re.compile(r"[0-9]{1,19}")
_NUMBERED = re.compile(r"(?P<id>(?P<image>\S.*?)#(?:[A-Za-z]+#)?\d+)(?:[\t ]+(?P<caption>.*))?")
_SEPARATOR = re.compile('"?sep=(.)"?\\s*\n')
_QUOTED = re.compile(r'(?<![^\t\n])"(?:(?:[^"\n]|"")*|(?:[^"\t]|"")*)"(?![^\t\n])')
"""A cell between tabs that a program quoted: it holds a line break or a tab, and not both, as rows would."""


@dataclass(frozen=True)
class UserRows:
    """Rows of images and captions as somebody wrote them.

    Attributes:
        name: of the file or folder, for messages.
        frame: the rows with all columns; a cell of a picture is what :func:`~ncl_bench.data.pairs.cells.picture` takes.
        ending: of the files to write, such as ``.csv``, ``.jsonl``, ``.parquet`` or ``.tar``; empty for ``datasets``.
        folder: that image paths start from if no other is given.
        separator: between the cells of a table of text.
        header: whether the first line of a table of text names the columns.
        arrow: the rows in the types that they are stored in, if they are from Parquet or ``datasets``.
        content: Karpathy's or COCO's JSON, or the files of each row of a shard.
        files: names of the files or parts that were read, in their order.
        part_of: int64 ``(rows,)``, the row's part in ``files``.
        row_of: int64 ``(rows,)``, the row of the source, which differs if a cell held several captions.
        changed: columns whose cells are not those of ``arrow`` any more.
        remarks: what was chosen, in sentences.
    """

    name: str
    frame: pd.DataFrame
    ending: str = ".csv"
    folder: Path | None = None
    separator: str = ","
    header: bool = True
    arrow: Any = None
    content: Any = None
    files: tuple[str, ...] = ()
    part_of: Int64Array = field(default_factory=lambda: np.zeros(0, np.int64))
    row_of: Int64Array = field(default_factory=lambda: np.zeros(0, np.int64))
    changed: frozenset[str] = frozenset()
    remarks: tuple[str, ...] = ()

    @cached_property
    def pictures(self) -> list[str]:
        """Columns of pictures in the rows."""
        return [str(name) for name in self.frame if holds_pictures(self.frame[name])]

    @cached_property
    def table(self) -> pd.DataFrame:
        """All columns but pictures."""
        return self.frame.drop(columns=self.pictures)

    def place(self, row: int) -> str:
        """Where a row stands, for messages."""
        own = int(self.row_of[row])
        if len(self.files) < 2:
            return f"{self.name} row {own + 1:,}"
        part = self.part_of[row]
        return f"{self.files[part]} row {own - int(self.row_of[self.part_of == part].min()) + 1:,}"

    def exploded(self, column: str) -> "UserRows":
        """Give each caption of a list a row of its own."""
        cells = [
            each if isinstance(each, list | tuple | np.ndarray) else [each] for each in self.frame[column]
        ]
        taken = np.repeat(np.arange(len(cells)), [max(1, len(each)) for each in cells])
        texts = [text for each in cells for text in (each if len(each) else [""])]
        found = self.taken(taken)
        frame = found.frame.assign(**{column: pd.Series(texts, dtype=object)})
        # samples of one key would be one sample again
        ending = ".parquet" if self.ending == ".tar" else self.ending
        return replace(found, frame=frame, ending=ending, changed=self.changed | {column})

    def taken(self, rows: Int64Array) -> "UserRows":
        """Some of the rows, int64 ``(n,)``; a row may come several times."""
        return replace(
            self,
            frame=self.frame.iloc[rows].reset_index(drop=True),
            arrow=None if self.arrow is None else self.arrow.take(rows),
            content=[self.content[row] for row in rows] if isinstance(self.content, list) else self.content,
            part_of=self.part_of[rows],
            row_of=self.row_of[rows],
        )


def rows_in(path: Path) -> bool:
    """Whether a file or folder holds rows of images, and not images alone."""
    return row_files(path)[0] != "" if path.is_dir() else is_table(path)


def read_rows(source: Any) -> UserRows:
    """Read a file, a folder, a frame or a ``datasets.Dataset``."""
    if isinstance(source, pd.DataFrame):
        frame = source.reset_index(drop=True).set_axis([*map(str, source.columns)], axis=1)
        lists = any(
            isinstance(cell, bytes | dict | list | tuple | np.ndarray) for cell in frame.to_numpy().ravel()
        )
        rows = _joined("the frame", None, [("the frame", UserRows("", frame))])
        return replace(rows, ending=".parquet" if lists or rows.pictures else ".csv")
    if isinstance(source, str | Path):
        path = Path(source)
        with reading(path):
            if path.is_dir():
                return _folder(path)
            rows = _joined(path.name, path.parent, [(path.name, _file(path))])
            part = PART.fullmatch(path.stem)
            if part is None or int(part["n"]) < 2:
                return rows
            told = f"{path.name} is one of {int(part['n'])} parts; give its folder to read all."
            return replace(rows, remarks=(*rows.remarks, told))
    import datasets

    if not isinstance(source, datasets.Dataset | datasets.DatasetDict):
        raise DataError(
            f"pairs are {type(source).__name__}, expected a path, a pandas.DataFrame or a datasets.Dataset"
        )
    parts = source if isinstance(source, dict) else {"the dataset": source}
    return _joined(
        "the dataset", None, [(name, _of_arrow(decode.of_dataset(each), "")) for name, each in parts.items()]
    )


def _joined(
    name: str, folder: Path | None, parts: Sequence[tuple[str, UserRows]], *, order: bool = False
) -> UserRows:
    """One frame of all parts, each with the split that its name states."""
    (label, first), *_ = parts
    columns = list(first.frame.columns)
    for other, part in parts:
        # pandas would fill the columns that one file lacks
        if set(part.frame.columns) != set(columns):
            raise DataError(
                f"{other} has the columns {listed(map(str, part.frame), 30)}, {label} has "
                f"{listed(map(str, columns), 30)}; give both the same columns, or give one file alone"
            )
    if len(twice := first.frame.columns[first.frame.columns.duplicated()]):
        raise DataError(f"{label} has two columns {shown(twice[0])}; rename one of them")
    for other, part in parts if first.arrow is None else ():
        with reading(other, fix="save it as text in UTF-8"):  # a lone surrogate could be written nowhere
            "".join(map(str, columns)).encode()
            for each in part.frame:
                "".join(cell for cell in part.frame[each].explode() if isinstance(cell, str)).encode()
    labels = [other for other, _ in parts]
    one = len(parts) == 1
    frame = first.frame if one else pd.concat([part.frame for _, part in parts], ignore_index=True)
    part_of = np.repeat(np.arange(len(parts)), [len(part.frame) for _, part in parts])
    alike = len({part.ending for _, part in parts}) == 1
    arrow = first.arrow
    if arrow is not None and not one:
        arrow = pa.concat_tables([part.arrow for _, part in parts], promote_options="permissive")
    remarks = []
    if order and not one:
        numbers = part_numbers(labels) or [0]
        # a shard that was not fetched; years and the parts of several splits are no count
        counts = len(labels) > (max(numbers) - min(numbers)) / 2
        gaps = sorted({*range(min(numbers), max(numbers))} - {*numbers}) if counts else []
        remarks = [
            f"{len(labels)} files are read in this order: {listed(labels, 12)}."
            + (f" No file has the number {listed(map(str, gaps))}." if gaps else "")
        ]
        # files that differ in their folder or language alone: datasets would ask which configuration is meant
        places: dict[str, set[str]] = defaultdict(set)
        for path in (path for path in map(PurePosixPath, labels) if path.name not in METADATA):
            spoken = [piece for piece in re.split("[-_.]", path.name) if language_tag(piece)]
            inner = [part for part in (*path.parent.parts, *spoken) if not split_of(part)]
            places[re.sub("|".join(spoken) or "$", "", path.name)].add("/".join(inner) or ".")
        remarks += [TOGETHER.format(listed(sorted(of), 3)) for of in places.values() if len(of) > 1][:1]
    remarks += [remark for _, part in parts for remark in part.remarks]
    changed = frozenset[str]().union(*(part.changed for _, part in parts))
    if several := captions_in_columns(columns):
        cells = frame[several].to_numpy(object).tolist()
        texts = [[cell for cell in row if isinstance(cell, str) and cell.strip()] for row in cells]
        frame = frame.drop(columns=several).assign(captions=pd.Series(texts, dtype=object))
        changed, remarks = (
            changed | {"captions"},
            [*remarks, f"The captions are those of {listed(several, 5)}."],
        )
    rows = replace(
        first,
        name=name,
        frame=frame,
        folder=folder,
        ending=first.ending if alike else ".jsonl",
        arrow=arrow,
        content=first.content
        if one
        else [each for _, part in parts if part.ending == ".tar" for each in part.content] or None,
        changed=changed,
        files=tuple(labels),
        part_of=part_of,
        row_of=np.arange(len(frame)),
        remarks=tuple(remarks),
    )
    return with_splits(rows, labels, part_of)


def with_splits(rows: UserRows, labels: Sequence[str], label_of: Int64Array) -> UserRows:
    """Give the rows a column of splits where names state them.

    Args:
        rows: the rows; a column of splits that is there stays.
        labels: names of files, folders or parts.
        label_of: int64 ``(rows,)``, the row's label.
    """
    named_by = [split_of(label) for label in labels]
    stated = [*map(settled(named_by).get, named_by)]
    of_dict = rows.ending == "" and len(labels) > 1  # its names are those of splits, whatever they are
    if split_column(rows.frame) or not (any(stated) or of_dict) or not len(rows.frame):
        return rows
    there = np.array(stated, object)[label_of]
    counts = {str(split): int((there == split).sum()) for split in dict.fromkeys(there.tolist())}
    if None in stated:
        lacking = labels[stated.index(None)]
        known = next((label for label, split in zip(labels, stated, strict=True) if split), labels[-1])
        told = f"{shown(known)} is not taken for a split, as {shown(lacking)} names none."
    elif len(counts) == 1:
        told = f"{shown(labels[0])} names {stated[0]} alone, so no split is stated."
    else:
        rows = replace(rows, frame=rows.frame.assign(split=there), changed=rows.changed | {"split"})
        told = f"The splits are those of the names: {', '.join(f'{name} {n:,} rows' for name, n in counts.items())}."
    return replace(rows, remarks=(*rows.remarks, told))


def with_splits_of_folders(rows: UserRows, paths: Sequence[str]) -> UserRows:
    """Give the rows a column of splits where the folders of all pictures name one, as ``train2014/1.jpg`` does."""
    number_of: dict[str, int] = {}
    label_of = [number_of.setdefault(str(PurePosixPath(path).parent), len(number_of)) for path in paths]
    return with_splits(rows, list(number_of), np.array(label_of, np.int64))


def split_column(frame: pd.DataFrame) -> str | None:
    """The column ``split``, or one of another name, such as ``subset``, whose cells are all names of splits."""
    for name in known_columns([str(each) for each in frame], "split"):
        if plain(name) == "split" or all(split_of(str(cell)) for cell in frame[name].unique()):
            return name
    return None


def _folder(path: Path) -> UserRows:
    kind, files = row_files(path)
    if kind == "saved":
        parts = [(name or path.name, _of_arrow(table, "")) for name, table in decode.saved(path).items()]
        return _joined(path.name, path, parts)
    if kind == "texts":
        return _pictures_with_texts(path, files)
    if kind == "":
        others = listed(each.name for each in files)
        hint = (
            f"; it holds {others}: give that file, and the pictures with {named('images')}" if files else ""
        )
        raise DataError(
            f"{path} is a folder without metadata.csv, metadata.jsonl, shards (*.tar), texts beside pictures "
            f"(1.jpg and 1.txt), what datasets saves, or the run.json of a training; expected one of them or {EXPECTED}"
            f"{hint or ', with the pictures as ' + named('images')}"
        )
    if ending_of(files[0]) == ".tar":
        return replace(
            _joined(path.name, path, [(_inner(path, each), _shard(each)) for each in files], order=True)
        )
    own = [each.parent for each in files if each.name in METADATA]
    if twice := [place for place in own if own.count(place) > 1]:
        raise DataError(f"{twice[0]} holds two tables {listed(METADATA)}; give the one that holds your pairs")
    parts = []
    for each in files:
        with reading(each):
            part = _file(each)
        if each.name in METADATA and each.parent != path:
            part = _from_outside(part, path, each.parent.relative_to(path))
        parts.append((_inner(path, each), part))
    return _joined(path.name, path, parts, order=True)


def _inner(folder: Path, file: Path) -> str:
    return file.relative_to(folder).as_posix()


def _from_outside(part: UserRows, outer: Path, inner: Path) -> UserRows:
    """Rows of a metadata table in a subfolder, whose image paths start from the outer folder."""
    frame = part.frame
    # a column of another name holds paths, too, if its first cell is a file here; the outer folder may have its name
    columns = known_columns([*frame], "image") or [
        str(name)
        for name in frame
        if any(os.path.isfile(outer / inner / str(each)) for each in frame[name].head(1))
    ]
    moved = {
        name: [
            (inner / cell).as_posix() if cell and not URL.fullmatch(cell) else cell
            for cell in part.frame[name]
        ]
        for name in set(columns) - set(part.pictures)
    }
    return replace(part, frame=part.frame.assign(**moved), changed=frozenset(moved))


def _pictures_with_texts(folder: Path, pictures: Sequence[Path]) -> UserRows:
    """Pictures with a caption in a text of the same name, such as ``1.jpg`` and ``1.txt``; each line is a caption.

    A picture without a text is a row without a caption.
    """
    rows, picture_of = [], dict[Path, Path]()
    for each in pictures:
        beside = (each.with_suffix(end) for ending in TEXT_ENDINGS for end in (ending, ending.upper()))
        texts = [path for path in beside if path.is_file()]
        if len(texts) > 1 or any(picture_of.setdefault(path, each) != each for path in texts):
            others = [picture_of.get(texts[0], each).name, each.name, *(path.name for path in texts)]
            raise DataError(
                f"{each.parent} holds {listed(dict.fromkeys(others))}; keep one picture and one text"
            )
        with reading(texts[0] if texts else each):
            lines = [line for line in decode.text(texts[0]).splitlines() if line.strip()] if texts else []
        rows += [(_inner(folder, each), line) for line in lines or [""]]
    frame = pd.DataFrame(rows, columns=["image", "caption"], dtype=object)
    found = _joined(folder.name, folder, [(folder.name, UserRows("", frame))])
    return with_splits_of_folders(found, frame["image"].tolist())


def _file(path: Path) -> UserRows:
    readable(path, DataError, EXPECTED)
    ending = ending_of(path)
    if ending == ".tar":
        return _shard(path)
    if ending == ".parquet":
        return _of_arrow(decode.parquet(path), ".parquet")
    text = decode.text(path)
    # datasets writes objects in lines as .json too, and others a list as .jsonl
    in_lines = ending in (".jsonl", ".ndjson") and not re.match(r"\s*\[\s*\{", text)
    if in_lines or (ending == ".json" and re.match(r"\{.*\}\s*\n\s*\{", text)):
        frame = pd.DataFrame([_object(line) for line in text.split("\n") if line.strip()], dtype=object)
        return UserRows("", frame.rename(columns=str), ".jsonl")  # lists have numbers for columns
    return _json(_object(text), path) if "json" in ending else _text(text, path)


def _text(text: str, path: Path) -> UserRows:
    """CSV in any separator, cells between tabs, lines of ``name.jpg#0`` and a caption, or captions and URLs."""
    if told := _SEPARATOR.match(text):  # as a spreadsheet writes it
        text = text[told.end() :]
    first = next(filter(str.strip, text.split("\n")), "").removesuffix("\r")
    separator = told[1] if told else separator_of(path, first)
    if separator == "\t" or _NUMBERED.fullmatch(first):
        text = text.replace("\r\n", "\n")
    if _NUMBERED.fullmatch(first) and "," not in first.partition("#")[0]:
        return _numbered([line for line in text.split("\n") if line.strip()], path)
    quoting: Literal[0, 3] = csv.QUOTE_MINIMAL
    blanks = False
    if separator == "\t":
        # in published files a quotation mark is an ordinary character; a program that quotes marks all cells alike
        marked, plain = [cell[1:-1] for cell in _QUOTED.findall(text)], _QUOTED.sub("", text)
        quoted = first.startswith('"') or any(re.search('""|[\n\t]', cell) for cell in marked)
        # as Excel marks every cell with a comma
        if not (quoted or ("," not in plain and all("," in cell for cell in marked))) or re.search(
            r'(?<![^\t\n])"', plain
        ):
            quoting = csv.QUOTE_NONE
    else:
        # as databases write a mark inside a cell; where one ends every cell, the cells end with a backslash
        if re.search(r'\\"(?![,;|\r\n]|\Z)', text) and not re.search(r'[^\\,;|\n]""', text):
            text = text.replace('\\"', '""')
        # a blank before the mark would make the marks a part of the text
        blanks = re.search(rf'{re.escape(separator)} +"', text) is not None
    cells = (
        pd.read_csv(
            io.StringIO(text),
            sep=separator,
            header=None,
            dtype=object,
            keep_default_na=False,
            na_filter=False,
            index_col=False,
            quoting=quoting,
            skipinitialspace=blanks,
        )
        if first
        else pd.DataFrame()
    )
    cells = cells[(cells != "").any(axis=1)]
    for row in cells[cells.map(lambda cell: "\n" in cell).any(axis=1)].to_numpy().tolist():
        # pandas reads rows after an open quotation mark as one cell
        if inside := _swallowed(row, separator):
            raise DataError(
                f"{path}: a quoted cell holds what looks like rows ({shorten(inside)}); close its quotation mark, or "
                "remove its line breaks"
            )
    if MARK in text:
        cells = cells.map(lambda cell: cell.removeprefix(MARK))
    urls = [bool(URL.fullmatch(cell.strip())) for cell in first.split("\t")]
    header = not (separator == "\t" and any(urls))
    if header:
        names = [name.strip() for name in cells.iloc[0]] if len(cells) else []
        cells = cells[1:]
    else:  # of several columns only the user knows which holds the captions
        other = "caption" if len(urls) == 2 else ""
        names = [
            "url" if is_url and n == urls.index(True) else other or f"column_{n + 1}"
            for n, is_url in enumerate(urls)
        ]
    # a spreadsheet adds columns without names and cells
    kept = [n for n, name in enumerate(names) if name or (cells.iloc[:, n] != "").any()]
    return UserRows(
        "",
        cells.iloc[:, kept].set_axis([names[n] for n in kept], axis=1).reset_index(drop=True),
        ending_of(path) or ".txt",
        separator=separator,
        header=header,
    )


def _numbered(lines: Sequence[str], path: Path) -> UserRows:
    rows = []
    for number, line in enumerate(lines, 1):
        found = _NUMBERED.fullmatch(line)
        if found is None:
            raise DataError(
                f"{path} row {number}: expected name.jpg#0, a tab and a caption as in the first line, got "
                f"{shorten(line)}; correct it"
            )
        rows.append([(cell or "").removeprefix(MARK) for cell in found.group("id", "image", "caption")])
    frame = pd.DataFrame(rows, columns=["id", "image", "caption"], dtype=object)
    return UserRows("", frame, path.suffix, separator="\t", header=False)


def _once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for name, value in pairs:
        if name in found:  # Python keeps the last of two alike names alone
            raise DataError(f"a JSON object has {shown(name)} twice; keep one")
        found[name] = value
    return found


_object = partial(json.loads, object_pairs_hook=_once)
"""Read JSON."""


def _json(content: Any, path: Path) -> UserRows:
    """A list of objects, Karpathy's splits, or COCO's captions."""
    match content:
        case [{"annotations": _, "data": _}, *_]:
            raise DataError(
                f"{path} is a full export of Label Studio; export it as CSV or JSON-MIN and name the columns image and "
                "caption"
            )
        case [*objects] if all(isinstance(each, dict) for each in objects):
            return UserRows("", pd.DataFrame(objects, dtype=object), ".json")
        case {"images": [*images], "annotations": [{"caption": _}, *_] as annotations}:
            # one tool writes the ids as numbers and another as texts
            name_of = {str(each["id"]): each["file_name"] for each in images}
            rows = [
                {"image": name_of.get(str(each["image_id"])), "caption": each["caption"]}
                for each in annotations
            ]
            lacking = [each for each, row in zip(annotations, rows, strict=True) if row["image"] is None]
            if lacking or len(name_of) < len(images):
                raise DataError(
                    f"{path}: {shorten((lacking or images)[0])} names no image of its own; give the file of captions"
                )
        case {"images": [{"sentences": _}, *_] as images}:
            rows = [
                {
                    "image": "/".join(filter(None, [image.get("filepath"), image["filename"]])),
                    "split": image["split"],
                    "caption": raw_sentence(sentence),
                }
                for image in images
                for sentence in image["sentences"]
            ]
        case _:
            raise DataError(
                f"{path} is no list of objects, nor Karpathy's dataset_*.json, nor lists `images` and "
                "`annotations` with captions; convert it to CSV with the columns image and caption"
            )
    return UserRows("", pd.DataFrame(rows, dtype=object), ".json", content=content)


def raw_sentence(sentence: Mapping[str, Any]) -> str:
    """A caption of Karpathy's, or its words."""
    return sentence["raw"] if "raw" in sentence else " ".join(map(str, sentence["tokens"]))


def _of_arrow(table: Any, ending: str) -> UserRows:
    """Rows of an Arrow table; pictures stay in it until they are asked for."""
    table = table.drop_columns([name for name in table.column_names if name == "__index_level_0__"])
    names = table.column_names
    for place, column in enumerate(table.columns):
        if "view" in str(column.type):  # neither pandas nor Arrow takes rows of such a column
            table = table.set_column(place, names[place], pa.array(column.to_pylist()))
    series = {
        name: pd.Series(pd.arrays.ArrowExtensionArray(column))
        if pa.types.is_nested(column.type) or "binary" in str(column.type).partition("<")[0]
        else column.to_pandas(integer_object_nulls=True)
        for name, column in zip(names, table.columns, strict=True)
    }
    frame = (
        pd.concat(series.values(), axis=1, ignore_index=True)
        if series
        else pd.DataFrame(index=range(len(table)))
    )
    return UserRows("", frame.set_axis(names, axis=1), ending, arrow=table)


def _shard(path: Path) -> UserRows:
    """A WebDataset shard: files of one key are a row, and what follows the key names a column.

    A picture ``1.jpg`` is in the column ``image``, ``1.mask.png`` in ``mask``; a text ``1.txt`` in ``caption``,
    ``1.outputs.txt`` in ``outputs``; ``1.json`` holds other columns.
    """
    rows: list[dict[str, Any]] = []
    samples: list[dict[str, Any]] = []
    last: dict[str, int] = {}
    for name, content in decode.shard(path):
        field = member(name)
        # a file that comes again begins a sample of its own: an archive may hold a sample twice
        if field.key not in last or name in samples[last[field.key]]:
            last[field.key] = len(rows)
            rows.append({"__key__": field.key})
            samples.append({})
        row = rows[last[field.key]]
        samples[last[field.key]][name] = content
        if field.kind == "facts":
            row |= _object(content) | row
        elif field.kind == "picture" and holds_pictures(pd.Series([row.get(field.column)], dtype=object)):
            raise DataError(
                f"{path}: {field.key} has two pictures {field.column}; name the fields apart, as in 1.image.jpg and "
                "1.mask.png"
            )
        else:
            row[field.column] = content if field.kind == "picture" else content.decode("utf-8-sig").strip()
    seen: dict[tuple[object, ...], int] = {}
    for number, sample in enumerate(samples):
        if len(last) < len(rows):
            seen.setdefault(tuple((name, picture(content)) for name, content in sample.items()), number)
    kept = list(seen.values()) or list(range(len(rows)))
    doubled = [f"{len(rows) - len(kept)} samples of {path.name} are stored twice and read once."]
    return UserRows(
        "",
        pd.DataFrame([rows[row] for row in kept], dtype=object),
        ".tar",
        content=[samples[row] for row in kept],
        remarks=tuple(doubled if len(kept) < len(rows) else ()),
    )


class Member(NamedTuple):
    """A file of a shard: the key of its sample, its column, and its kind: ``picture``, ``text`` or ``facts``."""

    key: str
    column: str
    kind: str


def member(name: str) -> Member:
    """What the name of a file in a shard says."""
    place, _, last = name.rpartition("/")
    stem, _, inner = last.partition(".")
    before, _, ending = inner.rpartition(".")
    ending = ending.lower()
    kind = "picture" if f".{ending}" in PICTURE_ENDINGS else "facts" if ending == "json" else "text"
    return Member(
        f"{place}/{stem}".lstrip("/"), before or ("image" if kind == "picture" else "caption"), kind
    )


_ID = re.compile(r"\S|\S*(?:\d\S*|\.[A-Za-z]{3,4})")
_FILE = re.compile(r"\S+\.[A-Za-z]{3,4}")


def _swallowed(cells: list[str], separator: str) -> str | None:
    """A line inside a cell that looks like a row: the cell's lines hold the separators that their rows need."""
    after = len(cells) - 1
    for place, cell in enumerate(cells):
        first, *inner = re.split("\r?\n", cell)
        if not inner or first.count(separator) < after - place or inner[-1].count(separator) < place:
            continue
        if found := next((line for line in (first, *inner) if _is_row(line.split(separator))), None):
            return found
    return None


def _is_row(cells: list[str]) -> bool:
    """Whether a line inside a cell is more likely a row than prose, which may hold the separator too.

    A row has a file, a number or a letter beside another cell, or a word beside a sentence: ``7,A dog``, ``rex,A dog``,
    and not ``with,dogs`` or ``2,000 dogs``.
    """
    for before, after in pairwise(cells):
        if not after or after[0].isspace() or not before or before[-1].isspace():
            continue
        in_number = re.fullmatch("[0-9]{2}", before[-1] + after[0])
        if _FILE.fullmatch(after) or (not in_number and _ID.fullmatch(before)):
            return True
        if after[0].isupper() and not any(map(str.isspace, before)):
            return True
    return False
