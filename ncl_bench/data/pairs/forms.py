"""Read somebody's images and captions in the forms that people have, as rows that keep their order and columns.

Tables (CSV, TSV, JSON Lines, Parquet), Kaggle's ``captions.txt``, lines such as ``name.jpg#0<TAB>caption``, Karpathy's
JSON, captions with URLs without a header, a folder with a metadata table, a folder saved with ``datasets``, WebDataset
shards, and in Python a frame or a ``datasets.Dataset``.
"""

import csv
import json
import re
import shutil
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pandas as pd

from ncl_bench.data.columns import Int64Array
from ncl_bench.data.layout import save_quietly
from ncl_bench.errors import DataError, first_line, listed, shorten
from ncl_bench.files import (
    Rows,
    atomic_folder,
    atomic_path,
    delimiter_of,
    read_table,
    readable,
    text_lines,
    write_text,
)

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
CAPTION_COLUMNS = ("caption", "text", "title", "alt", "sentence", "comment", "description")
URL_COLUMNS = ("url", "image_url", "link")
TABLES = (".csv", ".tsv", ".txt", ".jsonl", ".ndjson", ".json", ".parquet", ".token")
METADATA = ("metadata.csv", "metadata.jsonl", "metadata.parquet")
EXPECTED = "a table of images and captions (.csv, .tsv, .txt, .jsonl, .json or .parquet)"
_NUMBERED = re.compile(r"(?P<id>(?P<image>\S.*?)#(?:[A-Za-z]+#)?\d+)[\t ]+(?P<caption>.*)")
URL = re.compile(r"https?://\S+")
_PICTURES = ("jpg", "jpeg", "png", "webp")
_TEXTS = ("txt", "caption", "text")


@dataclass(frozen=True)
class Form:
    """Rows as somebody wrote them, and how to write some of them again.

    Attributes:
        name: of the file or folder, for messages.
        table: the rows, in order, with all columns but pictures.
        save: writes chosen rows, int64 ``(n,)``, to a path without an ending, and returns the path with it.
        folder: that image paths start from if no other is given.
        pictures: iterates over the rows' pictures, as bytes or files, where the rows hold the pictures themselves.
        image: name of the column of such pictures.
    """

    name: str
    table: pd.DataFrame
    save: Callable[[Path, Int64Array], Path]
    folder: Path | None = None
    pictures: Callable[[], Iterator[bytes | Path | None]] | None = None
    image: str | None = None


def form_of(source: Any) -> Form:
    """Read a file, a folder, a frame or a ``datasets.Dataset``."""
    if isinstance(source, pd.DataFrame):
        return _frame(source.reset_index(drop=True).rename(columns=str), "the frame")
    if isinstance(source, str | Path):
        path = Path(source)
        return _folder(path) if path.is_dir() else _file(path)
    import datasets

    if isinstance(source, datasets.DatasetDict):
        source = datasets.concatenate_datasets(list(source.values()))
    if isinstance(source, datasets.Dataset):
        return _dataset(source, "the dataset")
    raise DataError(
        f"pairs are {type(source).__name__}, expected a path, a pandas.DataFrame or a datasets.Dataset"
    )


def _file(path: Path) -> Form:
    readable(path, DataError, EXPECTED)
    ending = path.suffix.lower()
    try:
        if ending == ".parquet":
            return _parquet(path)
        if ending in (".jsonl", ".ndjson"):
            return _json_lines(path)
        if ending == ".json":
            return _json(path)
        if ending == ".npy":
            raise DataError(
                f"{path} is an array; give embeddings with --image-embeddings and --caption-embeddings"
            )
        head = path.open("rb").readline(10_000).decode("utf-8-sig", "replace").rstrip("\r\n")
    except OSError as error:
        raise DataError(f"{path} cannot be read ({error.strerror}); check its permissions") from None
    if ending in (".tar", ".gz", ".tgz"):
        return _shards(path.parent, [path])
    if _NUMBERED.fullmatch(head):
        return _numbered(path)
    if "\t" in head and any(URL.fullmatch(cell.strip()) for cell in head.split("\t")):
        return _captions_and_urls(path)
    return _table(path)


def _table(path: Path) -> Form:
    """A table with a line of names; its separator is kept."""
    columns, rows = read_table(path, DataError, expected=EXPECTED)
    table = pd.DataFrame([row for _, row in rows], columns=columns, dtype=object)
    delimiter = delimiter_of(path, path.open("rb").readline())

    def save(target: Path, chosen: Int64Array) -> Path:
        target = target.with_name(target.name + path.suffix)
        lines = [columns, *table.iloc[chosen].to_numpy().tolist()]
        with atomic_path(target) as temporary, temporary.open("w", encoding="utf-8", newline="") as stream:
            if delimiter == "\t":  # a quotation mark is an ordinary character there
                stream.writelines("\t".join(line) + "\n" for line in lines)
            else:
                csv.writer(stream, delimiter=delimiter, lineterminator="\n").writerows(lines)
        return target

    return Form(path.name, table, save, path.parent)


def _lines_form(path: Path, lines: list[str], table: pd.DataFrame) -> Form:
    """A file of one line per row without a header: chosen lines are written as they are."""

    def save(target: Path, chosen: Int64Array) -> Path:
        target = target.with_name(target.name + path.suffix)
        write_text(target, "".join(f"{lines[row]}\n" for row in chosen.tolist()))
        return target

    return Form(path.name, table, save, path.parent)


def _filled_lines(path: Path) -> tuple[list[str], list[int]]:
    """Lines that are not blank, and their numbers from 1."""
    every = text_lines(path.read_bytes(), str(path), DataError)
    numbers = [number for number, line in enumerate(every, 1) if line.strip()]
    return [every[number - 1] for number in numbers], numbers


def _numbered(path: Path) -> Form:
    lines, numbers = _filled_lines(path)
    rows = []
    for line, number in zip(lines, numbers, strict=True):
        found = _NUMBERED.fullmatch(line) or re.fullmatch(
            r"(?P<id>(?P<image>\S.*?)#\S*)(?P<caption>)\s*", line
        )
        if found is None:
            raise DataError(
                f"{path} line {number}: expected name.jpg#0, a tab and a caption as in the first line, got "
                f"{shorten(line)}; correct it"
            )
        rows.append(found.group("id", "image", "caption"))
    return _lines_form(path, lines, pd.DataFrame(rows, columns=["id", "image", "caption"], dtype=object))


def _captions_and_urls(path: Path) -> Form:
    lines, numbers = _filled_lines(path)
    cells = [line.split("\t") for line in lines]
    n_columns = len(cells[0])
    url = next(place for place, cell in enumerate(cells[0]) if URL.fullmatch(cell.strip()))
    caption = next((place for place in range(n_columns) if place != url), None)
    if caption is None:
        raise DataError(f"{path} line 1 has a URL and no caption; expected a caption, a tab and a URL")
    for row, number in zip(cells, numbers, strict=True):
        if len(row) != n_columns:
            raise DataError(f"{path} line {number} has {len(row)} cells, line 1 has {n_columns}; correct it")
    names = [f"column_{place + 1}" for place in range(n_columns)]
    names[url], names[caption] = "url", "caption"
    return _lines_form(path, lines, pd.DataFrame(cells, columns=names, dtype=object))


def _json_lines(path: Path) -> Form:
    lines, numbers = _filled_lines(path)
    rows = []
    for line, number in zip(lines, numbers, strict=True):
        try:
            row = json.loads(line)
        except (ValueError, RecursionError):
            row = None
        if not isinstance(row, dict):
            raise DataError(f"{path} line {number} is {shorten(line)}, expected a JSON object; correct it")
        rows.append(row)
    return _lines_form(path, lines, pd.DataFrame(rows, dtype=object))


def _json(path: Path) -> Form:
    """Karpathy's splits, or a list of objects."""
    try:
        content = json.loads(path.read_bytes())
    except (ValueError, RecursionError):
        raise DataError(f"{path} is no JSON in UTF-8; download the file again") from None
    if isinstance(content, list):
        if not all(isinstance(row, dict) for row in content):
            raise DataError(f"{path} is a list, expected one of objects with an image and a caption")
        table = pd.DataFrame(content, dtype=object)

        def save_list(target: Path, chosen: Int64Array) -> Path:
            target = target.with_name(f"{target.name}.json")
            kept = [content[row] for row in chosen.tolist()]
            write_text(target, json.dumps(kept, ensure_ascii=False, indent=1) + "\n")
            return target

        return Form(path.name, table, save_list, path.parent)
    columns, rows = FORMATS[".json"](path)
    table = pd.DataFrame([row for _, row in rows], columns=columns, dtype=object)

    def save(target: Path, chosen: Int64Array) -> Path:
        target, kept, row, images = target.with_name(f"{target.name}.json"), set(chosen.tolist()), 0, []
        for image in content["images"]:
            sentences = image["sentences"]
            own = [sentence for place, sentence in enumerate(sentences) if row + place in kept]
            row += len(sentences)
            if own:
                images.append(image | {"sentences": own})
        write_text(target, json.dumps(content | {"images": images}, ensure_ascii=False) + "\n")
        return target

    return Form(path.name, table, save, path.parent)


def _parquet(path: Path) -> Form:
    try:
        found = pd.read_parquet(path)
    except Exception as error:  # pyarrow raises many classes for a damaged file
        raise DataError(f"{path} cannot be read as Parquet ({first_line(error)}); write it again") from None
    return _frame(found.reset_index(drop=True).rename(columns=str), path.name, path.parent, ".parquet")


def _frame(frame: pd.DataFrame, name: str, folder: Path | None = None, ending: str = "") -> Form:
    """A frame, whose cells may be pictures as ``datasets`` stores them: ``{"bytes": ..., "path": ...}``.

    Args:
        frame: the rows.
        name: of the frame, for messages.
        folder: that image paths start from.
        ending: of the files to write (default: .csv, or .parquet for pictures).
    """
    pictures = next((str(c) for c in frame.columns if len(frame) and _is_picture(frame[c].iloc[0])), None)
    if pictures is not None:
        of_rows = frame[pictures]
        frame_pictures, table = lambda: map(_picture_of, of_rows), frame.drop(columns=pictures)
    else:
        frame_pictures, table = None, frame

    def save(target: Path, chosen: Int64Array) -> Path:
        kept = frame.iloc[chosen]
        suffix = ending or (".csv" if pictures is None else ".parquet")
        target = target.with_name(f"{target.name}{suffix}")
        with atomic_path(target) as temporary:
            if suffix == ".csv":
                kept.to_csv(temporary, index=False, lineterminator="\n")
            elif suffix == ".jsonl":
                kept.to_json(temporary, orient="records", lines=True, force_ascii=False)
            else:
                kept.to_parquet(temporary, index=False)
        return target

    return Form(name, table, save, folder, frame_pictures, pictures)


def _is_picture(cell: object) -> bool:
    return isinstance(cell, bytes) or (isinstance(cell, dict) and {"bytes", "path"} <= cell.keys())


def _picture_of(cell: Any) -> bytes | Path | None:
    if isinstance(cell, bytes) or cell is None:
        return cell
    if cell["bytes"] is not None:
        return bytes(cell["bytes"])
    return Path(cell["path"]) if cell["path"] else None


def _dataset(found: Any, name: str) -> Form:
    """A ``datasets.Dataset``; pictures are read when they are needed."""
    import datasets

    pictures = [column for column, feature in found.features.items() if isinstance(feature, datasets.Image)]
    for column in pictures:
        found = found.cast_column(column, datasets.Image(decode=False))
    table = (
        found.remove_columns(pictures).to_pandas()
        if len(found.column_names) > len(pictures)
        else pd.DataFrame()
    )

    def save(target: Path, chosen: Int64Array) -> Path:
        kept = found.select(chosen)
        for column in pictures:
            kept = kept.cast_column(column, datasets.Image())
        shutil.rmtree(target, ignore_errors=True)  # of the same audit with other labels
        if len(kept):  # an empty folder cannot be loaded
            with atomic_folder(target) as temporary:
                save_quietly(kept, temporary)
        return target

    if not pictures:
        return Form(name, table, save)
    column = pictures[0]
    return Form(name, table, save, None, lambda: (_picture_of(row[column]) for row in found), column)


def _folder(path: Path) -> Form:
    try:
        names = {each.name for each in path.iterdir()}
    except OSError as error:
        raise DataError(f"{path} cannot be read ({error.strerror}); check its permissions") from None
    if names & {"dataset_info.json", "dataset_dict.json"}:
        import datasets

        try:
            found = datasets.load_from_disk(str(path))
            if isinstance(found, datasets.DatasetDict):
                found = datasets.concatenate_datasets(list(found.values()))
        except Exception as error:  # the library raises many classes for a damaged folder
            raise DataError(
                f"{path} cannot be read by datasets ({first_line(error)}); save it again"
            ) from None
        return _dataset(found, path.name)
    if metadata := next((path / name for name in METADATA if name in names), None):
        return _file(metadata)
    if shards := sorted(path.glob("*.tar")):
        return _shards(path, shards)
    for name in METADATA:
        if tables := sorted(path.glob(f"*/{name}")):
            return _split_folders(path, tables)
    others = sorted(name for name in names if Path(name).suffix.lower() in TABLES)
    hint = f"; it holds {listed(others)}: give that file, and the pictures with --images" if others else ""
    raise DataError(
        f"{path} is a folder without metadata.csv, metadata.jsonl, shards (*.tar), what datasets saves, or the "
        f"run.json of a training; expected one of them or {EXPECTED}{hint or ', with the pictures as --images'}"
    )


def _split_folders(folder: Path, tables: Sequence[Path]) -> Form:
    """A folder with a metadata table in each subfolder, such as ``train`` and ``test``: one table of all rows.

    Image paths start from the outer folder, so that files of one name in two subfolders stay apart.
    """
    parts = []
    for each in tables:
        part = _file(each).table
        image = next((name for name in part if str(name).casefold() in IMAGE_COLUMNS), None)
        if image is None:
            raise DataError(
                f"{each} has the columns {listed(list(map(str, part)), 30)}, and none is called file_name; name the "
                "column of image paths file_name"
            )
        inner = each.parent.name
        paths = [f"{inner}/{cell}" if isinstance(cell, str) and cell else cell for cell in part[image]]
        parts.append(part.assign(**{str(image): paths}))
    return _frame(pd.concat(parts, ignore_index=True), folder.name, folder, tables[0].suffix)


def _shards(folder: Path, shards: Sequence[Path]) -> Form:
    """WebDataset shards, through ``datasets``: a picture and a caption under one key."""
    import datasets

    def samples() -> Iterator[dict[str, Any]]:
        try:
            found = datasets.load_dataset(
                "webdataset", data_files=[str(shard) for shard in shards], split="train", streaming=True
            )
            for column, feature in (found.features or {}).items():
                if isinstance(feature, datasets.Image):
                    found = found.cast_column(column, datasets.Image(decode=False))
            yield from found
        except Exception as error:  # the library raises many classes for a damaged shard
            raise DataError(
                f"{folder} cannot be read as WebDataset shards ({first_line(error)}); write them again"
            ) from None

    def pictures() -> Iterator[bytes | Path | None]:
        for sample in samples():
            yield _picture_of(
                next((sample[each] for each in _PICTURES if sample.get(each) is not None), None)
            )

    rows = []
    for sample in samples():
        caption = next((sample[each] for each in _TEXTS if sample.get(each) is not None), None)
        facts = sample.get("json")
        if caption is None and isinstance(facts, dict):
            caption = next((facts[each] for each in CAPTION_COLUMNS if facts.get(each)), None)
        rows.append({"__key__": sample["__key__"], "caption": caption})
    table = pd.DataFrame(rows, columns=["__key__", "caption"], dtype=object)

    def save(target: Path, chosen: Int64Array) -> Path:
        target = target.with_name(f"{target.name}.csv")
        with atomic_path(target) as temporary:
            table.iloc[chosen].to_csv(temporary, index=False, lineterminator="\n")
        return target

    return Form(folder.name, table, save, None, pictures, "jpg")


_SPLITS_OF_KARPATHY = {"restval": "train", "val": "dev"}


def _read_karpathy(path: Path) -> tuple[list[str], Rows]:
    """Read Karpathy's ``dataset_*.json``; an image is its ``filename``, below ``filepath`` if there is one."""
    try:
        content = json.loads(readable(path, DataError, "captions").read_bytes())
    except json.JSONDecodeError as error:
        raise DataError(
            f"{path} line {error.lineno} column {error.colno} is no JSON ({error.msg}); download the file again"
        ) from None
    except (OSError, ValueError, RecursionError):
        raise DataError(f"{path} is no JSON in UTF-8; download the file again") from None
    images = content.get("images") if isinstance(content, dict) else None
    if not isinstance(images, list):
        raise DataError(
            f"{path} has no list `images`, expected the form of Karpathy's dataset_*.json; convert it to "
            "CSV with the columns image and caption"
        )
    return ["image", "split", "caption"], _karpathy_rows(path, images)


def _karpathy_rows(path: Path, images: list[object]) -> Rows:
    for number, image in enumerate(images):
        where = f"{path} images[{number}]"
        match image:
            case {"filename": str(name), "split": str(split), "sentences": [_, *_] as sentences, **others}:
                folder = others.get("filepath")
            case _:
                raise DataError(
                    f"{where} is {shorten(image)}, expected filename, split and at least one of sentences; correct it"
                )
        for sentence in sentences:
            match sentence:
                case {"raw": str(text)}:
                    pass
                case {"tokens": [*words]}:
                    text = " ".join(map(str, words))
                case _:
                    raise DataError(
                        f"{where} has the sentence {shorten(sentence)}, expected raw or tokens; correct it"
                    )
            yield (
                where,
                {
                    "image": f"{folder}/{name}" if folder else name,
                    "split": _SPLITS_OF_KARPATHY.get(split, split),
                    "caption": text,
                },
            )


FORMATS: Mapping[str, Callable[[Path], tuple[list[str], Rows]]] = {".json": _read_karpathy}
"""Ending of a file to its reader, which returns columns and rows as :func:`ncl_bench.files.read_table` does."""
