"""Every example runs as its docstring says."""

import json
import re
import runpy
import sys
from functools import partial
from pathlib import Path

import pandas as pd
import pytest
from support.drawings import describe, tiny_encoder
from support.few_digits import digits_job, load_few, trained
from support.tiny_clip import MODEL, open_clip

import baselines.training.job
from baselines.methods import METHODS

EXAMPLES = Path(__file__).parents[2] / "examples"


def run(name, *arguments, patch):
    patch.setattr(sys, "argv", [name, *map(str, arguments)])
    return runpy.run_path(str(EXAMPLES / name), run_name="__main__")


def r_sums(printed):
    return [float(number) for number in re.findall(r"rSum (\d+\.\d)", printed)]


def test_each_begins_with_what_it_shows_and_how_to_run_it():
    files = sorted(EXAMPLES.glob("*.py"))
    assert len(files) == 9
    for file in files:
        docstring = file.read_text("utf-8").split('"""')[1]
        assert f"examples/{file.name}" in docstring


def test_own_training_loop(monkeypatch, capsys):
    run("own_training_loop.py", patch=monkeypatch)
    first, second = r_sums(capsys.readouterr().out)
    assert 50 < first < second  # chance is 42


def test_own_method(tmp_path, monkeypatch):
    monkeypatch.setattr(baselines.training.job, "load_dataset", load_few)
    try:
        own = run("own_method.py", patch=monkeypatch)["Trimmed"]
        method = {"name": "trimmed", "warmup_epochs": 1, "epochs": 1}
        trainer = trained(digits_job(method), tmp_path / "run")
        assert isinstance(trainer.method, own)
        assert (trainer.method.losses.values[:1000] > 0).all()
    finally:
        METHODS.pop("trimmed", None)


def test_evaluate_clip_without_clip(monkeypatch, capsys):
    run("evaluate_clip.py", patch=monkeypatch)
    assert "digits, test" in capsys.readouterr().out


def test_evaluate_clip_with_clip(tmp_path, monkeypatch, capsys):
    (tmp_path / "tiny-for-tests.json").write_text(json.dumps(MODEL))
    open_clip.add_model_config(tmp_path)
    run("evaluate_clip.py", "--model", "tiny-for-tests", patch=monkeypatch)
    assert "digits, test" in capsys.readouterr().out


def test_find_wrong_pairs(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr("baselines.encoders.load_encoder", lambda *_: tiny_encoder())
    monkeypatch.setattr("baselines.audit.judge.CHANCE", 2_000)
    monkeypatch.chdir(tmp_path)
    run("find_wrong_pairs.py", patch=monkeypatch)
    assert re.search(r"(\d+) of the 80 wrong captions are among the first 160", capsys.readouterr().out)
    describe(tmp_path / "own", 60)
    table = pd.read_csv(tmp_path / "own" / "captions.csv").rename(columns={"en": "caption"})
    table.to_csv(tmp_path / "own" / "captions.csv", index=False)
    own = tmp_path / "own" / "captions.csv", tmp_path / "own" / "photos"
    run("find_wrong_pairs.py", *own, "--to", tmp_path / "mine", patch=monkeypatch)
    assert "are wrong" not in capsys.readouterr().out  # too few pairs for a share
    assert (tmp_path / "mine" / "index.html").exists()


def test_all_from_python(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(baselines.training.job, "load_dataset", partial(load_few, n_pairs=300))
    # the board takes what a run says of all pairs of the dataset, or nothing
    monkeypatch.setattr("baselines.training.submit.pairs_to_judge", lambda run: None)
    run("all_from_python.py", "--to", tmp_path, patch=monkeypatch)
    shown = capsys.readouterr().out
    assert shown.index("dev_r_sum") < shown.index("digits, test") < shown.index("difference")
    assert re.search(r"NCR.*submitted +True", shown)
    assert (tmp_path / "ncr-seed0" / "audit" / "pairs.parquet").is_file()
    program = (EXAMPLES / "all_from_python.py").read_text("utf-8")
    assert len(program.splitlines()) <= 40
    assert program in (EXAMPLES.parent / "docs" / "quickstart.md").read_text("utf-8")


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_clean_and_train(tmp_path, monkeypatch, capsys):
    run("clean_and_train.py", "--dataset", "digits", "--steps", "20", "--to", tmp_path, patch=monkeypatch)
    shown = capsys.readouterr().out
    for name in ("CCA", "InfoNCE"):
        before, after = re.search(rf"{name}: (\S+)% of all pairs are right, (\S+)% of the", shown).groups()
        assert float(after) > float(before)
    assert shown.count("difference") >= 3
    assert len((EXAMPLES / "clean_and_train.py").read_text("utf-8").splitlines()) <= 45
