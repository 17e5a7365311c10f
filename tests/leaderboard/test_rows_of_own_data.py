"""Rows of a dataset or method of one's own: they need its file, and the commands that are printed name it."""

import re
from pathlib import Path

import pytest
from support.command import invoke
from support.refusals import refused

from leaderboard.add import add
from leaderboard.entries import Condition
from leaderboard.read_entries import recipe_commands
from leaderboard.row_files import header_of
from ncl_bench.data import DATASETS
from ncl_bench.errors import SubmissionError
from ncl_bench.evaluation.submission import read_submission
from ncl_bench.evaluation.training_record import Training

PLUGIN = """
from dataclasses import replace
from ncl_bench.data import digits, register

register(replace(digits.SPEC, name="mine", title="Mine"))
"""


@pytest.fixture
def submission(make, tmp_path, monkeypatch, no_plugins):
    """A submission on a dataset that only ``mine.py``, in the current folder, registers."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "mine.py").write_text(PLUGIN)
    text = (make(tmp_path / "submission") / "submission.yaml").read_text()
    (tmp_path / "submission" / "submission.yaml").write_text(text.replace("dataset: digits", "dataset: mine"))
    return tmp_path / "submission"


def typed(*words):
    return invoke(*words).stdout


def test_a_dataset_of_ones_own_has_rows_where_its_file_is_given(submission):
    with refused():
        typed("leaderboard", "add", "submission", "--root", "board")
    said = typed("--plugin", "mine.py", "leaderboard", "add", "submission", "--root", "board")
    assert "next: see it with `ncl-bench --plugin mine.py leaderboard build --root board`" in said
    typed("--plugin", "mine.py", "leaderboard", "build", "--root", "board", "--no-published", "--to", "site")
    page = Path("site/index.html").read_text("utf-8")
    assert "Mine" in page
    (place,) = re.findall(r"then it stands at site/index\.html#(\S+)", said)
    assert f'id="{place}"' in page
    del DATASETS["mine"]
    with refused():
        typed("leaderboard", "build", "--root", "board", "--no-published", "--to", "elsewhere")
    assert not Path("elsewhere").exists()


def test_the_commands_of_a_row_name_its_plugins(make, put, tmp_path):
    recipe = ("mine/digits_sgr",)
    training = Training(precision="32-true", torch="2", device="CPU", plugins=("my file.py",))
    with refused(SubmissionError):
        put(tmp_path / "board", recipes=recipe)
    own = make(tmp_path / "own", recipes=recipe, training=training)
    add(own, tmp_path / "board")
    cell = Condition(dataset="digits", protocol="200", noise_unit="caption", noise_ratio=0.4)
    train, score, evaluate = recipe_commands(header_of(read_submission(own)), (0,), cell)
    assert train.startswith("ncl-bench --plugin 'my file.py' train mine/digits_sgr --noise-ratio 0.4")
    assert score.startswith("ncl-bench --plugin 'my file.py' score runs/mine-digits_sgr")
    assert evaluate.startswith("ncl-bench --plugin 'my file.py' evaluate")
    assert "plugins" not in (make(tmp_path / "plain", difficulty=1.7) / "submission.yaml").read_text()
    assert read_submission(tmp_path / "own").training == training
