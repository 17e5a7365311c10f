"""Read a noise file without ever reinterpreting it (protocol.md)."""

from math import ceil, sqrt
from pathlib import Path
from tokenize import TokenError
from typing import IO, TYPE_CHECKING, Any

import numpy as np
from numpy.lib import format as npy_format
from numpy.typing import NDArray

from ncl_bench.errors import NoiseError, unknown_name
from ncl_bench.noise import UNITS, NoiseRecord, NoiseUnit, clean_pairing, noise_sha256
from ncl_bench.published_noise import find_published

if TYPE_CHECKING:
    from ncl_bench.datasets.spec import DatasetSpec

_RATIO_STEPS = (0.1, 0.05, 0.01)
_REMEDY = "give a file that numpy.save wrote from a one-dimensional int64 array"


def nominal_ratios(n_moved: int, n_units: int) -> list[float]:
    """Ratios from which a number of wrong units can come, likeliest first; 0 alone for none.

    A permutation of captions, five of each image at most, gives ``1 + 4 ratio`` of them their own image back
    on average, so slightly more were chosen than are wrong. Papers use round ratios, so those come first.

    Args:
        n_moved: units whose image is not their own.
        n_units: captions, or images.
    """
    if n_moved == 0:
        return [0.0]
    found: list[float] = []
    for step in _RATIO_STEPS:
        steps = (round(k * step, 2) for k in range(1, round(1 / step)))
        found += [ratio for ratio in steps if ratio not in found and _explains(ratio, n_moved, n_units)]
    return found


def _explains(ratio: float, n_moved: int, n_units: int) -> bool:
    back = 1 + 4 * ratio
    return 0 <= int(ratio * n_units) - n_moved <= ceil(back + 5 * sqrt(back))


def read_noise_file(
    path: Path, spec: "DatasetSpec", unit: NoiseUnit
) -> tuple[NDArray[np.int64], NoiseRecord]:
    """Read the noise of a dataset's train split.

    Args:
        path: an ``.npy`` file of int64: the image of every caption, or, for the image unit, the image of
            every image or of every caption if all captions of an image agree.
        spec: which dataset.
        unit: what the file is meant to move.

    Returns:
        ``caption_to_image`` int64 ``(n_captions,)``, and its record; its ratio is the published or likeliest
        nominal one, or else the realised one.

    Raises:
        NoiseError: missing, no plain npy file, cut short, or of another length, type, range or unit.
    """
    if unit not in UNITS:
        raise NoiseError(unknown_name("noise unit", unit, UNITS))
    index = read_index(path)
    check_index(index, path, spec, unit)
    n_images, each = spec.images["train"], spec.captions_per_image
    units = index[::each] if unit == "image" and len(index) > n_images else index
    caption_to_image = np.repeat(units, each) if unit == "image" else units
    realised = float(np.mean(caption_to_image != clean_pairing(n_images, each)))
    published = find_published(units)
    if published is not None:
        ratio = published.ratio
    else:
        ratio = next(iter(nominal_ratios(round(realised * len(units)), len(units))), realised)
    return caption_to_image, NoiseRecord(
        unit, ratio, None, noise_sha256(caption_to_image), realised, str(path)
    )


def check_index(index: NDArray[np.int64], path: Path, spec: "DatasetSpec", unit: NoiseUnit) -> None:
    """Refuse an index of another length, range or unit.

    Raises:
        NoiseError: with the reason.
    """
    n_images, n_captions, each = spec.images["train"], spec.n_captions("train"), spec.captions_per_image
    train = f"{spec.name}/train"
    remake = f"rebuild it with `ncl-bench noise make {spec.name} --unit {unit}`"
    if unit == "caption" and len(index) == n_images != n_captions:
        raise NoiseError(
            f"noise file {path} has {len(index)} entries, {train} has {n_captions} captions; it is an "
            f"image-level index: load it with noise_unit='image', or {remake}"
        )
    if len(index) not in {n_captions, n_images if unit == "image" else n_captions}:
        expected = f"{n_captions} captions" + (f" and {n_images} images" if unit == "image" else "")
        raise NoiseError(f"noise file {path} has {len(index)} entries, {train} has {expected}; {remake}")
    wrong = np.flatnonzero((index < 0) | (index >= n_images))
    if len(wrong):
        raise NoiseError(
            f"noise file {path} holds {index[wrong[0]]} at entry {wrong[0]}, "
            f"{train} has images 0 to {n_images - 1}; {remake}"
        )
    if len(index) != n_captions or each == 1:
        return
    whole_images = is_constant_in_groups(index, each)
    if unit == "image" and not whole_images:
        raise NoiseError(
            f"noise file {path} moves captions one by one, expected all {each} captions of an image to move "
            f"together; load it with noise_unit='caption', or {remake}"
        )
    if unit == "caption" and whole_images and not np.array_equal(index, clean_pairing(n_images, each)):
        raise NoiseError(
            f"noise file {path} moves all {each} captions of an image together: it is image-level although "
            f"it has one entry per caption; load it with noise_unit='image', or {remake}"
        )


def is_constant_in_groups(index: NDArray[np.int64], captions_per_image: int) -> bool:
    """Whether all captions of every image are paired with the same image."""
    groups = index.reshape(-1, captions_per_image)
    return bool((groups == groups[:, :1]).all())


def read_index(path: Path) -> NDArray[np.int64]:
    """A one-dimensional int64 array from an ``.npy`` file; nothing in it is ever executed.

    Raises:
        NoiseError: missing, no plain npy file, cut short, or of another type or shape.
    """
    try:
        with path.open("rb") as stream:
            shape, dtype = _header(stream, path)
            if dtype.hasobject:
                raise NoiseError(
                    f"noise file {path} holds pickled objects, which are never loaded; {_REMEDY}"
                )
            if dtype != np.dtype("<i8") or len(shape) != 1:
                raise NoiseError(f"noise file {path} holds {dtype} of shape {shape}; {_REMEDY}")
            content = stream.read()
    except FileNotFoundError:
        raise NoiseError(_missing(path)) from None
    except OSError as error:
        raise NoiseError(f"noise file {path} cannot be read ({error.strerror}); {_REMEDY}") from None
    if len(content) != 8 * shape[0]:
        raise NoiseError(
            f"noise file {path} holds {len(content)} bytes of numbers, its header promises {8 * shape[0]}; "
            "it was cut short or added to: fetch it again"
        )
    return np.frombuffer(content, "<i8").astype(np.int64)


def _missing(path: Path) -> str:
    suffixed = path.with_name(path.name + ".npy")
    hint = f"did you mean {suffixed.name}?" if suffixed.exists() else "give the path of an existing file"
    return f"noise file {path} does not exist; noise is never redrawn instead: {hint}"


def _header(stream: IO[bytes], path: Path) -> tuple[tuple[int, ...], np.dtype[Any]]:
    readers = {(1, 0): npy_format.read_array_header_1_0, (2, 0): npy_format.read_array_header_2_0}
    try:
        shape, _, dtype = readers[npy_format.read_magic(stream)](stream)
    except (ValueError, KeyError, EOFError, SyntaxError, TokenError, RecursionError):
        raise NoiseError(f"noise file {path} is not a numpy .npy file; {_REMEDY}") from None
    return shape, dtype
