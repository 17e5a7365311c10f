"""Check the order and noise that a submission states against the dataset."""

import os
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from ncl_bench.data import ROOT_VARIABLE, load_dataset
from ncl_bench.data.columns import Int64Array
from ncl_bench.data.order import order_fingerprint
from ncl_bench.data.paired import PairedDataset
from ncl_bench.data.spec import DatasetSpec
from ncl_bench.errors import SubmissionError
from ncl_bench.evaluation.statement import Noise
from ncl_bench.evaluation.submission import Submission
from ncl_bench.evaluation.submission_scores import check_sha256, open_file
from ncl_bench.noise import draw
from ncl_bench.noise.draw import NoiseUnit, clean_pairing, noise_sha256
from ncl_bench.noise.files import find_known_noise, read_noise_file

RATIO_TOLERANCE = 1e-6


def local_split(
    spec: DatasetSpec, split: str, root: Path | None, language: str | None = None
) -> PairedDataset | None:
    """Open a split if it is prepared on this machine; return None otherwise.

    Args:
        spec: the dataset.
        split: name of the split.
        root: folder of prepared datasets (default: environment variable ``NCL_BENCH_DATA``).
        language: language of the captions.

    Raises:
        DataError: ``root`` was given but holds no such dataset, or the dataset is damaged.
    """
    surroundings = os.environ.get(ROOT_VARIABLE)
    place = root or (Path(surroundings) if surroundings else None)
    if not spec.embedded and root is None:
        prepared = [place / "manifest.json", place / spec.name / "manifest.json"] if place else []
        if not any(path.exists() for path in prepared):
            return None
    return load_dataset(spec.name, split=split, root=place, language=language)


def known_order(spec: DatasetSpec, split: str, root: Path | None) -> str | None:
    """Order fingerprint of a split: from the dataset's facts, or else from the prepared split.

    Args:
        spec: the dataset.
        split: ``test`` or ``dev``.
        root: folder of prepared datasets (default: environment variable ``NCL_BENCH_DATA``).

    Returns:
        sha256 (hex), or None if it is neither a known fact nor prepared here.

    Raises:
        DataError: ``root`` was given but holds no such dataset, or the dataset is damaged.
    """
    if split in spec.order_fingerprints:
        return spec.order_fingerprints[split]
    local = local_split(spec, split, root)
    return None if local is None else order_fingerprint(local.image_ids, local.captions)


def check_order(submission: Submission, spec: DatasetSpec, root: Path | None) -> list[str]:
    """Compare the stated order of each evaluated split with the dataset's order.

    Returns:
        Notes, one sentence per split that could not be compared.

    Raises:
        SubmissionError: a stated order differs from the dataset's.
    """
    notes = []
    for split in submission.scores:
        stated, ours = submission.order_fingerprint[split], known_order(spec, split, root)
        name = f"order_fingerprint of {spec.name}/{split}"
        if ours is None:
            notes.append(
                f"the {name} was recorded but not checked, because the dataset is not prepared here; name its folder "
                "with --root"
            )
        elif ours != stated:
            raise SubmissionError(
                f"{name} is {stated}, ours is {ours}; put the scores into the dataset's order"
            )
    return notes


def check_noise(folder: Path, noise: Noise, spec: DatasetSpec) -> tuple[NDArray[np.bool_] | None, list[str]]:
    """Recompute the stated noise and compare its hash.

    Args:
        folder: the submission folder; a noise file is looked up here.
        noise: the stated noise.
        spec: the dataset.

    Returns:
        True correspondence of the training captions, or None if unknown; and notes.

    Raises:
        SubmissionError: hash or realised ratio differ from the statement.
        NoiseError: the noise file is refused.
    """
    if noise.unit == "natural":
        return None, []
    clean = clean_pairing(spec.images["train"], spec.captions_per_image)
    if noise.unit == "none":
        _compare_noise(noise, spec, noise_sha256(clean), 0.0)
        return None, []
    drawn = _known_noise(folder, noise, spec, noise.unit)
    if drawn is None:
        _check_published_name(noise, spec)
        return None, [
            f"the noise index {noise.sha256} was recorded but not checked, because its stated "
            "facts do not draw it here; add its file as noise.index"
        ]
    caption_to_image, record = drawn
    _compare_noise(noise, spec, record.sha256, record.realised_ratio)
    known = find_known_noise(record.sha256, spec)
    name = record.published or (known.title if known else None)
    if noise.published not in (None, name):
        raise SubmissionError(
            f"noise.published is {noise.published!r}, but the noise of unit {noise.unit}, ratio {noise.ratio} and "
            f"sha256 {record.sha256} is {name or 'no shared file'}; correct it or leave it out"
        )
    notes = []
    standard = spec.standard_seed(noise.unit, noise.ratio or 0.0)
    if record.seed != standard:
        source = "a noise file" if record.seed is None else f"noise seed {record.seed}"
        notes.append(
            f"{source} is not the standard noise of this setting (seed {standard}): a result for studies of spread"
        )
    return caption_to_image == clean, notes


def _check_published_name(noise: Noise, spec: DatasetSpec) -> None:
    """Check the name of a shared noise file by hash alone, because the file is not given.

    Image-unit files are known by the hash of their permutation, which differs from the hash of ``caption_to_image``.
    """
    if noise.published is None:
        return
    same = (
        file.title == noise.published
        and (file.unit, file.ratio) == (noise.unit, noise.ratio)
        and (file.unit == "image" or str(noise.sha256).startswith(file.sha256))
        for file in spec.noise_files
    )
    if not any(same):
        raise SubmissionError(
            f"noise.published is {noise.published!r}, but no shared noise file of {spec.name}, unit {noise.unit} and "
            f"ratio {noise.ratio} with this hash has that name; correct it or leave it out"
        )


def _known_noise(
    folder: Path, noise: Noise, spec: DatasetSpec, unit: NoiseUnit
) -> tuple[Int64Array, draw.Noise] | None:
    assert noise.ratio is not None
    if noise.index is not None:
        path, _ = open_file(folder, noise.index)
        check_sha256(path, noise.index)
        return read_noise_file(path, spec, unit)
    if unit == "similar" and spec.train_captions() is None:
        return None
    drawn = spec.draw_noise(noise_ratio=noise.ratio, noise_unit=unit, seed=noise.seed)
    return drawn if noise.seed is not None or drawn[1].sha256 == noise.sha256 else None


def _compare_noise(noise: Noise, spec: DatasetSpec, sha256: str, realised_ratio: float) -> None:
    if noise.sha256 not in (None, sha256):
        source = (
            "its file" if noise.index else f"unit {noise.unit}, ratio {noise.ratio} and seed {noise.seed}"
        )
        raise SubmissionError(
            f"noise.sha256 is {noise.sha256}, but {source} of {spec.name} give {sha256}; "
            "state the noise that was trained on"
        )
    if noise.realised_ratio is not None and abs(noise.realised_ratio - realised_ratio) > RATIO_TOLERANCE:
        raise SubmissionError(
            f"noise.realised_ratio is {noise.realised_ratio}, but its index gives "
            f"{realised_ratio:.6f}; correct it"
        )
