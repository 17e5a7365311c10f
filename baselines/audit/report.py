"""The folder of an audit: the table of pairs, how well it finds the wrong pairs if they are known, and a page.

``pairs.parquet``, ``pairs.csv``    the table of :func:`baselines.audit.pairs.audit`
``result.json``                     the runs, and how well they find the wrong pairs
``index.html``                      the most suspicious pairs, with pictures if the dataset has them
"""

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from rich.console import Console

from baselines.audit.labelled import LabelledPairs, Labels, labelled_pairs, open_labels, says
from baselines.audit.lemon import FIXED, LEMON, MOST_REFERENCE, lemon_table
from baselines.audit.page import write_page
from baselines.audit.pairs import AuditedRuns, clean_probability, open_runs, pair_table
from baselines.audit.result import RESULT, AuditedRun, AuditResult, EpochDetection, LemonRecord, read_result
from baselines.engine.measures import Detection, detection, hidden_correspondence
from baselines.engine.scoring import embed
from baselines.engine.statement import CLEAN_PROBABILITY
from baselines.kit.distributed import device_for
from baselines.methods import METHODS
from ncl_bench.data import dataset_spec, refuse_damage
from ncl_bench.data.columns import Int64Array
from ncl_bench.data.keep import Kept, read_pair_ids, write_keep
from ncl_bench.data.paired import PairedDataset
from ncl_bench.errors import ScoresError, TrainingError, first_line
from ncl_bench.evaluation.scores import check_embeddings, read_array
from ncl_bench.files import atomic_folder, csv_cell, readable, sole_owner, write_text
from ncl_bench.noise.draw import NoiseRecord, noise_sha256
from ncl_bench.progress import bar

PAIRS, PAGE = "pairs.parquet", "index.html"
POSTERIOR = "posterior"
THRESHOLD = 0.5
"""Threshold of the posterior, and of methods that state none."""
SUSPICIOUS, SUREST = 200, 50
"""Number of pairs on the page."""
SHORTEST = 1e-12
"""Length below which torch does not scale a vector to unit length."""
SEED = 0
"""Seed of the draws of an audit without a run: what a rank is among, and the reference of more than 50,000 pairs."""


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
    train, first = audited.train, audited.described[0]
    known, described = open_labels(labels, train), tuple(_runs(audited))
    with sole_owner(to):
        by_lemon = method == LEMON
        table = (
            _lemon_of_runs(audited, device, console)
            if by_lemon
            else pair_table(audited, device=device, console=console)
        )
        found = _Found(train, first.noise, table, _truth(train, audited.rows), known, first.seed)
        result = (
            _lemon_result(found, runs=described) if by_lemon else _method_result(found, audited, described)
        )
        _write(to, result, found, None if by_lemon else _history(audited))
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

    Raises:
        TrainingError: the folder exists, or there are too few pairs.
        NclBenchError: embeddings or labels are missing or refused.
    """
    _refuse_existing(to)
    refuse_damage(train.name, root, "train", progress=bar)
    images, captions = _embeddings(embeddings, train)
    known, rows = open_labels(labels, train), np.arange(len(train))
    with sole_owner(to):
        place = device_for(device, "32-true")
        table = lemon_table(train, rows, SEED, images, captions, device=place)
        noise = replace(train.noise, source=None)
        found = _Found(train, noise, table, _truth(train, rows), known, SEED)
        result = _lemon_result(found, embeddings=tuple(map(str, embeddings)))
        _write(to, result, found)
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
    for job in audited.jobs:
        if not job.backbone.dot_products:
            raise TrainingError(
                f"backbone {job.backbone.name} has no embeddings, which LEMoN needs; audit a run of another backbone, "
                "such as vse_infinity, or give two files of embeddings and --dataset"
            )
    place = device_for(device, audited.jobs[0].precision)
    networks = [network for method in audited.methods(place) for network in method.networks]
    train = audited.train
    with bar("embed", train.n_images + len(train), console) as advance:
        sides = embed(networks, train, place, advance)
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


@dataclass(frozen=True, eq=False)
class _Found:
    """What an audit found, and what is known of its pairs.

    Attributes:
        train: the whole split.
        noise: of the split, without its source.
        table: of the audited pairs.
        truth: bool ``(n,)``, which pairs are true; None where nobody knows, or all or none of them are.
        labels: of pairs with natural noise.
        seed: of the draws.
    """

    train: PairedDataset
    noise: NoiseRecord
    table: pd.DataFrame
    truth: NDArray[np.bool_] | None
    labels: Labels | None
    seed: int


def _write(to: Path, result: AuditResult, found: _Found, history: NDArray[np.float32] | None = None) -> None:
    table, order = found.table, suspicion(found.table, result.chosen_by)
    with atomic_folder(to) as folder:
        table.to_parquet(folder / PAIRS, index=False)
        _without_formulas(table).to_csv(folder / "pairs.csv", index=False, lineterminator="\n")
        write_text(folder / RESULT, json.dumps(result.model_dump(mode="json"), indent=2) + "\n")
        write_page(
            folder / PAGE,
            result,
            table,
            found.truth,
            found.train,
            suspicious=order[:SUSPICIOUS],
            surest=order[::-1][:SUREST],
            history=np.empty((0, len(table)), np.float32) if history is None else history,
            name=to.name,
        )


def _without_formulas(table: pd.DataFrame) -> pd.DataFrame:
    """The table with every text as :func:`csv_cell`; captions may begin with an equals sign."""
    texts = table.select_dtypes(["object", "string"]).columns
    return table.assign(**{name: table[name].map(csv_cell, na_action="ignore") for name in texts})


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
    if threshold is not None and not math.isfinite(threshold):
        raise TrainingError(f"threshold is {threshold}, expected a finite number, such as 0.5")
    if ids is None and threshold is None:
        if result.threshold is None:
            raise TrainingError(
                f"{audit} is by LEMoN, which has no threshold of its own; give --threshold (the slider of the page "
                "shows what each removes) or --ids"
            )
        threshold = THRESHOLD
    path = readable(audit / PAIRS, TrainingError, "the table of an audit")
    try:
        _refuse_large(path, result)
        table = pd.read_parquet(path, columns=["pair_id", result.chosen_by])
        every = table["pair_id"].to_numpy(np.int64)
        values = table[result.chosen_by].to_numpy(np.float32, na_value=np.nan)
    except (OSError, ValueError, KeyError, TypeError) as error:
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


def _refuse_large(table: Path, result: AuditResult) -> None:
    """Refuse a table with more pairs than its dataset, or than its summary says, before a column is decompressed."""
    from pyarrow.parquet import read_metadata

    facts = read_metadata(table)
    columns = [
        facts.row_group(group).column(number)
        for group in range(facts.num_row_groups)
        for number in range(facts.num_columns)
    ]
    read = sum(
        each.total_uncompressed_size
        for each in columns
        if each.path_in_schema in ("pair_id", result.chosen_by)
    )
    n_pairs = dataset_spec(result.dataset).n_captions("train")
    if not facts.num_rows == result.n_pairs <= n_pairs or read > 64 * (n_pairs + 1_000):
        raise ValueError(f"{facts.num_rows:,} rows, {RESULT} states {result.n_pairs:,} of {n_pairs:,} pairs")


def _without(pair_ids: Int64Array, file: Path) -> Int64Array:
    """The pairs that a file does not list."""
    expected = "the list that the page of an audit exports: a column pair_id"
    listed = read_pair_ids(file, TrainingError, expected)
    if not len(listed):
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
            has_clean_probability=CLEAN_PROBABILITY
            in folder.read_division(outcome.best_epoch, len(audited.train)),
        )
        for folder, job, run, outcome in zip(
            audited.folders, audited.jobs, audited.described, audited.outcomes, strict=True
        )
    ]


def _method_result(found: _Found, audited: AuditedRuns, runs: tuple[AuditedRun, ...]) -> AuditResult:
    own = any(run.has_clean_probability for run in runs)
    config = audited.jobs[0].recipe.method_config
    threshold = float(getattr(config, "clean_threshold", THRESHOLD)) if own else THRESHOLD
    return _result(
        found,
        CLEAN_PROBABILITY if own else POSTERIOR,
        {CLEAN_PROBABILITY: threshold, POSTERIOR: THRESHOLD},
        _of_method(runs, found.table),
        runs=runs,
        epochs=() if found.truth is None else tuple(_epochs(audited, found.truth, threshold)),
    )


def _lemon_result(
    found: _Found, *, runs: tuple[AuditedRun, ...] = (), embeddings: tuple[str, ...] = ()
) -> AuditResult:
    n_reference = min(MOST_REFERENCE, len(found.table))
    lemon = LemonRecord(setting=FIXED, n_reference=n_reference, embeddings=embeddings)
    return _result(found, LEMON, {LEMON: None, "similarity": None}, runs=runs, lemon=lemon)


def _result(
    found: _Found,
    chosen_by: str,
    thresholds: Mapping[str, float | None],
    remarks: Sequence[str] = (),
    **facts: Any,
) -> AuditResult:
    """Hold the columns of ``thresholds`` against what is known of the pairs; ``chosen_by`` orders the page."""
    table, train, truth = found.table, found.train, found.truth
    order, columns = suspicion(table, chosen_by), list(thresholds)
    labelled, scored = None, dict[str, Detection | None]()
    if found.labels is not None:
        labelled = labelled_pairs(found.labels, train, table, order, columns, found.seed)
    if truth is not None:
        for column, threshold in thresholds.items():
            scored[column] = _detection(table[column].to_numpy(np.float32), truth, threshold)
    return AuditResult(
        dataset=train.name,
        fingerprint=train.fingerprint,
        noise=found.noise,
        n_pairs=len(table),
        chosen_by=chosen_by,
        threshold=thresholds[chosen_by],
        detection={column: each for column, each in scored.items() if each is not None},
        first_wrong=None if truth is None else int((~truth[order[:SUSPICIOUS]]).sum()),
        labelled=labelled,
        remarks=(*remarks, *_of_truth(train, truth, labelled)),
        **facts,
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
