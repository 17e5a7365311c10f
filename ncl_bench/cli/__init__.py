"""The command line: one command per arrow of the pipeline; parses, calls, prints.

The commands lie in :mod:`ncl_bench.cli.commands`, which is imported when they run, so that an interruption during the
imports ends as quietly as any other.
"""

import io
import sys
from typing import TYPE_CHECKING, Any

from ncl_bench.cli.interruption import stoppable
from ncl_bench.errors import NclBenchError, one_line

if TYPE_CHECKING:
    from ncl_bench.cli.commands import app

__all__ = ["app", "main"]

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
        except MemoryError:
            sys.exit(_refused("memory is full; close other programs or use a machine with more"))
        except OSError as error:
            place = "" if error.filename is None else f" {one_line(str(error.filename))}"
            sys.exit(
                _refused(f"the system refuses{place}: {error.strerror or error}; fix that and try again")
            )


def displaced(error: ModuleNotFoundError) -> str:
    """The sentence for a package of ours in whose place Python finds another of the same name."""
    return f"{error}; another package has the name of ours, so give ncl_bench an environment of its own"


def _refused(sentence: str) -> int:
    print(f"ncl-bench: {sentence}", file=sys.stderr)
    return 2
