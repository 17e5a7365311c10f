"""Draw synthetic noise: images move, captions stay. A seed gives the same index on every machine (docs/protocol.md)."""

import hashlib
import re
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from ncl_bench.arguments import Count, Seed, checked_arguments
from ncl_bench.errors import NoiseError, named, shorten
from ncl_bench.noise.unit import UNITS as UNITS
from ncl_bench.noise.unit import NoiseUnit as NoiseUnit
from ncl_bench.noise.unit import Task, check_pairing, choose, unit_of
from ncl_bench.npy import Int64Array
from ncl_bench.progress import Progress, silent


@dataclass(frozen=True)
class Noise:
    """The noise of a dataset; part of every result.

    Attributes:
        unit: key of :data:`UNITS`, such as ``"caption"``; ``"file"`` for a file that is neither shared by a paper nor
            drawn; None for no noise.
        ratio: nominal share of moved units, in [0, 1).
        seed: seed of ``numpy.random.RandomState``; None for a noise file or no noise.
        sha256: hash of the little-endian int64 ``caption_to_image``; empty before the draw.
        realised_ratio: share of captions whose image is not their own, in [0, 1).
        source: path of the noise file, or None for a draw.
        published: name of the shared file that was read, or None for a draw or an unknown file.
            :func:`ncl_bench.noise.files.find_known_noise` names the file that a caption-unit draw equals.
    """

    unit: NoiseUnit | None
    ratio: float
    seed: int | None = None
    sha256: str = ""
    realised_ratio: float = 0.0
    source: str | None = None
    published: str | None = None

    @classmethod
    def parse(cls, name: str) -> "Noise":
        """Read a noise that is to be drawn: unit and per cent, such as ``caption-40``, or ``none``."""
        if name == "none":
            return cls(None, 0.0)
        drawn = [unit.name for unit in UNITS.values() if unit.draw]
        match = re.fullmatch(rf"({'|'.join(drawn)})-([1-9]\d?)", name)
        if match is None:
            examples = ", ".join(f"{unit}-40" for unit in drawn)
            raise NoiseError(f"noise {name!r}: expected none, or unit and per cent: {examples}")
        return cls(match[1], int(match[2]) / 100)

    @classmethod
    def asked(cls, noise_ratio: float | None, noise_unit: str | None, noise_seed: int | None) -> "Noise":
        """Return the noise that a call asks for, not drawn yet; a ratio of 0 asks for clean pairs.

        Args:
            noise_ratio: in [0, 1), or None for clean pairs.
            noise_unit: name of a unit that is drawn (default: ``caption``).
            noise_seed: in [0, 2**32), or None for the protocol's.
        """
        unit = unit_of(noise_unit or "caption")
        if noise_ratio is None and (noise_unit, noise_seed) != (None, None):
            # in silence the pairs would stay clean
            setting = (
                named("noise_unit", noise_unit) if noise_seed is None else named("noise_seed", noise_seed)
            )
            raise NoiseError(
                f"{setting} has no effect without noise; give {named('noise_ratio', 0.4)}, or leave it out"
            )
        ratio = noise_ratio or 0.0
        if not 0 <= ratio < 1:
            raise NoiseError(
                f"{named('noise_ratio', shorten(ratio))}: expected a number in [0, 1), such as 0.4"
            )
        if not 0 <= (noise_seed or 0) < 2**32:
            raise NoiseError(
                f"{named('noise_seed', shorten(noise_seed))}: expected a whole number in [0, 2**32)"
            )
        return cls(unit.name, ratio, noise_seed) if ratio else cls(None, 0.0)


@checked_arguments(NoiseError)
def inject_noise(
    caption_to_image: Int64Array,
    *,
    noise_ratio: float,
    noise_unit: NoiseUnit,
    seed: Seed,
    captions_per_image: Count,
    captions: Sequence[str] | None = None,
    progress: Progress = silent,
) -> Int64Array:
    """Permute the images of a random share of captions, or of whole images.

    ``caption`` (NCR and its successors): ``int(ratio * n_captions)`` captions exchange their images.
    ``image`` (DECL, RCL): ``int(ratio * n_images)`` images change places, and their captions with them. No seed gives
    the files that those papers share.
    ``similar``: the captions chosen by ``caption`` exchange images with captions of similar words. All of them become
    wrong, in a way that is hard to see.
    ``noun`` (LEMoN): each caption chosen by ``caption`` takes the image of a caption with a noun in common.
    Except with ``similar``, some chosen units keep their own image, so the realised ratio is slightly below the nominal
    one. Other units may be registered (docs/add-a-unit-of-noise.md).

    Example::

        >>> import numpy as np
        >>> from ncl_bench import inject_noise
        >>> clean = np.arange(50) // 5  # ten images of five captions each
        >>> noisy = inject_noise(clean, noise_ratio=0.4, noise_unit="caption", seed=0, captions_per_image=5)
        >>> int((noisy != clean).sum())
        18

    Args:
        caption_to_image: int64 ``(n_captions,)``, the clean pairing ``c // captions_per_image``.
        noise_ratio: nominal share, in [0, 1).
        noise_unit: ``"caption"``, ``"image"``, ``"similar"`` or ``"noun"``.
        seed: seed of ``numpy.random.RandomState``, whose stream numpy has frozen; in [0, 2**32).
        captions_per_image: number of captions per image.
        captions: texts of all captions; only ``similar`` and ``noun`` need them.
        progress: reports the captions that ``similar`` has compared.

    Returns:
        A new int64 array of the same length.
    """
    unit = unit_of(noise_unit)
    Noise.asked(noise_ratio, noise_unit, seed)
    clean = np.arange(len(caption_to_image)) // captions_per_image
    # drawn twice, the second ratio would not hold: some wrong pairs would become right again
    if len(caption_to_image) % captions_per_image or not np.array_equal(caption_to_image, clean):
        raise NoiseError(
            f"caption_to_image is not the clean pairing of {captions_per_image} captions per image; "
            "draw noise only once, on clean pairs"
        )
    if unit.reads_captions and (captions is None or len(captions) != len(clean)):
        given = "no captions" if captions is None else f"{len(captions):,} captions"
        raise NoiseError(
            f"noise unit {unit.name} was given {given}, expected the text of each of the {len(clean):,}; "
            "pass captions=[...]"
        )
    # numpy has frozen RandomState's stream; a Generator's may change, and the seed with it
    random = np.random.RandomState(seed)
    assert unit.draw is not None
    noisy = unit.draw(Task(clean.copy(), captions_per_image, noise_ratio, random, captions or (), progress))
    if len(clean):
        size = len(clean) // captions_per_image, captions_per_image
        check_pairing(noisy, size, unit, f"draw of {noise_ratio:g}")
    if noise_ratio > 0 and np.array_equal(noisy, clean):
        raise NoiseError(
            f"{named('noise_ratio', noise_ratio)} with seed {seed} moves none of {len(clean):,} pairs; give a "
            "larger ratio, or 0 "
            "for clean pairs"
        )
    return noisy


def chosen_captions(n: int, ratio: float, seed: int) -> Int64Array:
    """Captions that all units but ``image`` move, in order of the draw; int64 ``(int(ratio * n),)``."""
    return choose(n, ratio, np.random.RandomState(seed))


def noise_sha256(caption_to_image: Int64Array) -> str:
    """sha256 (hex) of the little-endian int64 array, as docs/protocol.md lists it."""
    # the number type is part of the bytes: little-endian int64 on every machine
    return hashlib.sha256(np.ascontiguousarray(caption_to_image, dtype="<i8").data).hexdigest()


def clean_pairing(n_images: int, captions_per_image: int) -> Int64Array:
    """Pairing before noise: caption ``c`` belongs to image ``c // captions_per_image``."""
    return np.repeat(np.arange(n_images, dtype=np.int64), captions_per_image)


def clean_record(caption_to_image: Int64Array) -> Noise:
    """Record of a clean pairing."""
    return Noise(None, 0.0, None, noise_sha256(caption_to_image), 0.0)


def record_of(noisy: Int64Array, captions_per_image: int, unit: str, ratio: float, seed: int | None) -> Noise:
    """Record of a pairing that was drawn or read; arguments as in :class:`Noise`."""
    # papers print the nominal ratio; what a network sees is this one
    realised = float(np.mean(noisy != np.arange(len(noisy)) // captions_per_image))
    return Noise(unit, ratio, seed, noise_sha256(noisy), realised)
