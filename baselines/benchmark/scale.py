"""The tables of ``docs/scale.md``: what steps and scoring cost, and the limits that follow on some cards.

Nothing here is measured on a GPU. A limit is arithmetic: the peaks of a card's datasheet and the counted operations.
"""

import re
from collections.abc import Callable, Iterable, Sequence
from functools import cache
from pathlib import Path
from typing import NamedTuple

from baselines.backbones import BACKBONES
from baselines.benchmark.agreement import costs_on_cpu, predictions
from baselines.benchmark.cost import Cost, ScoringCost, published, scoring_cost, step_cost, weights_of
from baselines.benchmark.formulas import LETTERS, TERMS, scoring_flops, step_flops, values
from baselines.benchmark.report import FOLDER, read_report
from baselines.benchmark.sizes import PUBLISHED, Sizes

PAGE = Path(__file__).parents[2] / "docs" / "scale.md"
BATCHES = {"a quarter of the batch": 0.25, "the batch": 1.0}
WORDS = (10, 40)
IMAGES = (1_000, 5_000, 25_000)
COCO_5K = 5_000


class Card(NamedTuple):
    """Peaks of a GPU, dense, as its maker's datasheet has them.

    Attributes:
        name: as the page has it.
        source: where the numbers stand.
        fp32: FLOP/s outside the tensor cores.
        tf32: FLOP/s.
        bf16: FLOP/s with sums in float32.
        bandwidth: bytes/s of its memory.
    """

    name: str
    source: str
    fp32: float
    tf32: float
    bf16: float
    bandwidth: float

    def seconds(self, cost: Cost) -> tuple[float, float, float]:
        """Limits in float32, TF32 and bfloat16; in the last every tensor takes half of its bytes."""
        return (
            cost.seconds(self.fp32, self.bandwidth),
            cost.seconds(self.tf32, self.bandwidth),
            cost.seconds(self.bf16, 2 * self.bandwidth),
        )


CARDS = (
    Card(
        "H200",
        "NVIDIA H200 datasheet, SXM; half of the values with sparsity",
        67e12,
        494.5e12,
        989.5e12,
        4.8e12,
    ),
    Card("A100", "NVIDIA A100 datasheet, SXM, 80 GB", 19.5e12, 156e12, 312e12, 2.039e12),
    Card(
        "RTX 4090",
        "NVIDIA Ada GPU architecture whitepaper; a card of 24 GB",
        82.6e12,
        82.6e12,
        165.2e12,
        1.008e12,
    ),
)
H200 = CARDS[0]
DENSITY = ("FLOP per byte", "launches")
Table = Sequence[Sequence[str]]


def cards() -> Table:
    """The peaks, and how much arithmetic a byte must come with for it to take the time."""
    rows = [["card", "FP32", "TF32", "BF16", "memory, TB/s", "FLOP per byte at the peak", "source"]]
    for card in CARDS:
        peaks = (card.fp32, card.tf32, card.bf16)
        balance = " / ".join(f"{peak / card.bandwidth:.0f}" for peak in peaks)
        speeds = [f"{peak / 1e12:g}" for peak in peaks]
        rows.append([card.name, *speeds, f"{card.bandwidth / 1e12:g}", balance, card.source])
    return rows


def letters() -> Table:
    """What the letters of :func:`terms` stand for."""
    return [["letter", "number"], *([letter, meaning] for letter, meaning in LETTERS.items())]


def terms() -> Table:
    """The leading terms, and their share of a published step."""
    rows = [["network", "what", "scoring", "step", "times", "of a step"]]
    for name, of_network in TERMS.items():
        sizes = published(name, PUBLISHED)
        known, total = values(name, sizes, sizes.batch, sizes.batch), step_flops(name, sizes)
        rows += [
            [
                BACKBONES[name].title,
                term.what,
                str(term.scoring),
                str(term.step),
                f"`{term.written()}`",
                _percent(term.step * term.of(known) / total),
            ]
            for term in of_network
        ]
    return rows


def steps() -> Table:
    """A training step at published sizes."""
    head = ("network", "batch", "weights, M", "GFLOP", "times the terms", "GB", *DENSITY)
    rows = [[*head, *(f"{card.name}, ms" for card in CARDS), "µs per launch"]]
    for name, title in _networks():
        sizes = published(name, PUBLISHED)
        cost = _step(name, sizes)
        rows.append(
            [
                title,
                str(sizes.batch),
                f"{weights_of(name, sizes) / 1e6:.1f}",
                f"{cost.flops / 1e9:,.0f}",
                f"{cost.flops / step_flops(name, sizes):.2f}",
                f"{cost.bytes / 1e9:.1f}",
                *_density(cost),
                *(_three(card.seconds(cost), 1e3) for card in CARDS),
                f"{1e6 * H200.seconds(cost)[1] / cost.launches:.1f}",
            ]
        )
    return rows


def scoring() -> Table:
    """COCO 5K at published sizes, encoding and comparing apart."""
    head = ("network", "part", "TFLOP", "times the terms", "TB", *DENSITY)
    rows = [[*head, *(f"{card.name}, s" for card in CARDS)]]
    for name, title in _networks():
        expected = scoring_flops(name, published(name, PUBLISHED), COCO_5K)
        for (part, cost), by_terms in zip(_scoring(name)._asdict().items(), expected, strict=True):
            rows.append(
                [
                    title,
                    part,
                    _short(cost.flops / 1e12),
                    f"{cost.flops / by_terms:.2f}",
                    _short(cost.bytes / 1e12),
                    *_density(cost),
                    *(_three(card.seconds(cost)) for card in CARDS),
                ]
            )
    return rows


def batches() -> Table:
    """Arithmetic and limit of a pair, as the batch grows."""
    rows = [["network", *BATCHES]]
    for name, title in _networks():
        sizes = published(name, PUBLISHED)
        counts = [int(share * sizes.batch) for share in BATCHES.values()]
        costs = [_step(name, sizes.model_copy(update={"batch": count})) for count in counts]
        rows.append(
            [title, *(_moved(cost * (1 / n), 1e9, 1e6) for n, cost in zip(counts, costs, strict=True))]
        )
    return rows


def captions() -> Table:
    """Arithmetic and limit of a step, as captions grow."""
    rows = [["network", *(f"{words} words" for words in WORDS)]]
    for name, title in _networks():
        sizes = published(name, PUBLISHED)
        several = (sizes.model_copy(update={"shortest": words, "longest": words}) for words in WORDS)
        rows.append([title, *(_moved(_step(name, each), 1e9, 1e3) for each in several)])
    return rows


def sets() -> Table:
    """Arithmetic and limit of scoring, as the set grows: encoding in proportion, comparing as its square."""
    rows = [["network", *(f"{n:,} x {n * PUBLISHED.captions_per_image:,}" for n in IMAGES)]]
    for name, title in _networks():
        encoding, comparing = _scoring(name)
        shares = [n / COCO_5K for n in IMAGES]
        rows.append([title, *(_moved(encoding * x + comparing * x**2, 1e12, 1) for x in shares)])
    return rows


def agreement() -> Table:
    """What was measured on CPUs, and what the model says of it."""
    rows = [["device", "workload", "quantity", "measured", "predicted", "difference"]]
    for content in map(read_report, sorted(FOLDER.glob("*.json"))):
        if content["matrix_peak_flops"] is not None:
            continue  # a GPU's
        for each in predictions(content, costs_on_cpu(Sizes(**content["sizes"]))):
            difference = "fitted" if each.fitted else f"{100 * each.error:+.0f} %"
            numbers = (f"{each.measured:.2f}", f"{each.predicted:.2f}", difference)
            rows.append([content["device"], each.workload, each.quantity, *numbers])
    return rows


TABLES: dict[str, Callable[[], Table]] = {
    table.__name__: table
    for table in (cards, letters, terms, steps, scoring, batches, captions, sets, agreement)
}


def with_tables(page: str, on_table: Callable[[str], None] = lambda name: None) -> str:
    """A page with every table made anew between its marks, ``<!-- table: NAME -->`` and ``<!-- end -->``.

    Args:
        page: Markdown.
        on_table: called with the name of each table that is made.
    """

    def made(match: re.Match[str]) -> str:
        table = _markdown(TABLES[match[2]]())
        on_table(match[2])
        return f"{match[1]}\n\n{table}\n\n{match[3]}"

    return re.sub(r"(<!-- table: (\w+) -->).*?(<!-- end -->)", made, page, flags=re.DOTALL)


def _markdown(table: Table) -> str:
    head, *rows = table
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


@cache
def _step(name: str, sizes: Sizes) -> Cost:
    return step_cost(name, sizes)


@cache
def _scoring(name: str) -> ScoringCost:
    return scoring_cost(name, published(name, PUBLISHED), COCO_5K)


def _networks() -> list[tuple[str, str]]:
    return [(name, BACKBONES[name].title) for name in TERMS]


def _density(cost: Cost) -> tuple[str, str]:
    return f"{cost.flops / cost.bytes:.0f}", f"{cost.launches:,.0f}"


def _three(seconds: Iterable[float], scale: float = 1.0) -> str:
    return " / ".join(_short(scale * each) for each in seconds)


def _short(x: float) -> str:
    return f"{x:,.0f}" if x >= 100 else f"{x:.2g}" if x < 1 else f"{x:.3g}"


def _moved(cost: Cost, flops: float, scale: float) -> str:
    """Arithmetic in units of so many FLOPs, and the TF32 limit of an H200 in seconds times a scale."""
    return f"{_short(cost.flops / flops)} ({_short(scale * H200.seconds(cost)[1])})"


def _percent(share: float) -> str:
    return f"{100 * share:.0f} %" if share >= 0.005 else "< 1 %"
