"""Write chosen rows again, as they came: in the format of their source, with every cell as it was."""

import io
import json
import shutil
import tarfile
from collections.abc import Mapping
from itertools import count
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq

from ncl_bench.data.layout import save_quietly
from ncl_bench.data.pairs.cells import picture
from ncl_bench.data.pairs.decode import Span
from ncl_bench.data.pairs.rows import UserPairs, cells_of, member, sentence_of
from ncl_bench.files import atomic_folder, atomic_path, write_text
from ncl_bench.npy import Int64Array
from ncl_bench.tables import csv_of


def save(
    rows: UserPairs,
    target: Path,
    chosen: Int64Array,
    column: str = "",
    captions: Mapping[int, str] | None = None,
) -> Path:
    """Write rows, some with another caption.

    Args:
        rows: all rows.
        target: path without an ending.
        chosen: int64 ``(n,)``, rows in ascending order.
        column: of the captions.
        captions: row to its new caption.

    Returns:
        The path with its ending.
    """
    path, kept = target.with_name(target.name + rows.ending), rows.taken(chosen)
    if captions:
        cells = zip(chosen.tolist(), kept.frame[column], strict=True)
        kept = kept.assigned(column, [captions.get(row, cell) for row, cell in cells])
    frame = kept.frame
    if rows.ending == ".tar":
        _shard(path, kept)
    elif rows.content is not None:
        write_text(path, json.dumps(_lists(kept), ensure_ascii=False) + "\n")
    elif rows.ending in (".json", ".jsonl"):
        # a key that a row lacks is NaN in the frame
        objects = [
            {name: cell for name, cell in row.items() if cell == cell} for row in frame.to_dict("records")
        ]
        lines = [json.dumps(each, ensure_ascii=False) for each in objects]
        write_text(
            path, "[" + ",\n".join(lines) + "]\n" if rows.ending == ".json" else "\n".join([*lines, ""])
        )
    elif rows.ending == "":
        _saved(path, kept)
    elif rows.ending == ".parquet":
        with atomic_path(path) as temporary:
            if kept.arrow is not None:
                pq.write_table(kept.arrow, temporary)
            else:
                pictures = {name: frame[name].map(_stored) for name in rows.pictures}
                frame.assign(**pictures).to_parquet(temporary, index=False)
    elif rows.header:
        write_text(path, csv_of(frame, rows.separator or ","))
    else:
        text = csv_of(frame.drop(columns="image", errors="ignore"), rows.separator)
        write_text(path, text.partition("\n")[2])
    return path


def _stored(cell: Any) -> dict[str, Any]:
    """A picture as ``datasets`` stores it."""
    content = picture(cell)
    return (
        {"bytes": content, "path": None}
        if isinstance(content, bytes)
        else {"bytes": None, "path": content and str(content)}
    )


def _saved(path: Path, rows: UserPairs) -> None:
    """A folder of ``datasets`` with the rows in the types that they were stored in, in the splits that they came in."""
    import datasets

    shutil.rmtree(path, ignore_errors=True)  # of the same audit with other labels
    if not len(rows.frame):  # an empty folder cannot be loaded
        return
    dataset: Any = datasets.Dataset(rows.arrow)
    if len(rows.files) > 1:
        parts = {name: np.flatnonzero(rows.part_of == part) for part, name in enumerate(rows.files)}
        dataset = datasets.DatasetDict({name: dataset.select(own) for name, own in parts.items() if len(own)})
    with atomic_folder(path) as folder:
        save_quietly(dataset, folder)


def _lists(rows: UserPairs) -> Any:
    """COCO's or Karpathy's JSON with the captions of these rows and the images that still have one."""
    content, text_of = rows.content, dict(zip(rows.row_of.tolist(), rows.frame["caption"], strict=True))
    if "annotations" in content:
        own = [
            each | {"caption": text_of[n]} for n, each in enumerate(content["annotations"]) if n in text_of
        ]
        ids = {str(each["image_id"]) for each in own}
        images = [each for each in content["images"] if str(each["id"]) in ids]
        return content | {"images": images, "annotations": own}
    images, row = [], count()
    for image in content["images"]:
        numbered = [(next(row), sentence) for sentence in image["sentences"]]
        own = [
            sentence if text_of[n] == sentence_of(sentence) else _with_text(sentence, text_of[n])
            for n, sentence in numbered
            if n in text_of
        ]
        images += [image | {"sentences": own}] if own else []
    return content | {"images": images}


def _with_text(sentence: Any, text: str) -> Any:
    return sentence | {"raw": text} if isinstance(sentence, dict) else text


def _shard(path: Path, rows: UserPairs) -> None:
    """One shard of samples, each with the cells that are not those of its files; keys of two shards are kept apart."""
    cells = rows.frame.to_dict("records")
    apart = rows.frame["__key__"].duplicated().any()
    with atomic_path(path) as temporary, tarfile.open(temporary, "w") as archive:
        for number, part, row in zip(rows.row_of.tolist(), rows.part_of.tolist(), cells, strict=True):
            sample = rows.content[number]
            files, known = dict(sample), cells_of(sample)
            # a column that the sample lacks is NaN in the frame
            left = {name: cell for name, cell in row.items() if cell == cell and known.get(str(name)) != cell}
            for name in sample:
                if (field := member(name)).kind == "text" and field.column in left:
                    files[name] = left.pop(field.column).encode()
            facts = {name: json.loads(sample[name]) for name in sample if member(name).kind == "facts"}
            own = next((name for name in facts if isinstance(facts[name], dict)), f"{known['__key__']}.json")
            if left:
                files[own] = json.dumps(facts.get(own, {}) | left, ensure_ascii=False).encode()
            prefix = f"{Path(rows.files[part]).name.partition('.')[0]}/" if apart else ""
            for name, content in files.items():
                entry = tarfile.TarInfo(prefix + name)
                encoded = content.read() if isinstance(content, Span) else content
                entry.size = len(encoded)
                archive.addfile(entry, io.BytesIO(encoded))
