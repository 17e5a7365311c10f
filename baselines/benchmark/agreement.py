"""What the cost model predicts of a CPU's measured rows.

On a CPU a byte costs as much as so many FLOPs, one operation after the other, whether it computes or moves. How many is
not known beforehand: it follows from one measured row, and every other row is a prediction.
"""

import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from typing import Any

from baselines.backbones import BACKBONES
from baselines.benchmark.cost import CPU, Cost, counted, hollow
from baselines.benchmark.measure import AGAINST_LOOP, BESIDE_SGR, GROWTH
from baselines.benchmark.sizes import Sizes
from baselines.benchmark.workloads import BLOCKS, make_batch, make_dataset, scoring_of, step_of

NAMES = {network.title: name for name, network in BACKBONES.items()}
FITTED = "VSE-infinity: training step"
"""The workload whose largest row tells what a byte costs: of all it moves most bytes for its arithmetic."""
CostOf = Callable[[str, str, int], Cost]
"""Of a network by its name, a workload (``step`` or ``scoring``) and a number of pairs or images."""


@dataclass(frozen=True)
class Prediction:
    """A measured row beside the model.

    Attributes:
        workload: what is done.
        quantity: what is compared.
        measured: its value.
        predicted: the model's.
        fitted: whether the model was made to agree.
    """

    workload: str
    quantity: str
    measured: float
    predicted: float
    fitted: bool = False

    @property
    def error(self) -> float:
        """Share by which the prediction is too large, or below zero too small."""
        return self.predicted / self.measured - 1


@cache
def costs_on_cpu(sizes: Sizes) -> CostOf:
    """Costs of the benchmark's workloads on a CPU, each counted once."""
    network = cache(lambda name: hollow(name, sizes, CPU))

    @cache
    def cost(name: str, workload: str, size: int) -> Cost:
        if workload == "step":
            return counted(step_of(network(name), make_batch(sizes, size, CPU)))
        return counted(scoring_of(network(name), make_dataset(sizes, size), CPU))

    return cost


def flops_of_a_byte(content: Mapping[str, Any], cost_of: CostOf) -> float:
    """How many FLOPs take as long as a byte, from the row of :data:`FITTED`."""
    row = _fitted_row(content)
    before, after, growth = _growth(row, cost_of)
    return (after.flops - growth * before.flops) / (growth * before.bytes - after.bytes)


def predictions(content: Mapping[str, Any], cost_of: CostOf) -> Iterator[Prediction]:
    """Every row of a result that the model speaks of.

    Args:
        content: of :func:`~baselines.benchmark.report.read_report`, measured on a CPU.
        cost_of: of :func:`costs_on_cpu`, at the sizes of the result.
    """
    price, fitted = flops_of_a_byte(content, cost_of), _fitted_row(content)
    sizes = Sizes(**content["sizes"])

    def work(cost: Cost) -> float:
        return cost.flops + price * cost.bytes

    for row in content["rows"]:
        workload = row["workload"]
        name, _, kind = workload.partition(": ")
        if row["group"] == GROWTH:
            before, after, growth = _growth(row, cost_of)
            quantity = f"time of {row['variant']} over {row['reference']}"
            yield Prediction(workload, quantity, growth, work(after) / work(before), row is fitted)
        elif row["group"] == BESIDE_SGR and name in NAMES:
            ratio = work(cost_of("sgr", "step", sizes.batch)) / work(
                cost_of(NAMES[name], "step", sizes.batch)
            )
            yield Prediction(workload, "time of SGR's over its own", row["ratio"], ratio)
        elif row["group"] == AGAINST_LOOP and row["variant"] == BLOCKS and row["share_of_peak"]:
            found = re.match("training step|scoring", kind)
            if found:
                own = sizes.of(NAMES[name])
                step = found[0] == "training step"
                cost = cost_of(NAMES[name], "step" if step else "scoring", own.batch if step else own.images)
                yield Prediction(workload, "share of peak", row["share_of_peak"], cost.flops / work(cost))


def _fitted_row(content: Mapping[str, Any]) -> Mapping[str, Any]:
    rows: list[Mapping[str, Any]] = [
        row for row in content["rows"] if row["group"] == GROWTH and row["workload"] == FITTED
    ]
    return max(rows, key=lambda row: _count(row["variant"]))


def _growth(row: Mapping[str, Any], cost_of: CostOf) -> tuple[Cost, Cost, float]:
    """Costs of reference and variant of a row, and how many times as long the variant takes."""
    name, _, kind = row["workload"].partition(": ")
    counts = [_count(row[key]) for key in ("reference", "variant")]
    workload = "step" if kind == "training step" else "scoring"
    before, after = (cost_of(NAMES[name], workload, count) for count in counts)
    return before, after, (counts[1] / counts[0]) ** 2 / row["ratio"]


def _count(label: str) -> int:
    return int(label.split()[0])
