"""Ctrl-C and termination: a command that is stopped cleans up, says how to go on, and ends as shells expect."""

import os
import signal
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from types import FrameType

_STOPS = {
    signal.SIGINT: "Ctrl-C",
    signal.SIGTERM: "a request to terminate",
}
if sys.platform != "win32":
    _STOPS[signal.SIGHUP] = "the end of its terminal"
GOES_ON = frozenset({"prepare", "train", "sweep", "tune", "quickstart", "features", "add-images"})
"""Commands that, given again, go on where they were stopped; the others are short and start over."""
_running: list[str] = []


def running(command: str | None) -> None:
    """Say which command runs now, for what is said when it is stopped."""
    _running[:] = [] if command is None else [command]


class _Stopped(KeyboardInterrupt):
    """A class of its own: after a plain one in code that ran by ``exec``, Python always exits by SIGINT."""


@contextmanager
def stoppable() -> Iterator[None]:
    """End the block, and the program, in one sentence when SIGINT, SIGTERM or SIGHUP arrives.

    All raise ``KeyboardInterrupt`` in the main thread, so that temporary files disappear on the way out; the sentence
    says whether the same command goes on or starts over. A signal that was ignored before, as SIGHUP is
    under ``nohup``, stays ignored.

    Raises:
        SystemExit: with 128 plus the signal's number, such as 130 after Ctrl-C.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    received: list[signal.Signals] = []
    running(None)

    def stop(number: int, frame: FrameType | None) -> None:
        received.append(signal.Signals(number))
        if _is_importing(frame):
            _say(received[0])
            os._exit(128 + number)
        raise _Stopped

    before = {number: signal.getsignal(number) for number in _STOPS}
    try:
        for number, handler in before.items():
            if handler != signal.SIG_IGN:
                signal.signal(number, stop)
        yield
    except BaseException:
        if not received:
            raise
    finally:
        for number, handler in before.items():
            signal.signal(number, signal.SIG_DFL if received else handler)
    if received:
        _say(received[0])
        sys.exit(128 + received[0])


def _is_importing(frame: FrameType | None) -> bool:
    """Whether a module is being imported: what raises there makes libraries in C++ abort, or passes for their fault.

    At such a moment the process ends at once, as when it is killed.
    """
    while frame is not None:
        if frame.f_code.co_filename.startswith("<frozen importlib"):
            return True
        frame = frame.f_back
    return False


def _say(number: signal.Signals) -> None:
    how = "goes on from here" if GOES_ON.intersection(_running) else "starts over"
    with suppress(OSError, RuntimeError):  # a closed terminal; a line that was being printed
        print(f"\nncl-bench: stopped by {_STOPS[number]}; the same command {how}", file=sys.stderr)
