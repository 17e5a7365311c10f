"""A run folder: its files and their content.

``run.json``            recipe, noise, seed, dataset fingerprint and vocabulary, which must match for a run to resume;
                        torch version, device and plugins, which may change on resuming
``checkpoints/``        the last two checkpoints
``best.safetensors``    weights of the best epoch on dev
``history.json``        one entry per epoch: loss, dev recalls, diagnosis
``estimates/``          what the method believed of every pair after each epoch; not with ``train --no-history``
``training.json``       outcome, written when training ends or weights are imported
``tensorboard/``        the same curves for TensorBoard
"""

import io
import json
import os
import re
import zipfile
from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, TypeVar

import numpy as np
import torch
from pydantic import Field, TypeAdapter

from baselines.kit.batches import memory_budget
from baselines.kit.distributed import world_size
from baselines.training.measures import Epoch
from baselines.training.recipe import Recipe
from ncl_bench.data.encoding import Encoding
from ncl_bench.data.keep import Kept
from ncl_bench.errors import TrainingError, named, refuse_difference
from ncl_bench.files import atomic_path, refuse_existing, sha256_of_file, write_bytes, write_text
from ncl_bench.foreign import readable, reading
from ncl_bench.noise.draw import Noise
from ncl_bench.npy import Float32Array, read_npz_array
from ncl_bench.plugins import loaded
from ncl_bench.schema import Precision, Record
from ncl_bench.torch_files import load_torch
from ncl_bench.yaml import leaves

OUTCOME_FILE = "training.json"
"""File that marks a finished training."""

KEPT_CHECKPOINTS = 2
_CHECKPOINT = re.compile(r"epoch-(\d{6})\.([0-9a-f]{16})\.pt")

Content = TypeVar("Content")


class Machine(Record):
    """Hardware and torch version of a training.

    Attributes:
        torch: torch version.
        device: name of the GPU, or ``CPU, 2 threads``.
        block_bytes: memory for the temporary tensors of one block of comparisons, in bytes, see
            :func:`baselines.kit.batches.memory_budget`; None in runs of earlier versions.
        compiled: whether the networks' forward passes were compiled.
    """

    torch: str
    device: str
    block_bytes: int | None = None
    compiled: bool = False

    @property
    def stated_torch(self) -> str:
        """The torch version of a submission, such as ``2.13.0, compiled``."""
        return f"{self.torch}, compiled" if self.compiled else self.torch


def machine_of(device: torch.device) -> Machine:
    """Describe this machine, with the number of processes if there are several."""
    if device.type == "cuda":
        name = torch.cuda.get_device_name(device)
    else:
        threads = torch.get_num_threads()
        name = f"CPU, {threads} thread{'s' if threads > 1 else ''}"
    several = f"{world_size()} x {name}" if world_size() > 1 else name
    return Machine(torch=str(torch.__version__), device=several, block_bytes=memory_budget(device))


class PluginFile(Record):
    """Plugin that was loaded during a training.

    Attributes:
        name: name of the file or module.
        sha256: hash of the file.
    """

    name: str
    sha256: str


class Imported(Record):
    """Origin of imported weights.

    Attributes:
        file: name of the checkpoint.
        sha256: hash of the file.
        seed_known: whether the training seed is known; the run records 0 otherwise.
        selection: split that chose the checkpoint.
    """

    file: str
    sha256: str
    seed_known: bool
    selection: Literal["dev", "test", "none"]


class RunRecord(Record):
    """Content of ``run.json``: what the user asked for, and the hardware and plugins of the training.

    Attributes:
        recipe: recipe with every option.
        seed: training seed.
        precision: arithmetic of the networks.
        fingerprint: fingerprint of the training split before noise.
        vocabulary: sha256 of the words behind the token ids; None in runs that recorded none.
        encoding: encoding of the user's own images; None for published features.
        noise: noise of the training split, without its source.
        settings: overridden recipe options.
        pretrained_encoder: pre-trained weights of the networks, see ``Backbone.pretrained_encoder``.
        trained_on: every machine, in order; None if not recorded, and for imported weights.
        plugins: every version of every plugin, in order.
        imported: origin of imported weights; None if trained here.
        keep: which pairs alone were trained on; None for all.
    """

    recipe: Recipe
    seed: int
    precision: Precision
    fingerprint: str
    vocabulary: str | None = None
    encoding: Encoding | None = None
    noise: Noise
    settings: dict[str, Any] = Field(default_factory=dict)
    pretrained_encoder: str = ""
    trained_on: tuple[Machine, ...] | None = None
    plugins: tuple[PluginFile, ...] = ()
    imported: Imported | None = None
    keep: Kept | None = None

    def identity(self) -> dict[str, Any]:
        """Return the entries that must match for a run to resume, causes before their consequences."""
        names = {"recipe", "seed", "precision", "fingerprint", "vocabulary", "noise", "pretrained_encoder"}
        return self.model_dump(mode="json", include=names) | {"keep": self.keep and self.keep.sha256}


class Outcome(Record):
    """Content of ``training.json``, written when training ends or weights are imported.

    Attributes:
        epochs: number of epochs; 0 for imported weights.
        best_epoch: best epoch on dev, from 0.
        dev: recalls and ``r_sum`` of the best epoch on dev; empty for imported weights.
        steps: number of steps of each network; empty for imported weights.
        pairs_seen: captions that a network encoded in training, with or without gradient; mean over the networks.
        cost: training time relative to the same number of plain triplet steps on one network, timed during the
            training; None if the recipe sets no number of steps.
        best_sha256: hash of ``best.safetensors``.
    """

    epochs: int = 0
    best_epoch: int = 0
    dev: dict[str, float] = Field(default_factory=dict)
    steps: tuple[int, ...] = ()
    pairs_seen: float | None = None
    cost: float | None = None
    best_sha256: str


@dataclass(frozen=True)
class RunFolder:
    """The files of one run."""

    path: Path

    @property
    def checkpoints(self) -> Path:
        """Folder of the checkpoints."""
        return self.path / "checkpoints"

    @property
    def best(self) -> Path:
        """File with the weights of the best epoch on dev."""
        return self.path / "best.safetensors"

    @property
    def tensorboard(self) -> Path:
        """Folder of the event files."""
        return self.path / "tensorboard"

    @property
    def run_file(self) -> Path:
        """Path of ``run.json``."""
        return self.path / "run.json"

    @property
    def finished(self) -> bool:
        """Whether the training has ended."""
        return (self.path / OUTCOME_FILE).is_file()

    def begin(self, wanted: RunRecord) -> None:
        """Take an empty or new folder for this run, or check that it already belongs to this run."""
        if self.run_file.is_file():
            self._compare(self.read_run(), wanted.identity())
        else:
            refuse_existing(self.path)
            self.write_run(wanted)

    def add_machine(self, machine: Machine, *, goes_on: bool) -> tuple[Machine, str]:
        """Record in ``run.json`` the torch version, device and plugins that train from now on.

        Args:
            machine: result of :func:`machine_of`.
            goes_on: whether the run resumes. If its earlier machines are unknown, none is recorded.

        Returns:
            The machine, on resuming with the budget that was recorded for the same device; and a warning about plugins
            that changed since the run began, empty if none did.
        """
        run = self.read_run()
        machines = run.trained_on if goes_on else ()
        for before in machines or ():
            if before.device == machine.device and before.block_bytes is not None:
                # another size of blocks would change the last bits
                machine = machine.model_copy(update={"block_bytes": before.block_bytes})
        if machines is not None and machine not in machines:
            machines = (*machines, machine)
        now = [PluginFile(name=plugin.name, sha256=plugin.sha256) for plugin in loaded()]
        added = [plugin for plugin in now if plugin not in run.plugins]
        self.write_run(run.model_copy(update={"trained_on": machines, "plugins": (*run.plugins, *added)}))
        names = {plugin.name for plugin in run.plugins}
        changed = [plugin.name for plugin in added if plugin.name in names]
        warning = f"{self.path} was started with another version of {', '.join(changed)}" if changed else ""
        return machine, warning

    def refuse_another(self, **asked: Any) -> None:
        """Refuse a run with another recipe or other entries of its identity; a folder that is gone says nothing."""
        if self.run_file.is_file():
            self._compare(self.read_run(), asked)

    def _compare(self, recorded: RunRecord, asked_for: Mapping[str, Any]) -> None:
        if recorded.imported is not None:
            raise TrainingError(
                f"{self.path} holds imported weights, which cannot be trained further; choose a new folder with "
                f"{named('to')}"
            )
        before = recorded.identity()
        there = dict(leaves({name: before[name] for name in asked_for}))
        asked = dict(leaves(dict(asked_for)))
        # in the order of the job, causes before their consequences
        facts = {name: (there.get(name), asked.get(name)) for name in asked | there}
        fix = f"choose a new folder with {named('to')}"
        refuse_difference(f"{self.path} holds another run", facts, fix, TrainingError)

    def read_run(self) -> RunRecord:
        """Read ``run.json``."""
        return self._read(RunRecord, "run.json")

    def read_history(self) -> list[Epoch]:
        """Read every complete epoch, in order."""
        return self._read(list[Epoch], "history.json")

    def read_outcome(self) -> Outcome:
        """Read ``training.json``."""
        return self._read(Outcome, OUTCOME_FILE)

    def estimates_file(self, epoch: int) -> Path:
        """Where an epoch's estimates lie, see :meth:`write_estimates`."""
        return self.path / "estimates" / f"epoch-{epoch:06d}.npz"

    def read_estimates(self, epoch: int, n_pairs: int) -> dict[str, Float32Array]:
        """What the method believed after an epoch: estimates by name, float32 ``(n_pairs,)``; empty if none were kept.

        Args:
            epoch: from 0.
            n_pairs: pairs of the training split.
        """
        path = self.estimates_file(epoch)
        if not path.is_file():
            return {}
        with (
            reading(path, TrainingError, fix="delete it, and the audit does without this epoch"),
            zipfile.ZipFile(path) as archive,
        ):
            return {
                member.filename.removesuffix(".npy"): read_npz_array(
                    archive, member, (n_pairs,), (np.dtype("<f2"),)
                ).astype(np.float32)
                for member in archive.infolist()
            }

    def write_estimates(self, epoch: int, estimates: Mapping[str, Float32Array]) -> None:
        """Keep what the method believes after an epoch, with 16 bits a number: about 1 MB for Flickr30K.

        Args:
            epoch: from 0.
            estimates: by name, float32 ``(n_pairs,)``.
        """
        content = io.BytesIO()  # with one date for all, so that a resumed run writes the same bytes
        np.savez_compressed(content, **{name: x.astype(np.float16) for name, x in estimates.items()})  # type: ignore[arg-type]
        write_bytes(self.estimates_file(epoch), content.getvalue())

    def write_run(self, run: RunRecord) -> None:
        """Write ``run.json`` without its unknown entries."""
        content = run.model_dump(mode="json")
        unsaid = {"encoding", "settings", "pretrained_encoder", "trained_on", "plugins", "imported", "keep"}
        self._write("run.json", {name: x for name, x in content.items() if x or name not in unsaid})

    def write_history(self, history: Sequence[Epoch]) -> None:
        """Write ``history.json``."""
        self._write("history.json", [epoch.model_dump(mode="json") for epoch in history])

    def write_outcome(self, outcome: Outcome) -> None:
        """Write ``training.json``."""
        self._write(OUTCOME_FILE, outcome.model_dump(mode="json"))

    @property
    def kept_epochs(self) -> int:
        """Complete epochs after which training goes on if it is stopped now; 0 before the first."""
        newest = [match for path in self._states() if (match := _CHECKPOINT.fullmatch(path.name))]
        return int(newest[-1][1]) if newest else 0

    def save_state(self, epoch: int, state: dict[str, Any]) -> Path:
        """Write the state after ``epoch`` epochs and delete all but the last two.

        Args:
            epoch: number of epochs done, at least 0.
            state: tensors and plain Python values that ``torch.load(weights_only=True)`` can read.

        Returns:
            Path of the file, whose name contains the epoch and the start of its sha256.
        """
        unnamed = self.checkpoints / f"epoch-{epoch:06d}.pt"
        with atomic_path(unnamed) as temporary:
            try:
                with temporary.open("wb") as file:
                    torch.save(state, file)
            except RuntimeError as error:  # of torch, which hides that the disk is full
                raise (error.__context__ or error) from None
            digest = sha256_of_file(temporary)
        target = unnamed.with_suffix(f".{digest[:16]}.pt")
        # the name carries the hash, which is known only after writing
        os.replace(unnamed, target)
        # two checkpoints stay: the newest may turn out damaged
        for old in [path for path in self._states() if path != target][: -(KEPT_CHECKPOINTS - 1)]:
            old.unlink()
        return target

    def latest_state(self) -> tuple[dict[str, Any] | None, list[Path]]:
        """Read the newest intact checkpoint.

        Returns:
            The state, or None if there is no checkpoint, and the damaged files that were skipped.
        """
        damaged: list[Path] = []
        for path in reversed(self._states()):
            match = _CHECKPOINT.fullmatch(path.name)
            # a file that was cut off is found here, and an older one takes its place
            if match and sha256_of_file(path).startswith(match[2]):
                fix = "use the torch that wrote it, or train into a new folder"
                return load_torch(path, TrainingError, fix), damaged
            damaged.append(path)
        return None, damaged

    def fitting(self) -> AbstractContextManager[None]:
        """Use the content of a checkpoint; one that does not fit the run is refused in a sentence."""
        newest = f"the newest checkpoint in {self.checkpoints}"
        return reading(newest, TrainingError, fix="delete the folder, or train into a new one")

    def _states(self) -> list[Path]:
        """The checkpoints, oldest first."""
        return sorted(
            path for path in self.checkpoints.glob("epoch-*.pt") if _CHECKPOINT.fullmatch(path.name)
        )

    def _read(self, kind: type[Content], name: str) -> Content:
        expected = "that of a finished run of `ncl-bench train`"
        path = readable(self.path / name, TrainingError, expected, fix="train, or give another folder")
        with reading(path, TrainingError, fix="train again into a new folder"):
            return TypeAdapter(kind).validate_python(json.loads(path.read_bytes()))

    def _write(self, name: str, content: Any) -> None:
        """Write JSON; non-finite numbers raise."""
        write_text(self.path / name, json.dumps(content, indent=2, sort_keys=True, allow_nan=False) + "\n")
