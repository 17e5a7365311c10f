"""Read a user's images with their splits and captions, whatever the form: what datasets and features are made of.

Nothing is left out: a row without an image or a caption is refused with its place.
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from ncl_bench.data.columns import Int64Array
from ncl_bench.data.languages import language_tag
from ncl_bench.data.pairs.columns import OwnPairs, columns_of, image_column_of, pairs_of, text_cells
from ncl_bench.data.pairs.form import CAPTION_COLUMNS, Form
from ncl_bench.data.pairs.forms import form_of
from ncl_bench.data.pairs.pictures import image_names, picture_files
from ncl_bench.data.scripts import LANGUAGE_OF, LATIN, script_of_most
from ncl_bench.data.spec import SPLITS
from ncl_bench.errors import DataError, listed, shorten, shown
from ncl_bench.foreign import normalized
from ncl_bench.progress import Progress, silent

SEEN = 1_000
"""Captions, the first ones, whose script is looked at."""
Splits = dict[str, list[str]]
"""Split to the names of its images, in order."""


@dataclass(frozen=True)
class OwnSource:
    """Where a user's images and captions are, as commands and calls get it.

    Attributes:
        pairs: a file, a folder, a ``pandas.DataFrame`` or a ``datasets.Dataset``, in a form of
            :mod:`ncl_bench.data.pairs.forms`.
        images: folder of the pictures (default: the folder of the table).
        image_column: column of image paths or pictures (default: found by its name).
        caption_column: column of captions (default: found by its name).
        split_column: column of splits (default: ``split``, if there is one).
        rows: int64, the pairs to read, ascending (default: all).
    """

    pairs: Any
    images: Path | None = None
    image_column: str | None = None
    caption_column: str | None = None
    split_column: str | None = None
    rows: Int64Array | None = None

    @property
    def name(self) -> str:
        """What messages call it."""
        return str(self.pairs) if isinstance(self.pairs, str | Path) else f"the {type(self.pairs).__name__}"


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


@dataclass(frozen=True)
class PictureOptions:
    """How the pictures of a new dataset are encoded.

    Attributes:
        encoder: name of the encoder (default: efficientnet-lite0).
        dev, test: images to draw if the table has no splits (default: a tenth each).
        seed: seed of that draw.
        skip_damaged: leave out images that cannot be read, instead of refusing them.
        device: ``auto``, ``cpu`` or ``cuda``.
        known: folders of features that may hold some of the pictures already.
    """

    encoder: str | None = None
    dev: int | None = None
    test: int | None = None
    seed: int = 0
    skip_damaged: bool = False
    device: str = "auto"
    known: Sequence[Path] = ()


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
    # RandomState keeps its draws over NumPy's versions, so a seed names the same splits for ever
    order = np.random.RandomState(seed).permutation(len(names))
    # test first: another size of dev leaves it as it is
    cuts = np.cumsum([sizes["test"], sizes["dev"]])
    rows = dict(zip(("test", "dev", "train"), np.split(order, cuts), strict=True))
    # in the order of the table, which people recognise
    return {split: [names[row] for row in sorted(rows[split])] for split in SPLITS}


def read_images(
    source: OwnSource | Path, *, work: Path | None = None, progress: Progress = silent
) -> CaptionTable:
    """Read images and their splits, without a caption; see :func:`read_captions`.

    Raises:
        DataError: as there.
    """
    source = source if isinstance(source, OwnSource) else OwnSource(source)
    form = form_of(source.pairs)
    return _gather(source, pairs_of(form, source.image_column), {}, work, progress)


def read_captions(
    source: OwnSource | Path,
    languages: Sequence[str] = (),
    *,
    work: Path | None = None,
    progress: Progress = silent,
) -> CaptionTable:
    """Read images, their captions in each language, and optionally their splits.

    Columns of captions are those that were asked for. Otherwise they are those named by languages, such as ``en`` and
    ``zh``, or one that is called ``caption``, ``text`` or alike, in English. Other columns are ignored. An image is
    named by its path; where rows hold the pictures themselves, by a hash of its picture.

    Args:
        source: the images and captions, or their file or folder.
        languages: ``LANGUAGE`` or ``LANGUAGE=COLUMN`` for each column of captions, the default first.
        work: folder for pictures that the rows hold; with it, the file of every image is looked for.
        progress: shows the number of pictures read.

    Raises:
        DataError: the source cannot be read, no column has captions or it is unclear which, a cell is empty, or an
            image is in two splits.
    """
    source = source if isinstance(source, OwnSource) else OwnSource(source)
    form = form_of(source.pairs)
    chosen = _caption_columns(source, form, languages)
    pairs = pairs_of(form, source.image_column, next(iter(chosen.values())))
    # a Chinese column named `caption` would be split at blanks as English
    _refuse_other_script(source, pairs, languages)
    table = _gather(source, pairs, chosen, work, progress)
    if not table.captions:
        raise DataError(f"{source.name} holds no captions; write one row per caption")
    return table


def _caption_columns(source: OwnSource, form: Form, languages: Sequence[str]) -> dict[str, str]:
    """Language to its column of captions."""
    columns, given = columns_of(form), source.caption_column
    if given is not None:
        if given not in columns:
            raise DataError(
                f"{source.name} has no column {shown(given)}, only {listed(columns)}; correct --caption-column"
            )
        if len(languages) > 1 or any("=" in each for each in languages):
            raise DataError("--language names the columns of captions already; leave --caption-column out")
        languages = [f"{each}={given}" for each in languages]
        if not languages and (tag := language_tag(given)):
            return {tag: given}
    if languages:
        return _asked(source, form, columns, languages)
    return {"en": given} if given is not None else _named(source, form, columns)


def _refuse_other_script(source: OwnSource, pairs: OwnPairs, languages: Sequence[str]) -> None:
    """Refuse captions that are taken for English because nothing names their language, and are written otherwise."""
    column = pairs.caption_column
    script = script_of_most(pairs.captions[:SEEN])
    if not languages and language_tag(column) is None and script not in (None, LATIN):
        raise DataError(
            f"{source.name}: the captions in the column {column} are in {script}, and nothing names their language; "
            f"name it, as in --language {LANGUAGE_OF.get(str(script), 'LANGUAGE')}={column}"
        )


def _asked(source: OwnSource, form: Form, columns: Sequence[str], languages: Sequence[str]) -> dict[str, str]:
    """Language to the column that was asked for."""
    chosen: dict[str, str] = {}
    no_captions = {*form.pictures, image_column_of(form, source.image_column), _split_column(source, form)}
    for each in languages:
        language, _, wanted = each.partition("=")
        tag = language_tag(language) or (language if re.fullmatch("[a-z]{2,3}", language) else None)
        if tag is None:
            raise DataError(
                f"--language is {shorten(each)}, expected a language code such as en or zh, or with its column: en=text"
            )
        # a column may be named by the code, or by a word for the language, such as English
        names = [wanted] if wanted else [language, *(name for name in columns if language_tag(name) == tag)]
        # a column `caption` can only be in the one language that was asked for
        if len(languages) == 1 and not wanted:
            names += [name for name in columns if name.casefold() == "caption"]
        found = next((name for name in names if name in columns), None)
        if found is None or found in no_captions:
            raise DataError(
                f"{source.name} has no column of captions for --language={shown(each)}, only {listed(columns)}; name "
                f"the column, as in --language {tag}=COLUMN"
            )
        if tag in chosen or found in chosen.values():
            raise DataError(f"--language={shown(each)} repeats a language or a column; give each one once")
        chosen[tag] = found
    return chosen


def _named(source: OwnSource, form: Form, columns: Sequence[str]) -> dict[str, str]:
    """Language to the column of captions, by the columns' names."""
    image = image_column_of(form, source.image_column)
    others = [
        name
        for name in columns
        if name not in (image, _split_column(source, form)) and name not in form.pictures
    ]
    spoken = [name for name in others if language_tag(name)]
    chosen = {str(language_tag(name)): name for name in spoken}
    plain = [name for known in CAPTION_COLUMNS for name in others if name.casefold() == known]
    captions = [name for name in plain if name.casefold() == "caption"]
    if len(captions) > 1 and not chosen:
        raise DataError(f"{source.name} has the columns {listed(captions)}; choose one with --caption-column")
    if plain and not chosen:
        return {"en": plain[0]}
    # a column `caption` beside those of languages, or two of one language
    if captions or len(chosen) < len(spoken):
        both = [name for name in others if name in spoken or name in captions]
        raise DataError(
            f"{source.name}: it is unclear which of the columns {listed(both)} hold captions, and in which languages; "
            "say it, as in --language en=caption"
        )
    if not chosen:
        raise DataError(
            f"{source.name} has the columns {listed(columns)}, expected {image} and one of captions per language, such "
            f"as {image},en; correct the names in its first line, write a line of names above it if it is a row "
            "already, or name the captions with --caption-column"
        )
    return chosen


def _split_column(source: OwnSource, form: Form) -> str | None:
    """The column of splits, if there is one."""
    columns = list(map(str, form.table.columns))
    if source.split_column is None:
        return next((name for name in columns if name.casefold() == "split"), None)
    if source.split_column not in columns:
        raise DataError(
            f"{source.name} has no column {shown(source.split_column)}, only {listed(columns)}; correct --split-column"
        )
    return source.split_column


def _gather(
    source: OwnSource, pairs: OwnPairs, chosen: Mapping[str, str], work: Path | None, progress: Progress
) -> CaptionTable:
    """Check every row and sort the captions by their image."""
    remarks = list(pairs.remarks)
    files: dict[str, Path] = {}
    if work is None:
        names = image_names(pairs, source.images)
    else:
        names, files, found = picture_files(pairs, source.images, work, progress)
        remarks += found
    form, split_column = pairs.form, _split_column(source, pairs.form)
    texts = (
        [pairs.captions, *([*text_cells(form, name)] for name in [*chosen.values()][1:])] if chosen else []
    )
    splits = text_cells(form, split_column) if split_column else [""] * len(names)
    captions: dict[str, list[tuple[str, ...]]] = {}
    split_of: dict[str, str] = {}
    for row in range(len(names)) if source.rows is None else source.rows.tolist():
        image, split, where = normalized(names[row].strip()), splits[row], form.place(row)
        if not image:
            held = "holds no picture" if pairs.image_column in form.pictures else "is empty"
            raise DataError(f"{where}: {pairs.image_column} {held}; every row needs an image")
        if any(letter in image for letter in "\n\r\0"):
            raise DataError(f"{where}: the image {shorten(image)} has a line end in its name; rename it")
        # line ends within a cell become blanks: prepared captions are one line each
        own = tuple(" ".join(cells[row].split()) for cells in texts)
        if "" in own:
            column = [*chosen.values()][own.index("")]
            raise DataError(
                f"{where}: {column} is empty; every row is an image and its caption in every language"
            )
        # isascii is fast and true of most captions
        if not all(text.isascii() or is_text(text) for text in (image, *own)):
            raise DataError(f"{where} holds half a character, which UTF-8 cannot store; correct it")
        if split_column and split not in SPLITS:
            raise DataError(
                f"{where}: {split_column} is {shorten(split)}, expected one of {', '.join(SPLITS)}; correct it"
            )
        note_split(split_of, image, split, where)
        captions.setdefault(image, []).append(own)
    by_split = {split: [image for image, own in split_of.items() if own == split] for split in SPLITS}
    used = (pairs.image_column, split_column, *chosen.values())
    return CaptionTable(
        source.name,
        tuple(chosen),
        captions,
        by_split if split_column else None,
        tuple(name for name in columns_of(form) if name not in used),
        {image: file for name, file in files.items() if (image := normalized(name.strip())) in captions},
        tuple(remarks),
    )


def is_text(text: str) -> bool:
    """Whether UTF-8 can store it: JSON escapes lone surrogates, and Python decodes bytes of file names to them."""
    return not any("\ud800" <= letter <= "\udfff" for letter in text)
