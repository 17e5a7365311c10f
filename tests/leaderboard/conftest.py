"""Submissions on the digits with scores that need no training, and a leaderboard made of some."""

import shutil
from pathlib import Path

import numpy as np
import pytest
from support.board_rows import whole_board
from support.submission_folders import statement, write_array

from leaderboard.add import add
from leaderboard.board import read_content
from ncl_bench.evaluation.submission import Submission, write_submission

ROWS = [
    ("CRCL", 0.4, 1.5),
    ("CRCL", 0.6, 1.7),
    ("Triplet (hardest)", 0.4, 2.5),
    ("Triplet (hardest)", 0.6, 3.0),
]
"""Method, noise ratio and difficulty of the rows of the small leaderboard."""


def similarities(difficulty, seed):
    """Cosines of 200 random images with 1,000 captions that lie ``difficulty`` away from their image."""
    random = np.random.RandomState(seed)
    images = np.random.RandomState(5).randn(200, 16)
    captions = np.repeat(images, 5, 0) + difficulty * random.randn(1000, 16)
    product = images @ captions.T
    product /= np.linalg.norm(images, axis=1)[:, None] * np.linalg.norm(captions, axis=1)
    return product.astype(np.float32)


@pytest.fixture(scope="session")
def make():
    """Write a submission folder: ``make(folder, difficulty=..., seed=..., any field of Submission)``."""

    def make(folder, *, difficulty=1.5, seed=0, ratio=0.4, **fields):
        folder.mkdir(parents=True)
        matrix = write_array(folder, "test.npy", similarities(difficulty, seed))
        content = statement({"test": {"form": "matrix", "matrix": matrix}}, ratio)
        content |= {
            "method": "CRCL",
            "code": "",
            "backbone": "VSE-infinity",
            "hours": None,
            "hardware": "CPU",
        }
        write_submission(folder, Submission.model_validate(content | {"training_seeds": (seed,)} | fields))
        return folder

    return make


@pytest.fixture(scope="session")
def put(make, tmp_path_factory):
    """Add a submission, made like ``make``, to a leaderboard: ``put(board, submitter="Ada", seed=1, ...)``."""

    def put(board, submitter="", **fields):
        return add(make(tmp_path_factory.mktemp("put") / "submission", **fields), board, submitter)

    return put


@pytest.fixture(name="whole_board")
def _whole_board():
    return whole_board()


@pytest.fixture(scope="session")
def printed():
    """The rows that papers print, alone."""
    return read_content(Path("/nonexistent"), published=True)


@pytest.fixture(scope="session")
def small_board(make, tmp_path_factory):
    """A leaderboard of two methods, two ratios and two seeds; tests must copy it before they change it."""
    place = tmp_path_factory.mktemp("small_board")
    for number, (method, ratio, difficulty) in enumerate(ROWS):
        for seed in (0, 1):
            folder = place / "submitted" / f"{number}-{seed}"
            make(folder, method=method, ratio=ratio, difficulty=difficulty, seed=seed)
            add(folder, place / "board")
    return place / "board"


@pytest.fixture(scope="session")
def ranked_board(small_board, put, tmp_path_factory):
    """The small leaderboard with a third seed of every row, which gives each a rank."""
    board = Path(shutil.copytree(small_board, tmp_path_factory.mktemp("ranked_board") / "board"))
    for method, ratio, difficulty in ROWS:
        put(board, method=method, ratio=ratio, difficulty=difficulty, seed=2)
    return board


@pytest.fixture
def board(small_board, tmp_path):
    """A copy of the small leaderboard, for one test to change."""
    return Path(shutil.copytree(small_board, tmp_path / "board"))


@pytest.fixture
def first_entry(board):
    """The first cell's YAML file of that copy."""
    return min((board / "results" / "digits").glob("*/*.yaml"))
