"""The command line: one command per step of the pipeline; parses, calls, prints."""

import io
import os
import sys
from typing import NoReturn

from ncl_bench.cli.commands import app
from ncl_bench.errors import NclBenchError, is_out_of_memory, one_line, shorten
from ncl_bench.progress import as_typed

__all__ = ["app", "main"]

TRACEBACK = "NCL_BENCH_TRACEBACK"
"""Environment variable that shows the full traceback of an error in a plugin."""
_ROOMS = ("baselines", "leaderboard")
"""Packages installed with this one. ``baselines`` is also the name of a well-known package."""


def main() -> None:
    """Run the command line. A user's mistake prints one sentence and exits with code 2, Ctrl-C with 130."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")  # escape what the terminal cannot show
    try:
        app()
    except NclBenchError as error:
        _refuse(str(error))
    except ModuleNotFoundError as error:
        from ncl_bench.extras import not_installed

        told = not_installed(error, needed_by="this command")
        if told is not error:
            _refuse(str(told))
        if (error.name or "").partition(".")[0] not in _ROOMS:
            raise
        _refuse(f"{error}; another package has the same name, so install ncl_bench in its own environment")
    except OSError as error:
        place = "" if error.filename is None else f" at {shorten(str(error.filename))}"
        _refuse(f"operating system error{place}: {error.strerror or error}; fix that and try again")
    except Exception as error:
        if is_out_of_memory(error):
            _refuse("out of memory; close other programs, or use a machine with more memory")
        from ncl_bench.plugins import fault_of

        fault = fault_of(error)
        if not fault or TRACEBACK in os.environ:
            raise
        _refuse(f"{one_line(fault)}; fix it, or set {TRACEBACK}=1 to see the full traceback")


def _refuse(sentence: str) -> NoReturn:
    print(f"ncl-bench: {as_typed(sentence)}", file=sys.stderr)
    sys.exit(2)
