"""Noise that prepared datasets draw from their captions; that of unit ``similar`` is stored in a file next to them."""

from dataclasses import replace
from pathlib import Path

from ncl_bench.data.columns import Int64Array
from ncl_bench.data.prepared import load_prepared
from ncl_bench.data.spec import DatasetSpec
from ncl_bench.errors import NoiseError
from ncl_bench.noise.draw import Noise, NoiseUnit
from ncl_bench.noise.files import read_noise_file
from ncl_bench.progress import Progress, silent

DRAWN_AT_ONCE = 50_000
"""Up to this many training captions, the noise is drawn on demand; more take minutes."""


def similar_file(root: Path, spec: DatasetSpec, ratio: float, seed: int | None) -> Path:
    """Path of the noise file in the folder of prepared datasets: ``NAME/noise/similar-60-seed96.npy``."""
    Noise.asked(ratio, "similar", seed)
    seed = spec.standard_seed("similar", ratio) if seed is None else seed
    return root / spec.name / "noise" / f"similar-{100 * ratio:g}-seed{seed}.npy"


def draw_from_captions(
    root: Path,
    spec: DatasetSpec,
    unit: NoiseUnit,
    ratio: float,
    seed: int | None,
    progress: Progress = silent,
) -> tuple[Int64Array, Noise]:
    """Draw the noise of unit ``similar`` or ``noun`` from the captions of a prepared dataset, in its first language.

    Raises:
        DataError: the dataset is not prepared, or damaged.
        NoiseError: ratio or seed is refused, or the captions do not fit the unit.
    """
    captions = load_prepared(root, spec, "train").captions
    texts = None if captions is None else list(captions)
    return spec.draw_noise(noise_ratio=ratio, noise_unit=unit, seed=seed, captions=texts, progress=progress)


def load_similar(root: Path, spec: DatasetSpec, ratio: float, seed: int | None) -> tuple[Int64Array, Noise]:
    """Load the noise of a prepared dataset from its file, or draw it if that takes seconds.

    Raises:
        DataError: the dataset is not prepared, or damaged.
        NoiseError: the file is missing or carries another ratio, or the noise cannot be drawn.
    """
    path = similar_file(root, spec, ratio, seed)
    if path.exists():
        caption_to_image, record = read_noise_file(path, spec, "similar")
        n_wrong = round(record.realised_ratio * len(caption_to_image))
        # rounded down, as in the draw
        if n_wrong != int(ratio * len(caption_to_image)):
            raise NoiseError(
                f"noise file {path} moves {n_wrong:,} captions, expected {int(ratio * len(caption_to_image)):,}; "
                "delete it and make it again"
            )
        seed = spec.standard_seed("similar", ratio) if seed is None else seed
        return caption_to_image, replace(record, unit="similar", ratio=ratio, seed=seed)
    if spec.n_captions("train") <= DRAWN_AT_ONCE:
        return draw_from_captions(root, spec, "similar", ratio, seed)
    given = "" if seed is None else f" --seed {seed}"
    raise NoiseError(
        f"{path} is missing, and drawing it takes minutes; fix: "
        f"ncl-bench noise make {spec.name} --unit similar --ratio {ratio:g}{given} --root {root}"
    )
