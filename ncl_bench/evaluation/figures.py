"""Pictures of a result: how deep the true items lie."""

from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from ncl_bench.errors import NclBenchError
from ncl_bench.evaluation.metrics import Float64Array
from ncl_bench.extras import require
from ncl_bench.files import atomic_path

if TYPE_CHECKING:
    from ncl_bench.evaluation.ranks import Ranks

PICTURES = (".svg", ".png", ".pdf")
COLOURS = {"i2t": "#0072b2", "t2i": "#d55e00"}


def plot_ranks(path: Path, ranks: "Ranks", title: str) -> None:
    """Write a histogram of ranks as SVG: percentage of queries per doubling of the rank.

    Args:
        path: the ``.svg`` file.
        ranks: of one split.
        title: above the picture.
    """
    figure, axes = _figure(title)
    deepest = int(max(ranks.i2t.max(), ranks.t2i.max()))
    edges = 2.0 ** np.arange(int(np.ceil(np.log2(deepest + 1))) + 1)
    for direction, colour in COLOURS.items():
        found = getattr(ranks, direction)
        share = 100 * np.histogram(found, edges)[0] / len(found)
        axes.stairs(share, edges, color=colour, label=f"{direction} ({len(found):,} queries)", linewidth=1.5)
    axes.set_xscale("log", base=2)
    axes.xaxis.set_major_formatter("{x:g}")
    axes.set_xlabel("rank of the best true item")
    axes.set_ylabel("queries (%)")
    axes.legend(frameon=False)
    _save(figure, path)


def check_picture(path: Path) -> None:
    """Refuse a file name whose ending is none of ``PICTURES``, or to begin without matplotlib.

    Raises:
        NclBenchError: naming the endings, or the command that installs matplotlib.
    """
    require("leaderboard", "matplotlib", needed_by="--plot")
    if path.suffix.lower() not in PICTURES:
        raise NclBenchError(
            f"{path} is no name of a picture that can be drawn; let it end in {', '.join(PICTURES)}"
        )


def plot_difference(path: Path, samples: Float64Array, names: tuple[str, str]) -> None:
    """Write the bootstrap distribution of a difference of rSum.

    Args:
        path: a file whose ending is one of ``PICTURES``.
        samples: float64 ``(n,)``.
        names: of the two submissions.
    """
    figure, axes = _figure(f"rSum of {names[0]} minus rSum of {names[1]}, resampled images")
    axes.hist(samples, bins=40, color=COLOURS["i2t"])
    axes.axvline(0.0, color="black", linewidth=1)
    axes.set_xlabel("difference of rSum")
    axes.set_ylabel("resamples")
    _save(figure, path)


def plot_runs(path: Path, r_sums: tuple[Float64Array, Float64Array], names: tuple[str, str]) -> None:
    """Write the rSum of every training run of two sides, as points, and their means.

    Args:
        path: a file whose ending is one of ``PICTURES``.
        r_sums: float64 ``(n_runs,)`` of either side.
        names: of the two sides.
    """
    figure, axes = _figure("rSum of every training run, and the mean")
    for place, (sums, colour) in enumerate(zip(r_sums, COLOURS.values(), strict=True)):
        axes.plot(np.full(len(sums), place), sums, "o", color=colour, alpha=0.6)
        axes.hlines(sums.mean(), place - 0.2, place + 0.2, color=colour)
    axes.set_xticks([0, 1], [f"{name} ({len(sums)})" for name, sums in zip(names, r_sums, strict=True)])
    axes.set_xlim(-0.5, 1.5)
    axes.set_ylabel("rSum")
    _save(figure, path)


def _figure(title: str) -> tuple[Any, Any]:
    from matplotlib.figure import Figure

    figure = Figure(figsize=(7, 4), layout="constrained")
    axes = figure.subplots()
    axes.set_title(title, fontsize=11, parse_math=False)
    axes.spines[["top", "right"]].set_visible(False)
    return figure, axes


def _save(figure: Any, path: Path) -> None:
    import matplotlib as mpl

    with (
        mpl.rc_context({"svg.hashsalt": "ncl-bench", "svg.fonttype": "none"}),
        atomic_path(path) as temporary,
    ):
        kind = path.suffix.lower().removeprefix(".")
        metadata = {"svg": {"Date": None}, "pdf": {"CreationDate": None}}.get(kind)  # the same bytes tomorrow
        figure.savefig(temporary, format=kind, metadata=metadata, dpi=150)
