"""Read a user's tables, CSV or TSV in UTF-8 with a header: images, their splits, captions and files."""

import csv
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from ncl_bench.data.spec import SPLITS
from ncl_bench.errors import DataError
from ncl_bench.files import normalized, readable

Splits = dict[str, list[str]]
"""Split to the names of its images, in order."""


@contextmanager
def open_table(path: Path) -> Iterator["csv.DictReader[str]"]:
    """Open a table and yield its rows while the file is open.

    Args:
        path: a ``.tsv`` file with tabs, or one with commas, in UTF-8, with a header.

    Raises:
        DataError: the file cannot be read, also while rows are read.
    """
    try:
        with readable(path, DataError, "a table").open(encoding="utf-8-sig", newline="") as stream:
            yield csv.DictReader(
                stream, delimiter="\t" if path.suffix.lower() == ".tsv" else ",", strict=True
            )
    except (OSError, UnicodeDecodeError, csv.Error) as error:
        raise DataError(f"{path} cannot be read ({error}); save it as CSV in UTF-8") from None


def note_split(split_of: dict[str, str], image: str, split: str, where: str) -> None:
    """Record the split that a row gives for its image.

    Args:
        split_of: image to split, from the rows above; updated.
        image: name of the image.
        split: value of the column; empty without such a column.
        where: file and line, for errors.

    Raises:
        DataError: a row above gives another split.
    """
    if split_of.setdefault(image, split) != split:
        raise DataError(f"{where}: {image} is in {split} here and in {split_of[image]} above; choose one")


def noted_splits(split_of: Mapping[str, str]) -> Splits:
    """Split to images, in the order of the table."""
    return {split: [image for image, own in split_of.items() if own == split] for split in SPLITS}


def draw_splits(names: Sequence[str], dev: int | None, test: int | None, seed: int) -> Splits:
    """Draw dev and test; the rest is train. Each split keeps the order of the names.

    Args:
        names: names of the images.
        dev: number of dev images to draw; None draws a tenth, rounded down.
        test: number of test images to draw; None draws a tenth, rounded down.
        seed: seed of the draw.

    Raises:
        DataError: a split would be empty.
    """
    tenth = len(names) // 10
    sizes = {"dev": tenth if dev is None else dev, "test": tenth if test is None else test}
    sizes["train"] = len(names) - sum(sizes.values())
    for split, size in sizes.items():
        if size < 1:
            raise DataError(
                f"of {len(names)} images {size} would be {split}; choose other numbers with --dev and --test"
            )
    order = np.random.RandomState(seed).permutation(len(names))
    cuts = np.cumsum([sizes["test"], sizes["dev"]])
    rows = dict(zip(("test", "dev", "train"), np.split(order, cuts), strict=True))
    return {split: [names[row] for row in sorted(rows[split])] for split in SPLITS}


@dataclass(frozen=True)
class CaptionTable:
    """A table with one row per caption.

    Attributes:
        path: path of the file.
        languages: caption columns, in order.
        captions: image id to its captions, each in every language; images in order of first appearance.
        splits: split to images, or None without a column ``split``.
    """

    path: Path
    languages: tuple[str, ...]
    captions: Mapping[str, list[tuple[str, ...]]]
    splits: Splits | None


def read_captions(path: Path) -> CaptionTable:
    """Read a table with a column ``image`` of ids, one caption column per language, and optionally ``split``.

    Args:
        path: a ``.csv`` file, or ``.tsv`` with tabs, in UTF-8, with a header. Caption columns are named by language,
            such as ``en`` and ``zh``; a single one may be called ``caption`` and is English.

    Raises:
        DataError: the file cannot be read, a cell is empty, or an image is in two splits.
    """
    captions: dict[str, list[tuple[str, ...]]] = {}
    split_of: dict[str, str] = {}
    with open_table(path) as rows:
        columns = list(rows.fieldnames or ())
        languages = [column for column in columns if column not in ("image", "split")]
        if "image" not in columns or not languages:
            raise DataError(
                f"{path} has the columns {', '.join(columns) or 'none'}, expected image and one of captions per "
                "language, such as image,en; name them so in its first line"
            )
        for row in rows:
            where = f"{path} line {rows.line_num}"
            cells = {column: " ".join((row[column] or "").split()) for column in columns}
            cells["image"] = normalized((row["image"] or "").strip())
            empty = [column for column in columns if not cells[column]]
            if empty or None in row:
                fault = f"{empty[0]} is empty" if empty else "it has more cells than the first line"
                raise DataError(f"{where}: {fault}; every row is an image and its caption in every language")
            image, split = cells["image"], cells.get("split", "")
            if len(image.splitlines()) > 1:
                raise DataError(f"{where}: the image {image!r} has a line end in its name; rename it")
            if "split" in columns and split not in SPLITS:
                raise DataError(
                    f"{where}: split is {split!r}, expected one of {', '.join(SPLITS)}; correct it"
                )
            note_split(split_of, image, split, where)
            captions.setdefault(image, []).append(tuple(cells[language] for language in languages))
    if not captions:
        raise DataError(f"{path} holds no captions; write one row per caption")
    named = ("en",) if languages == ["caption"] else tuple(languages)
    return CaptionTable(path, named, captions, noted_splits(split_of) if "split" in columns else None)


def read_file_names(path: Path) -> dict[str, str]:
    """Read a table with the columns ``image_id`` and ``file``; return image id to file.

    Raises:
        DataError: the table cannot be read or lacks a column.
    """
    with open_table(path) as rows:
        if not {"image_id", "file"} <= set(rows.fieldnames or ()):
            raise DataError(f"{path} lacks a column image_id or file; name its columns so in the first line")
        return {normalized(row["image_id"]): row["file"] for row in rows}
