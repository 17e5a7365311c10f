"""Tiny inputs for every command that writes, and what each command must leave behind."""

import hashlib
import json
import shutil
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

RECIPE = {
    "dataset": "digits",
    "batch_size": 100,
    "backbone": {"name": "vse_infinity", "embed_size": 16, "word_dim": 8},
    "method": {"name": "ncr", "warmup_epochs": 1, "epochs": 1, "learning_rate": 0.001},
}
SWEPT = {
    "dataset": "digits",
    "batch_size": 1000,
    "backbone": {"name": "vse_infinity", "embed_size": 8, "word_dim": 4},
    "method": {"name": "info_nce", "epochs": 1},
}
VOLATILE = ("seconds", "peak_memory_mb")
"""Measured anew by every evaluation, so not the same bytes twice."""


@dataclass(frozen=True)
class Command:
    """A command line whose result depends on its inputs alone.

    Attributes:
        arguments: relative to its working folder.
        needs: commands whose results it reads.
    """

    arguments: tuple[str, ...]
    needs: tuple[str, ...] = ()


COMMANDS = {
    "prepare": Command(
        (
            "prepare",
            "flickr30k",
            "--from",
            "download",
            "--to",
            "data",
            "--tokenizer",
            "word",
            "--tokenizer",
            "bpe",
        )
    ),
    "prepare digits": Command(("prepare", "digits", "--to", "data")),
    "noise make": Command(("noise", "make", "digits", "--ratio", "0.4", "--to", "noise.npy")),
    "submission init": Command(
        ("submission", "init", "--method", "X", "--dataset", "digits", "--to", "submissions/x")
    ),
    "train": Command(("train", "recipe.yaml", "--noise-ratio", "0.4", "--device", "cpu", "--to", "runs/a")),
    "plot": Command(("plot", "runs/a"), ("train",)),
    "sweep": Command(
        (
            "sweep",
            "swept.yaml",
            "--noise",
            "caption-40",
            "--seed",
            "0",
            "--seed",
            "1",
            "--jobs",
            "1",
            "--device",
            "cpu",
            "--to",
            "sweep",
        )
    ),
    "score": Command(("score", "runs/a", "--device", "cpu", "--to", "submissions/a"), ("train",)),
    "evaluate": Command(("evaluate", "submissions/a", "--plot", "--examples", "5"), ("train", "score")),
    "leaderboard add": Command(
        ("leaderboard", "add", "submissions/a", "--root", "board"), ("train", "score", "evaluate")
    ),
    "leaderboard build": Command(
        ("leaderboard", "build", "--root", "board", "--to", "board/site", "--tables", "--no-published"),
        ("train", "score", "evaluate", "leaderboard add"),
    ),
}
REFUSED_TWICE = ("noise make", "submission init", "score", "leaderboard add")
"""Commands that may be done once only: where the result stands, the same command says so."""


def make_small() -> None:
    """Published datasets of a few images, in this process alone."""
    from support import miniatures

    from ncl_bench.data import DATASETS

    DATASETS.update(miniatures.SPECS)


def train_on_few() -> None:
    """Digits of a thousand training pairs, made beforehand, in this process alone."""
    import numpy as np

    import baselines.engine.job
    from ncl_bench.data import DATASETS, load_dataset

    for split in ("train", "dev", "test"):
        for language in DATASETS["digits"].languages:
            load_dataset("digits", split=split, language=language)

    def load(name: str, **options: Any) -> Any:
        dataset = load_dataset(name, **options)
        return dataset.subset(np.arange(1000)) if options["split"] == "train" else dataset

    baselines.engine.job.load_dataset = load  # type: ignore[attr-defined]


def write_inputs(folder: Path) -> None:
    """What the first commands read."""
    from support import miniatures

    folder.mkdir(parents=True)
    miniatures.make_scan(folder / "download", "flickr30k")
    (folder / "recipe.yaml").write_text(yaml.safe_dump(RECIPE))
    (folder / "swept.yaml").write_text(yaml.safe_dump(SWEPT))


class World:
    """Working folders in which everything that a command needs is done, made once and copied."""

    def __init__(self, place: Path, run: Callable[[Path, list[str]], Any]) -> None:
        self.place, self._run = place, run
        self._results: dict[str, dict[str, str]] = {}
        self._seconds: dict[str, float] = {}
        write_inputs(place / "inputs")

    def fresh(self, command: str, name: str) -> Path:
        """A new folder in which a command can run."""
        source = self.place / "inputs"
        for needed in COMMANDS[command].needs[-1:]:
            self.undisturbed(needed)
            source = self.place / f"undisturbed {needed}"
        folder = self.place / name
        shutil.copytree(source, folder, symlinks=True)
        return folder

    def undisturbed(self, command: str) -> tuple[dict[str, str], float]:
        """What a command leaves when nobody stops it, and how many seconds it takes."""
        if command not in self._results:
            folder = self.fresh(command, f"undisturbed {command}")
            ended = self._run(folder, list(COMMANDS[command].arguments))
            assert ended.code == 0, ended.output
            self._results[command], self._seconds[command] = digest(folder), ended.seconds
        return self._results[command], self._seconds[command]


def digest(folder: Path) -> dict[str, str]:
    """sha256 of every file by path, and every folder; locks, and what is measured or logged with the
    time, are left out.

    A checkpoint counts by its content, bit by bit: pickling writes equal objects in different bytes if they are the
    same object in one process and not in the other.
    """
    found = {}
    for path in sorted(folder.rglob("*")):
        name = path.relative_to(folder).as_posix()
        if "/tensorboard/" in name or path.suffix == ".lock":
            continue
        if path.suffix == ".pt":  # its name ends in a hash of its bytes
            name = name[: name.index(".", name.index("epoch-"))]
        found[name] = hashlib.sha256(_lasting(path)).hexdigest() if path.is_file() else "folder"
    return found


def _lasting(path: Path) -> bytes:
    content = path.read_bytes()
    if path.suffix == ".pt":
        import torch

        content = repr(_flat(torch.load(path, weights_only=True))).encode()
    if path.name == "result.json" and path.parent.parent.name == "submissions":
        report = json.loads(content)
        content = json.dumps({key: report[key] for key in report if key not in VOLATILE}).encode()
    return content


def _flat(value: Any) -> Any:
    if hasattr(value, "numpy"):
        return value.dtype, tuple(value.shape), hashlib.sha256(value.numpy().tobytes()).hexdigest()
    if isinstance(value, dict):
        return [(key, _flat(child)) for key, child in value.items()]
    return [_flat(child) for child in value] if isinstance(value, list | tuple) else value
