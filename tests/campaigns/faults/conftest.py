"""The process that runs commands, and the folders in which they run."""

import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from campaigns.faults.warm import TESTS, Ended
from campaigns.faults.world import World

Run = Callable[..., Ended]


@pytest.fixture(scope="session")
def run() -> Iterator[Run]:
    """Run command lines in children of a process that has imported everything."""
    environment = os.environ | {
        "OMP_NUM_THREADS": "1",
        "PYTHONPATH": f"{TESTS}:{TESTS.parent}",
        "NO_COLOR": "1",
    }
    server = subprocess.Popen(
        [sys.executable, str(TESTS / "campaigns" / "faults" / "warm.py")],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        env=environment,
    )
    assert server.stdin is not None
    assert server.stdout is not None
    assert server.stdout.readline() == "ready\n"

    def ask(folder: Path, arguments: list[str], **options: object) -> Ended:
        request = {"folder": str(folder), "arguments": arguments, **options}
        print(json.dumps(request), file=server.stdin, flush=True)
        return Ended(**json.loads(server.stdout.readline()))

    yield ask
    server.terminate()
    server.wait()


@pytest.fixture(scope="session")
def world(run: Run, tmp_path_factory: pytest.TempPathFactory) -> World:
    """Folders with everything that a command needs."""
    return World(tmp_path_factory.mktemp("world"), run)
