"""The folder of an audit: the table of pairs, how right it is where the truth is known, and a page to look at.

``pairs.parquet``, ``pairs.csv``    the table of :func:`baselines.audit.pairs.audit`
``result.json``                     which runs, and how well they find the wrong pairs
``index.html``                      the most suspicious pairs, with pictures where the dataset has some
"""

import json
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from rich.console import Console

from baselines.audit.labelled import LabelledPairs, Labels, labelled_pairs, open_labels, says
from baselines.audit.page import write_page
from baselines.audit.pairs import AuditedRuns, clean_probability, open_runs, pair_table
from baselines.audit.result import RESULT, AuditedRun, AuditResult, EpochDetection, read_result
from baselines.engine.measures import Detection, detection, hidden_correspondence
from baselines.engine.statement import CLEAN_PROBABILITY
from baselines.methods import METHODS
from ncl_bench.data import dataset_spec
from ncl_bench.data.columns import Int64Array
from ncl_bench.data.keep import Kept, write_keep
from ncl_bench.errors import TrainingError, first_line
from ncl_bench.files import atomic_path, readable, sole_owner, write_text
from ncl_bench.noise.draw import noise_sha256

PAIRS, PAGE = "pairs.parquet", "index.html"
POSTERIOR = "posterior"
THRESHOLD = 0.5
"""Of the posterior, and of methods that state none."""
SUSPICIOUS, SUREST = 200, 50
"""Pairs on the page."""


def write_audit(
    runs: Sequence[Path],
    to: Path,
    root: Path | None = None,
    *,
    noise_file: Path | None = None,
    keep: Path | None = None,
    labels: Path | None = None,
    device: str = "auto",
    console: Console | None = None,
) -> AuditResult:
    """Audit finished runs and write a new folder, whole or not at all.

    Args:
        runs: finished runs on the same data and noise; several are averaged.
        to: folder to write; it must not exist, or be empty.
        root: folder of prepared datasets.
        noise_file: of the training, where its noise came from a file.
        keep: of the training, where it kept some of the pairs alone.
        labels: CSV file of labels of pairs with natural noise; the dataset's own by default.
        device: ``auto``, ``cpu`` or ``cuda``.
        console: where to draw progress; standard error by default.

    Raises:
        TrainingError: the folder exists, a run is unfinished, or the runs or the data do not belong together.
        NclBenchError: data or noise are missing or refused.
    """
    if to.exists() and (not to.is_dir() or any(to.iterdir())):
        raise TrainingError(f"{to} exists already; choose a new folder with --to")
    audited = open_runs(runs, root, noise_file=noise_file, keep=keep)
    known = open_labels(labels, audited.train)
    with sole_owner(to):
        table = pair_table(audited, device=device, console=console)
        truth = _truth(audited)
        result = _result(audited, table, truth, known)
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
                audited.train,
                suspicious=order[:SUSPICIOUS],
                surest=order[::-1][:SUREST],
                history=_history(audited),
                name=to.name,
            )
            if to.is_dir():
                to.rmdir()  # empty; a folder does not replace another one everywhere
    return result


def apply_audit(audit: Path, to: Path, *, threshold: float = THRESHOLD, ids: Path | None = None) -> Kept:
    """Write the pairs of an audit to keep: those above a threshold, or all but those of a list.

    A pair without a clean probability or posterior, which the method was not trained on, is kept.

    Args:
        audit: folder of :func:`write_audit`.
        to: folder to write; it must not exist, or be empty.
        threshold: of the clean probability, or else the posterior, in [0, 1).
        ids: CSV file with the column ``pair_id``, as the page exports it: pairs to remove, whatever their value.

    Raises:
        TrainingError: the folder holds no audit, the audit tells no pair apart, a listed pair is not in it, or fewer
            than two pairs are left.
        DataError: ``to`` exists, or the list cannot be read.
    """
    result = read_result(audit)
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
    return np.lexsort((table["pair_id"], -table["loss"], table[chosen_by]))


def _truth(audited: AuditedRuns) -> NDArray[np.bool_] | None:
    """Which audited pairs are true; None where nobody knows, or all or none of them are."""
    known = hidden_correspondence(audited.train)
    truth = None if known is None else known[audited.rows]
    return None if truth is None or truth.all() or not truth.any() else truth


def _result(
    audited: AuditedRuns, table: pd.DataFrame, truth: NDArray[np.bool_] | None, labels: Labels | None
) -> AuditResult:
    runs = [
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
        remarks=tuple(_remarks(audited, runs, table, truth, labelled)),
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


def _detection(values: NDArray[np.float32], truth: NDArray[np.bool_], threshold: float) -> Detection | None:
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
    """The first run's clean probability after every epoch that was kept, float32 ``(epochs, n)``."""
    first = audited.only(0)
    every = [clean_probability(first, epoch) for epoch in range(audited.outcomes[0].epochs)]
    kept = [values for values in every if not np.isnan(values).all()]
    return np.stack(kept) if kept else np.empty((0, len(audited.rows)), np.float32)


def _remarks(
    audited: AuditedRuns,
    runs: Sequence[AuditedRun],
    table: pd.DataFrame,
    truth: NDArray[np.bool_] | None,
    labelled: LabelledPairs | None,
) -> list[str]:
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
    if labelled is not None:
        remarks.append(says(labelled))
    elif dataset_spec(audited.train.name).noise == "natural":
        remarks.append(
            "The noise is natural: nobody knows which pairs are wrong, so nothing is scored. "
            "Labels of some pairs change that (--labels)."
        )
    elif truth is None:
        remarks.append("All of these pairs are true, or all are wrong, so nothing is scored.")
    return remarks
