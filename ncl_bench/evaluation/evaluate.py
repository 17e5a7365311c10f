"""Check a submission against its dataset and its files, and evaluate it."""

import platform
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from ncl_bench import __version__
from ncl_bench.arguments import AnyPath, as_path
from ncl_bench.data import DATASETS
from ncl_bench.data.spec import DatasetSpec
from ncl_bench.errors import ScoresError, SubmissionError, refuse_difference
from ncl_bench.evaluation.detection import separation
from ncl_bench.evaluation.protocol import (
    PROTOCOL_VERSION,
    Sides,
    expected_shape,
    known_order,
    measure,
    open_scores,
    square_note,
)
from ncl_bench.evaluation.ranks import Counted, OnRows
from ncl_bench.evaluation.results import RESULT_FILE, CorrespondenceResult, Result, write_result
from ncl_bench.evaluation.submission import (
    SUBMISSION_FILE,
    ArrayFile,
    Scores,
    StatedNoise,
    Submission,
    read_submission,
)
from ncl_bench.files import sha256_of_file, sole_owner
from ncl_bench.foreign import readable
from ncl_bench.noise import unit_of
from ncl_bench.noise.draw import Noise, clean_pairing
from ncl_bench.noise.files import find_known_noise, read_noise_file
from ncl_bench.npy import BoolArray, FloatArray, Int64Array, map_npy, read_header
from ncl_bench.progress import Progress, opening_line

RATIO_TOLERANCE = 1e-6


@dataclass(frozen=True)
class Opened:
    """A submission whose statement and files are checked, but whose scores are not counted yet.

    Attributes:
        folder: the submission folder.
        submission: its statement.
        spec: its dataset.
        sources: split to scores.
        probabilities: clean probability of every training caption, or None.
        correspondence: true correspondence of the training captions, or None if unknown.
        notes: what could not be checked, and what looks unusual.
        root: folder of prepared datasets (default: environment variable ``NCL_BENCH_DATA``).
    """

    folder: Path
    submission: Submission
    spec: DatasetSpec
    sources: dict[str, Sides]
    probabilities: FloatArray | None
    correspondence: BoolArray | None
    notes: tuple[str, ...]
    root: Path | None = None

    @property
    def n_images(self) -> int:
        """Number of images of all evaluated splits."""
        return sum(expected_shape(self.spec, split)[0] for split in self.sources)


def open_submission(folder: str | Path, *, root: Path | None = None) -> Opened:
    """Check statement, order, noise, and the type and hash of every file, without counting ranks.

    Args:
        folder: submission folder: submission.yaml and the files that it names.
        root: folder of prepared datasets (default: environment variable ``NCL_BENCH_DATA``).
    """
    folder = Path(folder)
    submission = read_submission(folder)
    spec = DATASETS[submission.dataset]
    sources: dict[str, Sides] = {
        split: _open_split(folder, scores, spec, split) for split, scores in submission.scores.items()
    }
    notes = check_order(submission, spec, root)
    correspondence, noise_notes = check_noise(folder, submission.noise, spec)
    probabilities = None
    if submission.correspondence is not None:
        probabilities = _open_probabilities(folder, submission.correspondence, spec)
        if correspondence is None or correspondence.all() or not correspondence.any():
            raise SubmissionError(
                "correspondence is given, but which training pairs are true is not known here, or all are; "
                "state noise.seed, or add the noise file as noise.index"
            )
    if any(scores.form == "matrix" for scores in submission.scores.values()):
        notes += square_note(spec)
    return Opened(
        folder, submission, spec, sources, probabilities, correspondence, (*notes, *noise_notes), root
    )


def _open_split(folder: Path, scores: Scores, spec: DatasetSpec, split: str) -> Sides:
    paths = [_inside(folder, entry) for entry in scores.files]
    sides = open_scores(paths, spec, split, similarity=getattr(scores, "similarity", None))
    for path, entry in zip(paths, scores.files, strict=True):
        _compare_sha256(path, entry)
    return sides


def _inside(folder: Path, entry: ArrayFile) -> Path:
    return readable(folder / entry.file, ScoresError, "an .npy file", inside=folder)


def _compare_sha256(path: Path, entry: ArrayFile) -> None:
    fix = "correct the statement if this is the right file"
    refuse_difference(path, {"sha256": (sha256_of_file(path), entry.sha256)}, fix, SubmissionError)


def _open_probabilities(folder: Path, entry: ArrayFile, spec: DatasetSpec) -> FloatArray:
    path = _inside(folder, entry)
    header, expected = read_header(path), (spec.n_captions("train"),)
    if header.dtype.kind != "f" or header.dtype.itemsize > 8 or header.shape != expected:
        raise ScoresError(
            f"{path} holds {header.dtype} of shape {header.shape}, expected one float per training caption, "
            f"{expected}"
        )
    _compare_sha256(path, entry)
    probabilities: FloatArray = map_npy(path, header)
    outside = np.flatnonzero(~((probabilities >= 0) & (probabilities <= 1)))
    if len(outside):
        raise ScoresError(
            f"{path} holds {len(outside):,} values outside [0, 1], the first at {outside[0]} "
            f"({probabilities[outside[0]]}), expected probabilities"
        )
    return probabilities


def evaluate_submission(
    opened: Opened, *, on_rows: OnRows | None = None
) -> tuple[Result, dict[str, Counted]]:
    """Count and evaluate every split of a checked submission.

    Args:
        opened: from :func:`open_submission`.
        on_rows: called with the number of images of each counted block, from several threads.

    Returns:
        The result, and the ranks of each split.
    """
    started, submission, spec = time.perf_counter(), opened.submission, opened.spec
    measured = {
        split: measure(sides, spec, split, root=opened.root, on_rows=on_rows)
        for split, sides in opened.sources.items()
    }
    counted = {split: ranks for split, (_, ranks) in measured.items()}
    track = None
    if opened.probabilities is not None and opened.correspondence is not None:
        track = CorrespondenceResult(
            **separation(opened.probabilities, opened.correspondence).model_dump(),
            # 0.5 counts as clean: Algorithm 1 of NCR has >= there
            accuracy=100.0 * float(np.mean((opened.probabilities >= 0.5) == opened.correspondence)),
            pairs=len(opened.correspondence),
            true_pairs=int(opened.correspondence.sum()),
        )
    result = Result(
        protocol_version=PROTOCOL_VERSION,
        dataset=spec.name,
        submission_sha256=sha256_of_file(opened.folder / SUBMISSION_FILE),
        files={entry.file: entry.sha256 for entry in submission.files()},
        splits={split: evaluation for split, (evaluation, _) in measured.items()},
        correspondence=track,
        notes=opened.notes,
        versions={
            "ncl_bench": __version__,
            "python": platform.python_version(),
            "numpy": np.__version__,
            "platform": platform.platform(terse=True),
        },
        seconds=round(time.perf_counter() - started, 3),
        peak_memory_mb=peak_memory_mb(),
    )
    return result, counted


def evaluated_folder(
    folder: Path,
    to: AnyPath | None,
    plot: bool,
    examples: int,
    root: AnyPath | None,
    progress: Progress,
    say: Callable[[str], object] = lambda line: None,
) -> tuple[Result, list[Path]]:
    """Evaluate a submission; also return the files written, of which there is none until all is computed."""
    result_folder, opened = Path(to or folder), open_submission(folder, root=as_path(root))
    submission = opened.submission
    say(opening_line(submission.dataset, submission.noise.in_words, submission.method, "cpu"))
    pages = None
    if plot or examples:
        from ncl_bench.evaluation.pages import Pages

        pages = Pages(result_folder, plot=plot, examples=examples, root=as_path(root))
    with sole_owner(result_folder, nested=False):
        with progress("count ranks", opened.n_images) as on_rows:
            result, counted = evaluate_submission(opened, on_rows=on_rows)
        if pages is not None:
            for split, ranks in counted.items():
                pages.draw(
                    submission.method, opened.sources[split], ranks, opened.spec, split, submission.language
                )
        write_result(result_folder, result)
        return result, [result_folder / RESULT_FILE, *(pages.write() if pages else ())]


def peak_memory_mb() -> float | None:
    """Largest resident memory of this process so far, in MiB; None if the system does not report it (Windows)."""
    with suppress(OSError, StopIteration):
        lines = Path("/proc/self/status").read_text(encoding="ascii").splitlines()
        peak = next(line.split()[1] for line in lines if line.startswith("VmHWM"))
        return round(int(peak) / 1024, 1)
    if sys.platform == "win32":
        return None
    import resource

    unit = 1 if sys.platform == "darwin" else 1024  # macOS reports bytes, others KiB
    return round(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit / 2**20, 1)


def check_order(submission: Submission, spec: DatasetSpec, root: Path | None) -> list[str]:
    """Compare the stated order of each evaluated split with the dataset's order.

    Returns:
        Notes, one sentence per split that could not be compared.
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
        else:
            fix = "put the scores into the dataset's order"
            refuse_difference(
                f"{spec.name}/{split}", {"order_fingerprint": (stated, ours)}, fix, SubmissionError
            )
    return notes


def check_noise(folder: Path, noise: StatedNoise, spec: DatasetSpec) -> tuple[BoolArray | None, list[str]]:
    """Recompute the stated noise and compare its hash.

    Args:
        folder: the submission folder; a noise file is looked up here.
        noise: the stated noise.
        spec: the dataset.

    Returns:
        True correspondence of the training captions, or None if unknown; and notes.
    """
    if noise.unit in ("natural", "none"):
        return None, []
    drawn = _drawn(folder, noise, spec)
    if drawn is None:
        _check_published_name(noise, spec)
        return None, [
            f"the noise index {noise.sha256} was recorded but not checked, because its stated "
            "facts do not draw it here; add its file as noise.index"
        ]
    caption_to_image, record = drawn
    source = "its file" if noise.index else f"unit {noise.unit}, ratio {noise.ratio} and seed {noise.seed}"
    facts = {"noise.sha256": (noise.sha256, record.sha256)}
    refuse_difference(f"noise of {source}", facts, "state the noise that was trained on", SubmissionError)
    stated = noise.realised_ratio
    if stated is not None and abs(stated - record.realised_ratio) > RATIO_TOLERANCE:
        raise SubmissionError(
            f"noise.realised_ratio is {stated}, but its index gives {record.realised_ratio:.6f}; correct it"
        )
    if noise.published is not None:
        known = find_known_noise(record.sha256, spec)
        name = record.published or (known.title if known else None)
        title = {"noise.published": (noise.published, name)}
        refuse_difference(f"noise of {source}", title, "correct it or leave it out", SubmissionError)
    notes = []
    standard = spec.standard_seed(noise.unit, noise.ratio or 0.0)
    if record.seed != standard:
        source = "a noise file" if record.seed is None else f"noise seed {record.seed}"
        notes.append(
            f"{source} is not the standard noise of this setting (seed {standard}): a result for studies of spread"
        )
    return caption_to_image == clean_pairing(spec.images["train"], spec.captions_per_image), notes


def _check_published_name(noise: StatedNoise, spec: DatasetSpec) -> None:
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


def _drawn(folder: Path, noise: StatedNoise, spec: DatasetSpec) -> tuple[Int64Array, Noise] | None:
    """Return the noise as its file or its seed gives it; None if neither is at hand."""
    assert noise.ratio is not None
    if noise.index is not None:
        path = _inside(folder, noise.index)
        _compare_sha256(path, noise.index)
        return read_noise_file(path, spec, noise.unit)
    unit = unit_of(noise.unit, drawn=False)
    if unit.draw is None or (unit.reads_captions and spec.train_captions() is None):
        return None
    drawn = spec.draw_noise(noise_ratio=noise.ratio, noise_unit=noise.unit, seed=noise.seed)
    return drawn if noise.seed is not None or drawn[1].sha256 == noise.sha256 else None
