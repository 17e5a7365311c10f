"""The folder of an audit: the table of pairs, how well it finds the wrong pairs if they are known, and a page.

``pairs.parquet``, ``pairs.csv``    the table of :func:`baselines.audit.pairs.audit`
``result.json``                     the runs, and how well they find the wrong pairs
``index.html``                      the most suspicious pairs, with pictures if the dataset has them
"""

import json
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Literal

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from rich.console import Console

from baselines.audit.labelled import LabelledPairs, Labels, labelled_pairs, open_labels, says
from baselines.audit.lemon import FIXED, LEMON, MOST_REFERENCE, lemon_table
from baselines.audit.page import write_page
from baselines.audit.pairs import AuditedRuns, clean_probability, open_runs, pair_table
from baselines.audit.result import RESULT, AuditedRun, AuditResult, EpochDetection, LemonRecord, read_result
from baselines.engine.devices import device_for
from baselines.engine.measures import Detection, detection, hidden_correspondence
from baselines.engine.scoring import embed
from baselines.engine.statement import CLEAN_PROBABILITY
from baselines.engine.submit import chosen_method
from baselines.methods import METHODS
from ncl_bench.data import dataset_spec
from ncl_bench.data.columns import Int64Array
from ncl_bench.data.keep import Kept, write_keep
from ncl_bench.data.paired import PairedDataset
from ncl_bench.errors import ScoresError, TrainingError, first_line
from ncl_bench.evaluation.scores import check_embeddings, read_array
from ncl_bench.files import atomic_path, readable, sole_owner, write_text
from ncl_bench.noise.draw import NoiseRecord, noise_sha256
from ncl_bench.progress import bar

PAIRS, PAGE = "pairs.parquet", "index.html"
POSTERIOR = "posterior"
THRESHOLD = 0.5
"""Threshold of the posterior, and of methods that state none."""
SUSPICIOUS, SUREST = 200, 50
"""Number of pairs on the page."""


def write_audit(
    runs: Sequence[Path],
    to: Path,
    root: Path | None = None,
    *,
    noise_file: Path | None = None,
    keep: Path | None = None,
    labels: Path | None = None,
    method: Literal["lemon"] | None = None,
    device: str = "auto",
    console: Console | None = None,
) -> AuditResult:
    """Audit finished runs and write a new folder, completely or not at all.

    Args:
        runs: finished runs on the same data and noise; several are averaged.
        to: folder to write; it must be empty or not exist.
        root: folder of prepared datasets.
        noise_file: of the training, where its noise came from a file.
        keep: of the training, where it kept some of the pairs alone.
        labels: CSV file of labels of pairs with natural noise; the dataset's own by default.
        method: ``lemon`` scores the pairs by LEMoN, with the embeddings of the runs; by default each run's method does.
        device: ``auto``, ``cpu`` or ``cuda``.
        console: console for progress (default: standard error).

    Raises:
        TrainingError: the folder exists, a run is unfinished, or runs or data do not match.
        NclBenchError: data or noise are missing or refused.
    """
    _refuse_existing(to)
    audited = open_runs(runs, root, noise_file=noise_file, keep=keep)
    train, rows = audited.train, audited.rows
    known = open_labels(labels, train)
    with sole_owner(to):
        truth = _truth(train, rows)
        if method == LEMON:
            table = _lemon_of_runs(audited, device, console)
            seed = audited.described[0].seed
            result = _lemon_result(train, audited.described[0].noise, table, truth, known, seed)
            result = result.model_copy(update={"runs": tuple(_runs(audited))})
            history = np.empty((0, len(rows)), np.float32)
        else:
            table = pair_table(audited, device=device, console=console)
            result, history = _result(audited, table, truth, known), _history(audited)
        _write(to, result, table, truth, train, history)
    return result


def write_lemon(
    embeddings: tuple[Path, Path],
    to: Path,
    train: PairedDataset,
    *,
    labels: Path | None = None,
    seed: int = 0,
    device: str = "auto",
    console: Console | None = None,
) -> AuditResult:
    """Audit a training split by LEMoN with embeddings of any encoder, and write a new folder, whole or not at all.

    Args:
        embeddings: files of the images and of the captions, a vector each, in the order of the split.
        to: folder to write; it must not exist, or be empty.
        train: the training split with its noise.
        labels: as for :func:`write_audit`.
        seed: of the draws: what a rank is among, and the reference of more than 50,000 pairs.
        device: ``auto``, ``cpu`` or ``cuda``.
        console: where to draw progress; standard error by default.

    Raises:
        TrainingError: the folder exists, or there are too few pairs.
        NclBenchError: embeddings or labels are missing or refused.
    """
    _refuse_existing(to)
    images, captions = _embeddings(embeddings, train)
    known, rows = open_labels(labels, train), np.arange(len(train))
    with sole_owner(to):
        truth = _truth(train, rows)
        place = device_for(device, "32-true", None)
        table = lemon_table(train, rows, seed, images, captions, device=place, console=console)
        noise = replace(train.noise, source=None)
        result = _lemon_result(train, noise, table, truth, known, seed, tuple(map(str, embeddings)))
        _write(to, result, table, truth, train, np.empty((0, len(rows)), np.float32))
    return result


def _embeddings(files: tuple[Path, Path], train: PairedDataset) -> list[NDArray[np.float32]]:
    """Read the vectors of a split's images and of its captions."""
    arrays = [read_array(file) for file in files]
    for array, file, n in zip(arrays, files, (train.n_images, len(train)), strict=True):
        dim = arrays[0].shape[-1] if arrays[0].ndim else 0
        if array.dtype.kind != "f" or array.shape != (n, dim):
            raise ScoresError(
                f"{file} holds {array.dtype} of shape {array.shape}, but {train.name} has {train.n_images:,} images "
                f"and {len(train):,} captions to train on; expected a float vector of one length for each, images first"
            )
        check_embeddings(array, str(file), "cosine")
    return [np.array(array, np.float32) for array in arrays]  # a mapped file would be read-only


def _lemon_of_runs(audited: AuditedRuns, device: str, console: Console | None) -> pd.DataFrame:
    for job in audited.jobs:
        if not job.backbone.dot_products:
            raise TrainingError(
                f"backbone {job.backbone.name} has no embeddings, which LEMoN needs; audit a run of another backbone, "
                "such as vse_infinity, or give two files of embeddings and --dataset"
            )
    place = device_for(device, audited.jobs[0].precision, None)
    methods = [
        chosen_method(job, folder, place) for job, folder in zip(audited.jobs, audited.folders, strict=True)
    ]
    train = audited.train
    with bar("embed", train.n_images + len(train), console) as advance:
        sides = embed([network for method in methods for network in method.networks], train, place, advance)
    for side in sides:
        if not np.isfinite(side).all():
            raise TrainingError(
                f"{audited.folders[0].path} gives embeddings that are not finite; train it again"
            )
    seed = audited.described[0].seed
    return lemon_table(train, audited.rows, seed, *sides, device=place, console=console)


def _refuse_existing(to: Path) -> None:
    if to.exists() and (not to.is_dir() or any(to.iterdir())):
        raise TrainingError(f"{to} exists already; choose a new folder with --to")


def _write(
    to: Path,
    result: AuditResult,
    table: pd.DataFrame,
    truth: NDArray[np.bool_] | None,
    train: PairedDataset,
    history: NDArray[np.float32],
) -> None:
    order = suspicion(table, result.chosen_by)
    with atomic_path(to) as folder:
        folder.mkdir()
        table.to_parquet(folder / PAIRS, index=False)
        table.to_csv(folder / "pairs.csv", index=False, lineterminator="\n")
        write_text(folder / RESULT, json.dumps(result.model_dump(mode="json"), indent=2) + "\n")
        write_page(
            folder / PAGE,
            result,
            table,
            truth,
            train,
            suspicious=order[:SUSPICIOUS],
            surest=order[::-1][:SUREST],
            history=history,
            name=to.name,
        )
        if to.is_dir():
            to.rmdir()  # empty; a folder does not replace another one everywhere


def apply_audit(audit: Path, to: Path, *, threshold: float | None = None, ids: Path | None = None) -> Kept:
    """Write the pairs of an audit to keep: those above a threshold, or all but those of a list.

    A pair without a value, which the method was not trained on, is kept.

    Args:
        audit: folder of :func:`write_audit`.
        to: folder to write; it must not exist, or be empty.
        threshold: of the clean probability, or else the posterior, in [0, 1), by default 0.5; or of LEMoN.
        ids: CSV file with the column ``pair_id``, as the page exports it: pairs to remove, whatever their value.

    Raises:
        TrainingError: the folder holds no audit, the audit tells no pair apart, a listed pair is not in it, or fewer
            than two pairs are left.
        DataError: ``to`` exists, or the list cannot be read.
    """
    result = read_result(audit)
    if ids is None and threshold is None:
        if result.threshold is None:
            raise TrainingError(
                f"{audit} is by LEMoN, which has no threshold of its own; give --threshold (the slider of the page "
                "shows what each removes) or --ids"
            )
        threshold = THRESHOLD
    path = readable(audit / PAIRS, TrainingError, "the table of an audit")
    try:
        table = pd.read_parquet(path, columns=["pair_id", result.chosen_by])
        every = table["pair_id"].to_numpy(np.int64)
        values = table[result.chosen_by].to_numpy(np.float32, na_value=np.nan)
    except (OSError, ValueError, KeyError) as error:
        raise TrainingError(f"{path} is damaged ({first_line(error)}); run `ncl-bench audit` again") from None
    if ids is not None:
        kept, others = _without(every, ids), f"are not in {ids}; list fewer"
    elif np.isnan(values).all():
        raise TrainingError(f"{audit} tells no pair apart: all losses are equal; audit another run")
    else:
        kept = every[~(values <= np.float32(threshold))]
        others = f"have a {result.chosen_by} above {threshold:g}; choose a lower --threshold"
    if len(kept) < 2:
        raise TrainingError(f"training needs two pairs, but {len(kept)} of {len(every):,} {others}")
    record = Kept(
        dataset=result.dataset,
        fingerprint=result.fingerprint,
        noise=result.noise,
        n_pairs=len(every),
        n_kept=len(kept),
        sha256=noise_sha256(kept),
        chosen_by=result.chosen_by if ids is None else "ids",
        threshold=threshold if ids is None else None,
        runs=tuple(run.folder for run in result.runs),
    )
    write_keep(to, kept, record)
    return record


def _without(pair_ids: Int64Array, file: Path) -> Int64Array:
    """The pairs that a file does not list."""
    expected = "the list that the page of an audit exports: a column pair_id"
    path = readable(file, TrainingError, expected)
    try:
        header, *lines = path.read_text("utf-8-sig").split() or [""]
        listed = np.array([int(line) for line in lines], np.int64)
    except (ValueError, OverflowError):
        raise TrainingError(f"{file} holds lines that are no pair id; expected {expected}") from None
    if header != "pair_id" or not len(listed):
        raise TrainingError(f"{file} lists no pairs; expected {expected}")
    unknown = np.setdiff1d(listed, pair_ids)
    if len(unknown):
        raise TrainingError(
            f"{file} lists pair {unknown[0]}, which was not audited; give the list of this audit"
        )
    return pair_ids[~np.isin(pair_ids, listed)]


def suspicion(table: pd.DataFrame, chosen_by: str) -> NDArray[np.int64]:
    """Rows of the table, the most suspicious first: by the chosen column, then the larger loss, then the pair's id."""
    then = table["similarity"] if chosen_by == LEMON else -table["loss"]
    return np.lexsort((table["pair_id"], then, table[chosen_by]))


def _truth(train: PairedDataset, rows: Int64Array) -> NDArray[np.bool_] | None:
    """Which audited pairs are true; None where nobody knows, or all or none of them are."""
    known = hidden_correspondence(train)
    truth = None if known is None else known[rows]
    return None if truth is None or truth.all() or not truth.any() else truth


def _runs(audited: AuditedRuns) -> list[AuditedRun]:
    return [
        AuditedRun(
            folder=str(folder.path),
            method=METHODS[job.recipe.method["name"]].title_of(job.recipe.method_config),
            backbone=job.backbone.title_of(job.recipe.backbone_config),
            seed=run.seed,
            best_epoch=None if run.imported else outcome.best_epoch,
            has_clean_probability=CLEAN_PROBABILITY in folder.read_division(outcome.best_epoch),
        )
        for folder, job, run, outcome in zip(
            audited.folders, audited.jobs, audited.described, audited.outcomes, strict=True
        )
    ]


def _result(
    audited: AuditedRuns, table: pd.DataFrame, truth: NDArray[np.bool_] | None, labels: Labels | None
) -> AuditResult:
    runs = _runs(audited)
    own = any(run.has_clean_probability for run in runs)
    chosen_by = CLEAN_PROBABILITY if own else POSTERIOR
    config = audited.jobs[0].recipe.method_config
    threshold = float(getattr(config, "clean_threshold", THRESHOLD)) if own else THRESHOLD
    order, columns = suspicion(table, chosen_by), [CLEAN_PROBABILITY, POSTERIOR]
    seed = audited.described[0].seed
    labelled = None if labels is None else labelled_pairs(labels, audited.train, table, order, columns, seed)
    result = AuditResult(
        dataset=audited.train.name,
        fingerprint=audited.train.fingerprint,
        noise=audited.described[0].noise,
        n_pairs=len(table),
        runs=tuple(runs),
        chosen_by=chosen_by,
        threshold=threshold,
        labelled=labelled,
        remarks=(*_of_method(runs, table), *_of_truth(audited.train, truth, labelled)),
    )
    if truth is None:
        return result
    found = {
        column: _detection(table[column].to_numpy(np.float32), truth, limit)
        for column, limit in ((CLEAN_PROBABILITY, threshold), (POSTERIOR, THRESHOLD))
    }
    return result.model_copy(
        update={
            "detection": {column: each for column, each in found.items() if each is not None},
            "first_wrong": int((~truth[order[:SUSPICIOUS]]).sum()),
            "epochs": tuple(_epochs(audited, truth, threshold)),
        }
    )


def _lemon_result(
    train: PairedDataset,
    noise: NoiseRecord,
    table: pd.DataFrame,
    truth: NDArray[np.bool_] | None,
    labels: Labels | None,
    seed: int,
    embeddings: tuple[str, ...] = (),
) -> AuditResult:
    order, columns = suspicion(table, LEMON), [LEMON, "similarity"]
    labelled = None if labels is None else labelled_pairs(labels, train, table, order, columns, seed)
    found = (
        {} if truth is None else {c: _detection(table[c].to_numpy(np.float32), truth, None) for c in columns}
    )
    return AuditResult(
        dataset=train.name,
        fingerprint=train.fingerprint,
        noise=noise,
        n_pairs=len(table),
        runs=(),
        chosen_by=LEMON,
        threshold=None,
        detection={column: each for column, each in found.items() if each is not None},
        first_wrong=None if truth is None else int((~truth[order[:SUSPICIOUS]]).sum()),
        lemon=LemonRecord(setting=FIXED, n_reference=min(MOST_REFERENCE, len(table)), embeddings=embeddings),
        labelled=labelled,
        remarks=tuple(_of_truth(train, truth, labelled)),
    )


def _detection(
    values: NDArray[np.float32], truth: NDArray[np.bool_], threshold: float | None
) -> Detection | None:
    """Of the pairs that have a value; None where these are all true or all wrong."""
    known = ~np.isnan(values)
    if not truth[known].any() or truth[known].all():
        return None
    return detection(values[known], truth[known], threshold)


def _epochs(audited: AuditedRuns, truth: NDArray[np.bool_], threshold: float) -> list[EpochDetection]:
    found = []
    for number, outcome in enumerate(audited.outcomes):
        one = audited.only(number)
        for epoch in range(outcome.epochs):
            each = _detection(clean_probability(one, epoch), truth, threshold)
            if each is not None:
                run = str(one.folders[0].path)
                found.append(EpochDetection(run=run, epoch=epoch, detection=each))
    return found


def _history(audited: AuditedRuns) -> NDArray[np.float32]:
    """The first run's clean probability after every stored epoch, float32 ``(epochs, n)``."""
    first = audited.only(0)
    every = [clean_probability(first, epoch) for epoch in range(audited.outcomes[0].epochs)]
    kept = [values for values in every if not np.isnan(values).all()]
    return np.stack(kept) if kept else np.empty((0, len(audited.rows)), np.float32)


def _of_method(runs: Sequence[AuditedRun], table: pd.DataFrame) -> list[str]:
    """Remarks on what the runs hold."""
    remarks = []
    without = [run.folder for run in runs if not run.has_clean_probability]
    if without:
        instead = (
            "pairs are ordered by the posterior of a mixture over their losses"
            if len(without) == len(runs)
            else "the mean is over the other runs"
        )
        remarks.append(f"{', '.join(without)} holds no clean probability of the method: {instead}.")
    if table[POSTERIOR].isna().all():
        remarks.append("All losses are equal, so there is no posterior.")
    return remarks


def _of_truth(
    train: PairedDataset, truth: NDArray[np.bool_] | None, labelled: LabelledPairs | None
) -> list[str]:
    """Remarks on what is known of the pairs."""
    if labelled is not None:
        return [says(labelled)]
    if dataset_spec(train.name).noise == "natural":
        return [
            "The noise is natural: nobody knows which pairs are wrong, so nothing is scored. "
            "Labels of some pairs change that (--labels)."
        ]
    return ["All of these pairs are true, or all are wrong, so nothing is scored."] if truth is None else []
