"""The command line: one command per arrow of the pipeline; parses, calls, prints.

The commands lie in :mod:`ncl_bench.cli.commands`, which is imported when they run, so that an interruption during the
imports ends as quietly as any other.
"""

import io
import os
import sys
from typing import TYPE_CHECKING, Any

from ncl_bench.cli.interruption import stoppable
from ncl_bench.errors import NclBenchError, one_line
from ncl_bench.plugins import fault_of

if TYPE_CHECKING:
    from ncl_bench.cli.commands import app

__all__ = ["app", "main"]

TRACEBACK = "NCL_BENCH_TRACEBACK"
"""Environment variable that shows the whole traceback of an error in a plugin."""
_ROOMS = ("baselines", "leaderboard")
"""Packages that come with this one; another ``baselines`` is well known."""


def __getattr__(name: str) -> Any:
    if name != "app":
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from ncl_bench.cli.commands import app

    return app


def main() -> None:
    """Run the command line; a user's mistake ends in one sentence and exit code 2."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(
            stream, io.TextIOWrapper
        ):  # a character that the terminal cannot show is no reason to stop
            stream.reconfigure(errors="backslashreplace")
    with stoppable():
        from ncl_bench.cli.commands import app

        try:
            app()
        except NclBenchError as error:
            sys.exit(_refused(str(error)))
        except ModuleNotFoundError as error:
            if (error.name or "").partition(".")[0] not in _ROOMS:
                raise
            sys.exit(_refused(displaced(error)))
        except UnicodeEncodeError as error:
            if not any("\ud800" <= character <= "\udfff" for character in str(error.object)):
                raise
            sys.exit(_refused(f"{one_line(str(error.object))} is no UTF-8 file name; rename the file"))
        except MemoryError:
            sys.exit(_refused("memory is full; close other programs or use a machine with more"))
        except OSError as error:
            place = "" if error.filename is None else f" {one_line(str(error.filename))}"
            sys.exit(
                _refused(f"the system refuses{place}: {error.strerror or error}; fix that and try again")
            )
        except Exception as error:
            fault = fault_of(error)
            if not fault or TRACEBACK in os.environ:
                raise
            sys.exit(_refused(f"{one_line(fault)}; correct it, or set {TRACEBACK}=1 to see every call"))


def displaced(error: ModuleNotFoundError) -> str:
    """The sentence for a package of ours in whose place Python finds another of the same name."""
    return f"{error}; another package has the name of ours, so give ncl_bench an environment of its own"


def _refused(sentence: str) -> int:
    print(f"ncl-bench: {sentence}", file=sys.stderr)
    return 2
