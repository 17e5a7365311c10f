"""A stopped command: one sentence, and the exit code that shells expect."""

import signal
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from typer.main import get_command

from ncl_bench.cli import app
from ncl_bench.cli.commands import RESUMABLE

pytestmark = pytest.mark.usefixtures("signals_heard")
if sys.platform == "win32":
    pytest.skip("Windows sends no signals to a process", allow_module_level=True)

PLUGIN = """
import os, signal
try:
    os.kill(os.getpid(), signal.{signal})
except Exception:
    pass  # as libraries do that try an import
print("not reached")
"""


@pytest.mark.parametrize(
    ("number", "command", "how"),
    [(signal.SIGINT, "train", "resumes"), (signal.SIGTERM, "datasets", "starts over")],
)
def test_a_signal_ends_a_command_in_one_sentence(
    number: signal.Signals, command: str, how: str, tmp_path: Path, run: Callable[..., Any]
) -> None:
    plugin = tmp_path / "stops.py"
    plugin.write_text(PLUGIN.format(signal=number.name))
    found = run("--plugin", plugin, command)
    assert found.code == 128 + number
    assert found.out == ""
    assert found.err == f"\nncl-bench: stopped by {number.name}; the same command {how}\n"


def _stopped_in_an_import(*_: object) -> None:
    with suppress(BaseException):
        signal.raise_signal(signal.SIGINT)
    raise ImportError("as modules in C do, which lose what stopped them")


def test_a_signal_that_a_library_raises_as_its_own_error_ends_a_command_too(
    tmp_path: Path, run: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    stopped = "\nncl-bench: stopped by SIGINT; the same command starts over\n"
    plugin = tmp_path / "stops.py"
    plugin.write_text(f"from {__name__} import _stopped_in_an_import as stop\nstop()\n")
    found = run("--plugin", plugin, "datasets")
    assert (found.code, found.out, found.err) == (130, "", stopped)
    monkeypatch.setattr("ncl_bench.cli.commands.app", _stopped_in_an_import)
    found = run("datasets")
    assert (found.code, found.out, found.err) == (130, "", stopped)


class _StopsAsItDies:
    def __del__(self) -> None:
        signal.raise_signal(signal.SIGINT)


def test_a_signal_that_python_ignores_comes_again(
    run: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    def command() -> None:
        _StopsAsItDies()
        time.sleep(60)

    monkeypatch.setattr("ncl_bench.cli.commands.app", command)
    found = run("datasets")
    assert found.code == 130
    assert found.err == "\nncl-bench: stopped by SIGINT; the same command starts over\n"


def test_a_signal_that_was_ignored_before_stays_ignored(run: Callable[..., Any]) -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    assert run("--version").code == 0
    assert signal.getsignal(signal.SIGINT) is signal.SIG_IGN


def test_commands_that_are_said_to_resume_exist() -> None:
    assert get_command(app).commands.keys() >= RESUMABLE
