"""CPU seconds of what users wait for, in this tree and in another revision, in turn on one machine.

    python tests/benchmarks/waiting.py REVISION [CALL ...] [--times N]

Each call is a process of its own; user and system time count, and the least of N times. All are scaled to a machine on
which `import torch` takes 3.0 s, which is timed in the same rounds. The other revision is a git worktree in a temporary
folder.
"""

import argparse
import contextlib
import os
import resource
import subprocess
import sys
import tempfile
from pathlib import Path

from inputs import write_scores

ROOT = Path(__file__).parents[2]
ROOMS = ("ncl_bench", "baselines", "leaderboard")
TORCH, SCALE = "import torch", 3.0


def command(*arguments):
    """Python that runs a command of `ncl-bench`."""
    return f"import sys; from ncl_bench.cli import main; sys.argv = {['ncl-bench', *arguments]}; main()"


CALLS = {
    "help": command("--help"),
    "recipes": command("recipes"),
    "datasets": command("datasets"),
    "import train": "import baselines.training.train",
    "import calls": "import baselines.calls",
    "plan": command("sweep", "ncr/digits_vse_infinity", "--plan"),
    "wrong recipe of a table": command("sweep", "--table", "digits", "ncrr", "--plan"),
    "wrong zero-shot recipe": command("score", "--zero-shot", "clip/nosuch", "--to", "FOLDER/scored"),
    "digits": "import ncl_bench; ncl_bench.load_dataset('digits', noise_ratio=0.4)",
    "evaluate": "import ncl_bench; ncl_bench.evaluate('FOLDER/scores.npy', dataset='coco')",
    "load_results": "import leaderboard; leaderboard.load_results()",
    "leaderboard table": command("leaderboard", "table", "--dataset", "pictograms", "--noise", "caption-40"),
    "build --check": command("leaderboard", "build", "--check"),
    "build": command("leaderboard", "build", "--to", "FOLDER/site"),
}


def cpu_seconds(code, tree, status):
    """User and system time of a process that runs this code with the modules of a tree, and ends with this status."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    done = subprocess.run([sys.executable, "-c", code], cwd=tree, capture_output=True, check=False)
    assert done.returncode == status, done.stderr.decode()
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


@contextlib.contextmanager
def worktree(revision, folder):
    path = Path(folder, "base")
    subprocess.run(["git", "worktree", "add", "-q", "--detach", path, revision], cwd=ROOT, check=True)
    try:
        yield path
    finally:
        subprocess.run(["git", "worktree", "remove", "--force", path], cwd=ROOT, check=True)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("revision")
    parser.add_argument("calls", nargs="*", metavar="CALL", help=f"default: all of {', '.join(CALLS)}")
    parser.add_argument("--times", type=int, default=4)
    given = parser.parse_args()
    os.environ["OMP_NUM_THREADS"] = "1"
    found = {}
    with tempfile.TemporaryDirectory() as folder, worktree(given.revision, folder) as base:
        write_scores(Path(folder, "scores.npy"))
        for tree in (base, ROOT):  # as an installation has them
            subprocess.run([sys.executable, "-m", "compileall", "-q", *ROOMS], cwd=tree, check=True)
        for _ in range(given.times):
            for name in (TORCH, *(given.calls or CALLS)):
                for tree in (base, ROOT):
                    code = CALLS.get(name, name).replace("FOLDER", folder)
                    seconds = cpu_seconds(code, tree, 2 if name.startswith("wrong") else 0)
                    found.setdefault(name, {}).setdefault(tree, []).append(seconds)
    least = {name: [min(times) for times in trees.values()] for name, trees in found.items()}
    scale = SCALE / min(least[TORCH])
    print(f"| call | {given.revision} | now |\n| --- | ---: | ---: |")
    for name, seconds in least.items():
        print(f"| {name} | {' | '.join(f'{scale * each:.2f}' for each in seconds)} |")


if __name__ == "__main__":
    main()
