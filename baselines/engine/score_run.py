"""Finished runs to a submission: the test split is scored once, by the networks chosen on dev.

Of runs whose recipes give a number of steps the networks of the last epoch are evaluated beside them, so that a table
can show what they had memorised; no choice depends on it. Where that epoch was the best one, its scores are at hand.

Scoring goes on where an interrupted call stopped, with as many processes as before or not: rank 0 fills a hidden
file block by block, which takes its final name when it is whole.
"""

import json
import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager, nullcontext
from functools import partial
from hashlib import sha256
from pathlib import Path
from tempfile import TemporaryFile
from typing import IO, Any

import numpy as np
import torch
from numpy.typing import NDArray
from rich.console import Console
from safetensors import SafetensorError
from safetensors.torch import load
from torch import nn

from baselines.backbones import BACKBONES
from baselines.engine.checkpoint import latest_state
from baselines.engine.devices import fabric_for
from baselines.engine.embeddings import embed
from baselines.engine.progress import progress_bar
from baselines.engine.records import Run
from baselines.engine.run_folder import RunFolder, TrainingJob
from baselines.engine.similarities import IMAGE_BLOCK, RankingScores, score_blocks
from baselines.engine.statement import statement_of, statement_of_zero_shot
from baselines.engine.train import build_method, initial_network
from baselines.kit.distributed import from_first_rank, rank
from baselines.kit.method import Method
from ncl_bench.data.paired import PairedDataset
from ncl_bench.errors import TrainingError
from ncl_bench.evaluation.protocol import evaluate
from ncl_bench.evaluation.scores import release_pages
from ncl_bench.evaluation.submission import (
    SUBMISSION_FILE,
    ArrayFile,
    EmbeddingScores,
    MatrixScores,
    Scores,
    Submission,
    write_submission,
)
from ncl_bench.files import atomic_path, is_leftover, sha256_of_file, sole_owner, write_text

SCORES_FILE = "test.npy"
EMBEDDINGS_FILES = ("test_images.npy", "test_captions.npy")
_FILES = {SCORES_FILE, *EMBEDDINGS_FILES}


def submit(
    runs: Sequence[Path],
    to: Path,
    *,
    root: Path | None = None,
    embeddings: bool = False,
    device: str = "auto",
    devices: int | None = None,
    console: Console | None = None,
) -> Submission:
    """Score test with one run, or with the mean of several, and write a submission folder.

    Args:
        runs: finished runs on the same dataset and noise; SGRAF is the mean of an SGR and an SAF run.
        to: folder to write; it must not hold a submission yet.
        root: folder of prepared datasets.
        embeddings: write embeddings of images and captions, whose dot products are the similarities, in place of the
            matrix; an interrupted call starts over then.
        device: ``auto``, ``cpu`` or ``cuda``.
        devices: processes on this machine, one device each; see :func:`baselines.engine.devices.fabric_for`.
        console: where to draw progress; standard error by default.

    Raises:
        TrainingError: a run is unfinished, the runs do not belong together, or the folder is in use.
    """
    folders = [RunFolder(run) for run in runs]
    described = [folder.read_run() for folder in folders]
    finished = [
        None if run.imported else folder.read_outcome()
        for run, folder in zip(described, folders, strict=True)
    ]
    _check_alike(runs, described)
    _check_target(to)
    jobs = [folder.job(root) for folder in folders]
    test = jobs[0].load("test")
    _check_vocabulary(runs[0], described[0], test)
    fabric = fabric_for(device, jobs[0].precision, devices)
    methods = [chosen_method(job, folder, fabric.device) for job, folder in zip(jobs, folders, strict=True)]
    records = [record and record.model_dump(mode="json") for record in (*described, *finished)]
    networks = [
        (network, partial(method.ranking_scores, network))
        for method in methods
        for network in method.networks
    ]
    if embeddings:
        _check_dot_products(jobs, methods)
    with _scored(to, records, networks, test, embeddings, fabric.device, console):
        if any(job.recipe.steps is None for job in jobs):
            last_epoch = None
        elif not embeddings and all(run and run.best_epoch == run.epochs - 1 for run in finished):
            last_epoch = from_first_rank(lambda: _r_sum(_whole_matrix(to), test))
        else:
            last_epoch = _last_epoch(folders, methods, networks, test, to, fabric.device, _shown(console))

        def describe(scores: Scores) -> Submission:
            return statement_of(jobs, folders, described, test, len(networks), scores, last_epoch)

        return from_first_rank(lambda: _submitted(to, describe))


def submit_zero_shot(
    job: TrainingJob,
    to: Path,
    *,
    embeddings: bool = False,
    device: str = "auto",
    devices: int | None = None,
    console: Console | None = None,
) -> Submission:
    """Score test with a pre-trained network as it is, and write a submission folder.

    Args:
        job: names dataset and backbone; nothing of its method is used.
        to: folder to write; it must not hold a submission yet.
        embeddings: as for :func:`submit`.
        device: ``auto``, ``cpu`` or ``cuda``.
        devices: processes on this machine, one device each.
        console: where to draw progress; standard error by default.

    Raises:
        TrainingError: the backbone is not pre-trained, or the folder is in use.
    """
    pretrained = job.backbone.pretrained_encoder(job.recipe.backbone_config)
    if not pretrained:
        raise TrainingError(
            f"backbone {job.recipe.backbone['name']} has no pre-trained weights here; train it, or name such weights, "
            "as --set backbone.pretrained=openai does for clip"
        )
    _check_target(to)
    test = job.load("test")
    fabric = fabric_for(device, job.precision, devices)
    network = initial_network(job, test, test.vocabulary.size).eval().to(fabric.device)
    records = [job.recipe.model_dump(mode="json"), job.precision, pretrained]

    def describe(scores: Scores) -> Submission:
        return statement_of_zero_shot(job, pretrained, test, scores)

    if embeddings:
        _check_dot_products([job], [])
    with _scored(to, records, [(network, lambda x: x)], test, embeddings, fabric.device, console):
        return from_first_rank(lambda: _submitted(to, describe))


Networks = Sequence[tuple[nn.Module, RankingScores]]
"""Networks in evaluation mode, with what they rank by."""


def _check_target(to: Path) -> None:
    if (to / SUBMISSION_FILE).exists():
        (to / _JOURNAL).unlink(missing_ok=True)
        raise TrainingError(
            f"{to} holds a submission already; test is scored once, choose a new folder with --to"
        )
    held = {path.name for path in to.iterdir() if not is_leftover(path)} if to.is_dir() else set()
    if held - {*_FILES, _PART, _JOURNAL} or (held and held <= _FILES):
        raise TrainingError(f"{to} exists and is no submission; choose a new folder with --to")


@contextmanager
def _scored(
    to: Path,
    records: Sequence[Any],
    networks: Networks,
    test: PairedDataset,
    embeddings: bool,
    device: torch.device,
    console: Console | None,
) -> Iterator[None]:
    """Own the folder, in which the scores are whole; a matrix of an interrupted call for the same records is kept."""
    key = json.dumps(records, sort_keys=True)
    with ExitStack() as held_open:

        def begin() -> tuple[int, int]:
            held_open.enter_context(sole_owner(to))
            to.mkdir(parents=True, exist_ok=True)
            return _done(to, "" if embeddings else key)

        done = from_first_rank(begin)
        shown = _shown(console)
        if embeddings:
            _write_embeddings(networks, test, to, device, shown)
        elif done[0] < test.n_images:
            _score_the_rest(networks, test, to, key, done, device, shown)
        yield


def _submitted(to: Path, describe: Callable[[Scores], Submission]) -> Submission:
    submission = describe(_whole_scores(to))
    write_submission(to, submission)
    (to / _JOURNAL).unlink(missing_ok=True)
    return submission


def chosen_method(job: TrainingJob, folder: RunFolder, device: torch.device) -> Method:
    """The method of a finished run with the networks that were best on dev, in evaluation mode."""
    method = build_method(job, job.load("train"), job.seed, pretrained=False)
    stated = folder.read_outcome().best_sha256 if folder.finished else None
    try:
        content = folder.best.read_bytes()
        if stated not in (None, sha256(content).hexdigest()):
            raise SafetensorError("its sha256 is not the one that training.json states")
        method.networks.load_state_dict(load(content))
    except (OSError, SafetensorError, RuntimeError) as error:
        problem = str(error).splitlines()[0]
        raise TrainingError(f"{folder.best} is missing or damaged ({problem}); train again") from None
    return method.eval().to(device)


_PART = f".{SCORES_FILE}.part"
_JOURNAL = ".journal.json"


def _last_epoch(
    folders: Sequence[RunFolder],
    methods: Sequence[Method],
    networks: Networks,
    test: PairedDataset,
    to: Path,
    device: torch.device,
    console: Console,
) -> float | None:
    """rSum on test of the networks of the last epoch; None where checkpoints are gone."""
    for folder, method in zip(folders, methods, strict=True):
        state, _ = latest_state(folder.checkpoints)
        if state is None:
            return None
        method.load_state_dict(state["method"])
    with TemporaryFile(dir=to) if rank() == 0 else nullcontext() as file:
        matrix = None if file is None else _matrix_in(file, test, to)
        for place in _blocks("last epoch", networks, test, device, console):
            _fill(matrix, *place)
        return None if matrix is None else _r_sum(matrix, test)


def _r_sum(matrix: NDArray[np.float32] | Path, test: PairedDataset) -> float:
    return round(evaluate(matrix, dataset=test.name, intervals=False).r_sum, 4)


def _matrix_in(file: IO[bytes], test: PairedDataset, folder: Path) -> np.memmap[Any, np.dtype[np.float32]]:
    """Room for the scores of a split in a file without a name."""
    shape = (test.n_images, len(test))
    _take_space(file, 4 * shape[0] * shape[1], folder)
    return np.memmap(file, np.float32, "r+", shape=shape)


def _fill(
    matrix: np.memmap[Any, np.dtype[np.float32]] | None,
    images: slice,
    captions: slice,
    block: NDArray[np.float32],
) -> None:
    """Write a block, and keep none of its pages in memory."""
    assert matrix is not None
    matrix[images, captions] = block
    matrix.flush()
    release_pages(matrix, images.start, images.stop)


def _shown(console: Console | None) -> Console:
    """Where the first rank draws its progress."""
    return (console or Console(stderr=True)) if rank() == 0 else Console(quiet=True)


def _blocks(
    title: str,
    networks: Networks,
    test: PairedDataset,
    device: torch.device,
    console: Console,
    done: tuple[int, int] = (0, 0),
) -> Iterator[tuple[slice, slice, NDArray[np.float32]]]:
    """Blocks of scores, with a bar."""
    blocks = score_blocks(
        [network for network, _ in networks],
        test,
        n_images=test.n_images,
        device=device,
        first_image=done[0],
        first_caption=done[1],
        rank_by=[rank_by for _, rank_by in networks],
    )
    with progress_bar(console) as bar:
        task = bar.add_task(title, total=test.n_images * len(test), state="")
        for images, captions, block in blocks:
            yield images, captions, block
            height = images.stop - images.start
            bar.update(task, completed=images.start * len(test) + captions.stop * height)


def _done(to: Path, key: str) -> tuple[int, int]:
    """How far an interrupted call for the same runs has come; what another call left is deleted.

    Returns:
        Images that are scored with all captions, and captions that are scored with the next strip of images.
    """
    journal = to / _JOURNAL
    if journal.is_file():
        content = json.loads(journal.read_text(encoding="utf-8"))
        if content["key"] == key and ((to / SCORES_FILE).is_file() or (to / _PART).is_file()):
            return int(content.get("images", 0)), int(content["captions"])
    for name in (*_FILES, _PART, _JOURNAL):
        (to / name).unlink(missing_ok=True)
    return 0, 0


def _score_the_rest(
    networks: Networks,
    test: PairedDataset,
    to: Path,
    key: str,
    done: tuple[int, int],
    device: torch.device,
    console: Console,
) -> None:
    """Fill the hidden file with what :func:`_done` does not count; every rank takes part, rank 0 writes."""
    matrix = None
    if rank() == 0:
        begun, shape = any(done), (test.n_images, len(test))
        options: dict[str, Any] = {} if begun else {"dtype": "<f4", "shape": shape}
        matrix = np.lib.format.open_memmap(to / _PART, mode="r+" if begun else "w+", **options)
        with (to / _PART).open("r+b") as part:
            _take_space(part, (to / _PART).stat().st_size, to / _PART)
    for images, captions, block in _blocks("score", networks, test, device, console, done):
        _fill(matrix, images, captions, block)
        whole = captions.stop == len(test)
        reached = (images.stop, 0) if whole else (images.start, captions.stop)
        write_text(to / _JOURNAL, json.dumps({"key": key, "images": reached[0], "captions": reached[1]}))


def _write_embeddings(
    networks: Networks, test: PairedDataset, to: Path, device: torch.device, console: Console
) -> None:
    with progress_bar(console) as bar:
        task = bar.add_task("score", total=test.n_images + len(test), state="")
        sides = embed([network for network, _ in networks], test, device, lambda n: bar.advance(task, n))
    if rank() == 0:
        write_text(to / _JOURNAL, json.dumps({"key": "", "captions": 0}))  # what lies here is ours
        for name, side in zip(EMBEDDINGS_FILES, sides, strict=True):
            if not np.isfinite(side).all():
                raise TrainingError(f"embeddings of {to} are not finite; the networks cannot be submitted")
            with atomic_path(to / name) as temporary, temporary.open("wb") as stream:
                np.save(stream, side)


def _check_dot_products(jobs: Sequence[TrainingJob], methods: Sequence[Method]) -> None:
    """Embeddings say all that the networks rank by."""
    for job in jobs:
        if not job.backbone.dot_products:
            raise TrainingError(
                f"backbone {job.recipe.backbone['name']} does not compare by dot products of embeddings; leave "
                "--embeddings out"
            )
    for method in methods:
        if type(method).ranking_scores is not Method.ranking_scores:
            raise TrainingError(
                f"{type(method).title} ranks by other scores than similarities; leave --embeddings out"
            )


def _take_space(file: IO[bytes], size: int, place: Path) -> None:
    """A page of a mapped file that the disk cannot hold would kill the process when it is written.

    Args:
        file: to become so large.
        size: in bytes.
        place: of the file, or its folder where it has no name.
    """
    if not hasattr(os, "posix_fallocate"):
        file.truncate(size)
        return
    try:
        os.posix_fallocate(file.fileno(), 0, size)
    except OSError as error:
        if place.is_file():
            place.unlink()
        raise TrainingError(f"cannot write {place}: {error.strerror}") from None


def _whole_scores(to: Path) -> Scores:
    paths = [to / name for name in EMBEDDINGS_FILES]
    if all(path.is_file() for path in paths):
        images, captions = (ArrayFile(file=path.name, sha256=sha256_of_file(path)) for path in paths)
        return EmbeddingScores(similarity="dot", images=images, captions=captions)
    return MatrixScores(matrix=ArrayFile(file=SCORES_FILE, sha256=sha256_of_file(_whole_matrix(to))))


def _whole_matrix(to: Path) -> Path:
    """The matrix, which takes its final name here."""
    target, part = to / SCORES_FILE, to / _PART
    if not target.is_file():
        matrix = np.load(part, mmap_mode="r", allow_pickle=False)
        for start in range(0, len(matrix), IMAGE_BLOCK):
            if not np.isfinite(matrix[start : start + IMAGE_BLOCK]).all():
                raise TrainingError(f"scores of {to} are not finite; the networks cannot be submitted")
            release_pages(matrix, start, min(start + IMAGE_BLOCK, len(matrix)))
        os.replace(part, target)
    return target


def _check_alike(runs: Sequence[Path], described: Sequence[Run]) -> None:
    for number, run in enumerate(runs):
        if any(run.samefile(earlier) for earlier in runs[:number]):
            raise TrainingError(f"{run} is given twice; every run counts once in a mean")
    for run, other in zip(runs[1:], described[1:], strict=True):
        for key in ("fingerprint", "vocabulary", "noise", "precision"):
            if getattr(other, key) != getattr(described[0], key):
                raise TrainingError(
                    f"{run} and {runs[0]} have another {key}; only runs that share it can be averaged"
                )
        for key in ("dataset", "language", "tokenizer", "clean_only"):
            if getattr(other.recipe, key) != getattr(described[0].recipe, key):
                raise TrainingError(
                    f"{run} and {runs[0]} have another {key}; only runs that share it can be averaged"
                )
        pair = [BACKBONES[each.recipe.backbone["name"]].reads_images for each in (other, described[0])]
        if any(pair) and other.recipe.backbone != described[0].recipe.backbone:
            raise TrainingError(
                f"{run} and {runs[0]} have another backbone, which may read images in another way; only runs that "
                "share it can be averaged"
            )


def _check_vocabulary(run: Path, described: Run, test: PairedDataset) -> None:
    """Word ids mean the same words as in training."""
    trained = described.vocabulary
    if trained is not None and trained != test.vocabulary.sha256:
        raise TrainingError(
            f"{run} was trained with the vocabulary {trained[:8]}, {test.name} was prepared here with "
            f"{test.vocabulary.sha256[:8]}, so the token ids differ; give the --root of the training, or prepare the "
            "dataset with its vocabulary (ncl-bench prepare --vocabulary)"
        )
