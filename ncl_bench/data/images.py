"""Images beside the features of a prepared dataset: the encoded files, in the order of the features.

They are copied into the prepared folder, so that it stands alone.
"""

import csv
import hashlib
import json
import os
import shutil
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from ncl_bench.data.layout import IMAGE_FILES, FileRecord, ImageFiles, Journal, image_files_schema
from ncl_bench.data.prepared import load_prepared
from ncl_bench.data.spec import DatasetSpec
from ncl_bench.data.write import arrow_schema, table_writer, write_state_files
from ncl_bench.errors import DataError
from ncl_bench.files import readable, sole_owner, write_text
from ncl_bench.progress import Advance, Progress, silent

ENDINGS = ("", ".jpg", ".jpeg", ".png", ".webp", ".JPG", ".JPEG", ".PNG")
"""What a file's name may have beyond the id of its image."""

FILE_IMAGES = 4_096
BATCH_IMAGES = 64


def add_images(
    spec: DatasetSpec, source: Path, root: Path, *, names: Path | None = None, progress: Progress = silent
) -> Path:
    """Copy the images of every split into a prepared folder; a stopped run goes on where it was.

    Args:
        spec: which dataset.
        source: folder of the images, a file each.
        root: folder of prepared datasets.
        names: a ``.csv`` or ``.tsv`` file with the columns ``image_id`` and ``file``, a path below ``source``. By
            default a file is named by the id of its image, with or without an ending such as ``.jpg``.
        progress: shows how many images are done.

    Returns:
        The folder of the images.

    Raises:
        DataError: nothing is prepared there, it has images already, or an image is missing or none.
        NclBenchError: another process is at work there.
    """
    folder = root / spec.name
    with sole_owner(folder):
        ids = {split: load_prepared(root, spec, split).image_ids.tolist() for split in spec.images}
        target, work = folder / IMAGE_FILES, folder / f".{IMAGE_FILES}.partial"
        if target.exists():
            raise DataError(f"{spec.name} has its images already; delete {target} to add others")
        table = None if names is None else _read_names(names)
        if table is not None and (unnamed := [i for split in ids for i in ids[split] if i not in table]):
            raise DataError(f"{names} has no image {unnamed[0]}; add a line for it")
        paths = {split: [_path(source, image_id, table) for image_id in ids[split]] for split in ids}
        journal, result = Journal(work, ids), work / "result"
        with progress("copying images", sum(map(len, ids.values()))) as advance:
            splits = {
                split: _write_split(result, split, ids[split], paths[split], journal, advance)
                for split in ids
            }
        content = ImageFiles(splits=splits).model_dump_json(indent=2)
        write_text(result / "manifest.json", content + "\n")
        os.rename(result, target)
        shutil.rmtree(work)
    return target


def _read_names(path: Path) -> dict[str, str]:
    try:
        with readable(path, DataError, "a table").open(encoding="utf-8-sig", newline="") as stream:
            rows = csv.DictReader(stream, delimiter="\t" if path.suffix == ".tsv" else ",", strict=True)
            if not {"image_id", "file"} <= set(rows.fieldnames or ()):
                raise DataError(
                    f"{path} lacks a column image_id or file; name its columns so in the first line"
                )
            return {row["image_id"]: row["file"] for row in rows}
    except (OSError, UnicodeDecodeError, csv.Error) as error:
        raise DataError(f"{path} cannot be read ({error}); save it as CSV in UTF-8") from None


def _path(source: Path, image_id: str, names: Mapping[str, str] | None) -> Path:
    candidates = (
        [source / f"{image_id}{end}" for end in ENDINGS] if names is None else [source / names[image_id]]
    )
    found = next((path for path in candidates if path.is_file()), None)
    if found is None:
        raise DataError(
            f"{candidates[0]} does not exist{', nor with an ending such as .jpg' if names is None else ''}; fetch the "
            "image, or say with --names which file holds it"
        )
    return found


def _write_split(
    folder: Path, split: str, ids: Sequence[str], paths: Sequence[Path], journal: Journal, advance: Advance
) -> tuple[FileRecord, ...]:
    columns = image_files_schema()
    schema, records = arrow_schema(columns), []
    starts = range(0, len(ids), FILE_IMAGES)
    (folder / split).mkdir(parents=True, exist_ok=True)
    for number, start in enumerate(starts):
        rows = slice(start, start + FILE_IMAGES)
        name = f"{split}/data-{number:05d}-of-{len(starts):05d}.arrow"
        made_of = [[str(path), path.stat().st_size, path.stat().st_mtime_ns] for path in paths[rows]]
        done = journal.result(name)
        if done is None or done["made_of"] != made_of:
            temporary = folder / f"{name}.tmp"
            with table_writer(temporary, schema, "arrow") as write:
                for batch in _batches(schema, ids[rows], paths[rows]):
                    write(batch)
                    advance(len(batch))
            os.replace(temporary, folder / name)
            done = {"made_of": made_of, "bytes": (folder / name).stat().st_size}
            journal.finish(name, done)
        else:
            advance(len(made_of))
        records.append(FileRecord(name=name, bytes=done["bytes"]))
    key = hashlib.sha256(json.dumps([record.model_dump() for record in records]).encode()).hexdigest()
    write_state_files(folder / split, columns, split, [Path(record.name).name for record in records], key)
    return tuple(records)


def _batches(schema: Any, ids: Sequence[str], paths: Sequence[Path]) -> Iterator[Any]:
    import pyarrow as pa

    for start in range(0, len(ids), BATCH_IMAGES):
        rows = slice(start, start + BATCH_IMAGES)
        images = [{"bytes": _content(path), "path": path.name} for path in paths[rows]]
        columns = [pa.array(ids[rows], pa.string()), pa.array(images, schema.field("image").type)]
        yield pa.record_batch(columns, schema=schema)


def _content(path: Path) -> bytes:
    """A file whose header is that of an image; its pixels are decoded where they are used."""
    from PIL import Image, UnidentifiedImageError

    try:
        with Image.open(path):
            return path.read_bytes()
    except (UnidentifiedImageError, Image.DecompressionBombError, OSError) as error:
        raise DataError(f"{path} is no image ({error}); fetch it again or convert it") from None
