"""Plots of a run like the figures of the papers, which their titles name: as SVG, and as CSV to plot again.

What the run's history tells is drawn from it alone. The rest needs the finished run and its training data: what the
method believed of every pair after each epoch, and the best networks, as in the audit.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from rich.console import Console

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
from ncl_bench.tables import as_csv

Rows = Sequence[Sequence[object]]
Values = NDArray[np.float32]
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
            written += _of_pairs(_Pairs.of(audited, device), plots)
    return written


@dataclass(frozen=True)
class _Pairs:
    """The trained pairs of a finished run.

    Attributes:
        audited: the run.
        truth: bool ``(n,)``, which pairs are true; None where nobody knows or all are.
        own: loss, similarity and prediction under the best networks, float32 ``(n,)`` each.
        kept: what the method kept after each epoch, by name.
    """

    audited: AuditedRuns
    truth: NDArray[np.bool_] | None
    own: Mapping[str, Values]
    kept: Sequence[Mapping[str, Values]]

    @classmethod
    def of(cls, audited: AuditedRuns, device: str) -> "_Pairs":
        rows, truth = audited.rows, hidden_correspondence(audited.train, audited.rows)
        (run,) = audited.runs
        kept = [
            {
                name: values[rows]
                for name, values in run.folder.read_estimates(epoch, len(audited.train)).items()
            }
            for epoch in range(run.outcome.epochs)
        ]
        return cls(audited, truth, own_values(audited, device=device, console=Console(stderr=True)), kept)

    @property
    def groups(self) -> dict[str, NDArray[np.bool_]]:
        """The pairs that are drawn apart."""
        if self.truth is None:
            return {"pairs": np.ones(len(self.audited.rows), np.bool_)}
        return {"true pairs": self.truth, "false pairs": ~self.truth}

    @property
    def best(self) -> Mapping[str, Values]:
        """What the method kept after the best epoch."""
        epoch = self.audited.runs[0].outcome.best_epoch
        return self.kept[epoch] if epoch < len(self.kept) else {}

    def over_epochs(self, name: str) -> list[tuple[int, str, float]]:
        """Epoch, group and mean of what the method kept under a name."""
        return [
            (epoch, group, float(kept[name][mask].mean()))
            for epoch, kept in enumerate(self.kept)
            if name in kept
            for group, mask in self.groups.items()
        ]


def _of_pairs(pairs: _Pairs, plots: Path) -> list[Path]:
    """The figures that the finished run has the data of."""
    draw, own, best = partial(_pair_histogram, pairs), pairs.own, pairs.best
    seed, config = pairs.audited.runs[0].job.seed, pairs.audited.runs[0].job.recipe.method_config
    fit = derive_seed(seed, "audit", "mixture")
    written = draw(plots / "losses", "loss of each pair", "NCR Fig. 3b", own["loss"], mixture=fit)
    written += draw(
        plots / "similarities", "similarity", "CRCL Fig. 1b and 1e, GSC Fig. 2", own["similarity"]
    )
    if CLEAN_PROBABILITY in best and hasattr(config, "clean_threshold"):
        noisy = best[CLEAN_PROBABILITY] <= config.clean_threshold
        written += draw(
            plots / "predictions", "prediction, noisy subset", "NCR Fig. 3c", own["prediction"], chosen=noisy
        )
    if "agreement" in best:
        fit, shown = derive_seed(seed, "plot", "agreement"), "GSC Fig. 2 and 5b"
        written += draw(plots / "agreement", "intra-modal similarity", shown, best["agreement"], mixture=fit)
    written += _over_epochs(pairs, plots / "weights", "mean weight", "GSC Fig. 5a", CLEAN_PROBABILITY)
    written += _over_epochs(pairs, plots / "loss_by_epoch", "mean loss", "PC2 Fig. 2", "loss")
    return written


def _pair_histogram(
    pairs: _Pairs,
    path: Path,
    label: str,
    paper: str,
    values: Values,
    *,
    chosen: NDArray[np.bool_] | None = None,
    mixture: int | None = None,
) -> list[Path]:
    """A histogram of one value of all or the chosen pairs; with the seed of a fit, its two components as well."""
    chosen = np.ones(len(values), np.bool_) if chosen is None else chosen
    if not chosen.any():
        return []
    edges = np.histogram_bin_edges(values[chosen], bins=BINS)
    centres = (edges[:-1] + edges[1:]) / 2
    columns: dict[str, NDArray[Any]] = {"low": edges[:-1], "high": edges[1:]}
    figure, (axes,) = _figure(1)
    counts = {
        group: np.histogram(values[chosen & mask], bins=edges)[0] for group, mask in pairs.groups.items()
    }
    _stairs(axes, edges, counts)
    columns |= {group.replace(" ", "_"): each for group, each in counts.items()}
    if mixture is not None and values.min() < values.max():
        for number, density in enumerate(_components(values, centres, mixture)):
            component = density * len(values) * (edges[1] - edges[0])
            columns[f"component_{number + 1}"] = component
            axes.plot(centres, component, color="#1c1c1c", lw=1, ls=("-", "--")[number])
    epoch = pairs.audited.runs[0].outcome.best_epoch
    axes.set(xlabel=label, ylabel="pairs", title=f"{paper}: epoch {epoch}")
    axes.legend(frameon=False)
    rows = list(zip(*(column.tolist() for column in columns.values()), strict=True))
    return _write(path, figure, tuple(columns), rows)


def _components(values: Values, at: NDArray[np.float64], seed: int) -> list[NDArray[np.float64]]:
    """Weighted densities of the two components that the methods fit, the one with the smaller mean first."""
    fit, low, span = fitted_mixture(min_max_normalised(values), seed), values.min(), np.ptp(values)
    densities = []
    for k in np.argsort(fit.means_.ravel()):
        variance = float(fit.covariances_[k, 0, 0])
        away = (at - low) / span - fit.means_[k, 0]
        density = np.exp(-(away**2) / (2 * variance)) / np.sqrt(2 * np.pi * variance)
        densities.append(fit.weights_[k] * density / span)
    return densities


def _over_epochs(pairs: _Pairs, path: Path, label: str, paper: str, name: str) -> list[Path]:
    """The mean of true and of false pairs after each epoch that kept it; nothing where none did."""
    rows = pairs.over_epochs(name)
    if not rows:
        return []
    figure, (axes,) = _figure(1)
    for color, group in zip((TRUE, FALSE), pairs.groups, strict=False):
        own = [(epoch, value) for epoch, of_group, value in rows if of_group == group]
        axes.plot(*zip(*own, strict=True), color=color, marker=".", label=group)
    axes.xaxis.get_major_locator().set_params(integer=True)
    highest = max(value for _, _, value in rows)
    axes.set(xlabel="epoch", ylabel=label, title=paper, ylim=(0, 1.05 * highest))
    axes.legend(frameon=False)
    return _write(path, figure, ("epoch", "pairs", "mean"), rows)


def _curves(history: list[Epoch], plots: Path) -> list[Path]:
    header = ("epoch", "round", "phase", "learning_rate", "loss", "dev_r_sum", "best")
    rows = [
        (e.index, e.round, e.phase, e.learning_rate, e.loss, e.dev["r_sum"], int(e.best)) for e in history
    ]
    figure, (left, right) = _figure(2)
    epochs = [e.index for e in history]
    losses = [np.nan if e.loss is None else e.loss for e in history]  # None: an epoch without a step
    left.plot(epochs, losses, color="#4263eb")
    left.set(xlabel="epoch", title="training loss (mean over steps)")
    right.plot(epochs, [e.dev["r_sum"] for e in history], color=TRUE)
    right.set(xlabel="epoch", title="dev rSum", ylim=(0, 600))
    return _write(plots / "curves", figure, header, rows)


def _separation(history: list[Epoch], plots: Path) -> list[Path]:
    rows = [
        (e.index, name, measures.auroc, measures.average_precision)
        for e in history
        for name, measures in e.diagnosis.items()
    ]
    figure, (axes,) = _figure(1)
    for name in sorted({row[1] for row in rows}):
        own = [row for row in rows if row[1] == name]
        axes.plot([row[0] for row in own], [row[2] for row in own], label=f"{name} AUROC")
        axes.plot([row[0] for row in own], [row[3] for row in own], "--", label=f"{name} AP")
    axes.set(xlabel="epoch", ylim=(0, 1.02), title="true pairs against false pairs")
    axes.legend(frameon=False)
    header = ("epoch", "estimate", "auroc", "average_precision")
    return _write(plots / "separation", figure, header, rows)


def _histograms(history: list[Epoch], plots: Path) -> list[Path]:
    last = next(entry for entry in reversed(history) if entry.diagnosis)
    figure, panels = _figure(len(last.diagnosis))
    rows: list[tuple[object, ...]] = []
    for axes, (name, measures) in zip(panels, sorted(last.diagnosis.items()), strict=True):
        bins = measures.histogram
        edges = np.linspace(bins.low, bins.high, len(bins.true) + 1)
        _stairs(axes, edges, {"true pairs": bins.true, "false pairs": bins.false})
        shown = f"{SHOWN_AS[name]}: " if name in SHOWN_AS else ""
        axes.set(xlabel=name, ylabel="pairs", title=f"{shown}epoch {last.index}")
        axes.legend(frameon=False)
        rows += [
            (last.index, name, low, high, true, false)
            for low, high, true, false in zip(edges[:-1], edges[1:], bins.true, bins.false, strict=True)
        ]
    header = ("epoch", "estimate", "low", "high", "true_pairs", "false_pairs")
    return _write(plots / "histograms", figure, header, rows)


def _figure(panels: int) -> tuple[Any, Any]:
    return new_figure(4.2 * panels, 3.2, panels)


def _stairs(axes: Any, edges: NDArray[np.floating], counts: Mapping[str, Any]) -> None:
    """Draw the histograms of true and of false pairs, by their name."""
    for color, (group, values) in zip((TRUE, FALSE), counts.items(), strict=False):
        axes.stairs(values, edges, fill=True, alpha=0.6, color=color, label=group)


def _write(path: Path, figure: Any, header: Sequence[str], rows: Rows) -> list[Path]:
    """Write a figure, and its numbers to plot it again."""
    csv, svg = path.with_suffix(".csv"), path.with_suffix(".svg")
    write_text(csv, as_csv([header, *rows]))
    save_figure(figure, svg)
    return [csv, svg]
