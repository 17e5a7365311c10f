"""Somebody's pairs: which columns hold the images and the captions, and what each row says."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from ncl_bench.data.languages import language_tag
from ncl_bench.data.pairs.forms import (
    CAPTION_COLUMNS,
    EXPECTED,
    IMAGE_COLUMNS,
    URL,
    URL_COLUMNS,
    Form,
    form_of,
)
from ncl_bench.errors import DataError, listed, shorten, shown


@dataclass(frozen=True)
class OwnPairs:
    """Somebody's pairs.

    Attributes:
        form: the rows as they came.
        images: name of each row's image; empty where the row has none.
        captions: of each row, with single blanks.
        image_column: where the images stand.
        caption_column: where the captions stand.
        by_row: whether images are named by the number of their row, because the table has only URLs.
        remarks: what was chosen, in sentences.
    """

    form: Form
    images: list[str]
    captions: list[str]
    image_column: str
    caption_column: str
    by_row: bool = False
    remarks: list[str] = field(default_factory=list)


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
    columns = [str(name) for name in form.table.columns]
    if form.image is not None and form.image not in columns:
        columns.append(form.image)
    remarks: list[str] = []
    caption = _column(form.name, columns, caption_column, CAPTION_COLUMNS, "caption", remarks)
    urls = next((name for name in columns if name.casefold() in URL_COLUMNS), None)
    by_row = False
    if form.image is not None and image_column in (None, form.image):
        image = form.image
    else:
        known = [name for name in columns if name.casefold() in IMAGE_COLUMNS]
        if image_column is None and not known and urls is not None:
            image, by_row = urls, True
        else:
            image = _column(form.name, columns, image_column, IMAGE_COLUMNS, "image", remarks)
    if image == caption:
        raise DataError(
            f"{form.name}: column {shown(image)} cannot hold both images and captions; name another"
        )
    n = len(form.table)
    if by_row or image not in form.table:
        images = [f"{row:09d}" for row in range(n)]
    else:
        images = _texts(form, image)
        by_row = bool(n) and all(URL.fullmatch(name) for name in images[:100])
        if by_row:
            images = [f"{row:09d}" for row in range(n)]
    captions = [" ".join(text.split()) for text in _texts(form, caption)]
    if not n:
        raise DataError(f"{form.name} has no rows; expected {EXPECTED}")
    return OwnPairs(form, images, captions, image, caption, by_row, remarks)


def _texts(form: Form, column: str) -> list[str]:
    """Cells of a column as text; empty cells are empty texts."""
    found = []
    for row, value in enumerate(form.table[column].tolist()):
        if isinstance(value, list | tuple | np.ndarray | dict):
            raise DataError(
                f"{form.name} row {row}: {column} holds {shorten(value)}, expected one text per row; give each "
                f"caption a row of its own (pandas: frame.explode({column!r}))"
            )
        missing = value is None or value is pd.NA or (isinstance(value, float) and np.isnan(value))
        found.append("" if missing else str(value).strip())
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
    small = {column.strip().casefold(): column for column in reversed(columns)}
    there = [small[each] for each in known if each in small]
    if not there and what == "caption":  # columns named by their language, as in a table of several
        there = [column for column in columns if language_tag(column)]
    if not there:
        raise DataError(
            f"{name} has the columns {listed(columns, 30)}, and none is called {', '.join(known[:4])}; name the column "
            f"of {'image paths' if what == 'image' else 'captions'} with --{what}-column"
        )
    if len(there) > 1:
        remarks.append(
            f"The {what} column is {there[0]}; --{what}-column chooses another ({', '.join(there[1:])})."
        )
    return there[0]
