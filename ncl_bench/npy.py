"""Open ``.npy`` and ``.npz`` files from strangers: headers and sizes are checked before a byte of data is used.

Nothing is ever unpickled. An ``.npy`` file is never read as a whole. Of an ``.npz`` file one array is decompressed at a
time, and no more bytes than the caller expects of it.
"""

import io
import os
import warnings
import zipfile
from collections.abc import Collection
from dataclasses import dataclass
from functools import lru_cache
from math import prod
from pathlib import Path
from typing import IO, Any

import numpy as np
from numpy.lib import format as npy_format
from numpy.typing import NDArray

from ncl_bench.errors import NclBenchError, ScoresError, shown
from ncl_bench.foreign import reading

BoolArray = NDArray[np.bool_]
Int64Array = NDArray[np.int64]
FloatArray = NDArray[np.floating]
Float32Array = NDArray[np.float32]
Float64Array = NDArray[np.float64]

_REMEDY = "write it with numpy.save from plain numbers, one array per file"
_READERS = {(1, 0): npy_format.read_array_header_1_0, (2, 0): npy_format.read_array_header_2_0}
LONGEST_HEADER = 10_000


@dataclass(frozen=True)
class NpyHeader:
    """Header of an ``.npy`` file and the position of its numbers.

    Attributes:
        shape: of the array.
        dtype: of its elements.
        fortran_order: whether columns are contiguous.
        offset: bytes before the numbers.
    """

    shape: tuple[int, ...]
    dtype: np.dtype[Any]
    fortran_order: bool
    offset: int


def read_header(path: Path, error: type[NclBenchError] = ScoresError, fix: str = _REMEDY) -> NpyHeader:
    """Read the header of an ``.npy`` file of plain numbers or text, and check the file's size against it.

    A path that a user named goes through :func:`ncl_bench.foreign.readable` first.

    Args:
        path: of the file.
        error: class of what is raised.
        fix: what the user should do, in words that end the sentence.
    """
    with reading(path, error, fix=fix), path.open("rb") as stream:
        return header_of(stream, os.fstat(stream.fileno()).st_size)


def header_of(stream: IO[bytes], size: int) -> NpyHeader:
    """Read the header of ``.npy`` data of plain numbers or text, and check their size against it.

    Args:
        stream: at its beginning.
        size: bytes of all of it.
    """
    # numpy reads as many bytes as the header claims to have
    head = stream.read(12 + LONGEST_HEADER)
    ends = 10 if head[6:7] == b"\1" else 12  # the bytes before give the number of those that follow
    header = _parsed(head[: ends + int.from_bytes(head[8:ends], "little")])
    promised = header.offset + header.dtype.itemsize * prod(header.shape)
    # numpy maps a file that was added to, and takes a part of it for the array
    if size != promised:
        state = "cut short" if size < promised else "added to"
        raise ValueError(f"it was {state}: it has {size:,} bytes, its header promises {promised:,}")
    np.broadcast_to(np.zeros((), header.dtype), header.shape)  # refuses a shape that no array has
    return header


@lru_cache  # numpy parses Python, and the thousands of arrays of a leaderboard have a few headers
def _parsed(head: bytes) -> NpyHeader:
    stream = io.BytesIO(head)
    version = npy_format.read_magic(stream)
    if version not in _READERS:
        raise ValueError(f"its format version is {version[0]}.{version[1]}, expected 1.0 or 2.0")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # about files that Python 2 wrote
        shape, fortran_order, dtype = _READERS[version](stream, LONGEST_HEADER)
    if dtype.kind not in "bfiuU" or dtype.itemsize == 0:
        raise ValueError(f"it holds {dtype}, expected plain numbers")
    return NpyHeader(shape, dtype, fortran_order, stream.tell())


NPZ_HEADER = 1_024
"""Upper bound on the bytes of an array's header in an ``.npz`` file."""


def read_npz_array(
    archive: zipfile.ZipFile,
    member: zipfile.ZipInfo,
    shape: tuple[int, ...],
    dtypes: Collection[np.dtype[Any]],
) -> NDArray[Any]:
    """Read one array of an ``.npz`` file; no more bytes are decompressed than this shape can have.

    Args:
        archive: the file.
        member: entry of the array.
        shape: that it must have.
        dtypes: that it may have.
    """
    largest = prod(shape) * max(dtype.itemsize for dtype in dtypes) + NPZ_HEADER
    name = shown(member.filename.removesuffix(".npy"))
    if member.file_size > largest:
        raise ValueError(f"{name} declares {member.file_size:,} bytes, expected at most {largest:,}")
    with archive.open(member) as stream:
        content = stream.read(largest)
    header = header_of(io.BytesIO(content), len(content))
    if header.dtype not in dtypes or header.shape != shape:
        expected = " or ".join(str(each) for each in dtypes)
        raise ValueError(
            f"{name} holds {header.dtype} of shape {header.shape}, expected {expected} of shape {shape}"
        )
    return np.frombuffer(content, header.dtype, offset=header.offset).reshape(shape)


def map_npy(path: Path, header: NpyHeader) -> NDArray[Any]:
    """The array of a checked file, read-only and memory-mapped."""
    if 0 in header.shape:
        return np.empty(header.shape, header.dtype)
    mapped: NDArray[Any] = np.memmap(
        path,
        header.dtype,
        mode="r",
        offset=header.offset,
        shape=header.shape,
        order="F" if header.fortran_order else "C",
    )
    return mapped
