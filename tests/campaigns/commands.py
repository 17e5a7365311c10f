"""Every command that writes, on inputs small enough to run it often, and in a process that can be stopped."""

import hashlib
import json
import os
import shutil
import signal
import tempfile
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from multiprocessing.synchronize import Event
from pathlib import Path
from typing import Any

import pytest
import torch
import yaml
from support import few_digits, forked, miniatures
from support.drawings import draw

from ncl_bench.data import DATASETS

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
    "search": {"method.learning_rate": {"low": 0.0001, "high": 0.001, "log": True}},
}
COMMANDS = {
    "prepare": "prepare flickr30k --from download --to data --tokenizer word --tokenizer bpe",
    "prepare digits": "prepare digits --to data",
    "features": "features photos --batch-size 4 --pca 8 --workers 2 --device cpu --to features",
    "noise make": "noise make digits --ratio 0.4 --to noise.npy",
    "submission init": "submission init --method X --dataset digits --to submissions/x",
    "train": "train recipe.yaml --noise-ratio 0.4 --device cpu --to runs/a",
    "plot": "plot runs/a",
    "sweep": "sweep swept.yaml --noise caption-40 --seed 0 --seed 1 --jobs 1 --device cpu --to sweep",
    "tune": "tune swept.yaml --noise caption-40 --trials 2 --jobs 1 --device cpu --to tuning",
    "datasets new": "datasets new mine pairs.csv --images photos --dev 5 --test 5 --device cpu --to data",
    "audit": "audit pairs.csv --images photos --device cpu --to audited",
    "audit apply": "audit apply audited --threshold 0.5 --yes --to cleaned",
    "score": "score runs/a --device cpu --to submissions/a",
    "evaluate": "evaluate submissions/a --plot --examples 5",
    "leaderboard add": "leaderboard add submissions/a --root board",
    "leaderboard build": "leaderboard build --root board --to board/site --tables --no-published",
}
AFTER = {
    "audit apply": "audit",
    "plot": "train",
    "score": "train",
    "evaluate": "score",
    "leaderboard add": "evaluate",
    "leaderboard build": "leaderboard add",
}
"""The command whose result each one reads."""
ONCE = ("noise make", "submission init", "score", "leaderboard add")
"""Commands that refuse to be repeated where their result exists."""
VOLATILE = ("seconds", "peak_memory_mb")
"""Measured anew by every evaluation, so not the same bytes twice."""
LIMIT = 300
"""Seconds after which a command hangs."""


@dataclass(frozen=True)
class Ended:
    """How a command ended: its exit code (minus a signal's number), its seconds, and both streams."""

    code: int
    seconds: float
    output: str


def write_inputs(folder: Path) -> None:
    """What the first commands read."""
    folder.mkdir(parents=True)
    miniatures.make_scan(folder / "download", "flickr30k")
    draw(folder / "photos", 60)
    names = sorted(path.name for path in (folder / "photos").iterdir())
    for name in names:  # what is computed of a picture is found again by its time
        os.utime(folder / "photos" / name, (1, 1))
    rows = "".join(f"{name},the drawing of number {n}\n" for n, name in enumerate(names))
    (folder / "pairs.csv").write_text(f"image,caption\n{rows}")
    for name, recipe in (("recipe", RECIPE), ("swept", SWEPT)):
        (folder / f"{name}.yaml").write_text(yaml.safe_dump(recipe))


def run(
    folder: Path, command: str, stop: str | None = None, delay: float = 0.0, largest_file: int | None = None
) -> Ended:
    """Run one of the commands.

    Args:
        folder: to run in.
        command: its name.
        stop: a signal to send, such as ``SIGKILL``; SIGINT goes to the whole group, as from a terminal.
        delay: seconds before that.
        largest_file: bytes after which writing fails, as on a full disk.
    """
    log, begun = folder.with_name(f"{folder.name}.log"), forked.context.Event()
    process = forked.process(_child, folder, COMMANDS[command].split(), log, largest_file, begun)
    process.start()
    assert process.pid is not None
    assert begun.wait(LIMIT)
    start = time.monotonic()
    if stop is not None:
        time.sleep(delay)
        send = os.killpg if stop == "SIGINT" else os.kill
        with suppress(ProcessLookupError):
            send(process.pid, getattr(signal, stop))
    process.join(LIMIT)
    assert process.exitcode is not None, f"{command} takes more than {LIMIT} seconds"
    return Ended(process.exitcode, time.monotonic() - start, log.read_text(errors="replace"))


def _child(folder: Path, arguments: list[str], log: Path, largest_file: int | None, begun: Event) -> None:
    os.setsid()
    os.chdir(folder)
    output = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
    for stream in (1, 2):
        os.dup2(output, stream)
    tempfile.tempdir = os.environ["TMPDIR"] = str(folder.parent)
    signal.signal(signal.SIGINT, signal.default_int_handler)
    if largest_file is not None:
        import resource

        signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
        resource.setrlimit(resource.RLIMIT_FSIZE, (largest_file, largest_file))
    begun.set()
    run_here(arguments)


def run_here(arguments: list[str]) -> None:
    """Run a command line in this process, on datasets of a few images and a thousand training pairs."""
    DATASETS.data.update(miniatures.SPECS)
    few_digits.run_command(arguments)


class World:
    """Folders in which everything that a command needs is done, made once and copied."""

    def __init__(self, place: Path) -> None:
        self._place = place
        self._undisturbed: dict[str, tuple[dict[str, str], float]] = {}
        write_inputs(place / "inputs")

    def fresh(self, command: str, name: str) -> Path:
        """A new folder in which a command can run."""
        needed = AFTER.get(command)
        if needed:
            self.undisturbed(needed)
        source = self._place / (f"undisturbed {needed}" if needed else "inputs")
        return Path(shutil.copytree(source, self._place / f"{command} {name}", symlinks=True))

    def undisturbed(self, command: str) -> tuple[dict[str, str], float]:
        """What a command leaves when nobody stops it, and how many seconds it takes."""
        if command not in self._undisturbed:
            folder = self.fresh(command, "alone").rename(self._place / f"undisturbed {command}")
            ended = run(folder, command)
            assert ended.code == 0, ended.output
            self._undisturbed[command] = digest(folder), ended.seconds
        return self._undisturbed[command]


@pytest.fixture(scope="session")
def world(tmp_path_factory: pytest.TempPathFactory) -> World:
    """One for all tests of a session."""
    return World(tmp_path_factory.mktemp("world"))


def digest(folder: Path) -> dict[str, str]:
    """sha256 of every file by path, and every folder, without locks and what is logged with the time.

    A checkpoint counts by its tensors: pickling writes equal objects in different bytes if they are the same object in
    one process and not in the other.
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
    if path.suffix == ".pt":
        state: Callable[[str, Any], dict[str, object]] = few_digits.flat
        return repr(state("state", torch.load(path, weights_only=True))).encode()
    if path.name == "result.json" and path.parent.parent.name == "submissions":
        report = json.loads(path.read_bytes())
        return json.dumps({key: report[key] for key in report if key not in VOLATILE}).encode()
    if path.name == "kept.json":  # it names files absolutely
        kept = json.loads(path.read_bytes())
        return json.dumps(
            {key: kept[key] for key in kept if key not in ("path", "images", "features")}
        ).encode()
    return path.read_bytes()
