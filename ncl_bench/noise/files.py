"""Read noise files, and recognise the files that papers share by their hashes (docs/protocol.md).

Seeds reproduce the shared caption-unit files bit for bit. No known seed reproduces the image-unit files: to train on
the noise of DECL, RCL or L2RM, use their file. Results with noise drawn here are not comparable with theirs. A file
that does not fit is refused, never reinterpreted.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from math import ceil, sqrt
from pathlib import Path
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from ncl_bench.errors import NoiseError, ScoresError, unknown_name
from ncl_bench.foreign import readable
from ncl_bench.noise.draw import UNITS, Noise, NoiseUnit, clean_pairing, noise_sha256
from ncl_bench.npy import map_npy, read_header

_RATIO_STEPS = (0.1, 0.05, 0.01)
DTYPES = (np.dtype("<i8"), np.dtype("<i4"))
"""Number types of noise files; numpy before 2.0 writes int32 on Windows."""


@dataclass(frozen=True)
class KnownNoise:
    """A noise file shared by a paper's repository.

    Attributes:
        title: file and owner, such as ``f30k_precomp_0.4.npy of BiCro and PC2``.
        unit: ``"caption"`` (BiCro, PC2) or ``"image"`` (RCL; L2RM repeats each entry five times).
        ratio: nominal, in [0, 1).
        seed: seed that draws the same array, or None if unknown.
        sha256: hash (hex), or its first 16 digits, of the little-endian int64 array: the image of every caption for
            the caption unit, the permutation of images for the image unit.
    """

    title: str
    unit: NoiseUnit
    ratio: float
    seed: int | None
    sha256: str


def files_shared_by(
    papers: str, unit: NoiseUnit, files: Mapping[str, tuple[float, int | None, str]]
) -> tuple[KnownNoise, ...]:
    """Describe the noise files that papers share, for the facts of a dataset.

    Args:
        papers: owners of the files, such as ``BiCro and PC2``.
        unit: ``"caption"`` or ``"image"``.
        files: file name to ratio, seed and sha256; see :class:`KnownNoise`.
    """
    return tuple(KnownNoise(f"{name} of {papers}", unit, *facts) for name, facts in files.items())


class NoisyDataset(Protocol):
    """Facts that noise needs of a dataset; :class:`ncl_bench.data.spec.DatasetSpec` defines each."""

    @property
    def name(self) -> str: ...
    @property
    def images(self) -> Mapping[str, int]: ...
    @property
    def captions_per_image(self) -> int: ...
    @property
    def noise(self) -> str: ...
    @property
    def noise_files(self) -> tuple[KnownNoise, ...]: ...
    def n_captions(self, split: str) -> int:
        """Number of captions of a split."""
        ...


def find_known_noise(sha256: str, spec: NoisyDataset) -> KnownNoise | None:
    """Find the shared noise file of a dataset by its hash; None if there is none.

    Args:
        sha256: hash (hex) of the little-endian int64 array: the image of every caption for the caption unit, the
            permutation of images for the image unit. Image files are known only by the hash of their permutation, so
            the hash of an image-unit ``caption_to_image`` is never found; its record has ``published`` instead.
        spec: the dataset.
    """
    # some hashes were noted with their first 16 digits only
    return next((file for file in spec.noise_files if sha256.startswith(file.sha256)), None)


def nominal_ratios(n_moved: int, n_units: int) -> list[float]:
    """Ratios that explain a number of wrong units, likeliest first; only 0 for none.

    A permutation of captions, at most five per image, gives ``1 + 4 ratio`` of them their own image back on average, so
    slightly more were chosen than are wrong. Papers use round ratios, so those come first.

    Args:
        n_moved: number of units whose image is not their own.
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
    # own images come back by chance, nearly as a Poisson draws them: five standard deviations are allowed for
    back = 1 + 4 * ratio
    return 0 <= int(ratio * n_units) - n_moved <= ceil(back + 5 * sqrt(back))


def read_noise_file(path: Path, spec: NoisyDataset, unit: NoiseUnit) -> tuple[NDArray[np.int64], Noise]:
    """Read the noise of a dataset's train split.

    Args:
        path: an ``.npy`` file of int64 or int32: the image of every caption. For the image unit: the image of every
            image, or of every caption if all captions of an image agree.
        spec: the dataset.
        unit: unit that the file is expected to move.

    Returns:
        ``caption_to_image`` int64 ``(n_captions,)``, and its record. Its ratio is the ratio of the equal shared file,
        else the likeliest nominal ratio, else the realised ratio.
    """
    if unit not in UNITS:
        raise NoiseError(unknown_name("noise unit", unit, UNITS))
    index = read_index(path)
    check_index(index, path, spec, unit)
    n_images, each = spec.images["train"], spec.captions_per_image
    # L2RM repeats each entry of an image-unit file for every caption
    units = index[::each] if unit == "image" and len(index) > n_images else index
    caption_to_image = np.repeat(units, each) if unit == "image" else units
    realised = float(np.mean(caption_to_image != clean_pairing(n_images, each)))
    # the papers' own numbers first: 0.2 and 0.21 of few captions may explain the same count
    known = find_known_noise(noise_sha256(units), spec)
    likely = nominal_ratios(round(realised * len(units)), len(units))
    ratio = known.ratio if known else next(iter(likely), realised)
    name = known.title if known else None
    return caption_to_image, Noise(
        unit, ratio, None, noise_sha256(caption_to_image), realised, str(path), name
    )


def check_index(index: NDArray[np.int64], path: Path, spec: NoisyDataset, unit: NoiseUnit) -> None:
    """Refuse an index with the wrong length, range or unit."""
    n_images, n_captions, each = spec.images["train"], spec.n_captions("train"), spec.captions_per_image
    train = f"{spec.name}/train"
    remake = f"rebuild it with `ncl-bench noise make {spec.name} --unit {unit}`"
    # the likeliest reason of a wrong length, with a remedy of its own
    if unit != "image" and len(index) == n_images != n_captions:
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
    # with one caption per image both units are the same array
    if len(index) != n_captions or each == 1:
        return
    whole_images = is_constant_in_groups(index, each)
    if unit == "image" and not whole_images:
        raise NoiseError(
            f"noise file {path} moves captions one by one, expected all {each} captions of an image to move "
            f"together; load it with noise_unit='caption', or {remake}"
        )
    if unit != "image" and whole_images and not np.array_equal(index, clean_pairing(n_images, each)):
        raise NoiseError(
            f"noise file {path} moves all {each} captions of an image together: it is image-level although "
            f"it has one entry per caption; load it with noise_unit='image', or {remake}"
        )


def is_constant_in_groups(index: NDArray[np.int64], captions_per_image: int) -> bool:
    """Whether all captions of every image are paired with the same image."""
    groups = index.reshape(-1, captions_per_image)
    return bool((groups == groups[:, :1]).all())


def read_index(path: Path) -> NDArray[np.int64]:
    """Read a one-dimensional array of int64 or int32 from an ``.npy`` file as int64; nothing in it is executed."""
    # numpy.save adds .npy without a word
    suffixed = Path(f"{path}.npy")
    if suffixed.exists() and not path.exists():
        raise NoiseError(
            f"noise file {path} does not exist, and no noise is drawn instead; did you mean {suffixed.name}?"
        )
    try:
        header = read_header(readable(path, ScoresError, "an .npy file"))
    except ScoresError as error:
        raise NoiseError(f"noise file {error}") from None
    if header.dtype not in DTYPES or len(header.shape) != 1:
        raise NoiseError(
            f"noise file {path} holds {header.dtype} of shape {header.shape}, expected one dimension of int64 or "
            "int32; save it so with numpy.save"
        )
    return np.array(map_npy(path, header), np.int64)
