"""Image files of a prepared dataset, in the order of its features.

They are copied into the prepared folder, which is then self-contained.
"""

import os
import shutil
from collections.abc import Iterator, Sequence
from itertools import chain
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

PART, PART_BYTES = 1_000, 2**30
"""Most images, and bytes of their files, of a part of the table; it is in memory at once, and survives a stop."""


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
        every = [*chain(*ids.values())]
        file_of = _named_files(spec, source, every, names)
        journal, result = Journal(work, ids), work / "result"
        # files come first: pictures that rows hold are unpacked before one of them is found
        if names is None and not file_of.keys() >= {*every} and rows_in(source):
            in_rows = read_images(
                source, images=images, image_column=image_column, work=work / "pictures", progress=progress
            ).files
            file_of = {i: in_rows[own] for i, own in told_apart(every).items() if own in in_rows}
        if missing := [image_id for image_id in every if image_id not in file_of]:
            shutil.rmtree(work)
            raise DataError(
                f"{source} holds no {missing[0]}, nor one with an ending such as .jpg; fetch the image, or say with "
                f"{named('names')} which file holds it"
            )
        paths = {split: [file_of[image_id] for image_id in ids[split]] for split in ids}
        refuse_shared(file_of, f", or say with {named('names')} which file holds it")
        with progress("copying images", len(every)) as advance:
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
    file_of_name, _ = FileIndex(source).find_all(list(dict.fromkeys(name_of.values())), where)
    return {image_id: file_of_name[name] for image_id, name in name_of.items() if name in file_of_name}


def _write_split(
    folder: Path, split: str, ids: Sequence[str], paths: Sequence[Path], journal: Journal, advance: Advance
) -> tuple[str, ...]:
    names = list[str]()
    for rows in _parts(paths):
        name = f"{split}/part-{len(names):05d}"
        made_of = [[str(path), path.stat().st_size, path.stat().st_mtime_ns] for path in paths[rows]]
        if journal.result(name) != made_of:
            shutil.rmtree(folder / name, ignore_errors=True)
            # a picture that a worker refuses is never read here, however large it is
            pictures = [(str(path), path) for path in paths[rows]]
            for refused in filter(None, decoded(check_picture, pictures, workers=WORKERS)):
                raise refused
            columns = {"image_id": ids[rows], "image": [*map(picture_bytes, paths[rows])]}
            save_table(folder / name, columns, {"image_id": "string", "image": "binary"})
            journal.finish(name, made_of)
        advance(len(made_of))
        names.append(name)
    return tuple(names)


def _parts(paths: Sequence[Path]) -> Iterator[slice]:
    start = held = 0
    for row, path in enumerate(paths):
        size = path.stat().st_size
        if row - start == PART or (held and held + size > PART_BYTES):
            yield slice(start, row)
            start, held = row, 0
        held += size
    yield slice(start, len(paths))
