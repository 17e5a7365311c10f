"""Noise files: those that papers share, known by their hashes, and how any is read (protocol.md).

A seed draws the shared files of the caption unit bit for bit. No known seed draws those of the image unit: whoever
wants the noise of DECL, RCL or L2RM has to use their file, and results with noise drawn here are not comparable with
theirs. A file that does not fit is refused, never reinterpreted.
"""

from dataclasses import dataclass
from math import ceil, sqrt
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from ncl_bench.errors import NoiseError, ScoresError, unknown_name
from ncl_bench.noise.draw import UNITS, NoiseRecord, NoiseUnit, NoisyDataset, clean_pairing, noise_sha256
from ncl_bench.npy import map_npy, read_header

_RATIO_STEPS = (0.1, 0.05, 0.01)
_CAPTION_FILES = """
f30k_precomp_0.2.npy     0.2  96  4d367b559264595097fff46cf1314e54e4f262e0139ffbf77a70e32746c13ee7
f30k_precomp_0.4.npy     0.4  96  8152f92aa51c5afc86bdaae64d228d975d994bdcf0724b645ed3c69969a4ddc0
f30k_precomp_0.5.npy     0.5  34  9db257937b57de99f1522092ca419f730e2a804ab9154671bf32d28c3be1db19
f30k_precomp_0.6.npy     0.6  96  bcf16a227419634d3cb3672c83b243c6fce07cd9fc0fc8fc406ebede158b05e2
f30k_precomp_0.2.np.npy  0.2  0   dac69ddddd705261fa8712e12b0a1e574f1d041475687484779c70da10f4fd93
coco_precomp_0.2.npy     0.2  16  a0ca6052556963d637c597ada5837a5e899c70ea63b3ed540dc3ce4a0cac11cc
coco_precomp_0.4.npy     0.4  96  9f674ad089f7d375d8aad51638b6621b26d321f45944e745662d5afc10091870
coco_precomp_0.5.npy     0.5  43  ba9658be353a59e3cef88ae3c07abec633ccf1af6d083233ad4839075e290149
coco_precomp_0.6.npy     0.6  96  7be1266823f938e4165bd6dd5f1ced12124a37e78254f63f54c78eafe99071bb
"""
_IMAGE_FILES = """
flickr30k  0.2  57bbe16579cb1d5a
flickr30k  0.4  de930360e0960173
flickr30k  0.5  3f2d2e147e9e77f9
flickr30k  0.6  8f66dbdcb16bec68
flickr30k  0.8  2d7c78a417168384
coco       0.2  0b1a905728231970
coco       0.4  2a6c9f0df8be6869
coco       0.5  7948491d3cd16aa3
coco       0.6  e6a6aca04c7feed7
coco       0.8  5c7f830f87069aef
"""


@dataclass(frozen=True)
class KnownNoise:
    """A noise file that a paper's repository shares.

    Attributes:
        title: which file of whom.
        dataset: its name.
        unit: ``"caption"`` (BiCro, PC2) or ``"image"`` (RCL; L2RM repeats each entry five times).
        ratio: nominal, in [0, 1).
        seed: that draws the same array, or None where no seed is known.
        sha256: hash (hex), or its first 16 digits, of the little-endian int64 array; for the image unit, of
            the permutation of images.
    """

    title: str
    dataset: str
    unit: NoiseUnit
    ratio: float
    seed: int | None
    sha256: str


def _caption_file(name: str, ratio: str, seed: str, sha256: str) -> KnownNoise:
    dataset = "coco" if name.startswith("coco") else "flickr30k"
    return KnownNoise(f"{name} of BiCro and PC2", dataset, "caption", float(ratio), int(seed), sha256)


def _image_file(dataset: str, ratio: str, sha256: str) -> KnownNoise:
    title = f"the {dataset} {ratio} permutation of RCL and L2RM"
    return KnownNoise(title, dataset, "image", float(ratio), None, sha256)


KNOWN_NOISE = (
    *(_caption_file(*line.split()) for line in _CAPTION_FILES.strip().splitlines()),
    *(_image_file(*line.split()) for line in _IMAGE_FILES.strip().splitlines()),
)


def known_noise_name(sha256: str) -> str | None:
    """Name of the shared noise file with this hash, or None: ``f30k_precomp_0.4.npy of BiCro and PC2``.

    Args:
        sha256: hash (hex) of the little-endian int64 array: the image of every caption for the caption unit, the
            permutation of images for the image unit. The image files are known by the hash of their permutation
            alone, so the hash of an image-unit ``caption_to_image`` is never found: its record says
            ``published`` instead.
    """
    return next((file.title for file in KNOWN_NOISE if sha256.startswith(file.sha256)), None)


def find_known_noise(units: NDArray[np.int64]) -> KnownNoise | None:
    """The shared noise file that holds this array, or None.

    Args:
        units: int64, the image of every caption, or of every image where whole images were moved.
    """
    name = known_noise_name(noise_sha256(units))
    return next((file for file in KNOWN_NOISE if file.title == name), None)


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


def read_noise_file(path: Path, spec: NoisyDataset, unit: NoiseUnit) -> tuple[NDArray[np.int64], NoiseRecord]:
    """Read the noise of a dataset's train split.

    Args:
        path: an ``.npy`` file of int64: the image of every caption, or, for the image unit, the image of
            every image or of every caption if all captions of an image agree.
        spec: which dataset.
        unit: what the file is meant to move.

    Returns:
        ``caption_to_image`` int64 ``(n_captions,)``, and its record; its ratio is that of the shared
        file that it equals, else the likeliest nominal one, else the realised one.

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
    known = find_known_noise(units)
    likely = nominal_ratios(round(realised * len(units)), len(units))
    ratio = known.ratio if known else next(iter(likely), realised)
    name = known.title if known else None
    return caption_to_image, NoiseRecord(
        unit, ratio, None, noise_sha256(caption_to_image), realised, str(path), name
    )


def check_index(index: NDArray[np.int64], path: Path, spec: NoisyDataset, unit: NoiseUnit) -> None:
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
    suffixed = path.with_name(path.name + ".npy")
    if suffixed.exists() and not path.exists():
        raise NoiseError(
            f"noise file {path} does not exist, and noise is never redrawn instead; "
            f"did you mean {suffixed.name}?"
        )
    try:
        header = read_header(path)
    except ScoresError as error:
        raise NoiseError(f"noise file {error}") from None
    if header.dtype != np.dtype("<i8") or len(header.shape) != 1:
        raise NoiseError(
            f"noise file {path} holds {header.dtype} of shape {header.shape}; "
            "give a file that numpy.save wrote from a one-dimensional int64 array"
        )
    return np.array(map_npy(path, header), np.int64)
