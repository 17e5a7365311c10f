"""The benchmark at tiny sizes: it runs, compares equal work, and its table says what it measured."""

import json
import time
from functools import partial
from importlib.util import find_spec
from pathlib import Path

import pytest
import torch

from baselines.benchmark import __main__ as benchmark
from baselines.benchmark import measure, memory
from baselines.benchmark.loop import Loop
from baselines.benchmark.report import FOLDER, markdown, read_report
from baselines.benchmark.sizes import PUBLISHED, SMALL
from baselines.benchmark.stopwatch import Stopwatch, side_by_side
from baselines.benchmark.works import make_batch, make_network, step_of
from ncl_bench.errors import NclBenchError

TINY = (
    "batch=6", "memory_batch=4", "embed_size=16", "sim_dim=8", "word_dim=8", "feature_dim=20", "regions=5",
    "vocabulary=50", "images=8", "batches=[4,6]", "image_counts=[4,8]", "most_images=12", "epoch_steps=2",
    "matrix=64", "rounds=2",
)  # fmt: skip
CPU = torch.device("cpu")


def test_the_command_writes_ratios_and_prints_tables(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(
        measure, "peak_mebibytes", lambda work, name, side, *_: {"loop": 8.0, "blocks": 2.0}[side]
    )
    target = tmp_path / "result.json"
    settings = [part for size in TINY for part in ("--size", size)]
    assert benchmark.main(["--device", "cpu", "--to", str(target), *settings]) == 0
    printed = capsys.readouterr().out
    content = json.loads(target.read_text())
    rows = content["rows"]
    assert content["sizes"]["batch"] == 6
    assert len(rows) == 9 + 2 + 1 + 9 + 3
    assert all(row["ratio"] > 0 and row["rounds"] == 1 for row in rows)
    assert all(row["seconds"] is None for row in rows)
    assert content["matrix_peak_flops"] is None
    assert all(
        row["difference"] < 1e-4
        for row in rows
        if row["work"].endswith("scoring") and row["side"] == "blocks"
    )
    assert {row["side"] for row in rows if row["group"] == "Precision"} == {"bf16-mixed"}
    assert "| 8 → 2 |" in printed
    assert "scoring 8 x 40" in printed
    assert benchmark.main(["--table", str(target)]) == 0
    assert capsys.readouterr().out == printed


@pytest.mark.skipif(find_spec("triton") is None, reason="Triton comes with torch for CUDA")
def test_the_fused_kernel_stands_beside_plain_torch() -> None:
    rows = measure.Measurements(SMALL.changed(TINY), CPU)._kernels("sgr", "32-true", lambda share: None)
    assert [row.work for row in rows] == ["SGR: training step, 32-true", "SGR: scoring, 32-true"]
    assert {(row.reference, row.side) for row in rows} == {("torch", "triton")}


def test_sides_that_differ_are_not_compared(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        Loop, "similarities", lambda self, images, captions: 0.9 * self.network.similarities(images, captions)
    )
    measurements = measure.Measurements(SMALL.changed(TINY), CPU)
    with pytest.raises(NclBenchError, match="the similarities of sgr differ by"):
        measurements._difference_from_loop("sgr")


@pytest.mark.parametrize("name", ["sgr", "saf"])
def test_both_sides_of_a_step_give_the_same_gradients(name: str) -> None:
    sizes = SMALL.changed(TINY)
    gradients: dict[type, dict[str, torch.Tensor]] = {}
    for wrap in (Loop, lambda network: network):
        network = make_network(name, sizes, CPU)
        found = gradients[wrap] = {}
        for key, weight in network.named_parameters():
            weight.register_hook(partial(found.__setitem__, key))
        torch.manual_seed(1)  # of dropout
        step_of(wrap(network), make_batch(sizes, sizes.batch, CPU))(Stopwatch(CPU))
    loop, blocks = gradients.values()
    without_effect = {f"reasoning.steps.{k}.key.bias" for k in range(3)} if name == "sgr" else set()
    assert loop.keys() - blocks.keys() == without_effect
    for key, gradient in blocks.items():
        torch.testing.assert_close(gradient, loop[key], rtol=1e-3, atol=1e-5)


def test_ratios_are_of_the_same_round() -> None:
    sides = {"slow": lambda watch: spin(0.03), "fast": lambda watch: spin(0.01)}
    timings = side_by_side(sides, CPU, rounds=4, seconds=60)
    assert timings.rounds == 3
    assert 2 < timings.ratio("slow", "fast") < 4.5


def test_a_measurement_stops_when_its_time_is_over() -> None:
    timings = side_by_side({"one": lambda watch: spin(0.02)}, CPU, rounds=50, seconds=0.01)
    assert timings.rounds == 1


def spin(seconds: float) -> None:
    end = time.process_time() + seconds
    while time.process_time() < end:
        pass


def test_memory_of_the_loop_is_larger() -> None:
    sizes = SMALL.changed((*TINY, "batch=48", "embed_size=128", "regions=16"))
    loop, blocks = (memory._peak_of_this_process("step", "saf", side, sizes) for side in ("loop", "blocks"))
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
    monkeypatch.setattr("baselines.benchmark.loop.ORACLE", tmp_path / "sgraf_loop.py")
    benchmark.oracle.cache_clear()
    assert benchmark.main(["--device", "cpu"]) == 2
    assert "runs in a source checkout" in capsys.readouterr().err


@pytest.mark.parametrize("path", sorted(FOLDER.glob("*.json")), ids=lambda path: path.stem)
def test_shipped_results_are_tables(path: Path) -> None:
    content = read_report(path)
    table = markdown(content)
    assert f"Measured on {content['device']}" in table
    assert path.with_suffix(".md").read_text(encoding="utf-8") == table
