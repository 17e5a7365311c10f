"""Rows of a user's images and captions as they came: what every form is read as."""

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from ncl_bench.data.columns import Int64Array
from ncl_bench.files import atomic_path

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
TABLE_ENDINGS = (".csv", ".tsv", ".txt", ".jsonl", ".ndjson", ".json", ".parquet", ".token")
EXPECTED = "a table of images and captions (.csv, .tsv, .txt, .jsonl, .json or .parquet)"
URL = re.compile(r"https?://\S+")
NUMBER = re.compile(r"[0-9]{1,19}")
LARGEST_TEXT = 10_000_000
"""Largest text of one caption or of the facts of one picture, in bytes."""
PICTURE_ENDINGS = (".jpg", ".jpeg", ".png", ".webp", ".bmp", ".gif", ".tif", ".tiff")
PicturesOfRows = Callable[[], Iterator[bytes | Path | None]]


@dataclass(frozen=True)
class Form:
    """Rows as somebody wrote them, and how to write some of them again.

    Attributes:
        name: of the file or folder, for messages.
        table: the rows, in order, with all columns but pictures.
        write: what :meth:`save` calls; all of its arguments are given.
        folder: that image paths start from if no other is given.
        pictures: column of pictures in the rows to a function that iterates over them, as bytes or files.
        places: where each row stands, such as ``captions.csv line 7`` (default: its number).
    """

    name: str
    table: pd.DataFrame
    write: Callable[[Path, Int64Array, str, Mapping[int, str]], Path]
    folder: Path | None = None
    pictures: Mapping[str, PicturesOfRows] = field(default_factory=dict)
    places: Sequence[str] = ()

    def save(
        self, target: Path, chosen: Int64Array, column: str = "", captions: Mapping[int, str] | None = None
    ) -> Path:
        """Write rows as they came, some with another caption.

        Args:
            target: path without an ending.
            chosen: int64 ``(n,)``, rows in ascending order.
            column: of the captions.
            captions: row to its new caption.

        Returns:
            The path with its ending.
        """
        return self.write(target, chosen, column, captions or {})

    def place(self, row: int) -> str:
        """Where a row stands, for messages."""
        return self.places[row] if self.places else f"{self.name} row {row + 1}"


def is_table(path: Path) -> bool:
    """Whether a file's name is one of a form."""
    name = path.name.lower().removesuffix(".gz")
    return name.endswith((*TABLE_ENDINGS, ".tar", ".tgz"))


def with_captions(
    table: pd.DataFrame, chosen: Int64Array, column: str, captions: Mapping[int, str]
) -> pd.DataFrame:
    """Chosen rows of a table, with the captions that :meth:`Form.save` is given."""
    kept = table.iloc[chosen]
    if not captions:
        return kept
    cells = [captions.get(row, cell) for row, cell in zip(chosen.tolist(), kept[column], strict=True)]
    return kept.assign(**{column: cells})


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
    # filled in place: NumPy would make one array of lists of one length
    flat = np.empty(len(row_of), object)
    flat[:] = [text for each in cells for text in each]
    table = form.table.iloc[row_of].reset_index(drop=True).assign(**{column: flat})

    def of_rows(name: str) -> Iterator[bytes | Path | None]:
        for own, picture in zip(cells, form.pictures[name](), strict=True):
            # every caption of a list has the picture of its row
            yield from [picture] * len(own)

    def write(target: Path, chosen: Int64Array, column: str, captions: Mapping[int, str]) -> Path:
        suffix = ".parquet" if pictures else ".jsonl"
        target = target.with_name(f"{target.name}{suffix}")
        kept = with_captions(table, chosen, column, captions)
        with atomic_path(target) as temporary:
            if pictures:
                _with_pictures(kept, pictures, chosen).to_parquet(temporary, index=False)
            else:
                kept.to_json(temporary, orient="records", lines=True, force_ascii=False)
        return target

    pictures = {name: partial(of_rows, name) for name in form.pictures}
    places = [form.place(row) for row in row_of.tolist()]
    return Form(form.name, table, write, form.folder, pictures, places), row_of


def _with_pictures(
    kept: pd.DataFrame, pictures: Mapping[str, PicturesOfRows], chosen: Int64Array
) -> pd.DataFrame:
    """Chosen rows with their pictures, as ``datasets`` stores them."""
    wanted = set(chosen.tolist())
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
