"""Units of noise: what a draw moves. Each stands in its own file, registered by name (docs/add-a-unit-of-noise.md)."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ncl_bench.errors import NoiseError, named, shorten, unknown_name
from ncl_bench.npy import Int64Array
from ncl_bench.plugins import Registry
from ncl_bench.progress import Progress

NoiseUnit = str
"""Name of a unit: a key of :data:`UNITS`."""


@dataclass(frozen=True)
class Task:
    """What a unit draws from.

    Attributes:
        clean: int64 ``(n_captions,)``, the clean pairing ``c // captions_per_image``; a copy that may be changed.
        captions_per_image: number of captions of every image.
        ratio: nominal share to move, in [0, 1).
        random: source of every choice; a fresh generator of the seed.
        captions: text of every caption; empty unless the unit reads them.
        progress: reports the captions done, where a draw takes minutes.
    """

    clean: Int64Array
    captions_per_image: int
    ratio: float
    random: np.random.RandomState
    captions: Sequence[str]
    progress: Progress


@dataclass(frozen=True)
class Unit:
    """A unit of noise.

    Attributes:
        name: its name in options, records and results, such as ``caption``.
        title: what happens to a share of the pairs, such as ``captions moved``.
        draw: returns the noisy pairing, int64 ``(n_captions,)``; None if the pairing comes from a file.
        reads_captions: whether ``draw`` reads the captions' texts.
        exchanges: whether every image keeps its number of captions.
        whole_images: whether all captions of an image move together.
    """

    name: str
    title: str
    draw: Callable[[Task], Int64Array] | None = field(compare=False)  # a cell of a notebook runs again
    reads_captions: bool = False
    exchanges: bool = True
    whole_images: bool = False


UNITS: Registry[Unit] = Registry("noise unit")
"""Every unit by its name; :func:`ncl_bench.noise.register` adds one."""


def unit_of(name: object, *, drawn: bool = True) -> Unit:
    """Return a unit by its name, in any case.

    Args:
        name: key of :data:`UNITS`.
        drawn: refuse units that come from a file only.
    """
    unit = UNITS.get(str(name).lower())
    drawable = [each for each, its in UNITS.items() if its.draw or not drawn]
    if unit is None:
        raise NoiseError(unknown_name("noise unit", name, drawable))
    if drawn and unit.draw is None:
        raise NoiseError(
            f"noise of unit {name} is not drawn; give its file with {named('noise_file')}, or choose one of: "
            f"{', '.join(drawable)}"
        )
    return unit


def choose(n: int, ratio: float, random: np.random.RandomState) -> Int64Array:
    """Choose ``int(ratio * n)`` of ``n`` captions or images; int64, in the order of the draw."""
    order = np.arange(n)
    random.shuffle(order)
    # int, not round, as in the shared files: 0.29 of 100 captions are 28, since 0.29 * 100 is 28.999...
    return order[: int(ratio * n)]


def permute_some(values: Int64Array, ratio: float, random: np.random.RandomState) -> Int64Array:
    """Permute a share of the values, in place, and return the array."""
    # one shuffle chooses, the next moves; both from one stream, which makes the hashes of the shared files
    chosen = choose(len(values), ratio, random)
    moved = values[chosen]
    # not a derangement: about one of them gets its own image back, and more where images repeat
    random.shuffle(moved)
    values[chosen] = moved
    return values


def check_pairing(index: NDArray[Any], size: tuple[int, int], unit: Unit, where: str) -> None:
    """Refuse an array that is no noise of a unit.

    Args:
        index: image of every caption; or of every image, for one caption per image.
        size: number of images, and of captions per image.
        unit: unit that it should be of.
        where: what holds the array, as the sentence names it.
    """
    n_images, each = size
    if fault := _fault(index, n_images, each, unit):
        raise NoiseError(f"{where} is no noise of unit {unit.name}: {fault}")


def _fault(index: NDArray[Any], n_images: int, each: int, unit: Unit) -> str:
    if index.shape != (n_images * each,) or index.dtype != np.int64:
        return f"it holds {index.dtype} of shape {index.shape}, expected int64 of shape ({n_images * each},)"
    # In silence a mask, labels, positions or counting from 1 would be trained on as noise of nearly every caption.
    inside = index.min() >= 0 and index.max() < n_images  # counts of a value far beyond would fill the memory
    counts = np.bincount(index if inside else index[:0], minlength=n_images)
    if not ((counts == each).all() if unit.exchanges else np.count_nonzero(counts) > n_images / 2):
        return _what_it_is(index, n_images, each, unit)
    right = np.count_nonzero(index == np.arange(len(index)) // each)
    # a shuffled order leaves `each` pairs right on average, nearly as a Poisson draws them
    if unit.draw is None and len(index) >= 100 and right <= each + 5 * each**0.5:
        return (
            f"it leaves {right:,} of {len(index):,} pairs right, as a shuffled order of rows does; expected the image "
            "that each caption is paired with, many of them their own"
        )
    return ""


def _what_it_is(index: Int64Array, n_images: int, each: int, unit: Unit) -> str:
    """Say what an array is that is no index of images, and what it serves for."""
    if len(values := np.unique(index)) <= 2:
        return (
            f"it holds {' and '.join(map(str, values))} alone, a mask of right and wrong pairs; train on the right "
            f"ones with `train.subset(mask == {values[-1]})`, or write their rows to a table and give it to "
            "`datasets new --clean`"
        )
    low, high = int(index.min()), int(index.max())
    if low == 1 and high == n_images:
        return f"it counts images from 1 to {n_images}, expected 0 to {n_images - 1}; save index - 1"
    if each > 1 and low >= 0 and np.array_equal(np.sort(index), np.arange(len(index))):
        return f"it holds positions of captions, expected images 0 to {n_images - 1}; save index // {each}"
    if low < 0 or high >= n_images:
        place = int(np.flatnonzero((index < 0) | (index >= n_images))[0])
        return f"it holds {shorten(int(index[place]))} at entry {place}, expected images 0 to {n_images - 1}"
    used = len(values)
    told = (
        f"it pairs captions with {used:,} of {n_images:,} images, and an exchange leaves every image {each}"
    )
    if used <= n_images / 2:
        return f"{told}; labels or groups of captions are no index"
    return f"{told}; if your noise repeats images on purpose, as noun does, give noise_unit='file'"
