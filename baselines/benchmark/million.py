"""Training sets of up to a million pairs: what each further pair takes, in memory and in time.

    python -m baselines.benchmark.million                           62,500, 250,000 and 1,000,000 pairs, InfoNCE
    python -m baselines.benchmark.million --method ncr --pairs 62500 --pairs 250000
    python -m baselines.benchmark.million --table FILE.json         the Markdown table of a result

Every set is a prepared dataset of random images and captions with tiny features, two fifths of whose captions are
moved. VSE-infinity with tiny widths trains on it for one epoch, with all that a run does: noise is drawn, pairs are
divided, dev is evaluated and a checkpoint written. Each training has a process of its own; the sets take turns, round
after round, and times are ratios of one round. The result goes to ``baselines/benchmarks/million/DEVICE.json``, where
what another method took stays; it needs Linux, which says what a process holds.
"""

import argparse
import json
import sys
import threading
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ProcessPoolExecutor
from contextlib import contextmanager
from dataclasses import asdict, dataclass, replace
from multiprocessing import get_context
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory
from typing import Any, ClassVar, NamedTuple

import numpy as np
import torch
from rich.console import Console

from baselines.benchmark.memory import resident_mebibytes
from baselines.benchmark.report import FOLDER, device_name, file_of
from baselines.benchmark.sizes import Sizes
from baselines.benchmark.workloads import make_dataset
from baselines.engine.progress import TrainingProgress
from baselines.engine.recipe import Recipe
from baselines.engine.run_folder import RunFolder, TrainingJob
from baselines.engine.train import Trainer
from baselines.methods import METHODS
from ncl_bench.data import DATASETS, register
from ncl_bench.data.paired import PairedDataset
from ncl_bench.data.prepare import prepare
from ncl_bench.data.spec import DatasetSpec, Origin
from ncl_bench.errors import NclBenchError, unknown_name
from ncl_bench.files import write_text

PAIRS, ROUNDS = (62_500, 250_000, 1_000_000), 3
WARM_PAIRS, EVALUATED = 2_000, 100
TINY = Sizes(regions=2, feature_dim=8, vocabulary=2_000, shortest=4, longest=8, captions_per_image=1)
BACKBONE = {"name": "vse_infinity", "embed_size": 8, "word_dim": 8}
BATCH, NOISE_RATIO = 128, 0.4
EVERY = 0.005
"""Seconds between two looks at the memory of a training."""
NOWHERE = Origin(
    summary="Random numbers.",
    homepage="none",
    obtain=(),
    folders=(),
    prefixes={},
    files=(),
    extra_files=(),
    dtypes=("float32",),
    ids_span_splits=True,
    licence="none",
    licence_id="other",
    terms="They mean nothing.",
    noise="Drawn.",
    upload=(),
    upload_reason="they mean nothing",
    citation="",
)


class RandomPairs(DatasetSpec):
    """Images and captions without meaning, one caption each; they are written as a prepared dataset."""

    embedded: ClassVar[bool] = True

    def load_embedded(self, split: str, language: str | None, tokenizer: str | None) -> PairedDataset:
        """One split, in memory."""
        n = self.images[split]
        return replace(
            make_dataset(TINY, n, split),
            name=self.name,
            image_ids=np.array([f"{split}/{row:09}" for row in range(n)]),
            captions=[f"caption {row:,} of this set" for row in range(n)],
            fingerprint="0" * 64,
        )


def random_pairs(n: int) -> RandomPairs:
    """The dataset with so many training pairs, which is known by its name from now on."""
    spec = RandomPairs(
        name=f"random_{n}",
        title="random pairs",
        images={"train": n, "dev": EVALUATED, "test": EVALUATED},
        captions_per_image=1,
        n_regions=TINY.regions,
        feature_dim=TINY.feature_dim,
        noise="synthetic",
        protocols=(str(EVALUATED),),
        languages=("en",),
        tokenizers={"en": "word"},
        origin=NOWHERE,
    )
    if spec.name not in DATASETS:
        register(spec)
    return spec


class Found(NamedTuple):
    """What one training took.

    Attributes:
        anonymous: peak of the memory that belongs to the process alone, beyond that of a tiny set, in MiB.
        mapped: most pages of mapped files in memory, beyond those of a tiny set, in MiB.
        opening: seconds of the processor until the data are open, noise is drawn and the networks are built.
        training: seconds of the processor of the run.
    """

    anonymous: float
    mapped: float
    opening: float
    training: float


@dataclass(frozen=True)
class SetCost:
    """What a training set takes.

    Attributes:
        method: its title.
        pairs: of the training set.
        anonymous: peak of the memory that belongs to the process alone, beyond that of a tiny set, in MiB.
        mapped: most pages of mapped files in memory, likewise; the system takes them back when it needs memory.
        opening: seconds per pair until training begins, smallest set = 1; median over the rounds.
        training: seconds per pair of the epoch, likewise.
        spread: of the latter, smallest and largest of a round.
        rounds: trainings on this set.
    """

    method: str
    pairs: int
    anonymous: float
    mapped: float
    opening: float
    training: float
    spread: tuple[float, float]
    rounds: int


class Peaks:
    """Largest anonymous and mapped memory of this process, looked at again and again in a thread."""

    def __init__(self) -> None:
        self.anonymous = self.mapped = 0.0

    def look(self) -> None:
        """Look once."""
        self.anonymous = max(self.anonymous, resident_mebibytes("RssAnon"))
        self.mapped = max(self.mapped, resident_mebibytes("RssFile") + resident_mebibytes("RssShmem"))

    @contextmanager
    def watched(self) -> Any:
        """Look all the time."""
        ended = threading.Event()

        def watch() -> None:
            while not ended.wait(EVERY):
                self.look()

        watcher = threading.Thread(target=watch, daemon=True)
        watcher.start()
        try:
            yield
        finally:
            ended.set()
            watcher.join()


def training(method: str, n_pairs: int, root: Path) -> Found:
    """Train for an epoch, in this process.

    Args:
        method: its name.
        n_pairs: of the training set.
        root: where the prepared datasets are, that with :data:`WARM_PAIRS` among them.
    """
    torch.set_num_threads(1)
    _epoch(method, WARM_PAIRS, root)  # what is imported and built once
    before, peaks = Peaks(), Peaks()
    before.look()
    with peaks.watched():
        opening, run = _epoch(method, n_pairs, root)
    anonymous, mapped = peaks.anonymous - before.anonymous, peaks.mapped - before.mapped
    return Found(anonymous, mapped, opening, run)


def _epoch(method: str, n_pairs: int, root: Path) -> tuple[float, float]:
    """Seconds of the processor before and in the run."""
    dataset, fields = random_pairs(n_pairs).name, METHODS[method].Config.model_fields
    schedule = {name: n for name, n in {"epochs": 1, "warmup_epochs": 0}.items() if name in fields}
    recipe = {
        "dataset": dataset,
        "batch_size": BATCH,
        "backbone": BACKBONE,
        "method": {"name": method, **schedule},
    }
    job = TrainingJob(Recipe.from_dict(recipe), noise_ratio=NOISE_RATIO, root=root)
    with TemporaryDirectory() as folder:
        begun = time.process_time()
        trainer = Trainer(job, RunFolder(Path(folder)), "cpu")
        opened = time.process_time()
        trainer.run(TrainingProgress(len(trainer.plans), Console(quiet=True)))
        return opened - begun, time.process_time() - opened


def measured(
    method: str, pairs: Sequence[int], rounds: int, advance: Callable[[str], None] = lambda done: None
) -> list[SetCost]:
    """Train on every set in turn, round after round, each time in a fresh process.

    Args:
        method: its name.
        pairs: of the sets.
        rounds: trainings on each.
        advance: called with what is done.
    """
    server = get_context("forkserver")
    server.set_forkserver_preload([__name__])  # imported once for all
    found: dict[int, list[Found]] = {n: [] for n in sorted(pairs)}
    with TemporaryDirectory() as folder:
        for n in (WARM_PAIRS, *found):
            prepare(random_pairs(n).name, None, Path(folder))
        for number in range(1, rounds + 1):
            for n, trainings in found.items():
                with ProcessPoolExecutor(1, server) as fresh:
                    trainings.append(fresh.submit(training, method, n, Path(folder)).result())
                advance(f"round {number} of {rounds}: {n:,} pairs")
    return _costs(METHODS[method].title, found)


def _costs(title: str, found: dict[int, list[Found]]) -> list[SetCost]:
    smallest, costs = min(found), []
    for n, trainings in found.items():
        beside = list(zip(trainings, found[smallest], strict=True))
        times = [own.training / first.training * smallest / n for own, first in beside]
        cost = SetCost(
            method=title,
            pairs=n,
            anonymous=max(own.anonymous for own in trainings),
            mapped=max(own.mapped for own in trainings),
            opening=median(own.opening / first.opening * smallest / n for own, first in beside),
            training=median(times),
            spread=(min(times), max(times)),
            rounds=len(trainings),
        )
        costs.append(cost)
    return costs


def read_costs(path: Path) -> dict[str, Any]:
    """A result of this command.

    Raises:
        NclBenchError: no such file, or not written by it.
    """
    try:
        content: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
        content["sets"] = [SetCost(**{**each, "spread": tuple(each["spread"])}) for each in content["sets"]]
        content["device"], content["torch"]
    except (OSError, ValueError, KeyError, TypeError):
        raise NclBenchError(
            f"{path} is no result of python -m baselines.benchmark.million; give its JSON file"
        ) from None
    return content


def markdown(content: dict[str, Any]) -> str:
    """The table of a result."""
    lines = [
        f"Measured on {content['device']} (1 thread, torch {content['torch']}): an epoch of VSE-infinity with a joint "
        f"space of {BACKBONE['embed_size']} on {TINY.regions} regions x {TINY.feature_dim}, captions of "
        f"{TINY.shortest} to {TINY.longest} tokens, batch {BATCH}, {NOISE_RATIO:.0%} of the captions moved.",
        "",
        "| method | pairs | memory of its own, MiB | bytes per further pair | mapped files, MiB | time per pair | "
        "rounds | opening, time per pair |",
        "| --- | ---: | ---: | ---: | ---: | ---: | ---: | ---: |",
    ]
    first: SetCost | None = None
    for each in content["sets"]:
        if first is None or each.method != first.method:
            first = each
        further = each.pairs - first.pairs
        grown = f"{2**20 * (each.anonymous - first.anonymous) / further:.0f}" if further else ""
        low, high = each.spread
        cells = (
            each.method,
            f"{each.pairs:,}",
            f"{each.anonymous:.0f}",
            grown,
            f"{each.mapped:.0f}",
            f"{each.training:.2f}",
            f"{low:.2f} to {high:.2f} of {each.rounds}",
            f"{each.opening:.2f}",
        )
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines) + "\n"


def benchmark(method: str, pairs: Sequence[int], rounds: int, to: Path | None) -> Path:
    """Measure and write the result, and its table beside it; the file.

    Args:
        method: its name.
        pairs: of the sets.
        rounds: trainings on each.
        to: the file; that of the device by default. What it says of other methods stays.

    Raises:
        NclBenchError: there is no such method, a number is too small, or the system does not say what is needed.
    """
    if method not in METHODS:
        raise NclBenchError(unknown_name("method", method, METHODS))
    if min(pairs) < BATCH or rounds < 1:
        raise NclBenchError(
            f"--pairs is at least {BATCH}, one batch, and --rounds at least 1; give larger numbers"
        )
    if not Path("/proc/self/status").is_file():
        raise NclBenchError("this system does not say what a process holds in memory; measure on Linux")
    name = device_name(torch.device("cpu"))
    target = to or FOLDER / "million" / file_of(name).name
    others = read_costs(target)["sets"] if target.exists() else []
    console = Console(stderr=True)
    costs = measured(method, pairs, rounds, lambda done: console.print(done))
    title = METHODS[method].title
    sets = [each for each in others if each.method != title] + costs
    content = {"device": name, "torch": str(torch.__version__), "sets": sets}
    written = content | {"sets": [asdict(each) for each in sets]}
    write_text(target, json.dumps(written, indent=1, allow_nan=False) + "\n")
    write_text(target.with_suffix(".md"), markdown(content))
    return target


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command; the exit code."""
    parser = argparse.ArgumentParser(
        prog="python -m baselines.benchmark.million", description=__doc__.splitlines()[0]
    )
    parser.add_argument("--method", default="info_nce", help="name of the method; info_nce by default")
    parser.add_argument(
        "--pairs", type=int, action="append", help="of a training set; may be given several times"
    )
    parser.add_argument("--rounds", type=int, default=ROUNDS, help=f"trainings on each set; default {ROUNDS}")
    parser.add_argument(
        "--to", type=Path, help="the JSON file; baselines/benchmarks/million/DEVICE.json by default"
    )
    parser.add_argument("--table", type=Path, metavar="FILE.json", help="print the table of a result")
    options = parser.parse_args(arguments)
    try:
        path = options.table or benchmark(options.method, options.pairs or PAIRS, options.rounds, options.to)
        print(markdown(read_costs(path)), end="")
    except NclBenchError as error:
        print(error, file=sys.stderr)
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main())
