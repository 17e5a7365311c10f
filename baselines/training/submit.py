"""Finished runs to a submission: the best networks on dev score the test split once.

The submission folder is written atomically at the end; a killed call leaves nothing and starts over.

If a recipe sets a number of steps, the last epoch is scored too, so that a table can show how much noise the networks
memorised. No choice depends on it. If the last epoch is also the best one, its scores are reused.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from functools import partial
from hashlib import sha256
from math import inf
from pathlib import Path
from typing import Literal

import numpy as np
import torch
from numpy.typing import NDArray
from rich.console import Console
from safetensors.torch import load

from baselines.kit.batches import in_blocks
from baselines.kit.distributed import device_for, from_first_rank, rank
from baselines.kit.method import Method
from baselines.training.hubs import corrected
from baselines.training.job import FinishedRun, TrainingJob, build_method, initial_network
from baselines.training.scoring import Networks, embed, score
from baselines.training.statement import (
    CLEAN_PROBABILITY,
    pairs_to_judge,
    statement_of,
    statement_of_zero_shot,
)
from ncl_bench.data import dataset_spec
from ncl_bench.data.paired import PairedDataset
from ncl_bench.errors import TrainingError, named, refuse_difference
from ncl_bench.evaluation.protocol import recalls_of
from ncl_bench.evaluation.submission import (
    PAIRS_FILE,
    ArrayFile,
    Correction,
    EmbeddingScores,
    MatrixScores,
    Scores,
    Submission,
    noise_of,
    write_submission,
)
from ncl_bench.files import atomic_folder, refuse_existing, sha256_of_file, sole_owner
from ncl_bench.foreign import read_limited, reading
from ncl_bench.npy import Float32Array
from ncl_bench.progress import bar, opening_line

LARGEST_HEADER = 1_000_000
"""Bytes of the header of a safetensors file, at most: some hundred for every tensor."""
SCORES_FILE = "test.npy"
PAIRS_AT_ONCE = 256
EMBEDDINGS_FILES = ("test_images.npy", "test_captions.npy")

Arrays = Mapping[str, Float32Array]
"""Content of a submission by file name; empty on every rank but the first."""


def submit(
    runs: Sequence[Path],
    to: Path,
    *,
    root: Path | None = None,
    embeddings: bool = False,
    hubs: str | float | None = None,
    device: str = "auto",
    console: Console | None = None,
    say: Callable[[str], object] = lambda line: None,
) -> Submission:
    """Score test with one run, or with the mean of several, and write a submission folder.

    Args:
        runs: finished runs on the same dataset and noise; SGRAF is the mean of an SGR and an SAF run.
        to: folder to write; it must not exist, or be empty.
        root: folder of prepared datasets.
        embeddings: write embeddings of images and captions in place of the matrix; their dot products are the
            similarities.
        hubs: correct the scores for hubs, see :func:`baselines.score`.
        device: ``auto``, ``cpu`` or ``cuda``.
        console: console for progress; standard error by default.
        say: called with :func:`ncl_bench.progress.opening_line`.

    Raises:
        TrainingError: a run is unfinished, the runs do not belong together, a score is not finite, or the folder is in
            use.
    """
    weight = checked_weight(hubs, embeddings)
    finished = [FinishedRun.read(run, root) for run in runs]
    check_alike(finished)
    refuse_existing(to)
    jobs = [run.job for run in finished]
    test = jobs[0].load("test")
    check_vocabulary(finished[0], test)
    torch_device = device_for(device, jobs[0].precision)
    noise = noise_of(finished[0].run.noise, dataset_spec(test.name))
    titles = " + ".join(dict.fromkeys(job.title for job in jobs))
    say(opening_line(test.name, noise.in_words, titles, str(torch_device)))
    methods = [chosen_method(run, torch_device) for run in finished]
    networks = [
        (network, partial(method.ranking_scores, network))
        for method in methods
        for network in method.networks
    ]
    if embeddings:
        _check_dot_products(jobs, methods)
    console = console if rank() == 0 else Console(quiet=True)
    with _owned(to):
        arrays, correction = _scored(networks, jobs[0], test, to, embeddings, weight, torch_device, console)
        # of the best networks: the last epoch loads others into their place
        pairs = pair_estimates(finished, networks, torch_device, console)
        last = None
        # the last epoch of a closed form is only the last setting of its grid
        by_steps = all(job.recipe.steps for job in jobs) and not any(each.closed_form for each in methods)
        if by_steps and correction is None:  # that is chosen for the best networks
            # where the best epoch is the last one, its matrix is at hand
            if not embeddings and all(run.outcome.best_epoch == run.outcome.epochs - 1 for run in finished):
                last = from_first_rank(lambda: _r_sum(arrays[SCORES_FILE], test))
            else:
                last = _last_epoch(finished, methods, networks, test, torch_device, console)
        return from_first_rank(
            lambda: _written(
                to, arrays, pairs, partial(statement_of, finished, test, len(networks), last, correction)
            )
        )


def pair_estimates(
    finished: Sequence[FinishedRun], networks: Networks, device: torch.device, console: Console | None
) -> dict[str, NDArray[np.float16]]:
    """What the scored networks say of every training pair, float16 ``(n_pairs,)``; empty if no seed draws the noise.

    Returns:
        ``similarity`` of its image and caption and, for one run of a method that estimates it, ``clean_probability``.
    """
    recipe = finished[0].job.recipe
    train = pairs_to_judge(finished[0])
    # a method that is told some clean pairs trains on other pairs than these
    if train is None or recipe.method_class.extra_clean_data(recipe.method_config):
        return {}
    similarity, image_of = np.empty(len(train), np.float32), train.caption_to_image
    with bar("compare pairs", len(train), console) as advance:
        for rows in in_blocks(np.argsort(image_of, kind="stable"), PAIRS_AT_ONCE):  # an image is encoded once
            images, of_row = np.unique(image_of[rows], return_inverse=True)
            scores = score(networks, train, images, rows, device=device)
            if rank() == 0:
                similarity[rows] = scores[of_row, np.arange(len(rows))]
            advance(len(rows))
    values = {"similarity": similarity}
    if len(finished) == 1:
        kept = finished[0].folder.read_estimates(finished[0].outcome.best_epoch, len(train))
        values |= {name: x for name, x in kept.items() if name == CLEAN_PROBABILITY}
    return {name: x.astype(np.float16) for name, x in values.items()}


def submit_zero_shot(
    job: TrainingJob,
    to: Path,
    *,
    embeddings: bool = False,
    hubs: str | float | None = None,
    device: str = "auto",
    say: Callable[[str], object] = lambda line: None,
) -> Submission:
    """Score test with a pre-trained network without training, and write a submission folder.

    Args:
        job: dataset and backbone; its method is ignored.
        to: folder to write; it must not exist, or be empty.
        embeddings, hubs: as for :func:`submit`.
        device: ``auto``, ``cpu`` or ``cuda``.
        say: called with :func:`ncl_bench.progress.opening_line`.

    Raises:
        TrainingError: the backbone is not pre-trained, a score is not finite, or the folder is in use.
    """
    weight = checked_weight(hubs, embeddings)
    pretrained = job.backbone.pretrained_encoder(job.recipe.backbone_config)
    if not pretrained:
        raise TrainingError(
            f"backbone {job.recipe.backbone['name']} has no pre-trained weights here; train it, or name weights, such "
            f"as {named('settings', 'backbone.pretrained=openai')} for clip"
        )
    refuse_existing(to)
    test = job.load("test")
    torch_device = device_for(device, job.precision)
    noise = noise_of(test.noise, dataset_spec(test.name))
    say(opening_line(test.name, noise.in_words, f"{job.backbone.title} zero-shot", str(torch_device)))
    network = initial_network(job, test, test.vocabulary.size).eval().to(torch_device)
    if embeddings:
        _check_dot_products([job], [])
    networks: Networks = [(network, lambda similarities: similarities)]
    console = None if rank() == 0 else Console(quiet=True)
    with _owned(to):
        arrays, correction = _scored(networks, job, test, to, embeddings, weight, torch_device, console)
        return from_first_rank(
            lambda: _written(
                to, arrays, {}, partial(statement_of_zero_shot, job, pretrained, test, correction)
            )
        )


def checked_weight(hubs: str | float | None, embeddings: bool) -> float | Literal["auto"] | None:
    """Check the weight of a correction for hubs before anything is scored."""
    # embeddings would be written without the correction that the submission states
    if hubs is not None and embeddings:
        raise TrainingError(f"{named('hubs')} corrects similarities; leave {named('embeddings')} out")
    if hubs is None:
        return None
    if hubs == "auto":
        return "auto"
    with suppress(ValueError):
        if 0 <= float(hubs) < inf:
            return float(hubs)
    raise TrainingError(
        f"{named('hubs', hubs)} is no weight; give a number from 0, or auto to choose it on dev"
    )


@contextmanager
def _owned(to: Path) -> Iterator[None]:
    """Lock the folder before scoring, so that a conflict with another process shows at the start."""
    with ExitStack() as held:

        def claim() -> None:
            held.enter_context(sole_owner(to))
            refuse_existing(to)

        from_first_rank(claim)
        yield


def _scored(
    networks: Networks,
    job: TrainingJob,
    test: PairedDataset,
    to: Path,
    embeddings: bool,
    weight: float | Literal["auto"] | None,
    device: torch.device,
    console: Console | None,
) -> tuple[Arrays, Correction | None]:
    """Score test: the arrays of the submission, which are finite, and how they were corrected for hubs."""
    correction = None
    if weight is not None:
        matrix, correction = corrected(networks, job, test, weight, device, console)
        arrays = {SCORES_FILE: matrix}
    elif embeddings:
        with bar("score", test.n_images + len(test), console) as advance:
            sides = embed([network for network, _ in networks], test, device, advance)
        arrays = dict(zip(EMBEDDINGS_FILES, sides, strict=True))
    else:
        arrays = {SCORES_FILE: _matrix("score", networks, test, device, console)}

    def check() -> None:
        for name, values in arrays.items():
            if not np.isfinite(values).all():
                raise TrainingError(f"{name} of {to} is not finite; the networks cannot be submitted")

    from_first_rank(check)
    return arrays, correction


def _matrix(
    title: str, networks: Networks, test: PairedDataset, device: torch.device, console: Console | None
) -> Float32Array:
    with bar(title, test.n_images * len(test), console) as advance:
        return score(networks, test, device=device, advance=advance)


def _last_epoch(
    finished: Sequence[FinishedRun],
    methods: Sequence[Method],
    networks: Networks,
    test: PairedDataset,
    device: torch.device,
    console: Console | None,
) -> float | None:
    """Compute the rSum on test after the last epoch; None if a checkpoint is missing."""
    for run, method in zip(finished, methods, strict=True):
        state, _ = run.folder.latest_state()
        if state is None:
            return None
        with run.folder.fitting():
            method.load_state_dict(state["method"])
    matrix = _matrix("last epoch", networks, test, device, console)
    return _r_sum(matrix, test) if rank() == 0 else None


def _r_sum(matrix: Float32Array, test: PairedDataset) -> float:
    return round(recalls_of(matrix, dataset_spec(test.name), "test")["r_sum"], 4)


def _written(
    to: Path,
    arrays: Arrays,
    pairs: Mapping[str, NDArray[np.float16]],
    describe: Callable[[Scores], Submission],
) -> Submission:
    """Write the folder of a submission, whole or not at all."""
    # a submission without its scores, or the reverse, would be refused and could not be scored again
    with atomic_folder(to) as folder:
        files = []
        for name, values in arrays.items():
            np.save(folder / name, values)
            files.append(ArrayFile(file=name, sha256=sha256_of_file(folder / name)))
        if pairs:
            np.savez_compressed(folder / PAIRS_FILE, **pairs)  # type: ignore[arg-type]
        submission = describe(
            MatrixScores(matrix=files[0])
            if len(files) == 1
            else EmbeddingScores(similarity="dot", images=files[0], captions=files[1])
        )
        write_submission(folder, submission)
    return submission


def chosen_method(run: FinishedRun, device: torch.device) -> Method:
    """Load the method of a finished run with its best networks on dev, in evaluation mode."""
    # the training split gives the sizes of vocabulary and memories; its features are not read
    method = build_method(run.job, run.job.load("train"), pretrained=False)
    best, stated = run.folder.best, run.outcome.best_sha256
    fix = "train or import it again"
    # a larger file cannot hold these networks, and is not read into memory
    largest = LARGEST_HEADER + sum(x.nbytes for x in method.networks.state_dict().values())
    content = read_limited(best, largest, TrainingError, fix)
    with reading(best, TrainingError, fix=fix):
        if sha256(content).hexdigest() != stated:
            raise ValueError("its sha256 differs from the one in training.json")
        method.networks.load_state_dict(load(content))
    return method.eval().to(device)


def _check_dot_products(jobs: Sequence[TrainingJob], methods: Sequence[Method]) -> None:
    """Check that dot products of embeddings are the scores that the networks rank by."""
    others = [f"backbone {job.recipe.backbone['name']}" for job in jobs if not job.backbone.dot_products]
    others += [each.title for each in methods if type(each).ranking_scores is not Method.ranking_scores]
    if others:
        raise TrainingError(
            f"{others[0]} does not rank by dot products of embeddings; leave {named('embeddings')} out"
        )


def check_alike(finished: Sequence[FinishedRun]) -> None:
    """Check that the scores of several runs can be averaged."""
    if not finished:
        raise TrainingError(argument="runs", got=[], expected="a finished run at least")
    first = finished[0]
    for number, each in enumerate(finished):
        # also through links: a run averaged with itself would count as two
        if any(each.folder.path.samefile(earlier.folder.path) for earlier in finished[:number]):
            raise TrainingError(f"{each.folder.path} is given twice; name every run once")
        there = _alike(first)
        facts = {key: (value, there[key]) for key, value in _alike(each).items()}
        where = f"{each.folder.path}, beside {first.folder.path}"
        refuse_difference(where, facts, "average runs of one kind", TrainingError)


def _alike(each: FinishedRun) -> dict[str, object]:
    run, recipe = each.run, each.run.recipe
    facts = {key: getattr(run, key) for key in ("fingerprint", "vocabulary", "noise", "precision", "keep")}
    facts |= {key: getattr(recipe, key) for key in ("dataset", "language", "tokenizer", "clean_only")}
    # two of them may read images in different ways
    return facts | {"backbone": recipe.backbone if each.job.backbone.reads_images else None}


def check_vocabulary(finished: FinishedRun, split: PairedDataset) -> None:
    """Check that token ids mean the same words as in training."""
    trained, here = finished.run.vocabulary, split.vocabulary.sha256
    where = f"{split.name} has other token ids than {finished.folder.path} was trained with"
    fix = f"use the {named('root')} of the training, or that vocabulary (ncl-bench prepare --vocabulary)"
    refuse_difference(where, {"vocabulary": (here, trained or here)}, fix, TrainingError)
