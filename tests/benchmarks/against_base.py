"""Time two revisions alternately: a step of each backbone, the evaluation of 5,000 x 25,000, a batch from disk.

    python tests/benchmarks/against_base.py [--pairs N] [REVISION] [WORKLOAD ...]

Each side is a process of its own that imports its own tree (the base is a git worktree in a temporary folder) and is
asked for one timing at a time, so that both meet the same machine. Prints a table, and ends with 1 where a median ratio
of the pairs of timings lies above 1.10.
"""

import argparse
import contextlib
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np
from inputs import WORDS, prepare_images, random_batch, write_images, write_scores

ROOT = Path(__file__).parents[2]
BASE = "81e59b5"
BACKBONES = ("vse_infinity", "sgr", "saf", "scan", "imram", "vsrn")
WORKLOADS = (*BACKBONES, "evaluate", "read")
LEAST_SECONDS, MOST_RATIO = 0.3, 1.10
BATCH, IMAGES, REGIONS, DIM = 16, 2_000, 36, 512


def a_step(name):
    """Forward pass, losses, backward pass and Adam."""
    import torch

    from baselines.backbones import BACKBONES, build_backbone
    from baselines.kit.losses import mean_triplet

    torch.manual_seed(0)
    torch.set_num_threads(1)
    n = BATCH // 4 if name == "imram" else BATCH
    config = BACKBONES[name].Config(embed_size=256)
    network = build_backbone(name, config, feature_dim=DIM, n_regions=REGIONS, vocabulary_size=WORDS).train()
    batch = random_batch(n, REGIONS, DIM, WORDS)
    optimizer = torch.optim.Adam(network.parameters())

    def step():
        optimizer.zero_grad()
        mean_triplet(network.compare(*network.encode(batch)), 0.2).sum().backward()
        optimizer.step()

    return step


def an_evaluation(folder):
    """Every metric of MS-COCO's test split from a matrix on disk."""
    from ncl_bench import evaluate

    return lambda: evaluate(folder / "scores.npy", dataset="coco")


def a_read(folder):
    """Ten random batches of 128 pairs as tensors, from a folder that this side prepared itself."""
    from ncl_bench import load_dataset
    from ncl_bench.plugins import load_plugins

    place = Path(tempfile.mkdtemp(dir=folder))
    load_plugins([prepare_images(folder, place)])
    train = load_dataset("pets", noise_ratio=0.4, root=place / "data")
    rows = [np.random.default_rng(k).integers(0, len(train), 128) for k in range(10)]
    return lambda: [train.to_torch(batch) for batch in rows]


def serve(workload, folder):
    """Print the processor seconds of a call, a mean over some, for each line of standard input."""
    inputs = {"evaluate": an_evaluation, "read": a_read}
    call = inputs[workload](folder) if workload in inputs else a_step(workload)
    call()  # imports, pages and memory are there afterwards
    print("ready", flush=True)
    for _ in sys.stdin:
        begun, calls = time.process_time(), 0
        while calls == 0 or time.process_time() - begun < LEAST_SECONDS:
            call()
            calls += 1
        print((time.process_time() - begun) / calls, flush=True)


def compare(workload, trees, folder, pairs):
    """Median seconds of both sides, and the median of their ratios."""
    sides = []
    for tree in trees:
        environment = os.environ | {"PYTHONPATH": str(tree), "OMP_NUM_THREADS": "1"}
        command = [sys.executable, __file__, "--serve", workload, str(folder)]
        side = subprocess.Popen(
            command, cwd=folder, env=environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )
        if side.stdout.readline() != "ready\n":
            sys.exit(f"{workload} does not run in {tree}")
        sides.append(side)

    def seconds(side):
        print("go", file=side.stdin, flush=True)
        return float(side.stdout.readline())

    found = np.array([[seconds(side) for side in sides] for _ in range(pairs)])
    for side in sides:
        side.communicate()
    base, change = np.median(found, axis=0)
    return base, change, float(np.median(found[:, 1] / found[:, 0]))


@contextlib.contextmanager
def tree_of(revision):
    """A temporary folder, and below it the files of a revision."""
    with tempfile.TemporaryDirectory() as made:
        folder, tree = Path(made), Path(made) / "tree"
        git = ["git", "-C", str(ROOT), "worktree"]
        if subprocess.run([*git, "add", "--quiet", "--detach", str(tree), revision], check=False).returncode:
            sys.exit(f"git has no revision {revision} here")
        try:
            yield folder, tree
        finally:
            subprocess.run([*git, "remove", "--force", str(tree)], check=True)


def main():
    """Time this tree against a revision of it."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("revision", nargs="?", default=BASE, help="base (default: %(default)s)")
    parser.add_argument(
        "workloads", nargs="*", metavar="WORKLOAD", help=", ".join(WORKLOADS) + " (default: all)"
    )
    parser.add_argument("--pairs", type=int, default=7, help="timings of each side (default: %(default)s)")
    asked = parser.parse_args()
    chosen = asked.workloads or WORKLOADS
    if unknown := set(chosen) - set(WORKLOADS):
        parser.error(f"no workload {', '.join(sorted(unknown))}; choose from {', '.join(WORKLOADS)}")
    with tree_of(asked.revision) as (folder, base):
        if "evaluate" in chosen:
            write_scores(folder / "scores.npy")
        if "read" in chosen:
            write_images(folder, IMAGES, captions_per_image=1, regions=REGIONS, dim=DIM)
        found = {name: compare(name, [base, ROOT], folder, asked.pairs) for name in chosen}
    print(f"| workload | {asked.revision}, s | this tree, s | ratio |\n| --- | ---: | ---: | ---: |")
    for name, (before, after, ratio) in found.items():
        print(f"| {name} | {before:.3f} | {after:.3f} | {ratio:.2f} |")
    return int(any(ratio > MOST_RATIO for _, _, ratio in found.values()))


if __name__ == "__main__":
    if sys.argv[1:2] == ["--serve"]:
        serve(sys.argv[2], Path(sys.argv[3]))
    else:
        sys.exit(main())
