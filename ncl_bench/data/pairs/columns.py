"""A user's pairs: which columns hold the images and the captions, and what each row says."""

import ast
import hashlib
import json
import re
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from pathlib import Path, PurePath
from typing import Any

import numpy as np
import pandas as pd

from ncl_bench.data.columns import Int64Array
from ncl_bench.data.pairs.listing import PICTURE_ENDINGS
from ncl_bench.data.pairs.names import IN_ORDER, column, known_columns
from ncl_bench.data.pairs.rows import EXPECTED, NUMBER, URL, UserRows, read_rows, split_column
from ncl_bench.errors import DataError, listed, named, shorten, shown

NO_CAPTION = {
    "are a word for a missing value, such as nan": r"(nan|none|null|#?n/?a|<na>|\\n|#name\?)",
    "look like settings of an image generator": r".*(negative prompt:|steps: \d+, sampler).*",
    "stand between marks, such as <start> and <end>": (
        r"(<\S{1,20}>|\[cls\]|startseq ).*(<\S{1,20}>|\[sep\]| endseq)"
    ),
    "are printed bytes, such as b'a dog'": r"b'.*'|b\".*\"",
    "are printed dictionaries": r"\{['\"].*\}",
    "hold marks of HTML, such as &amp;": r".*(&(amp|quot|lt|gt|nbsp|#\d+);|<br ?/?>).*",
    "were decoded wrongly, such as Caf\u00c3\u00a9": r".*(\u00e3[\x80-\xbf]|\u00e2\u20ac).*",
    "name a file or an address": r"https?://\S+|\S+\.(jpe?g|png|webp|gif|bmp|tiff?)",
}
"""What captions may be that describe no picture, to the pattern of such a caption in small letters."""
_LIST = re.compile(r"\[\s*(['\"].*['\"]\s*)?\]|\(['\"].*['\"],?\)", re.DOTALL)
_WHOLE = re.compile(r"([0-9]+)\.0")


@dataclass(frozen=True)
class OwnPairs:
    """A user's pairs.

    Attributes:
        form: the rows as they came.
        images: name of each row's image; empty where the row has none.
        captions: of each row, with single blanks; empty if only images were read.
        image_column: where the images stand.
        caption_column: where the captions stand; empty if only images were read.
        by_row: whether images are named by the number of their row, because the table has only URLs.
        remarks: what was chosen, in sentences.
        row_of: row of the source for each pair, int64 ``(n,)``: a list of captions gives several pairs.
        rows_in_order: whether the user says that files numbered by row belong to the rows.
    """

    form: UserRows
    images: list[str]
    captions: list[str]
    image_column: str
    caption_column: str
    by_row: bool = False
    remarks: list[str] = field(default_factory=list)
    row_of: Int64Array = field(default_factory=lambda: np.zeros(0, np.int64))
    rows_in_order: bool = False

    @property
    def parts(self) -> list[tuple[str, int]]:
        """The files of the rows, each with its number of pairs."""
        return [(file, int((self.form.part_of == part).sum())) for part, file in enumerate(self.form.files)]

    def sha256(self) -> str:
        """Hash of the names of the images and of the captions."""
        return hashlib.sha256(json.dumps([self.images, self.captions]).encode()).hexdigest()


def read_pairs(
    source: "Path | str | pd.DataFrame | Any",
    image_column: str | None = None,
    caption_column: str | None = None,
    *,
    rows_in_order: bool = False,
) -> OwnPairs:
    """Read pairs of any form; nothing is left out yet.

    Args:
        source: a file, a folder, a frame or a ``datasets.Dataset``.
        image_column: column of image paths (default: the first known name that is there).
        caption_column: column of captions (default: the first known name that is there).
        rows_in_order: files numbered by row belong to the rows in their order.
    """
    rows = read_rows(source)
    columns, remarks = columns_of(rows), list[str]()
    # the caption first: a table that is read without captions needs no such column
    caption = column(rows.name, columns, "caption", caption_column, remarks)
    if caption in rows.pictures:
        raise DataError(
            f"{rows.name}: column {shown(caption)} holds pictures; choose {named('caption_column')}"
        )
    return pairs_of(rows, image_column, caption, remarks, rows_in_order=rows_in_order)


def columns_of(rows: UserRows) -> list[str]:
    """Names of all columns; refused if the first line is a row already, which would be lost."""
    columns = [*rows.table.columns.map(str), *rows.pictures]
    # a file or a URL is no name of a column, and a number beside a sentence is a row, such as 17,a dog
    seen = any(each.lower().endswith(PICTURE_ENDINGS) or URL.fullmatch(each.strip()) for each in columns)
    numbered = any(" " in each.strip() for each in columns) and any(
        NUMBER.fullmatch(each.strip()) for each in columns
    )
    if seen or numbered:
        of_text = rows.arrow is None and rows.folder is not None and rows.ending not in (".json", ".jsonl")
        where, fix = (
            ("the first line holds", "write a line of names above it") if of_text else ("it has", "name them")
        )
        raise DataError(
            f"{rows.name}: {where} no names of columns but {listed(columns, 5)}; {fix}, such as image,caption"
        )
    if not columns or not len(rows.frame):
        raise DataError(f"{rows.name} has no rows; expected {EXPECTED}")
    return columns


def pairs_of(
    rows: UserRows,
    image_column: str | None = None,
    caption: str = "",
    remarks: Sequence[str] = (),
    *,
    rows_in_order: bool = False,
) -> OwnPairs:
    """Read the images of rows, and the captions of one column.

    Args:
        rows: the rows.
        image_column: column of image paths (default: as for :func:`read_pairs`).
        caption: column of captions; empty to read images alone.
        remarks: on the choice of this column.
        rows_in_order: as for :func:`read_pairs`.
    """
    told = [*rows.remarks, *remarks]
    image = image_column_of(rows, image_column, told)
    captions: list[str] = []
    if caption:
        rows = _one_caption_each(rows, caption)
        captions = [" ".join(text.split()) for text in text_cells(rows, caption)]
        filled = [text for text in captions if text]
        if filled and all(re.fullmatch(r"[\d\s.,]+", text) for text in filled):
            raise DataError(
                f"{rows.name}: column {shown(caption)} holds numbers such as {filled[0]}, expected captions; choose "
                f"another with {named('caption_column')}"
            )
        for told_of, pattern in NO_CAPTION.items():
            if n := sum(re.fullmatch(pattern, text.casefold()) is not None for text in captions):
                told.append(f"{n:,} of {len(captions):,} captions {told_of}.")
    by_row = False
    if image in rows.pictures:
        # pictures in the rows have no name; the row is one until their content is hashed
        images = [f"{row:09d}" for row in rows.row_of.tolist()]
    else:
        images = text_cells(rows, image)
        filled = [name for name in images if name]
        by_row = bool(filled) and all(map(URL.fullmatch, filled))
        if by_row:  # the number of the row until another column names the files
            images = [
                f"{row:09d}" if name else "" for row, name in zip(rows.row_of.tolist(), images, strict=True)
            ]
            told += [IN_ORDER.format("Pictures")] if rows_in_order else []
        elif filled and all(map(_WHOLE.fullmatch, filled)):
            # a program that read whole numbers beside a gap wrote them with a point
            images = [name.removesuffix(".0") for name in images]
    found = OwnPairs(rows, images, captions, image, caption, by_row, told, rows.row_of, rows_in_order)
    return _once(found) if caption and len(rows.files) > 1 else found


def _once(pairs: OwnPairs) -> OwnPairs:
    """Leave out pairs that a second file repeats: the same picture and caption in the same split."""
    from ncl_bench.data.pairs.cells import identity

    rows = pairs.form
    doubled_texts = pd.Series(pairs.captions).duplicated(keep=False).to_numpy()
    in_rows = pairs.image_column in rows.pictures
    split = split_column(rows.frame)
    first: dict[tuple[object, ...], int] = {}
    again: list[int] = []
    for row in np.flatnonzero(doubled_texts).tolist():
        name = identity(rows.frame[pairs.image_column].iloc[row]) if in_rows else pairs.images[row]
        key = (name, pairs.captions[row], rows.frame[split].iloc[row] if split else "")
        if rows.part_of[first.setdefault(key, row)] != rows.part_of[row] and name:
            again.append(row)
            other = rows.files[rows.part_of[first[key]]]
    if not again:
        return pairs
    kept = np.setdiff1d(np.arange(len(pairs.captions)), again)
    told = (
        f"{len(again):,} rows of {listed(dict.fromkeys(rows.files[part] for part in rows.part_of[again]), 3)} are left "
        f"out: {other} holds the same picture and caption."
    )
    return replace(
        pairs,
        form=rows.taken(kept),
        images=[pairs.images[row] for row in kept],
        captions=[pairs.captions[row] for row in kept],
        remarks=[*pairs.remarks, told],
        row_of=pairs.row_of[kept],
    )


def _one_caption_each(rows: UserRows, caption: str) -> UserRows:
    """Give each caption of a list a row; a table of text holds lists as JSON or as Python prints them."""
    cells = rows.frame[caption].tolist()
    texts = [cell.strip() for cell in cells if isinstance(cell, str) and cell.strip()]
    if texts and all(map(_LIST.fullmatch, texts)):
        lists = [
            _listed_texts(cell.strip(), rows.place(row)) if isinstance(cell, str) else cell
            for row, cell in enumerate(cells)
        ]
        frame = rows.frame.assign(**{caption: pd.Series(lists, rows.frame.index, object)})
        return replace(rows, frame=frame).exploded(caption)
    several = any(isinstance(cell, list | tuple | np.ndarray) for cell in cells)
    return rows.exploded(caption) if several else rows


def _listed_texts(cell: str, where: str) -> list[str]:
    found: object = [] if not cell else None
    with suppress(ValueError, RecursionError):
        found = json.loads(cell) if cell else []
    if found is None:
        with suppress(ValueError, SyntaxError, RecursionError, MemoryError):
            read = ast.literal_eval(cell)
            # Python would join two texts without a comma between them, as NumPy prints an array
            found = read if repr(read) == cell else None
    if not isinstance(found, list | tuple) or not all(isinstance(text, str) for text in found):
        raise DataError(
            f"{where} holds {shorten(cell)}, expected a list of captions in JSON; write a row for each caption"
        )
    return [*found]


def image_column_of(rows: UserRows, given: str | None, remarks: list[str] | None = None) -> str:
    """The column of images: pictures in the rows before paths, paths before URLs.

    Args:
        rows: the rows.
        given: column that was asked for.
        remarks: gets a sentence if several columns fit.
    """
    columns, pictures, remarks = columns_of(rows), rows.pictures, [] if remarks is None else remarks
    paths = known_columns(columns, "image")
    if given is None and pictures:
        # a picture that is there is better than a path that may lead nowhere
        usual = known_columns(pictures, "picture")
        if len(pictures) == 1 and (usual or not paths):
            return pictures[0]
        # image beside thumbnail or mask
        usual = [each for each in usual if each.casefold() == "image"] or usual
        if len(usual) == 1:
            return usual[0]
        raise DataError(
            f"{rows.name} holds pictures in {listed(dict.fromkeys([*pictures, *paths]))}; choose one with "
            f"{named('image_column')}"
        )
    # image beside file_name may hold numbers or URLs
    if given is None:
        files = [name for name in paths if rows.frame[name].head(100).map(_is_file).all()]
        others = [name for name in paths if name not in files]
        if files and others[:1] == paths[:1]:
            remarks.append(f"The image column is {files[0]}, not {listed(others)}.")
            return files[0]
    urls = known_columns(columns, "url")
    # a URL says where a picture came from; a path where it lies
    if given is None and urls and not paths:
        return urls[0]
    return column(rows.name, columns, "image", given, remarks)


def _is_file(cell: object) -> bool:
    return str(cell).lower().endswith(PICTURE_ENDINGS) and not URL.match(str(cell))


def text_cells(rows: UserRows, column: str) -> list[str]:
    """Cells of a column as text; empty cells are empty texts."""
    found = []
    for row, value in enumerate(rows.frame[column].tolist()):
        if isinstance(value, bytes):
            with suppress(UnicodeDecodeError):
                value = value.decode()
        if isinstance(value, bytes) or not (pd.api.types.is_scalar(value) or isinstance(value, PurePath)):
            kind = "bytes" if isinstance(value, bytes) else f"a {type(value).__name__}"
            raise DataError(
                f"{rows.place(row)}: {column} holds {kind}, expected a text; choose another column"
            )
        if isinstance(value, float) and value.is_integer():
            value = int(value)  # a column of whole numbers with a gap is one of floats in pandas
        found.append("" if pd.isna(value) else str(value).strip())
    return found
