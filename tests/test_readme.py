"""What the README says is so."""

import re
from pathlib import Path

import numpy as np
from typer.main import get_command

from baselines.config import find_recipe
from ncl_bench import DATASETS, evaluate
from ncl_bench.cli import app

README = (Path(__file__).parent.parent / "README.md").read_text(encoding="utf-8")


def test_the_loading_example_runs() -> None:
    example = re.findall(r"```python\n(.*?)```", README, re.DOTALL)[0]
    names: dict[str, object] = {}
    exec(example, names)
    assert names["features"].shape == (8, 16, 66)
    assert len(names["tokens"]) == len(names["lengths"]) == 8


def test_guessing_scores_what_it_says() -> None:
    stated = int(re.search(r"about (\d+) is guessing", README)[1])
    random = np.random.default_rng(0)
    sums = [evaluate(random.random((200, 1000)), dataset="digits", intervals=False).r_sum for _ in range(200)]
    assert abs(np.mean(sums) - stated) < 0.5


def test_the_table_of_datasets_is_the_protocol() -> None:
    for spec in DATASETS.values():
        sizes = " / ".join(f"{spec.images[split]:,}" for split in ("train", "dev", "test"))
        assert f"| `{spec.name}` | {sizes} | {spec.captions_per_image} | {spec.noise} |" in README


def test_every_command_exists() -> None:
    known = get_command(app).commands
    commands = re.findall(r"^ncl-bench ([a-z-]+)(?: ([a-z-]+))?", README, re.MULTILINE)
    assert len(commands) >= 10
    for name, sub in commands:
        assert name in known
        below = getattr(known[name], "commands", None)
        assert below is None or not sub or sub in below
    for recipe in re.findall(r"ncl-bench train (\S+)", README):
        assert find_recipe(recipe).is_file()
