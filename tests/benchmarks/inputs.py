"""What several benchmarks read: a batch, scores of MS-COCO's size, and a dataset of one's own."""

import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from baselines.kit.batches import Batch

WORDS = 1_000


def random_batch(n: int, regions: int, dim: int, words: int) -> "Batch":
    """Pairs with captions of 8 to 20 words."""
    import torch

    from baselines.kit.batches import Batch

    lengths = 8 + torch.arange(n) % 13
    tokens = torch.randint(4, words, (n, 20)).masked_fill(torch.arange(20) >= lengths[:, None], 0)
    return Batch(torch.rand(n, regions, dim), torch.full((n,), regions), tokens, lengths, torch.arange(n))


def write_scores(path: Path) -> None:
    """Similarities of 5,000 images and 25,000 captions, float32, the true ones larger."""
    random = np.random.default_rng(0)
    scores = np.lib.format.open_memmap(path, "w+", np.float32, (5_000, 25_000))
    for image in range(5_000):
        scores[image] = random.standard_normal(25_000, dtype=np.float32)
        scores[image, 5 * image : 5 * image + 5] += 3
    scores.flush()


def write_images(folder: Path, n_images: int, captions_per_image: int, regions: int, dim: int) -> None:
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
            (folder / "features" / f"{split}_ids.txt").write_text("\n".join(ids) + "\n", encoding="utf-8")
            for image in ids:
                for word in random.integers(WORDS, size=captions_per_image):
                    print(f"{image},a caption of about the usual length with w{word},{split}", file=table)


def prepare_images(folder: Path, place: Path) -> str:
    """Make them the dataset ``pets`` below ``place / "data"``; returns the plugin that registers it."""
    files = ["--features", str(folder / "features"), "--captions", str(folder / "captions.csv")]
    command = ["datasets", "new", "pets", *files, "--to", str(place / "data")]
    program = "from ncl_bench.cli import main; main()"
    subprocess.run(
        [sys.executable, "-c", program, *command], cwd=place, stdout=subprocess.DEVNULL, check=True
    )
    return str(place / "pets.py")
