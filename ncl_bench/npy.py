"""Open ``.npy`` files from strangers: the header is checked against the file before a byte of data is used.

Nothing is ever unpickled, unzipped or read as a whole.
"""

import os
import stat
from dataclasses import dataclass
from math import prod
from pathlib import Path
from tokenize import TokenError
from typing import IO, Any

import numpy as np
from numpy.lib import format as npy_format
from numpy.typing import NDArray

from ncl_bench.errors import ScoresError

_REMEDY = "write it with numpy.save"
_READERS = {(1, 0): npy_format.read_array_header_1_0, (2, 0): npy_format.read_array_header_2_0}


@dataclass(frozen=True)
class NpyHeader:
    """What an ``.npy`` file says and where its numbers start.

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
    """Header of an ``.npy`` file of plain numbers or text, whose size agrees with what the header says.

    Raises:
        ScoresError: missing, unreadable, no regular file, no ``.npy`` file, pickled, cut short or added to.
    """
    try:
        with open(path, "rb", opener=_open_without_waiting) as stream:
            status = os.fstat(stream.fileno())
            if not stat.S_ISREG(status.st_mode):
                raise ScoresError(f"{path} is no regular file; {_REMEDY}")
            header = _parse(stream, path, status.st_size)
    except FileNotFoundError:
        raise ScoresError(f"{path} does not exist; correct its name or write it") from None
    except IsADirectoryError:
        raise ScoresError(f"{path} is a folder, expected an .npy file; {_REMEDY}") from None
    except OSError as error:
        raise ScoresError(f"{path} cannot be read ({error.strerror}); make it a readable .npy file") from None
    promised = header.offset + header.dtype.itemsize * prod(header.shape)
    if status.st_size != promised:
        state = "cut short" if status.st_size < promised else "added to"
        raise ScoresError(
            f"{path} has {status.st_size:,} bytes, its header promises {promised:,}; "
            f"it was {state}: write it again"
        )
    return header


def _open_without_waiting(path: str, flags: int) -> int:
    """A pipe without a writer is refused and not waited for."""
    return os.open(path, flags | os.O_NONBLOCK)


def _parse(stream: IO[bytes], path: Path, size: int) -> NpyHeader:
    if size == 0:
        raise ScoresError(f"{path} is empty; {_REMEDY}")
    try:
        version = npy_format.read_magic(stream)
        shape, fortran_order, dtype = _READERS[version](stream)
    except (ValueError, KeyError, EOFError, SyntaxError, TokenError, RecursionError):
        stream.seek(0)
        kind = "a zip archive (.npz?)" if stream.read(2) == b"PK" else "not a numpy .npy file"
        raise ScoresError(f"{path} is {kind}; {_REMEDY}, one array per file") from None
    if dtype.hasobject:
        raise ScoresError(
            f"{path} holds pickled objects, which are never loaded; {_REMEDY} from plain numbers"
        )
    if dtype.kind not in "fiuU":
        raise ScoresError(f"{path} holds {dtype}, expected plain numbers; {_REMEDY} from a float array")
    return NpyHeader(shape, dtype, fortran_order, stream.tell())


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
