"""A user's table of images: CSV or TSV with a column ``image``, and perhaps one ``split``; and a draw of the splits."""

import csv
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

import numpy as np

from ncl_bench.data.spec import SPLITS
from ncl_bench.errors import DataError
from ncl_bench.files import readable

Splits = dict[str, list[str]]
"""Split to the names of its images, in order."""


@contextmanager
def open_table(path: Path) -> Iterator["csv.DictReader[str]"]:
    """The rows of a table, while its file is open.

    Args:
        path: a ``.tsv`` file with tabs, or one with commas, in UTF-8, with a heading.

    Raises:
        DataError: the file cannot be read; also where it shows in the block, row by row.
    """
    try:
        with readable(path, DataError, "a table").open(encoding="utf-8-sig", newline="") as stream:
            yield csv.DictReader(
                stream, delimiter="\t" if path.suffix.lower() == ".tsv" else ",", strict=True
            )
    except (OSError, UnicodeDecodeError, csv.Error) as error:
        raise DataError(f"{path} cannot be read ({error}); save it as CSV in UTF-8") from None


def note_split(split_of: dict[str, str], image: str, split: str, where: str) -> None:
    """Add what a row says of an image's split.

    Args:
        split_of: image to split, from the rows above.
        image: its name.
        split: what the column says; empty where the table has no such column.
        where: file and line, which open the error messages.

    Raises:
        DataError: a row above says another one.
    """
    if split_of.setdefault(image, split) != split:
        raise DataError(f"{where}: {image} is in {split} here and in {split_of[image]} above; choose one")


def noted_splits(split_of: Mapping[str, str]) -> Splits:
    """Split to images, in the order of the table."""
    return {split: [image for image, own in split_of.items() if own == split] for split in SPLITS}


def draw_splits(names: Sequence[str], dev: int | None, test: int | None, seed: int) -> Splits:
    """Draw dev and test; the rest is train. Each split keeps the order of the names.

    Args:
        names: of the images.
        dev: images to draw; a tenth of them, rounded down, where None.
        test: likewise.
        seed: of the draw.

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
