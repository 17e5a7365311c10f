"""The wheel, installed without torch into an empty environment, away from the source tree."""

import json
import os
import subprocess
import sys
import venv
import zipfile
from collections.abc import Callable
from pathlib import Path

import pytest

from ncl_bench import __version__

ROOT = Path(__file__).parent.parent
pytestmark = [pytest.mark.slow, pytest.mark.timeout(900)]

MOST_PACKAGES, MOST_MEGABYTES = 20, 300
"""Packages of the base install, ncl-bench among them, and what they take on the disk."""
Run = Callable[..., subprocess.CompletedProcess[str]]


@pytest.fixture(scope="module")
def wheel(tmp_path_factory):
    folder = tmp_path_factory.mktemp("wheel")
    pip = [sys.executable, "-m", "pip", "wheel", "--quiet", "--no-deps", "--wheel-dir", folder, ROOT]
    subprocess.run(pip, check=True)
    return next(folder.glob("*.whl"))


@pytest.fixture(scope="module")
def environment(wheel, tmp_path_factory):
    folder = tmp_path_factory.mktemp("environment")
    venv.create(folder, with_pip=True)
    constraints = ("--constraint", str(ROOT / "constraints.txt"))
    subprocess.run(
        [folder / "bin" / "pip", "install", "--quiet", *constraints, f"{wheel}[data,leaderboard]"], check=True
    )
    return folder


@pytest.fixture
def run(environment, tmp_path):
    """Run a program of the environment in an empty folder."""
    kept = ("HOME", "LANG", "TMPDIR")
    variables = {name: os.environ[name] for name in kept if name in os.environ}
    variables["PATH"] = f"{environment / 'bin'}{os.pathsep}/usr/bin:/bin"

    def start(*command):
        program, *arguments = command
        place = environment / "bin" / program
        return subprocess.run(
            [place, *arguments], cwd=tmp_path, env=variables, capture_output=True, text=True
        )

    return start


def test_the_base_install_is_small_and_evaluates_a_matrix(wheel, tmp_path):
    """What ``pip install .`` takes: evaluate, compare and load_dataset; the rest says what to install."""
    venv.create(tmp_path / "base", with_pip=True)
    programs, (packages,) = tmp_path / "base" / "bin", (tmp_path / "base").glob("lib/python*/site-packages")

    def started(program, *arguments):
        done = subprocess.run(
            [programs / program, *arguments], cwd=tmp_path, capture_output=True, text=True, check=False
        )
        return done.stdout + done.stderr

    def installed():
        return {one["name"] for one in json.loads(started("pip", "list", "--format", "json"))}

    def megabytes():
        return sum(path.stat().st_size for path in packages.rglob("*") if path.is_file()) / 1e6

    constraints = ("--constraint", str(ROOT / "constraints.txt"))
    before, empty = installed(), megabytes()
    subprocess.run([programs / "pip", "install", "--quiet", *constraints, wheel], check=True)
    brought, size = installed() - before, megabytes() - empty
    print(f"the base install: {len(brought)} packages, {size:.0f} MB")
    assert len(brought) <= MOST_PACKAGES, sorted(brought)
    assert size <= MOST_MEGABYTES
    code = "import numpy as np; np.save('scores.npy', np.eye(1000).repeat(5, axis=1))"
    started("python", "-c", code)
    assert " 600.0" in started("ncl-bench", "evaluate", "scores.npy", "--dataset", "flickr30k")
    assert "10000" in started(
        "python", "-c", "import ncl_bench; print(len(ncl_bench.load_dataset('digits')))"
    )
    assert "ncl-bench is usable" in started("ncl-bench", "doctor")
    table = ("leaderboard", "table", "--dataset", "flickr30k", "--noise", "caption-40")
    assert "| CRCL-SGRAF |" in started("ncl-bench", *table)
    measured = ("leaderboard", "table", "--dataset", "digits")
    assert "40 % caption noise" in started("ncl-bench", *measured), (
        "the numbers travel, their evidence does not"
    )
    (tmp_path / "captions.csv").write_text("image,caption\na.png,a dog\n")
    own = "datasets new pets --captions captions.csv --features photos --to data"
    for extra, command in (
        ("data", "prepare digits --to data"),
        ("data", own),
        ("data", " ".join(table) + " --json"),
        ("features", "datasets new pets captions.csv --images photos --to data"),
        ("audit", "audit captions.csv --images photos --to audit"),
        ("baselines", "train ncr/digits_vse_infinity --to run"),
        ("baselines", "hub push run ada/ncr"),
        ("leaderboard", "leaderboard build --root board"),
    ):
        said = started("ncl-bench", *command.split())
        assert said.count("\n") == 1, said
        assert said.endswith(f"install with: pip install '{wheel}[{extra}]'\n"), said


def test_the_wheel_holds_what_is_needed_and_no_generated_site(wheel):
    with zipfile.ZipFile(wheel) as archive:
        names = set(archive.namelist())
    needed = [
        *ROOT.glob("baselines/recipes/*.yaml"),
        *ROOT.glob("dataset_cards/*.*"),
        *ROOT.glob("ncl_bench/data/pictograms/*.*"),
        *ROOT.glob("leaderboard/templates/*"),
        *ROOT.glob("leaderboard/static/*"),
        *ROOT.glob("ncl_bench/papers/published/*"),
        *ROOT.glob("ncl_bench/**/*.j2"),
        *ROOT.glob("ncl_bench/**/*.npz"),
        ROOT / "ncl_bench" / "papers" / "methods.yaml",
        ROOT / "leaderboard" / "results.jsonl",
    ]
    for sheet in ("train", "web"):  # a clone's, for their size
        needed.remove(ROOT / "ncl_bench" / "data" / "pictograms" / f"thumbnails_{sheet}.webp")
    assert len(needed) > 30
    assert {str(path.relative_to(ROOT)) for path in needed} <= names
    assert not [
        name
        for name in names
        if name.startswith(("leaderboard/site/", "leaderboard/results/", "tests/", "tools/"))
    ]
    assert wheel.stat().st_size < 15_000_000


def test_the_command_line_and_the_doctor_work_without_torch(run, wheel):
    assert run("ncl-bench", "--version").stdout == f"ncl-bench {__version__}\n"
    doctor = run("ncl-bench", "doctor", "--json")
    assert doctor.returncode == 0, doctor.stdout + doctor.stderr
    found = {one["name"]: one for one in json.loads(doctor.stdout)}
    assert found["torch"]["state"] == "absent"
    assert found["torch"]["fix"] == f"pip install '{wheel}[baselines]'"
    assert found["digits"]["state"] == "ok"


def test_data_evaluation_and_leaderboard_work_without_torch(run, environment, tmp_path):
    code = (
        "import sys, numpy as np, ncl_bench\n"
        "train = ncl_bench.load_dataset('digits', noise_ratio=0.4)\n"
        "assert 'site-packages' in ncl_bench.__file__ and len(train) == 10_000 and 'torch' not in sys.modules\n"
        "ncl_bench.write_scores('mine/test.npy', np.random.default_rng(0).random((200, 1000)))\n"
    )
    perfect = "import numpy; numpy.save('scores.npy', numpy.eye(1000).repeat(5, axis=1))"
    assert_works(run("python", "-c", perfect))
    own = run("ncl-bench", "evaluate", "scores.npy", "--dataset", "flickr30k")
    assert_works(own)
    assert " 600.0" in own.stdout, "nothing but the installation and the matrix is needed"
    before = files_of(environment)
    assert_works(run("python", "-c", code))
    assert_works(run("ncl-bench", "prepare", "digits", "--to", "data"))
    assert_works(
        run("ncl-bench", *["submission", "init", "--method", "X", "--dataset", "digits", "--to", "mine"])
    )
    statement = tmp_path / "mine" / "submission.yaml"
    statement.write_text(statement.read_text().replace(": FILL-IN", ": a laptop"))
    assert_works(run("ncl-bench", "evaluate", "mine", "--plot", "--examples", "2"))
    printed = run("ncl-bench", "leaderboard", "table", "--dataset", "flickr30k", "--noise", "caption-40")
    assert_works(printed)
    assert "| CRCL-SGRAF |" in printed.stdout
    refused = run("ncl-bench", "leaderboard", "add", "mine")
    assert refused.returncode == 2
    assert "name a leaderboard folder as --root" in refused.stderr
    assert_works(run("ncl-bench", "leaderboard", "add", "mine", "--root", "board"))
    assert_works(run("ncl-bench", "leaderboard", "build", "--root", "board"))
    assert (tmp_path / "site" / "index.html").is_file()
    assert len(list((tmp_path / "board" / "results" / "digits" / "x").glob("*.yaml"))) == 1
    assert files_of(environment) == before


@pytest.mark.parametrize(
    "command",
    [
        "train ncr/digits_vse_infinity --to run",
        "score run --to scored",
        "plot run",
        "quickstart",
        "doctor --gpu",
    ],
)
def test_what_needs_torch_says_what_to_install(run, wheel, tmp_path, command):
    result = run("ncl-bench", *command.split())
    assert result.returncode == 2
    assert result.stderr.strip().endswith(f"pip install '{wheel}[baselines]'")
    assert list(tmp_path.iterdir()) == []


def files_of(environment):
    return {path for path in environment.rglob("*") if path.suffix != ".pyc" and path.name != "__pycache__"}


def assert_works(result):
    assert result.returncode == 0, result.stdout + result.stderr
