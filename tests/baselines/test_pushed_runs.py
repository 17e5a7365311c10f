"""Runs on the Hub, which is only pretended: pushed with a card, fetched and scored."""

import shutil

import pytest
import yaml
from support.few_digits import digits_job, load_few, trained
from support.refusals import refused

import baselines
import baselines.hub
import baselines.training.job
import ncl_bench
from ncl_bench.errors import TrainingError

TOKEN = "hf_abcdefghijklmnopqrstuvwxyz"


class PretendedHub:
    """Keeps what is uploaded in a folder."""

    def __init__(self, place, fault=""):
        self.place, self.fault = place, fault

    def create_repo(self, repo_id, *, private, exist_ok):
        assert private
        assert exist_ok
        (self.place / repo_id).mkdir(parents=True)

    def upload_file(self, *, path_or_fileobj, path_in_repo, repo_id):
        if self.fault:
            raise PermissionError(self.fault)
        shutil.copy(path_or_fileobj, self.place / repo_id / path_in_repo)

    def download(self, repo_id, *, revision, allow_patterns):
        assert revision == "v1"
        return str(self.place / repo_id)


@pytest.fixture
def run(tmp_path, monkeypatch):
    monkeypatch.setattr(baselines.training.job, "load_dataset", load_few)
    trained(digits_job({"name": "triplet", "epochs": 1}), tmp_path / "run")
    return tmp_path / "run"


def test_a_pushed_run_scores_the_same(run, tmp_path, monkeypatch):
    hub = PretendedHub(tmp_path / "hub")
    monkeypatch.setattr(baselines.hub, "HfApi", lambda: hub)
    result = ncl_bench.evaluate_submission(baselines.Run(run).score())
    baselines.hub.push(run, "ada/run")
    pushed = {path.name for path in (hub.place / "ada" / "run").iterdir()}
    expected = {"README.md", "recipe.yaml", "run.json", "best.safetensors", "history.json"}
    assert pushed == expected | {"training.json", "result.json"}
    text = (hub.place / "ada" / "run" / "README.md").read_text("utf-8")
    (model,) = yaml.safe_load(text.split("---")[1])["model-index"]
    metrics = {each["type"]: each["value"] for each in model["results"][0]["metrics"]}
    assert metrics["r_sum"] == pytest.approx(result.r_sum, abs=1e-3)
    monkeypatch.setattr(baselines.hub, "snapshot_download", hub.download)
    again = baselines.score("hub:ada/run@v1", to=tmp_path / "again")
    assert ncl_bench.evaluate_submission(again).r_sum == result.r_sum


def test_a_token_is_not_printed(run, tmp_path, monkeypatch):
    hub = PretendedHub(tmp_path / "hub", f"no rights for {TOKEN}")
    monkeypatch.setattr(baselines.hub, "HfApi", lambda: hub)
    with refused(TrainingError) as error:
        baselines.hub.push(run, "ada/run")
    assert TOKEN not in str(error.value)
    assert error.value.__cause__ is None


def test_what_is_no_run_on_the_hub_is_refused(tmp_path, monkeypatch):
    monkeypatch.setattr(baselines.hub, "snapshot_download", lambda *_, **__: tmp_path)
    with refused(TrainingError):
        baselines.hub.fetch("hub:ada")
    with refused(TrainingError):
        baselines.score(baselines.hub.fetch("hub:ada/other"), to=tmp_path / "to")
