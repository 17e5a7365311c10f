"""Full disks, places that cannot be written, and two processes in one folder."""

import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from campaigns.faults.conftest import Run
from campaigns.faults.world import COMMANDS, REFUSED_TWICE, World, digest

from ncl_bench.errors import NclBenchError
from ncl_bench.files import sole_owner

QUICK = ("prepare", "noise make")
WRITERS = [name if name in QUICK else pytest.param(name, marks=pytest.mark.slow) for name in COMMANDS]
OUTPUTS = {
    "prepare": "data/flickr30k",
    "prepare digits": "data/digits",
    "noise make": "noise.npy",
    "submission init": "submissions/x",
    "train": "runs/a",
    "plot": "runs/a/plots",
    "sweep": "sweep",
    "score": "submissions/a",
    "evaluate": "submissions/a",
    "leaderboard add": "board",
    "leaderboard build": "board",
}
"""The place that each command owns."""
ROOMS_NEEDED = {
    "prepare": 2_000,
    "prepare digits": 100_000,
    "noise make": 20_000,
    "submission init": 1_000,
    "train": 20_000,
    "plot": 1_000,
    "sweep": 20_000,
    "score": 100_000,
    "evaluate": 2_000,
    "leaderboard add": 1_000,
    "leaderboard build": 2_000,
}
"""Bytes that are too few for the largest file of each command."""


def refused(run: Run, folder: Path, command: str, words: str, **options: object) -> None:
    ended = run(folder, list(COMMANDS[command].arguments), **options)
    assert ended.code == 2, ended.output
    assert "Traceback" not in ended.output
    assert words in ended.output.splitlines()[-1], ended.output
    assert ended.output.splitlines()[-1].startswith("ncl-bench: ")


def finishes(run: Run, world: World, folder: Path, command: str) -> None:
    ended = run(folder, list(COMMANDS[command].arguments))
    assert ended.code == 0, ended.output
    assert digest(folder) == world.undisturbed(command)[0]


@pytest.mark.parametrize("command", WRITERS)
def test_a_full_disk_is_said_and_the_same_command_finishes_later(
    command: str, world: World, run: Run
) -> None:
    folder = world.fresh(command, f"{command} full")
    refused(run, folder, command, "File too large", largest_file=ROOMS_NEEDED[command])
    finishes(run, world, folder, command)


@pytest.fixture
def tiny_disk(tmp_path: Path) -> Iterator[Path]:
    """A file system of 256 kB."""
    place = tmp_path / "disk"
    place.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", "size=256k", "tmpfs", str(place)]
    if os.getuid() or subprocess.run(mount, capture_output=True).returncode:
        pytest.skip("this user may mount no file system")
    yield place
    subprocess.run(["umount", str(place)], check=True)


@pytest.mark.parametrize(
    ("command", "words"),
    [
        pytest.param("prepare digits", "GB free, digits as float32 needs", marks=pytest.mark.slow),
        pytest.param("train", "No space left on device", marks=pytest.mark.slow),
        pytest.param("score", "No space left on device", marks=pytest.mark.slow),
    ],
)
def test_a_disk_that_fills_up_is_said(
    command: str, words: str, world: World, run: Run, tiny_disk: Path
) -> None:
    folder = world.fresh(command, f"{command} tiny")
    place = folder / OUTPUTS[command].split("/")[0]
    if place.exists():
        shutil.rmtree(place)
    place.symlink_to(tiny_disk)
    refused(run, folder, command, words)


@pytest.mark.parametrize("command", WRITERS)
def test_of_two_processes_one_owns_the_place_and_the_other_says_so(
    command: str, world: World, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = world.fresh(command, f"{command} two")
    (folder / "tmp").mkdir(exist_ok=True)
    monkeypatch.setattr("tempfile.tempdir", str(folder / "tmp"))
    with sole_owner(folder / OUTPUTS[command]):
        before = digest(folder)
        refused(run, folder, command, "is in use by another ncl-bench process")
        assert digest(folder) == before
    finishes(run, world, folder, command)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("command", "rounds"), [("noise make", 5), ("submission init", 1), ("plot", 1), ("sweep", 1)]
)
def test_two_that_start_at_once_leave_what_one_leaves(command: str, rounds: int, world: World) -> None:
    for number in range(rounds):
        folder = world.fresh(command, f"{command} at once {number}")
        (folder / "tmp").mkdir(exist_ok=True)
        both = [
            subprocess.Popen(
                [sys.executable, "-m", "ncl_bench", *COMMANDS[command].arguments],
                cwd=folder,
                env=os.environ | {"TMPDIR": str(world.place)},
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                text=True,
            )
            for _ in range(2)
        ]
        outputs = [process.communicate()[0] for process in both]
        codes = [process.returncode for process in both]
        assert 0 in codes, outputs
        assert 2 in codes or command not in REFUSED_TWICE, outputs
        for output, code in zip(outputs, codes, strict=True):
            assert code == 0 or (code, output.count("\n")) == (2, 1), output
            assert code == 0 or output.startswith("ncl-bench: "), output
        assert digest(folder) == world.undisturbed(command)[0]


def test_a_lock_file_that_cannot_be_had_is_said(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with (
        pytest.raises(
            NclBenchError, match=r"cannot write .* no file can be made beside it .* choose another place"
        ),
        sole_owner(tmp_path / "file" / "folder"),
    ):
        pass


def test_a_read_only_place_is_said(tmp_path: Path) -> None:
    """On a file system that nobody may write, root included."""
    command = [sys.executable, "-m", "ncl_bench", "noise", "make", "digits", "--ratio", "0.4", "--to"]
    done = subprocess.run([*command, "/proc/noise.npy"], capture_output=True, text=True)
    assert done.returncode == 2
    assert done.stderr.startswith("ncl-bench: cannot write /proc/noise.npy")
    assert done.stderr.count("\n") == 1


def test_what_a_killed_process_left_is_removed_and_what_a_living_one_writes_stays(tmp_path: Path) -> None:
    dead = subprocess.Popen([sys.executable, "-c", ""])
    dead.wait()
    for owner in (dead.pid, os.getpid()):
        (tmp_path / f".result[1].json.{owner}.tmp").write_text("half")
    with sole_owner(tmp_path):
        assert [path.name for path in tmp_path.iterdir()] == [f".result[1].json.{os.getpid()}.tmp"]
    shutil.rmtree(tmp_path)
