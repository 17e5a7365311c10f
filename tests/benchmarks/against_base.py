"""Time two revisions alternately: a step of each backbone, the evaluation of 5,000 x 25,000, a batch from disk.

    python tests/benchmarks/against_base.py [REVISION] [WORKLOAD ...]

Each side is a process of its own that imports its own tree (the base is a git worktree in a temporary folder) and is
asked for one timing at a time, so that both meet the same machine. Prints a table, and ends with 1 where a median ratio
of seven pairs lies above 1.10.
"""

import contextlib
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np

ROOT = Path(__file__).parents[2]
BASE = "81e59b5"
BACKBONES = ("vse_infinity", "sgr", "saf", "scan", "imram", "vsrn")
WORKLOADS = (*BACKBONES, "evaluate", "read")
PAIRS, LEAST_SECONDS, MOST_RATIO = 7, 0.3, 1.10
BATCH, IMAGES, REGIONS, DIM, WORDS = 16, 2_000, 36, 512, 1_000


def a_step(name: str) -> Callable[[], None]:
    """Forward pass, losses, backward pass and Adam."""
    import torch

    from baselines.backbones import BACKBONES, build_backbone
    from baselines.kit.batches import Batch
    from baselines.kit.losses import mean_triplet

    torch.manual_seed(0)
    torch.set_num_threads(1)
    n = BATCH // 4 if name == "imram" else BATCH
    config = BACKBONES[name].Config(embed_size=256)
    network = build_backbone(name, config, feature_dim=DIM, n_regions=REGIONS, vocabulary_size=WORDS).train()
    lengths = 8 + torch.arange(n) % 13
    tokens = torch.randint(4, WORDS, (n, 20)).masked_fill(torch.arange(20) >= lengths[:, None], 0)
    batch = Batch(torch.rand(n, REGIONS, DIM), torch.full((n,), REGIONS), tokens, lengths, torch.arange(n))
    optimizer = torch.optim.Adam(network.parameters())

    def step() -> None:
        optimizer.zero_grad()
        mean_triplet(network(batch), 0.2).sum().backward()
        optimizer.step()

    return step


def an_evaluation(folder: Path) -> Callable[[], Any]:
    """Every metric of MS-COCO's test split from a matrix on disk."""
    from ncl_bench import evaluate

    return lambda: evaluate(folder / "scores.npy", dataset="coco")


def a_read(folder: Path) -> Callable[[], Any]:
    """Ten random batches of 128 pairs as tensors, from a folder that this side prepared itself."""
    from ncl_bench import load_dataset
    from ncl_bench.cli import main
    from ncl_bench.plugins import load_plugins

    place = Path(tempfile.mkdtemp(dir=folder))
    os.chdir(place)
    files = ["--features", str(folder / "features"), "--captions", str(folder / "captions.csv")]
    sys.argv = ["ncl-bench", "datasets", "new", "pets", *files, "--to", str(place / "data")]
    with contextlib.suppress(SystemExit), contextlib.redirect_stdout(sys.stderr):
        main()
    load_plugins([str(place / "pets.py")])
    train = load_dataset("pets", noise_ratio=0.4, root=place / "data")
    rows = [np.random.default_rng(k).integers(0, len(train), 128) for k in range(10)]
    return lambda: [train.to_torch(batch) for batch in rows]


def serve(workload: str, folder: Path) -> None:
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


def compare(workload: str, trees: list[Path], folder: Path) -> tuple[float, float, float]:
    """Median seconds of both sides, and the median of their ratios."""
    sides = []
    for tree in trees:
        environment = os.environ | {"PYTHONPATH": str(tree), "OMP_NUM_THREADS": "1"}
        command = [sys.executable, __file__, "--serve", workload, str(folder)]
        side = subprocess.Popen(
            command, cwd=folder, env=environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )
        assert side.stdout is not None
        if side.stdout.readline() != "ready\n":
            sys.exit(f"{workload} does not run in {tree}")
        sides.append(side)

    def seconds(side: "subprocess.Popen[str]") -> float:
        assert side.stdin is not None
        assert side.stdout is not None
        print("go", file=side.stdin, flush=True)
        return float(side.stdout.readline())

    pairs = np.array([[seconds(side) for side in sides] for _ in range(PAIRS)])
    for side in sides:
        side.communicate()
    base, change = np.median(pairs, axis=0)
    return base, change, float(np.median(pairs[:, 1] / pairs[:, 0]))


def write_inputs(folder: Path) -> None:
    """Scores of MS-COCO's size, and features and captions of a dataset of one's own."""
    random = np.random.default_rng(0)
    scores = np.lib.format.open_memmap(folder / "scores.npy", "w+", np.float32, (5_000, 25_000))
    for image in range(5_000):
        scores[image] = random.standard_normal(25_000, dtype=np.float32)
        scores[image, 5 * image : 5 * image + 5] += 3
    scores.flush()
    (folder / "features").mkdir()
    rows = ["image,caption,split"]
    for split, n in {"train": IMAGES, "dev": 50, "test": 50}.items():
        ids = [f"{split}{i}.jpg" for i in range(n)]
        np.save(folder / "features" / f"{split}.npy", random.random((n, REGIONS, DIM), dtype=np.float32))
        (folder / "features" / f"{split}_ids.txt").write_text("\n".join(ids) + "\n")
        rows += [f"{image},a caption of w{random.integers(WORDS)} words,{split}" for image in ids]
    (folder / "captions.csv").write_text("\n".join(rows) + "\n")


@contextlib.contextmanager
def tree_of(revision: str) -> Iterator[tuple[Path, Path]]:
    """A temporary folder, and below it the files of a revision."""
    with tempfile.TemporaryDirectory() as made:
        folder, tree = Path(made), Path(made) / "tree"
        git = ["git", "-C", str(ROOT), "worktree"]
        subprocess.run([*git, "add", "--quiet", "--detach", str(tree), revision], check=True)
        try:
            yield folder, tree
        finally:
            subprocess.run([*git, "remove", "--force", str(tree)], check=True)


def main(revision: str = BASE, *chosen: str) -> int:
    """Time this tree against a revision of it."""
    with tree_of(revision) as (folder, base):
        write_inputs(folder)
        found = {name: compare(name, [base, ROOT], folder) for name in chosen or WORKLOADS}
    print(f"| workload | {revision}, s | this tree, s | ratio |\n| --- | ---: | ---: | ---: |")
    for name, (before, after, ratio) in found.items():
        print(f"| {name} | {before:.3f} | {after:.3f} | {ratio:.2f} |")
    return int(any(ratio > MOST_RATIO for _, _, ratio in found.values()))


if __name__ == "__main__":
    if sys.argv[1:2] == ["--serve"]:
        serve(sys.argv[2], Path(sys.argv[3]))
    else:
        sys.exit(main(*sys.argv[1:]))
