"""Identify a noise index: the shared file that it equals, or its dataset, unit, ratio and seed."""

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np

from ncl_bench.errors import NoiseError, named
from ncl_bench.noise.draw import chosen_captions, clean_pairing, inject_noise, noise_sha256
from ncl_bench.noise.files import NoisyDataset, find_known_noise, is_constant_in_groups, nominal_ratios
from ncl_bench.noise.unit import NoiseUnit
from ncl_bench.npy import Int64Array

SEEDS_TRIED = 100


@dataclass(frozen=True)
class NoiseIdentity:
    """What is known about an index.

    Attributes:
        dataset: dataset whose train split has this length, or None.
        unit: what was moved; None if nothing was.
        n_entries: length of the index as given.
        per_image: whether it has one entry per image instead of per caption.
        sha256: hash (hex) of the index as given.
        known_as: name of the shared file that equals it, or None.
        ratio: nominal ratio, from the shared file or guessed from the realised one. None if no round ratio explains it.
        seed: seed that draws exactly this index, or None if no tried seed does.
        balanced: whether every image has as many captions as before.
        realised_ratio: share of captions whose image is not their own.
        all_good: share of images that kept all their captions.
        some_good: share of images that kept some of their captions.
        none_good: share of images that kept none of their captions.
    """

    dataset: str | None
    unit: NoiseUnit | None
    n_entries: int
    per_image: bool
    sha256: str
    known_as: str | None
    ratio: float | None
    seed: int | None
    balanced: bool
    realised_ratio: float
    all_good: float
    some_good: float
    none_good: float


def identify(
    index: Int64Array,
    datasets: Iterable[NoisyDataset],
    *,
    captions_per_image: int | None = None,
    seeds: Iterable[int] = range(SEEDS_TRIED),
) -> NoiseIdentity:
    """Identify a noise index.

    Args:
        index: int64, the image of every caption or of every image of a train split.
        datasets: candidates, distinguished by the length of their train split.
        captions_per_image: for a dataset of your own: its captions per image if the index has one entry per caption; 1
            if it has one entry per image.
        seeds: tried in this order if no shared file matches.

    Raises:
        NoiseError: no dataset has this length and ``captions_per_image`` is not given, or an entry is not an image.
    """
    datasets = list(datasets)
    dataset, per_image, each = _from_length(len(index), datasets, captions_per_image)
    n_images = len(index) if per_image else len(index) // each
    wrong = np.flatnonzero((index < 0) | (index >= n_images))
    if len(wrong):
        raise NoiseError(
            f"noise index holds {index[wrong[0]]} at entry {wrong[0]}, expected images 0 to {n_images - 1}; "
            "this is not a noise index of this length"
        )
    # what was moved decides the rest: captions, or images with all their captions
    whole_images = not per_image and is_constant_in_groups(index, each)
    units = index[::each] if whole_images else index
    by_image = per_image or whole_images
    of_an_image = 1 if by_image else each
    clean = clean_pairing(n_images, of_an_image)
    n_moved = int((units != clean).sum())
    sha256 = noise_sha256(units)
    known = next(filter(None, (find_known_noise(sha256, spec) for spec in datasets)), None)
    # draws round and keep some in place, so a ratio is guessed from the share that moved
    ratios = [known.ratio] if known else nominal_ratios(n_moved, len(units))
    # unit similar exchanges captions, and entries per image are captions too where an image has one
    of_captions = not by_image or each == 1
    exchanged = not known and of_captions and _is_exchanged(units, of_an_image)
    draws = _chooses_these if exchanged else _draws_these
    # a shared file has no seed to look for, and an index that moved nothing none to find
    tries = ((ratio, seed) for seed in seeds for ratio in ratios if n_moved and not known)
    drawn = next((one for one in tries if draws(units, of_an_image, *one)), None)
    good = (units == clean).reshape(n_images, of_an_image).mean(axis=1)
    unit: NoiseUnit = "similar" if exchanged else "image" if by_image else "caption"
    return NoiseIdentity(
        dataset=dataset,
        unit=unit if n_moved else None,
        n_entries=len(index),
        per_image=per_image,
        sha256=noise_sha256(index),
        known_as=known.title if known else None,
        ratio=drawn[0] if drawn else next(iter(ratios), None),
        seed=drawn[1] if drawn else known.seed if known else None,
        balanced=bool((np.bincount(units, minlength=n_images) == of_an_image).all()),
        realised_ratio=n_moved / len(units),
        all_good=float((good == 1).mean()),
        some_good=float(((good > 0) & (good < 1)).mean()),
        none_good=float((good == 0).mean()),
    )


def _from_length(
    n_entries: int, datasets: Iterable[NoisyDataset], captions_per_image: int | None
) -> tuple[str | None, bool, int]:
    """Dataset, whether entries are images, and captions per image, from the length."""
    if captions_per_image is not None:
        if captions_per_image < 1 or n_entries == 0 or n_entries % captions_per_image:
            raise NoiseError(
                f"{named('captions_per_image')} is {captions_per_image}, the noise index has {n_entries} entries; "
                "expected a positive number that divides it"
            )
        return None, captions_per_image == 1, captions_per_image
    synthetic = [spec for spec in datasets if spec.noise == "synthetic"]
    for spec in synthetic:
        if n_entries in (spec.n_captions("train"), spec.images["train"]):
            return spec.name, n_entries == spec.images["train"], spec.captions_per_image
    lengths = ", ".join(
        f"{spec.n_captions('train')} or {spec.images['train']} ({spec.name})" for spec in synthetic
    )
    raise NoiseError(
        f"noise index has {n_entries} entries, the train splits have {lengths}; "
        "give captions_per_image for a dataset of your own"
    )


def _draws_these(units: Int64Array, each: int, ratio: float, seed: int) -> bool:
    """Whether a draw of unit ``caption`` gives exactly these units."""
    clean = clean_pairing(len(units) // each, each)
    drawn = inject_noise(clean, noise_ratio=ratio, noise_unit="caption", seed=seed, captions_per_image=each)
    return np.array_equal(drawn, units)


def _is_exchanged(units: Int64Array, each: int) -> bool:
    """Whether nearly all moved captions are swapped in pairs, as by unit ``similar``.

    A random draw permutes them in long cycles.
    """
    own = clean_pairing(len(units) // each, each)
    # a caption may swap with several of one image, so pairs are counted by images, with their number
    moved = units != own
    there = Counter(zip(own[moved].tolist(), units[moved].tolist(), strict=True))
    mutual = sum(min(count, there[new, old]) for (old, new), count in there.items())
    # rotations of three are rare in unit similar, long cycles the rule in a random draw
    return bool(moved.any()) and mutual > 0.9 * moved.sum()


def _chooses_these(units: Int64Array, each: int, ratio: float, seed: int) -> bool:
    """Whether a draw of unit ``similar`` moves exactly these units; this needs no texts."""
    moved = np.flatnonzero(units != clean_pairing(len(units) // each, each))
    # every drawn caption becomes wrong, so the count is exact
    exact = int(ratio * len(units)) == len(moved)
    return exact and np.array_equal(np.sort(chosen_captions(len(units), ratio, seed)), moved)


def describe(identity: NoiseIdentity) -> list[tuple[str, str]]:
    """Format an identity as labelled lines."""
    entries = "one per image" if identity.per_image else "one per caption"
    unit: str = identity.unit or "none: nothing was moved"
    if identity.unit == "image" and not identity.per_image:
        unit = "image, although there is one entry per caption"
    if identity.unit and identity.known_as is None and identity.seed is None:
        unit += ", by what it moves alone"  # no draw equals it, so it may be of another unit
    ratio = "no round ratio explains it" if identity.ratio is None else f"{identity.ratio:g}"
    images = (
        f"{identity.all_good:.2%} with all captions good, {identity.some_good:.2%} with some, "
        f"{identity.none_good:.2%} with none"
    )
    return [
        ("known as", identity.known_as or "not one of the shared files"),
        ("dataset", identity.dataset or "not one of the benchmark"),
        ("unit", unit),
        ("nominal ratio", ratio),
        ("seed", "not found" if identity.seed is None else str(identity.seed)),
        ("realised ratio", f"{identity.realised_ratio:.6f}"),
        ("images", images),
        ("balanced", "yes" if identity.balanced else "no: some images lost or gained captions"),
        ("entries", f"{identity.n_entries:,}, {entries}"),
        ("sha256", identity.sha256),
    ]
