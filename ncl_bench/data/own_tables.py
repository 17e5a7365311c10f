"""Read a user's tables of images: their splits, captions and files, whatever the format of the file."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import numpy as np

from ncl_bench.data.languages import language_tag
from ncl_bench.data.pairs.columns import read_pairs
from ncl_bench.data.pairs.forms import FORMATS, IMAGE_COLUMNS
from ncl_bench.data.spec import SPLITS
from ncl_bench.errors import DataError, listed, shorten, shown
from ncl_bench.files import Rows, normalized, read_table

Splits = dict[str, list[str]]
"""Split to the names of its images, in order."""


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
        raise DataError(
            f"{where}: {shown(image)} is in {split} here and in {split_of[image]} above; choose one"
        )


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
        languages: BCP 47 tags of the captions' languages, the default first.
        captions: image id to its captions, each in every language; images in order of first appearance.
        splits: split to images, or None without a column ``split``.
        ignored: the other columns.
    """

    path: Path
    languages: tuple[str, ...]
    captions: Mapping[str, list[tuple[str, ...]]]
    splits: Splits | None
    ignored: tuple[str, ...] = ()


def read_images(path: Path) -> CaptionTable:
    """Read images and their splits, without a caption; see :func:`read_captions`.

    Raises:
        DataError: as there.
    """
    columns, rows = _open(path)
    return _gather(path, columns, rows, {})


def read_captions(path: Path, languages: Sequence[str] = ()) -> CaptionTable:
    """Read images, their captions in each language, and optionally their splits.

    A table has a column ``image`` of ids, columns of captions, and optionally ``split``. Columns of captions are those
    that were asked for. Otherwise it is ``caption``, in English, or those named by languages, such as ``en`` and
    ``zh``. Other columns are ignored.

    Args:
        path: a table (:func:`ncl_bench.files.read_table`), or a ``.json`` file in the form of Karpathy's splits.
        languages: ``LANGUAGE`` or ``LANGUAGE=COLUMN`` for each column of captions, the default first.

    Raises:
        DataError: the file cannot be read, no column has captions or it is unclear which, a cell is empty, or an image
            is in two splits.
    """
    columns, rows = _open(path)
    chosen = _asked(path, columns, languages) if languages else _named(path, columns)
    table = _gather(path, columns, rows, chosen)
    if not table.captions:
        raise DataError(f"{path} holds no captions; write one row per caption")
    return table


def _asked(path: Path, columns: Sequence[str], languages: Sequence[str]) -> dict[str, str]:
    """Language to the column that was asked for."""
    chosen: dict[str, str] = {}
    for each in languages:
        language, _, wanted = each.partition("=")
        tag = language_tag(language) or (language if re.fullmatch("[a-z]{2,3}", language) else None)
        if tag is None:
            raise DataError(
                f"--language is {shorten(each)}, expected a language code such as en or zh, or with its column: en=text"
            )
        names = [wanted] if wanted else [language, *(name for name in columns if language_tag(name) == tag)]
        names += ["caption"] if len(languages) == 1 and not wanted else []
        found = next((name for name in names if name in columns), None)
        if found is None or found in ("image", "split"):
            raise DataError(
                f"{path} has no column of captions for --language {shown(each)}, only {listed(columns)}; name the "
                f"column, as in --language {tag}=COLUMN"
            )
        if tag in chosen or found in chosen.values():
            raise DataError(f"--language {shown(each)} repeats a language or a column; give each one once")
        chosen[tag] = found
    return chosen


def _named(path: Path, columns: Sequence[str]) -> dict[str, str]:
    """Language to the column of captions, by the columns' names."""
    others = [name for name in columns if name not in ("image", "split")]
    chosen = {tag: name for name in others if (tag := language_tag(name))}
    spoken = [name for name in others if language_tag(name)]
    if "caption" in columns and not chosen:
        return {"en": "caption"}
    if "caption" in columns or len(chosen) < len(spoken):
        both = [name for name in others if name in spoken or name == "caption"]
        raise DataError(
            f"{path}: it is unclear which of the columns {listed(both)} hold captions, and in which languages; say it, "
            "as in --language en=caption"
        )
    if not chosen:
        raise DataError(
            f"{path} has the columns {listed(columns)}, expected image and one of captions per language, such as "
            f"image,en; {_HEADER}, or name the captions, as in --language en=COLUMN"
        )
    return chosen


_HEADER = "correct the names in its first line, or write a line of names above it if it is a row already"


def _open(path: Path) -> tuple[list[str], Rows]:
    """Columns and rows of any form; the names of the columns ``image``, ``split`` and ``caption`` in small letters."""
    ending = path.suffix.lower()
    if path.is_dir() or ending in (".parquet", ".jsonl", ".ndjson", ".token", ".tar") or _is_list(path):
        return _open_pairs(path)
    reader = FORMATS.get(ending, partial(read_table, error=DataError))
    columns, rows = reader(path)
    small = {name: name.lower() for name in columns if name.lower() in ("image", "split", "caption")}
    columns = [small.get(name, name) for name in columns]
    if "image" not in columns:
        if any(name.casefold() in IMAGE_COLUMNS for name in columns):
            return _open_pairs(path)
        raise DataError(f"{path} has the columns {listed(columns)}, expected image; {_HEADER}")
    return columns, ((where, {small.get(name, name): row[name] for name in row}) for where, row in rows)


def _is_list(path: Path) -> bool:
    """Whether a JSON file is a list of rows, by its first character."""
    if path.suffix.lower() != ".json" or not path.is_file():
        return False
    with path.open("rb") as stream:
        return stream.read(100).removeprefix(b"\xef\xbb\xbf").lstrip().startswith(b"[")


def _open_pairs(path: Path) -> tuple[list[str], Rows]:
    """Rows of a form whose columns have other names: its columns of images and captions get ours."""
    pairs = read_pairs(path)
    if pairs.by_row or pairs.image_column in pairs.form.pictures:
        held = "URLs of pictures" if pairs.by_row else "the pictures themselves"
        raise DataError(
            f"{path} holds {held} in the column {pairs.image_column}, expected the names of files; write the pictures "
            "into a folder, and a table of their names and captions"
        )
    caption = pairs.caption_column
    name_of = {pairs.image_column: "image", caption: caption if language_tag(caption) else "caption"}
    cells: dict[str, list[str]] = {"image": pairs.images, name_of[caption]: pairs.captions}
    for column in pairs.form.table.columns:
        name = column.lower() if column.lower() == "split" else column
        if column not in name_of and name not in cells:
            values = pairs.form.table[column].tolist()
            cells[name] = ["" if value is None or value != value else str(value) for value in values]
    rows = zip(*cells.values(), strict=True)
    return list(cells), (
        (f"{path} row {n}", dict(zip(cells, row, strict=True))) for n, row in enumerate(rows, 1)
    )


def _gather(path: Path, columns: Sequence[str], rows: Rows, chosen: Mapping[str, str]) -> CaptionTable:
    """Check every row and sort the captions by their image."""
    captions: dict[str, list[tuple[str, ...]]] = {}
    split_of: dict[str, str] = {}
    for where, row in rows:
        image, split = normalized(row["image"].strip()), row.get("split", "").strip()
        if not image:
            raise DataError(f"{where}: image is empty; every row names an image")
        if any(letter in image for letter in "\n\r\0"):
            raise DataError(f"{where}: the image {shorten(image)} has a line end in its name; rename it")
        texts = tuple(" ".join(row[column].split()) for column in chosen.values())
        if "" in texts:
            column = list(chosen.values())[texts.index("")]
            raise DataError(
                f"{where}: {column} is empty; every row is an image and its caption in every language"
            )
        if not all(text.isascii() or is_text(text) for text in (image, *texts)):
            raise DataError(f"{where} holds half a character, which UTF-8 cannot store; correct it")
        if "split" in columns and split not in SPLITS:
            raise DataError(
                f"{where}: split is {shorten(split)}, expected one of {', '.join(SPLITS)}; correct it"
            )
        note_split(split_of, image, split, where)
        captions.setdefault(image, []).append(texts)
    splits = {split: [image for image, own in split_of.items() if own == split] for split in SPLITS}
    ignored = tuple(name for name in columns if name not in ("image", "split", *chosen.values()))
    return CaptionTable(path, tuple(chosen), captions, splits if "split" in columns else None, ignored)


def is_text(text: str) -> bool:
    """Whether UTF-8 can store it: JSON escapes lone surrogates, and Python decodes bytes of file names to them."""
    return not any("\ud800" <= letter <= "\udfff" for letter in text)


def read_file_names(path: Path) -> dict[str, str]:
    """Read a table with the columns ``image_id`` and ``file``; return image id to file.

    Raises:
        DataError: the table cannot be read or lacks a column.
    """
    needed = ("image_id", "file")
    _, rows = read_table(path, DataError, needed, expected="a table with the columns image_id and file")
    return {normalized(row["image_id"]): row["file"] for _, row in rows}
