"""Audits of training pairs: of finished runs, and by LEMoN with embeddings of any encoder."""

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from rich.console import Console

from baselines.audit.assemble import Source, assemble
from baselines.audit.judge import BETTER, Judged
from baselines.audit.labelled import labelled_pairs, labels_of_split, says
from baselines.audit.labels import Label
from baselines.audit.lemon import FIXED, LEMON, MOST_REFERENCE
from baselines.audit.page import FACTS, write
from baselines.audit.pairs import (
    CROSS_FITTED,
    FIT,
    AuditedRuns,
    clean_probability,
    lemon_table,
    pair_table,
    suspicious_first,
)
from baselines.audit.result import AuditedEpoch, AuditedRun, AuditResult, LemonRecord
from baselines.kit.distributed import device_for
from baselines.training.job import hidden_correspondence
from baselines.training.scoring import embed
from baselines.training.statement import CLEAN_PROBABILITY
from ncl_bench.data import dataset_spec
from ncl_bench.data.load import refuse_damage
from ncl_bench.data.paired import PairedDataset
from ncl_bench.errors import ScoresError, TrainingError, named
from ncl_bench.evaluation.detection import Detection, detection
from ncl_bench.evaluation.pages import Gallery
from ncl_bench.evaluation.scores import check_embeddings, read_array
from ncl_bench.files import atomic_folder, refuse_existing, sole_owner
from ncl_bench.npy import BoolArray, Float32Array, Int64Array
from ncl_bench.progress import bar

SUSPICIOUS = 200
"""Pairs among which wrong ones are counted where the truth is known."""
POSTERIOR = "posterior"
THRESHOLD = 0.5
"""Of the posterior and of methods that state none, to measure them; nothing is removed by it."""
SEED = 0
"""Seed of the draws of an audit without a run: what a rank is among, and the reference of more than 50,000 pairs."""
NATURAL = (
    "The noise is natural: nobody knows which pairs are wrong, so nothing is scored. Labels of some pairs change that "
    "(--labels)."
)
LEMON_THRESHOLDS: dict[str, float | None] = {LEMON: None, "similarity": None}
"""Columns that an audit by LEMoN measures; none has a threshold of its own."""


def write_runs(
    audited: AuditedRuns,
    to: Path,
    labels: Path | None,
    *,
    by_lemon: bool,
    text_encoder: str | None,
    device: str,
    console: Console | None,
) -> AuditResult:
    """Audit opened runs; arguments as for :func:`baselines.audit.write_audit`."""
    train, first, described = audited.train, audited.runs[0], tuple(_runs(audited))
    known, seed = _read_labels(labels, train), first.job.seed
    facts: dict[str, Any] = {"noise": first.run.noise, "runs": described}
    with sole_owner(to):
        if by_lemon:
            table = _lemon_of_runs(audited, device, console)
            return _write(to, train, table, LEMON_THRESHOLDS, known, seed, facts)
        table, judged = pair_table(audited, text_encoder=text_encoder, device=device, console=console)
        own = any(run.has_clean_probability for run in described)
        threshold = float(getattr(first.job.recipe.method_config, "clean_threshold", THRESHOLD))
        share = round(judged.numbers[0]) / len(table) if judged.enough else None
        thresholds = {FIT: share, CROSS_FITTED: None, "similarity": None, POSTERIOR: THRESHOLD}
        if own:  # measured, and never what removes pairs: as a training weight it calls too many wrong
            thresholds[CLEAN_PROBABILITY] = threshold
        histories = [
            np.stack([clean_probability(audited, epoch, run=number) for epoch in range(run.outcome.epochs)])
            for number, run in enumerate(audited.runs)
        ]
        if (truth := hidden_correspondence(train, audited.rows)) is not None:
            facts["epochs"] = [
                AuditedEpoch(run=run.folder, epoch=epoch, detection=measured)
                for run, history in zip(described, histories, strict=True)
                for epoch, values in enumerate(history)
                if (measured := detection_of(values, truth, threshold if own else THRESHOLD))
            ]
        kept = histories[0][~np.isnan(histories[0]).all(axis=1)]
        remarks = _of_method(described, table)
        return _write(to, train, table, thresholds, known, seed, facts, judged, remarks, kept)


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
        labels: as for :func:`baselines.audit.write_audit`.
        device: ``auto``, ``cpu`` or ``cuda``.
    """
    refuse_existing(to)
    refuse_damage(train.name, root, "train", progress=bar)
    images, captions = _embeddings(embeddings, train)
    known = _read_labels(labels, train)
    with sole_owner(to):
        chosen_device = device_for(device, "32-true")
        table = lemon_table(train, np.arange(len(train)), SEED, images, captions, device=chosen_device)
        facts = {"noise": replace(train.noise, source=None), "embeddings": tuple(map(str, embeddings))}
        return _write(to, train, table, LEMON_THRESHOLDS, known, SEED, facts)


def _embeddings(files: tuple[Path, Path], train: PairedDataset) -> list[Float32Array]:
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
    # scaled before the cast: no length is beyond the range of float32
    return [
        (array / np.linalg.norm(np.asarray(array, np.float64), axis=1)[:, None]).astype(np.float32)
        for array in arrays
    ]


def _lemon_of_runs(audited: AuditedRuns, device: str, console: Console | None) -> pd.DataFrame:
    for run in audited.runs:
        if not run.job.backbone.dot_products:
            raise TrainingError(
                f"backbone {run.job.backbone.name} has no embeddings, which LEMoN needs; audit a run of another "
                f"backbone, such as vse_infinity, or give two files of embeddings and {named('dataset')}"
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


def _read_labels(file: Path | None, train: PairedDataset) -> tuple[Path, dict[int, str]] | None:
    """Read the labels of a file, or else of the dataset; None if there are none."""
    file = file or dataset_spec(train.name).pair_labels
    return None if file is None else (file, labels_of_split(file, train))


def _write(
    to: Path,
    train: PairedDataset,
    table: pd.DataFrame,
    thresholds: Mapping[str, float | None],
    known: tuple[Path, dict[int, str]] | None,
    seed: int,
    facts: dict[str, Any],
    judged: Judged | None = None,
    remarks: Sequence[str] = (),
    history: Float32Array | tuple[()] = (),
) -> AuditResult:
    """Hold a table of pairs against what is known of them, correct it by labels, and write the folder.

    Args:
        to: folder to write.
        train: the split, whole.
        table: of the audited pairs.
        thresholds: columns to measure, with the method's own threshold; the first one orders the page.
        known: file of labels, and pair id to label; None without labels.
        seed: of the bootstrap of labelled pairs.
        facts: further entries of the result.
        judged: the judgement without the runs; None for LEMoN.
        remarks: what a reader has to know of the runs.
        history: float32 ``(epochs, n)``, clean probability of every pair.
    """
    chosen_by, n, ids = next(iter(thresholds)), len(table), table["pair_id"].tolist()
    rows = np.searchsorted(train.pair_ids, ids)  # ids of a split ascend
    truth, spec, captions = hidden_correspondence(train, rows), dataset_spec(train.name), train.captions
    # before labels: whoever ticked pairs must not raise the score of the estimate
    order = suspicious_first(table, chosen_by)
    if truth is not None:
        facts["first_wrong"] = int((~truth[order[:SUSPICIOUS]]).sum())
        facts["detection"] = {
            column: measured
            for column, threshold in thresholds.items()
            if (measured := detection_of(table[column].to_numpy(np.float32), truth, threshold))
        }
    if known:
        facts["labelled"] = labelled_pairs(*known, train, table, list(thresholds), seed)
        remarks = [*remarks, says(facts["labelled"])]
    elif spec.noise == "natural":
        remarks = [*remarks, NATURAL]
    elif truth is None:
        remarks = [*remarks, "All of these pairs are true, or all are wrong, so nothing is scored."]
    if judged is None:
        facts["lemon"] = LemonRecord(
            setting=FIXED, n_reference=min(MOST_REFERENCE, n), embeddings=facts.pop("embeddings", ())
        )
    # labels name pairs by id; a run may have kept some of them alone
    row_of = {pair: row for row, pair in enumerate(ids)}
    labels = {
        row_of[pair]: Label(label) for pair, label in (known[1] if known else {}).items() if pair in row_of
    }
    by = [run.folder for run in facts.get("runs", ())]
    digest = json.dumps([train.fingerprint, train.noise.sha256, by, chosen_by]).encode()
    gallery, image_of = Gallery(spec, train), train.caption_to_image[rows]
    source = Source(
        pd.DataFrame(
            {
                "number": ids,
                "image": table["image_id"],
                "caption": [f"caption {pair}" if captions is None else str(captions[pair]) for pair in rows],
                "left_out": "",
                "copy_of": "",
            }
            | ({} if truth is None else {"truth": truth})
            | ({"curve": [*np.transpose(history)]} if len(history) > 1 else {})
        ),
        picture=lambda row: gallery.picture(int(image_of[row])),
        identity=lambda row: "",  # the id of an image says which it is
        facts={
            "source": train.name,
            "digest": hashlib.sha256(digest).hexdigest(),
            "n_pictures": table["image_id"].nunique(),
            "chosen_by": chosen_by,
            "dataset": train.name,
            "fingerprint": train.fingerprint,
            **facts,
        },
        words="Pairs",
        remarks=tuple(remarks),
    )
    audit = assemble(source, _weighed(table, order, judged, row_of), labels)
    threshold, wrong = thresholds[chosen_by], audit.result.wrong
    if judged is not None:
        table = table.assign(probability=audit.table["probability"].to_numpy(np.float64))
    if judged is not None and labels:
        # `apply` compares this column with a threshold, so it must follow the corrected order
        table[FIT] = audit.table["place"].to_numpy(np.int64) / n
        threshold = None if wrong is None else wrong / n
    changed = {"threshold": threshold, "n_suspects": wrong or 0}
    shown = audit.table.assign(**table[[name for name in FACTS if name in table]])
    audit = replace(audit, table=shown, result=audit.result.model_copy(update=changed))
    # whole or not at all: a run takes minutes, and half a folder looks like a whole one
    with atomic_folder(to) as folder:
        write(folder, audit, table, to.name)
    return audit.result


def _weighed(
    table: pd.DataFrame, order: Int64Array, judged: Judged | None, row_of: Mapping[int, int]
) -> Judged:
    """A judgement in the order of the chosen column, as labels correct it; LEMoN only has an order."""
    position = np.argsort(order)
    better = table[[f"better_{number}" for number in range(1, BETTER + 1)]]
    # a more similar caption of a pair that was not audited has no row, and is not shown
    rows = better.apply(lambda pairs: pairs.map(row_of)).fillna(-1).to_numpy(np.int64)
    if judged is None:
        unknown = table.assign(score=-position, probability=np.nan, reason="")
        none = float("nan")
        return Judged(unknown, none, none, none, "", rows, unseen="", views=(LEMON, "similarity"))
    # the probability rests on one view; the pairs are ordered by both
    # clipped, as a probability of 0 or 1 has no log-odds
    probability = np.clip(table["probability"].to_numpy(np.float64), 1e-3, 1 - 1e-3)
    cross_fitted = table[CROSS_FITTED].to_numpy(np.float64)
    odds = np.log(probability) - np.log1p(-probability)
    lean = float(np.polyfit(cross_fitted / (cross_fitted.std() + 1e-12), odds, 1)[0]) / 2
    return replace(
        judged,
        table=table.assign(score=-position),
        better=rows,
        views=("similarity", CROSS_FITTED),
        lean=lean,
    )


def detection_of(values: Float32Array, truth: BoolArray, threshold: float | None) -> Detection | None:
    """Of the pairs that have a value; None where these are all true or all wrong."""
    known = ~np.isnan(values)
    if not truth[known].any() or truth[known].all():
        return None
    return detection(values[known], truth[known], threshold)


def _runs(audited: AuditedRuns) -> list[AuditedRun]:
    return [
        AuditedRun(
            folder=str(each.folder.path),
            method=each.run.recipe.method_class.title_of(each.run.recipe.method_config),
            backbone=each.job.backbone.title_of(each.run.recipe.backbone_config),
            seed=each.run.seed,
            best_epoch=None if each.run.imported else each.outcome.best_epoch,
            has_clean_probability=CLEAN_PROBABILITY
            in each.folder.read_estimates(each.outcome.best_epoch, len(audited.train)),
        )
        for each in audited.runs
    ]


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
