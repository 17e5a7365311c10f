"""Tables in one file of text: CSV, TSV, JSON, JSON Lines, lines without a header, and any of these packed."""

import gzip
import json
import re
import tempfile
import zlib
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pandas as pd

from ncl_bench.data.columns import Int64Array
from ncl_bench.data.pairs.form import EXPECTED, LARGEST_TEXT, URL, Form, with_captions
from ncl_bench.data.pairs.frames import MOST_PACKED, parquet_form
from ncl_bench.errors import DataError, first_line, shorten, shown
from ncl_bench.files import write_text
from ncl_bench.foreign import readable, text_lines
from ncl_bench.tables import Rows, as_csv, delimiter_of, from_csv_cell, read_table

MOST_COLUMNS = 10_000
"""Columns of a table of text; a packed line of millions of names would take hours."""
_NUMBERED = re.compile(r"(?P<id>(?P<image>\S.*?)#(?:[A-Za-z]+#)?\d+)[\t ]+(?P<caption>.*)")


def table_form(path: Path) -> Form:
    readable(path, DataError, EXPECTED)
    ending = path.suffix.lower()
    if ending == ".gz":
        return _packed(path)
    try:
        if ending == ".parquet":
            return parquet_form(path)
        if ending in (".jsonl", ".ndjson"):
            return _json_lines(path)
        if ending == ".json":
            return _json(path)
        if ending == ".npy":
            raise DataError(
                f"{path} is an array; give embeddings with --image-embeddings and --caption-embeddings"
            )
        with path.open("rb") as stream:
            lines = iter(lambda: stream.readline(10_000).decode("utf-8-sig", "replace"), "")
            head = next(filter(str.strip, lines), "").rstrip("\r\n")
    except OSError as error:
        raise DataError(f"{path} cannot be read ({error.strerror}); check its permissions") from None
    if _NUMBERED.fullmatch(head):
        return _numbered(path)
    if "\t" in head and any(URL.fullmatch(cell.strip()) for cell in head.split("\t")):
        return _captions_and_urls(path)
    return _table(path)


def _packed(path: Path) -> Form:
    """A table that gzip packed, read from a copy; chosen rows are written without packing."""
    # a packed file may expand a thousandfold
    largest = max(LARGEST_TEXT, MOST_PACKED * path.stat().st_size)
    try:
        with gzip.open(path) as stream:
            content = stream.read(largest + 1)
    except (OSError, EOFError, zlib.error) as error:
        raise DataError(f"{path} cannot be unpacked ({first_line(error)}); fetch it again") from None
    if len(content) > largest:
        raise DataError(
            f"{path} holds over {largest:,} bytes, which is more than is read into memory; split it"
        )
    with tempfile.TemporaryDirectory() as scratch:
        copy = Path(scratch, path.stem)
        copy.write_bytes(content)
        try:
            form = table_form(copy)
        except DataError as error:
            raise DataError(str(error).replace(str(copy), str(path))) from None
    places = [each.replace(str(copy), str(path)) for each in form.places]
    return replace(form, name=path.name, folder=path.parent, places=places)


def _table(path: Path) -> Form:
    """A table with a line of names; its separator is kept."""
    columns, rows = read_table(path, DataError, expected=EXPECTED)
    if len(columns) > MOST_COLUMNS:
        raise DataError(
            f"{path} has {len(columns):,} columns, expected {MOST_COLUMNS:,} at most; leave some out"
        )
    found = [*rows]
    table = pd.DataFrame([row for _, row in found], columns=columns, dtype=object)
    delimiter = delimiter_of(path, path.open("rb").readline())

    def write(target: Path, chosen: Int64Array, column: str, captions: Mapping[int, str]) -> Path:
        target = target.with_name(target.name + path.suffix)
        lines = [columns, *with_captions(table, chosen, column, captions).to_numpy().tolist()]
        write_text(target, as_csv(lines, delimiter))
        return target

    return Form(path.name, table, write, path.parent, places=[where for where, _ in found])


def _safe_line(line: str) -> str:
    return as_csv([line.split("\t")], "\t").removesuffix("\n")


def _lines_form(
    path: Path,
    lines: list[str],
    numbers: list[int],
    table: pd.DataFrame,
    with_caption: Callable[[str, str, str], str],
    encode: Callable[[str], str] = _safe_line,
) -> Form:
    """A file of one line per row without a header: chosen lines are written again, with marks at formulas.

    ``with_caption`` takes a line, the column of captions and another caption.
    """

    def write(target: Path, chosen: Int64Array, column: str, captions: Mapping[int, str]) -> Path:
        target = target.with_name(target.name + path.suffix)
        kept = (
            with_caption(lines[row], column, captions[row]) if row in captions else lines[row]
            for row in chosen.tolist()
        )
        write_text(target, "".join(f"{encode(line)}\n" for line in kept))
        return target

    return Form(path.name, table, write, path.parent, places=[f"{path} line {number}" for number in numbers])


def _filled_lines(path: Path) -> tuple[list[str], list[int]]:
    """Lines that are not blank, and their numbers from 1."""
    every = text_lines(path.read_bytes(), str(path), DataError)
    numbers = [number for number, line in enumerate(every, 1) if line.strip()]
    return [every[number - 1] for number in numbers], numbers


def _without_marks(path: Path) -> tuple[list[str], list[int]]:
    """:func:`_filled_lines` of a table without a header, without the apostrophes of its cells."""
    lines, numbers = _filled_lines(path)
    return ["\t".join(map(from_csv_cell, line.split("\t"))) for line in lines], numbers


def _numbered(path: Path) -> Form:
    lines, numbers = _without_marks(path)
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

    def with_caption(line: str, _: str, text: str) -> str:
        found = _NUMBERED.fullmatch(line)
        return line.removesuffix(found["caption"]) + text if found else f"{line.rstrip()}\t{text}"

    table = pd.DataFrame(rows, columns=["id", "image", "caption"], dtype=object)
    return _lines_form(path, lines, numbers, table, with_caption)


def _captions_and_urls(path: Path) -> Form:
    lines, numbers = _without_marks(path)
    cells = [line.split("\t") for line in lines]
    n_columns = len(cells[0])
    # by the first line: all lines have the same columns, as is checked below
    url = next(place for place, cell in enumerate(cells[0]) if URL.fullmatch(cell.strip()))
    if n_columns == 1:
        raise DataError(f"{path} line 1 has a URL and no caption; expected a caption, a tab and a URL")
    for row, number in zip(cells, numbers, strict=True):
        if len(row) != n_columns:
            raise DataError(f"{path} line {number} has {len(row)} cells, line 1 has {n_columns}; correct it")
    names = [f"column_{place + 1}" for place in range(n_columns)]
    names[url] = "url"
    if n_columns == 2:  # of several columns only the user knows which holds the captions
        names[1 - url] = "caption"

    def with_caption(line: str, column: str, text: str) -> str:
        row = line.split("\t")
        row[names.index(column)] = text
        return "\t".join(row)

    return _lines_form(path, lines, numbers, pd.DataFrame(cells, columns=names, dtype=object), with_caption)


def _json_lines(path: Path) -> Form:
    lines, numbers = _filled_lines(path)
    rows = []
    for line, number in zip(lines, numbers, strict=True):
        rows.append(parsed_object(line.encode(), f"{path} line {number}"))

    def with_caption(line: str, column: str, text: str) -> str:
        return json.dumps(json.loads(line) | {column: text}, ensure_ascii=False)

    return _lines_form(path, lines, numbers, pd.DataFrame(rows, dtype=object), with_caption, str)


def _json(path: Path) -> Form:
    """Karpathy's splits, COCO's captions, or a list of objects."""
    try:
        content = json.loads(path.read_bytes())
    except json.JSONDecodeError as error:
        raise DataError(
            f"{path} line {error.lineno} column {error.colno} is no JSON ({error.msg}); download the file again"
        ) from None
    except (ValueError, RecursionError):
        raise DataError(f"{path} is no JSON in UTF-8; download the file again") from None
    if isinstance(content, list):
        if not all(isinstance(row, dict) for row in content):
            raise DataError(f"{path} is a list, expected one of objects with an image and a caption")
        table = pd.DataFrame(content, dtype=object)

        def write_list(target: Path, chosen: Int64Array, column: str, captions: Mapping[int, str]) -> Path:
            target = target.with_name(f"{target.name}.json")
            kept = [_changed(content[row], column, row, captions) for row in chosen.tolist()]
            write_text(target, json.dumps(kept, ensure_ascii=False, indent=1) + "\n")
            return target

        return Form(path.name, table, write_list, path.parent)
    columns, rows = _read_images(path, content)
    found = [*rows]
    places = [where for where, _ in found]
    table = pd.DataFrame([row for _, row in found], columns=columns, dtype=object)
    if "annotations" in content:

        def write_coco(target: Path, chosen: Int64Array, _: str, captions: Mapping[int, str]) -> Path:
            target, every = target.with_name(f"{target.name}.json"), content["annotations"]
            own = [_changed(every[row], "caption", row, captions) for row in chosen.tolist()]
            # images without a caption are left out too, as other readers expect one
            ids = {each["image_id"] for each in own}
            images = [each for each in content["images"] if each["id"] in ids]
            kept = content | {"images": images, "annotations": own}
            write_text(target, json.dumps(kept, ensure_ascii=False) + "\n")
            return target

        return Form(path.name, table, write_coco, path.parent, places=places)

    def write(target: Path, chosen: Int64Array, _: str, captions: Mapping[int, str]) -> Path:
        target, kept, row, images = target.with_name(f"{target.name}.json"), set(chosen.tolist()), 0, []
        for image in content["images"]:
            sentences = image["sentences"]
            own = [
                _changed(sentence, "raw", number, captions)
                for number, sentence in enumerate(sentences, row)
                if number in kept
            ]
            row += len(sentences)
            if own:
                images.append(image | {"sentences": own})
        write_text(target, json.dumps(content | {"images": images}, ensure_ascii=False) + "\n")
        return target

    return Form(path.name, table, write, path.parent, places=places)


def _changed(holder: dict[str, Any], key: str, row: int, captions: Mapping[int, str]) -> dict[str, Any]:
    return holder | {key: captions[row]} if row in captions else holder


def parsed_object(content: bytes, where: str) -> dict[str, Any]:
    """A JSON object; a name that stands twice is refused, because Python would keep the last alone."""

    def once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        names = [name for name, _ in pairs]
        if len(set(names)) < len(names):
            twice = next(name for name in names if names.count(name) > 1)
            raise DataError(f"{where} has {shown(twice)} twice in one object; keep one")
        return dict(pairs)

    try:
        found = json.loads(content, object_pairs_hook=once)
    except (ValueError, RecursionError):
        found = None
    if not isinstance(found, dict):
        raise DataError(
            f"{where} is {shorten(content.decode(errors='replace'))}, expected a JSON object; correct it"
        )
    return found


_SPLITS_OF_KARPATHY = {"restval": "train", "val": "dev"}


def _read_images(path: Path, content: Any) -> tuple[list[str], Rows]:
    """Columns and rows of Karpathy's ``dataset_*.json`` or COCO's captions; both hold a list of images."""
    images = content.get("images") if isinstance(content, dict) else None
    if isinstance(images, list) and isinstance(content.get("annotations"), list):
        return ["image", "caption"], _coco_rows(path, images, content["annotations"])
    if not isinstance(images, list):
        raise DataError(
            f"{path} has no list `images`, expected Karpathy's dataset_*.json, or lists `images` and `annotations`; "
            "convert it to CSV with the columns image and caption"
        )
    return ["image", "split", "caption"], _karpathy_rows(path, images)


def _coco_rows(path: Path, images: list[object], annotations: list[object]) -> Rows:
    """COCO's captions: a list of images with ids, and a list of captions that name them."""
    name_of: dict[object, str] = {}
    for number, image in enumerate(images):
        match image:
            case {"id": int() | str() as id_, "file_name": str(name)} if (
                name_of.setdefault(id_, name) == name
            ):
                pass
            case _:
                raise DataError(
                    f"{path} images[{number}] is {shorten(image)}, expected an id of its own and file_name; correct it"
                )
    for number, each in enumerate(annotations):
        match each:
            case {"image_id": int() | str() as id_, "caption": str(text)} if id_ in name_of:
                yield f"{path} annotations[{number}]", {"image": name_of[id_], "caption": text}
            case _:
                raise DataError(
                    f"{path} annotations[{number}] is {shorten(each)}, expected a caption and the image_id of one of "
                    "images; give the file of captions"
                )


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
