"""What names say: which column plays which role, and which split a column, a file or a folder belongs to."""

import re
from collections.abc import Iterable, Sequence
from pathlib import PurePath
from typing import Any

from ncl_bench.data.languages import language_tag
from ncl_bench.errors import DataError, listed, named, shown

ROLES = {
    "image": (
        "image",
        "file_name",
        "path",
        "filename",
        "image_path",
        "filepath",
        "image_name",
        "img",
        "file",
        *("image_file", "image_filename", "image_file_name", "file_path", "img_path", "file_names"),
    ),
    "caption": (
        *("caption", "text", "title", "alt", "sentence", "comment", "description"),
        *("captions", "texts", "sentences", "caption_text"),
    ),
    "split": ("split", "subset", "partition", "data_split", "set", "fold", "phase"),
    "url": ("url", "image_url", "link"),
    "picture": ("image", "img", "picture", "photo", "jpg", "png", "webp"),
}
"""Role to the names of columns that play it, in the order in which they are taken."""
SPLIT_NAMES = {
    "train": ("train", "training", "restval", "trainval"),
    "dev": ("dev", "val", "valid", "validation", "development"),
    "test": ("test", "testing"),
    "eval": ("eval", "evaluation", "holdout", "heldout"),
}
"""Split to what people call it, in any case; what ``eval`` is, :func:`settled` says."""
SPLIT_OF = {name: split for split, names in SPLIT_NAMES.items() for name in names}
IN_ORDER = "{} belong to the rows by their order alone, as rows_in_order says."
"""What output, card and page say where order is taken for identity, of pictures or features."""
TOGETHER = "The rows of {} are read together; if these are configurations, give the folder of one."
ON_CARD = (IN_ORDER[2:], TOGETHER[-24:])
"""Ends of the remarks that the card repeats."""
_SPLIT = re.compile(rf"(?<![a-z])({'|'.join(SPLIT_OF)})(?:set)?(?![a-z])")


def split_of(path: str | PurePath) -> str | None:
    """The split that the last part of a path states which states one, such as ``data/val2014/0.tar``; None without one.

    A part that names two splits states none.
    """
    for part in reversed(PurePath(path).parts):
        words = re.sub("(?<=[a-z])(?=[A-Z])", " ", part).casefold()  # trainImages
        splits = {SPLIT_OF[name] for name in _SPLIT.findall(words)}
        if len(splits) == 1:
            return splits.pop()
    return None


def settled(stated: Iterable[str | None]) -> dict[str | None, str | None]:
    """Each split that names state to the one that it is: ``eval`` is test, as in ``datasets``, or dev beside a test."""
    splits = set(stated)
    lacking = next((split for split in ("test", "dev") if split not in splits), None)
    return {split: lacking if split == "eval" else split for split in splits}


def known_columns(columns: Sequence[str], role: str) -> list[str]:
    """The columns that may play a role, by their names."""
    return [name for known in ROLES[role] for name in columns if plain(name) == known]


def split_columns(columns: Sequence[str]) -> list[str]:
    """The columns that may state splits: a word of their names is known, as in ``dataset_split``."""
    return [
        name
        for known in ROLES["split"]
        for name in columns
        if known in (plain(name), *plain(name).split("_"))
    ]


def numbered_captions(columns: Sequence[str]) -> list[str]:
    """Columns such as ``caption_0`` to ``caption_4``, where none is called a caption without a number."""
    of: dict[str, list[str]] = {}
    for name in columns:
        of.setdefault(re.sub(r"_?\d+$", "", plain(name)), []).append(name)
    groups = [of[known] for known in ROLES["caption"] if known in of]
    return (
        groups[0]
        if len(groups) == 1 and not known_columns(groups[0], "caption") and len(groups[0]) > 1
        else []
    )


def no_words(cells: Iterable[Any]) -> bool:
    """Whether the texts of a column are numbers, or it has none."""
    texts = [cell for cell in cells if isinstance(cell, str) and cell.strip()]
    return all(re.fullmatch(r"[\d\s.,]+", text) for text in texts)


def plain(name: str) -> str:
    """The name of a column in small letters, with ``_`` for a blank: ``Image Path`` is ``image_path``."""
    return name.strip().casefold().replace(" ", "_")


def column(name: str, columns: Sequence[str], role: str, given: str | None) -> tuple[str, list[str]]:
    """The column that plays a role, and a remark if several fit.

    Args:
        name: of the rows, for messages.
        columns: their columns.
        role: ``image`` or ``caption``; ``split`` if a column was asked for.
        given: column that was asked for.
    """
    option = named(f"{role}_column")
    if given is not None:
        if given not in columns:
            raise DataError(
                f"{name} has no column {shown(given)}, only {listed(columns, 30)}; correct {option}"
            )
        return given, []
    known = known_columns(columns, role)
    # caption beside Caption: nothing says which is meant
    if len(known) > 1 and plain(known[0]) == plain(known[1]):
        raise DataError(f"{name} has the columns {listed(known[:2])}; choose one with {option}")
    if not known and role == "caption":  # columns named by their language, as in a table of several
        known = [each for each in columns if language_tag(each)]
    if not known:
        raise DataError(
            f"{name} has the columns {listed(columns, 30)}, and none is called {', '.join(ROLES[role][:4])}; name the "
            f"column of {'image paths' if role == 'image' else 'captions'} with {option}"
        )
    more = known[1:]
    return known[0], [f"The {role} column is {known[0]}, not {listed(more)}."] if more else []
