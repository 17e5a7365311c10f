"""The command line: one command per step of the pipeline; parses, calls, prints."""

import io
import os
import sys
from typing import NoReturn

from ncl_bench.cli.commands import app
from ncl_bench.errors import NclBenchError, is_out_of_memory, one_line, shorten

__all__ = ["app", "main"]

TRACEBACK = "NCL_BENCH_TRACEBACK"
"""Environment variable that shows the full traceback of an error in a plugin."""
_ROOMS = ("baselines", "leaderboard")
"""Packages installed with this one. ``baselines`` is also the name of a well-known package."""

_TO_TRAIN = ("torch", "tensorboard", "jinja2", "huggingface_hub", "pandas", "pyarrow", "sklearn")
"""What the extra ``baselines`` brings; what needs a part of it asks for its own extra (:mod:`ncl_bench.extras`)."""


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
        package = (error.name or "").partition(".")[0]
        if package in _TO_TRAIN:
            from ncl_bench.extras import install_command

            _refuse(f"this command needs {package}; install with: {install_command('baselines')}")
        if package not in _ROOMS:
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
    print(f"ncl-bench: {sentence}", file=sys.stderr)
    sys.exit(2)
