"""The workflow of a pull request: its own commands, in repositories with a base and a change."""

import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml

from leaderboard.add import add
from leaderboard.build import build
from ncl_bench.papers import PUBLISHED

Maker = Callable[..., Path]
WORKFLOWS = Path(__file__).parents[2] / ".github" / "workflows"
GIT = ("git", "-c", "user.name=Ada", "-c", "user.email=ada@example.org")
pytestmark = pytest.mark.skipif(
    sys.platform == "win32" or not shutil.which("git"), reason="the workflow runs on Linux"
)


def job(name: str) -> dict[str, Any]:
    found: dict[str, Any] = yaml.safe_load((WORKFLOWS / "leaderboard.yml").read_text(encoding="utf-8"))[
        "jobs"
    ][name]
    return found


def commands(step: str) -> str:
    (text,) = (one["run"] for one in job("check")["steps"] if one.get("name", "").startswith(step))
    return str(text)


class PullRequest:
    """A checkout of the merge in ``change`` and of the base in ``base``, as the workflow has them."""

    def __init__(self, place: Path, board: Path) -> None:
        self.place, self.change = place, place / "change"
        self.root = Path(shutil.copytree(board, self.change / "leaderboard"))
        published = Path(shutil.copytree(PUBLISHED, self.root / "published"))
        (published / "results.csv").write_text(
            "".join((PUBLISHED / "results.csv").read_text("utf-8").splitlines(keepends=True)[:3]), "utf-8"
        )
        (published / "notes.yaml").write_text("rules: []\n", "utf-8")
        (self.root / "board.py").write_text("# code of the base\n", "utf-8")
        build(self.root, place / "built", tables=True)
        self.git("init", "-q")
        self.commit("base")
        self.git("worktree", "add", "-q", "../base", "HEAD")

    def git(self, *arguments: str) -> None:
        subprocess.run([*GIT, "-C", self.change, *arguments], check=True, capture_output=True)

    def commit(self, title: str) -> None:
        self.git("add", "-A")
        self.git("commit", "-qm", title)

    def build_by_its_own_code(self, old: str = "", new: str = "") -> None:
        """Write the site of the change; its code replaces ``old`` by ``new`` in the table of all rows."""
        its_own = Path(shutil.copytree(self.root, self.place / "its_own"))
        build(its_own, self.place / "site", tables=True)
        shutil.copy(its_own / "README.md", self.place / "site")
        path = self.place / "site" / "data" / "leaderboard.csv"
        text = path.read_text("utf-8")
        assert old in text
        path.write_text(text.replace(old, new), "utf-8")

    def check(self, *, correction: bool = False, author: str = "mallory") -> subprocess.CompletedProcess[str]:
        path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
        return subprocess.run(
            ["bash", "-e", "-o", "pipefail", "-c", commands("Only what is new")],
            cwd=self.place,
            env={**os.environ, "PATH": path, "CORRECTION": str(correction).lower(), "AUTHOR": author},
            capture_output=True,
            text=True,
            check=False,
        )

    @property
    def moved(self) -> str:
        return (self.place / "moved.md").read_text("utf-8")


@pytest.fixture
def pull_request(small_board: Path, tmp_path: Path) -> PullRequest:
    return PullRequest(tmp_path, small_board)


def test_a_new_result_passes_and_is_described(pull_request: PullRequest, make: Maker, tmp_path: Path) -> None:
    add(make(tmp_path / "new", method="Mine", difficulty=1.2), pull_request.root, submitter="Bo (@bo)")
    pull_request.commit("a result")
    pull_request.build_by_its_own_code()
    done = pull_request.check(author="bo")
    assert (done.returncode, done.stderr) == (0, "")
    assert "### New seeds (1)\n\n- `digits/mine/" in pull_request.moved
    assert "### New rows (1)\n\n- Mine" in pull_request.moved


def test_code_that_adds_five_points_fails_without_the_label(pull_request: PullRequest) -> None:
    """Both boards were computed by the code of the base, and "No row of the leaderboard moved"."""
    (pull_request.root / "board.py").write_text("# five points more\n", "utf-8")
    pull_request.commit("cleaner ranks")
    pull_request.build_by_its_own_code(",CRCL,", ",CRCL5,")
    done = pull_request.check()
    assert done.returncode == 2
    assert "the code of the change (leaderboard/board.py) moves 2 rows" in done.stderr
    assert pull_request.check(correction=True).returncode == 0
    assert "Rows moved, and the change touches code: `leaderboard/board.py`." in pull_request.moved
    assert pull_request.moved.count("method CRCL → CRCL5") == 2
