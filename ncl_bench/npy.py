"""Open ``.npy`` and ``.npz`` files from strangers: headers and sizes are checked before a byte of data is used.

Nothing is ever unpickled. An ``.npy`` file is never read as a whole. Of an ``.npz`` file one array is decompressed at a
time, and no more bytes than the caller expects of it.
"""

import io
import os
import warnings
import zipfile
import zlib
from collections.abc import Collection
from dataclasses import dataclass
from math import prod
from pathlib import Path
from typing import IO, Any

import numpy as np
from numpy.lib import format as npy_format
from numpy.typing import NDArray

from ncl_bench.errors import ScoresError

_REMEDY = "write it with numpy.save"
_READERS = {(1, 0): (2, npy_format.read_array_header_1_0), (2, 0): (4, npy_format.read_array_header_2_0)}
"""Format version to the bytes of its length field, and its reader."""
LONGEST_HEADER = 10_000
LARGEST_ARRAY = 2**62


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


def read_header(path: Path) -> NpyHeader:
    """Read the header of an ``.npy`` file of plain numbers or text, and check the file's size against it.

    A path that a user named goes through :func:`ncl_bench.foreign.readable` first.
    """
    try:
        with path.open("rb") as stream:
            size = os.fstat(stream.fileno()).st_size
            header = _parse(stream, path, size)
    except OSError as error:
        raise ScoresError(f"{path} cannot be read ({error.strerror}); make it a readable .npy file") from None
    promised = header.offset + header.dtype.itemsize * prod(header.shape)
    if size != promised:
        state = "cut short" if size < promised else "added to"
        raise ScoresError(
            f"{path} has {size:,} bytes, its header promises {promised:,}; it was {state}: write it again"
        )
    return header


def _parse(stream: IO[bytes], path: Path, size: int) -> NpyHeader:
    if size == 0:
        raise ScoresError(f"{path} is empty; {_REMEDY}")
    try:
        shape, fortran_order, dtype = parse_header(stream)
    except ValueError as error:
        stream.seek(0)
        kind = "a zip archive (.npz?)" if stream.read(2) == b"PK" else f"not a numpy .npy file ({error})"
        raise ScoresError(f"{path} is {kind}; {_REMEDY}, one array per file") from None
    if dtype.hasobject:
        raise ScoresError(
            f"{path} holds pickled objects, which are never loaded; {_REMEDY} from plain numbers"
        )
    if dtype.kind not in "bfiuU":
        raise ScoresError(f"{path} holds {dtype}, expected plain numbers; {_REMEDY} from a float array")
    if dtype.itemsize == 0:
        raise ScoresError(f"{path} holds empty text; {_REMEDY} from ids that are not empty")
    return NpyHeader(shape, dtype, fortran_order, stream.tell())


def parse_header(stream: IO[bytes]) -> tuple[tuple[int, ...], bool, np.dtype[Any]]:
    """Shape, whether columns are contiguous, and dtype, from the start of an ``.npy`` file.

    Args:
        stream: at its beginning; afterwards where the numbers start.

    Raises:
        ValueError: it is not an ``.npy`` file, or its shape is impossible.
        OSError: it cannot be read.
    """
    magic = stream.read(8)
    version = (magic[-2], magic[-1]) if len(magic) == 8 and magic.startswith(b"\x93NUMPY") else None
    if version is None:
        raise ValueError("it does not begin with the .npy signature")
    if version not in _READERS:
        raise ValueError(f"its format version is {version[0]}.{version[1]}, expected 1.0 or 2.0")
    n_bytes, reader = _READERS[version]
    length = stream.read(n_bytes)
    if int.from_bytes(length, "little") > LONGEST_HEADER:
        raise ValueError("its header is too long")
    header = io.BytesIO(length + stream.read(int.from_bytes(length, "little")))
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # about files that Python 2 wrote
            shape, fortran_order, dtype = reader(header, LONGEST_HEADER)
    except Exception as error:  # numpy evaluates a literal, whose parser raises many classes
        raise ValueError("its header cannot be parsed") from error
    whole = all(type(size) is int and size >= 0 for size in shape)
    if not whole or (0 in shape and prod(size or 1 for size in shape) > LARGEST_ARRAY):
        raise ValueError("no array has this shape")
    return shape, fortran_order, dtype


NPZ_ERRORS = (
    OSError,
    EOFError,
    ValueError,
    RuntimeError,
    NotImplementedError,
    zipfile.BadZipFile,
    zlib.error,
)
"""What reading a damaged ``.npz`` file can raise."""
_NPZ_HEADER = 1_024
"""Upper bound on the bytes of an array's header in an ``.npz`` file."""


def npz_bytes(shape: tuple[int, ...], dtypes: Collection[np.dtype[Any]]) -> int:
    """Largest number of bytes that an array of an ``.npz`` file can have, decompressed and with its header."""
    return prod(shape) * max(dtype.itemsize for dtype in dtypes) + _NPZ_HEADER


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

    Raises:
        ValueError: it has another shape or type, or declares more bytes. The message follows the array's name.
        Exception: one of :data:`NPZ_ERRORS`, if the archive is damaged.
    """
    largest = npz_bytes(shape, dtypes)
    if member.file_size > largest:
        raise ValueError(f"declares {member.file_size:,} bytes, expected at most {largest:,}")
    with archive.open(member) as stream:
        content = io.BytesIO(stream.read(largest))
    try:
        found, _, dtype = parse_header(content)
    except ValueError as error:
        raise ValueError(f"is no array ({error})") from None
    data = content.read()
    if dtype not in dtypes or found != shape or len(data) != prod(shape) * dtype.itemsize:
        expected = " or ".join(str(each) for each in dtypes)
        raise ValueError(
            f"holds {dtype} of shape {found} in {len(data):,} bytes, expected {expected} of shape {shape}"
        )
    return np.frombuffer(data, dtype).reshape(shape)


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
