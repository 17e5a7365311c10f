"""Pictures in the cells of rows: bytes, what ``datasets`` stores, base64, arrays, or a place in an archive."""

import base64
import hashlib
import io
import re
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from ncl_bench.data.pairs.decode import Span
from ncl_bench.data.pairs.listing import PICTURE_ENDINGS
from ncl_bench.errors import DataError

_SIGNATURES = (b"\xff\xd8\xff", b"\x89PNG", b"RIFF", b"GIF8", b"BM", b"II*\0", b"MM\0*", b"\xff\x4f\xff\x51")
"""First bytes of pictures."""
_BASE64 = re.compile(
    r"(?:data:image/[\w.+-]+;base64,|/9j/|iVBORw0KGgo|R0lGOD|UklGR|Qk0)[A-Za-z0-9+/=\s]{60,}"
)


def holds_pictures(cells: "pd.Series[Any]") -> bool:
    """Whether most of the first filled cells are pictures; bytes may be a hash or a sound."""
    if cells.dtype.kind not in "OV":
        return False
    filled = [
        cell
        for cell in cells[cells.notna()].head(100).tolist()
        if not isinstance(cell, str) or _is_picture(cell)
    ]
    return 2 * sum(map(_is_picture, filled)) > len(filled)


def _is_picture(cell: Any) -> bool:
    match cell:
        case Span():
            return True
        case [first, *_] | {"bytes": bytes() | str() as first}:
            return _is_picture(first)
        case {"path": str(path)}:
            return path.lower().endswith(PICTURE_ENDINGS)
        case bytes():
            return cell.startswith(_SIGNATURES) or cell[4:8] in (b"ftyp", b"jP  ")
        case str():
            return _BASE64.match(cell) is not None
        case np.ndarray():
            return cell.ndim in (2, 3) and cell.dtype == np.uint8
    return hasattr(cell, "getbands")  # one of Pillow


def picture(cell: Any) -> bytes | Path | None:
    """The picture of a cell as bytes or a file; None if it holds none."""
    match cell:
        case bytes():
            return cell or None
        case Span():
            return cell.read()
        case [one] | {"bytes": bytes() | str() as one}:
            return picture(one)
        case [_, _, *_]:
            raise DataError(
                f"a cell holds {len(cell)} pictures; give each a row, as frame.explode(COLUMN) of pandas does"
            )
        case str() if _BASE64.match(cell):
            return base64.b64decode(cell.rpartition(",")[2])
        case {"path": str(path)} | str(path):
            return Path(path) if path else None
        case np.ndarray():
            from PIL import Image

            # as networks hold it, channels come first
            first = cell.ndim == 3 and cell.shape[-1] not in (1, 3, 4)
            cell = Image.fromarray((np.moveaxis(cell, 0, -1) if first else cell).squeeze())
    if not hasattr(cell, "save"):
        return None
    stream = io.BytesIO()
    cell.save(stream, "PNG")  # loses nothing
    return stream.getvalue()


def identity(cell: Any) -> object:
    """What two cells of the same picture share: a hash of its bytes, or its file; None without a picture."""
    content = picture(cell)
    return hashlib.sha256(content).digest() if isinstance(content, bytes) else content
