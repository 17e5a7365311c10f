"""Count the files and functions of the project that ten commands enter, and compare the files with limits.

Run ``python -m tools.paths`` in a checkout. It prints a table, and exits with code 1 if a command enters more files
than its limit. ``make check`` runs it (about a minute).

A function counts when it is called; module level, lambdas and comprehensions do not. Worker processes are not followed.
"""

import contextlib
import io
import sys
import tempfile
import threading
from collections.abc import Callable
from pathlib import Path
from types import CodeType, FrameType
from typing import Any

import numpy as np

from ncl_bench import load_dataset
from ncl_bench.cli.commands import app

# What a reader must open to follow a command. A change may lower a limit, not raise it.
LIMITS = {
    "load": 8,
    "prepare": 19,
    "prepared": 10,
    "matrix": 13,
    "train": 38,
    "score": 36,
    "evaluate": 16,
    "add": 27,
    "build": 33,
    "audit": 37,
}

ROOT = Path(__file__).resolve().parent.parent
PACKAGES = ("ncl_bench/", "baselines/", "leaderboard/")


class Calls:
    """A profiler that collects the project's functions, each as file and qualified name."""

    def __init__(self) -> None:
        self.functions: set[tuple[str, str]] = set()

    def __call__(self, frame: FrameType, event: str, _: Any) -> None:
        code = frame.f_code
        if event == "call" and not code.co_name.startswith("<") and (file := own_file(code)):
            self.functions.add((file, code.co_qualname))

    @property
    def files(self) -> set[str]:
        return {file for file, _ in self.functions}


def own_file(code: CodeType) -> str | None:
    """The file that holds the code, relative to the checkout; None for code of other packages and of templates."""
    file = code.co_filename.removeprefix(f"{ROOT}/")
    return file if file.startswith(PACKAGES) and file.endswith(".py") else None


def calls_of(work: Callable[[], object]) -> Calls:
    """Run ``work`` and collect the functions that it calls, in all threads of this process."""
    calls = Calls()
    threading.setprofile(calls)
    sys.setprofile(calls)
    try:
        work()
    finally:
        sys.setprofile(None)
        threading.setprofile(None)
    return calls


def command(*arguments: object) -> None:
    """Run a command of ``ncl-bench`` without its output, and stop with that output if it fails."""
    output = io.StringIO()
    with contextlib.redirect_stdout(output), contextlib.redirect_stderr(output):
        try:
            code = app([str(argument) for argument in arguments], standalone_mode=False)
        except SystemExit as stop:
            code = stop.code
    if code:
        sys.exit(f"{' '.join(map(str, arguments))}\n{output.getvalue()[-2000:]}")


def flows(folder: Path) -> dict[str, Callable[[], object]]:
    """What is counted, by name and in order: a later command reads what an earlier one wrote to ``folder``."""
    data, matrix, run, submission = (folder / name for name in ("data", "matrix.npy", "run", "submission"))
    board, site, audit = (folder / name for name in ("board", "site", "audit"))
    board.mkdir()
    np.save(matrix, np.random.default_rng(0).random((200, 1000), dtype=np.float32))
    short = ["--set", "steps=3", "--set", "method.warmup_epochs=0", "--set", "method.epochs=1"]
    train = ["train", "ncr/digits_vse_infinity", "--noise-ratio", "0.4", *short, "--to", run]
    return {
        "load": lambda: load_dataset("digits", noise_ratio=0.4),
        "prepare": lambda: command("prepare", "digits", "--to", data),
        "prepared": lambda: load_dataset("digits", noise_ratio=0.4, root=data),
        "matrix": lambda: command("evaluate", matrix, "--dataset", "digits"),
        "train": lambda: command(*train),
        "score": lambda: command("score", run, "--to", submission),
        "evaluate": lambda: command("evaluate", submission),
        "add": lambda: command("leaderboard", "add", submission, "--root", board, "--submitter", "A"),
        "build": lambda: command("leaderboard", "build", "--root", board, "--to", site),
        "audit": lambda: command("audit", run, "--to", audit),
    }


def main() -> None:
    """Print files, limit and functions of every flow."""
    above = []
    print(f"{'':10}{'files':>6}{'at most':>9}{'functions':>11}")
    with tempfile.TemporaryDirectory() as folder:
        for name, work in flows(Path(folder)).items():
            calls = calls_of(work)
            print(f"{name:10}{len(calls.files):6}{LIMITS[name]:9}{len(calls.functions):11}")
            if len(calls.files) > LIMITS[name]:
                above.append(name)
    if above:
        sys.exit(f"more files than the limit in tools/paths.py: {', '.join(above)}")


if __name__ == "__main__":
    main()
