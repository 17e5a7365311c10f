"""Plots of a run like the figures of the papers: curves and histograms, as SVG and as CSV to plot again."""

import io
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from baselines.engine.measures import Epoch
from baselines.engine.run_folder import RunFolder
from ncl_bench.files import as_csv, sole_owner, write_bytes, write_text

Rows = Sequence[Sequence[object]]


def plot_run(folder: RunFolder) -> list[Path]:
    """Write the figures of a run below its ``plots`` folder.

    Args:
        folder: a run with at least one complete epoch.

    Returns:
        The files written: ``curves``; and for synthetic noise and methods that estimate the correspondence also
        ``separation`` (AUROC and average precision per epoch) and ``histograms`` (last epoch).

    Raises:
        TrainingError: the folder is not a run.
        NclBenchError: another process is writing the same plots.
    """
    plots = folder.path / "plots"
    with sole_owner(plots):
        history = folder.read_history()
        written = _curves(history, plots)
        if any(entry.diagnosis for entry in history):
            written += _separation(history, plots) + _histograms(history, plots)
    return written


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
    right.plot(epochs, [e.dev["r_sum"] for e in history], color="#2b8a3e")
    right.set(xlabel="epoch", title="dev rSum", ylim=(0, 600))
    return [_write_csv(plots / "curves.csv", header, rows), _write_svg(plots / "curves.svg", figure)]


def _separation(history: list[Epoch], plots: Path) -> list[Path]:
    rows = [
        (e.index, name, found.auroc, found.average_precision)
        for e in history
        for name, found in e.diagnosis.items()
    ]
    figure, (axes,) = _figure(1)
    for name in sorted({row[1] for row in rows}):
        own = [row for row in rows if row[1] == name]
        axes.plot([row[0] for row in own], [row[2] for row in own], label=f"{name} AUROC")
        axes.plot([row[0] for row in own], [row[3] for row in own], "--", label=f"{name} AP")
    axes.set(xlabel="epoch", ylim=(0, 1.02), title="true pairs against false pairs")
    axes.legend(frameon=False)
    header = ("epoch", "estimate", "auroc", "average_precision")
    return [_write_csv(plots / "separation.csv", header, rows), _write_svg(plots / "separation.svg", figure)]


def _histograms(history: list[Epoch], plots: Path) -> list[Path]:
    last = next(entry for entry in reversed(history) if entry.diagnosis)
    figure, panels = _figure(len(last.diagnosis))
    rows: list[tuple[object, ...]] = []
    for axes, (name, found) in zip(panels, sorted(last.diagnosis.items()), strict=True):
        bins = found.histogram
        edges = np.linspace(bins.low, bins.high, len(bins.true) + 1)
        axes.stairs(bins.true, edges, fill=True, alpha=0.6, color="#2b8a3e", label="true pairs")
        axes.stairs(bins.false, edges, fill=True, alpha=0.6, color="#e8590c", label="false pairs")
        axes.set(xlabel=name, title=f"epoch {last.index}")
        axes.legend(frameon=False)
        rows += [
            (last.index, name, low, high, true, false)
            for low, high, true, false in zip(edges[:-1], edges[1:], bins.true, bins.false, strict=True)
        ]
    header = ("epoch", "estimate", "low", "high", "true_pairs", "false_pairs")
    return [_write_csv(plots / "histograms.csv", header, rows), _write_svg(plots / "histograms.svg", figure)]


def _figure(panels: int) -> tuple[Any, Any]:
    from matplotlib.figure import Figure

    figure = Figure(figsize=(4.2 * panels, 3.2), layout="constrained")
    axes = figure.subplots(1, panels, squeeze=False)[0]
    for panel in axes:
        panel.spines[["top", "right"]].set_visible(False)
    return figure, axes


def _write_svg(path: Path, figure: Any) -> Path:
    import matplotlib

    buffer = io.BytesIO()
    with matplotlib.rc_context({"svg.hashsalt": "ncl-bench"}):
        figure.savefig(buffer, format="svg", metadata={"Date": None})
    write_bytes(path, buffer.getvalue())
    return path


def _write_csv(path: Path, header: Sequence[str], rows: Rows) -> Path:
    write_text(path, as_csv([header, *rows]))
    return path
