"""Plots of a run like the figures of the papers, which their titles name: as SVG, and as CSV to plot again.

What the run's history tells is drawn from it alone. The rest needs the finished run and its training data: what the
method believed of every pair after each epoch, and the best networks, as in the audit.
"""

from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from baselines.audit.pairs import AuditedRuns, open_runs, own_values
from baselines.kit.batches import derive_seed
from baselines.kit.mixture import fitted_mixture, min_max_normalised
from baselines.training.job import hidden_correspondence
from baselines.training.measures import Epoch
from baselines.training.run_folder import RunFolder
from baselines.training.statement import CLEAN_PROBABILITY
from ncl_bench.errors import NclBenchError
from ncl_bench.evaluation.pages import new_figure, save_figure
from ncl_bench.files import sole_owner, write_text
from ncl_bench.npy import BoolArray, Float32Array, Float64Array, FloatArray
from ncl_bench.tables import csv_of

BINS = 40
TRUE, FALSE = "#2b8a3e", "#e8590c"
SHOWN_AS = {
    CLEAN_PROBABILITY: "CRCL Fig. 1c and 1f",
    "cross_modal": "GSC Fig. 5c",
    "intra_modal": "GSC Fig. 5d",
}
"""Figures of the papers that show an estimate."""


def plot_run(
    folder: RunFolder,
    root: Path | None = None,
    *,
    noise_file: Path | None = None,
    keep: Path | None = None,
    device: str = "auto",
    say: Callable[[str], object] = print,
) -> list[Path]:
    """Write the figures of a run below its ``plots`` folder.

    Args:
        folder: run folder with at least one complete epoch.
        root: folder of prepared datasets (default: environment variable ``NCL_BENCH_DATA``).
        noise_file: noise file of the training, if its noise came from one.
        keep: folder of ``ncl-bench audit apply`` that the training kept (default: all pairs).
        device: device of the networks; ``auto`` takes a GPU if there is one.
        say: gets a sentence where the figures of single pairs cannot be drawn.

    Returns:
        The files written: ``curves``; for synthetic noise and methods that estimate the correspondence also
        ``separation`` (AUROC and average precision per epoch) and ``histograms`` (last epoch); and of a finished run,
        as far as the method kept the data, ``losses``, ``similarities``, ``predictions``, ``weights``,
        ``loss_by_epoch`` and ``agreement``.

    Raises:
        TrainingError: the folder is not a run.
        NclBenchError: another process is writing the same plots.
    """
    plots = folder.path / "plots"
    with sole_owner(plots, inside=folder.path):
        history = folder.read_history()
        written = _curves(history, plots)
        if any(entry.diagnosis for entry in history):
            written += _separation(history, plots) + _histograms(history, plots)
        try:
            audited = open_runs([folder.path], root, noise_file=noise_file, keep=keep)
        except NclBenchError as error:
            say(f"The figures of single pairs are left out: {error}")
        else:
            written += _of_pairs(audited, device, plots)
    return written


def _of_pairs(audited: AuditedRuns, device: str, plots: Path) -> list[Path]:
    """The figures that a finished run has the data of."""
    (run,), truth = audited.runs, hidden_correspondence(audited.train, audited.rows)
    groups = {"pairs": np.ones(len(audited.rows), np.bool_)}
    if truth is not None:
        groups = {"true pairs": truth, "false pairs": ~truth}
    n_pairs, outcome, seed = len(audited.train), run.outcome, run.job.seed
    # what the method believed of every pair after each epoch; nothing of imported weights
    by_epoch = [
        {name: values[audited.rows] for name, values in run.folder.read_estimates(epoch, n_pairs).items()}
        for epoch in range(outcome.epochs)
    ]
    best = by_epoch[outcome.best_epoch] if by_epoch else {}
    own, threshold = (
        own_values(audited, device=device),
        getattr(run.job.recipe.method_config, "clean_threshold", None),
    )
    draw = partial(_pair_histogram, groups, f"epoch {outcome.best_epoch}")
    fit = derive_seed(seed, "audit", "mixture")
    written = draw(plots / "losses", "loss of each pair", "NCR Fig. 3b", own["loss"], mixture=fit)
    written += draw(
        plots / "similarities", "similarity", "CRCL Fig. 1b and 1e, GSC Fig. 2", own["similarity"]
    )
    if CLEAN_PROBABILITY in best and threshold is not None:
        noisy = best[CLEAN_PROBABILITY] <= threshold
        written += draw(
            plots / "predictions", "prediction, noisy subset", "NCR Fig. 3c", own["prediction"], chosen=noisy
        )
    if "agreement" in best:
        fit, shown = derive_seed(seed, "plot", "agreement"), "GSC Fig. 2 and 5b"
        written += draw(plots / "agreement", "intra-modal similarity", shown, best["agreement"], mixture=fit)
    for figure, label, paper, name in (
        ("weights", "mean weight", "GSC Fig. 5a", CLEAN_PROBABILITY),
        ("loss_by_epoch", "mean loss", "PC2 Fig. 2", "loss"),
    ):
        means = [
            (epoch, group, float(values[name][mask].mean()))
            for epoch, values in enumerate(by_epoch)
            if name in values
            for group, mask in groups.items()
        ]
        if means:
            written += _over_epochs(plots / figure, label, paper, means)
    return written


def _pair_histogram(
    groups: Mapping[str, BoolArray],
    epoch: str,
    path: Path,
    label: str,
    paper: str,
    values: Float32Array,
    *,
    chosen: BoolArray | None = None,
    mixture: int | None = None,
) -> list[Path]:
    """A histogram of one value of all or the chosen pairs; with the seed of a fit, its two components as well."""
    chosen = np.ones(len(values), np.bool_) if chosen is None else chosen
    if not chosen.any():
        return []
    edges = np.histogram_bin_edges(values[chosen], bins=BINS)
    figure, (axes,) = _figure(1)
    counts = {group: np.histogram(values[chosen & mask], bins=edges)[0] for group, mask in groups.items()}
    _stairs(axes, edges, counts)
    table = _bins(edges, counts)
    if mixture is not None and values.min() < values.max():
        centres = (edges[:-1] + edges[1:]) / 2
        for number, density in enumerate(_components(values, centres, mixture)):
            table[f"component_{number + 1}"] = component = density * len(values) * (edges[1] - edges[0])
            axes.plot(centres, component, color="#1c1c1c", lw=1, ls=("-", "--")[number])
    axes.set(xlabel=label, ylabel="pairs", title=f"{paper}: {epoch}")
    axes.legend(frameon=False)
    return _write(path, figure, table)


def _components(values: Float32Array, at: Float64Array, seed: int) -> list[Float64Array]:
    """Weighted densities of the two components that the methods fit, the one with the smaller mean first."""
    fit, low, span = fitted_mixture(min_max_normalised(values), seed), values.min(), np.ptp(values)
    densities = []
    for k in np.argsort(fit.means_.ravel()):
        variance = float(fit.covariances_[k, 0, 0])
        away = (at - low) / span - fit.means_[k, 0]
        density = np.exp(-(away**2) / (2 * variance)) / np.sqrt(2 * np.pi * variance)
        densities.append(fit.weights_[k] * density / span)
    return densities


def _over_epochs(path: Path, label: str, paper: str, means: list[tuple[int, str, float]]) -> list[Path]:
    """The means of true and of false pairs after each epoch that kept them."""
    table = pd.DataFrame(means, columns=["epoch", "pairs", "mean"])
    figure, (axes,) = _figure(1)
    for color, (group, own) in zip((TRUE, FALSE), table.groupby("pairs", sort=False), strict=False):
        axes.plot(own["epoch"], own["mean"], color=color, marker=".", label=group)
    axes.xaxis.get_major_locator().set_params(integer=True)
    axes.set(xlabel="epoch", ylabel=label, title=paper, ylim=(0, 1.05 * table["mean"].max()))
    axes.legend(frameon=False)
    return _write(path, figure, table)


def _curves(history: list[Epoch], plots: Path) -> list[Path]:
    table = pd.DataFrame(
        [(e.index, e.round, e.phase, e.learning_rate, e.loss, e.dev["r_sum"], int(e.best)) for e in history],
        columns=["epoch", "round", "phase", "learning_rate", "loss", "dev_r_sum", "best"],
    ).astype({"loss": float})  # empty for an epoch without a step
    figure, (left, right) = _figure(2)
    left.plot(table["epoch"], table["loss"], color="#4263eb")
    left.set(xlabel="epoch", title="training loss (mean over steps)")
    right.plot(table["epoch"], table["dev_r_sum"], color=TRUE)
    right.set(xlabel="epoch", title="dev rSum", ylim=(0, 600))
    return _write(plots / "curves", figure, table)


def _separation(history: list[Epoch], plots: Path) -> list[Path]:
    table = pd.DataFrame(
        [
            (e.index, name, measures.auroc, measures.average_precision)
            for e in history
            for name, measures in e.diagnosis.items()
        ],
        columns=["epoch", "estimate", "auroc", "average_precision"],
    )
    figure, (axes,) = _figure(1)
    for name, own in table.groupby("estimate"):
        axes.plot(own["epoch"], own["auroc"], label=f"{name} AUROC")
        axes.plot(own["epoch"], own["average_precision"], "--", label=f"{name} AP")
    axes.set(xlabel="epoch", ylim=(0, 1.02), title="true pairs against false pairs")
    axes.legend(frameon=False)
    return _write(plots / "separation", figure, table)


def _histograms(history: list[Epoch], plots: Path) -> list[Path]:
    last = next(entry for entry in reversed(history) if entry.diagnosis)
    figure, panels = _figure(len(last.diagnosis))
    tables = {}
    for axes, (name, measures) in zip(panels, sorted(last.diagnosis.items()), strict=True):
        bins = measures.histogram
        edges = np.linspace(bins.low, bins.high, len(bins.true) + 1)
        counts = {"true pairs": bins.true, "false pairs": bins.false}
        _stairs(axes, edges, counts)
        tables[last.index, name] = _bins(edges, counts)
        shown = f"{SHOWN_AS[name]}: " if name in SHOWN_AS else ""
        axes.set(xlabel=name, ylabel="pairs", title=f"{shown}epoch {last.index}")
        axes.legend(frameon=False)
    table = pd.concat(tables, names=["epoch", "estimate"]).reset_index(level=["epoch", "estimate"])
    return _write(plots / "histograms", figure, table)


def _figure(panels: int) -> tuple[Any, Any]:
    return new_figure(4.2 * panels, 3.2, panels)


def _stairs(axes: Any, edges: FloatArray, counts: Mapping[str, Any]) -> None:
    """Draw the histograms of true and of false pairs, by their name."""
    for color, (group, values) in zip((TRUE, FALSE), counts.items(), strict=False):
        axes.stairs(values, edges, fill=True, alpha=0.6, color=color, label=group)


def _bins(edges: FloatArray, counts: Mapping[str, Any]) -> pd.DataFrame:
    columns = {group.replace(" ", "_"): each for group, each in counts.items()}
    return pd.DataFrame({"low": edges[:-1], "high": edges[1:]}, dtype=float).assign(**columns)


def _write(path: Path, figure: Any, table: pd.DataFrame) -> list[Path]:
    """Write a figure, and its numbers to plot it again."""
    csv, svg = path.with_suffix(".csv"), path.with_suffix(".svg")
    write_text(csv, csv_of(table))
    save_figure(figure, svg)
    return [csv, svg]
