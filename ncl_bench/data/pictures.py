"""Open pictures from strangers: by one function, in a few formats, within a limit, decoded whole or refused."""

import logging
import os
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from io import BytesIO
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from ncl_bench.errors import DataError
from ncl_bench.files import readable

if TYPE_CHECKING:
    from PIL.Image import Image as Picture

FORMATS = ("JPEG", "PNG", "WEBP", "GIF", "BMP", "TIFF", "JPEG2000", "AVIF", "PPM")
"""Formats that libraries inside Pillow decode. Others start programs: Pillow gives EPS to Ghostscript."""
HEAD = 1_000
"""First bytes of a file that tell what it is."""
LARGEST = 300_000_000
"""Largest decoded picture, in bytes: 100 million pixels of three channels, 75 million of four."""


@contextmanager
def open_picture(
    source: Path | bytes, name: str | None = None, *, at_least: int | None = None
) -> Iterator["Picture"]:
    """Open a picture and decode all of it; an error of the block is one of the picture too.

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

    Image.init()
    name = name or str(source)
    known = [each for each in FORMATS if each in Image.OPEN]
    file = BytesIO(source) if isinstance(source, bytes) else readable(source, DataError, "an image")
    try:
        with Image.open(file, formats=known) as picture:  # noqa: TID251 (the only place)
            if at_least is not None:
                picture.draft(None, (at_least, at_least))
            if _decoded_size(picture) > LARGEST:
                raise Image.DecompressionBombError
            if picture.mode in ("I", "F"):
                raise DataError(
                    f"{name} has 32-bit values, expected colours; save it with 8 bits per channel"
                )
            picture.load()
            yield picture
    except DataError:
        raise
    except UnidentifiedImageError:
        raise DataError(
            f"{name} is {_kind_of(source)}not an image of a known format ({', '.join(known)}); fetch it again or "
            "convert it"
        ) from None
    except Image.DecompressionBombError:
        size = f"{LARGEST / 1e6:.0f} MB ({LARGEST / 3e6:.0f} million pixels of three channels)"
        raise DataError(f"{name} takes more than {size} when decoded; save it smaller") from None
    except Exception as error:  # decoders raise many types for damaged bytes
        if isinstance(error, OSError) and error.errno:  # the system's, not a decoder's
            raise DataError(f"{name} cannot be read ({error.strerror}); make it readable") from None
        raise DataError(f"{name} is damaged ({str(error) or type(error).__name__}); fetch it again") from None


def _kind_of(source: Path | bytes) -> str:
    """What a file is that is no image, as far as its first bytes tell; a server may have sent a page in its place."""
    if isinstance(source, bytes):
        head = source[:HEAD]
    else:
        with source.open("rb") as stream:
            head = stream.read(HEAD)
    text = head.lstrip(b"\xef\xbb\xbf \t\r\n").lower()
    if text.startswith((b"<!doctype html", b"<html", b"<head", b"<body")):
        return "a web page (HTML), and "
    if text.startswith((b"<?xml", b"<svg", b"{", b"[")):
        return "a text, and "
    return ""


def _decoded_size(picture: "Picture") -> int:
    """Bytes of a picture once it has colours; transparency is a fourth channel."""
    tags: dict[int, int] = getattr(picture, "tag_v2", {})  # a TIFF may have tiles far larger than the picture
    width, height = max(picture.width, tags.get(322, 0)), max(picture.height, tags.get(323, 0))
    return width * height * (4 if picture.has_transparency_data else max(3, len(picture.getbands())))


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
