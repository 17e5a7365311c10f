"""Training, scoring and sweeping from Python."""

import json

import pytest
import yaml
from support.command import invoke
from support.few_digits import few_digits_recipe, load_few
from support.refusals import refused

import baselines
import baselines.calls
import baselines.training.job
import ncl_bench
from baselines.training.grids import jobs_of_table, of_paper


@pytest.fixture
def recipe(tmp_path, monkeypatch):
    monkeypatch.setattr(baselines.training.job, "load_dataset", load_few)
    path = tmp_path / "tiny.yaml"
    path.write_text(yaml.safe_dump(few_digits_recipe("triplet")))
    return path


def test_a_run_is_trained_resumed_scored_and_plotted(recipe, tmp_path):
    options = {"method.epochs": 2, "method.learning_rate": 1e-5}
    run = baselines.train(recipe, noise_ratio=0.4, settings=options, to=tmp_path / "run")
    assert json.loads((run.path / "run.json").read_text())["settings"] == options
    assert run.history["dev_r_sum"].idxmax() == run.best_epoch
    again = baselines.train(
        recipe,
        noise_ratio=0.4,
        settings=["method.epochs=2", "method.learning_rate=1.0e-5"],
        to=tmp_path / "run",
    )
    assert repr(again) == repr(run)
    assert f"best epoch {run.best_epoch}" in repr(run)
    folder = run.score()
    assert folder == run.path / "submission" == run.score(), "test is read once"
    with refused():
        run.score(embeddings=True)
    assert ncl_bench.evaluate_submission(folder).r_sum > 0
    assert any(path.name == "curves.svg" for path in run.plot())


def test_a_table_is_narrowed_to_the_rows_of_a_paper(tmp_path):
    jobs = jobs_of_table(tmp_path, "flickr30k")
    own = of_paper(jobs, "ncr")
    assert {job.recipe for job in own} >= {"ncr/flickr30k_sgr"}
    assert 0 < len(own) < len(jobs)
    with refused():
        of_paper(jobs, "NRC")


@pytest.mark.parametrize("device", ["mps", "cuda:1", "gpu"])
def test_another_device_is_refused_with_the_way_to_say_it(device):
    with refused():
        invoke("train", "ncr/digits_vse_infinity", "--to", "run", "--device", device)


def test_the_prefix_of_the_checker_is_not_shown():
    found = invoke("train", "ncr/digits_vse_infinity", "--to", "run", "--precision", "half", code=2)
    assert "Value error" not in found.output
    assert "is not one of" in found.output
