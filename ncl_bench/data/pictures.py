"""Open pictures from strangers: by one function, in a few formats, within a limit; damage that shows is refused."""

import os
import re
from collections.abc import Iterator
from contextlib import contextmanager
from io import BytesIO
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from ncl_bench.errors import DataError
from ncl_bench.foreign import readable, reading

if TYPE_CHECKING:
    from PIL.Image import Image as Picture

PICTURE_FORMATS = ("JPEG", "PNG", "WEBP", "GIF", "BMP", "TIFF", "JPEG2000", "AVIF", "PPM")
"""Formats that libraries inside Pillow decode. Others start programs: Pillow gives EPS to Ghostscript."""
HEAD = 1_000
"""First bytes of a file that tell what it is."""
LARGEST_IMAGE = 600_000_000
"""Most bytes of a picture's file."""
MOST_PIXELS = 75_000_000
"""Most pixels of a picture by its header. What a header does not say, a worker's limits stop."""


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
    content = source if isinstance(source, bytes) else picture_bytes(source)
    with reading(name, fix="fetch it again"):
        try:
            picture = Image.open(BytesIO(content), formats=known)  # noqa: TID251 (only here)
        except UnidentifiedImageError:
            raise DataError(
                f"{name} is {_kind_of(content)}not an image of a known format ({', '.join(known)}); fetch it again or "
                "convert it"
            ) from None
        with picture:
            if picture.width * picture.height > MOST_PIXELS:
                raise DataError(f"{name} has more than {MOST_PIXELS:,} pixels; save it smaller")
            if picture.mode in ("I", "F"):
                raise DataError(
                    f"{name} has 32-bit values, expected colours; save it with 8 bits per channel"
                )
            if at_least is not None:
                picture.draft(None, (at_least, at_least))
            picture.load()
            # MPO is a JPEG with more pictures behind it
            if picture.format in ("JPEG", "MPO") and _is_cut(picture, content, at_least):
                raise ValueError("its data ends before the picture does")
            yield picture


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


_MARKER = re.compile(rb"\xff+([^\x00\xff\xd0-\xd7])")


def _is_cut(picture: "Picture", content: bytes, at_least: int | None) -> bool:
    """Whether a JPEG lacks its last scans, or its last blocks, which the decoder leaves grey without a word."""
    position, low, end = 2, dict[tuple[int, int], int](), -1
    while end < 0 and (match := _MARKER.search(content, position)):
        marker, position = match[1][0], match.end()
        if marker == 0xD9:
            end = match.start()
        elif marker not in (0x01, 0xD8):  # no length follows these
            segment = content[position : position + int.from_bytes(content[position : position + 2], "big")]
            # a length below 2 is damage, and must not hold the walk up
            position += max(2, len(segment))
            if marker == 0xDA and len(segment) > 3 and len(segment) >= 6 + 2 * segment[2]:
                first, last, bits = segment[3 + 2 * segment[2] :][:3]
                for component in segment[3 : 3 + 2 * segment[2] : 2]:
                    # the lower half counts the bits that later scans must bring
                    low |= {(component, each): bits & 15 for each in range(first, min(last, 63) + 1)}
    return any(low.values()) or _ends_early(picture, content, end, at_least)


def _ends_early(picture: "Picture", content: bytes, end: int, at_least: int | None) -> bool:
    """Whether a JPEG's data lacks its last blocks, which the decoder then leaves grey without a word.

    A decoder that lacks data reads bytes that are put before the end marker; one that is done passes them over.
    """
    from PIL import Image, ImageChops

    last = np.asarray(picture.getpixel((picture.width - 1, picture.height - 1)))
    if end < 0 or not np.isin(last, (127, 128)).all():
        return False
    longer = content[:end] + b"\x5a" * 64 + content[end:]
    with Image.open(BytesIO(longer), formats=["JPEG"]) as other:  # noqa: TID251 (only here)
        if at_least is not None:
            other.draft(None, (at_least, at_least))
        other.load()
        return ImageChops.difference(picture, other).getbbox() is not None


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


def read_picture(
    source: Path | bytes, name: str, size: int, interpolation: str, crop: bool = False
) -> NDArray[np.uint8]:
    """Read an image as encoders expect it: the whole image, squeezed into a square, or the square in its middle.

    The camera's orientation is applied, transparency becomes white, grey becomes RGB, 16-bit grey loses its lower byte,
    and the first picture of an animation is used.

    Args:
        source: a file in one of :data:`PICTURE_FORMATS`, or its bytes.
        name: what errors call it.
        size: side of the square, in pixels.
        interpolation: ``bilinear`` or ``bicubic``.
        crop: cut the middle out, as CLIP does, in place of squeezing.

    Returns:
        RGB values, uint8 ``(size, size, 3)``.

    Raises:
        DataError: the file is missing, not an image, damaged, too large, or has no colour values.
    """
    from PIL import Image, ImageOps

    with open_picture(source, name, at_least=2 * size) as picture:
        seen, filter_ = as_seen(picture), Image.Resampling[interpolation.upper()]
        small = ImageOps.fit(seen, (size, size), filter_) if crop else seen.resize((size, size), filter_)
        return np.asarray(small)


def read_thumbnail(source: Path | bytes, name: str, side: int) -> bytes:
    """A JPEG of a picture whose longer side has so many pixels."""
    stream = BytesIO()
    # twice as large as shown: decoding a JPEG at a fraction of its size is fast, and shrinking the rest keeps it sharp
    with open_picture(source, name, at_least=2 * side) as picture:
        small = as_seen(picture)
    small.thumbnail((side, side))
    small.save(stream, "JPEG", quality=80)
    return stream.getvalue()


def check_picture(source: Path | bytes, name: str) -> None:
    """Decode a picture once, so that a damaged one is found now and not in training."""
    with open_picture(source, name):
        pass


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
