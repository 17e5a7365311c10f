"""Count the project's files, functions and lines that eleven commands enter: a map for readers of the code.

Run ``python -m tools.paths`` in a checkout. It prints a table (about a minute).

Every flow runs in a process of its own, so that no cache of an earlier one hides a file. A function counts when it is
called; module level, class bodies, lambdas and comprehensions do not. The lines are those of the functions that were
called, whole. Worker processes are not followed.
"""

import contextlib
import inspect
import io
import json
import subprocess
import sys
import tempfile
import threading
from collections.abc import Callable
from pathlib import Path
from types import CodeType, FrameType
from typing import Any

import numpy as np
from PIL import Image

ROOT = Path(__file__).resolve().parent.parent
PACKAGES = ("ncl_bench/", "baselines/", "leaderboard/")
WORDS = (
    "a",
    "red",
    "blue",
    "dog",
    "cat",
    "runs",
    "sits",
    "jumps",
    "near",
    "old",
    "small",
    "tree",
    "house",
    "car",
    "man",
)


class Calls:
    """A tracer that collects the project's functions, each as file and qualified name, with its number of lines."""

    def __init__(self) -> None:
        self.functions: dict[tuple[str, str], int] = {}
        # by identity: the hash of a code object reads all of it at every call
        self._seen: dict[int, CodeType] = {}

    def __call__(self, frame: FrameType, _event: str, _: Any) -> None:
        # returns None, so that no event inside the function is sent
        code = frame.f_code
        if id(code) in self._seen:
            return
        self._seen[id(code)] = code
        # the body of a class is called too, and is not optimised
        if code.co_name.startswith("<") or not code.co_flags & inspect.CO_OPTIMIZED:
            return
        if file := own_file(code):
            self.functions[file, code.co_qualname] = len({line for *_, line in code.co_lines() if line})

    def counts(self) -> tuple[int, int, int]:
        """Number of files, functions and lines."""
        return len({file for file, _ in self.functions}), len(self.functions), sum(self.functions.values())


def own_file(code: CodeType) -> str | None:
    """The file that holds the code, relative to the checkout; None for code of other packages and of templates."""
    file = code.co_filename.removeprefix(f"{ROOT}/")
    return file if file.startswith(PACKAGES) and file.endswith(".py") else None


def calls_of(work: Callable[[], object]) -> Calls:
    """Run ``work`` and collect the functions that it calls, in all threads of this process."""
    calls = Calls()
    threading.settrace(calls)
    sys.settrace(calls)
    try:
        work()
    finally:
        sys.settrace(None)
        threading.settrace(None)
    return calls


def command(*arguments: object) -> None:
    """Run a command of ``ncl-bench`` without its output, and stop with that output if it fails."""
    from ncl_bench.cli.commands import app

    output = io.StringIO()
    with contextlib.redirect_stdout(output), contextlib.redirect_stderr(output):
        try:
            code = app([str(argument) for argument in arguments], standalone_mode=False)
        except SystemExit as stop:
            code = stop.code
    if code:
        sys.exit(f"{' '.join(map(str, arguments))}\n{output.getvalue()[-2000:]}")


def make_inputs(folder: Path) -> None:
    """Write a matrix, an empty board, and sixty small pictures with captions."""
    random = np.random.default_rng(0)
    np.save(folder / "matrix.npy", random.random((200, 1000), dtype=np.float32))
    (folder / "board").mkdir()
    (folder / "pictures").mkdir()
    rows = ["image,caption"]
    for number in range(60):
        pixels = random.integers(0, 255, (48, 48, 3), dtype=np.uint8)
        Image.fromarray(pixels).save(folder / "pictures" / f"{number}.png")
        rows.append(f"{number}.png,{' '.join(random.choice(WORDS, 6))}")
    (folder / "captions.csv").write_text("\n".join(rows) + "\n", encoding="utf-8")


def flows(folder: Path) -> dict[str, Callable[[], object]]:
    """What is counted, by name and in order: a later command reads what an earlier one wrote to ``folder``."""
    from ncl_bench import load_dataset

    data, matrix, run, submission = (folder / name for name in ("data", "matrix.npy", "run", "submission"))
    board, site, audit, own = (folder / name for name in ("board", "site", "audit", "own"))
    short = ["--set", "steps=3", "--set", "method.warmup_epochs=0", "--set", "method.epochs=1"]
    train = ["train", "ncr/digits_vse_infinity", "--noise-ratio", "0.4", *short, "--to", run]
    pairs = [folder / "captions.csv", "--images", folder / "pictures"]
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
        "own": lambda: command("audit", *pairs, "--to", own),
    }


def main() -> None:
    """Print files, functions and lines of every flow."""
    print(f"{'':10}{'files':>6}{'functions':>11}{'lines':>7}")
    with tempfile.TemporaryDirectory() as folder:
        make_inputs(Path(folder))
        for name in flows(Path(folder)):
            here = [sys.executable, "-m", "tools.paths", name, folder]
            done = subprocess.run(here, capture_output=True, text=True, cwd=ROOT, check=False)  # noqa: S603 (our own words)
            if done.returncode:
                sys.exit(f"{name}: {done.stderr}{done.stdout}")
            files, functions, lines = json.loads(done.stdout)
            print(f"{name:10}{files:6}{functions:11}{lines:7}", flush=True)


if __name__ == "__main__":
    if sys.argv[1:]:
        print(json.dumps(calls_of(flows(Path(sys.argv[2]))[sys.argv[1]]).counts()))
    else:
        main()
