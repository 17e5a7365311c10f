"""What a call touches and what it costs to begin, in this tree and in a revision of it.

    python tests/benchmarks/footprint.py [REVISION]

Prints for each call how many files have a function that runs (functions that run only while a module is imported do
not count), and the processor seconds of three starts as ratios to the revision, the least of three each.
"""

import os
import resource
import subprocess
import sys
import tempfile
from pathlib import Path

import numpy as np
from against_base import BASE, ROOT, tree_of

TIMES = 3
TRACED = """
import contextlib, os, sys, threading
rooms = tuple(os.path.join(sys.argv[1], room, "") for room in ("ncl_bench", "baselines", "leaderboard"))
found = set()

def on_call(frame, event, argument):
    file = frame.f_code.co_filename
    if event != "call" or file in found or frame.f_code.co_name == "<module>" or not file.startswith(rooms):
        return
    above = frame
    while above := above.f_back:
        if above.f_code.co_filename.startswith("<frozen importlib"):
            return
    found.add(file)

program, sys.argv = sys.argv[2], ["ncl-bench", *sys.argv[3:]]
threading.setprofile(on_call)
sys.setprofile(on_call)
with contextlib.suppress(SystemExit):
    exec(program)
sys.setprofile(None)
print("files:", len(found), file=sys.__stdout__)
"""
COMMAND = "from ncl_bench.cli import main; main()"
TRAIN = "train ncr/digits_vse_infinity --noise-ratio 0.4 --set backbone.embed_size=16 --device cpu --to"
SHORT = "--set method.warmup_epochs=0 --set method.epochs=1 --set batch_size=1000"
CALLS = {
    "evaluate FILE": (COMMAND, "evaluate scores.npy --dataset digits"),
    "evaluate FOLDER": (COMMAND, "evaluate submission"),
    "load_dataset": ("import ncl_bench; ncl_bench.load_dataset('digits', noise_ratio=0.4)", ""),
    "train": (COMMAND, f"{TRAIN} run {SHORT}"),
    "leaderboard add": (COMMAND, "leaderboard add submission --root board"),
}
STARTS = {
    "import ncl_bench": ["-c", "import ncl_bench"],
    "ncl-bench --help": ["-c", COMMAND, "--help"],
    "a training of one epoch": ["-c", COMMAND, *TRAIN.split(), "{run}", *SHORT.split()],
}


def python(tree: Path, folder: Path, *arguments: str) -> str:
    environment = os.environ | {"PYTHONPATH": str(tree), "OMP_NUM_THREADS": "1"}
    command = [sys.executable, *arguments]
    done = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


def write_inputs(folder: Path) -> None:
    """Scores of the test split of digits, and a submission with them."""
    folder.mkdir()
    scores = np.random.default_rng(0).standard_normal((200, 1000), np.float32)
    scores[np.arange(1000) // 5, np.arange(1000)] += 2
    np.save(folder / "scores.npy", scores)
    init = "submission init --method X --dataset digits --scores scores.npy --to submission"
    python(ROOT, folder, "-m", "ncl_bench", *init.split())
    statement = folder / "submission" / "submission.yaml"
    statement.write_text(statement.read_text().replace("FILL-IN", "mine"))


def files_executed(tree: Path, folder: Path) -> list[int]:
    write_inputs(folder)
    said = [
        python(tree, folder, "-c", TRACED, str(tree), call, *rest.split()) for call, rest in CALLS.values()
    ]
    return [int(text.rsplit("files:", 1)[1]) for text in said]


def seconds(tree: Path, folder: Path, start: list[str]) -> float:
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    python(tree, folder, *(part.format(run=tempfile.mkdtemp(dir=folder)) for part in start))
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def main(revision: str = BASE) -> None:
    with tree_of(revision) as (folder, base):
        before, after = files_executed(base, folder / "base"), files_executed(ROOT, folder / "here")
        print(f"| files executed | {revision} | this tree |\n| --- | ---: | ---: |")
        for call, *counts in zip(CALLS, before, after, strict=True):
            print(f"| {call} | {counts[0]} | {counts[1]} |")
        print(f"\n| processor seconds | this tree / {revision} |\n| --- | ---: |")
        for name, start in STARTS.items():
            pairs = [[seconds(tree, folder, start) for tree in (base, ROOT)] for _ in range(TIMES)]
            least = np.min(pairs, axis=0)
            print(f"| {name} | {least[1] / least[0]:.2f} |")


if __name__ == "__main__":
    main(*sys.argv[1:])
