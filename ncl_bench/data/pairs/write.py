"""Write chosen rows again, as they came: in the format of their source, with every cell as it was."""

import io
import json
import shutil
import tarfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from ncl_bench.data.columns import Int64Array
from ncl_bench.data.layout import save_quietly
from ncl_bench.data.pairs.cells import picture
from ncl_bench.data.pairs.decode import Span
from ncl_bench.data.pairs.rows import UserRows, member, raw_sentence
from ncl_bench.files import atomic_folder, atomic_path, write_text
from ncl_bench.tables import csv_of


def save(
    rows: UserRows,
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
    path = target.with_name(target.name + rows.ending)
    kept, changed = rows.frame.iloc[chosen], set(rows.changed)
    if captions:
        cells = [captions.get(row, cell) for row, cell in zip(chosen.tolist(), kept[column], strict=True)]
        kept, changed = kept.assign(**{column: np.array(cells, object)}), changed | {column}
    if rows.ending == ".tar":
        new = [{name: row[name] for name in changed} for row in kept.to_dict("records")]
        apart = rows.frame["__key__"].duplicated().any()
        prefixes = [
            f"{Path(rows.files[part]).name.partition('.')[0]}/" if apart else ""
            for part in rows.part_of[chosen]
        ]
        _shard(path, [rows.content[row] for row in chosen.tolist()], new, prefixes)
    elif rows.content is not None:
        write_text(path, json.dumps(_lists(rows.content, kept, chosen), ensure_ascii=False) + "\n")
    elif rows.ending in (".json", ".jsonl"):
        # a key that a row lacks is NaN in the frame
        objects = [
            {name: cell for name, cell in row.items() if cell == cell} for row in kept.to_dict("records")
        ]
        lines = [json.dumps(each, ensure_ascii=False) for each in objects]
        write_text(
            path, "[" + ",\n".join(lines) + "]\n" if rows.ending == ".json" else "\n".join([*lines, ""])
        )
    elif rows.arrow is not None:
        return _arrow(rows.arrow.take(chosen), path, {name: kept[name].tolist() for name in changed})
    elif rows.ending == ".parquet":
        with atomic_path(path) as temporary:
            for name in rows.pictures:
                kept = kept.assign(**{name: kept[name].map(_stored)})
            kept.to_parquet(temporary, index=False)
    elif rows.header:
        write_text(path, csv_of(kept, rows.separator))
    else:
        text = csv_of(kept.drop(columns="image", errors="ignore"), rows.separator)
        write_text(path, text.partition("\n")[2])
    return path


def _stored(cell: Any) -> dict[str, Any]:
    """A picture as ``datasets`` stores it."""
    found = picture(cell)
    return (
        {"bytes": found, "path": None}
        if isinstance(found, bytes)
        else {"bytes": None, "path": found and str(found)}
    )


def _arrow(table: Any, path: Path, changed: Mapping[str, list[Any]]) -> Path:
    """Rows in the types that they were stored in, as Parquet or, without an ending, as a folder of ``datasets``."""
    for name, cells in changed.items():
        place = table.schema.get_field_index(name)
        table = (
            table.append_column(name, pa.array(cells))
            if place < 0
            else table.set_column(place, name, pa.array(cells))
        )
    if path.suffix:
        import pyarrow.parquet as pq

        with atomic_path(path) as temporary:
            pq.write_table(table, temporary)
        return path
    import datasets

    found: Any = datasets.Dataset(table)
    if "split" in changed:
        parts = {
            split: np.flatnonzero(np.array(changed["split"]) == split)
            for split in dict.fromkeys(changed["split"])
        }
        found = datasets.DatasetDict(
            {name: found.select(own).remove_columns("split") for name, own in parts.items()}
        )
    shutil.rmtree(path, ignore_errors=True)  # of the same audit with other labels
    if len(table):  # an empty folder cannot be loaded
        with atomic_folder(path) as folder:
            save_quietly(found, folder)
    return path


def _lists(content: Any, kept: Any, chosen: Int64Array) -> Any:
    """COCO's or Karpathy's JSON with the kept captions and the images that still have one."""
    text_of, row = dict(zip(chosen.tolist(), kept["caption"], strict=True)), -1
    if "annotations" in content:
        own = [
            each | {"caption": text_of[n]} for n, each in enumerate(content["annotations"]) if n in text_of
        ]
        ids = {str(each["image_id"]) for each in own}
        return content | {
            "images": [each for each in content["images"] if str(each["id"]) in ids],
            "annotations": own,
        }
    images = []
    for image in content["images"]:
        own = []
        for sentence in image["sentences"]:
            row += 1
            if row in text_of:
                same = text_of[row] == raw_sentence(sentence)
                own.append(sentence if same else sentence | {"raw": text_of[row]})
        images += [image | {"sentences": own}] if own else []
    return content | {"images": images}


def _shard(
    path: Path, samples: Sequence[Mapping[str, Any]], new: Sequence[dict[str, str]], prefixes: Sequence[str]
) -> None:
    """One shard of samples; ``new`` holds other cells of each, and a prefix keeps keys of two shards apart."""
    with atomic_path(path) as temporary, tarfile.open(temporary, "w") as archive:
        for sample, cells, prefix in zip(samples, new, prefixes, strict=True):
            files, left = dict(sample), dict(cells)
            for name in sample:
                if (field := member(name)).kind == "text" and field.column in left:
                    files[name] = left.pop(field.column).encode()
            facts = next(
                (name for name in sample if member(name).kind == "facts"),
                f"{member(next(iter(sample))).key}.json",
            )
            if left:
                files[facts] = json.dumps(
                    json.loads(files.get(facts, "{}")) | left, ensure_ascii=False
                ).encode()
            for name, content in files.items():
                entry, found = (
                    tarfile.TarInfo(prefix + name),
                    content.read() if isinstance(content, Span) else content,
                )
                entry.size = len(found)
                archive.addfile(entry, io.BytesIO(found))
