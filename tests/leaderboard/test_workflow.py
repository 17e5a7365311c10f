"""The workflow of a pull request: its own commands, in repositories with a base and a change."""

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

from leaderboard.build import build
from ncl_bench.papers import PUBLISHED

WORKFLOWS = Path(__file__).parents[2] / ".github" / "workflows"
GIT = ("git", "-c", "user.name=Ada", "-c", "user.email=ada@example.org")
pytestmark = pytest.mark.skipif(
    sys.platform == "win32" or not shutil.which("git"), reason="the workflow runs on Linux"
)


def job(name):
    return yaml.safe_load((WORKFLOWS / "leaderboard.yml").read_text("utf-8"))["jobs"][name]


def commands(step):
    (text,) = (one["run"] for one in job("check")["steps"] if one.get("name", "").startswith(step))
    return str(text)


class PullRequest:
    """A checkout of the merge in ``change`` and of the base in ``base``, as the workflow has them."""

    def __init__(self, place, board):
        self.place, self.change = place, place / "change"
        self.root = Path(shutil.copytree(board, self.change / "leaderboard"))
        published = Path(shutil.copytree(PUBLISHED, self.change / "ncl_bench" / "papers" / "published"))
        (published / "results.csv").write_text(
            "".join((PUBLISHED / "results.csv").read_text("utf-8").splitlines(keepends=True)[:3]), "utf-8"
        )
        (published / "notes.yaml").write_text("rules: []\n", "utf-8")
        (self.root / "board.py").write_text("# code of the base\n", "utf-8")
        build(self.root, place / "built", tables=True)
        self.git("init", "-q")
        self.commit("base")
        self.git("worktree", "add", "-q", "../base", "HEAD")

    def git(self, *arguments):
        subprocess.run([*GIT, "-C", self.change, *arguments], check=True, capture_output=True)

    def commit(self, title):
        self.git("add", "-A")
        self.git("commit", "-qm", title)

    def build_by_its_own_code(self, old="", new=""):
        """Write the site of the change; its code replaces ``old`` by ``new`` in the table of all rows."""
        its_own = Path(shutil.copytree(self.change, self.place / "its_own")) / "leaderboard"
        build(its_own, self.place / "site", tables=True)
        shutil.copy(its_own / "README.md", self.place / "site")
        path = self.place / "site" / "data" / "leaderboard.csv"
        text = path.read_text("utf-8")
        assert old in text
        path.write_text(text.replace(old, new), "utf-8")

    def check(self, step="Only what is new", *, correction=False, author="mallory"):
        path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
        return subprocess.run(
            ["bash", "-e", "-o", "pipefail", "-c", commands(step)],
            cwd=self.place,
            env={**os.environ, "PATH": path, "CORRECTION": str(correction).lower(), "AUTHOR": author},
            capture_output=True,
            text=True,
            check=False,
        )

    @property
    def moved(self):
        return (self.place / "moved.md").read_text("utf-8")


@pytest.fixture
def pull_request(small_board, tmp_path):
    return PullRequest(tmp_path, small_board)


def test_a_new_result_passes_and_is_described(pull_request, put):
    put(pull_request.root, method="Mine", difficulty=1.2, submitter="Bo (@bo)")
    pull_request.commit("a result")
    pull_request.build_by_its_own_code()
    done = pull_request.check(author="bo")
    assert (done.returncode, "ncl-bench: " in done.stderr) == (0, False), done.stderr
    assert "### New seeds (1)\n\n- `digits/mine/" in pull_request.moved
    assert "### New rows (1)\n\n- Mine" in pull_request.moved


def test_code_that_adds_five_points_fails_without_the_label(pull_request):
    """Both boards were computed by the code of the base, and "No row of the leaderboard moved"."""
    (pull_request.root / "board.py").write_text("# five points more\n", "utf-8")
    pull_request.commit("cleaner ranks")
    pull_request.build_by_its_own_code(",CRCL,", ",CRCL5,")
    assert pull_request.check("Standing data").returncode == 0
    done = pull_request.check()
    assert done.returncode == 2
    assert "2 standing rows move, such as" in done.stderr
    assert pull_request.check(correction=True).returncode == 0
    assert pull_request.moved.count("method CRCL → CRCL5") == 2


PRINTED = "ncl_bench/papers/published"


@pytest.mark.parametrize(
    ("path", "old", "new", "refused"),
    [
        (
            "leaderboard/results/*/crcl/*caption-40*.yaml",
            "hardware: CPU",
            "hardware: abacus",
            "tables change",
        ),
        ("leaderboard/results/*/crcl/*caption-40*.yaml", "$", "# more\n", "tables change"),
        ("leaderboard/results/*/crcl/*caption-40*.npz", None, "", "tables change"),
        ("leaderboard/results/*/crcl/*caption-40*.npz", None, "0", "tables change"),
        (f"{PRINTED}/results.csv", "67.4,90.3", "67.5,90.3", "tables change"),
        (f"{PRINTED}/detection.csv", ".*GSC, both.*\n", "", "tables change"),
        (f"{PRINTED}/sources.yaml", None, "", "tables change"),
        (f"{PRINTED}/results.csv", r"\Z", "ncr2021,Table 9,SCAN,SCAN,flickr30k,1k,none,0,,67,,,,,,\n", ""),
        ("leaderboard/README.md", r"\| CRCL", "| GSC", "tables change"),
        ("leaderboard/README.md", r"\A", "More.\n", ""),
        ("leaderboard/results.jsonl", r"\Z", "a", "tables change"),
        ("leaderboard/board.py", "code", "other code", ""),
        ("docs/new.md", None, "/etc/passwd", "links"),
    ],
)
def test_git_says_what_a_change_may_not_touch(pull_request, path, old, new, refused):
    """The paths are those of files that stand; without ``old`` a file is written, removed, or becomes a link."""
    files = list(pull_request.change.glob(path)) or [pull_request.change / path]
    for file in files:
        file.parent.mkdir(exist_ok=True)
        if old is not None:
            text = file.read_text("utf-8")
            changed = re.sub(old, new, text, count=1, flags=re.M)
            assert changed != text
            file.write_text(changed, "utf-8")
        elif new.startswith("/"):
            file.symlink_to(new)
        elif new:
            file.write_text(new, "utf-8")
        else:
            file.unlink()
    pull_request.commit("a change")
    done = pull_request.check("Standing data")
    assert (done.returncode, refused in done.stdout) == (int(bool(refused)), True), done.stderr


@pytest.mark.parametrize(
    ("other", "status"), [("Makefile", 1), ("docs/faq.md", 0), ("leaderboard/board.py", 1)]
)
def test_data_and_code_come_in_two_changes(pull_request, put, other, status):
    """A change of both was judged by its own code."""
    put(pull_request.root, method="Mine", difficulty=1.2, submitter="Bo (@bo)")
    path = pull_request.change / other
    path.parent.mkdir(exist_ok=True)
    path.write_text("# another\n", "utf-8")
    pull_request.commit("both")
    done = pull_request.check("Standing data")
    assert (done.returncode, "data and code need two" in done.stdout) == (status, bool(status)), done.stderr
