"""From a submission folder to ``result.json``: check everything, count, and say what was found."""

import json
import platform
import resource
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import numpy as np
from numpy.typing import NDArray
from pydantic import ConfigDict, ValidationError

from ncl_bench import __version__
from ncl_bench.data import dataset_spec
from ncl_bench.data.spec import DatasetSpec
from ncl_bench.errors import ScoresError, SubmissionError, first_problem
from ncl_bench.evaluation.claims import check_fingerprints, check_noise, check_order
from ncl_bench.evaluation.metrics import correspondence_metrics
from ncl_bench.evaluation.protocol import PROTOCOL_VERSION, evaluate_counted
from ncl_bench.evaluation.ranks import Counted, OnRows
from ncl_bench.evaluation.results import Evaluation
from ncl_bench.evaluation.score_forms import ArrayFile, MatrixScores
from ncl_bench.evaluation.submission import SUBMISSION_FILE, Submission, read_submission
from ncl_bench.evaluation.submission_scores import Source, check_sha256, open_file, open_source
from ncl_bench.files import sha256_of_file, write_text
from ncl_bench.npy import map_npy
from ncl_bench.schema import Record

RESULT_FILE = "result.json"


class CorrespondenceResult(Record):
    """Correspondence track: how well the submitted probabilities separate true from false training pairs.

    Attributes:
        auroc: in [0, 1].
        average_precision: in [0, 1].
        accuracy: at 0.5, percent.
        pairs: training captions.
        true_pairs: of them, those paired with their own image.
    """

    auroc: float
    average_precision: float
    accuracy: float
    pairs: int
    true_pairs: int


class Report(Record):
    """Content of ``result.json``.

    Attributes:
        protocol_version: of the contract that the numbers follow.
        status: ``submitted``: computed from the submitter's scores.
        dataset: its name.
        submission_sha256: of ``submission.yaml``.
        files: path below the submission to sha256 of every array file, as verified.
        splits: split to result.
        correspondence: where probabilities were given.
        notes: reasons to look again before trusting the numbers.
        versions: of Python, numpy and ncl_bench, and the platform.
        seconds: wall-clock time of counting and evaluating.
        peak_memory_mb: largest resident memory of the process.
    """

    model_config = ConfigDict(allow_inf_nan=False)

    protocol_version: int
    status: Literal["submitted"] = "submitted"
    dataset: str
    submission_sha256: str
    files: dict[str, str]
    splits: dict[str, Evaluation]
    correspondence: CorrespondenceResult | None = None
    notes: tuple[str, ...] = ()
    versions: dict[str, str]
    seconds: float
    peak_memory_mb: float

    def to_json(self) -> str:
        """JSON without NaN."""
        return json.dumps(self.model_dump(mode="json"), indent=2, allow_nan=False) + "\n"


@dataclass(frozen=True)
class Opened:
    """A submission whose statements and files were checked, but whose scores were not counted.

    Attributes:
        folder: of the submission.
        submission: what it states.
        spec: its dataset.
        sources: split to scores.
        probabilities: clean probability of every training caption, or None.
        correspondence: the truth about them, or None where it is not known.
        notes: what could not be checked, and what is unusual.
    """

    folder: Path
    submission: Submission
    spec: DatasetSpec
    sources: dict[str, Source]
    probabilities: NDArray[np.floating] | None
    correspondence: NDArray[np.bool_] | None
    notes: tuple[str, ...]


def open_submission(folder: str | Path, *, root: Path | None = None) -> Opened:
    """Check statements, fingerprints, order, noise, and every file's type and hash, without counting.

    Args:
        folder: of the submission.
        root: folder of prepared datasets; the environment variable ``NCL_BENCH_DATA`` by default.

    Raises:
        SubmissionError: a statement is wrong.
        ScoresError: a file is missing, damaged, or of another type, shape or order.
        NoiseError: a noise file is refused.
    """
    folder = Path(folder)
    submission = read_submission(folder)
    spec = dataset_spec(submission.dataset)
    sources: dict[str, Source] = {
        split: open_source(folder, scores, spec, split) for split, scores in submission.scores.items()
    }
    notes = [*check_fingerprints(submission, spec, root), *check_order(folder, submission, spec, root)]
    correspondence, noise_notes = check_noise(folder, submission, spec)
    probabilities = None
    if submission.correspondence is not None:
        probabilities = _open_probabilities(folder, submission.correspondence, spec)
        if correspondence is None or correspondence.all() or not correspondence.any():
            raise SubmissionError(
                "correspondence is given, but the truth about it is not known or all one; "
                "state the noise seed or add the noise file as noise.index"
            )
    if spec.captions_per_image == 1 and any(isinstance(s, MatrixScores) for s in submission.scores.values()):
        notes.append(
            f"{spec.name} has a square matrix, whose shape cannot tell rows from columns: "
            "rows were taken as images"
        )
    return Opened(folder, submission, spec, sources, probabilities, correspondence, (*notes, *noise_notes))


def _open_probabilities(folder: Path, entry: ArrayFile, spec: DatasetSpec) -> NDArray[np.floating]:
    path, header = open_file(folder, entry)
    expected = (spec.n_captions("train"),)
    if header.dtype.kind != "f" or header.dtype.itemsize > 8 or header.shape != expected:
        raise ScoresError(
            f"{path} holds {header.dtype} of shape {header.shape}, expected one float per training caption, "
            f"{expected}"
        )
    check_sha256(path, entry)
    probabilities: NDArray[np.floating] = map_npy(path, header)
    outside = np.flatnonzero(~((probabilities >= 0) & (probabilities <= 1)))
    if len(outside):
        raise ScoresError(
            f"{path} holds {len(outside):,} numbers that are no probability, the first at {outside[0]} "
            f"({probabilities[outside[0]]}), expected 0 to 1"
        )
    return probabilities


def evaluate_submission(
    opened: Opened, *, intervals: bool = True, on_rows: OnRows | None = None
) -> tuple[Report, dict[str, Counted]]:
    """Count and evaluate every split of a checked submission.

    Args:
        opened: of :func:`open_submission`.
        intervals: compute the bootstrap intervals.
        on_rows: called with the number of images of each block that is counted, from several threads.

    Returns:
        The report, and the ranks of each split.

    Raises:
        ScoresError: a score is not finite, or a ranking is no permutation.
    """
    started = time.perf_counter()
    counted = {split: source.count(on_rows) for split, source in opened.sources.items()}
    splits = {
        split: evaluate_counted(ranks, opened.spec, split, intervals=intervals)
        for split, ranks in counted.items()
    }
    track = None
    if opened.probabilities is not None and opened.correspondence is not None:
        track = CorrespondenceResult(
            **correspondence_metrics(opened.probabilities, opened.correspondence),
            pairs=len(opened.correspondence),
            true_pairs=int(opened.correspondence.sum()),
        )
    report = Report(
        protocol_version=PROTOCOL_VERSION,
        dataset=opened.spec.name,
        submission_sha256=sha256_of_file(opened.folder / SUBMISSION_FILE),
        files={entry.file: entry.sha256 for entry in opened.submission.files()},
        splits=splits,
        correspondence=track,
        notes=opened.notes,
        versions={
            "ncl_bench": __version__,
            "python": platform.python_version(),
            "numpy": np.__version__,
            "platform": platform.platform(terse=True),
        },
        seconds=round(time.perf_counter() - started, 3),
        peak_memory_mb=round(peak_memory_mb(), 1),
    )
    return report, counted


def peak_memory_mb() -> float:
    """Largest resident memory of this process so far, in MiB."""
    try:
        lines = Path("/proc/self/status").read_text(encoding="ascii").splitlines()
        peak = next(line.split()[1] for line in lines if line.startswith("VmHWM"))
        return int(peak) / 1024
    except (OSError, StopIteration):
        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


def write_result(folder: str | Path, report: Report) -> None:
    """Write ``result.json`` whole or not at all.

    Raises:
        NclBenchError: the place cannot be written.
    """
    write_text(Path(folder) / RESULT_FILE, report.to_json())


def read_result(folder: str | Path) -> Report:
    """Read ``result.json`` of a folder.

    Raises:
        SubmissionError: it is missing, damaged or of another protocol version.
    """
    path = Path(folder) / RESULT_FILE
    try:
        return Report.model_validate_json(path.read_bytes())
    except OSError as error:
        raise SubmissionError(
            f"cannot read {path}: {error.strerror}; run `ncl-bench evaluate {folder}`"
        ) from None
    except ValidationError as error:
        raise SubmissionError(
            f"{path}: {first_problem(error)}; run `ncl-bench evaluate {folder}` again"
        ) from None
