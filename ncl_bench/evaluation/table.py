"""Results as a table on the terminal."""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rich.table import Table

    from ncl_bench.evaluation.results import DirectionResult, Evaluation, Interval, ProtocolResult

COLUMNS = ("R@1", "R@5", "R@10", "median", "mean", "ties", "rSum")


def results_table(evaluation: "Evaluation") -> "Table":
    """A rich table: one line per protocol and direction, 95 % intervals below the numbers."""
    from rich.box import SIMPLE_HEAD
    from rich.table import Table

    title = f"{evaluation.dataset}, {evaluation.split} (protocol version {evaluation.protocol_version})"
    table = Table(title=title, box=SIMPLE_HEAD, padding=0, show_edge=False)
    table.add_column("protocol")
    table.add_column("")
    for column in COLUMNS:
        table.add_column(column, justify="right")
    for name, result in evaluation.protocols.items():
        table.add_row(name, "i2t", *_cells(result.i2t), "")
        table.add_row("", "t2i", *_cells(result.t2i), _sum(result), end_section=True)
    return table


def as_text(evaluation: "Evaluation") -> str:
    """The table and its notes as plain text."""
    from io import StringIO

    from rich.console import Console

    console = Console(file=StringIO(), width=120, color_system=None)
    console.print(results_table(evaluation))
    for note in evaluation.notes:
        console.print(f"note: {note}")
    assert isinstance(console.file, StringIO)
    return console.file.getvalue().rstrip("\n")


def _cells(direction: "DirectionResult") -> list[str]:
    intervals = direction.intervals or {}
    recalls = [_number(getattr(direction, name), intervals.get(name)) for name in ("r1", "r5", "r10")]
    ties = "unknown" if direction.tied_queries is None else f"{direction.tied_queries:,}"
    return [*recalls, f"{direction.median_rank:.1f}", f"{direction.mean_rank:.1f}", ties]


def _sum(result: "ProtocolResult") -> str:
    return _number(result.r_sum, result.r_sum_interval)


def _number(value: float, interval: "Interval | None") -> str:
    return f"{value:.1f}" if interval is None else f"{value:.1f}\n{interval[0]:.1f}–{interval[1]:.1f}"
