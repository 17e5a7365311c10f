"""Folders of one kind: what ``datasets`` saves, metadata tables, Parquet parts, shards, or pictures with texts."""

import os
from collections.abc import Sequence
from pathlib import Path

import pandas as pd

from ncl_bench.data.pairs.form import (
    EXPECTED,
    IMAGE_COLUMNS,
    LARGEST_TEXT,
    PICTURE_ENDINGS,
    TABLE_ENDINGS,
    URL,
    Form,
    is_table,
)
from ncl_bench.data.pairs.frames import dataset_form, frame_form, read_parquet
from ncl_bench.data.pairs.shards import shards_form
from ncl_bench.data.pairs.tables import table_form
from ncl_bench.errors import DataError, first_line, listed
from ncl_bench.foreign import read_limited, text_lines

METADATA = ("metadata.csv", "metadata.jsonl", "metadata.parquet")


def kind_of(path: Path) -> tuple[str, list[Path]]:
    """Kind of a folder and the files that hold its rows; an empty kind for a folder of other files.

    The kinds are ``saved``, ``metadata``, ``.tar``, ``.parquet`` and ``texts``.
    """
    inside: dict[str, list[Path]] = {}

    def refuse(error: OSError) -> None:
        raise DataError(f"{error.filename} cannot be read ({error.strerror}); check its permissions")

    for place, folders, names in os.walk(path, onerror=refuse, followlinks=True):
        folders[:] = sorted(each for each in folders if not each.startswith("."))
        for each in sorted(names):
            kind = "metadata" if each in METADATA else Path(each).suffix.lower()
            if not each.startswith("."):
                inside.setdefault(kind, []).append(Path(place, each))
    own = {each.name for each in path.iterdir()}
    # what datasets saves holds tables and shards of its own, so it is asked for first
    if own & {"dataset_info.json", "dataset_dict.json"}:
        return "saved", []
    kinds = [kind for kind in ("metadata", ".tar", ".parquet") if kind in inside]
    if kinds[:2] == ["metadata", ".parquet"] or kinds[:2] == [".tar", ".parquet"]:
        kinds.pop(1)  # img2dataset writes a table of the same rows beside each shard
    if len(kinds) > 1:
        both = " and ".join(inside[kind][0].relative_to(path).as_posix() for kind in kinds)
        raise DataError(f"{path} holds {both}; give the one that holds your pairs")
    if kinds in (["metadata"], [".tar"]):
        return kinds[0], inside[kinds[0]]
    tables = sorted(
        name
        for name in own
        if Path(name).suffix.lower() in TABLE_ENDINGS and Path(name).suffix.lower() != ".txt"
    )
    if kinds == [".parquet"] and not [name for name in tables if not name.endswith(".parquet")]:
        return ".parquet", inside[".parquet"]
    if ".txt" in inside and not tables:
        texts = {each.with_suffix("") for each in inside[".txt"]}
        pictures = [each for ending in PICTURE_ENDINGS for each in inside.get(ending, ())]
        if any(each.with_suffix("") in texts for each in pictures):
            return "texts", pictures
    return "", []


def folder_form(path: Path) -> Form:
    """A folder of one kind: what ``datasets`` saves, metadata tables, Parquet parts, shards, or pictures with texts."""
    kind, files = kind_of(path)
    if kind == "saved":
        return _saved(path)
    if kind == "metadata":
        return _metadata(path, files)
    if kind == ".tar":
        return shards_form(path, files)
    if kind == ".parquet":
        frames = [read_parquet(each) for each in files]
        return (
            frame_form(frames[0], files[0].name, files[0].parent, ".parquet")
            if len(files) == 1
            else _joined(path, files, frames, ".parquet")
        )
    if kind == "texts":
        return _pictures_with_texts(path, files)
    others = sorted(each.name for each in path.iterdir() if is_table(each))
    hint = f"; it holds {listed(others)}: give that file, and the pictures with --images" if others else ""
    raise DataError(
        f"{path} is a folder without metadata.csv, metadata.jsonl, shards (*.tar), texts beside pictures (1.jpg and "
        f"1.txt), what datasets saves, or the run.json of a training; expected one of them or {EXPECTED}"
        f"{hint or ', with the pictures as --images'}"
    )


def _saved(path: Path) -> Form:
    import datasets

    try:
        found = datasets.load_from_disk(str(path))
        if isinstance(found, datasets.DatasetDict):
            found = datasets.concatenate_datasets(list(found.values()))
    except Exception as error:  # the library raises many classes for a damaged folder
        raise DataError(f"{path} cannot be read by datasets ({first_line(error)}); save it again") from None
    return dataset_form(found, path.name, path)


def _joined(folder: Path, files: Sequence[Path], parts: Sequence[pd.DataFrame], ending: str) -> Form:
    """One table of several files with the same columns."""
    # in any order: pandas joins columns by name
    first = set(parts[0].columns)
    for file, part in zip(files, parts, strict=True):
        if set(part.columns) != first:
            raise DataError(
                f"{file} has the columns {listed(list(map(str, part)), 30)}, {files[0]} has "
                f"{listed(list(map(str, parts[0])), 30)}; give both the same columns, or give one file alone"
            )
    return frame_form(pd.concat(parts, ignore_index=True), folder.name, folder, ending)


def _metadata(folder: Path, tables: Sequence[Path]) -> Form:
    """The metadata tables of a folder and its subfolders, such as ``train`` and ``test``: one table of all rows.

    Image paths start from the outer folder, so that files of one name in two subfolders stay apart.
    """
    places = [each.parent for each in tables]
    if len(set(places)) < len(places):
        twice = next(place for place in places if places.count(place) > 1)
        names = " and ".join(each.name for each in tables if each.parent == twice)
        raise DataError(f"{twice} holds {names}; give the one that holds your pairs, or remove the other")
    # one table in the folder itself is read and written as it is
    if places == [folder]:
        return table_form(tables[0])
    parts = []
    for each in tables:
        part = table_form(each).table
        columns = [str(name) for name in part if str(name).casefold() in IMAGE_COLUMNS]
        if not columns:
            raise DataError(
                f"{each} has the columns {listed(list(map(str, part)), 30)}, and none is called file_name; name the "
                "column of image paths file_name"
            )
        inner = each.parent.relative_to(folder)
        for column in columns:
            paths = [
                (inner / cell).as_posix()
                if isinstance(cell, str) and cell and not URL.fullmatch(cell)
                else cell
                for cell in part[column]
            ]
            part = part.assign(**{column: paths})
        parts.append(part)
    return _joined(folder, tables, parts, tables[0].suffix)


def _pictures_with_texts(folder: Path, pictures: Sequence[Path]) -> Form:
    """Pictures with a caption in a text of the same name, such as ``1.jpg`` and ``1.txt``; each line is a caption.

    A picture without a text is a row without a caption.
    """
    picture_of: dict[Path, Path] = {}
    rows = []
    for each in sorted(pictures):
        endings = [ending for ending in (".txt", ".TXT") if each.with_suffix(ending).is_file()]
        captions: list[str] = []
        if endings:
            text = each.with_suffix(endings[0])
            if picture_of.setdefault(text, each) != each:
                raise DataError(
                    f"{text} may belong to {listed([picture_of[text].name, each.name])}; keep one of them"
                )
            content = read_limited(text, LARGEST_TEXT, DataError, "give one caption per text")
            captions = [line for line in text_lines(content, str(text), DataError) if line.strip()]
        rows += [(each.relative_to(folder).as_posix(), line) for line in captions or [""]]
    return frame_form(pd.DataFrame(rows, columns=["image", "caption"], dtype=object), folder.name, folder)
