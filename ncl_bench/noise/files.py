"""Read noise files, and recognise the files that papers share by their hashes (docs/protocol.md).

Seeds reproduce the shared caption-unit files bit for bit. No known seed reproduces the image-unit files: to train on
the noise of DECL, RCL or L2RM, use their file. Results with noise drawn here are not comparable with theirs. A file
that does not fit is refused, never reinterpreted.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from math import ceil, sqrt
from pathlib import Path
from typing import Protocol

import numpy as np

from ncl_bench.errors import NoiseError, named
from ncl_bench.foreign import readable
from ncl_bench.noise.draw import Noise, clean_pairing, noise_sha256, record_of
from ncl_bench.noise.unit import UNITS, NoiseUnit, Task, Unit, check_pairing, unit_of
from ncl_bench.npy import Int64Array, map_npy, read_header
from ncl_bench.progress import silent

_RATIO_STEPS = (0.1, 0.05, 0.01)


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

    def standard_seed(self, unit: NoiseUnit, ratio: float) -> int:
        """The protocol's noise seed."""
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
    ratios: list[float] = []
    for step in _RATIO_STEPS:
        steps = (round(k * step, 2) for k in range(1, round(1 / step)))
        ratios += [ratio for ratio in steps if ratio not in ratios and _explains(ratio, n_moved, n_units)]
    return ratios


def _explains(ratio: float, n_moved: int, n_units: int) -> bool:
    # own images come back by chance, nearly as a Poisson draws them: five standard deviations are allowed for
    back = 1 + 4 * ratio
    return 0 <= int(ratio * n_units) - n_moved <= ceil(back + 5 * sqrt(back))


def read_noise_file(path: Path, spec: NoisyDataset, unit: str | None = None) -> tuple[Int64Array, Noise]:
    """Read the noise of a dataset's train split.

    Args:
        path: an ``.npy`` file of whole numbers: the image of every caption, or of every image. Every image keeps its
            number of captions, unless ``unit`` is ``noun`` or ``file``.
        spec: the dataset.
        unit: unit that the file is expected to move (default: any).

    Returns:
        ``caption_to_image`` int64 ``(n_captions,)``, and its record. Its unit is that of the equal shared file or
        draw, else ``file``, which never ranks with another. Its ratio is the ratio of the equal shared file, else the
        likeliest nominal ratio, else the realised ratio.
    """
    index = read_index(path)
    n_images, each, train = spec.images["train"], spec.captions_per_image, f"{spec.name}/train"
    if len(index) not in (n_images, n_images * each):
        raise NoiseError(
            f"noise file {path} has {len(index)} entries, {train} has {n_images * each} captions of {n_images} images; "
            f"make one with `ncl-bench noise make {spec.name}`"
        )
    expected = None if unit is None else unit_of(unit, drawn=False)
    pairing = np.repeat(index, each) if len(index) == n_images else index
    # an exchange, unless noun or file was asked for by name
    as_file = replace(FILE, exchanges=expected is None or expected.exchanges)
    check_pairing(pairing, (n_images, each), as_file, f"noise file {path}")
    by_image = each > 1 and is_constant_in_groups(pairing, each)
    moved = bool((pairing != clean_pairing(n_images, each)).any())
    # a run under another noise than the one asked for would stand in the wrong table
    if moved and each > 1 and expected and expected is not FILE and by_image != expected.whole_images:
        moves = f"all {each} captions of an image together" if by_image else "captions one by one"
        raise NoiseError(
            f"noise file {path} moves {moves}, not as unit {expected.name}; leave {named('noise_unit')} out, or make "
            f"one with `ncl-bench noise make {spec.name} --unit {expected.name}`"
        )
    # the unit image is known by its permutation of images
    units = pairing[::each] if by_image else pairing
    known = find_known_noise(noise_sha256(units), spec)
    realised = record_of(pairing, each, FILE.name, 0.0, None)
    likely = nominal_ratios(round(realised.realised_ratio * len(units)), len(units))
    ratio = known.ratio if known else next(iter(likely), realised.realised_ratio)
    name = known.unit if known else _drawn_by(pairing, spec, likely) if moved else None
    title = known.title if known else None
    return pairing, replace(realised, unit=name, ratio=ratio, source=str(path), published=title)


SEEDS_RECOGNISED = 10
"""Seeds, beside the protocol's, by which a drawn file is recognised."""


def _drawn_by(pairing: Int64Array, spec: NoisyDataset, ratios: Sequence[float]) -> str:
    """Unit whose draw a file holds, such as one by ``noise make``; ``file`` where no tried seed draws it."""
    n_images, each = spec.images["train"], spec.captions_per_image
    for unit in UNITS.values():
        if unit.draw is None or unit.reads_captions:
            continue
        for ratio in ratios:
            for seed in dict.fromkeys([spec.standard_seed(unit.name, ratio), *range(SEEDS_RECOGNISED)]):
                task = Task(
                    clean_pairing(n_images, each), each, ratio, np.random.RandomState(seed), (), silent
                )
                if np.array_equal(unit.draw(task), pairing):
                    return unit.name
    return FILE.name


def is_constant_in_groups(index: Int64Array, captions_per_image: int) -> bool:
    """Whether all captions of every image are paired with the same image."""
    groups = index.reshape(-1, captions_per_image)
    return bool((groups == groups[:, :1]).all())


def read_index(path: Path) -> Int64Array:
    """Read a one-dimensional array of whole numbers from an ``.npy`` file as int64; nothing in it is executed."""
    header = read_header(readable(path, NoiseError, "a noise file (.npy)"), NoiseError)
    # a mask of bool is read too, and then refused as what it is
    if (
        header.dtype.kind not in "biu"
        or header.dtype.itemsize > 8
        or len(header.shape) != 1
        or not header.shape[0]
    ):
        raise NoiseError(
            f"noise file {path} holds {header.dtype} of shape {header.shape}, expected the image of every caption as "
            "one dimension of whole numbers; probabilities belong into `correspondence` of a submission"
        )
    return np.array(map_npy(path, header)).astype(np.int64)


FILE = Unit("file", "captions moved by a file", None, exchanges=False)
"""A pairing of one's own; it keeps the number of captions of every image unless asked for by name."""
