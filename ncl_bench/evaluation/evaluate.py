"""Check scores, count ranks, evaluate, and write the requested files."""

import platform
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ncl_bench import __version__
from ncl_bench.data import dataset_spec
from ncl_bench.data.spec import DatasetSpec
from ncl_bench.errors import ScoresError, SubmissionError
from ncl_bench.evaluation.claims import check_noise, check_order, local_split
from ncl_bench.evaluation.eccv import metrics_of
from ncl_bench.evaluation.metrics import correspondence_metrics
from ncl_bench.evaluation.pages import Gallery, plot_ranks, worst_failures, write_examples
from ncl_bench.evaluation.protocol import (
    PROTOCOL_VERSION,
    check_matrix,
    evaluate_counted,
    expected_shape,
    protocols_of,
    ranks_under,
    t2i_matrix,
)
from ncl_bench.evaluation.ranks import Counted, OnRows
from ncl_bench.evaluation.results import RESULT_FILE, CorrespondenceResult, Evaluation, Result, write_result
from ncl_bench.evaluation.scores import Similarity, as_array
from ncl_bench.evaluation.statement import ArrayFile, opening_line
from ncl_bench.evaluation.submission import SUBMISSION_FILE, MatrixScores, Submission, read_submission
from ncl_bench.evaluation.submission_scores import (
    SplitScores,
    check_sha256,
    embeddings_source,
    matrix_source,
    open_file,
    open_source,
    two_matrices,
)
from ncl_bench.extras import install_command, require
from ncl_bench.files import sha256_of_file, sole_owner, write_text
from ncl_bench.npy import map_npy
from ncl_bench.progress import bar

EVALUATION_FILE = "evaluation.json"
"""File name for the numbers of bare scores; a submission has ``result.json``."""


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
    sources: dict[str, SplitScores]
    probabilities: NDArray[np.floating] | None
    correspondence: NDArray[np.bool_] | None
    notes: tuple[str, ...]
    root: Path | None = None

    @property
    def n_images(self) -> int:
        """Number of images of all evaluated splits."""
        return sum(expected_shape(self.spec, split)[0] for split in self.sources)


def open_submission(folder: str | Path, *, root: Path | None = None) -> Opened:
    """Check statement, order, noise, and the type and hash of every file, without counting ranks.

    Args:
        folder: the submission folder.
        root: folder of prepared datasets (default: environment variable ``NCL_BENCH_DATA``).

    Raises:
        SubmissionError: a statement is wrong.
        ScoresError: a file is missing, damaged, or has the wrong type, shape or order.
        NoiseError: a noise file is refused.
    """
    folder = Path(folder)
    submission = read_submission(folder)
    spec = dataset_spec(submission.dataset)
    sources: dict[str, SplitScores] = {
        split: open_source(folder, scores, spec, split) for split, scores in submission.scores.items()
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
    if any(isinstance(scores, MatrixScores) for scores in submission.scores.values()):
        notes += square_note(spec)
    return Opened(
        folder, submission, spec, sources, probabilities, correspondence, (*notes, *noise_notes), root
    )


def square_note(spec: DatasetSpec) -> list[str]:
    """Note that a square matrix (one caption per image) does not show whether it is transposed."""
    if spec.captions_per_image > 1:
        return []
    return [
        f"{spec.name} has a square matrix, whose shape cannot tell rows from columns: rows were taken as images"
    ]


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

    Raises:
        ScoresError: a score is not finite.
    """
    started = time.perf_counter()
    counted = {split: source.count(on_rows) for split, source in opened.sources.items()}
    splits = {
        split: with_more_matches(
            evaluate_counted(ranks, opened.spec, split),
            opened.sources[split],
            opened.spec,
            opened.root,
        )
        for split, ranks in counted.items()
    }
    track = None
    if opened.probabilities is not None and opened.correspondence is not None:
        track = CorrespondenceResult(
            **correspondence_metrics(opened.probabilities, opened.correspondence),
            pairs=len(opened.correspondence),
            true_pairs=int(opened.correspondence.sum()),
        )
    result = Result(
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
        peak_memory_mb=peak_memory_mb(),
    )
    return result, counted


def with_more_matches(
    evaluation: Evaluation, source: SplitScores, spec: DatasetSpec, root: Path | None
) -> Evaluation:
    """Add ECCV Caption and CxC to an evaluation, or a note on what they need.

    Args:
        evaluation: of one split; returned unchanged if the dataset has no labels of more true matches.
        source: the scores.
        spec: the dataset.
        root: folder of prepared datasets (default: environment variable ``NCL_BENCH_DATA``).

    Raises:
        ScoresError: the prepared images differ from those of the labels, or have another order.
    """
    labels = spec.labels.get(evaluation.split)
    if labels is None:
        return evaluation
    needed = ""
    if find_spec(labels.package) is None:
        needed = f"their labels; install them with: {install_command(labels.extra)}"
    elif (local := local_split(spec, evaluation.split, root)) is None:
        needed = "the image ids; prepare the dataset and name its folder with --root"
    else:
        eccv, cxc = metrics_of(labels.read(local.image_ids), source.places)
        return evaluation.model_copy(update={"eccv": eccv, "cxc": cxc})
    note = f"ECCV Caption and CxC were left out: they need {needed}"
    return evaluation.model_copy(update={"notes": (*evaluation.notes, note)})


def peak_memory_mb() -> float | None:
    """Largest resident memory of this process so far, in MiB; None if the system does not report it (Windows)."""
    try:
        lines = Path("/proc/self/status").read_text(encoding="ascii").splitlines()
        peak = next(line.split()[1] for line in lines if line.startswith("VmHWM"))
        return round(int(peak) / 1024, 1)
    except (OSError, StopIteration):
        pass
    try:
        import resource
    except ModuleNotFoundError:
        return None
    unit = 1 if sys.platform == "darwin" else 1024  # macOS reports bytes, others KiB
    return round(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit / 2**20, 1)


@dataclass(frozen=True)
class Pages:
    """Files to write besides the numbers.

    Attributes:
        to: output folder.
        plot: write histograms of ranks.
        examples: worst failures to show per direction; 0 for no page.
        root: folder of prepared datasets, for pictures and captions of the examples.
    """

    to: Path
    plot: bool = False
    examples: int = 0
    root: Path | None = None


def evaluate_folder(
    folder: Path,
    to: Path,
    *,
    root: Path | None = None,
    plot: bool = False,
    examples: int = 0,
    say: Callable[[str], object] = lambda line: None,
) -> tuple[Result, list[Path]]:
    """Evaluate a submission folder and write the requested files; nothing is written until all is computed.

    Args:
        folder: the submission folder.
        to: output folder.
        root: folder of prepared datasets.
        plot: write histograms of ranks.
        examples: worst failures to show per direction; 0 for no page.
        say: called with :func:`ncl_bench.evaluation.statement.opening_line`.

    Returns:
        The result, and the files written.
    """
    opened = open_submission(folder, root=root)
    spec, method = opened.spec, opened.submission.method
    say(opening_line(spec.name, opened.submission.noise, method, "cpu"))
    with sole_owner(to, nested=False):
        with bar("count ranks", opened.n_images) as on_rows:
            result, counted = evaluate_submission(opened, on_rows=on_rows)
        pages = Pages(to, plot, examples, root)
        drawn = {
            split: _pages(
                pages, opened.sources[split], ranks, spec, split, method, opened.submission.language
            )
            for split, ranks in counted.items()
        }
        write_result(to, result)
        written = [path for each in drawn.values() for path in _write_pages(each)]
    return result, [to / RESULT_FILE, *written]


def evaluate_scores(
    files: Sequence[Path | NDArray[Any]],
    dataset: str,
    split: str = "test",
    *,
    t2i: Path | NDArray[Any] | None = None,
    similarity: Similarity = "cosine",
    root: Path | None = None,
    pages: Pages | None = None,
) -> tuple[Evaluation, list[Path]]:
    """Evaluate scores without a statement; the result is not a submission.

    Args:
        files: one similarity matrix, or the embeddings of images and captions. Files that
            :func:`ncl_bench.evaluation.scores.read_array` reads, or arrays.
        dataset: name of the dataset.
        split: ``test`` or ``dev``.
        t2i: matrix of the captions as queries, if they have their own; see
            :func:`ncl_bench.evaluation.protocol.t2i_matrix`.
        similarity: similarity of embeddings.
        root: folder of prepared datasets, for the image ids that labels of more true matches need.
        pages: what to write besides ``evaluation.json`` (default: write nothing at all).

    Returns:
        The evaluation, and the files written.

    Raises:
        DataError: dataset or split is unknown.
        ScoresError: a file cannot be read, has the wrong type or shape, or holds numbers that are not finite.
    """
    spec = dataset_spec(dataset)
    source = open_scores_of(files, spec, split, similarity=similarity)
    n_images = expected_shape(spec, split)[0]
    if t2i is not None:
        if len(files) > 1:
            raise ScoresError(
                "t2i is a second matrix of similarities, but the first input is embeddings; leave t2i out"
            )
        name = f"{t2i if isinstance(t2i, Path) else 't2i'}, with images as rows"
        source = two_matrices(source, matrix_source(t2i_matrix(t2i, spec, split), spec, split, name))
        n_images *= 2
    with bar("count ranks", n_images) as on_rows:
        counted = source.count(on_rows)
    evaluation = with_more_matches(evaluate_counted(counted, spec, split), source, spec, root)
    said = [] if t2i is not None else square_note(spec)
    if len(files) > 1:
        said = [f"{similarity} of the embeddings was taken as similarity"]
    evaluation = evaluation.model_copy(update={"notes": (*said, *evaluation.notes)})
    if pages is None:
        return evaluation, []
    drawn = _pages(pages, source, counted, spec, split, "Scores", spec.languages[0])
    with sole_owner(pages.to, nested=False):
        write_text(pages.to / EVALUATION_FILE, evaluation.to_json() + "\n")
        return evaluation, [pages.to / EVALUATION_FILE, *_write_pages(drawn)]


def open_scores_of(
    files: Sequence[Path | NDArray[Any]], spec: DatasetSpec, split: str, *, similarity: Similarity = "cosine"
) -> SplitScores:
    """Open one matrix, or the embeddings of images and captions; see :func:`evaluate_scores`.

    Raises:
        ScoresError: a file cannot be read, or has the wrong type or shape.
    """
    if len(files) > 2:
        raise ScoresError(
            f"{len(files)} files of scores are given; give one matrix, or two files of embeddings, images first"
        )
    names = [str(given) if isinstance(given, Path) else "similarities" for given in files]
    arrays = [as_array(given) for given in files]
    if len(arrays) == 2:
        shapes = (expected_shape(spec, split), expected_shape(spec, split)[::-1])
        if shapes[0] != shapes[1] and all(array.shape in shapes for array in arrays):
            raise ScoresError(
                f"{names[0]} and {names[1]} are two matrices of similarities; give the one of the captions as --t2i"
            )
        return embeddings_source(arrays, similarity, spec, split, names)
    check_matrix(arrays[0].shape, arrays[0].dtype, spec, split, names[0])
    return matrix_source(arrays[0], spec, split, names[0])


def _pages(
    pages: Pages,
    source: SplitScores,
    counted: Counted,
    spec: DatasetSpec,
    split: str,
    name: str,
    language: str,
) -> dict[Path, Callable[[Path], None]]:
    """Files to write, each with its writer; whatever can fail has been done before."""
    title = f"{name} on {spec.title}, {split}"
    found: dict[Path, Callable[[Path], None]] = {}
    if pages.examples:
        require("leaderboard", "jinja2", needed_by="--examples")
        gallery = Gallery(spec, local_split(spec, split, pages.root, language))
        failures = worst_failures(counted.whole, source.retrieved, gallery, pages.examples)
        found[pages.to / f"examples_{split}.html"] = partial(
            write_examples, failures=failures, title=f"{title}: worst failures"
        )
    if pages.plot:
        require("leaderboard", "matplotlib", needed_by="--plot")
    for protocol in protocols_of(spec, split) if pages.plot else ():
        found[pages.to / f"ranks_{split}_{protocol}.svg"] = partial(
            plot_ranks,
            ranks=ranks_under(counted, protocol),
            title=title if protocol == split else f"{title} ({protocol})",
        )
    return found


def _write_pages(drawn: dict[Path, Callable[[Path], None]]) -> list[Path]:
    for path, write in drawn.items():
        write(path)
    return list(drawn)
