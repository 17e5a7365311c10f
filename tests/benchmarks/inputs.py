"""What several benchmarks read: a batch, scores of MS-COCO's size, and a dataset of one's own."""

import json
import subprocess
import sys
from pathlib import Path

import numpy as np

WORDS = 1_000


def in_own_process(module, *arguments):
    """Run a benchmark's module in a process of its own; returns what it prints as JSON."""
    command = [sys.executable, "-m", f"benchmarks.{module}", *map(str, arguments)]
    tests = Path(__file__).parents[1]
    ran = subprocess.run(command, cwd=tests, capture_output=True, text=True, check=False)
    assert ran.returncode == 0, ran.stderr
    return json.loads(ran.stdout)


def random_batch(n, regions, dim, words):
    """Pairs with captions of 8 to 20 words."""
    import torch

    from baselines.kit.batches import Batch

    lengths = 8 + torch.arange(n) % 13
    tokens = torch.randint(4, words, (n, 20)).masked_fill(torch.arange(20) >= lengths[:, None], 0)
    return Batch(torch.rand(n, regions, dim), torch.full((n,), regions), tokens, lengths, torch.arange(n))


def write_scores(path):
    """Similarities of 5,000 images and 25,000 captions, float32, the true ones larger."""
    random = np.random.default_rng(0)
    scores = np.lib.format.open_memmap(path, "w+", np.float32, (5_000, 25_000))
    for image in range(5_000):
        scores[image] = random.standard_normal(25_000, dtype=np.float32)
        scores[image, 5 * image : 5 * image + 5] += 3
    scores.flush()


def write_images(folder, n_images, captions_per_image, regions, dim):
    """Random features of every split, and a table of captions, as ``datasets new`` reads them."""
    random = np.random.default_rng(0)
    (folder / "features").mkdir(parents=True)
    with (folder / "captions.csv").open("w", encoding="utf-8") as table:
        print("image,caption,split", file=table)
        for split, n in {"train": n_images, "dev": 50, "test": 50}.items():
            ids = [f"{split}{i}.jpg" for i in range(n)]
            features = np.lib.format.open_memmap(
                folder / "features" / f"{split}.npy", "w+", np.float32, (n, regions, dim)
            )
            for image in range(n):
                features[image] = random.random((regions, dim), dtype=np.float32)
            (folder / "features" / f"{split}_ids.txt").write_text("\n".join(ids) + "\n", "utf-8")
            for image in ids:
                for word in random.integers(WORDS, size=captions_per_image):
                    print(f"{image},a caption of about the usual length with w{word},{split}", file=table)


def prepare_images(folder, place):
    """Make them the dataset ``pets`` below ``place / "data"``; returns the plugin that registers it."""
    files = ["--features", str(folder / "features"), "--captions", str(folder / "captions.csv")]
    command = ["datasets", "new", "pets", *files, "--to", str(place / "data")]
    program = "from ncl_bench.cli import main; main()"
    subprocess.run(
        [sys.executable, "-c", program, *command], cwd=place, stdout=subprocess.DEVNULL, check=True
    )
    return str(place / "pets.py")
