"""One image file of a user's: decoded upright in RGB on white and stretched to a square, or a sentence why not."""

from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from PIL import Image, ImageOps, UnidentifiedImageError

from ncl_bench.errors import DataError

LARGEST_PICTURE = 100_000_000
"""Pixels to decode; of a large JPEG these are a half, a quarter or an eighth of those on each side."""

NAMES = ("JPEG", "PNG", "WEBP", "GIF", "BMP", "TIFF", "JPEG2000", "AVIF", "PPM")


def read_picture(path: Path, size: int, interpolation: str) -> NDArray[np.uint8]:
    """An image as an encoder sees it: all of it, whatever its shape, squeezed into a square.

    The orientation that a camera noted is followed, transparent parts are white, grey becomes RGB, 16-bit grey loses
    its lower byte, and of an animation the first picture counts.

    Args:
        path: a file of one of :data:`NAMES`.
        size: of the square's sides, in pixels.
        interpolation: ``bilinear`` or ``bicubic``.

    Returns:
        RGB values, ``(size, size, 3)``.

    Raises:
        DataError: it is missing, no image, damaged, too large, or of numbers that are no colours.
    """
    try:
        with Image.open(path, formats=_formats()) as image:
            image.draft(None, (2 * size, 2 * size))
            if image.width * image.height > LARGEST_PICTURE:
                raise Image.DecompressionBombError
            if image.mode in ("I", "F"):
                raise DataError(f"{path} holds numbers of 32 bits, expected colours; save it with 8 bits")
            picture = _on_white(ImageOps.exif_transpose(image))
            return np.asarray(picture.resize((size, size), Image.Resampling[interpolation.upper()]))
    except DataError:
        raise
    except FileNotFoundError:
        raise DataError(f"{path} does not exist; correct its name or fetch it") from None
    except UnidentifiedImageError:
        raise DataError(f"{path} is no image of a known kind ({', '.join(NAMES)}); convert it") from None
    except Image.DecompressionBombError:
        raise DataError(
            f"{path} claims more than {LARGEST_PICTURE // 10**6} million pixels; save it smaller"
        ) from None
    except Exception as error:  # the decoders raise many classes at damaged bytes
        reason = str(error) or type(error).__name__
        raise DataError(f"{path} is damaged ({reason}); fetch it again") from None


def _formats() -> list[str]:
    """Formats that this Pillow can read; others, such as EPS, would start programs."""
    Image.init()
    return [name for name in NAMES if name in Image.OPEN]


def _on_white(image: Image.Image) -> Image.Image:
    if image.mode.startswith("I;16"):
        return Image.fromarray((np.asarray(image) >> 8).astype(np.uint8)).convert("RGB")
    if image.has_transparency_data:
        seen = image.convert("RGBA")
        white = Image.new("RGBA", seen.size, "white")
        white.alpha_composite(seen)
        image = white
    return image.convert("RGB")
