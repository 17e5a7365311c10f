"""Check feature files (npy): header, size and every number, read in small blocks, never as a whole."""

import hashlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import IO, Any

import numpy as np

from ncl_bench.data.download import DOWNLOAD_AGAIN, Download, require
from ncl_bench.data.spec import DatasetSpec
from ncl_bench.errors import DataError, named
from ncl_bench.foreign import reading
from ncl_bench.npy import FloatArray, header_of
from ncl_bench.progress import Advance

SCAN_ROWS = 60


@dataclass(frozen=True)
class FeatureFile:
    """A ``*_ims.npy`` file with a valid header.

    Attributes:
        download: the folder or zip file that holds it.
        path: its path in the download.
        shape: ``(rows, n_regions, feature_dim)``.
        dtype: number type.
        header_bytes: length of the header.
        repeat: number of consecutive copies of each image.
    """

    download: Download
    path: str
    shape: tuple[int, int, int]
    dtype: np.dtype[np.floating]
    header_bytes: int
    repeat: int

    @property
    def name(self) -> str:
        """Name of the file in errors."""
        return f"{self.download.place}/{self.path}"

    def rows(self, size: int, see: Callable[[Any], None] = lambda _: None) -> Iterator[FloatArray]:
        """Iterate over blocks of ``size`` rows, which share one buffer; ``see`` gets all bytes of the file in order."""
        buffer = np.empty((min(size, self.shape[0]), *self.shape[1:]), self.dtype)
        with self.download.open(self.path) as stream:
            see(stream.read(self.header_bytes))
            for start in range(0, self.shape[0], size):
                block = buffer[: self.shape[0] - start]
                _fill(stream, block, self.name)
                see(block.view(np.uint8).data)
                yield block

    def blocks(self, size: int) -> Iterator[FloatArray]:
        """Iterate over blocks of ``size`` unique images, which share one buffer."""
        return (block[:: self.repeat] for block in self.rows(size * self.repeat))


def open_features(download: Download, path: str, spec: DatasetSpec, split: str) -> FeatureFile:
    """Check header and size of a feature file.

    Args:
        download: the folder or zip file that holds it.
        path: its path in the download.
        spec: the dataset.
        split: ``train``, ``dev`` or ``test``.

    Raises:
        DataError: the file is missing, cut short, pickled, not npy, or has another type, shape or row count.
    """
    size = require(download, path)
    name = f"{download.place}/{path}"
    with reading(name, fix=DOWNLOAD_AGAIN), download.open(path) as stream:
        header = header_of(stream, size)
    shape, dtype = header.shape, header.dtype
    dtypes = spec.origin.dtypes
    if dtype.str not in {np.dtype(d).newbyteorder("<").str for d in dtypes} or header.fortran_order:
        order = ", column-major" if header.fortran_order else ""
        raise DataError(
            f"{name} holds {dtype}{order} numbers, expected row-major little-endian {' or '.join(dtypes)}; "
            "use the published file as it is"
        )
    if len(shape) == 2 and spec.n_regions == 1:
        shape = (shape[0], 1, shape[1])  # one vector per image
    images, sizes = spec.images[split], (spec.n_regions, spec.feature_dim)
    repeat = next((n for n in (1, spec.captions_per_image) if shape == (images * n, *sizes)), 0)
    if not repeat:
        raise DataError(
            f"{name} has shape {shape}, expected ({images}, {spec.n_regions}, {spec.feature_dim}) for "
            f"{spec.name}/{split}, or {spec.n_captions(split)} rows, one per caption; use its own file"
        )
    return FeatureFile(download, path, (images * repeat, *sizes), dtype, header.offset, repeat)


def scan(file: FeatureFile, *, dtype: str, advance: Advance) -> tuple[str, list[int]]:
    """Read a whole feature file once: every number is finite, no row is all zero, repeated rows are equal.

    Args:
        file: a feature file with a valid header.
        dtype: ``float32`` or ``float16``, the type to write; the numbers must fit it.
        advance: called with the bytes read.

    Returns:
        sha256 (hex) of the file, and a 64-bit key per image: keys are equal if the features are equal bit for bit.

    Raises:
        DataError: a number is not finite or too large, a row is zero, repeats differ, or the file cannot be read
            to its end.
    """
    digest = hashlib.sha256()
    zero_rows: list[int] = []
    keys: list[int] = []  # a few bytes per image
    # whole images per block, so that copies are compared within it
    step = file.repeat * (SCAN_ROWS // file.repeat)
    for number, block in enumerate(file.rows(step, digest.update)):
        start = number * step
        _check_numbers(file, block, start, np.dtype(dtype))
        _check_repeats(file, block, start)
        zero_rows += (start + np.flatnonzero(~block.any(axis=(1, 2)))).tolist()
        keys += _keys(block[:: file.repeat])
        advance(block.nbytes)
    if zero_rows:
        raise DataError(
            f"{file.name} holds only zeros in {len(zero_rows):,} of {file.shape[0]:,} rows, the first is row "
            f"{zero_rows[0]}: the download is incomplete; download it again"
        )
    return digest.hexdigest(), keys


def _keys(images: FloatArray) -> list[int]:
    """64-bit key of each image: equal features have equal keys, and different ones differ except by chance.

    A random weight per eight bytes, summed without carry, costs a fraction of the sha256. The upper halves of the
    words get a sum of their own: numbers such as 0 and 1 differ in their highest bits only, which the first sum drops.
    """
    rows = images.reshape(len(images), -1)
    # the hash reads words of 8 bytes
    if rows.shape[1] * rows.itemsize % 8:
        rows = rows.astype(np.float64)
    words = rows.view(np.uint64)
    # a random linear hash: one pass at the speed of memory; equal rows give equal keys, others hardly ever
    weights = np.random.default_rng(0).integers(2**64, size=words.shape[1], dtype=np.uint64) | np.uint64(1)
    half = np.uint64(32)
    uppers = np.array([(row >> half) @ weights for row in words], np.uint64)  # row by row, within the cache
    keys: list[int] = (words @ weights ^ uppers << half ^ uppers >> half).tolist()
    return keys


def _check_numbers(file: FeatureFile, block: FloatArray, start: int, dtype: np.dtype[Any]) -> None:
    with np.errstate(over="ignore"):  # what is too large becomes infinite
        fits = np.isfinite(block.astype(min(dtype, file.dtype, key=lambda each: each.itemsize), copy=False))
    if not fits.all():
        row = int(np.argmin(fits.all(axis=(1, 2))))
        raise DataError(
            f"{file.name} row {start + row} holds {block[row][~fits[row]][0]}, expected finite numbers that {dtype} "
            f"can hold; download it again, or prepare with {named('dtype', 'float32')}"
        )


def _check_repeats(file: FeatureFile, block: FloatArray, start: int) -> None:
    # row k of a group is the k-th copy of one image
    groups = block.reshape(-1, file.repeat, *block.shape[1:])
    differs = np.argwhere((groups[:, 1:] != groups[:, :1]).any(axis=(2, 3)))
    if len(differs):
        image, copy = differs[0].tolist()
        row = start + image * file.repeat
        raise DataError(
            f"{file.name} rows {row} and {row + copy + 1} differ, "
            f"expected each image {file.repeat} times in a row; download it again"
        )


def _fill(stream: IO[bytes], block: FloatArray, name: str) -> None:
    view = block.reshape(-1).view(np.uint8).data
    done = 0
    with reading(name, fix=DOWNLOAD_AGAIN):
        while done < len(view):
            # a zip member may give fewer bytes than asked for
            count = stream.readinto(view[done:])  # type: ignore[attr-defined]
            if not count:
                raise EOFError("it ends too early")
            done += count
