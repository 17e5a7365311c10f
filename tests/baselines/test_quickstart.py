"""The quickstart's path from noise to leaderboard, with two tiny networks in place of its own (two processes)."""

import hashlib
import json
import os
import signal
import subprocess
import sys
import time

import pytest
import yaml

from baselines import quickstart
from ncl_bench.evaluation.submission import read_submission

TINY = {"name": "vse_infinity", "embed_size": 8, "word_dim": 8}
SCRIPT = """
import sys
from baselines import quickstart
from ncl_bench.cli import main
quickstart.QUICKSTART_RECIPES, quickstart.QUICKSTART_NOISES = sys.argv[4:], ("caption-60",)
del sys.argv[4:]
main()
"""
"""``ncl-bench quickstart --to FOLDER``, then its recipes."""
METHODS = {"ncr": {"warmup_epochs": 1, "epochs": 1}, "triplet": {"epochs": 1}}


@pytest.fixture
def recipes(tmp_path):
    paths = [tmp_path / "recipes" / name / "tiny.yaml" for name in METHODS]
    for path in paths:
        path.parent.mkdir(parents=True)
        method = {"name": path.parent.name, **METHODS[path.parent.name]}
        content = {"dataset": "digits", "batch_size": 500, "backbone": TINY, "method": method}
        path.write_text(yaml.safe_dump(content))
    return [str(path) for path in paths]


@pytest.mark.slow
def test_it_ends_in_a_leaderboard(
    recipes,
    tmp_path,
    monkeypatch,
    capfd,
):
    monkeypatch.setattr(quickstart, "QUICKSTART_RECIPES", recipes)
    monkeypatch.setattr(quickstart, "QUICKSTART_NOISES", ("caption-60",))  # one ratio, so no curve
    folder = tmp_path / "quickstart"
    quickstart.quickstart(folder, device="cpu")
    rows = list((folder / "leaderboard" / "results" / "digits").rglob("*.yaml"))
    assert len(rows) == 2
    page = (folder / "leaderboard" / "site" / "index.html").read_text("utf-8")
    for submission in (folder / "submissions").iterdir():
        stated = read_submission(submission)
        assert stated.noise.ratio == 0.6
        assert stated.method in page
    assert capfd.readouterr().err.count("rSum") == 2


def started(folder, recipes):
    """A quickstart in a process group of its own; its standard error stays open as long as a worker lives."""
    command = [sys.executable, "-c", SCRIPT, "quickstart", "--to", str(folder), *recipes]
    return subprocess.Popen(command, stderr=subprocess.PIPE, text=True, start_new_session=True)


def left(folder):
    """Every number and page that a quickstart leaves; how long it took does not count."""
    found = {}
    for path in sorted(folder.glob("submissions/*/result.json")):
        content = json.loads(path.read_text())
        found[path.parent.name] = json.dumps(content["splits"]["test"]["protocols"])
    for path in sorted((folder / "leaderboard").rglob("*")):
        if path.is_file():
            found[str(path.relative_to(folder))] = hashlib.sha256(path.read_bytes()).hexdigest()
    return found


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_killed_alone_and_with_its_workers_it_is_finished_by_the_same_command(recipes, tmp_path):
    whole, broken = tmp_path / "whole", tmp_path / "broken"
    undisturbed = started(whole, recipes)
    _, said = undisturbed.communicate()
    assert undisturbed.returncode == 0, said
    for kill, moment in ((os.kill, "runs/*/history.json"), (os.killpg, "submissions/*/result.json")):
        killed = started(broken, recipes)
        while not any(broken.glob(moment)):
            assert killed.poll() is None
            time.sleep(0.02)
        kill(killed.pid, signal.SIGKILL)
        killed.communicate(timeout=60)  # until the last worker has closed it
        assert killed.returncode == -signal.SIGKILL
        assert not list(broken.glob("leaderboard/**/*.html"))
    again = started(broken, recipes)
    _, said = again.communicate()
    assert again.returncode == 0, said
    assert len(list(broken.glob("submissions/*/result.json"))) == len(METHODS)
    assert left(broken) == left(whole)
