"""A run folder: what was asked for, what came out, and which file holds what.

``run.json``            the recipe, noise, seed, dataset fingerprint and vocabulary; a run resumes only what it says;
                        and on which torch and device, and with which plugins it was trained, which may change
``checkpoints/``        the resumable state, last two
``best.safetensors``    weights of the networks chosen on dev
``history.json``        one entry per epoch: loss, dev recalls, diagnosis
``training.json``       written once, when training has ended or weights were imported
``tensorboard/``        the same curves for TensorBoard
"""

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, TypeVar

from pydantic import Field, TypeAdapter, ValidationError

from baselines.engine.measures import Epoch
from baselines.engine.recipe import Recipe
from ncl_bench.data.encoding import Encoding
from ncl_bench.errors import RecipeError, TrainingError, first_problem
from ncl_bench.files import write_text
from ncl_bench.noise.draw import NoiseRecord
from ncl_bench.plugins import loaded
from ncl_bench.precision import Precision
from ncl_bench.schema import Record

OUTCOME_FILES = ("training.json", "result.json")
"""What a finished training writes, now and in earlier versions."""

Content = TypeVar("Content")


class Machine(Record):
    """On what a run was trained.

    Attributes:
        torch: its version.
        device: name of the GPU, or ``CPU, 2 threads``.
        block_bytes: that the temporary tensors of one block of comparisons may take, see
            :func:`baselines.backbones.pairwise.memory_budget`; None in runs of earlier versions.
    """

    torch: str
    device: str
    block_bytes: int | None = None


class PluginFile(Record):
    """Code from outside that took part in a training.

    Attributes:
        name: of the file or module.
        sha256: of the file.
    """

    name: str
    sha256: str


class Imported(Record):
    """Where weights come from that were trained elsewhere.

    Attributes:
        file: name of the checkpoint.
        sha256: of the file.
        seed_known: whether the record's seed is that of the training; it is 0 otherwise.
        selection: split on which the checkpoint was chosen.
    """

    file: str
    sha256: str
    seed_known: bool
    selection: Literal["dev", "test", "none"]


class Run(Record):
    """``run.json``: what was asked for, and with what it was trained.

    Attributes:
        recipe: what is trained on what.
        seed: of the training.
        precision: arithmetic of the networks.
        fingerprint: of the training split before noise.
        vocabulary: sha256 of the words behind the token ids; None in runs that recorded none.
        encoding: how the features were made of a user's own images; None for those of others.
        noise: of the training split, without its source.
        settings: how the recipe differs from the one that was named.
        pretrained_encoder: what the networks began with, see ``Backbone.pretrained_encoder``.
        trained_on: every machine, in order; None where it was not recorded, and for imported weights.
        plugins: every content of every plugin, in order.
        imported: where the weights come from; None where they were trained here.
    """

    recipe: Recipe
    seed: int
    precision: Precision
    fingerprint: str
    vocabulary: str | None = None
    encoding: Encoding | None = None
    noise: NoiseRecord
    settings: dict[str, Any] = Field(default_factory=dict)
    pretrained_encoder: str = ""
    trained_on: tuple[Machine, ...] | None = None
    plugins: tuple[PluginFile, ...] = ()
    imported: Imported | None = None

    def identity(self) -> dict[str, Any]:
        """What must be equal for a run to resume, causes before what follows from them."""
        names = ("recipe", "seed", "precision", "fingerprint", "vocabulary", "noise", "pretrained_encoder")
        content = self.model_dump(mode="json")
        return {name: content[name] for name in names}


class Outcome(Record):
    """``training.json``, written once, when a training has ended or weights are imported.

    Attributes:
        epochs: of the run; 0 for imported weights.
        best_epoch: the one chosen on dev, from 0.
        dev: its recalls and ``r_sum``; empty for imported weights.
        steps: of each network; empty in runs of earlier versions.
        pairs_seen: captions that each network encoded in training, with or without gradient; mean of the networks.
        cost: seconds that the epochs took, over what as many steps of the mean triplet take on one network of the
            backbone, timed in between; None where the recipe gives no number of steps.
        best_sha256: of ``best.safetensors``; None in runs of earlier versions.
    """

    epochs: int = 0
    best_epoch: int = 0
    dev: dict[str, float] = Field(default_factory=dict)
    steps: tuple[int, ...] = ()
    pairs_seen: float | None = None
    cost: float | None = None
    best_sha256: str | None = None


_RUN, _HISTORY, _OUTCOME = TypeAdapter(Run), TypeAdapter(list[Epoch]), TypeAdapter(Outcome)


@dataclass(frozen=True)
class RunFolder:
    """The files of one run."""

    path: Path

    @property
    def checkpoints(self) -> Path:
        """Folder of the resumable states."""
        return self.path / "checkpoints"

    @property
    def best(self) -> Path:
        """Weights of the networks chosen on dev."""
        return self.path / "best.safetensors"

    @property
    def tensorboard(self) -> Path:
        """Folder of the event files."""
        return self.path / "tensorboard"

    @property
    def run_file(self) -> Path:
        """``run.json``."""
        return self.path / "run.json"

    @property
    def finished(self) -> bool:
        """Whether the training has ended."""
        return any((self.path / name).is_file() for name in OUTCOME_FILES)

    def claim(self, wanted: Run) -> None:
        """Make the folder this run's, or check that it already is.

        Raises:
            TrainingError: the folder holds something else, or another run.
        """
        if self.run_file.is_file():
            self._compare(self.read_run(), wanted)
        elif self.path.exists() and (not self.path.is_dir() or any(self.path.iterdir())):
            raise TrainingError(f"{self.path} exists and is no training run; choose a new folder with --to")
        else:
            self.write_run(wanted)

    def add_machine(self, machine: Machine, *, goes_on: bool) -> None:
        """Say in ``run.json`` on which torch and device the run is trained from here on.

        Args:
            machine: of :func:`baselines.engine.devices.machine_of`.
            goes_on: epochs were trained before. Where ``run.json`` does not say on what, it stays silent.
        """
        run = self.read_run()
        machines = run.trained_on if goes_on else ()
        if machines is not None and machine not in machines:
            self.write_run(run.model_copy(update={"trained_on": (*machines, machine)}))

    def add_plugins(self) -> str:
        """Say in ``run.json`` which plugins train the run from here on.

        Returns:
            A sentence about plugins whose content was another before; empty where there is none.
        """
        run = self.read_run()
        now = [PluginFile(name=plugin.name, sha256=plugin.sha256) for plugin in loaded()]
        added = [plugin for plugin in now if plugin not in run.plugins]
        if added:
            self.write_run(run.model_copy(update={"plugins": (*run.plugins, *added)}))
        before = {plugin.name for plugin in run.plugins}
        changed = [plugin.name for plugin in added if plugin.name in before]
        return f"{self.path} was begun with another content of {', '.join(changed)}" if changed else ""

    def _compare(self, found: Run, wanted: Run) -> None:
        if found.imported is not None:
            raise TrainingError(
                f"{self.path} holds imported weights, which are not trained on; choose a new folder with --to"
            )
        before, asked_for = found.identity(), wanted.identity()
        for key in asked_for:
            if before[key] != asked_for[key]:
                name, there, asked = _difference(key, before[key], asked_for[key])
                raise TrainingError(
                    f"{self.path} holds a run with another {name} ({_shorten(there)} there, "
                    f"{_shorten(asked)} asked for); choose a new folder with --to"
                )

    def read_run(self) -> Run:
        """What was asked for.

        Raises:
            TrainingError: ``run.json`` is missing or damaged.
            RecipeError: its recipe is refused.
        """
        return self._read(_RUN, "run.json")

    def read_history(self) -> list[Epoch]:
        """Every whole epoch, in order.

        Raises:
            TrainingError: ``history.json`` is missing or damaged.
        """
        return self._read(_HISTORY, "history.json")

    def read_outcome(self) -> Outcome:
        """How the training ended.

        Raises:
            TrainingError: it has not ended, or the file is damaged.
        """
        names = (name for name in OUTCOME_FILES if (self.path / name).is_file())
        return self._read(_OUTCOME, next(names, OUTCOME_FILES[0]))

    def write_run(self, run: Run) -> None:
        """Write ``run.json``; what is not known is left out."""
        content = run.model_dump(mode="json")
        unsaid = {"encoding", "settings", "pretrained_encoder", "trained_on", "plugins", "imported"}
        self._write("run.json", {name: x for name, x in content.items() if x or name not in unsaid})

    def write_history(self, history: Sequence[Epoch]) -> None:
        """Write ``history.json``."""
        self._write("history.json", [epoch.model_dump(mode="json") for epoch in history])

    def write_outcome(self, outcome: Outcome) -> None:
        """Write ``training.json``."""
        self._write(OUTCOME_FILES[0], outcome.model_dump(mode="json"))

    def _read(self, adapter: TypeAdapter[Content], name: str) -> Content:
        path = self.path / name
        if not path.is_file():
            raise TrainingError(f"{path} does not exist; is {self.path} a finished run of `ncl-bench train`?")
        try:
            return adapter.validate_python(json.loads(path.read_bytes()))
        except RecipeError as error:
            raise RecipeError(f"{path}: {error}") from None
        except ValidationError as error:
            raise TrainingError(f"{path}: {first_problem(error)}; train again into a new folder") from None
        except (OSError, ValueError, RecursionError):
            raise TrainingError(f"{path} is damaged; train again into a new folder") from None

    def _write(self, name: str, content: Any) -> None:
        """Non-finite numbers are refused."""
        write_text(self.path / name, json.dumps(content, indent=2, sort_keys=True, allow_nan=False) + "\n")


def _difference(key: str, there: Any, asked: Any) -> tuple[str, Any, Any]:
    """The innermost entry that differs: its dotted name, and what is there and asked for."""
    if isinstance(there, dict) and isinstance(asked, dict):
        for inner in asked | there:  # in the order of the job, causes before what follows from them
            if there.get(inner) != asked.get(inner):
                return _difference(f"{key}.{inner}", there.get(inner), asked.get(inner))
    return key, there, asked


def _shorten(value: Any) -> str:
    text = json.dumps(value)
    return text if len(text) <= 80 else text[:77] + "..."
