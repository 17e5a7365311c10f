"""Ten kills at random moments, for each method: the resumed run ends with the bits of the whole one."""

import random
import signal
import time
from multiprocessing.process import BaseProcess
from pathlib import Path

import pytest
import yaml
from support import forked
from support.few_digits import few_digits_recipe, outcome, run_command

from baselines.methods import METHODS

pytestmark = [pytest.mark.slow, pytest.mark.timeout(1200)]

KILLS = 10


@pytest.mark.parametrize("method", METHODS)
def test_ten_random_kills_change_nothing(method: str, tmp_path: Path) -> None:
    recipe = tmp_path / "recipe.yaml"
    recipe.write_text(yaml.safe_dump(few_digits_recipe(method)))
    whole = tmp_path / "whole"
    start = time.monotonic()
    started(recipe, whole).join()
    longest = (time.monotonic() - start) / 5
    expected = outcome(whole)
    chance, killed, finished = random.Random(method), 0, []
    while killed < KILLS:
        folder = tmp_path / f"broken-{len(finished)}"
        process = started(recipe, folder)
        process.join(chance.uniform(0, longest))
        process.kill()
        process.join()
        if process.exitcode == -signal.SIGKILL:
            killed += 1
        else:
            assert process.exitcode == 0
            finished.append(folder)
    last = tmp_path / f"broken-{len(finished)}"
    started(recipe, last).join()
    print(f"{method}: {killed} kills, {1 + len(finished)} runs, {len(expected)} values compared in each")
    for folder in [*finished, last]:
        assert outcome(folder) == expected


def started(recipe: Path, folder: Path) -> BaseProcess:
    """A process that trains from the start, or goes on where the folder's run stopped."""
    command = ["train", str(recipe), "--noise-ratio", "0.4", "--device", "cpu", "--to", str(folder)]
    process = forked.process(run_command, command)
    process.start()
    return process
