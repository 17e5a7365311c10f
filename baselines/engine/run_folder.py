"""A run folder: what was asked for, what came out, and which file holds what.

``run.json``            the recipe, noise, seed, dataset fingerprint and vocabulary; a run resumes only what it says;
                        and on which torch and device, and with which plugins it was trained, which may change
``checkpoints/``        the resumable state, last two
``best.safetensors``    weights of the networks chosen on dev
``history.json``        one entry per epoch: loss, dev recalls, diagnosis
``result.json``         written once, when training has ended; or where imported weights come from
``tensorboard/``        the same curves for TensorBoard
"""

import json
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

from baselines.engine.recipe import Recipe
from ncl_bench.data import load_dataset
from ncl_bench.data.paired import PairedDataset
from ncl_bench.errors import RecipeError, TrainingError
from ncl_bench.files import write_text
from ncl_bench.noise.draw import NoiseUnit
from ncl_bench.plugins import loaded


@dataclass(frozen=True)
class Job:
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
    precision: str = "32-true"
    settings: Mapping[str, Any] = field(default_factory=dict, hash=False)

    def load(self, split: str) -> PairedDataset:
        """A split of the job's dataset; noise is on train alone."""
        noisy: dict[str, Any] = {}
        if split == "train" and (self.noise_ratio != 0 or self.noise_file is not None):
            noisy = {
                "noise_ratio": self.noise_ratio,
                "noise_unit": self.noise_unit,
                "noise_seed": self.noise_seed,
                "noise_file": self.noise_file,
            }
        recipe = self.recipe
        return load_dataset(
            recipe.dataset,
            split=split,
            language=recipe.language,
            tokenizer=recipe.tokenizer,
            root=self.root,
            **noisy,
        )

    def identity(self, train: PairedDataset) -> dict[str, Any]:
        """What must be equal for a run to resume, as JSON values."""
        return {
            "recipe": self.recipe.model_dump(mode="json"),
            "seed": self.seed,
            "precision": self.precision,
            "fingerprint": train.fingerprint,
            "vocabulary": train.vocabulary.sha256,
            "noise": asdict(replace(train.noise, source=None)),
        }


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

    def claim(self, identity: dict[str, Any], settings: Mapping[str, Any] | None = None) -> None:
        """Make the folder this run's, or check that it already is.

        Args:
            identity: what must be equal for a run to resume.
            settings: how its recipe differs from the one that was named.

        Raises:
            TrainingError: the folder holds something else, or another run.
        """
        described = self.path / "run.json"
        if described.is_file():
            self._compare(self.read("run.json"), identity)
        elif self.path.exists() and (not self.path.is_dir() or any(self.path.iterdir())):
            raise TrainingError(f"{self.path} exists and is no training run; choose a new folder with --to")
        else:
            self.write("run.json", identity | ({"settings": dict(settings)} if settings else {}))

    def add_machine(self, machine: dict[str, str], *, goes_on: bool) -> None:
        """Say in ``run.json`` on which torch and device the run is trained from here on.

        Args:
            machine: of :func:`baselines.engine.devices.machine_of`.
            goes_on: epochs were trained before. Where ``run.json`` does not say on what, it stays silent.
        """
        described = self.read("run.json")
        machines = described.get("trained_on") if goes_on else []
        if machines is not None and machine not in machines:
            self.write("run.json", described | {"trained_on": [*machines, machine]})

    def add_plugins(self) -> str:
        """Say in ``run.json`` which plugins train the run from here on.

        Returns:
            A sentence about plugins whose content was another before; empty where there is none.
        """
        described = self.read("run.json")
        before = described.get("plugins", [])
        now = [{"name": plugin.name, "sha256": plugin.sha256} for plugin in loaded()]
        added = [plugin for plugin in now if plugin not in before]
        if added:
            self.write("run.json", described | {"plugins": [*before, *added]})
        names = {plugin["name"] for plugin in before}
        changed = [plugin["name"] for plugin in added if plugin["name"] in names]
        return f"{self.path} was begun with another content of {', '.join(changed)}" if changed else ""

    def _compare(self, found: dict[str, Any], wanted: dict[str, Any]) -> None:
        if "imported" in found:
            raise TrainingError(
                f"{self.path} holds imported weights, which are not trained on; choose a new folder with --to"
            )
        wanted = json.loads(json.dumps(wanted))
        with suppress(RecipeError):  # runs of before recorded only the options that their recipe gave
            found = {**found, "recipe": Recipe.from_dict(found.get("recipe")).model_dump(mode="json")}
        for key in wanted:
            if found.get(key) != wanted[key]:
                name, there, asked = _difference(key, found.get(key), wanted[key])
                raise TrainingError(
                    f"{self.path} holds a run with another {name} ({_shorten(there)} there, "
                    f"{_shorten(asked)} asked for); choose a new folder with --to"
                )

    def read(self, name: str) -> Any:
        """Content of one of the run's JSON files.

        Raises:
            TrainingError: no such file, since the run has not got that far; or it is damaged.
        """
        path = self.path / name
        if not path.is_file():
            raise TrainingError(f"{path} does not exist; is {self.path} a finished run of `ncl-bench train`?")
        try:
            return json.loads(path.read_bytes())
        except (OSError, ValueError, RecursionError):
            raise TrainingError(f"{path} is damaged; train again into a new folder") from None

    def write(self, name: str, content: Any) -> None:
        """Write one of the run's JSON files; non-finite numbers are refused."""
        write_text(self.path / name, json.dumps(content, indent=2, sort_keys=True, allow_nan=False) + "\n")

    def job(self, root: Path | None = None) -> Job:
        """The job that a run folder holds, with noise as recorded; used to score it.

        Raises:
            TrainingError: ``run.json`` is missing or damaged.
            RecipeError: its recipe is refused.
        """
        described = self.read("run.json")
        try:
            recipe, seed, precision = (described[key] for key in ("recipe", "seed", "precision"))
        except (KeyError, TypeError):
            raise TrainingError(
                f"{self.path / 'run.json'} lacks recipe, seed or precision; train again into a new folder"
            ) from None
        recipe = Recipe.from_dict(recipe, where=str(self.path / "run.json"))
        settings = described.get("settings", {})
        return Job(recipe=recipe, seed=seed, root=root, precision=precision, settings=settings)


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
