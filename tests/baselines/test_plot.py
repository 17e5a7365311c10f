"""Figures of a run: what they hold, which are drawn, and that the same run gives the same bytes."""

import csv
from xml.etree import ElementTree

import numpy as np
import pytest
import torch
from rich.console import Console
from support.few_digits import digits_job, trained
from support.refusals import refused

from baselines.audit.pairs import audit, open_runs
from baselines.plot import plot_run
from baselines.training.measures import Epoch, diagnose
from baselines.training.run_folder import RunFolder
from ncl_bench.data import true_correspondence
from ncl_bench.errors import TrainingError

TRUE = np.array([True, True, True, False])


def entry(index, loss, r_sum, estimate):
    found = {} if estimate is None else {"clean_probability": diagnose(torch.tensor(estimate), TRUE)}
    return Epoch(
        index=index,
        round=0,
        phase="train",
        epoch=index,
        learning_rate=0.1,
        steps=index,
        taken=(index,),
        dev={"r_sum": r_sum},
        best=index == 1,
        loss=loss,
        diagnosis=found,
    )


def run(folder, estimates):
    made = RunFolder(folder)
    made.write_history([entry(i, (2.0, None)[i], 100.0 + i, e) for i, e in enumerate(estimates)])
    return made


def lines(path):
    with path.open(newline="") as stream:
        return list(csv.DictReader(stream))


def test_curves_separation_and_histograms_hold_what_the_history_says(tmp_path):
    said = []
    written = plot_run(run(tmp_path, [[0.9, 0.2, 0.3, 0.5], [0.9, 0.8, 0.7, 0.1]]), say=said.append)
    assert said == [
        f"The figures of single pairs are left out: {tmp_path / 'run.json'} does not exist, expected that of a "
        "finished run of `ncl-bench train`; train, or give another folder"
    ]
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


def test_the_same_run_gives_the_same_bytes(tmp_path):
    content = []
    for name in "ab":
        written = plot_run(run(tmp_path / name, [[0.9, 0.2, 0.3, 0.5], [0.9, 0.8, 0.7, 0.1]]))
        content.append({path.name: path.read_bytes() for path in written})
    assert content[0] == content[1]


def test_without_a_belief_there_are_curves_alone(tmp_path):
    written = plot_run(run(tmp_path, [None, None]))
    assert [path.name for path in written] == ["curves.csv", "curves.svg"]


def test_a_folder_without_history_is_refused(tmp_path):
    with refused(TrainingError):
        plot_run(RunFolder(tmp_path))


NCR = {"name": "ncr", "warmup_epochs": 1, "epochs": 2, "learning_rate": 0.002}
GSC = {"name": "gsc", "epochs": 2, "learning_rate": 0.002}
TRIPLET = {"name": "triplet", "epochs": 1}
OF_HISTORY = {"curves", "separation", "histograms"}


@pytest.fixture(scope="module")
def runs(few_pairs, tmp_path_factory):
    """Finished runs on a thousand pairs; the last one has no wrong pair and kept nothing after its epochs."""
    folder = tmp_path_factory.mktemp("runs")
    cases = {
        "ncr": (NCR, 0.4, True),
        "gsc": (GSC, 0.4, True),
        "triplet": (TRIPLET, 0.4, True),
        "bare": (NCR, 0.0, False),
    }
    return {
        name: trained(
            digits_job(method, ratio, recipe={"batch_size": 250}), folder / name, keep_estimates=keeps
        ).folder
        for name, (method, ratio, keeps) in cases.items()
    }


@pytest.mark.parametrize(
    ("name", "figures"),
    [
        ("ncr", OF_HISTORY | {"losses", "similarities", "predictions", "weights", "loss_by_epoch"}),
        ("gsc", OF_HISTORY | {"losses", "similarities", "agreement", "weights"}),
        ("triplet", {"curves", "losses", "similarities"}),
        ("bare", {"curves", "losses", "similarities"}),
    ],
)
def test_what_a_finished_run_has_is_drawn(name, figures, runs):
    written = plot_run(runs[name], device="cpu")
    assert {path.name for path in written} == {
        f"{figure}.{kind}" for figure in figures for kind in ("svg", "csv")
    }


def test_figures_of_pairs_hold_the_pairs_of_the_audit(runs):
    folder = runs["ncr"]
    plot_run(folder, device="cpu")
    table = audit(folder.path, device="cpu", console=Console(quiet=True))
    wrong = ~true_correspondence(open_runs([folder.path], None).train)
    bins = lines(folder.path / "plots" / "losses.csv")
    edges = [float(line["low"]) for line in bins] + [float(bins[-1]["high"])]
    counts = np.histogram(table["loss"][~wrong], bins=edges)[0]
    assert np.abs(counts - [int(line["true_pairs"]) for line in bins]).sum() <= 4  # edges are rounded
    assert sum(int(line["true_pairs"]) + int(line["false_pairs"]) for line in bins) == 1000
    fitted = sum(float(line["component_1"]) + float(line["component_2"]) for line in bins)
    assert 500 < fitted < 1100  # the tails of the densities lie outside the bins
    noisy = table["clean_probability"] <= 0.5
    bins = lines(folder.path / "plots" / "predictions.csv")
    assert sum(int(line["false_pairs"]) for line in bins) == int((noisy & wrong).sum())


def test_means_over_epochs_are_those_of_true_and_false_pairs(runs):
    folder = runs["ncr"]
    plot_run(folder, device="cpu")
    truth = true_correspondence(open_runs([folder.path], None).train)
    for figure, kept, first in (("weights", "clean_probability", 0), ("loss_by_epoch", "loss", 1)):
        found = {
            (int(line["epoch"]), line["pairs"]): float(line["mean"])
            for line in lines(folder.path / "plots" / f"{figure}.csv")
        }
        for epoch in range(first, 3):
            values = folder.read_estimates(epoch, 1000)[kept]
            assert found[epoch, "true pairs"] == pytest.approx(values[truth].mean(), rel=1e-5)
            assert found[epoch, "false pairs"] == pytest.approx(values[~truth].mean(), rel=1e-5)
        assert len(found) == 2 * (3 - first)
