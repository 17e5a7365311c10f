"""Two machines tune with one study in PostgreSQL: a worker is killed, and the server goes away and comes back."""

import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from glob import glob
from pathlib import Path

import optuna
import pytest
import yaml
from optuna.trial import TrialState
from support.few_digits import TINY

PROGRAMS = [*glob("/usr/lib/postgresql/*/bin"), *os.environ["PATH"].split(":")]
INITDB = shutil.which("initdb", path=":".join(PROGRAMS))
TRIALS = 3
CONTENT = {
    "dataset": "digits",
    "batch_size": 500,
    "steps": 40,
    "backbone": TINY,
    "method": {"name": "info_nce", "epochs": 4},
    "search": {"method.temperature": {"choice": [0.05, 0.1, 0.2]}},
}
PROGRAM = """
import sys, baselines.engine.tune as tune
from pathlib import Path
from baselines.engine.tables import Tuning
train = tune.Trainer._epoch

def counted(trainer, index, *rest):
    train(trainer, index, *rest)
    with Path(sys.argv[2], "epochs").open("a") as stream:
        print(trainer.folder.path.name, index, file=stream)

tune.Trainer._epoch = counted
if __name__ == "__main__":
    tune.HEARTBEAT = 2
    url = sys.argv[3] if len(sys.argv) > 3 else None
    search = tune.Search(sys.argv[1], Path(sys.argv[2]), Tuning(trials={trials}), url=url, device="cpu")
    print(tune.tune(search))
"""

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(INITDB is None, reason="needs the programs of PostgreSQL's server"),
]


class Server:
    """A server of this test alone, which refuses to run as root.

    Args:
        folder: for its data, open to everyone.
    """

    def __init__(self, folder: Path) -> None:
        assert INITDB is not None
        self.data, self.bin = folder / "data", Path(INITDB).parent
        with socket.socket() as taken:
            taken.bind(("127.0.0.1", 0))
            self.port = taken.getsockname()[1]
        self.url = f"postgresql+psycopg://postgres@127.0.0.1:{self.port}/postgres"
        self.run("initdb", "-D", str(self.data), "-U", "postgres", "-A", "trust", "--no-sync")

    def run(self, program: str, *arguments: str) -> None:
        given = ["runuser", "-u", "postgres", "--"] if os.geteuid() == 0 else []
        command = [*given, str(self.bin / program), *arguments]
        subprocess.run(command, check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, cwd="/")

    def start(self) -> None:
        options = (
            f"-p {self.port} -c listen_addresses=127.0.0.1 -c unix_socket_directories={self.data.parent}"
        )
        log = str(self.data.parent / "log")
        self.run("pg_ctl", "-D", str(self.data), "-w", "-t", "120", "-l", log, "-o", options, "start")

    def stop(self) -> None:
        self.run("pg_ctl", "-D", str(self.data), "-w", "-t", "120", "-m", "immediate", "stop")


@pytest.fixture
def server() -> Iterator[Server]:
    folder = Path(tempfile.mkdtemp(prefix="ncl-bench-postgres-"))
    folder.chmod(0o777)
    server = Server(folder)
    server.start()
    yield server
    server.stop()
    shutil.rmtree(folder, ignore_errors=True)


def wait_for(condition, *, seconds: float = 200) -> None:
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end
        time.sleep(0.2)


@pytest.mark.timeout(900)
def test_no_finished_run_is_lost_and_none_is_done_twice(
    server: Server, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    recipe = tmp_path / "info_nce" / "few.yaml"
    recipe.parent.mkdir()
    recipe.write_text(yaml.safe_dump(CONTENT))
    script = tmp_path / "tune.py"
    script.write_text(PROGRAM.format(trials=TRIALS))
    shared = tmp_path / "shared"

    def machine(name: str) -> subprocess.Popen[str]:
        """A process that shares nothing with the others but the study and the folder."""
        (tmp_path / name).mkdir(exist_ok=True)
        environment = os.environ | {"OMP_NUM_THREADS": "1", "TMPDIR": str(tmp_path / name)}
        process = subprocess.Popen(
            [sys.executable, str(script), str(recipe), str(shared), server.url],
            env=environment,
            start_new_session=True,
            stderr=subprocess.PIPE,
            text=True,
        )
        request.addfinalizer(lambda: process.poll() is None and os.killpg(process.pid, signal.SIGKILL))
        return process

    first = machine("first")
    wait_for(lambda: glob(str(shared / "runs/*/*/*/history.json")))
    second = machine("second")
    os.killpg(first.pid, signal.SIGKILL)
    first.wait()
    again = machine("first")
    wait_for(lambda: len(glob(str(shared / "runs/*/*/*/training.json"))) >= 1)
    server.stop()
    time.sleep(5)
    server.start()
    for process in (second, again):
        _, said = process.communicate(timeout=500)
        assert process.returncode == 0, said
    study = optuna.load_study(study_name="info_nce/few", storage=server.url)
    numbers = [trial.user_attrs["number"] for trial in study.trials if trial.state == TrialState.COMPLETE]
    assert sorted(numbers) == list(range(TRIALS))
    epochs = (shared / "epochs").read_text().splitlines()
    assert len(epochs) == len(set(epochs))
    assert {line.split()[0] for line in epochs} == {f"trial-{number:02d}" for number in range(TRIALS)}
    alone = subprocess.run(
        [sys.executable, str(script), str(recipe), str(tmp_path / "alone")],
        env=os.environ | {"OMP_NUM_THREADS": "1"},
        check=True,
        capture_output=True,
    )
    assert alone.stdout
    table = "tuned/info_nce/few_tuned.csv"
    assert (shared / table).read_text() == (tmp_path / "alone" / table).read_text()
