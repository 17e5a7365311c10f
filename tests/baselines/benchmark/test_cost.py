"""What is counted is what runs, the terms say how it grows, and a CPU's measured rows agree with it."""

import re
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn
from torch.utils.flop_counter import FlopCounterMode

from baselines.backbones.gru import states
from baselines.backbones.pairwise import CPU_BYTES, memory_budget
from baselines.benchmark import __main__ as benchmark
from baselines.benchmark import cost, scale
from baselines.benchmark.agreement import CostOf, costs_on_cpu, predictions
from baselines.benchmark.cost import CPU, IN_PLACE, META, Cost, counted, hollow, published, scoring_cost
from baselines.benchmark.formulas import TERMS, Term, scoring_flops, step_flops
from baselines.benchmark.measure import GROWTH
from baselines.benchmark.report import FOLDER, read_report
from baselines.benchmark.sizes import PUBLISHED, SMALL, Sizes
from baselines.benchmark.workloads import make_batch, make_dataset, make_network, scoring_of, step_of
from baselines.kit.on_host import uploaded

ROOT = Path(__file__).parents[3]
TINY = SMALL.changed(
    (
        "batch=6", "embed_size=16", "sim_dim=8", "word_dim=8", "feature_dim=20", "regions=5", "vocabulary=50",
        "shortest=3", "longest=6",
    )
)  # fmt: skip


def of_arithmetic(run: Any) -> Cost:
    return counted(lambda watch: run())


def test_an_operation_counts_what_it_reads_writes_and_multiplies() -> None:
    a, b, table = torch.rand(3, 4), torch.rand(4, 5), torch.rand(100, 2)
    assert of_arithmetic(lambda: a @ b).operations == {(2 * 3 * 4 * 5, 4 * (12 + 20 + 15)): 1}
    assert of_arithmetic(lambda: a.view(2, 6).T[0].detach()).launches == 0
    assert of_arithmetic(lambda: torch.empty(9)).launches == 0
    assert of_arithmetic(lambda: a.exp_()).operations == {(0, 2 * 48): 1}
    assert of_arithmetic(lambda: a[:1].expand(3, 4) + a).bytes == 4 * (4 + 12 + 12)
    rows = torch.tensor([5, 7, 9])
    assert of_arithmetic(lambda: nn.functional.embedding(rows, table)).bytes == 3 * 8 + 2 * (3 * 2 * 4)


def test_costs_add_up_and_each_operation_takes_the_longer_of_its_times() -> None:
    both = Cost({(100, 10): 2, (0, 40): 1}) + Cost({(0, 40): 1}) * 0.5
    assert (both.flops, both.bytes, both.launches) == (200, 80, 3.5)
    assert both.seconds(10, 10) == 2 * 10 + 1.5 * 4


@pytest.mark.parametrize("name", TERMS)
def test_a_hollow_network_does_what_a_real_one_does(name: str) -> None:
    batch, dataset = make_batch(TINY, TINY.batch, CPU), make_dataset(TINY, 4)
    found = []
    for network in (hollow(name, TINY, CPU), make_network(name, TINY, CPU)):
        with FlopCounterMode(display=False, custom_mapping=IN_PLACE) as torchs:
            step = counted(step_of(network, batch))
        assert torchs.get_total_flops() == step.flops > 0
        found.append((step, counted(scoring_of(network, dataset, CPU))))
    assert found[0] == found[1]


def test_a_gru_on_a_gpu_is_a_launch_each_way_and_does_the_arithmetic_of_a_cpu() -> None:
    n, longest, size, hidden = 2, 3, 7, 5
    gru = nn.GRU(size, hidden, batch_first=True, bidirectional=True)
    items, lengths = torch.rand(n, longest, size, requires_grad=True), torch.tensor([3, 1])
    on_cpu = of_arithmetic(lambda: states(gru, items, lengths).sum().backward())
    far = torch.empty_like(items, device=META, requires_grad=True)
    on_gpu = of_arithmetic(lambda: states(gru.to(META), far, uploaded(lengths, META)).sum().backward())
    forwards = 2 * 2 * int(lengths.sum()) * 3 * hidden * (size + hidden)
    assert sorted(flops for flops, _ in on_gpu.operations if flops) == [forwards, 2 * forwards]
    of_first_states = 2 * 2 * n * 3 * hidden * hidden  # which are zero; a CPU leaves them out of a gradient
    assert on_gpu.flops - on_cpu.flops == of_first_states


@pytest.mark.parametrize("name", TERMS)
def test_the_terms_of_scoring_are_its_arithmetic(name: str) -> None:
    changed = {"shortest": 12, "longest": 12, "regions": 20, "embed_size": 256, "sim_dim": 128}
    sizes = PUBLISHED.model_copy(update=changed)
    found = scoring_cost(name, sizes, 300)
    for part, by_terms in zip(found, scoring_flops(name, sizes, 300), strict=True):
        assert part.flops == pytest.approx(by_terms, rel=0.08)


def test_more_images_are_so_many_times_the_work(monkeypatch: pytest.MonkeyPatch) -> None:
    several = scoring_cost("sgr", TINY, 5 * cost.ROWS).comparing
    monkeypatch.setattr(cost, "ROWS", 5 * cost.ROWS)
    all_of_them = scoring_cost("sgr", TINY, cost.ROWS).comparing
    assert several.flops == pytest.approx(all_of_them.flops, rel=0.02)
    assert several.bytes == pytest.approx(all_of_them.bytes, rel=0.05)


def test_a_term_is_written_with_its_powers() -> None:
    assert Term("", 2, 6, "ICNNS").written() == "I C N² S"


ON_CPU = [path for path in sorted(FOLDER.glob("*.json")) if read_report(path)["matrix_peak_flops"] is None]
IS_PAGES_TORCH = f"\ntorch=={torch.__version__.partition('+')[0]}\n" in (ROOT / "constraints.txt").read_text()
"""Launches differ from version to version."""
LARGEST = 0.2


def part(content: dict[str, Any], *titles: str) -> dict[str, Any]:
    """A result with the rows of some networks."""
    return content | {"rows": [row for row in content["rows"] if row["workload"].startswith(titles)]}


def worst(content: dict[str, Any], cost_of: CostOf) -> float:
    return max(abs(row.error) for row in predictions(content, cost_of))


def assert_agreement(content: dict[str, Any]) -> CostOf:
    """With the model, and not with one that grows by a third too much or too little, or knows no comparing."""
    cost_of = costs_on_cpu(Sizes(**content["sizes"]))
    rows = list(predictions(content, cost_of))
    grown = [row for row in content["rows"] if row["group"] == GROWTH]
    assert {row["workload"] for row in grown} <= {row.workload for row in rows}
    assert len(rows) > len(grown)
    assert [row.error for row in rows if row.fitted] == [pytest.approx(0)]
    assert [row for row in rows if abs(row.error) > LARGEST] == []
    smallest = min(*content["sizes"]["batches"], *content["sizes"]["image_counts"])
    for factor in (0.7, 1.3):
        grows = partial(_grown, cost_of, smallest, factor)
        assert worst(content, grows) > LARGEST
    assert worst(content, lambda name, *key: cost_of("vse_infinity", *key)) > LARGEST
    return cost_of


def _grown(cost_of: CostOf, smallest: int, factor: float, name: str, workload: str, size: int) -> Cost:
    return cost_of(name, workload, size) * (factor if size > smallest else 1)


def assert_current(*names: str) -> None:
    page = scale.PAGE.read_text(encoding="utf-8")
    for name in names:
        marked = re.search(rf"<!-- table: {name} -->.*?<!-- end -->", page, re.DOTALL)[0]
        assert scale.with_tables(marked) == marked, "fix: python -m baselines.benchmark --cost"


@pytest.mark.parametrize("path", ON_CPU, ids=lambda path: path.stem)
def test_measured_rows_of_two_networks_agree_with_the_model(path: Path) -> None:
    assert_agreement(part(read_report(path), "SGR", "VSE-infinity"))


def test_the_page_has_every_measured_row() -> None:
    table = scale.PAGE.read_text(encoding="utf-8").split("<!-- table: agreement -->")[1]
    lines = [tuple(line.strip("| ").split(" | ")) for line in table.splitlines() if line.startswith("| ")]
    stated = [line[:4] for line in lines[2:]]
    measured = [
        (content["device"], row.workload, row.quantity, f"{row.measured:.2f}")
        for content in map(read_report, ON_CPU)
        for row in predictions(content, lambda name, workload, size: Cost({(size, 1): 1}))
    ]
    assert stated == measured, "fix: python -m baselines.benchmark --cost"


@pytest.mark.slow  # every network is counted at many sizes, and the page has all of it
@pytest.mark.parametrize("path", ON_CPU, ids=lambda path: path.stem)
def test_every_measured_row_agrees_with_the_model(path: Path) -> None:
    content = read_report(path)
    cost_of = assert_agreement(content)
    assert worst(content, lambda name, *key: cost_of("saf" if name == "sgr" else name, *key)) > LARGEST
    if IS_PAGES_TORCH:
        assert_current("agreement")


def test_the_terms_of_a_step_are_its_arithmetic_and_the_page_is_current() -> None:
    for name in TERMS:
        for words in scale.WORDS:
            sizes = published(name, PUBLISHED).model_copy(update={"shortest": words, "longest": words})
            assert scale._step(name, sizes).flops == pytest.approx(step_flops(name, sizes), rel=0.08)
    page = scale.PAGE.read_text(encoding="utf-8")
    assert sorted(re.findall(r"<!-- table: (\w+) -->", page)) == sorted(scale.TABLES)
    if IS_PAGES_TORCH:
        assert_current(*set(scale.TABLES) - {"agreement"})


def test_the_command_writes_the_tables_into_the_page(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    page = tmp_path / "scale.md"
    monkeypatch.setattr(benchmark, "PAGE", page)
    assert benchmark.main(["--cost"]) == 2
    assert "runs in a source checkout" in capsys.readouterr().err
    page.write_text("Before.\n\n<!-- table: cards -->\nold\n<!-- end -->\n\nAfter.\n", encoding="utf-8")
    assert benchmark.main(["--cost"]) == 0
    written = page.read_text(encoding="utf-8")
    assert capsys.readouterr().out == written
    assert written.startswith("Before.\n\n<!-- table: cards -->\n\n| card | FP32 |")
    assert "old" not in written
    assert "| H200 | 67 | 494.5 | 989.5 | 4.8 | 14 / 103 / 206 |" in written
    assert written.endswith("|\n\n<!-- end -->\n\nAfter.\n")


def test_what_the_page_says_of_its_tables() -> None:
    *data_centre, consumer = scale.CARDS
    of_step = {name: scale._step(name, published(name, PUBLISHED)) for name in TERMS}
    for name, each in of_step.items():
        density = each.flops / each.bytes
        assert all((density > card.tf32 / card.bandwidth) == (name == "vsrn") for card in scale.CARDS)
        assert all(density > card.fp32 / card.bandwidth for card in data_centre)
    assert consumer.fp32 == consumer.tf32
    comparing = {name: scale._scoring(name).comparing for name in ("sgr", "imram")}
    fp32, tf32, _ = scale.H200.seconds(comparing["sgr"])
    assert 55 < fp32 < 65
    assert 0.45 < tf32 / fp32 < 0.55
    assert min(min(card.seconds(comparing["imram"])) for card in scale.CARDS) > 120
    assert 5000 * PUBLISHED.regions * PUBLISHED.embed_size * 4 // 10**6 == 737
    assert CPU_BYTES < memory_budget(META) == 2**30
