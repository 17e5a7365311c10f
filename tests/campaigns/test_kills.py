"""Ten kills at random moments, for each method: the resumed run ends with the bits of the whole one."""

import random
import signal
import time
from multiprocessing import get_context
from multiprocessing.process import BaseProcess
from pathlib import Path

import pytest
import yaml
from support.few_digits import TINY, outcome, run_command

from baselines.methods import METHODS

pytestmark = [pytest.mark.slow, pytest.mark.timeout(1200)]

KILLS = 10
PHASES = {"warmup_epochs": 2, "learning_rate": 0.001}
CONSTANTS = {
    "crcl": {"rounds": [4, 4, 4], "freeze_epochs": 2},
    "gsc": {"epochs": 12},
    "gsc_plus": {"epochs": 8},
    "info_nce": {"epochs": 12},
    "ncr": PHASES | {"epochs": 6},
    "pc2": PHASES | {"epochs": 6, "noisy_from_epoch": 2, "classes": 8},
    "rcl": {"epochs": 12, "negative_ratio": 0.5},
    "triplet": {"epochs": 12, "warmup_epochs": 2},
}

processes = get_context("forkserver")
processes.set_forkserver_preload(["support.few_digits"])


@pytest.mark.parametrize("method", METHODS)
def test_ten_random_kills_change_nothing(method: str, tmp_path: Path) -> None:
    recipe = tmp_path / "recipe.yaml"
    constants = {"name": method, **CONSTANTS[method]}
    recipe.write_text(
        yaml.safe_dump({"dataset": "digits", "batch_size": 100, "backbone": TINY, "method": constants})
    )
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
    process = processes.Process(target=run_command, args=(command,))
    process.start()
    return process
