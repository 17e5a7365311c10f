"""The papers' ablations on the data of this board: what a method loses without each of its parts, here and in print."""

from collections.abc import Sequence
from dataclasses import dataclass

from baselines.recipes.ablation import Ablation, Row
from leaderboard.entries import Cell, Entry
from leaderboard.measured import drop
from leaderboard.results import shipped_ablations
from leaderboard.significance import ToldApart


@dataclass(frozen=True)
class AblationLine:
    """A row of a table.

    Attributes:
        row: the paper's.
        printed_drop: what it loses of the full method's printed rSum, in percent.
        entry: ours; None where it was not trained.
        interval: 95 % interval of our mean rSum, over seeds and images; None where ours is missing.
        drop: what ours loses of our full method's rSum, in percent; None where one of the two is missing.
        drop_interval: 95 % interval of the drop, in percent of our full method's mean rSum; None likewise. The two rows
            differ significantly if it excludes 0.
    """

    row: Row
    printed_drop: float
    entry: Entry | None
    interval: tuple[float, float] | None
    drop: float | None
    drop_interval: tuple[float, float] | None

    @property
    def differs(self) -> bool | None:
        """Whether ours differs significantly from our full method; None where one of the two is missing."""
        return None if self.drop_interval is None else self.drop_interval[0] > 0 or self.drop_interval[1] < 0


@dataclass(frozen=True)
class AblationTable:
    """A paper's table, trained on one dataset with one backbone and number of steps."""

    table: Ablation
    cell: Cell
    backbone: str
    budget: int
    lines: tuple[AblationLine, ...]

    @property
    def title(self) -> str:
        """Method, data, noise, backbone and steps in words."""
        return f"{self.table.title}: {self.cell.title}, {self.backbone}, {self.budget:,} steps per network"

    @property
    def command(self) -> str:
        """What trains it."""
        name = next(name for name, table in shipped_ablations().items() if table == self.table)
        return f"ncl-bench sweep --table {name} --dataset {self.cell.dataset} --to {name}"


def ablation_tables(entries: Sequence[Entry], told_apart: ToldApart) -> list[AblationTable]:
    """Every table of which at least one row beside the full method was trained."""
    groups: dict[tuple[str, Cell, str, int], dict[str, Entry]] = {}
    for entry in entries:
        if entry.ablation and entry.budget:
            name, title = entry.ablation
            groups.setdefault((name, entry.cell, entry.backbone, entry.budget), {})[title] = entry
    found = []
    for (name, cell, backbone, budget), of_title in groups.items():
        if any(entry.kind == "ablation" for entry in of_title.values()):
            table = shipped_ablations()[name]
            full = of_title.get(table.rows[0].title)
            lines = tuple(_line(table, row, full, of_title.get(row.title), told_apart) for row in table.rows)
            found.append(AblationTable(table, cell, backbone, budget, lines))
    return sorted(found, key=lambda one: (one.cell.order, one.title))


def _line(
    table: Ablation, row: Row, full: Entry | None, entry: Entry | None, told_apart: ToldApart
) -> AblationLine:
    printed, interval = table.printed_drop(row), None if entry is None else told_apart.interval(entry)
    if full is None or entry is None or full == entry or not full.r_sum:
        return AblationLine(row, printed, entry, interval, None, None)
    difference = told_apart.difference(full, entry)
    of_full = (
        None if difference is None else (100 * difference[0] / full.r_sum, 100 * difference[1] / full.r_sum)
    )
    return AblationLine(row, printed, entry, interval, drop(full, entry), of_full)
