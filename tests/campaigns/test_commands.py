"""Commands that are stopped, that share a place, or whose disk is full: the same command then ends with the same bytes.

``pytest -m slow -s tests/campaigns/test_commands.py`` runs all; ``NCL_KILLS`` sets the number of stops.
"""

import collections
import os
import random
import shutil
import signal
import time
from pathlib import Path

import pytest
from campaigns.commands import COMMANDS, ONCE, World, digest, run, world

from ncl_bench.files import sole_owner

__all__ = ["world"]
SIGNALS = ("SIGKILL", "SIGTERM", "SIGINT")
OUTPUTS = {
    "prepare": ("data/flickr30k", 2_000),
    "prepare digits": ("data/digits", 100_000),
    "features": ("features", 10_000),
    "noise make": ("noise.npy", 20_000),
    "submission init": ("submissions/x", 1_000),
    "train": ("runs/a", 20_000),
    "plot": ("runs/a/plots", 1_000),
    "sweep": ("sweep", 20_000),
    "tune": ("tuning", 20_000),
    "datasets new": ("data/mine", 2_000),
    "audit": ("audited", 2_000),
    "audit apply": ("cleaned", 100),
    "score": ("submissions/a", 100_000),
    "evaluate": ("submissions/a", 2_000),
    "leaderboard add": ("board", 1_000),
    "leaderboard build": ("board", 2_000),
}
"""The place that each command owns, and bytes that are too few for its largest file."""


def stopped(command: str, stop: str, share: float, world: World) -> bool:
    """Stop a command after a share of its time, run it again, and compare; whether the signal met it at work."""
    expected, seconds = world.undisturbed(command)
    folder = world.fresh(command, f"{stop} {share:.4f}")
    first, number = run(folder, command, stop, share * seconds), getattr(signal, stop)
    assert first.code in (0, -number) or (first.code == 128 + number and stop == "SIGINT"), first.output
    assert "Traceback" not in first.output, first.output
    deadline = time.monotonic() + 60
    # a worker may still be ending
    while (again := run(folder, command)).code == 2 and "is in use" in again.output:
        assert time.monotonic() < deadline, "a process outlives its command"
    found = digest(folder)
    assert found == expected, ({name for name, _ in found.items() ^ expected.items()}, again.output)
    refused = again.code == 2 and command in ONCE  # it was done before the signal came
    assert again.code == 0 or refused, again.output
    shutil.rmtree(folder)
    return first.code != 0


def test_a_killed_command_is_finished_by_the_same_command(world: World) -> None:
    stopped("prepare", "SIGKILL", 0.5, world)


@pytest.mark.slow
@pytest.mark.timeout(3600)
def test_stops_at_random_moments(world: World) -> None:
    chance = random.Random(0)
    met, tried = collections.Counter[tuple[str, str]](), collections.Counter[tuple[str, str]]()
    failures = []
    for number in range(int(os.environ.get("NCL_KILLS", "252"))):
        command = list(COMMANDS)[number % len(COMMANDS)]
        stop, share = SIGNALS[number // len(COMMANDS) % len(SIGNALS)], chance.random()
        tried[command, stop] += 1
        try:
            met[command, stop] += stopped(command, stop, share, world)
        except AssertionError as failure:
            failures.append(f"{command}, {stop} at {share:.4f}: {str(failure)[:1500]}")
    for (command, stop), count in sorted(tried.items()):
        print(f"{command:<18}{stop:<9}{count:>4} stops, {met[command, stop]} of them met it at work")
    assert not failures, f"{len(failures)} failures\n" + "\n\n".join(failures)


@pytest.mark.slow
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("command", COMMANDS)
def test_a_clock_that_is_set_back_loses_no_work(command: str, world: World) -> None:
    """Every file that a killed command left or read gets a time in 1970 or in 2106, at random."""
    expected, seconds = world.undisturbed(command)
    folder, chance = world.fresh(command, "clock"), random.Random(command)
    run(folder, command, "SIGKILL", chance.random() * seconds)
    for path in sorted(folder.rglob("*")):
        if path.parent.name != "photos":  # their times are recorded
            os.utime(path, (chance.choice((1, 2**32)),) * 2)
    again = run(folder, command)
    assert again.code == 0 or (again.code == 2 and command in ONCE), again.output
    assert digest(folder) == expected


def refused(folder: Path, command: str, words: str, largest_file: int | None = None) -> None:
    ended = run(folder, command, largest_file=largest_file)
    assert ended.code == 2, ended.output
    assert "Traceback" not in ended.output
    assert ended.output.splitlines()[-1].startswith("ncl-bench: ")
    assert words in ended.output.splitlines()[-1], ended.output


@pytest.mark.parametrize(
    "command",
    [name if name == "prepare" else pytest.param(name, marks=pytest.mark.slow) for name in COMMANDS],
)
def test_a_full_disk_and_a_place_in_use_are_said_and_the_same_command_finishes_later(
    command: str, world: World
) -> None:
    (output, too_few), folder = OUTPUTS[command], world.fresh(command, "refused")
    with sole_owner(folder / output):
        before = digest(folder)
        refused(folder, command, "is in use by another ncl-bench process")
        assert digest(folder) == before
    refused(folder, command, "cannot write ", too_few)
    ended = run(folder, command)
    assert ended.code == 0, ended.output
    assert digest(folder) == world.undisturbed(command)[0]
