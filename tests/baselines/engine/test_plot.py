"""Figures of a run: what they hold, and that the same run gives the same bytes."""

import csv
from pathlib import Path
from xml.etree import ElementTree

import numpy as np
import pytest
import torch

from baselines.engine.measures import Epoch, separation
from baselines.engine.plot import plot_run
from baselines.engine.run_folder import RunFolder
from ncl_bench.errors import TrainingError

TRUE = np.array([True, True, True, False])


def entry(index: int, loss: float | None, r_sum: float, estimate: list[float] | None) -> Epoch:
    found = {} if estimate is None else {"clean_probability": separation(torch.tensor(estimate), TRUE)}
    return Epoch(
        index=index,
        round=0,
        phase="train",
        epoch=index,
        learning_rate=0.1,
        steps=index,
        dev={"r_sum": r_sum},
        best=index == 1,
        loss=loss,
        diagnosis=found,
    )


def run(folder: Path, estimates: list[list[float] | None]) -> RunFolder:
    made = RunFolder(folder)
    made.write_history([entry(i, (2.0, None)[i], 100.0 + i, e) for i, e in enumerate(estimates)])
    return made


def lines(path: Path) -> list[dict[str, str]]:
    with path.open(newline="") as stream:
        return list(csv.DictReader(stream))


def test_curves_separation_and_histograms_hold_what_the_history_says(tmp_path: Path) -> None:
    written = plot_run(run(tmp_path, [[0.9, 0.2, 0.3, 0.5], [0.9, 0.8, 0.7, 0.1]]))
    assert {path.name for path in written} == {
        f"{name}.{kind}" for name in ("curves", "separation", "histograms") for kind in ("svg", "csv")
    }
    curves = lines(tmp_path / "plots" / "curves.csv")
    assert [(line["loss"], line["dev_r_sum"], line["best"]) for line in curves] == [
        ("2.0", "100.0", "0"),
        ("", "101.0", "1"),
    ]
    found = lines(tmp_path / "plots" / "separation.csv")
    assert [float(line["auroc"]) for line in found] == [pytest.approx(1 / 3), 1.0]
    bins = lines(tmp_path / "plots" / "histograms.csv")
    assert sum(int(line["true_pairs"]) for line in bins) == 3
    assert {line["epoch"] for line in bins} == {"1"}
    for path in written:
        if path.suffix == ".svg":
            assert ElementTree.parse(path).getroot().tag.endswith("svg")


def test_the_same_run_gives_the_same_bytes(tmp_path: Path) -> None:
    content = []
    for name in "ab":
        written = plot_run(run(tmp_path / name, [[0.9, 0.2, 0.3, 0.5], [0.9, 0.8, 0.7, 0.1]]))
        content.append({path.name: path.read_bytes() for path in written})
    assert content[0] == content[1]


def test_without_a_belief_there_are_curves_alone(tmp_path: Path) -> None:
    written = plot_run(run(tmp_path, [None, None]))
    assert [path.name for path in written] == ["curves.csv", "curves.svg"]


def test_a_folder_without_history_is_refused(tmp_path: Path) -> None:
    with pytest.raises(TrainingError, match=r"is .* a finished run"):
        plot_run(RunFolder(tmp_path))
