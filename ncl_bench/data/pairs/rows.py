"""Read a user's images and captions in the forms that people have, as one frame whose rows keep their order.

Tables (CSV, TSV, JSON Lines, JSON, Parquet), Kaggle's ``captions.txt``, lines such as ``name.jpg#0<TAB>caption``,
Karpathy's and COCO's JSON, captions with URLs without a header, folders of tables, parts, shards or pictures with
texts, what ``datasets`` saves, and in Python a frame or a ``datasets.Dataset``.
"""

import csv
import hashlib
import io
import json
import os
import re
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property, partial
from itertools import chain, pairwise
from pathlib import Path, PurePosixPath
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
import pyarrow as pa

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
from ncl_bench.data.pairs.names import (
    TOGETHER,
    known_columns,
    no_words,
    numbered_captions,
    plain,
    settled,
    split_columns,
    split_of,
)
from ncl_bench.errors import DataError, listed, named, shorten, shown
from ncl_bench.foreign import decoded, readable, reading
from ncl_bench.npy import Int64Array
from ncl_bench.tables import MARK, separator_of

EXPECTED = "a table of images and captions (.csv, .tsv, .txt, .jsonl, .json or .parquet)"
URL = re.compile(r"https?://\S+")
NUMBER = re.compile(r"[0-9]{1,19}")
_NUMBERED = re.compile(r"^(?P<id>(?P<image>\S.*?)#(?:[A-Za-z]+#)?\d+)(?:[\t ]+(?P<caption>.*))?\Z")
_SEPARATOR = re.compile('"?sep=(.)"?\\s*\n')
_QUOTED = re.compile(r'(?<![^\t\n])"(?:(?:[^"\n]|"")*|(?:[^"\t]|"")*)"(?![^\t\n])')
"""A cell between tabs that a program quoted: it holds a line break or a tab, and not both, as rows would."""


@dataclass(frozen=True)
class UserPairs:
    """A user's images and captions: the rows as they came, and what was read from them.

    Attributes:
        name: of the file or folder, for messages.
        frame: the rows with all columns; a cell of a picture is what :func:`~ncl_bench.data.pairs.cells.picture` takes.
        ending: of the files to write, such as ``.csv``, ``.jsonl``, ``.parquet`` or ``.tar``; empty for ``datasets``.
        folder: that image paths start from if no other is given.
        separator: between the cells of a table of text; empty for other forms.
        header: whether the first line of a table of text names the columns.
        arrow: the rows in the types that they are stored in, if they are from Parquet or ``datasets``.
        content: Karpathy's or COCO's JSON, or the files of every row of a shard; ``row_of`` numbers them.
        files: names of the files or parts that were read, in their order.
        starts: number of the first row of each of ``files``, in ``row_of``.
        part_of: int64 ``(rows,)``, the row's part in ``files``.
        row_of: int64 ``(rows,)``, the row of the source, which differs if a cell held several captions.
        remarks: what was chosen, in sentences.
        images: name of each row's image; empty where the row has none.
        captions: of each row, with single blanks; empty if only images were read.
        image_column: where the images stand.
        caption_column: where the captions stand; empty if only images were read.
        by_row: whether images are named by the number of their row, because the table has only URLs.
        rows_in_order: whether the user says that files numbered by row belong to the rows.
    """

    name: str
    frame: pd.DataFrame
    ending: str = ".csv"
    folder: Path | None = None
    separator: str = ""
    header: bool = True
    arrow: Any = None
    content: Any = None
    files: tuple[str, ...] = ()
    starts: Sequence[int] = ()
    part_of: Int64Array = field(default_factory=lambda: np.zeros(0, np.int64))
    row_of: Int64Array = field(default_factory=lambda: np.zeros(0, np.int64))
    remarks: tuple[str, ...] = ()
    images: list[str] = field(default_factory=list)
    captions: list[str] = field(default_factory=list)
    image_column: str = ""
    caption_column: str = ""
    by_row: bool = False
    rows_in_order: bool = False

    @cached_property
    def pictures(self) -> list[str]:
        """Columns of pictures in the rows."""
        return [str(name) for name in self.frame if holds_pictures(self.frame[name])]

    @cached_property
    def table(self) -> pd.DataFrame:
        """All columns but pictures."""
        return self.frame.drop(columns=self.pictures)

    @property
    def columns(self) -> list[str]:
        """Names of all columns, those of pictures last."""
        return [*self.table, *self.pictures]

    @property
    def parts(self) -> list[tuple[str, int]]:
        """The files of the rows, each with its number of rows."""
        counts = np.bincount(self.part_of, minlength=len(self.files))
        return [*zip(self.files, counts.tolist(), strict=True)]

    def place(self, row: int) -> str:
        """Where a row stands, for messages."""
        part = self.part_of[row]
        name = self.files[part] if len(self.files) > 1 else self.name
        return f"{name} row {self.row_of[row] - self.starts[part] + 1:,}"

    def sha256(self) -> str:
        """Hash of the names of the images and of the captions."""
        return hashlib.sha256(json.dumps([self.images, self.captions]).encode()).hexdigest()

    def remarked(self, *sentences: str) -> "UserPairs":
        """With more remarks."""
        return replace(self, remarks=(*self.remarks, *sentences))

    def assigned(self, column: str, cells: Sequence[Any]) -> "UserPairs":
        """With other cells in a column, or with another column."""
        arrow = self.arrow
        if arrow is not None:
            number = arrow.schema.get_field_index(column)
            arrow = arrow.append_column if number < 0 else partial(arrow.set_column, number)
            arrow = arrow(column, pa.array(cells, from_pandas=True))
        frame = self.frame.assign(**{column: pd.Series(cells, self.frame.index, object)})
        return replace(self, frame=frame, arrow=arrow)

    def exploded(self, column: str) -> "UserPairs":
        """Give each caption of a list a row of its own."""
        cells = [
            each if isinstance(each, list | tuple | np.ndarray) else [each] for each in self.frame[column]
        ]
        rows = self.taken(np.repeat(np.arange(len(cells)), [max(1, len(each)) for each in cells]))
        rows = rows.assigned(
            column, [sentence_of(text) for each in cells for text in (each if len(each) else [""])]
        )
        # samples of one key would be one sample again
        return replace(rows, ending=".parquet", content=None) if self.ending == ".tar" else rows

    def taken(self, rows: Int64Array) -> "UserPairs":
        """Some of the rows, int64 ``(n,)``; a row may come several times."""
        return replace(
            self,
            frame=self.frame.iloc[rows].reset_index(drop=True),
            arrow=None if self.arrow is None else self.arrow.take(rows),
            part_of=self.part_of[rows],
            row_of=self.row_of[rows],
            images=[self.images[row] for row in rows if self.images],
            captions=[self.captions[row] for row in rows if self.captions],
        )


def rows_in(path: Path) -> bool:
    """Whether a file or folder holds rows of images, and not images alone."""
    return row_files(path)[0] != "" if path.is_dir() else is_table(path)


def read_rows(source: Any) -> UserPairs:
    """Read a file, a folder, a frame or a ``datasets.Dataset``."""
    if isinstance(source, pd.DataFrame):
        frame = source.reset_index(drop=True).set_axis([*map(str, source.columns)], axis=1)
        rows = _joined("the frame", None, {"the frame": UserPairs("", frame)})
        lists = frame.map(lambda cell: isinstance(cell, bytes | dict | list | tuple | np.ndarray))
        return replace(rows, ending=".parquet" if rows.pictures or lists.any(axis=None) else ".csv")
    if isinstance(source, str | Path):
        path = Path(source)
        with reading(path):
            if path.is_dir():
                return _folder(path)
            rows = _joined(path.name, path.parent, {path.name: _file(path)})
        if (part := PART.fullmatch(path.stem)) and int(part["n"]) > 1:
            return rows.remarked(
                f"{path.name} is one of {int(part['n'])} parts; give its folder to read all."
            )
        return rows
    import datasets

    if not isinstance(source, datasets.Dataset | datasets.DatasetDict):
        raise DataError(
            f"pairs are {type(source).__name__}, expected a path, a pandas.DataFrame or a datasets.Dataset"
        )
    parts = source if isinstance(source, dict) else {"the dataset": source}
    return _of_tables("the dataset", None, {name: decode.of_dataset(each) for name, each in parts.items()})


def _of_tables(name: str, folder: Path | None, tables: Mapping[str, Any]) -> UserPairs:
    return _joined(name, folder, {split: _of_arrow(table, "") for split, table in tables.items()})


def _joined(name: str, folder: Path | None, parts: Mapping[str, UserPairs]) -> UserPairs:
    """One frame of all parts, each with the split that its name states."""
    (label, first), labels, every = next(iter(parts.items())), [*parts], [*parts.values()]
    for other, part in parts.items():
        # pandas would fill the columns that one file lacks
        if {*part.frame} != {*first.frame}:
            raise DataError(
                f"{other} has the columns {listed(map(str, part.frame), 30)}, {label} has "
                f"{listed(map(str, first.frame), 30)}; give both the same columns, or give one file alone"
            )
        if len(twice := part.frame.columns[part.frame.columns.duplicated()]):
            raise DataError(f"{other} has two columns {shown(twice[0])}; rename one of them")
        with reading(other, fix="save it as text in UTF-8"):  # a lone surrogate could be written nowhere
            cells = part.frame.to_dict("list") if part.arrow is None else {}
            json.dumps(cells, skipkeys=True, ensure_ascii=False, default=lambda _: "").encode()
    frame = pd.concat([part.frame for part in every], ignore_index=True)
    sizes = [len(part.frame) for part in every]
    told = [*chain(*(part.remarks for part in every))]
    content = first.content if len(every) == 1 else None
    rows = replace(
        first,
        name=name,
        frame=frame,
        folder=folder,
        ending=first.ending if len({part.ending for part in every}) == 1 else ".jsonl",
        # a table without rows is false
        arrow=None
        if first.arrow is None
        else pa.concat_tables([part.arrow for part in every], promote_options="permissive"),
        content=[*chain(*(part.content for part in every))] if first.ending == ".tar" else content,
        files=tuple(labels),
        starts=np.cumsum([0, *sizes]).tolist(),
        part_of=np.repeat(np.arange(len(every)), sizes),
        row_of=np.arange(len(frame)),
        # splits of one dataset have no order
        remarks=(*(_order_of(labels) if first.ending and len(every) > 1 else ()), *told),
    )
    columns = numbered_captions([*frame])
    if several := [each for each in columns if not no_words(frame[each])]:
        captions = [
            [cell for cell in row if isinstance(cell, str) and cell.strip()]
            for row in frame[several].to_numpy(object).tolist()
        ]
        rows = replace(rows, frame=frame.drop(columns=several)).assigned("captions", captions)
        others = [each for each in columns if each not in several]
        none = f"; {listed(others, 5)} holds none" if others else ""
        rows = rows.remarked(f"The captions are those of {listed(several, 5)}{none}.")
    _refuse_row_as_names(rows)
    return with_splits(rows, labels, rows.part_of)


def _refuse_row_as_names(rows: UserPairs) -> None:
    """Refuse names of columns that are the cells of a row, which would be lost."""
    names = [name.strip() for name in rows.columns]
    # a file or a URL is no name of a column, and a number beside a sentence is a row, such as 17,a dog
    seen = any(name.lower().endswith(PICTURE_ENDINGS) or URL.fullmatch(name) for name in names)
    if seen or (any(" " in name for name in names) and any(map(NUMBER.fullmatch, names))):
        where = "the first line holds" if rows.separator else "it has"
        fix = "write a line of names above it" if rows.separator else "name them"
        raise DataError(
            f"{rows.name}: {where} no names of columns but {listed(names, 5)}; {fix}, such as image,caption"
        )
    if not names or not len(rows.frame):
        raise DataError(f"{rows.name} has no rows; expected {EXPECTED}")


def _order_of(labels: Sequence[str]) -> Iterator[str]:
    """Remarks on files that are read one after the other."""
    numbers = part_numbers(labels) or [0]
    # a shard that was not fetched; years and the parts of several splits are no count
    counts = len(labels) > (max(numbers) - min(numbers)) / 2
    gaps = sorted({*range(min(numbers), max(numbers))} - {*numbers}) if counts else []
    missing = f" No file has the number {listed(map(str, gaps))}." if gaps else ""
    yield f"{len(labels)} files are read in this order: {listed(labels, 12)}.{missing}"
    # files that differ in their folder or language alone: datasets would ask which configuration is meant
    folders_of: dict[str, set[str]] = defaultdict(set)
    for path in (path for path in map(PurePosixPath, labels) if path.name not in METADATA):
        spoken = [piece for piece in re.split("[-_.]", path.name) if language_tag(piece)]
        inner = [part for part in (*path.parent.parts, *spoken) if not split_of(part)]
        folders_of[re.sub("|".join(spoken) or "$", "", path.name)].add("/".join(inner) or ".")
    yield from [TOGETHER.format(listed(sorted(of), 3)) for of in folders_of.values() if len(of) > 1][:1]


def with_splits(rows: UserPairs, labels: Sequence[str], label_of: Int64Array) -> UserPairs:
    """Give the rows a column of splits where names state them.

    Args:
        rows: the rows; a column of splits that is there stays.
        labels: names of files, folders or parts.
        label_of: int64 ``(rows,)``, the row's label.
    """
    named_by = [split_of(label) for label in labels]
    stated = [*map(settled(named_by).get, named_by)]
    of_dict = rows.ending == "" and len(labels) > 1  # its names are those of splits, whatever they are
    if split_column(rows.frame) or not (any(stated) or of_dict):
        return rows
    if None in stated:
        known = labels[next((n for n, split in enumerate(stated) if split), -1)]
        lacking = labels[stated.index(None)]
        return rows.remarked(f"{shown(known)} is not taken for a split, as {shown(lacking)} names none.")
    there = [stated[label] for label in label_of.tolist()]
    if len(counts := Counter(there)) == 1:
        return rows.remarked(f"{shown(labels[0])} names {stated[0]} alone, so no split is stated.")
    told = ", ".join(f"{name} {n:,} rows" for name, n in counts.items())
    # a DatasetDict says it without a column
    rows = (
        rows.assigned("split", there) if rows.ending else replace(rows, frame=rows.frame.assign(split=there))
    )
    return rows.remarked(f"The splits are those of the names: {told}.")


def with_splits_of_folders(rows: UserPairs, paths: Sequence[str]) -> UserPairs:
    """Give the rows a column of splits where the folders of all pictures name one, as ``train2014/1.jpg`` does."""
    label_of, folders = pd.factorize(np.array([str(PurePosixPath(path).parent) for path in paths], object))
    return with_splits(rows, folders.tolist(), label_of)


def split_column(frame: pd.DataFrame) -> str | None:
    """The column ``split``, or one of another name, such as ``subset``, whose cells are all names of splits."""
    for name in split_columns([*map(str, frame)]):
        if plain(name) == "split" or all(map(split_of, {*map(str, frame[name])})):
            return name
    return None


def _folder(path: Path) -> UserPairs:
    kind, files = row_files(path)
    if kind == "saved":
        return _of_tables(path.name, path, decode.saved(path))
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
    parts = {}
    for each in files:
        with reading(each):
            part = _file(each)
        if each.name in METADATA and each.parent != path:
            part = _from_outside(part, path, each.parent.relative_to(path))
        parts[_inner(path, each)] = part
    return _joined(path.name, path, parts)


def _inner(folder: Path, file: Path) -> str:
    return file.relative_to(folder).as_posix()


def _from_outside(part: UserPairs, outer: Path, inner: Path) -> UserPairs:
    """Rows of a metadata table in a subfolder, whose image paths start from the outer folder."""
    # a column of another name holds paths, too, if its first cell is a file here; the outer folder may have its name
    columns = known_columns(part.columns, "image") or [
        name
        for name in part.columns
        if any(os.path.isfile(outer / inner / str(cell)) for cell in part.frame[name].head(1))
    ]
    for name in {*columns} - {*part.pictures}:
        part = part.assigned(name, [_moved(cell, inner) for cell in part.frame[name].tolist()])
    return part


def _moved(cell: Any, inner: Path) -> Any:
    if isinstance(cell, list):
        return [_moved(each, inner) for each in cell]
    return (inner / cell).as_posix() if isinstance(cell, str) and cell and not URL.fullmatch(cell) else cell


def _pictures_with_texts(folder: Path, pictures: Sequence[Path]) -> UserPairs:
    """Pictures with a caption in a text of the same name, such as ``1.jpg`` and ``1.txt``; each line is a caption.

    A picture without a text is a row without a caption.
    """
    rows, picture_of = [], dict[Path, Path]()
    for each in pictures:
        texts = [
            path
            for name in (each.stem, each.name)
            for ending in TEXT_ENDINGS
            for end in (ending, ending.upper())
            if (path := each.with_name(name + end)).is_file()
        ]
        if len(texts) > 1 or any(picture_of.setdefault(path, each) != each for path in texts):
            others = [picture_of.get(texts[0], each).name, each.name, *(path.name for path in texts)]
            raise DataError(
                f"{each.parent} holds {listed(dict.fromkeys(others))}; keep one picture and one text"
            )
        lines = []
        for text in texts:
            with reading(text):
                lines = [line for line in decode.text(text).splitlines() if line.strip()]
        rows += [(_inner(folder, each), line) for line in lines or [""]]
    frame = pd.DataFrame(rows, columns=["image", "caption"], dtype=object)
    pairs = _joined(folder.name, folder, {folder.name: UserPairs("", frame)})
    return with_splits_of_folders(pairs, frame["image"].tolist())


def _file(path: Path) -> UserPairs:
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
        return UserPairs("", frame.rename(columns=str), ".jsonl")  # lists have numbers for columns
    return _json(_object(text), path) if "json" in ending else _text(text, path)


def _text(text: str, path: Path) -> UserPairs:
    """CSV in any separator, cells between tabs, lines of ``name.jpg#0`` and a caption, or captions and URLs."""
    if told := _SEPARATOR.match(text):  # as a spreadsheet writes it
        text = text[told.end() :]
    first = next(filter(str.strip, text.split("\n")), "").removesuffix("\r")
    if not first:
        return UserPairs("", pd.DataFrame())
    separator = told[1] if told else separator_of(path, first)
    if separator == "\t" or _NUMBERED.fullmatch(first):
        text = text.replace("\r\n", "\n")
    numbered = _NUMBERED.fullmatch(first) and "," not in first.partition("#")[0]
    cells = _numbered(text, path) if numbered else _csv(text, path, first, separator)
    if MARK in text:
        cells = cells.map(lambda cell: cell.removeprefix(MARK))
    urls = [bool(URL.fullmatch(cell.strip())) for cell in first.split("\t")]
    header = False
    if numbered:
        names, separator = [*cells], "\t"
    elif separator == "\t" and any(urls):  # of several columns only the user knows which holds the captions
        names = ["caption" if len(urls) == 2 else f"column_{n + 1}" for n in range(len(urls))]
        names[urls.index(True)] = "url"
    else:
        header, names, cells = True, [name.strip() for name in cells.iloc[0]], cells[1:]
    # a spreadsheet adds columns without names and cells
    kept = [n for n, name in enumerate(names) if name or (cells.iloc[:, n] != "").any()]
    frame = cells.iloc[:, kept].set_axis([names[n] for n in kept], axis=1).reset_index(drop=True)
    return UserPairs("", frame, ending_of(path) or ".txt", separator=separator, header=header)


def _csv(text: str, path: Path, first: str, separator: str) -> pd.DataFrame:
    """The cells of all lines; ``first`` is the first one."""
    verbatim = blanks = False
    if separator == "\t":
        # in published files a quotation mark is an ordinary character; a program that quotes marks all cells alike
        marked, plain = [cell[1:-1] for cell in _QUOTED.findall(text)], _QUOTED.sub("", text)
        quoted = first.startswith('"') or any(re.search('""|[\n\t]', cell) for cell in marked)
        # as Excel marks every cell with a comma
        alike = quoted or ("," not in plain and all("," in cell for cell in marked))
        verbatim = not alike or re.search(r'(?<![^\t\n])"', plain) is not None
    else:
        # as databases write a mark inside a cell; where one ends every cell, the cells end with a backslash
        if re.search(r'\\"(?![,;|\r\n]|\Z)', text) and not re.search(r'[^\\,;|\n]""', text):
            text = text.replace('\\"', '""')
        # a blank before the mark would make the marks a part of the text
        blanks = re.search(rf'{re.escape(separator)} +"', text) is not None
    cells = pd.read_csv(
        io.StringIO(text),
        sep=separator,
        header=None,
        dtype=object,
        keep_default_na=False,
        na_filter=False,
        index_col=False,
        quoting=csv.QUOTE_NONE if verbatim else csv.QUOTE_MINIMAL,
        skipinitialspace=blanks,
    )
    cells = cells[(cells != "").any(axis=1)]
    for row in cells[cells.map(lambda cell: "\n" in cell).any(axis=1)].to_numpy().tolist():
        # pandas reads rows after an open quotation mark as one cell
        if inside := _swallowed(row, separator):
            raise DataError(
                f"{path}: a quoted cell holds what looks like rows ({shorten(inside)}); close its quotation mark, or "
                "remove its line breaks"
            )
    return cells


def _numbered(text: str, path: Path) -> pd.DataFrame:
    lines = pd.Series([line for line in text.split("\n") if line.strip()], dtype=object)
    cells = lines.str.extract(_NUMBERED)
    if len(wrong := lines[cells["id"].isna()]):
        raise DataError(
            f"{path} row {wrong.index[0] + 1}: expected name.jpg#0, a tab and a caption as in the first line, got "
            f"{shorten(wrong.iloc[0])}; correct it"
        )
    return cells.fillna("")


def _once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    content: dict[str, Any] = {}
    for name, value in pairs:
        if name in content:  # Python keeps the last of two alike names alone
            raise DataError(f"a JSON object has {shown(name)} twice; keep one")
        content[name] = value
    return content


_object = partial(json.loads, object_pairs_hook=_once)
"""Read JSON."""


def _json(content: Any, path: Path) -> UserPairs:
    """A list of objects, Karpathy's splits, or COCO's captions."""
    match content:
        case [{"annotations": _, "data": _}, *_]:
            raise DataError(
                f"{path} is a full export of Label Studio; export it as CSV or JSON-MIN and name the columns image and "
                "caption"
            )
        case [*objects] if all(isinstance(each, dict) for each in objects):
            return UserPairs("", pd.DataFrame(objects, dtype=object), ".json")
        case {"images": [*images], "annotations": [{"caption": _}, *_] as annotations}:
            # one tool writes the ids as numbers and another as texts
            name_of = {str(each["id"]): each["file_name"] for each in images}
            rows = [
                {"image": name_of.get(str(each["image_id"])), "caption": each["caption"]}
                for each in annotations
            ]
            if len(name_of) < len(images):  # each caption would get the last of them
                raise DataError(f"{path}: two images have one id; give each its own")
        case {"images": [{"sentences": _}, *_] as images}:
            rows = [
                {"image": "/".join(filter(None, [image.get("filepath"), image["filename"]]))}
                | {name: image[name] for name in image.keys() & {"split"}}
                | {"caption": sentence_of(sentence)}
                for image in images
                for sentence in image["sentences"]
            ]
        case _:
            raise DataError(
                f"{path} is no list of objects, nor Karpathy's dataset_*.json, nor lists `images` and "
                "`annotations` with captions; convert it to CSV with the columns image and caption"
            )
    return UserPairs("", pd.DataFrame(rows, dtype=object), ".json", content=content)


def sentence_of(cell: Any) -> Any:
    """A caption of Karpathy's, or its words, as text; any other cell stays."""
    match cell:
        case {"raw": str(text)}:
            return text
        case {"tokens": [*words]}:
            return " ".join(map(str, words))
    return cell


def _of_arrow(table: Any, ending: str) -> UserPairs:
    """Rows of an Arrow table; pictures stay in it until they are asked for."""
    table = table.drop_columns([name for name in table.column_names if name == "__index_level_0__"])
    for number, name in enumerate(table.column_names):
        if "view" in str(
            table.schema.field(number).type
        ):  # neither pandas nor Arrow takes rows of such a column
            table = table.set_column(number, name, pa.array(table.column(number).to_pylist()))
    frame = table.replace_schema_metadata(None).to_pandas(  # what pandas wrote there may be damaged
        integer_object_nulls=True,
        types_mapper=lambda kind: (
            pd.ArrowDtype(kind)
            if pa.types.is_nested(kind) or "binary" in str(kind).partition("<")[0]
            else None
        ),
    )
    # of datasets: splits may be numbers whose names stand in the schema
    facts = json.loads((table.schema.metadata or {}).get(b"huggingface", b"{}")).get("info", {})
    for name in split_columns(table.column_names):
        if names := facts.get("features", {}).get(name, {}).get("names"):
            frame[name] = frame[name].map(dict(enumerate(names)))
    return UserPairs("", frame, ending, arrow=table)


def _shard(path: Path) -> UserPairs:
    """A WebDataset shard: files of one key are a row, and what follows the key names a column.

    A picture ``1.jpg`` is in the column ``image``, ``1.mask.png`` in ``mask``; a text ``1.txt`` in ``caption``,
    ``1.outputs.txt`` in ``outputs``; ``1.json`` holds other columns, or a list for one.
    """
    samples: list[dict[str, Any]] = []
    last: dict[str, dict[str, Any]] = {}
    for name, content in decode.shard(path):
        key = member(name).key
        # a file that comes again begins a sample of its own: an archive may hold a sample twice
        if name in last.get(key, [name]):
            last[key] = {}
            samples.append(last[key])
        last[key][name] = content
    first: dict[tuple[object, ...], dict[str, Any]] = {}
    for sample in samples if len(last) < len(samples) else ():
        first.setdefault(tuple((name, picture(content)) for name, content in sample.items()), sample)
    once = [*first.values()] or samples
    doubled = [f"{len(samples) - len(once)} samples of {path.name} are stored twice and read once."]
    return UserPairs(
        "",
        pd.DataFrame([cells_of(sample, f"{path}: ") for sample in once], dtype=object),
        ".tar",
        content=once,
        remarks=tuple(doubled if len(once) < len(samples) else ()),
    )


def cells_of(sample: Mapping[str, Any], where: str = "") -> dict[str, Any]:
    """The cells of a row that the files of a sample hold: name to a picture, or to the bytes of a text or of facts."""
    row: dict[str, Any] = {"__key__": member(next(iter(sample))).key}
    given: dict[str, str] = {}
    for name, content in sample.items():
        key, column, kind = member(name)
        if kind != "picture":
            text = decoded(content, where + name, DataError)
            content = text.strip() if kind == "text" else _object(text)
        if isinstance(content, dict):
            row = content | row
        elif given.setdefault(column, name) != name:  # one would be lost
            raise DataError(
                f"{where}{key} has two files {column}, {given[column]} and {name}; name the fields apart, as in "
                "1.image.jpg and 1.mask.png"
            )
        else:
            row[column] = content
    return row


class Member(NamedTuple):
    """A file of a shard: the key of its sample, its column, and its kind: ``picture``, ``text`` or ``facts``."""

    key: str
    column: str
    kind: str


def member(name: str) -> Member:
    """What the name of a file in a shard says."""
    folder, _, last = name.rpartition("/")
    stem, _, inner = last.partition(".")
    before, _, ending = inner.rpartition(".")
    ending = ending.lower()
    kind = "picture" if f".{ending}" in PICTURE_ENDINGS else "facts" if ending == "json" else "text"
    return Member(
        f"{folder}/{stem}".lstrip("/"), before or ("image" if kind == "picture" else "caption"), kind
    )


_ID = re.compile(r"\S|\S*(?:\d\S*|\.[A-Za-z]{3,4})")
_FILE = re.compile(r"\S+\.[A-Za-z]{3,4}")


def _swallowed(cells: list[str], separator: str) -> str | None:
    """A line inside a cell that looks like a row: the cell's lines hold the separators that their rows need."""
    after = len(cells) - 1
    for number, cell in enumerate(cells):
        first, *inner = re.split("\r?\n", cell)
        if not inner or first.count(separator) < after - number or inner[-1].count(separator) < number:
            continue
        if line_inside := next((line for line in (first, *inner) if _is_row(line.split(separator))), None):
            return line_inside
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
