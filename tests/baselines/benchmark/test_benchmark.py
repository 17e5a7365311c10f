"""The benchmark at tiny sizes: it runs, compares equal work, and its table says what it measured."""

import json
import time
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import torch

from baselines.benchmark import __main__ as benchmark
from baselines.benchmark import measure, memory
from baselines.benchmark.loop import Loop
from baselines.benchmark.report import FOLDER, completed, markdown, read_report
from baselines.benchmark.sizes import PUBLISHED, SMALL
from baselines.benchmark.step_costs import Epoch
from baselines.benchmark.stopwatch import Stopwatch, side_by_side
from baselines.benchmark.workloads import make_batch, make_network, step_of
from baselines.methods import METHODS
from ncl_bench.errors import NclBenchError

TINY = (
    "batch=6", "memory_batch=4", "embed_size=16", "sim_dim=8", "word_dim=8", "feature_dim=20", "regions=5",
    "vocabulary=50", "images=8", "batches=[4,6]", "image_counts=[4,8]", "most_images=12", "epoch_steps=2",
    "matrix=64", "rounds=2", "imram_batch=4", "imram_images=4", "scan_images=6", "method_batch=6",
    "method_steps=3", "method_rounds=2", "memory_images=[4,6]",
)  # fmt: skip
CPU = torch.device("cpu")


@pytest.fixture
def no_processes(monkeypatch: pytest.MonkeyPatch) -> None:
    """Peaks of memory are measured in processes of their own, for seconds each."""

    def peak(workload: str, name: str, variant: str, *_: object) -> float:
        return {"loop": 8.0, "blocks": 2.0}[variant]

    monkeypatch.setattr(measure, "peak_mebibytes", peak)
    monkeypatch.setattr(memory, "peak_mebibytes", peak)


def measured(target: Path, *arguments: str) -> dict[str, Any]:
    settings = [part for size in TINY for part in ("--size", size)]
    assert benchmark.main(["--device", "cpu", "--to", str(target), *settings, *arguments]) == 0
    content: dict[str, Any] = json.loads(target.read_text())
    return content


@pytest.mark.usefixtures("no_processes")
def test_the_command_writes_ratios_and_prints_tables(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    few = {name: METHODS[name] for name in ("decl", "l2rm", "mscn", "triplet")}
    monkeypatch.setattr("baselines.benchmark.step_costs.METHODS", few)
    target = tmp_path / "result.json"
    content = measured(target)
    printed = capsys.readouterr().out
    rows = content["rows"]
    assert content["sizes"]["batch"] == 6
    assert len(rows) == 16 + 2 + 1 + 9 + 3
    assert all(row["ratio"] > 0 and row["rounds"] == 1 for row in rows)
    assert all(row["seconds"] is None and row["spread"] is None for row in rows)
    assert content["matrix_peak_flops"] is None
    scored = [row for row in rows if "scoring" in row["workload"] and row["variant"] == "blocks"]
    assert len(scored) == 4
    assert all(row["difference"] < 1e-4 for row in scored)
    assert {row["variant"] for row in rows if row["group"] == "Precision"} == {"bf16-mixed"}
    assert "| 8 → 2 |" in printed
    assert "scoring 8 x 40" in printed
    assert "| IMRAM: training step, batch 4 |" in printed
    costs = [(each["network"], each["method"]) for each in content["step_costs"]]
    assert costs == [
        ("SGR", "DECL"), ("SGR", "L2RM"), ("SGR", "MSCN"), ("VSE-infinity", "DECL"), ("VSE-infinity", "L2RM"),
    ]  # fmt: skip
    assert all(each["cost"] > 0 and each["allowed"] >= 1.5 for each in content["step_costs"])
    assert len(content["scoring_memory"]) == 4 * 2
    assert benchmark.main(["--table", str(target)]) == 0
    assert capsys.readouterr().out == printed


@pytest.mark.usefixtures("no_processes")
def test_a_part_measured_again_leaves_the_others_as_they_were(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    target = tmp_path / "result.json"
    first = measured(target, "--only", "SAF: scoring", "--only", "Beside")
    again = measured(target, "--only", "SAF: scoring", "--only", "SAF: training step")
    assert [row["workload"] for row in again["rows"]] == [
        "SAF: scoring", "SAF: training step", "VSE-infinity: training step", "loading a batch",
    ]  # fmt: skip
    assert again["rows"][2:] == first["rows"][1:]
    assert again["rows"][0] != first["rows"][0]
    capsys.readouterr()
    assert benchmark.main(["--device", "cpu", "--to", str(target), "--only", "matrix"]) == 2
    assert "no measurement has it in its title" in capsys.readouterr().err
    with pytest.raises(NclBenchError, match="the file has results of other sizes"):
        completed(again | {"sizes": again["sizes"] | {"batch": 7}}, again)


@pytest.mark.parametrize("name", METHODS)
def test_every_method_takes_steps_that_can_be_timed(name: str) -> None:
    epoch, watch = Epoch(name, "sgr", SMALL.changed(TINY), CPU).variant(), Stopwatch(CPU)
    epoch(watch)
    assert 0 < watch.stop()["total"] <= watch.seconds["total"]


def test_passes_of_a_method_are_counted_by_their_arithmetic() -> None:
    sizes = SMALL.changed(TINY)

    def counted(name: str) -> tuple[float, float, int]:
        return Epoch(name, "vse_infinity", sizes, CPU).counted()

    forward, backward, steps = counted("rince")
    assert steps == 3
    assert backward == pytest.approx(2 * forward, rel=0.4)  # features need no gradient
    twice, *same = counted("decl")  # which predicts every pair before the epoch, in another order
    assert same == [backward, steps]
    assert twice == pytest.approx(2 * forward, rel=0.1)


def test_variants_that_differ_are_not_compared(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        Loop, "similarities", lambda self, images, captions: 0.9 * self.network.similarities(images, captions)
    )
    measurements = measure.Measurements(SMALL.changed(TINY), CPU)
    with pytest.raises(NclBenchError, match="the similarities of sgr differ by"):
        measurements._difference_from_loop("sgr")


WITHOUT_EFFECT = {
    "sgr": {f"reasoning.steps.{k}.key.bias" for k in range(3)},
    "imram": set(),
    "scan": set(),
    "saf": set(),
    "vsrn": set(),
}
"""Weights that only the loop gives a gradient, of zero but for rounding."""


@pytest.mark.parametrize("name", WITHOUT_EFFECT)
def test_both_variants_of_a_step_give_the_same_gradients(name: str) -> None:
    sizes = SMALL.changed(TINY)
    gradients = []
    for wrap in (Loop, lambda network: network):
        network = make_network(name, sizes, CPU, **({"caption_dropout": 0.0} if name == "vsrn" else {}))
        found: dict[str, torch.Tensor] = {}
        for key, weight in network.named_parameters():
            weight.register_hook(partial(found.__setitem__, key))
        torch.manual_seed(1)  # of dropout
        step_of(wrap(network), make_batch(sizes, sizes.batch, CPU))(Stopwatch(CPU))
        gradients.append(found)
    loop, blocks = gradients
    assert loop.keys() - blocks.keys() == WITHOUT_EFFECT[name]
    for key, gradient in blocks.items():
        torch.testing.assert_close(gradient, loop[key], rtol=1e-3, atol=1e-5)


@pytest.mark.parametrize(("direction", "aggregation"), [("t2i", "lse"), ("i2t", "avg"), ("i2t", "lse")])
def test_the_loop_knows_every_form_of_scan(direction: str, aggregation: str) -> None:
    sizes = SMALL.changed(TINY)
    network = make_network("scan", sizes, CPU, direction=direction, aggregation=aggregation)
    batch = make_batch(sizes, sizes.batch, CPU)
    with torch.no_grad():
        torch.testing.assert_close(Loop(network)(batch), network(batch))


def test_ratios_are_of_the_same_round() -> None:
    variants = {"slow": lambda watch: spin(0.03), "fast": lambda watch: spin(0.01)}
    timings = side_by_side(variants, CPU, rounds=4, seconds=60)
    assert timings.rounds == 3
    assert 2 < timings.ratio("slow", "fast") < 4.5


def test_a_measurement_stops_when_its_time_is_over() -> None:
    timings = side_by_side({"one": lambda watch: spin(0.02)}, CPU, rounds=50, seconds=0.01)
    assert timings.rounds == 1


def spin(seconds: float) -> None:
    end = time.process_time() + seconds
    while time.process_time() < end:
        pass


def test_a_pass_of_several_parts_counts_as_one_of_them() -> None:
    watch = Stopwatch(CPU)
    spin(0.02)
    watch.divide(4)
    assert watch.stop()["total"] == pytest.approx(watch.seconds["total"] / 4)


def test_memory_of_the_loop_is_larger() -> None:
    sizes = SMALL.changed((*TINY, "batch=48", "embed_size=128", "regions=16"))
    loop, blocks = (
        memory._peak_of_this_process("step", "saf", variant, sizes) for variant in ("loop", "blocks")
    )
    assert 0 <= blocks < loop


def test_sizes_of_the_papers() -> None:
    sizes = PUBLISHED
    assert (sizes.batch, sizes.regions, sizes.feature_dim, sizes.embed_size, sizes.sim_dim) == (
        128,
        36,
        2048,
        1024,
        256,
    )
    assert (sizes.shortest, sizes.longest, sizes.images, sizes.captions_per_image) == (8, 20, 1000, 5)


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (["--size", "batch=1"], "batch is 1"),
        (["--size", "batchs=8"], "unknown key 'batchs'"),
        (["--device", "cuda"], "torch finds no CUDA device"),
        (["--size", "batch=[8"], "expected a size such as batch=64"),
        (["--table", "absent.json"], "absent.json is no result of python -m baselines.benchmark"),
    ],
)
def test_mistakes_are_one_sentence(
    arguments: list[str],
    sentence: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    assert benchmark.main(["--device", "cpu", *arguments]) == 2
    assert sentence in capsys.readouterr().err
    assert not list(tmp_path.iterdir())


def test_a_wheel_without_tests_says_so(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("baselines.benchmark.loop.TESTS", tmp_path)
    benchmark.oracle.cache_clear()
    assert benchmark.main(["--device", "cpu"]) == 2
    assert "runs in a source checkout" in capsys.readouterr().err


@pytest.mark.parametrize("path", sorted(FOLDER.glob("*.json")), ids=lambda path: path.stem)
def test_shipped_results_are_tables(path: Path) -> None:
    content = read_report(path)
    table = markdown(content)
    assert f"Measured on {content['device']}" in table
    assert path.with_suffix(".md").read_text(encoding="utf-8") == table
