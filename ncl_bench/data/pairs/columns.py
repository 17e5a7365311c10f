"""A user's pairs: which columns hold the images and the captions, and what each row says."""

import ast
import json
import re
from contextlib import suppress
from dataclasses import replace
from pathlib import Path, PurePath
from typing import Any

import numpy as np
import pandas as pd

from ncl_bench.data.pairs.cells import identity
from ncl_bench.data.pairs.listing import PICTURE_ENDINGS
from ncl_bench.data.pairs.names import IN_ORDER, column, known_columns, no_words, plain
from ncl_bench.data.pairs.rows import URL, UserPairs, read_rows, split_column
from ncl_bench.errors import DataError, listed, named, shorten, shown

NO_CAPTION = {
    "are a word for a missing value, such as nan": r"(nan|none|null|#?n/?a|<na>|\\n|#name\?)",
    "look like settings of an image generator": r".*(negative prompt:|steps: \d+, sampler).*",
    "stand between marks, such as <start> and <end>": (
        r"(<\S{1,20}>|\[cls\]|startseq ).*(<\S{1,20}>|\[sep\]| endseq)"
    ),
    "are printed bytes, such as b'a dog'": r"b'.*'|b\".*\"",
    "are printed lists or dictionaries": r"[{\[]['\"].*[}\]]",
    "hold marks of HTML, such as &amp;": r".*(&(amp|quot|lt|gt|nbsp|#\d+);|<br ?/?>).*",
    "were decoded wrongly, such as Caf\u00c3\u00a9": r".*(\u00e3[\x80-\xbf]|\u00e2\u20ac).*",
    "name a file or an address": r"https?://\S+|\S+\.(jpe?g|png|webp|gif|bmp|tiff?)",
}
"""What captions may be that describe no picture, to the pattern of such a caption in small letters."""
_LIST = re.compile(r"\[\s*(['\"].*['\"]\s*)?\]|\(['\"].*['\"],?\)", re.DOTALL)
_WHOLE = re.compile(r"([0-9]+)\.0")


def read_pairs(
    source: "Path | str | pd.DataFrame | Any",
    image_column: str | None = None,
    caption_column: str | None = None,
    *,
    rows_in_order: bool = False,
) -> UserPairs:
    """Read pairs of any form; nothing is left out yet.

    Args:
        source: a file, a folder, a frame or a ``datasets.Dataset``.
        image_column: column of image paths (default: the first known name that is there).
        caption_column: column of captions (default: the first known name that is there).
        rows_in_order: files numbered by row belong to the rows in their order.
    """
    rows = read_rows(source)
    # the caption first: a table that is read without captions needs no such column
    caption, remarks = column(rows.name, rows.columns, "caption", caption_column)
    image, more = image_column_of(rows, image_column)
    return pairs_of(rows.remarked(*remarks, *more), image, caption, rows_in_order=rows_in_order)


def pairs_of(rows: UserPairs, image: str, caption: str = "", *, rows_in_order: bool = False) -> UserPairs:
    """Read the images of rows, and the captions of one column.

    Args:
        rows: the rows.
        image: column of image paths, URLs or pictures.
        caption: column of captions; empty to read images alone.
        rows_in_order: as for :func:`read_pairs`.
    """
    captions, remarks = list[str](), list[str]()
    if caption:
        rows = _one_caption_each(rows, caption)
        captions = [" ".join(text.split()) for text in text_cells(rows, caption)]
        filled = [text for text in captions if text]
        if filled and no_words(filled):
            raise DataError(
                f"{rows.name}: column {shown(caption)} holds numbers such as {filled[0]}, expected captions; choose "
                f"another with {named('caption_column')}"
            )
        small = [text.casefold() for text in captions]
        for told_of, pattern in NO_CAPTION.items():
            if n := sum(map(bool, map(re.compile(pattern).fullmatch, small))):
                remarks.append(f"{n:,} of {len(captions):,} captions {told_of}.")
    # pictures in the rows have no name; the row is one until their content is hashed
    names = [f"{row:09d}" for row in rows.row_of.tolist()]
    images = names if image in rows.pictures else text_cells(rows, image)
    filled = [name for name in images if name]
    by_row = bool(filled) and all(map(URL.fullmatch, filled))
    if by_row:  # the number of the row until another column names the files
        images = [name if url else "" for name, url in zip(names, images, strict=True)]
        remarks += [IN_ORDER.format("Pictures")] if rows_in_order else []
    elif filled and all(map(_WHOLE.fullmatch, filled)):
        # a program that read whole numbers beside a gap wrote them with a point
        images = [name.removesuffix(".0") for name in images]
    pairs = replace(
        rows.remarked(*remarks),
        images=images,
        captions=captions,
        image_column=image,
        caption_column=caption,
        by_row=by_row,
        rows_in_order=rows_in_order,
    )
    return _once(pairs) if caption and len(rows.files) > 1 else pairs


def _once(pairs: UserPairs) -> UserPairs:
    """Leave out pairs that a second file repeats: the same picture and caption in the same split."""
    split = split_column(pairs.frame)
    rows = pd.DataFrame({"name": pairs.images, "caption": pairs.captions, "part": pairs.part_of})
    rows["split"] = pairs.frame[split].tolist() if split else ""
    rows = rows[rows["caption"].duplicated(keep=False)]
    if pairs.image_column in pairs.pictures:
        pictures = pairs.frame[pairs.image_column].iloc[rows.index]
        rows = rows.assign(name=pd.Series([*map(identity, pictures)], rows.index, object))
    rows = rows[rows["name"].astype(bool)]
    first = rows.groupby(["name", "caption", "split"], sort=False, dropna=False)["part"].transform("first")
    again = rows[first != rows["part"]]
    if again.empty:
        return pairs
    left = dict.fromkeys(pairs.files[part] for part in again["part"])
    other = pairs.files[first[again.index[0]]]
    kept = pairs.taken(np.setdiff1d(np.arange(len(pairs.captions)), again.index))
    return kept.remarked(
        f"{len(again):,} rows of {listed(left, 3)} are left out: {other} holds the same picture and caption."
    )


def _one_caption_each(rows: UserPairs, caption: str) -> UserPairs:
    """Give each caption of a list a row; a table of text holds lists as JSON or as Python prints them."""
    cells = rows.frame[caption].tolist()
    texts = [cell.strip() for cell in cells if isinstance(cell, str) and cell.strip()]
    if texts and all(map(_LIST.fullmatch, texts)):
        cells = [
            _listed_texts(cell.strip(), rows.place(row)) if isinstance(cell, str) and cell.strip() else cell
            for row, cell in enumerate(cells)
        ]
        rows = replace(rows, frame=rows.frame.assign(**{caption: pd.Series(cells, rows.frame.index, object)}))
    several = any(isinstance(cell, list | tuple | np.ndarray) for cell in cells)
    return rows.exploded(caption) if several else rows


def _listed_texts(cell: str, where: str) -> list[str]:
    for read in (json.loads, ast.literal_eval):
        with suppress(ValueError, SyntaxError, RecursionError, MemoryError):
            value = read(cell)
            texts = isinstance(value, list | tuple) and all(isinstance(text, str) for text in value)
            # Python would join two texts without a comma between them, as NumPy prints an array
            if texts and (read is json.loads or repr(value) == cell):
                return [*value]
    raise DataError(
        f"{where} holds {shorten(cell)}, expected a list of captions in JSON; write a row for each caption"
    )


def image_column_of(rows: UserPairs, given: str | None) -> tuple[str, list[str]]:
    """The column of images, and a remark if several fit: pictures in the rows before paths, paths before URLs."""
    columns, pictures = rows.columns, rows.pictures
    paths, urls = known_columns(columns, "image"), known_columns(columns, "url")
    if given is not None:
        return column(rows.name, columns, "image", given)
    if pictures:
        # a picture that is there is better than a path that may lead nowhere
        usual = known_columns(pictures, "picture")
        alone = pictures if usual or not paths else []
        # image beside thumbnail or mask
        for fits in (alone, [each for each in usual if plain(each) == "image"], usual):
            if len(fits) == 1:
                return fits[0], []
        raise DataError(
            f"{rows.name} holds pictures in {listed(dict.fromkeys([*pictures, *paths]))}; choose one with "
            f"{named('image_column')}"
        )
    # a URL says where a picture came from; a path where it lies
    if urls and not paths:
        return urls[0], []
    # image beside file_name may hold numbers or URLs
    files = [name for name in paths if rows.frame[name].head(100).map(_is_file).all()]
    others = [name for name in paths if name not in files]
    if files and others[:1] == paths[:1]:
        return files[0], [f"The image column is {files[0]}, not {listed(others)}."]
    return column(rows.name, columns, "image", None)


def _is_file(cell: object) -> bool:
    return str(cell).lower().endswith(PICTURE_ENDINGS) and not URL.match(str(cell))


def text_cells(rows: UserPairs, column: str) -> list[str]:
    """Cells of a column as text; empty cells are empty texts, and a list of one is its text."""
    texts = []
    for row, value in enumerate(rows.frame[column].tolist()):
        several = isinstance(value, list | tuple | np.ndarray)
        if several and len(value) == 1:
            (value,) = value
        if isinstance(value, bytes):
            with suppress(UnicodeDecodeError):
                value = value.decode()
        if isinstance(value, bytes) or not (pd.api.types.is_scalar(value) or isinstance(value, PurePath)):
            fix = "give each a row, as frame.explode(COLUMN) of pandas does, or " if several else ""
            raise DataError(
                f"{rows.place(row)}: {column} holds a {type(value).__name__}, expected a text; {fix}choose another "
                "column"
            )
        if isinstance(value, float) and value.is_integer():
            value = int(value)  # a column of whole numbers with a gap is one of floats in pandas
        texts.append("" if pd.isna(value) else str(value).strip())
    return texts
