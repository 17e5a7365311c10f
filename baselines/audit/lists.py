"""The lists of an audit of own pairs, in the form of the input: rows to keep, rows to check, and changed captions."""

import csv
import json
import os
import re
import shutil
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import pandas as pd

from ncl_bench.data.columns import Int64Array
from ncl_bench.data.layout import save_quietly
from ncl_bench.data.pairs.columns import OwnPairs
from ncl_bench.data.pairs.shards import replace_captions
from ncl_bench.files import write_text
from ncl_bench.tables import as_csv, csv_cell, delimiter_of, from_csv_cell

if TYPE_CHECKING:
    from baselines.audit.order import OrderFault

_NUMBERED = re.compile(r"(\S.*?#(?:[A-Za-z]+#)?\d+[\t ]+)(.*)")


def write_lists(
    folder: Path, own: OwnPairs, kept: Int64Array, suspects: Int64Array, corrections: Mapping[int, str]
) -> None:
    """Write ``clean``, ``suspects``, and ``corrected`` if there are corrections.

    Args:
        folder: where to write.
        own: the rows as they came.
        kept, suspects: int64, rows of each list, ascending.
        corrections: row to the caption that fits; such rows stand in ``corrected`` beside those of ``clean``.
    """
    own.form.save(folder / "clean", kept)
    own.form.save(folder / "suspects", suspects)
    if corrections:
        write_with(
            own, folder / "corrected", np.union1d(kept, list(corrections)).astype(np.int64), corrections
        )
    else:
        forget(folder, "corrected")


def forget(folder: Path, name: str) -> None:
    """Delete a list of the same audit with other labels."""
    for path in (folder / name, *folder.glob(f"{name}.*")):
        if path.is_dir():
            shutil.rmtree(path)
        else:
            path.unlink(missing_ok=True)


def write_with(own: OwnPairs, target: Path, rows: Int64Array, captions: Mapping[int, str]) -> None:
    """Write rows in the form of the input, some with another caption.

    Args:
        own: the rows as they came.
        target: path without an ending.
        rows: int64, ascending.
        captions: row to its new caption.
    """
    target.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=target.parent, prefix=".") as scratch:
        written = own.form.save(Path(scratch, target.name), rows)
        new = {place: captions[row] for place, row in enumerate(rows.tolist()) if row in captions}
        _replace(written, own.caption_column, list(map(str, own.form.table.columns)), new)
        final = target.with_name(written.name)
        if final.is_dir():
            shutil.rmtree(final)
        os.replace(written, final)


def _replace(path: Path, column: str, columns: Sequence[str], new: Mapping[int, str]) -> None:
    """Change captions in what :class:`~ncl_bench.data.pairs.form.Form` wrote.

    Args:
        path: a file, or a folder of ``datasets``.
        column: of the captions.
        columns: of the table.
        new: number of a row in the file to its caption.
    """
    if path.is_dir():
        import datasets

        found = datasets.load_from_disk(str(path), keep_in_memory=True)
        changed = found.map(
            lambda text, row: {column: new.get(row, text)},
            with_indices=True,
            input_columns=[column],
            keep_in_memory=True,
        )
        shutil.rmtree(path)
        path.mkdir()
        save_quietly(changed, path)
    elif path.suffix == ".tar":
        replace_captions(path, column, new)
    elif path.suffix == ".parquet":
        frame = pd.read_parquet(path)
        frame[column] = [new.get(row, text) for row, text in enumerate(frame[column])]
        frame.to_parquet(path, index=False)
    elif path.suffix == ".json":
        content = json.loads(path.read_bytes())
        if isinstance(content, list):
            places = [(row, column) for row in content]
        elif "annotations" in content:  # COCO's captions
            places = [(each, "caption") for each in content["annotations"]]
        else:
            places = [(each, "raw") for image in content["images"] for each in image["sentences"]]
        for row, text in new.items():
            holder, key = places[row]
            holder[key] = text
        write_text(path, json.dumps(content, ensure_ascii=False, indent=1) + "\n")
    elif path.suffix in (".jsonl", ".ndjson"):
        lines = path.read_text(encoding="utf-8").split("\n")
        for row, text in new.items():
            lines[row] = json.dumps(json.loads(lines[row]) | {column: text}, ensure_ascii=False)
        write_text(path, "\n".join(lines))
    else:
        _replace_cells(path, column, columns, new)


def _replace_cells(path: Path, column: str, columns: Sequence[str], new: Mapping[int, str]) -> None:
    """Change captions in a table of text, with or without a line of names."""
    head = path.read_text(encoding="utf-8").partition("\n")[0]
    delimiter, place = delimiter_of(path, head.encode()), columns.index(column)
    if delimiter == "\t" or _NUMBERED.fullmatch(head):  # a quotation mark is an ordinary character there
        lines = path.read_text(encoding="utf-8").split("\n")
        first = int([*map(from_csv_cell, head.split("\t"))] == list(columns))
        for row, text in new.items():
            line = lines[row + first]
            if not first and (found := _NUMBERED.fullmatch(line)):
                lines[row] = found[1] + (str(csv_cell(text)) if "\t" in found[1] else text)
            else:
                cells = line.split("\t")
                cells[place] = str(csv_cell(text))
                lines[row + first] = "\t".join(cells)
        write_text(path, "\n".join(lines))
        return
    with path.open(encoding="utf-8", newline="") as stream:
        rows = [[*map(from_csv_cell, row)] for row in csv.reader(stream, delimiter=delimiter)]
    for row, text in new.items():
        rows[row + 1][place] = text
    write_text(path, as_csv(rows, delimiter))


def repaired(captions: Sequence[str], rows: Int64Array, faults: "Sequence[OrderFault]") -> dict[int, str]:
    """Move shifted captions back: row to its new caption.

    A caption that is pushed out of the shifted rows at one end takes the place that becomes free at the other end.

    Args:
        captions: of all rows.
        rows: int64, the judged rows, in which faults are numbered.
        faults: where captions are shifted.
    """
    new: dict[int, str] = {}
    for fault in faults:
        sources = range(fault.first, fault.last + 1)
        moved = {place + fault.offset: place for place in sources if 0 <= place + fault.offset < len(rows)}
        free = sorted(set(sources) - set(moved))
        pushed = sorted(set(moved) - set(sources)) + sorted(set(sources) - set(moved.values()))
        moved |= dict(zip(free, pushed, strict=True))
        new |= {int(rows[to]): captions[rows[place]] for to, place in moved.items()}
    return new
