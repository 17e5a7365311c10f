"""A run folder: what was asked for, what came out, and which file holds what.

``run.json``            the recipe, noise, seed, dataset fingerprint and vocabulary; a run resumes only what it says;
                        and on which torch and device, and with which plugins it was trained, which may change
``checkpoints/``        the resumable state, last two
``best.safetensors``    weights of the networks chosen on dev
``history.json``        one entry per epoch: loss, dev recalls, diagnosis
``training.json``       written once, when training has ended; earlier versions called it ``result.json``
``tensorboard/``        the same curves for TensorBoard
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, TypeVar

from pydantic import TypeAdapter, ValidationError

from baselines.backbones import BACKBONES
from baselines.engine.recipe import Recipe
from baselines.engine.records import Epoch, Machine, Outcome, PluginFile, Precision, Run
from baselines.kit.backbone import Backbone
from ncl_bench.data import load_dataset
from ncl_bench.data.paired import PairedDataset
from ncl_bench.errors import RecipeError, TrainingError, first_problem
from ncl_bench.files import write_text
from ncl_bench.noise.draw import NoiseUnit
from ncl_bench.plugins import loaded

OUTCOME_FILES = ("training.json", "result.json")
"""What a finished training writes, now and in earlier versions."""

Content = TypeVar("Content")
_RUN, _HISTORY, _OUTCOME = TypeAdapter(Run), TypeAdapter(list[Epoch]), TypeAdapter(Outcome)


@dataclass(frozen=True)
class TrainingJob:
    """One training run.

    Attributes:
        recipe: what is trained on what.
        noise_ratio: nominal noise ratio, in [0, 1).
        noise_unit: ``"caption"`` or ``"image"``.
        noise_seed: of the noise; the cell's standard seed by default.
        noise_file: a noise file instead of a drawn one.
        seed: of initialisation, batch order and dropout.
        root: folder of prepared datasets.
        precision: ``32-true``, ``tf32`` or ``bf16-mixed``.
        settings: how the recipe differs from the one that was named, such as ``{"method.epochs": 10}``.
    """

    recipe: Recipe
    noise_ratio: float = 0.0
    noise_unit: NoiseUnit = "caption"
    noise_seed: int | None = None
    noise_file: Path | None = None
    seed: int = 0
    root: Path | None = None
    precision: Precision = "32-true"
    settings: Mapping[str, Any] = field(default_factory=dict, hash=False)

    def load(self, split: str) -> PairedDataset:
        """A split of the job's dataset as its backbone reads it; noise is on train alone."""
        noisy: dict[str, Any] = {}
        if split == "train" and (self.noise_ratio != 0 or self.noise_file is not None):
            noisy = {
                "noise_ratio": self.noise_ratio,
                "noise_unit": self.noise_unit,
                "noise_seed": self.noise_seed,
                "noise_file": self.noise_file,
            }
        recipe = self.recipe
        dataset = load_dataset(
            recipe.dataset,
            split=split,
            language=recipe.language,
            tokenizer=recipe.tokenizer,
            root=self.root,
            **noisy,
        )
        return self.backbone.inputs(recipe.backbone_config, dataset)

    @property
    def backbone(self) -> type[Backbone]:
        """The class of its networks."""
        return BACKBONES[self.recipe.backbone["name"]]

    def record(self, train: PairedDataset) -> Run:
        """What a run folder says of this job.

        Args:
            train: its training split.
        """
        return Run(
            recipe=self.recipe,
            seed=self.seed,
            precision=self.precision,
            fingerprint=train.fingerprint,
            vocabulary=train.vocabulary.sha256,
            encoding=train.encoding,
            noise=replace(train.noise, source=None),
            settings=dict(self.settings),
            pretrained_encoder=self.backbone.pretrained_encoder(self.recipe.backbone_config),
        )


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

    def job(self, root: Path | None = None) -> TrainingJob:
        """The job that a run folder holds, without its noise, which is in the record; used to score it.

        Raises:
            TrainingError: ``run.json`` is missing or damaged.
            RecipeError: its recipe is refused.
        """
        run = self.read_run()
        return TrainingJob(
            run.recipe, seed=run.seed, root=root, precision=run.precision, settings=run.settings
        )


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
