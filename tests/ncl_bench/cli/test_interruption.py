"""An interrupted command: one sentence, the exit code that shells expect, no traceback; from its first moment on."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from typer.main import get_command

from ncl_bench.cli import app
from ncl_bench.cli.interruption import GOES_ON, stoppable

pytestmark = pytest.mark.usefixtures("signals_heard")
if sys.platform == "win32":
    pytest.skip("Windows sends no signals to a process", allow_module_level=True)

SIGNALS = pytest.mark.parametrize(
    "number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP], ids=lambda number: number.name
)
SCRIPT = """
import time
from ncl_bench.cli.interruption import running, stoppable
with stoppable():
    running({command!r})
    print("ready", flush=True)
    time.sleep(60)
"""


@SIGNALS
@pytest.mark.parametrize(
    ("command", "how"),
    [
        ("train", "goes on from here"),
        ("tune", "goes on from here"),
        ("evaluate", "starts over"),
        (None, "starts over"),
    ],
)
def test_a_signal_ends_the_program_in_one_sentence(
    number: signal.Signals, command: str | None, how: str
) -> None:
    program = subprocess.Popen(
        [sys.executable, "-c", SCRIPT.format(command=command)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert program.stdout is not None
    assert program.stdout.readline() == "ready\n"
    program.send_signal(number)
    _, errors = program.communicate(timeout=120)
    assert program.returncode == 128 + number
    assert errors.strip().startswith("ncl-bench: stopped by ")
    assert errors.strip().endswith(f"the same command {how}")
    assert errors.strip().count("\n") == 0


def test_commands_that_are_said_to_go_on_exist() -> None:
    assert get_command(app).commands.keys() >= GOES_ON


def test_errors_and_handlers_pass_through() -> None:
    before, inside = signal.getsignal(signal.SIGINT), []

    def fail() -> None:
        with stoppable():
            inside.append(signal.getsignal(signal.SIGINT))
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        fail()
    assert inside != [before]
    assert signal.getsignal(signal.SIGINT) is before


@SIGNALS
def test_a_signal_that_was_ignored_before_stays_ignored(number: signal.Signals) -> None:
    signal.signal(number, signal.SIG_IGN)
    with stoppable():
        os.kill(os.getpid(), number)
        assert signal.getsignal(number) is signal.SIG_IGN
    assert signal.getsignal(number) is signal.SIG_IGN


def test_the_tests_of_signals_pass_in_the_background() -> None:
    """Where a shell has started them with ``&`` under ``nohup``."""
    tests = [__file__, str(Path(__file__).parents[1] / "test_processes.py")]
    ignoring = [
        "sh",
        "-c",
        "trap '' INT HUP; exec \"$@\"",
        "sh",
        sys.executable,
        "-m",
        "pytest",
        "-x",
        *tests,
    ]
    which = "(ends_the_program or parent) and (SIGINT or SIGHUP) or handlers"
    run = subprocess.run([*ignoring, "-p", "no:cacheprovider", "-k", which], capture_output=True, text=True)
    assert run.returncode == 0, run.stdout


@pytest.mark.slow  # waits for fixed times
@pytest.mark.parametrize("delay", [0.25, 0.6])
def test_an_early_ctrl_c_shows_no_traceback(delay: float, tmp_path: Path) -> None:
    command = [sys.executable, "-m", "ncl_bench", "prepare", "digits", "--to", str(tmp_path)]
    program = subprocess.Popen(command, stderr=subprocess.PIPE, text=True, env=os.environ | {"NO_COLOR": "1"})
    time.sleep(delay)
    program.send_signal(signal.SIGTERM)
    _, errors = program.communicate(timeout=120)
    assert program.returncode in (143, -signal.SIGTERM)
    assert "Traceback" not in errors
    assert not (tmp_path / "digits").exists()
