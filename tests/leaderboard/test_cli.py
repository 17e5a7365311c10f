import html
import re
import shlex
import subprocess
import sys
from pathlib import Path

from support.command import invoke
from support.refusals import refused

from leaderboard import cli
from leaderboard.build import build as build_site
from ncl_bench.errors import SubmissionError

CLI = (sys.executable, "-m", "ncl_bench")


def run(*arguments):
    return subprocess.run([*CLI, "leaderboard", *arguments], capture_output=True, text=True, check=False)


def test_build_and_check_a_folder(small_board, tmp_path):
    options = ("--root", str(small_board), "--no-published")
    done = run("build", *options, "--to", str(tmp_path / "site"))
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.startswith("4 rows in ")
    assert (tmp_path / "site" / "index.html").is_file()
    checked = run("build", *options, "--check")
    assert (checked.returncode, checked.stdout) == (0, "4 rows\n")  # no tables, so none is out of date


def test_the_submit_page_shows_commands_that_work(tmp_path):
    build_site(tmp_path / "board", tmp_path / "site", published=False)
    page = html.unescape((tmp_path / "site" / "submit.html").read_text("utf-8"))
    blocks = re.findall(r"<pre[^>]*><code>(.*?)</code></pre>", page, re.S)
    commands = [line for block in blocks for line in block.splitlines() if line]
    init, *checks, build = (shlex.split(line)[1:] for line in commands)
    assert (init[:2], build) == (["submission", "init"], ["leaderboard", "build"])  # which needs no argument
    done = subprocess.run([*CLI, *init], capture_output=True, text=True, cwd=tmp_path, check=False)
    assert (done.returncode, done.stderr) == (0, "")
    for command in checks:
        done = subprocess.run([*CLI, *command], capture_output=True, text=True, cwd=tmp_path, check=False)
        assert (done.returncode, "FILL-IN still stands for" in done.stderr) == (2, True), done.stderr


def test_outside_a_checkout_the_way_to_do_it_is_said(tmp_path, monkeypatch):
    """``build`` wrote a site of printed rows alone, and ``add`` made a folder that belongs to no leaderboard."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(cli, "ROOT", Path("leaderboard"))
    with refused(SubmissionError):
        cli.build(root=cli.ROOT)
    with refused(SubmissionError):
        cli.add([tmp_path], root=cli.ROOT)
    (tmp_path / "root/results").mkdir(parents=True)
    for base, root in (("none", "root"), ("root", "none")):
        with refused():
            invoke("leaderboard", "diff", base, "--root", root)
    assert [path.name for path in tmp_path.iterdir()] == ["root"]
