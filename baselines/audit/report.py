"""The folder of an audit: the table of pairs, how well it finds the wrong pairs if they are known, and a page.

``pairs.parquet``, ``pairs.csv``    the table of :func:`baselines.audit.pairs.audit`
``result.json``                     the runs, and how well they find the wrong pairs
``index.html``                      the most suspicious pairs, with pictures if the dataset has them
"""

import json
import math
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Literal

import numpy as np
import pandas as pd
from jinja2 import Environment, StrictUndefined
from numpy.typing import NDArray
from rich.console import Console

from baselines.audit.judge import BETTER, SAMPLE, Judged
from baselines.audit.labelled import labelled_pairs, read_labels
from baselines.audit.lemon import FIXED, LEMON, MOST_REFERENCE
from baselines.audit.pairs import (
    CROSS_FITTED,
    FIT,
    AuditedRuns,
    clean_probability,
    lemon_table,
    open_runs,
    pair_table,
)
from baselines.audit.result import (
    RESULT,
    SUREST,
    SUSPICIOUS,
    AuditedRun,
    AuditResult,
    EpochDetection,
    LemonRecord,
    WrongPairs,
    detection_of,
    result_of,
    suspicion,
    truth_of,
)
from baselines.kit.distributed import device_for
from baselines.methods import METHODS
from baselines.training.scoring import embed
from baselines.training.statement import CLEAN_PROBABILITY
from ncl_bench.data import dataset_spec, refuse_damage
from ncl_bench.data.columns import Int64Array
from ncl_bench.data.paired import PairedDataset
from ncl_bench.errors import ScoresError, TrainingError
from ncl_bench.evaluation.pages import Gallery
from ncl_bench.evaluation.scores import check_embeddings, read_array
from ncl_bench.files import atomic_folder, csv_cell, sole_owner, write_text
from ncl_bench.plugins import command_name
from ncl_bench.progress import bar

PAIRS, PAGE = "pairs.parquet", "index.html"
TEMPLATE = Path(__file__).parent / "page.html.j2"
STEPS = 1_000
"""Steps of the slider: where 3 in 1,000 pairs are wrong, a hundredth is too coarse."""
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
    """
    _refuse_existing(to)
    audited = open_runs(runs, root, noise_file=noise_file, keep=keep)
    train, truth = audited.train, truth_of(audited.train, audited.rows)
    described, first = tuple(_runs(audited)), audited.runs[0]
    known = _read_labels(labels, train)
    with sole_owner(to):
        if method == LEMON:
            table = _lemon_of_runs(audited, device, console)
            thresholds, history, remarks = LEMON_THRESHOLDS, None, []
            facts: dict[str, Any] = {"lemon": _lemon_record(table)}
        else:
            table, judged = pair_table(audited, device=device, console=console)
            history, wrong = _history(audited), _wrong(judged)
            own = any(run.has_clean_probability for run in described)
            config = first.job.recipe.method_config
            threshold = float(getattr(config, "clean_threshold", THRESHOLD)) if own else THRESHOLD
            thresholds = {
                FIT: wrong.n / len(table),
                CROSS_FITTED: None,
                "similarity": None,
                POSTERIOR: THRESHOLD,
            }
            if own:  # measured, and never what removes pairs: as a training weight it calls too many wrong
                thresholds[CLEAN_PROBABILITY] = threshold
            remarks = _of_method(described, table)
            epochs = () if truth is None else tuple(_epochs(audited, truth, threshold))
            facts = {"epochs": epochs, "wrong": wrong}
        labelled = labelled_pairs(*known, train, table, list(thresholds), first.job.seed) if known else None
        facts["runs"] = described
        result = result_of(train, first.run.noise, table, truth, labelled, thresholds, remarks, **facts)
        _write(to, result, train, table, truth, history)
    return result


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
        place = device_for(device, "32-true")
        table = lemon_table(train, rows, SEED, images, captions, device=place)
        labelled = labelled_pairs(*known, train, table, list(LEMON_THRESHOLDS), SEED) if known else None
        record = _lemon_record(table, tuple(map(str, embeddings)))
        noise = replace(train.noise, source=None)
        result = result_of(train, noise, table, truth, labelled, LEMON_THRESHOLDS, runs=(), lemon=record)
        _write(to, result, train, table, truth)
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
    place = device_for(device, audited.runs[0].job.precision)
    networks = [network for method in audited.methods(place) for network in method.networks]
    train = audited.train
    with bar("embed", train.n_images + len(train), console) as advance:
        sides = embed(networks, train, place, advance)
    for side in sides:
        if not np.isfinite(side).all():
            raise TrainingError(
                f"{audited.runs[0].folder.path} gives embeddings that are not finite; train it again"
            )
    seed = audited.runs[0].job.seed
    return lemon_table(train, audited.rows, seed, *sides, device=place, console=console)


def _wrong(judged: Judged) -> WrongPairs:
    wrong, low, high = judged.numbers
    return WrongPairs(n=wrong, low=low, high=high, obtained=judged.obtained)


def _refuse_existing(to: Path) -> None:
    if to.exists() and (not to.is_dir() or any(to.iterdir())):
        raise TrainingError(f"{to} exists already; choose a new folder with --to")


def _read_labels(file: Path | None, train: PairedDataset) -> tuple[Path, dict[int, str]] | None:
    """Read the labels of a file, or else of the dataset; None if there are none."""
    file = file or dataset_spec(train.name).pair_labels
    return None if file is None else (file, read_labels(file, train))


def _lemon_record(table: pd.DataFrame, embeddings: tuple[str, ...] = ()) -> LemonRecord:
    return LemonRecord(setting=FIXED, n_reference=min(MOST_REFERENCE, len(table)), embeddings=embeddings)


def _write(
    to: Path,
    result: AuditResult,
    train: PairedDataset,
    table: pd.DataFrame,
    truth: NDArray[np.bool_] | None,
    history: NDArray[np.float32] | None = None,
) -> None:
    order = suspicion(table, result.chosen_by)
    with atomic_folder(to) as folder:
        table.to_parquet(folder / PAIRS, index=False)
        _without_formulas(table).to_csv(folder / "pairs.csv", index=False, lineterminator="\n")
        write_text(folder / RESULT, json.dumps(result.model_dump(mode="json"), indent=2) + "\n")
        _write_page(folder / PAGE, result, train, table, truth, history, order, to.name)


def _without_formulas(table: pd.DataFrame) -> pd.DataFrame:
    """The table with every text as :func:`csv_cell`; captions may begin with an equals sign."""
    texts = table.select_dtypes(["object", "string"]).columns
    return table.assign(**{name: table[name].map(csv_cell, na_action="ignore") for name in texts})


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


def _epochs(audited: AuditedRuns, truth: NDArray[np.bool_], threshold: float) -> list[EpochDetection]:
    """How well the clean probability of each run finds the wrong pairs after every stored epoch."""
    found = []
    for number, audited_run in enumerate(audited.runs):
        for epoch in range(audited_run.outcome.epochs):
            each = detection_of(clean_probability(audited, epoch, run=number), truth, threshold)
            if each is not None:
                run = str(audited_run.folder.path)
                found.append(EpochDetection(run=run, epoch=epoch, detection=each))
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


def _write_page(
    path: Path,
    result: AuditResult,
    train: PairedDataset,
    table: pd.DataFrame,
    truth: NDArray[np.bool_] | None,
    history: NDArray[np.float32] | None,
    order: Int64Array,
    name: str,
) -> None:
    """Write one self-contained file, with a slider for the threshold and a list to export.

    Args:
        path: the ``.html`` file.
        result: summary of the audit.
        train: split of the pairs.
        table: of all audited pairs.
        truth: bool ``(n,)``, whether each pair is true; None if unknown.
        history: float32 ``(epochs, n)``, clean probability of every pair; None if none was stored.
        order: int64 ``(n,)``, rows of the table, the most suspicious first.
        name: name of the audit's folder, for the command on the page.
    """
    suspicious, surest = order[:SUSPICIOUS], order[::-1][:SUREST]
    environment = Environment(
        autoescape=True, undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True
    )
    template = environment.from_string(TEMPLATE.read_text(encoding="utf-8"))
    gallery = Gallery(dataset_spec(train.name), train)
    row_of = pd.Series(np.arange(len(train)), index=train.pair_ids)

    def caption(pair_id: int) -> str:
        captions = train.captions
        return f"caption {pair_id}" if captions is None else str(captions[int(row_of[pair_id])])

    def card(place: int, row: int) -> dict[str, Any]:
        """A pair as the page shows it, at its place in a list, from 1."""
        line = table.iloc[row]
        columns = ("probability", CROSS_FITTED, "similarity", CLEAN_PROBABILITY, "loss")
        shown = [c for c in columns if c != result.chosen_by and c in line and not pd.isna(line[c])]
        value, pair_id = line[result.chosen_by], int(line["pair_id"])
        rank = f"{line['rank']:,} of {1 + min(SAMPLE, len(table)):,}"
        better = (line[f"better_{n + 1}"] for n in range(BETTER))
        return {
            "place": place,
            "pair_id": pair_id,
            "image_id": str(line["image_id"]),
            "picture": gallery.picture(int(train.caption_to_image[row_of[pair_id]])),
            "caption": caption(pair_id),
            "value": None if pd.isna(value) else float(value),
            "numbers": [
                *(
                    ("probably wrong" if c == "probability" else c.replace("_", " "), f"{line[c]:.3f}")
                    for c in shown
                ),
                ("rank of its caption", rank),
            ],
            "better": [caption(int(other)) for other in better if not pd.isna(other)],
            "wrong": None if truth is None else not truth[row],
            "curve": "" if history is None else _curve(history[:, row]),
        }

    values = table[result.chosen_by].to_numpy(np.float32)
    low, high = (0.0, 1.0) if result.threshold is not None else (float(values.min()), float(values.max()))
    limits = low + (high - low) * np.arange(STEPS + 1) / STEPS
    called = _at_most(values, limits)
    start = (
        int(np.searchsorted(called, len(suspicious)))
        if result.threshold is None
        else math.ceil(result.threshold * STEPS)
    )
    wrong = [] if truth is None else _at_most(values[~truth], limits)
    page = template.render(
        result=result,
        suspicious=[card(place, row) for place, row in enumerate(suspicious, 1)],
        surest=[card(place, row) for place, row in enumerate(surest, 1)],
        called=called,
        low=low,
        high=high,
        start=min(start, STEPS - 1),
        wrong=wrong,
        n_wrong=None if truth is None else int((~truth).sum()),
        steps=STEPS,
        command=f"{command_name()} audit apply {name}",
        size=(WIDTH, HEIGHT),
    )
    write_text(path, page + "\n")


def _at_most(values: NDArray[np.float32], limits: NDArray[np.float64]) -> list[int]:
    """Number of values at most each limit; NaN never counts."""
    found = np.searchsorted(np.sort(values), limits.astype(np.float32), side="right")
    return [int(count) for count in found]


def _curve(values: NDArray[np.float32]) -> str:
    """Points of an SVG polyline: the clean probability over the epochs; empty if it was not stored."""
    if len(values) < 2 or np.isnan(values).any():
        return ""
    across = np.linspace(1, WIDTH - 1, len(values))
    down = 1 + (HEIGHT - 2) * (1 - np.clip(values, 0, 1))
    return " ".join(f"{x:.1f},{y:.1f}" for x, y in zip(across, down, strict=True))
