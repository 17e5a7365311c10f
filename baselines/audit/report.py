"""Audits of training pairs: of finished runs, and by LEMoN with embeddings of any encoder."""

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal

import numpy as np
import pandas as pd
from numpy.typing import NDArray
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
    open_runs,
    pair_table,
    suspicious_first,
)
from baselines.audit.result import AuditedEpoch, AuditedRun, AuditResult, LemonRecord
from baselines.kit.distributed import device_for
from baselines.methods import METHODS
from baselines.training.job import hidden_correspondence
from baselines.training.scoring import embed
from baselines.training.statement import CLEAN_PROBABILITY
from ncl_bench.data import dataset_spec
from ncl_bench.data.columns import Int64Array
from ncl_bench.data.load import refuse_damage
from ncl_bench.data.paired import PairedDataset
from ncl_bench.errors import ScoresError, TrainingError, named
from ncl_bench.evaluation.detection import Detection, detection
from ncl_bench.evaluation.pages import Gallery
from ncl_bench.evaluation.scores import check_embeddings, read_array
from ncl_bench.files import atomic_folder, sole_owner
from ncl_bench.progress import bar

SUSPICIOUS = 200
"""Pairs among which wrong ones are counted where the truth is known."""
POSTERIOR = "posterior"
THRESHOLD = 0.5
"""Of the posterior and of methods that state none, to measure them; nothing is removed by it."""
SEED = 0
"""Seed of the draws of an audit without a run: what a rank is among, and the reference of more than 50,000 pairs."""
LEMON_THRESHOLDS: dict[str, float | None] = {LEMON: None, "similarity": None}
"""Columns that an audit by LEMoN measures; none has a threshold of its own."""


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
    """Do what :func:`baselines.audit.call.write_audit` says."""
    _refuse_existing(to)
    if method == LEMON and text_encoder is not None:
        raise TrainingError(
            f"LEMoN takes the embeddings of the run; leave {named('text_encoder')} or {named('method', 'lemon')} out"
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
        return _write(to, train, table, thresholds, known, judged, facts, remarks, history)


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
    known = _read_labels(labels, train)
    with sole_owner(to):
        table = lemon_table(train, rows, SEED, images, captions, device=device_for(device, "32-true"))
        labelled = labelled_pairs(*known, train, table, list(LEMON_THRESHOLDS), SEED) if known else None
        facts: dict[str, Any] = {"noise": replace(train.noise, source=None), "labelled": labelled}
        facts["lemon"] = _lemon_record(table, tuple(map(str, embeddings)))
        return _write(to, train, table, LEMON_THRESHOLDS, known, None, facts)


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


def _refuse_existing(to: Path) -> None:
    if to.exists() and (not to.is_dir() or any(to.iterdir())):
        raise TrainingError(f"{to} exists already; choose a new folder with {named('to')}")


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
    thresholds: Mapping[str, float | None],
    known: tuple[Path, dict[int, str]] | None,
    judged: Judged | None,
    facts: Mapping[str, Any],
    remarks: Sequence[str] = (),
    history: NDArray[np.float32] | None = None,
) -> AuditResult:
    """Hold a table of pairs against what is known of them, correct it by labels, and write the folder.

    Args:
        to: folder to write.
        train: the split, whole.
        table: of the audited pairs.
        thresholds: columns to measure, with the method's own threshold; the first one orders the page.
        known: file of labels, and pair id to label; None without labels.
        judged: the judgement without the runs; None for LEMoN.
        facts: further entries of the result.
        remarks: what a reader has to know of the runs.
        history: float32 ``(epochs, n)``, clean probability of every pair; None if none was stored.
    """
    chosen_by, n, ids = next(iter(thresholds)), len(table), table["pair_id"].tolist()
    # ids of a split ascend
    rows = np.searchsorted(train.pair_ids, ids)
    truth = truth_of(train, rows)
    # before labels: whoever ticked pairs must not raise the score of the estimate
    order = suspicious_first(table, chosen_by)
    measured = {
        column: found
        for column, threshold in thresholds.items()
        if truth is not None
        and (found := detection_of(table[column].to_numpy(np.float32), truth, threshold)) is not None
    }
    # labels name pairs by id; a run may have kept some of them alone
    row_of = {pair: row for row, pair in enumerate(ids)}
    labels = {
        row_of[pair]: Label(label) for pair, label in (known[1] if known else {}).items() if pair in row_of
    }
    captions = train.captions
    of_source = pd.DataFrame(
        {
            "number": ids,
            "image": table["image_id"],
            "caption": [f"caption {pair}" if captions is None else str(captions[pair]) for pair in rows],
            "left_out": "",
        }
    )
    if truth is not None:
        of_source["truth"] = truth
    if history is not None and len(history) > 1:
        of_source["curve"] = [*history.T]
    source = Source(
        of_source,
        _Gallery(Gallery(dataset_spec(train.name), train), train.caption_to_image[rows]),
        {
            "source": train.name,
            "digest": _digest(train, facts, chosen_by),
            "n_pictures": table["image_id"].nunique(),
            "chosen_by": chosen_by,
            "dataset": train.name,
            "fingerprint": train.fingerprint,
            "detection": measured,
            "first_wrong": None if truth is None else int((~truth[order[:SUSPICIOUS]]).sum()),
            **facts,
        },
        "Pairs",
        (*remarks, *_of_truth(train, truth, facts.get("labelled"))),
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


@dataclass(frozen=True)
class _Gallery:
    """Pictures of audited pairs.

    Attributes:
        gallery: pictures of the split.
        image_of: int64 ``(n,)``, each pair's image.
    """

    gallery: Gallery
    image_of: Int64Array

    def picture(self, row: int) -> str:
        """Thumbnail of a pair's picture as a data URI."""
        return self.gallery.picture(int(self.image_of[row]))

    def identity(self, row: int) -> str:
        """Nothing: the id of an image says which it is."""
        return ""


def _weighed(
    table: pd.DataFrame, order: Int64Array, judged: Judged | None, row_of: Mapping[int, int]
) -> Judged:
    """A judgement in the order of the chosen column, as labels correct it; LEMoN only has an order."""
    place = np.empty(len(table))
    place[order] = np.arange(len(table))
    better = table[[f"better_{number}" for number in range(1, BETTER + 1)]].to_numpy(object)
    # a more similar caption of a pair that was not audited has no row, and is not shown
    rows = np.array([[row_of.get(pair, -1) for pair in line] for line in better.tolist()])
    if judged is None:
        unknown = table.assign(score=-place, probability=np.nan, reason="")
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
        table=table.assign(score=-place),
        better=rows,
        views=("similarity", CROSS_FITTED),
        lean=lean,
    )


def _digest(train: PairedDataset, facts: Mapping[str, Any], chosen_by: str) -> str:
    """Hash of the pairs and of what ordered them."""
    by = [run.folder for run in facts.get("runs", ())]
    return hashlib.sha256(
        json.dumps([train.fingerprint, train.noise.sha256, by, chosen_by]).encode()
    ).hexdigest()


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
