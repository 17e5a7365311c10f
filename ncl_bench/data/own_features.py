"""A user's features: one ``.npy`` file per split or per image, checked against each other and the captions."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ncl_bench.data.captions import read_lines, unique_ids
from ncl_bench.data.own_tables import CaptionTable, Splits
from ncl_bench.data.pairs.pictures import ENDINGS, FileIndex, refuse_shared
from ncl_bench.data.spec import SPLITS
from ncl_bench.errors import DataError, listed, named
from ncl_bench.foreign import told_apart
from ncl_bench.npy import Int64Array, map_npy, read_header

ROWS_PER_READ = 256
"""Images read per block."""

Array = NDArray[Any]


@dataclass(frozen=True)
class FeatureArrays:
    """Features of one split: ids in order, and a reader; ``rows`` are those of a file to read.

    ``in_order`` says that nothing but the order of rows names their images.
    """

    ids: list[str]
    files: Sequence[Path]
    rows: Int64Array | None = None
    in_order: bool = False

    @property
    def shape(self) -> tuple[int, int]:
        """Regions and numbers of each; one vector per image is one region."""
        first = _mapped(self.files[0])
        regions, dim = (1, *first.shape[self.rows is not None :])[-2:]
        return regions, dim

    @property
    def dtype(self) -> np.dtype[Any]:
        """Type of the numbers."""
        return read_header(self.files[0]).dtype

    def blocks(self) -> Iterator[Array]:
        """Iterate over the features in blocks, from one file per split or one per image."""
        for start in range(0, len(self.ids), ROWS_PER_READ):
            block = slice(start, start + ROWS_PER_READ)
            if self.rows is not None:
                yield _mapped(self.files[0])[self.rows[block]]
            else:
                yield np.stack([_mapped(file) for file in self.files[block]])


def _mapped(file: Path) -> Array:
    return map_npy(file, read_header(file))


def feature_arrays(
    folder: Path,
    table: CaptionTable,
    splits: Splits | None,
    *,
    kept: bool,
    rows_in_order: bool,
) -> dict[str, FeatureArrays]:
    """Find the features of each split, and check that they fit each other and the table.

    Args:
        folder: holds a file per split or per image, see :func:`ncl_bench.data.own.new_dataset`.
        table: table of captions.
        splits: split to its images, where the folder holds a file per image.
        kept: whether the table holds only what an audit kept; other images of a file are then left out.
        rows_in_order: row k of a file without ids belongs to the k-th image of its split in the table.

    Raises:
        DataError: a file is missing or damaged, or does not fit.
    """
    file_of = files_of_splits(folder)
    missing = [split for split in SPLITS if split not in file_of]
    if not file_of:
        assert splits is not None
        arrays = _from_image_files(folder, table, splits)
    elif missing:
        raise DataError(
            f"{folder} holds one file for some splits, but none for {' and '.join(missing)}; add those files"
        )
    else:
        arrays = {
            split: _from_split_file(file, table, split, kept, rows_in_order)
            for split, file in file_of.items()
        }
    kinds = {split: (each.shape, str(each.dtype)) for split, each in arrays.items()}
    if len(set(kinds.values())) > 1:
        raise DataError(
            f"the features of the splits differ in shape or dtype ({kinds}); give all splits the same"
        )
    return arrays


def files_of_splits(folder: Path) -> dict[str, Path]:
    """The file of features of each split; none if a folder holds one per image."""
    paths = {(split, end): folder / f"{split}{end}.npy" for split in SPLITS for end in ("", "_ims")}
    return {split: path for (split, _), path in paths.items() if path.is_file()}


def _from_split_file(
    file: Path, table: CaptionTable, split: str, kept: bool, rows_in_order: bool
) -> FeatureArrays:
    array = _mapped(file)
    ids_file = file.with_name(f"{split}_ids.txt")
    if ids_file.is_file():
        lines = read_lines(ids_file.read_bytes(), str(ids_file))
        id_of = told_apart(unique_ids(lines, len(lines), 1, str(ids_file)))
        ids = [id_of[line] for line in lines]
    elif table.splits is not None and rows_in_order:
        ids = table.splits[split]
    else:
        # in another order every caption would get the features of another image
        raise DataError(
            f"nothing says which image each row of {file} belongs to; add {ids_file.name} with one id per line, or say "
            f"{named('rows_in_order')} if they are in the order of {table.name}, which then needs a column split"
        )
    if array.ndim not in (2, 3) or len(array) != len(ids):
        raise DataError(
            f"{file} has shape {array.shape}, expected (images, dim) or (images, regions, dim) with "
            f"{len(ids):,} images of {ids_file if ids_file.is_file() else table.name}; correct one of them"
        )
    without = [image for image in ids if image not in table.captions]
    if without and not kept:
        raise DataError(
            f"{len(without):,} images of {split} have no caption in {table.name}, the first is {without[0]}; "
            f"add their captions, or give the table with {named('clean')}, which leaves such images out"
        )
    # with --clean, images that lost their captions keep their row in the file, so the rows are chosen here
    rows = np.flatnonzero([image in table.captions for image in ids])
    ids = [ids[row] for row in rows.tolist()]
    elsewhere = {*ids} - {*table.splits[split]} if table.splits else set()
    if elsewhere:
        raise DataError(
            f"{ids_file} names {min(elsewhere)}, which {table.name} puts into another split than {split}; "
            "correct one of them"
        )
    return FeatureArrays(ids, [file], rows, not ids_file.is_file())


def _from_image_files(folder: Path, table: CaptionTable, splits: Splits) -> dict[str, FeatureArrays]:
    paths = FileIndex(folder).paths
    # dogs/rex.jpg.npy or dogs/rex.npy for the image dogs/rex.jpg; v1.0.npy alone for v1.0
    short = {image: image.removesuffix(next(filter(image.endswith, ENDINGS), "")) for image in table.captions}
    files = {
        image: file
        for image, stem in short.items()
        if (file := paths.get(f"{image}.npy") or paths.get(f"{stem}.npy"))
    }
    if without := [image for image in short if image not in files]:
        raise DataError(
            f"{folder} holds neither train.npy nor {without[0]}.npy, and no file for {len(without):,} of "
            f"{len(short):,} images of {table.name}; the folder holds {listed(sorted(paths), most=3)}: name the files "
            f"by the images' ids, or give another {named('features')}"
        )
    refuse_shared(files)
    # the first file decides shape and dtype for all
    first = read_header(next(iter(files.values())))
    if len(first.shape) not in (1, 2):
        raise DataError(
            f"{folder} holds arrays of shape {first.shape}, expected (dim,) or (regions, dim) per image"
        )
    for file in files.values():
        header = read_header(file)  # alone: there may be hundreds of thousands of files
        if (header.shape, header.dtype) != (first.shape, first.dtype):
            raise DataError(
                f"{file} holds {header.dtype} of shape {header.shape}, the file of the first image {first.dtype} of "
                f"shape {first.shape}; every image needs the same shape and dtype"
            )
    return {split: FeatureArrays(ids, [files[image] for image in ids]) for split, ids in splits.items()}
