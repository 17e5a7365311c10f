"""Read a user's images with their splits and captions, whatever the form: what datasets and features are made of.

Nothing is left out: a row without an image or a caption is refused with its place.
"""

import re
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from ncl_bench.data.languages import language_tag
from ncl_bench.data.pairs.columns import image_column_of, pairs_of, text_cells
from ncl_bench.data.pairs.names import SPLIT_OF, column, known_columns, plain, settled, split_of
from ncl_bench.data.pairs.pictures import locate
from ncl_bench.data.pairs.rows import UserPairs, read_rows, with_splits_of_folders
from ncl_bench.data.pairs.rows import split_column as stated_in
from ncl_bench.data.pictures import picture_path
from ncl_bench.data.scripts import LANGUAGE_OF, LATIN, script_of_most
from ncl_bench.data.spec import SPLITS
from ncl_bench.errors import DataError, listed, named, shorten, shown
from ncl_bench.foreign import told_apart
from ncl_bench.npy import Int64Array
from ncl_bench.progress import Progress, silent

SEEN = 1_000
"""Captions, the first ones, whose script is looked at."""
Splits = dict[str, list[str]]
"""Split to the names of its images, in order."""


@dataclass(frozen=True)
class CaptionTable:
    """A user's images, with their captions.

    Attributes:
        name: of the file or folder, for messages.
        languages: BCP 47 tags of the captions' languages, the default first; none if only images were read.
        captions: image id to its captions, each in every language; images in order of first appearance.
        splits: split to images, or None without a column of splits.
        ignored: the other columns.
        files: image id to its file; empty if no file was looked for.
        remarks: what was chosen, in sentences.
    """

    name: str
    languages: tuple[str, ...]
    captions: Mapping[str, list[tuple[str, ...]]]
    splits: Splits | None
    ignored: tuple[str, ...] = ()
    files: Mapping[str, Path] = field(default_factory=dict)
    remarks: tuple[str, ...] = ()


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


def draw_splits(
    names: Sequence[str],
    dev: int | None,
    test: int | None,
    seed: int,
    drawn: Collection[str] = ("dev", "test"),
) -> Splits:
    """Draw dev and test; the rest is train. Each split keeps the order of the names.

    Args:
        names: names of the images.
        dev: number of dev images to draw; None draws a tenth, rounded down.
        test: number of test images to draw; None draws a tenth, rounded down.
        seed: seed of the draw.
        drawn: the splits to draw; the other one stays empty.

    Raises:
        DataError: a split would be empty.
    """
    # test first: another size of dev leaves it as it is
    given = {split: size for split, size in (("test", test), ("dev", dev)) if split in drawn}
    sizes = {split: len(names) // 10 if size is None else size for split, size in given.items()}
    sizes["train"] = len(names) - sum(sizes.values())
    for split in SPLITS:
        if sizes.get(split, 1) < 1:
            raise DataError(
                f"of {len(names)} images {max(sizes[split], 0)} would be {split}; choose other numbers with "
                f"{named('dev')} and {named('test')}"
            )
    # RandomState keeps its draws over NumPy's versions, so a seed names the same splits for ever
    order = np.random.RandomState(seed).permutation(len(names))
    cuts = np.cumsum([*sizes.values()])[:-1]
    # in the order of the table, which people recognise
    rows = dict(zip(sizes, map(np.sort, np.split(order, cuts)), strict=True))
    return {split: [names[row] for row in rows.get(split, ())] for split in SPLITS}


def complete_splits(
    names: Sequence[str], stated: Splits | None, dev: int | None, test: int | None, seed: int
) -> Splits:
    """The splits that a source states; dev or test that it does not state are drawn from train.

    Args:
        names: names of the images that can be used.
        stated: split to its images; None draws all splits.
        dev, test, seed: as for :func:`draw_splits`.

    Raises:
        DataError: a split is empty, or a number is given for a split that is stated.
    """
    stated = stated or {"train": [*names], "dev": [], "test": []}
    for split, size in (("dev", dev), ("test", test)):
        if size is not None and stated.get(split):
            raise DataError(f"{named(split, size)} has no effect, as the splits are given; leave it out")
    usable = set(names)
    splits = {split: [name for name in own if name in usable] for split, own in stated.items()}
    lacking = [split for split in splits if not splits[split]]
    if "train" in lacking or any(stated[split] for split in lacking):
        raise DataError(f"no image is in {' and '.join(lacking)}; every split needs one")
    if lacking:  # an official test image never becomes one of dev
        drawn = draw_splits(splits["train"], dev, test, seed, lacking)
        splits |= {split: drawn[split] for split in ("train", *lacking)}
    return splits


def read_images(source: Any, **given: Any) -> CaptionTable:
    """Read images and their splits, without a caption; arguments as for :func:`read_captions`."""
    return read_captions(source, None, **given)


def read_captions(
    source: Any,
    languages: Sequence[str] | None = (),
    *,
    images: Path | None = None,
    image_column: str | None = None,
    caption_column: str | None = None,
    split_column: str | None = None,
    rows_in_order: bool = False,
    drawn: bool = False,
    chosen_rows: Callable[[UserPairs], Int64Array] | None = None,
    work: Path | None = None,
    progress: Progress = silent,
) -> CaptionTable:
    """Read images, their captions in each language, and optionally their splits.

    Columns of captions are those that were asked for. Otherwise they are those named by languages, such as ``en`` and
    ``zh``, or one that is called ``caption``, ``text`` or alike, in English. Other columns are ignored. An image is
    named by its path; where rows hold the pictures themselves, by a hash of its picture.

    Args:
        source: a file, a folder, a ``pandas.DataFrame`` or a ``datasets.Dataset`` of images and captions.
        languages: ``LANGUAGE`` or ``LANGUAGE=COLUMN`` for each column of captions, the default first; None reads no
            caption.
        images: folder of the pictures (default: the folder of the table).
        image_column: column of image paths or pictures (default: found by its name).
        caption_column: column of captions (default: found by its name).
        split_column: column of splits (default: ``split``, if there is one).
        rows_in_order: files numbered by row belong to the rows in their order.
        drawn: splits are drawn where no column and no name of a file states them, whatever folders pictures lie in.
        chosen_rows: gives the pairs to read, int64, ascending (default: all).
        work: folder for pictures that the rows hold; with it, the file of every image is looked for.
        progress: shows the number of pictures read.

    Raises:
        DataError: the source cannot be read, no column has captions or it is unclear which, a cell is empty, or an
            image is in two splits.
    """
    rows = read_rows(source)
    columns = rows.columns
    if split_column is not None:
        column(rows.name, columns, "split", split_column)
    split_column = split_column or stated_in(rows.frame)
    image, remarks = image_column_of(rows, image_column)
    chosen: dict[str, str] = {}
    if languages is not None:
        others = [each for each in columns if each not in {*rows.pictures, image, split_column}]
        chosen = _caption_columns(rows.name, others, caption_column, languages)
    # without captions and splits, the order of rows decides nothing
    rows_in_order = rows_in_order or not (chosen or split_column)
    pairs = pairs_of(
        rows.remarked(*remarks), image, next(iter(chosen.values()), ""), rows_in_order=rows_in_order
    )
    if chosen and not languages:
        # a Chinese column named `caption` would be split at blanks as English
        _refuse_other_script(pairs)
    taken = range(len(pairs.images)) if chosen_rows is None else chosen_rows(pairs).tolist()
    name = str(source) if isinstance(source, str | Path) else rows.name
    names, files, told = locate(pairs, images, work, progress)
    for each in filter(None, names if work and image not in rows.pictures else ()):
        if each not in files:  # reported when it is read; refused if it leads out of the folder
            files[each] = picture_path(images or pairs.folder or Path(), each, pairs.name)
    if not (drawn or split_column or image in rows.pictures):
        pairs = with_splits_of_folders(pairs, names)
        split_column = stated_in(pairs.frame)
    # two names of one file are one image, and two files of names that look alike are two
    first: dict[object, str] = {}
    first_of = {each: first.setdefault(files.get(each, each), each) for each in names}
    id_of = told_apart(first.values())
    ids = [id_of[first_of[each]] for each in names]
    captions, splits = _by_image(pairs, ids, [*chosen.values()], split_column, taken)
    used = (image, split_column, *chosen.values())
    return CaptionTable(
        name,
        tuple(chosen),
        captions,
        splits,
        tuple(name for name in pairs.columns if name not in used),
        {image: files[each] for each, image in id_of.items() if image in captions and each in files},
        (*pairs.remarks, *told),
    )


def _caption_columns(
    name: str, others: Sequence[str], given: str | None, languages: Sequence[str]
) -> dict[str, str]:
    """Language to its column of captions, of ``others``: those asked for, or those that names say."""
    if given is not None:
        column(name, others, "caption", given)
        if len(languages) > 1 or any("=" in each for each in languages):
            raise DataError(
                f"{named('languages')} names the columns of captions already; leave {named('caption_column')} out"
            )
        return dict.fromkeys(_tags(languages) or [language_tag(given) or "en"], given)
    spoken = {each: str(tag) for each in others if (tag := language_tag(each))}
    chosen: dict[str, str] = {}
    for asked, tag in zip(languages, _tags(languages), strict=True):
        language, _, wanted = asked.partition("=")
        # a column may be named by the code, or by a word for the language, such as English; a column `caption` can only
        # be in the one language that was asked for
        names = [language, *(each for each in others if spoken.get(each) == tag)]
        names += known_columns(others, "caption")[:1] if len(languages) == 1 else []
        matching = next((each for each in ([wanted] if wanted else names) if each in others), None)
        if matching is None or tag in chosen or matching in chosen.values():
            raise DataError(
                f"{name} has no column of captions of its own for {named('languages', asked)}, only {listed(others)}; "
                f"name the column, as in {named('languages', f'{tag}=COLUMN')}"
            )
        chosen[tag] = matching
    if chosen or not spoken:
        return chosen or {"en": column(name, others, "caption", None)[0]}
    # a column `caption` beside those of languages, or two of one language
    captions = [each for each in others if plain(each) == "caption"]
    if captions or len({*spoken.values()}) < len(spoken):
        raise DataError(
            f"{name}: it is unclear which of the columns {listed([*captions, *spoken])} hold captions, and in which "
            f"languages; say it, as in {named('languages', 'en=caption')}"
        )
    return {tag: each for each, tag in spoken.items()}


def _tags(languages: Sequence[str]) -> list[str]:
    tags = []
    for each in languages:
        language = each.partition("=")[0]
        tag = language_tag(language) or (language if re.fullmatch("[a-z]{2,3}", language) else None)
        if tag is None:
            raise DataError(
                f"{named('languages', each)} is no language code such as en or zh, alone or with its column: en=text"
            )
        tags.append(tag)
    return tags


def _refuse_other_script(pairs: UserPairs) -> None:
    """Refuse captions that are taken for English because nothing names their language, and are written otherwise."""
    column = pairs.caption_column
    script = script_of_most(pairs.captions[:SEEN])
    if language_tag(column) is None and script not in (None, LATIN):
        raise DataError(
            f"{pairs.name}: the captions in the column {column} are in {script}, and nothing names their "
            f"language; name it, as in {named('languages', LANGUAGE_OF.get(str(script), 'LANGUAGE') + '=' + column)}"
        )


def _by_image(
    pairs: UserPairs,
    ids: Sequence[str],
    columns: Sequence[str],
    split_column: str | None,
    taken: Iterable[int],
) -> tuple[dict[str, list[tuple[str, ...]]], Splits | None]:
    """Check every row and sort the captions, one in each of the columns, by the id of their image."""
    texts = [pairs.captions, *(text_cells(pairs, name) for name in columns[1:])] if columns else []
    splits = text_cells(pairs, split_column) if split_column else []
    stated = {cell: split_of(cell) for cell in {*splits}}
    settled_as = settled(stated.values())
    captions: dict[str, list[tuple[str, ...]]] = {}
    split_for: dict[str, str] = {}
    for row in taken:
        image, where = ids[row], pairs.place(row)
        # line ends within a cell become blanks: prepared captions are one line each
        own = tuple(" ".join(cells[row].split()) for cells in texts)
        if not image or "" in own:
            empty = pairs.image_column if not image else columns[own.index("")]
            held = "holds no picture" if empty in pairs.pictures else "is empty"
            raise DataError(
                f"{where}: {empty} {held}; every row needs an image, and its caption in every language"
            )
        if "\n" in image:  # prepared ids are lines: the number of ids would be refused, far from this row
            raise DataError(f"{where}: a line end in an image's name, which cannot be stored; correct it")
        split = settled_as[stated[splits[row]]] if split_column else ""
        if split is None:
            raise DataError(
                f"{where}: {split_column} is {shorten(splits[row])}, expected one of {', '.join(SPLIT_OF)}; correct it"
            )
        note_split(split_for, image, split, where)
        captions.setdefault(image, []).append(own)
    by_split = {split: [image for image, own in split_for.items() if own == split] for split in SPLITS}
    return captions, by_split if split_column else None


def is_text(text: str) -> bool:
    """Whether UTF-8 can store it: JSON escapes lone surrogates, and Python decodes bytes of file names to them."""
    return text.encode(errors="ignore").decode() == text
