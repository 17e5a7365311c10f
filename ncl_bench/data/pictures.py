"""Open pictures from strangers: by one function, in a few formats, within a limit; damage that shows is refused."""

import logging
import os
import re
import threading
import warnings
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from io import BytesIO
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from ncl_bench.errors import DataError
from ncl_bench.foreign import readable

if TYPE_CHECKING:
    from PIL.Image import Image as Picture

PICTURE_FORMATS = ("JPEG", "PNG", "WEBP", "GIF", "BMP", "TIFF", "JPEG2000", "AVIF", "PPM")
"""Formats that libraries inside Pillow decode. Others start programs: Pillow gives EPS to Ghostscript."""
HEAD = 1_000
"""First bytes of a file that tell what it is."""
LARGEST_IMAGE = 600_000_000
"""Most bytes of a picture's file, decoder and conversion to RGB together: 75 million pixels of a plain JPEG or PNG."""
BYTES_PER_PIXEL = {"WEBP": (16, 24), "JPEG2000": (20, 25), "AVIF": (11, 21)}
"""Format to what decoder and conversion take, opaque and with transparency. Pillow stores four bytes for RGB."""
PLAIN_BYTES = (8, 16)
"""The same for all other formats."""
ALONE_FROM = 50_000_000
"""Bytes from which on a picture is decoded alone in its process, whatever the number of threads."""
MOST_WORK = 2_000_000_000
"""Most scans times pixels of a JPEG; a progressive one of 75 million pixels has 10 to 15 scans."""
_alone = threading.RLock()  # a thread may hold several pictures open


@contextmanager
def open_picture(
    source: Path | bytes, name: str | None = None, *, at_least: int | None = None
) -> Iterator["Picture"]:
    """Open a picture and decode all of it; an error of the block is one of the picture too.

    What a decoder reports is damage, and so is a JPEG whose data ends early, even before an end marker. Bytes that
    were changed inside the data may decode to another picture without a sign.

    Args:
        source: a file, or its bytes.
        name: what errors call it (default: the file).
        at_least: decode a large JPEG at a half, a quarter or an eighth of its size, with sides of at least this many
            pixels.

    Yields:
        The picture in its own colours and orientation; of an animation, the first frame.

    Raises:
        DataError: the file is missing, of another format, damaged, too large, or has no colours.
    """
    from PIL import Image, UnidentifiedImageError

    # Pillow lists its rarer formats only after this
    Image.init()
    name = name or str(source)
    known = [each for each in PICTURE_FORMATS if each in Image.OPEN]
    try:
        content = source if isinstance(source, bytes) else picture_bytes(source)
        with Image.open(BytesIO(content), formats=known) as picture, ExitStack() as opened:  # noqa: TID251 (only here)
            size = picture.size
            if at_least is not None:
                picture.draft(None, (at_least, at_least))
            # MPO is a JPEG with more pictures behind it
            scans = _Scans.of(content) if picture.format in ("JPEG", "MPO") else _Scans()
            needed = len(content) + _decoded_bytes(picture, content)
            if scans.number > 1:  # the decoder keeps every coefficient, at full size
                needed += 2 * len(picture.getbands()) * size[0] * size[1]
            if needed > LARGEST_IMAGE:
                raise Image.DecompressionBombError
            if scans.number * size[0] * size[1] > MOST_WORK:
                raise DataError(f"{name} is a JPEG of {scans.number:,} scans; save it again with fewer")
            if picture.mode in ("I", "F"):
                raise DataError(
                    f"{name} has 32-bit values, expected colours; save it with 8 bits per channel"
                )
            if needed > ALONE_FROM:
                opened.enter_context(_alone)
            picture.load()
            if scans.unfinished or _ends_early(picture, content, scans.end, at_least):
                raise ValueError("its data ends before the picture does")
            yield picture
    except DataError:
        raise
    except UnidentifiedImageError:
        raise DataError(
            f"{name} is {_kind_of(content)}not an image of a known format ({', '.join(known)}); fetch it again or "
            "convert it"
        ) from None
    except Image.DecompressionBombError:
        most = f"{LARGEST_IMAGE / 1e6:.0f} MB ({LARGEST_IMAGE / 8e6:.0f} million pixels of a plain picture)"
        raise DataError(f"{name} takes more than {most} when decoded; save it smaller") from None
    except Exception as error:  # decoders raise many types for damaged bytes
        if isinstance(error, OSError) and error.errno:  # the system's, not a decoder's
            raise DataError(f"{name} cannot be read ({error.strerror}); make it readable") from None
        raise DataError(f"{name} is damaged ({str(error) or type(error).__name__}); fetch it again") from None


def _kind_of(content: bytes) -> str:
    """What a file is that is no image, as far as its first bytes tell; a server may have sent a page in its place."""
    head = content[:HEAD]
    text = head.lstrip(b"\xef\xbb\xbf \t\r\n").lower()
    if text.startswith((b"<!doctype html", b"<html", b"<head", b"<body")):
        return "a web page (HTML), and "
    if text.startswith((b"<?xml", b"<svg", b"{", b"[")):
        return "a text, and "
    return ""


def picture_bytes(path: Path) -> bytes:
    """Read a regular file: as many bytes as the system says that it has, for one of the kernel's may never end."""
    size = readable(path, DataError, "an image").stat().st_size
    if size > LARGEST_IMAGE:
        raise DataError(f"{path} has {size:,} bytes, expected at most {LARGEST_IMAGE:,}; save it smaller")
    with path.open("rb") as stream:
        return stream.read(size)


def _decoded_bytes(picture: "Picture", content: bytes) -> int:
    """Bytes that decoder and conversion to RGB take."""
    width, height = picture.size
    tags: dict[int, int] = getattr(picture, "tag_v2", {})  # a TIFF may have tiles far larger than the picture
    width, height = max(width, tags.get(322, 0)), max(height, tags.get(323, 0))
    if picture.format == "JPEG2000" and (start := content.find(b"\xff\x4f\xff\x51")) >= 0:
        sides = content[start + 8 : start + 16]  # of the codestream, which the file's header may understate
        width, height = (
            max(width, int.from_bytes(sides[:4], "big")),
            max(height, int.from_bytes(sides[4:], "big")),
        )
    opaque, transparent = BYTES_PER_PIXEL.get(str(picture.format), PLAIN_BYTES)
    return width * height * (transparent if picture.has_transparency_data else opaque)


_MARKER = re.compile(rb"\xff+([^\x00\xff\xd0-\xd7])")


@dataclass(frozen=True)
class _Scans:
    """Scans of a JPEG.

    Attributes:
        number: how many there are.
        unfinished: a coefficient was begun with few bits, and its other bits never come.
        end: place of the end marker; -1 if there is none.
    """

    number: int = 0
    unfinished: bool = False
    end: int = -1

    @classmethod
    def of(cls, content: bytes) -> "_Scans":
        """Walk through the markers; nothing is decoded."""
        number, place, low = 0, 2, dict[tuple[int, int], int]()
        while found := _MARKER.search(content, place):
            marker, place = found[1][0], found.end()
            if marker == 0xD9:
                return cls(number, any(low.values()), found.start())
            if marker == 0x01 or marker == 0xD8:  # no length follows
                continue
            segment = content[place : place + int.from_bytes(content[place : place + 2], "big")]
            # a length below 2 is damage, and must not hold the walk up
            place += max(2, len(segment))
            if marker == 0xDA and len(segment) > 3 and len(segment) >= 6 + 2 * segment[2]:
                number += 1
                first, last, bits = segment[3 + 2 * segment[2] :][:3]
                for component in segment[3 : 3 + 2 * segment[2] : 2]:
                    # the lower half counts the bits that later scans must bring
                    low |= {(component, each): bits & 15 for each in range(first, min(last, 63) + 1)}
        return cls(number, any(low.values()))


def _ends_early(picture: "Picture", content: bytes, end: int, at_least: int | None) -> bool:
    """Whether a JPEG's data lacks its last blocks, which the decoder then leaves grey without a word.

    A decoder that lacks data reads bytes that are put before the end marker; one that is done passes them over.
    """
    from PIL import Image

    last = picture.getpixel((picture.width - 1, picture.height - 1))
    values = last if isinstance(last, tuple) else (last,)
    if end < 0 or not set(values) <= {127, 128}:
        return False
    longer = content[:end] + b"\x5a" * 64 + content[end:]
    with Image.open(BytesIO(longer), formats=["JPEG"]) as other:  # noqa: TID251 (only here)
        if at_least is not None:
            other.draft(None, (at_least, at_least))
        other.load()
        strips = [
            (0, top, picture.width, min(top + 64, picture.height)) for top in range(0, picture.height, 64)
        ]
        return any(picture.crop(strip).tobytes() != other.crop(strip).tobytes() for strip in strips)


def with_8_bits(picture: "Picture") -> "Picture":
    """Drop the lower byte of 16-bit grey, which Pillow would clip to white; return other pictures unchanged."""
    from PIL import Image

    if not picture.mode.startswith("I;16"):
        return picture
    return Image.fromarray((np.asarray(picture) >> 8).astype(np.uint8))


def as_seen(picture: "Picture") -> "Picture":
    """Convert a picture of :func:`open_picture` to RGB as people see it: upright, and transparent parts white."""
    from PIL import Image, ImageOps

    ImageOps.exif_transpose(picture, in_place=True)  # the camera's orientation
    picture = with_8_bits(picture)
    if picture.has_transparency_data:
        white = Image.new("RGBA", picture.size, "white")
        picture = Image.alpha_composite(white, picture.convert("RGBA"))
    return picture.convert("RGB")


def picture_path(folder: Path, name: str, where: str) -> Path:
    """Path of a picture that a table names.

    Args:
        folder: folder of the pictures. Links in it are followed.
        name: path in the folder.
        where: the table, with the line if known, for errors.

    Raises:
        DataError: the path leads out of the folder.
    """
    inside = os.path.abspath(folder)
    if not Path(os.path.abspath(folder / name)).is_relative_to(inside):
        raise DataError(f"{where} names {name}, which is outside {folder}; give a path inside this folder")
    return folder / os.path.normpath(name)


@contextmanager
def no_remarks() -> Iterator[None]:
    """Silence what Pillow remarks about pictures that it decodes all the same; for the main thread only."""
    log = logging.getLogger("PIL")
    level = log.level
    log.setLevel(logging.CRITICAL)
    try:
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", module="PIL")
            yield
    finally:
        log.setLevel(level)
