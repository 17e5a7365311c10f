"""Every command that writes, stopped at random moments: the same command then ends with the same bytes.

The long campaign: ``pytest -m slow -s tests/campaigns/faults/test_interruptions.py``; ``NCL_KILLS`` sets how many
stops in all.
"""

import collections
import os
import random
import shutil
import signal

import pytest
from campaigns.faults.conftest import Run
from campaigns.faults.world import COMMANDS, REFUSED_TWICE, World, digest

from ncl_bench.cli.interruption import GOES_ON

SIGNALS = ("SIGKILL", "SIGTERM", "SIGINT")


def stopped(command: str, stop: str, share: float, world: World, run: Run) -> bool:
    """Stop a command after a share of its time, run it again, and compare; whether the signal met it at work."""
    expected, seconds = world.undisturbed(command)
    folder = world.fresh(command, f"{command} {stop} {share:.4f}")
    arguments = list(COMMANDS[command].arguments)
    first = run(folder, arguments, stop=stop, delay=share * seconds)
    number = getattr(signal, stop)
    assert first.code in (0, -number) or (first.code == 128 + number and stop != "SIGKILL"), first.output
    assert not first.survivors, "it leaves a process behind"
    assert "Traceback" not in first.output, first.output
    if first.code > 0:
        how = "goes on from here" if command.split()[0] in GOES_ON else "starts over"
        assert first.output.rstrip().endswith(f"the same command {how}"), first.output
    again = run(folder, arguments)
    found = digest(folder)
    assert found == expected, ({name for name, _ in found.items() ^ expected.items()}, again.output)
    refused = again.code == 2 and command in REFUSED_TWICE  # it was done before the signal came
    assert again.code == 0 or refused, again.output
    shutil.rmtree(folder)
    return first.code != 0


@pytest.mark.parametrize(
    ("command", "stop", "share"),
    [("prepare", "SIGKILL", 0.5), ("prepare", "SIGINT", 0.7), ("prepare", "SIGTERM", 0.9)],
)
def test_a_stopped_command_is_finished_by_the_same_command(
    command: str, stop: str, share: float, world: World, run: Run
) -> None:
    stopped(command, stop, share, world, run)


@pytest.mark.slow
@pytest.mark.timeout(3600)
def test_stops_at_random_moments(world: World, run: Run) -> None:
    chance = random.Random(0)
    met: collections.Counter[tuple[str, str]] = collections.Counter()
    tried: collections.Counter[tuple[str, str]] = collections.Counter()
    failures = []
    for number in range(int(os.environ.get("NCL_KILLS", "231"))):
        command, stop = (
            list(COMMANDS)[number % len(COMMANDS)],
            SIGNALS[number // len(COMMANDS) % len(SIGNALS)],
        )
        share = chance.random()
        tried[command, stop] += 1
        try:
            met[command, stop] += stopped(command, stop, share, world, run)
        except AssertionError as failure:
            failures.append(f"{command}, {stop} at {share:.4f}: {str(failure)[:1500]}")
    for (command, stop), count in sorted(tried.items()):
        print(f"{command:<18}{stop:<9}{count:>4} stops, {met[command, stop]} of them met it at work")
    assert not failures, f"{len(failures)} failures\n" + "\n\n".join(failures)
