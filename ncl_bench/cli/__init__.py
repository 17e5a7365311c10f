"""The command line: one command per step of the pipeline; parses, calls, prints.

The commands lie in :mod:`ncl_bench.cli.commands`, which :func:`main` imports after it has installed its handler of
signals: Ctrl-C during the imports prints no traceback either.
"""

import io
import os
import signal
import sys
from collections.abc import Sequence
from threading import Timer
from types import FrameType
from typing import TYPE_CHECKING, Any, NoReturn

from ncl_bench.errors import NclBenchError, Stopped, one_line, shorten
from ncl_bench.plugins import fault_of

if TYPE_CHECKING:
    from ncl_bench.cli.commands import app

__all__ = ["app", "main"]

TRACEBACK = "NCL_BENCH_TRACEBACK"
"""Environment variable that shows the full traceback of an error in a plugin."""
_ROOMS = ("baselines", "leaderboard")
"""Packages installed with this one. ``baselines`` is also the name of a well-known package."""


def __getattr__(name: str) -> Any:
    if name != "app":
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from ncl_bench.cli.commands import app

    return app


def main() -> None:
    """Run the command line; a user's mistake prints one sentence and exits with code 2.

    Raises:
        Stopped: SIGINT or SIGTERM arrived; exit code 130 or 143.
    """
    arrived: list[Stopped] = []

    def stop(number: int, frame: FrameType | None) -> NoReturn:
        arrived.append(Stopped(number))
        raise arrived[0]

    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")  # escape what the terminal cannot show
    stops = (signal.SIGINT, signal.SIGTERM)
    # a background job ignores Ctrl-C
    heard = [each for each in stops if signal.getsignal(each) is not signal.SIG_IGN]
    for each in heard:
        signal.signal(each, stop)
    sys.unraisablehook = _send_again
    try:
        _run(arrived)
    except Stopped as stopped:
        how = "resumes" if Stopped.resumes else "starts over"
        print(f"\nncl-bench: stopped by {stopped.signal.name}; the same command {how}", file=sys.stderr)
        raise
    except NclBenchError as error:
        sys.exit(_refused(str(error)))
    except ModuleNotFoundError as error:
        if (error.name or "").partition(".")[0] not in _ROOMS:
            raise
        sys.exit(_refused(displaced(error)))
    except UnicodeEncodeError as error:
        if not any("\ud800" <= character <= "\udfff" for character in str(error.object)):
            raise
        sys.exit(_refused(f"{one_line(str(error.object))} is not a UTF-8 file name; rename the file"))
    except MemoryError:
        sys.exit(_refused("out of memory; close other programs, or use a machine with more memory"))
    except OSError as error:
        place = "" if error.filename is None else f" at {shorten(str(error.filename))}"
        sys.exit(
            _refused(f"operating system error{place}: {error.strerror or error}; fix that and try again")
        )
    except Exception as error:
        fault = fault_of(error)
        if not fault or TRACEBACK in os.environ:
            raise
        sys.exit(_refused(f"{one_line(fault)}; fix it, or set {TRACEBACK}=1 to see the full traceback"))
    finally:
        for each in heard:
            signal.signal(each, signal.SIG_DFL)  # the command is over, so the process may simply end


def _send_again(ignored: "sys.UnraisableHookArgs") -> None:
    """Resend a stop that was raised in a destructor or weakref callback, where Python ignores all errors."""
    if isinstance(ignored.exc_value, Stopped):
        timer = Timer(0.01, os.kill, (os.getpid(), ignored.exc_value.signal))
        timer.daemon = True
        timer.start()
    else:
        sys.__unraisablehook__(ignored)


def _run(arrived: Sequence[Stopped]) -> None:
    """Run the command; report an error after a stop as the stop.

    An import can replace the stop: Python before 3.12 wraps errors in ``__set_name__``, and C extensions may drop them.
    """
    try:
        from ncl_bench.cli.commands import app

        app()
    except Exception:
        if arrived:
            raise arrived[0] from None
        raise


def displaced(error: ModuleNotFoundError) -> str:
    """Explain that Python imported a foreign package with the name of one of ours."""
    return f"{error}; another package has the same name, so install ncl_bench in its own environment"


def _refused(sentence: str) -> int:
    print(f"ncl-bench: {sentence}", file=sys.stderr)
    return 2
