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
        drop: what ours loses of our full method's rSum, in percent; None where one of the two is missing.
        differs: whether ours differs significantly from our full method; None where one of the two is missing.
    """

    row: Row
    printed_drop: float
    entry: Entry | None
    drop: float | None
    differs: bool | None


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
    if full is None or entry is None or full == entry:
        return AblationLine(row, table.printed_drop(row), entry, None, None)
    differs = bool(told_apart([full, entry])[0, 1])
    return AblationLine(row, table.printed_drop(row), entry, drop(full, entry), differs)
