"""Audits of training pairs: of finished runs, and by LEMoN with embeddings of any encoder."""

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Literal

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from rich.console import Console

from baselines.audit.judge import BETTER, SAMPLE, Judged
from baselines.audit.labelled import labelled_pairs, labels_of_split, says
from baselines.audit.labels import Label, Suspicion, weigh
from baselines.audit.lemon import FIXED, LEMON, MOST_REFERENCE
from baselines.audit.page import write
from baselines.audit.pairs import (
    CROSS_FITTED,
    FIT,
    AuditedRuns,
    clean_probability,
    lemon_table,
    open_runs,
    pair_table,
    suspicious_first,
)
from baselines.audit.result import Audit, AuditedEpoch, AuditedRun, AuditResult, LemonRecord, counts
from baselines.kit.distributed import device_for
from baselines.methods import METHODS
from baselines.training.job import hidden_correspondence
from baselines.training.scoring import embed
from baselines.training.statement import CLEAN_PROBABILITY
from ncl_bench.arguments import checked_arguments
from ncl_bench.data import dataset_spec
from ncl_bench.data.columns import Int64Array
from ncl_bench.data.load import refuse_damage
from ncl_bench.data.pair_labels import LABELS
from ncl_bench.data.paired import PairedDataset
from ncl_bench.errors import ScoresError, TrainingError
from ncl_bench.evaluation.detection import Detection, detection
from ncl_bench.evaluation.pages import Gallery
from ncl_bench.evaluation.scores import check_embeddings, read_array
from ncl_bench.files import atomic_folder, sole_owner
from ncl_bench.progress import bar

SUSPICIOUS = 200
"""Pairs among which wrong ones are counted where the truth is known."""
WIDTH, HEIGHT = 120, 28
"""Size of the curve of a pair's clean probability over the epochs."""
POSTERIOR = "posterior"
THRESHOLD = 0.5
"""Of the posterior and of methods that state none, to measure them; nothing is removed by it."""
SHORTEST = 1e-12
"""Length below which torch does not scale a vector to unit length."""
SEED = 0
"""Seed of the draws of an audit without a run: what a rank is among, and the reference of more than 50,000 pairs."""
LEMON_THRESHOLDS: dict[str, float | None] = {LEMON: None, "similarity": None}
"""Columns that an audit by LEMoN measures; none has a threshold of its own."""


@checked_arguments()
def write_audit(
    runs: Sequence[Path],
    to: Path,
    root: Path | None = None,
    *,
    noise_file: Path | None = None,
    keep: Path | None = None,
    labels: Path | None = None,
    method: Literal["lemon"] | None = None,
    text_encoder: str | None = None,
    device: str = "auto",
    console: Console | None = None,
) -> AuditResult:
    """Audit finished runs and write a new folder, completely or not at all.

    Args:
        runs: finished runs on the same data and noise; several are averaged.
        to: folder to write; it must be empty or not exist.
        root: folder of prepared datasets (default: environment variable ``NCL_BENCH_DATA``).
        noise_file: noise file of the training, if its noise came from one.
        keep: folder of ``ncl-bench audit apply`` that the training kept (default: all pairs).
        labels: labels for natural noise, as the page downloads them: columns pair_id and label (matches, partly, wrong,
            cannot say; default: the labels of the dataset, if it has some).
        method: score pairs by LEMoN, from embeddings (default: by the method of each run).
        text_encoder: text encoder of the view without the run: all-minilm-l6-v2, tfidf, or a name or folder for
            sentence-transformers (default: MiniLM for English captions if it is installed, else tfidf).
        device: device of the networks; ``auto`` takes a GPU if there is one.
        console: console for progress (default: standard error).
    """
    _refuse_existing(to)
    if method == LEMON and text_encoder is not None:
        raise TrainingError(
            "LEMoN takes the embeddings of the run; leave --text-encoder or --method lemon out"
        )
    audited = open_runs(runs, root, noise_file=noise_file, keep=keep)
    train, truth = audited.train, truth_of(audited.train, audited.rows)
    described, first = tuple(_runs(audited)), audited.runs[0]
    known = _read_labels(labels, train)
    facts: dict[str, Any] = {"noise": first.run.noise, "runs": described}
    history, judged, remarks = None, None, []
    with sole_owner(to):
        if method == LEMON:
            table, thresholds = _lemon_of_runs(audited, device, console), LEMON_THRESHOLDS
            facts["lemon"] = _lemon_record(table)
        else:
            table, judged = pair_table(audited, text_encoder=text_encoder, device=device, console=console)
            history = _history(audited)
            own = any(run.has_clean_probability for run in described)
            config = first.job.recipe.method_config
            threshold = float(getattr(config, "clean_threshold", THRESHOLD)) if own else THRESHOLD
            share = round(judged.numbers[0]) / len(table) if judged.enough else None
            thresholds = {FIT: share, CROSS_FITTED: None, "similarity": None, POSTERIOR: THRESHOLD}
            if own:  # measured, and never what removes pairs: as a training weight it calls too many wrong
                thresholds[CLEAN_PROBABILITY] = threshold
            remarks = _of_method(described, table)
            facts["epochs"] = () if truth is None else tuple(_epochs(audited, truth, threshold))
        if known:
            facts["labelled"] = labelled_pairs(*known, train, table, list(thresholds), first.job.seed)
        return _write(to, train, table, truth, thresholds, known, remarks, judged, history, facts)


def write_lemon(
    embeddings: tuple[Path, Path],
    to: Path,
    train: PairedDataset,
    *,
    root: Path | None = None,
    labels: Path | None = None,
    device: str = "auto",
) -> AuditResult:
    """Audit a training split by LEMoN with embeddings of any encoder, and write a new folder, whole or not at all.

    Args:
        embeddings: files of the images and of the captions, a vector each, in the order of the split.
        to: folder to write; it must not exist, or be empty.
        train: the training split with its noise.
        root: folder of prepared datasets that it was loaded from.
        labels: as for :func:`write_audit`.
        device: ``auto``, ``cpu`` or ``cuda``.
    """
    _refuse_existing(to)
    refuse_damage(train.name, root, "train", progress=bar)
    images, captions = _embeddings(embeddings, train)
    rows = np.arange(len(train))
    truth, known = truth_of(train, rows), _read_labels(labels, train)
    with sole_owner(to):
        table = lemon_table(train, rows, SEED, images, captions, device=device_for(device, "32-true"))
        labelled = labelled_pairs(*known, train, table, list(LEMON_THRESHOLDS), SEED) if known else None
        facts: dict[str, Any] = {"noise": replace(train.noise, source=None), "labelled": labelled}
        facts["lemon"] = _lemon_record(table, tuple(map(str, embeddings)))
        return _write(to, train, table, truth, LEMON_THRESHOLDS, known, [], None, None, facts)


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
    with np.errstate(over="ignore"):
        cast = [np.array(array, np.float32) for array in arrays]  # a mapped file would be read-only
        lengths = [np.linalg.norm(array, axis=1) for array in cast]
    for length, file in zip(lengths, files, strict=True):
        bad = np.flatnonzero(~((length > SHORTEST) & np.isfinite(length)))
        if len(bad):
            raise ScoresError(
                f"{file} holds {len(bad):,} vectors whose length is out of the range of float32, the first in row "
                f"{bad[0]}; scale them to unit length"
            )
    return cast


def _lemon_of_runs(audited: AuditedRuns, device: str, console: Console | None) -> pd.DataFrame:
    for run in audited.runs:
        if not run.job.backbone.dot_products:
            raise TrainingError(
                f"backbone {run.job.backbone.name} has no embeddings, which LEMoN needs; audit a run of another "
                "backbone, such as vse_infinity, or give two files of embeddings and --dataset"
            )
    chosen = device_for(device, audited.runs[0].job.precision)
    networks = [network for method in audited.methods(chosen) for network in method.networks]
    train = audited.train
    with bar("embed", train.n_images + len(train), console) as advance:
        sides = embed(networks, train, chosen, advance)
    for side in sides:
        if not np.isfinite(side).all():
            raise TrainingError(
                f"{audited.runs[0].folder.path} gives embeddings that are not finite; train it again"
            )
    seed = audited.runs[0].job.seed
    return lemon_table(train, audited.rows, seed, *sides, device=chosen, console=console)


def _refuse_existing(to: Path) -> None:
    if to.exists() and (not to.is_dir() or any(to.iterdir())):
        raise TrainingError(f"{to} exists already; choose a new folder with --to")


def _read_labels(file: Path | None, train: PairedDataset) -> tuple[Path, dict[int, str]] | None:
    """Read the labels of a file, or else of the dataset; None if there are none."""
    file = file or dataset_spec(train.name).pair_labels
    return None if file is None else (file, labels_of_split(file, train))


def _lemon_record(table: pd.DataFrame, embeddings: tuple[str, ...] = ()) -> LemonRecord:
    return LemonRecord(setting=FIXED, n_reference=min(MOST_REFERENCE, len(table)), embeddings=embeddings)


def _write(
    to: Path,
    train: PairedDataset,
    table: pd.DataFrame,
    truth: NDArray[np.bool_] | None,
    thresholds: Mapping[str, float | None],
    known: tuple[Path, dict[int, str]] | None,
    remarks: Sequence[str],
    judged: Judged | None,
    history: NDArray[np.float32] | None,
    facts: Mapping[str, Any],
) -> AuditResult:
    """Hold a table of pairs against what is known of them, correct it by labels, and write the folder.

    Args:
        to: folder to write.
        train: the split, whole.
        table: of the audited pairs.
        truth: bool ``(n,)``, whether each pair is true; None if unknown.
        thresholds: columns to measure, with the method's own threshold; the first one orders the page.
        known: file of labels, and pair id to label; None without labels.
        remarks: what a reader has to know of the runs.
        judged: the judgement without the runs; None for LEMoN.
        history: float32 ``(epochs, n)``, clean probability of every pair; None if none was stored.
        facts: further entries of the result.
    """
    chosen_by, n = next(iter(thresholds)), len(table)
    measured = {}
    if truth is not None:
        for column, threshold in thresholds.items():
            found = detection_of(table[column].to_numpy(np.float32), truth, threshold)
            if found is not None:
                measured[column] = found
    # before labels: whoever ticked pairs must not raise the score of the estimate
    order, threshold, suspicion = suspicious_first(table, chosen_by), thresholds[chosen_by], None
    first_wrong = None if truth is None else int((~truth[order[:SUSPICIOUS]]).sum())
    # labels name pairs by id; a run may have kept some of them alone
    row_of = {pair: row for row, pair in enumerate(table["pair_id"].tolist())}
    labels = {
        row_of[pair]: Label(label) for pair, label in (known[1] if known else {}).items() if pair in row_of
    }
    if judged is not None:  # what is measured above is the judgement before labels
        suspicion = _weighed(table, order, judged, labels)
        table = table.assign(probability=suspicion.probability)
        if labels:
            order = suspicion.order
            # `apply` compares this column with a threshold, so it must follow the corrected order
            fit = np.empty(n)
            fit[order] = np.arange(1, n + 1) / n
            table[FIT] = fit
            threshold = None if suspicion.wrong is None else suspicion.wrong / n
        facts = {
            **facts,
            **{name: getattr(suspicion, name) for name in ("wrong", "low", "high")},
            "obtained": judged.obtained,
            "order_faults": tuple(
                fault.says(table["pair_id"].to_numpy(), "Pairs") for fault in judged.order_faults
            ),
        }
    reasons = table["reason"].to_numpy(object) if judged is not None else np.full(n, "", object)
    suspect = (suspicion.wrong or 0) if suspicion else 0
    images = table["image_id"].tolist()
    result = AuditResult(
        source=train.name,
        digest=_digest(train, facts, chosen_by),
        n_rows=n,
        n_judged=n,
        n_pictures=len(set(images)),
        reasons=counts(reasons),
        chosen_by=chosen_by,
        threshold=threshold,
        n_suspects=suspect,
        labels={name: sum(each.label == name for each in labels.values()) for name in LABELS}
        if labels
        else {},
        remarks=(
            *remarks,
            *([] if judged is None else [judged.unseen]),
            *_of_truth(train, truth, facts.get("labelled")),
        ),
        dataset=train.name,
        fingerprint=train.fingerprint,
        detection=measured,
        first_wrong=first_wrong,
        **facts,
    )
    # ids of a split ascend
    rows = np.searchsorted(train.pair_ids, table["pair_id"])
    gallery, captions = Gallery(dataset_spec(train.name), train), train.captions
    better = table[[f"better_{place + 1}" for place in range(BETTER)]]
    audit = Audit(
        result=result,
        table=table,
        rows=np.arange(n),
        suspicion=suspicion,
        order=order,
        numbers=table["pair_id"].to_numpy(np.int64),
        images=images,
        captions=[f"caption {pair}" if captions is None else str(captions[pair]) for pair in rows.tolist()],
        # a better caption of a pair that was not audited has no row, and is not shown
        better=np.array(
            [[row_of.get(pair, -1) for pair in line] for line in better.to_numpy(object).tolist()]
        ),
        reasons=reasons,
        left_out=np.full(n, "", object),
        labels=labels,
        picture=lambda row: gallery.picture(int(train.caption_to_image[rows[row]])),
        facts=lambda row: _facts(table, row, chosen_by),
        truth=truth,
        # drawn for the pairs on the page alone, which are few
        curve=lambda row: "" if history is None else _curve(history[:, row]),
    )
    # whole or not at all: a run takes minutes, and half a folder looks like a whole one
    with atomic_folder(to) as folder:
        write(folder, audit, to.name)
    return result


def _weighed(
    table: pd.DataFrame, order: Int64Array, judged: Judged, labels: Mapping[int, Label]
) -> Suspicion:
    """Correct the judgement by labels; without labels, the order is by fit."""
    place = np.empty(len(table))
    place[order] = np.arange(len(table))
    similarity, cross_fitted = (table[name].to_numpy(np.float64) for name in ("similarity", CROSS_FITTED))
    probability = table["probability"].to_numpy(np.float64)
    # the probability rests on one view; the pairs are ordered by both
    # clipped, as a probability of 0 or 1 has no log-odds
    odds = np.log(np.clip(probability, 1e-3, 1 - 1e-3)) - np.log1p(-np.clip(probability, 1e-3, 1 - 1e-3))
    lean = float(np.polyfit(cross_fitted / (cross_fitted.std() + 1e-12), odds, 1)[0]) / 2
    return weigh(-place, probability, (similarity, cross_fitted), judged.numbers, labels, lean)


def _digest(train: PairedDataset, facts: Mapping[str, Any], chosen_by: str) -> str:
    """Hash of the pairs and of what ordered them."""
    by = [run.folder for run in facts.get("runs", ())]
    return hashlib.sha256(
        json.dumps([train.fingerprint, train.noise.sha256, by, chosen_by]).encode()
    ).hexdigest()


def _facts(table: pd.DataFrame, row: int, chosen_by: str) -> list[tuple[str, str]]:
    """What the page shows of a pair beside its chance of being wrong."""
    columns = (chosen_by, CROSS_FITTED, "similarity", CLEAN_PROBABILITY, "loss")
    # by columns, as pandas makes an object of each value of a row
    values = {name: float(table[name].iloc[row]) for name in columns if name in table}
    shown = [
        (name.replace("_", " "), f"{value:.3f}") for name, value in values.items() if not np.isnan(value)
    ]
    rank = f"{table['rank'].iat[row]:,} of {1 + min(SAMPLE, len(table)):,}"
    return [*shown, ("rank of its caption", rank)]


def truth_of(train: PairedDataset, rows: Int64Array) -> NDArray[np.bool_] | None:
    """Which audited pairs are true; None where nobody knows, or all or none of them are."""
    known = hidden_correspondence(train)
    truth = None if known is None else known[rows]
    return None if truth is None or truth.all() or not truth.any() else truth


def detection_of(
    values: NDArray[np.float32], truth: NDArray[np.bool_], threshold: float | None
) -> Detection | None:
    """Of the pairs that have a value; None where these are all true or all wrong."""
    known = ~np.isnan(values)
    if not truth[known].any() or truth[known].all():
        return None
    return detection(values[known], truth[known], threshold)


def _of_truth(train: PairedDataset, truth: NDArray[np.bool_] | None, labelled: Any) -> list[str]:
    """Remarks on what is known of the pairs."""
    if labelled is not None:
        return [says(labelled)]
    if dataset_spec(train.name).noise == "natural":
        return [
            "The noise is natural: nobody knows which pairs are wrong, so nothing is scored. "
            "Labels of some pairs change that (--labels)."
        ]
    return ["All of these pairs are true, or all are wrong, so nothing is scored."] if truth is None else []


def _runs(audited: AuditedRuns) -> list[AuditedRun]:
    return [
        AuditedRun(
            folder=str(each.folder.path),
            method=METHODS[each.run.recipe.method["name"]].title_of(each.run.recipe.method_config),
            backbone=each.job.backbone.title_of(each.run.recipe.backbone_config),
            seed=each.run.seed,
            best_epoch=None if each.run.imported else each.outcome.best_epoch,
            has_clean_probability=CLEAN_PROBABILITY
            in each.folder.read_estimates(each.outcome.best_epoch, len(audited.train)),
        )
        for each in audited.runs
    ]


def _epochs(audited: AuditedRuns, truth: NDArray[np.bool_], threshold: float) -> list[AuditedEpoch]:
    """How well the clean probability of each run finds the wrong pairs after every stored epoch."""
    found = []
    for number, audited_run in enumerate(audited.runs):
        for epoch in range(audited_run.outcome.epochs):
            each = detection_of(clean_probability(audited, epoch, run=number), truth, threshold)
            if each is not None:
                run = str(audited_run.folder.path)
                found.append(AuditedEpoch(run=run, epoch=epoch, detection=each))
    return found


def _history(audited: AuditedRuns) -> NDArray[np.float32]:
    """The first run's clean probability after every stored epoch, float32 ``(epochs, n)``."""
    every = [clean_probability(audited, epoch, run=0) for epoch in range(audited.runs[0].outcome.epochs)]
    kept = [values for values in every if not np.isnan(values).all()]
    return np.stack(kept) if kept else np.empty((0, len(audited.rows)), np.float32)


def _of_method(runs: Sequence[AuditedRun], table: pd.DataFrame) -> list[str]:
    """Remarks on what the runs hold."""
    remarks = []
    without = [run.folder for run in runs if not run.has_clean_probability]
    if without:
        instead = "the column is empty" if len(without) == len(runs) else "the mean is over the other runs"
        remarks.append(f"{', '.join(without)} holds no clean probability of the method: {instead}.")
    if table[POSTERIOR].isna().all():
        remarks.append("All losses are equal, so there is no posterior.")
    return remarks


def _curve(values: NDArray[np.float32]) -> str:
    """Points of an SVG polyline: the clean probability over the epochs; empty if it was not stored."""
    if len(values) < 2 or np.isnan(values).any():
        return ""
    across = np.linspace(1, WIDTH - 1, len(values))
    down = 1 + (HEIGHT - 2) * (1 - np.clip(values, 0, 1))
    return " ".join(f"{x:.1f},{y:.1f}" for x, y in zip(across, down, strict=True))
