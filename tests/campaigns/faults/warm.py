"""A process with what a command needs imported that forks a child for each command line, and stops it when told to.

Importing torch takes longer than a tiny command runs. The child runs ``ncl_bench.cli.main`` as the console script
does, in a session of its own, with output in a file and ``TMPDIR`` in its working folder. One JSON request per line
on standard input, one JSON answer per line on standard output.
"""

import json
import os
import resource
import signal
import sys
import tempfile
import time
from dataclasses import asdict, dataclass
from importlib import import_module
from pathlib import Path
from typing import Any

TESTS = Path(__file__).parents[2]
IMPORTED = {
    "prepare": ("ncl_bench.data.prepare",),
    "evaluate": ("ncl_bench.evaluation.evaluate", "matplotlib.backends.backend_svg"),
    "submission": ("ncl_bench.evaluation.template",),
    "train": ("baselines.engine.submit",),
    "plot": ("baselines.engine.plot", "matplotlib.backends.backend_svg"),
    "sweep": ("baselines.engine.sweep",),
    "leaderboard": ("leaderboard.add", "leaderboard.build"),
}
"""What each command imports, so that it is there before the fork."""
LIMIT = 120.0
"""Seconds after which a command hangs."""


@dataclass(frozen=True)
class Ended:
    """How a command line ended.

    Attributes:
        code: exit code; minus the signal's number where a signal ended it.
        seconds: from fork to end.
        output: both streams.
        survivors: whether a process that it started outlived it by more than ten seconds. A worker that is still
            importing when its parent is killed ends when it has done so.
    """

    code: int
    seconds: float
    output: str
    survivors: bool


def run(
    folder: Path,
    arguments: list[str],
    stop: str | None = None,
    delay: float = 0.0,
    largest_file: int | None = None,
    environment: dict[str, str] | None = None,
) -> Ended:
    """Run a command line in a folder.

    Args:
        folder: to run in.
        arguments: after ``ncl-bench``.
        stop: name of a signal to send.
        delay: after so many seconds.
        largest_file: bytes after which writing fails, as on a full disk.
        environment: variables to set.
    """
    (folder / "tmp").mkdir(exist_ok=True)
    log = folder.with_name(f"{folder.name}.log")
    begun, begin = os.pipe()
    child = os.fork()
    if child == 0:
        os.environ |= environment or {}
        if largest_file is not None:
            resource.setrlimit(resource.RLIMIT_FSIZE, (largest_file, largest_file))
        _command(folder, arguments, log, begin)
    os.close(begin)
    os.read(begun, 1)
    os.close(begun)
    started = time.monotonic()
    if stop is not None:
        time.sleep(delay)
        _signal(child, getattr(signal, stop))
    status = _wait(child, started + LIMIT)
    seconds = time.monotonic() - started
    return Ended(
        os.waitstatus_to_exitcode(status), seconds, log.read_text(errors="replace"), _has_survivors(child)
    )


def _command(folder: Path, arguments: list[str], log: Path, begin: int) -> None:
    """The child; ends as a program ends, with all that Python and the libraries do at exit."""
    code = 1
    try:
        os.setsid()
        os.chdir(folder)
        output = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
        for stream in (1, 2):
            os.dup2(output, stream)
        os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
        tempfile.tempdir = str(folder / "tmp")
        os.environ["TMPDIR"] = tempfile.tempdir
        sys.argv = ["ncl-bench", *arguments]
        from ncl_bench.cli import main

        signal.signal(signal.SIGINT, signal.SIG_DFL)
        os.write(begin, b".")
        main()
        code = 0
    except SystemExit as stop:
        code = stop.code if isinstance(stop.code, int) else 0 if stop.code is None else 1
    except BaseException:
        sys.excepthook(*sys.exc_info())
    sys.exit(code)


def _signal(child: int, number: int) -> None:
    """As a terminal sends Ctrl-C: to the whole group; everything else to the command alone."""
    if number == signal.SIGINT:
        os.killpg(child, number)
    else:
        os.kill(child, number)


def _wait(child: int, deadline: float) -> int:
    while time.monotonic() < deadline:
        done, status = os.waitpid(child, os.WNOHANG)
        if done:
            return status
        time.sleep(0.005)
    os.killpg(child, signal.SIGKILL)
    os.waitpid(child, 0)
    raise TimeoutError(f"a command took more than {LIMIT} seconds")


def _has_survivors(group: int) -> bool:
    deadline = time.monotonic() + 10
    while time.monotonic() < deadline:
        try:
            os.killpg(group, 0)
        except ProcessLookupError:
            return False
        time.sleep(0.02)
    return True


def _answer(request: dict[str, Any]) -> dict[str, Any]:
    from campaigns.faults.world import train_on_few

    command = request["arguments"][0]
    for name in IMPORTED.get(command, ()):
        import_module(name)
    if command == "train":
        train_on_few()
    return asdict(run(Path(request.pop("folder")), **request))


if __name__ == "__main__":
    answers = os.fdopen(os.dup(1), "w")
    sys.path.append(str(TESTS))
    import_module("ncl_bench.cli.commands")
    import_module("campaigns.faults.world").make_small()
    print("ready", file=answers, flush=True)
    for line in sys.stdin:
        print(json.dumps(_answer(json.loads(line))), file=answers, flush=True)
