"""Draw synthetic noise: images move, captions stay. A seed gives the same index on every machine (docs/protocol.md)."""

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from ncl_bench.arguments import Count, Seed, checked_arguments
from ncl_bench.errors import NoiseError, shorten, unknown_name
from ncl_bench.noise.noun import pair_by_noun
from ncl_bench.noise.similar import exchange_similar
from ncl_bench.progress import Progress, silent

NoiseUnit = Literal["caption", "image", "similar", "noun"]
UNITS: tuple[NoiseUnit, ...] = ("caption", "image", "similar", "noun")
OF_WORDS: tuple[NoiseUnit, ...] = ("similar", "noun")
"""Units whose draw reads the captions."""


@dataclass(frozen=True)
class Noise:
    """The noise of a dataset; part of every result.

    Attributes:
        unit: ``"caption"``, ``"image"``, ``"similar"``, ``"noun"``, or None for no noise.
        ratio: nominal share of moved units, in [0, 1).
        seed: seed of ``numpy.random.RandomState``; None for a noise file or no noise.
        sha256: hash of the little-endian int64 ``caption_to_image``.
        realised_ratio: share of captions whose image is not their own, in [0, 1).
        source: path of the noise file, or None for a draw.
        published: name of the shared file that was read, or None for a draw or an unknown file.
            :func:`ncl_bench.noise.files.find_known_noise` names the file that a caption-unit draw equals.
    """

    unit: NoiseUnit | None
    ratio: float
    seed: int | None
    sha256: str
    realised_ratio: float
    source: str | None = None
    published: str | None = None


def in_words(
    unit: str | None, ratio: float | None, seed: int | None, realised_ratio: float | None = None
) -> str:
    """Say a noise, such as ``caption noise of ratio 0.4 (seed 7, realised 0.3988)`` or ``natural noise``.

    Args:
        unit: as for :class:`Noise`, or ``"none"`` or ``"natural"``.
        ratio: nominal; 0 or None if nothing was drawn.
        seed: None for a noise file.
        realised_ratio: None if it is unknown.
    """
    if not ratio:
        return "no noise" if unit in (None, "none") else f"{unit} noise"
    origin = "from a file" if seed is None else f"seed {seed}"
    realised = "" if realised_ratio is None else f", realised {realised_ratio:.4f}"
    return f"{unit} noise of ratio {ratio:g} ({origin}{realised})"


@checked_arguments(NoiseError)
def inject_noise(
    caption_to_image: NDArray[np.int64],
    *,
    noise_ratio: float,
    noise_unit: NoiseUnit,
    seed: Seed,
    captions_per_image: Count,
    captions: Sequence[str] | None = None,
    progress: Progress = silent,
) -> NDArray[np.int64]:
    """Permute the images of a random share of captions, or of whole images.

    ``caption`` (NCR and its successors): ``int(ratio * n_captions)`` captions exchange their images.
    ``image`` (DECL, RCL): ``int(ratio * n_images)`` images change places, and their captions with them. No seed gives
    the files that those papers share.
    ``similar``: the captions chosen by ``caption`` exchange images with captions of similar words. All of them become
    wrong, in a way that is hard to see.
    ``noun`` (LEMoN): each caption chosen by ``caption`` takes the image of a caption with a noun in common.
    Except with ``similar``, some chosen units keep their own image, so the realised ratio is slightly below the nominal
    one.

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
    check_noise(noise_ratio, noise_unit, seed)
    clean = np.arange(len(caption_to_image)) // captions_per_image
    # drawn twice, the second ratio would not hold: some wrong pairs would become right again
    if len(caption_to_image) % captions_per_image or not np.array_equal(caption_to_image, clean):
        raise NoiseError(
            f"caption_to_image is not the clean pairing of {captions_per_image} captions per image; "
            "draw noise only once, on clean pairs"
        )
    if noise_unit in OF_WORDS:
        if captions is None or len(captions) != len(clean):
            given = "no captions" if captions is None else f"{len(captions):,} captions"
            raise NoiseError(
                f"noise unit {noise_unit} was given {given}, expected the text of each of the {len(clean):,}; "
                "pass captions=[...]"
            )
        # the captions that the unit caption draws from the same seed
        random = np.random.RandomState(seed)
        chosen = _chosen(len(clean), noise_ratio, random)
        if noise_unit == "similar":
            noisy = exchange_similar(chosen, captions, clean, progress)
        else:
            noisy = pair_by_noun(chosen, captions, clean, random)
    elif noise_unit == "caption":
        noisy = _permute_some(clean, noise_ratio, seed)
    else:
        images = np.arange(len(clean) // captions_per_image)
        # all captions of an image follow it
        noisy = np.repeat(_permute_some(images, noise_ratio, seed), captions_per_image)
    if noise_ratio > 0 and np.array_equal(noisy, caption_to_image):
        raise NoiseError(
            f"noise_ratio {noise_ratio} with seed {seed} moves none of {len(clean):,} pairs; give a larger ratio, or 0 "
            "for clean pairs"
        )
    return noisy


def check_noise(ratio: float, unit: Any, seed: int) -> None:
    """Refuse invalid noise settings.

    Args:
        ratio: in [0, 1).
        unit: ``"caption"``, ``"image"``, ``"similar"`` or ``"noun"``.
        seed: in [0, 2**32).
    """
    if unit not in UNITS:
        raise NoiseError(unknown_name("noise unit", unit, UNITS))
    if not 0 <= ratio < 1:
        raise NoiseError(f"noise_ratio is {shorten(ratio)}, expected a number in [0, 1), such as 0.4")
    if not 0 <= seed < 2**32:
        raise NoiseError(f"noise_seed is {shorten(seed)}, expected a whole number in [0, 2**32)")


def refuse_without_ratio(unit: Any, seed: Any) -> None:
    """Refuse a unit or a seed of noise that has no ratio: pairs would stay clean without a word."""
    if (unit, seed) != (None, None):
        setting = f"noise_unit {shorten(unit)}" if seed is None else f"noise_seed {shorten(seed)}"
        raise NoiseError(
            f"{setting} has no effect without noise; give noise_ratio, such as 0.4, or leave it out"
        )


def chosen_captions(n: int, ratio: float, seed: int) -> NDArray[np.int64]:
    """Captions that all units but ``image`` move, in order of the draw; int64 ``(int(ratio * n),)``."""
    # numpy has frozen RandomState's stream; a Generator's may change, and the seed with it
    return _chosen(n, ratio, np.random.RandomState(seed))


def _chosen(n: int, ratio: float, random: np.random.RandomState) -> NDArray[np.int64]:
    order = np.arange(n)
    random.shuffle(order)
    # int, not round, as in the shared files: 0.29 of 100 captions are 28, since 0.29 * 100 is 28.999...
    return order[: int(ratio * n)]


def _permute_some(values: NDArray[np.int64], ratio: float, seed: int) -> NDArray[np.int64]:
    """Permute some of the values, in place, and return the array."""
    random = np.random.RandomState(seed)
    # one shuffle chooses, the next moves; both from one stream, which makes the hashes of the shared files
    chosen = _chosen(len(values), ratio, random)
    moved = values[chosen]
    # not a derangement: about one of them gets its own image back, and more where images repeat
    random.shuffle(moved)
    values[chosen] = moved
    return values


def noise_sha256(caption_to_image: NDArray[np.int64]) -> str:
    """sha256 (hex) of the little-endian int64 array, as docs/protocol.md lists it."""
    # the number type is part of the bytes: little-endian int64 on every machine
    return hashlib.sha256(np.ascontiguousarray(caption_to_image, dtype="<i8").data).hexdigest()


def clean_pairing(n_images: int, captions_per_image: int) -> NDArray[np.int64]:
    """Pairing before noise: caption ``c`` belongs to image ``c // captions_per_image``."""
    return np.repeat(np.arange(n_images, dtype=np.int64), captions_per_image)


def clean_record(caption_to_image: NDArray[np.int64]) -> Noise:
    """Record of a clean pairing."""
    return Noise(None, 0.0, None, noise_sha256(caption_to_image), 0.0)


def draw_noise(
    n_images: int,
    captions_per_image: int,
    *,
    noise_ratio: float,
    noise_unit: NoiseUnit,
    seed: int,
    captions: Sequence[str] | None = None,
    progress: Progress = silent,
) -> tuple[NDArray[np.int64], Noise]:
    """Draw the noise of a train split; :meth:`ncl_bench.data.spec.DatasetSpec.draw_noise` fills in a dataset's sizes.

    Args:
        n_images: number of images of the split.
        captions_per_image: number of captions per image.
        noise_ratio: nominal share, in [0, 1).
        noise_unit: ``"caption"``, ``"image"``, ``"similar"`` or ``"noun"``.
        seed: in [0, 2**32).
        captions: texts of all captions; only ``similar`` and ``noun`` need them.
        progress: reports the captions that ``similar`` has compared.

    Returns:
        ``caption_to_image`` int64 ``(n_captions,)``, and its record.
    """
    clean = clean_pairing(n_images, captions_per_image)
    noisy = inject_noise(
        clean,
        noise_ratio=noise_ratio,
        noise_unit=noise_unit,
        seed=seed,
        captions_per_image=captions_per_image,
        captions=captions,
        progress=progress,
    )
    # papers print the nominal ratio; what a network sees is this one
    realised = float(np.mean(noisy != clean))
    return noisy, Noise(noise_unit, noise_ratio, seed, noise_sha256(noisy), realised)
