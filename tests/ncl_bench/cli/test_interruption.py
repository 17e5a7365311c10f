"""An interrupted command: one sentence, the exit code that shells expect, no traceback; from its first moment on."""

import os
import signal
import subprocess
import sys

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


@pytest.mark.parametrize(
    ("number", "command", "how"),
    [
        (signal.SIGINT, "train", "goes on from here"),
        (signal.SIGTERM, "evaluate", "starts over"),
        (signal.SIGHUP, None, "starts over"),
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
