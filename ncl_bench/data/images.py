"""Image files of a prepared dataset, in the order of its features.

They are copied into the prepared folder, which is then self-contained.
"""

import os
import shutil
from collections.abc import Sequence
from pathlib import Path

from ncl_bench.data.layout import IMAGE_FILES, ImageFiles, records_of, save_table, write_manifest
from ncl_bench.data.own_tables import read_images
from ncl_bench.data.pairs.pictures import FileIndex, refuse_shared
from ncl_bench.data.pairs.rows import rows_in
from ncl_bench.data.pictures import check_picture, picture_bytes, picture_path
from ncl_bench.data.prepared import load_prepared
from ncl_bench.data.spec import DatasetSpec
from ncl_bench.decoding import decoded
from ncl_bench.errors import DataError, named
from ncl_bench.extras import require
from ncl_bench.files import Journal, sole_owner
from ncl_bench.foreign import told_apart
from ncl_bench.progress import Advance, Progress, silent
from ncl_bench.tables import read_table

WORKERS = min(8, os.cpu_count() or 1)
"""Processes that decode the images."""

PART = 1_000
"""Images per part of the table; a part is in memory at once, and survives an interruption."""


def add_images(
    spec: DatasetSpec,
    source: Path,
    root: Path,
    *,
    names: Path | None = None,
    images: Path | None = None,
    image_column: str | None = None,
    progress: Progress = silent,
) -> Path:
    """Do what :func:`ncl_bench.calls.add_images` says."""
    require("data", "datasets", needed_by="add-images")
    folder = root / spec.name
    with sole_owner(folder, inside=root):
        ids = {split: load_prepared(root, spec, split).image_ids.tolist() for split in spec.images}
        target, work = folder / IMAGE_FILES, folder / f".{IMAGE_FILES}.partial"
        if target.exists():
            # left over if a run stopped between the last two lines below
            shutil.rmtree(work, ignore_errors=True)
            raise DataError(f"{spec.name} has its images already; delete {target} to add others")
        every = [image_id for split in ids for image_id in ids[split]]
        file_of, journal = _named_files(spec, source, every, names), None
        missing = next((image_id for image_id in every if image_id not in file_of), None)
        # files come first: pictures that rows hold are unpacked before one of them is found
        if missing is not None and names is None and rows_in(source):
            journal = Journal(work, ids)
            in_rows = read_images(
                source, images=images, image_column=image_column, work=work / "pictures", progress=progress
            ).files
            file_of = {i: in_rows[own] for i, own in told_apart(every).items() if own in in_rows}
            missing = next((image_id for image_id in every if image_id not in file_of), None)
        if missing is not None:
            shutil.rmtree(work, ignore_errors=True)
            raise DataError(
                f"{source} holds no {missing}, nor one with an ending such as .jpg; fetch the image, or say with "
                f"{named('names')} which file holds it"
            )
        paths = {split: [file_of[image_id] for image_id in ids[split]] for split in ids}
        refuse_shared(file_of, f", or say with {named('names')} which file holds it")
        journal, result = journal or Journal(work, ids), work / "result"
        with progress("copying images", sum(map(len, ids.values()))) as advance:
            parts = {
                split: _write_split(result, split, ids[split], paths[split], journal, advance)
                for split in ids
            }
        write_manifest(result, ImageFiles(parts=parts, files=records_of(result, {})))
        os.rename(result, target)
        shutil.rmtree(work)
    return target


def _named_files(
    spec: DatasetSpec, source: Path, every: Sequence[str], names: Path | None
) -> dict[str, Path]:
    """Image id to its file in a folder, by its name or by the table ``names``, as far as there is one."""
    name_of = {image_id: image_id for image_id in every}
    where = str(names or f"the dataset {spec.name}")
    if names is not None:
        expected = "a table with the columns image_id and file"
        _, rows = read_table(names, DataError, ("image_id", "file"), expected=expected)
        file_of = {row["image_id"]: row["file"] for _, row in rows}
        listed, id_of = {own: file_of[i] for i, own in told_apart(file_of).items()}, told_apart(every)
        if unnamed := [image_id for image_id in every if id_of[image_id] not in listed]:
            raise DataError(f"{names} has no image {unnamed[0]}; add a line for it")
        name_of = {image_id: listed[id_of[image_id]] for image_id in every}
    for name in name_of.values():
        # for its refusal of a path that leads out; the index below finds the file
        picture_path(source, name, where)
    found, _ = FileIndex(source).find_all(list(dict.fromkeys(name_of.values())), where, by_name=False)
    missing = next((name for name in name_of.values() if name not in found), None)
    if missing is not None and names is not None:
        raise DataError(f"{source} holds no {missing}; fetch the image, or correct {names}")
    return {image_id: found[name] for image_id, name in name_of.items() if name in found}


def _write_split(
    folder: Path, split: str, ids: Sequence[str], paths: Sequence[Path], journal: Journal, advance: Advance
) -> tuple[str, ...]:
    names = []
    for start in range(0, len(ids), PART):
        rows = slice(start, start + PART)
        name = f"{split}/part-{start // PART:05d}"
        made_of = [[str(path), path.stat().st_size, path.stat().st_mtime_ns] for path in paths[rows]]
        if journal.result(name) != made_of:
            shutil.rmtree(folder / name, ignore_errors=True)
            images = [picture_bytes(path) for path in paths[rows]]
            pictures = zip(map(str, paths[rows]), images, strict=True)
            refused = [each for each in decoded(check_picture, pictures, workers=WORKERS) if each]
            if refused:
                raise refused[0]
            columns = {"image_id": ids[rows], "image": images}
            save_table(folder / name, columns, {"image_id": "string", "image": "binary"})
            journal.finish(name, made_of)
        advance(len(made_of))
        names.append(name)
    return tuple(names)
