"""Somebody's pairs: which columns hold the images and the captions, and what each row says."""

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
from ncl_bench.data.languages import language_tag
from ncl_bench.data.pairs.form import (
    CAPTION_COLUMNS,
    EXPECTED,
    IMAGE_COLUMNS,
    NUMBER,
    PICTURE_COLUMNS,
    PICTURE_ENDINGS,
    URL,
    URL_COLUMNS,
    Form,
    exploded,
)
from ncl_bench.data.pairs.forms import form_of
from ncl_bench.errors import DataError, listed, shorten, shown


@dataclass(frozen=True)
class OwnPairs:
    """Somebody's pairs.

    Attributes:
        form: the rows as they came.
        images: name of each row's image; empty where the row has none.
        captions: of each row, with single blanks; empty if only images were read.
        image_column: where the images stand.
        caption_column: where the captions stand; empty if only images were read.
        by_row: whether images are named by the number of their row, because the table has only URLs.
        remarks: what was chosen, in sentences.
        row_of: row of the source for each pair, int64 ``(n,)``: a list of captions gives several pairs.
    """

    form: Form
    images: list[str]
    captions: list[str]
    image_column: str
    caption_column: str
    by_row: bool = False
    remarks: list[str] = field(default_factory=list)
    row_of: Int64Array = field(default_factory=lambda: np.zeros(0, np.int64))

    def sha256(self) -> str:
        """Hash of the names of the images and of the captions."""
        return hashlib.sha256(json.dumps([self.images, self.captions]).encode()).hexdigest()


def read_pairs(
    source: "Path | str | pd.DataFrame | Any",
    image_column: str | None = None,
    caption_column: str | None = None,
) -> OwnPairs:
    """Read pairs of any form; nothing is left out yet.

    Args:
        source: a file, a folder, a frame or a ``datasets.Dataset``.
        image_column: column of image paths (default: the first of :data:`IMAGE_COLUMNS` that is there).
        caption_column: column of captions (default: the first of :data:`CAPTION_COLUMNS` that is there).
    """
    form = form_of(source)
    columns = columns_of(form)
    remarks: list[str] = []
    # the caption first: a table that is read without captions needs no such column
    caption = _column(form.name, columns, caption_column, CAPTION_COLUMNS, "caption", remarks)
    if caption in form.pictures:
        raise DataError(f"{form.name}: column {shown(caption)} holds pictures; choose --caption-column")
    return pairs_of(form, image_column, caption, remarks)


def columns_of(form: Form) -> list[str]:
    """Names of all columns; refused if the first line is a row already, which would be lost."""
    columns = [*map(str, form.table.columns), *form.pictures]
    if not columns:
        raise DataError(f"{form.name} has no rows; expected {EXPECTED}")
    _refuse_rows_as_names(form.name, columns)
    return columns


def pairs_of(
    form: Form, image_column: str | None = None, caption: str = "", remarks: Sequence[str] = ()
) -> OwnPairs:
    """Read the images of a form, and the captions of one of its columns.

    Args:
        form: the rows.
        image_column: column of image paths (default: as for :func:`read_pairs`).
        caption: column of captions; empty to read images alone.
        remarks: on the choice of this column.
    """
    told = [*remarks]
    # remarks are copied, as the caller's list must not grow
    image = image_column_of(form, image_column, told)
    if image == caption:
        raise DataError(
            f"{form.name}: column {shown(image)} cannot hold both images and captions; name another"
        )
    row_of: Int64Array = np.arange(len(form.table))
    if caption:
        form = _with_lists(form, caption)
    if caption and any(isinstance(cell, list | tuple | np.ndarray) for cell in form.table[caption].tolist()):
        # one row for each caption; row_of leads back to the index that came
        form, row_of = exploded(form, caption)
    captions = [" ".join(text.split()) for text in text_cells(form, caption)] if caption else []
    if any(captions) and all(NUMBER.fullmatch(text) for text in captions if text):
        raise DataError(
            f"{form.name}: column {shown(caption)} holds numbers such as {next(filter(None, captions))}, expected "
            "captions; choose another with --caption-column"
        )
    if not len(form.table):
        raise DataError(f"{form.name} has no rows; expected {EXPECTED}")
    if image in form.pictures:
        # pictures in the rows have no name; the row is one until their content is hashed
        names = [f"{row:09d}" for row in row_of.tolist()]
        return OwnPairs(form, names, captions, image, caption, False, told, row_of)
    images = text_cells(form, image)
    filled = [name for name in images if name]
    by_row = bool(filled) and all(URL.fullmatch(name) for name in filled)
    if by_row:  # the number of the row until another column names the files
        images = [f"{row:09d}" if name else "" for row, name in zip(row_of.tolist(), images, strict=True)]
    return OwnPairs(form, images, captions, image, caption, by_row, told, row_of)


_LIST = re.compile(r"\[\s*(['\"].*['\"]\s*)?\]", re.DOTALL)


def _with_lists(form: Form, column: str) -> Form:
    """Read lists of texts that stand in cells of text, as a table of CSV holds several captions of an image."""
    cells = form.table[column].tolist()
    filled = [cell.strip() for cell in cells if isinstance(cell, str) and cell.strip()]
    if not filled or not all(map(_LIST.fullmatch, filled)):
        return form
    lists = [
        _listed_texts(cell.strip(), form.place(row)) if isinstance(cell, str) else cell
        for row, cell in enumerate(cells)
    ]
    return replace(form, table=form.table.assign(**{column: pd.Series(lists, form.table.index, object)}))


def _listed_texts(cell: str, where: str) -> list[str]:
    """The texts of a list in JSON or as Python prints it."""
    found: object = [] if not cell else None
    with suppress(ValueError, RecursionError):
        found = json.loads(cell)
    if found is None:
        with suppress(ValueError, SyntaxError, RecursionError, MemoryError):
            read = ast.literal_eval(cell)
            # Python would join two texts without a comma between them, as NumPy prints an array
            found = read if repr(read) == cell else None
    if not isinstance(found, list) or not all(isinstance(text, str) for text in found):
        raise DataError(
            f"{where} holds {shorten(cell)}, expected a list of captions in JSON; write a row for each caption"
        )
    return found


def _refuse_rows_as_names(name: str, columns: Sequence[str]) -> None:
    """Refuse a table whose first line is a row already: its first pair would be lost."""
    # a file or a URL is no name of a column
    seen = next((c for c in columns if c.lower().endswith(PICTURE_ENDINGS) or URL.fullmatch(c.strip())), None)
    # a number beside a sentence is a row, such as 17,a dog; a column may be called 0
    if seen is None and any(" " in c.strip() for c in columns):
        seen = next((c for c in columns if NUMBER.fullmatch(c.strip())), None)
    if seen is not None:
        raise DataError(
            f"{name}: the first line holds no names of columns but {listed(columns, 5)}; write a line of names above "
            "it, such as image,caption"
        )


def image_column_of(form: Form, given: str | None, remarks: list[str] | None = None) -> str:
    """The column of images: pictures in the rows before paths, paths before URLs.

    Args:
        form: the rows.
        given: column that was asked for.
        remarks: gets a sentence if several columns fit.
    """
    columns = columns_of(form)
    if given is None and form.pictures:
        # a picture that is there is better than a path that may lead nowhere
        named = [each for each in form.pictures if each.casefold() in PICTURE_COLUMNS]
        if len(form.pictures) == 1 and (named or not any(c.casefold() in IMAGE_COLUMNS for c in columns)):
            return next(iter(form.pictures))
        # image beside thumbnail or mask
        named = [each for each in named if each.casefold() == "image"] or named
        if len(named) == 1:
            return named[0]
        others = [c for c in form.table.columns if str(c).casefold() in IMAGE_COLUMNS]
        raise DataError(
            f"{form.name} holds pictures in {listed([*form.pictures, *others])}; choose one with --image-column"
        )
    urls = [name for name in columns if name.casefold() in URL_COLUMNS]
    # a URL says where a picture came from; a path where it lies
    if given is None and urls and not any(name.casefold() in IMAGE_COLUMNS for name in columns):
        return urls[0]
    return _column(form.name, columns, given, IMAGE_COLUMNS, "image", [] if remarks is None else remarks)


def text_cells(form: Form, column: str) -> list[str]:
    """Cells of a column as text; empty cells are empty texts."""
    found = []
    for row, value in enumerate(form.table[column].tolist()):
        if isinstance(value, bytes):
            with suppress(UnicodeDecodeError):
                value = value.decode()
        if isinstance(value, bytes) or not (pd.api.types.is_scalar(value) or isinstance(value, PurePath)):
            raise DataError(
                f"{form.place(row)}: {column} holds {shorten(value)}, expected a text; choose another column"
            )
        if isinstance(value, float) and value.is_integer():
            value = int(value)  # a column of whole numbers with a gap is one of floats in pandas
        found.append("" if pd.isna(value) else str(value).strip())
    return found


def _column(
    name: str, columns: Sequence[str], given: str | None, known: Sequence[str], what: str, remarks: list[str]
) -> str:
    if given is not None:
        if given not in columns:
            raise DataError(
                f"{name} has no column {shown(given)}, only {listed(columns, 30)}; correct --{what}-column"
            )
        return given
    # in the order of the known names, not of the table
    there = [column for each in known for column in columns if column.strip().casefold() == each]
    # caption beside Caption: nothing says which is meant
    if len(there) > 1 and there[0].strip().casefold() == there[1].strip().casefold():
        raise DataError(f"{name} has the columns {listed(there[:2])}; choose one with --{what}-column")
    if not there and what == "caption":  # columns named by their language, as in a table of several
        there = [column for column in columns if language_tag(column)]
    if not there:
        raise DataError(
            f"{name} has the columns {listed(columns, 30)}, and none is called {', '.join(known[:4])}; name the column "
            f"of {'image paths' if what == 'image' else 'captions'} with --{what}-column, or write a line of names "
            "above the first one if that is a row already"
        )
    if len(there) > 1:
        remarks.append(
            f"The {what} column is {there[0]}; --{what}-column chooses another ({', '.join(there[1:])})."
        )
    return there[0]
