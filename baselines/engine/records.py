"""What a run folder says: typed records of ``run.json``, ``history.json`` and ``training.json``."""

from typing import Any, Literal

from pydantic import Field, model_validator

from baselines.engine.recipe import Recipe
from ncl_bench.data.encoding import Encoding
from ncl_bench.noise.draw import NoiseRecord
from ncl_bench.schema import Record

Precision = Literal["32-true", "tf32", "bf16-mixed"]


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


class Histogram(Record):
    """Counts in equal bins from ``low`` to ``high``, of ``true`` and of ``false`` pairs."""

    low: float
    high: float
    true: tuple[int, ...]
    false: tuple[int, ...]


class Separation(Record):
    """How well an estimate tells true from false pairs: both measures lie in [0, 1]."""

    auroc: float
    average_precision: float
    histogram: Histogram


class Epoch(Record):
    """One entry of ``history.json``.

    Attributes:
        index: of the epoch within the run, from 0.
        round, phase, epoch, learning_rate: of its plan.
        steps: of all modules since the run began.
        taken: steps of each network since the run began; empty in runs of earlier versions.
        dev: recalls and ``r_sum`` on dev.
        best: whether its networks were the best on dev when it ended, and have not been forgotten since.
        loss: mean over its steps; None for an epoch without a step.
        terms: means of the named parts of the loss.
        diagnosis: of each of the method's estimates; empty where the truth is not known or nothing was moved.
    """

    index: int
    round: int
    phase: str
    epoch: int
    learning_rate: float
    steps: int
    taken: tuple[int, ...] = ()
    dev: dict[str, float]
    best: bool
    loss: float | None
    terms: dict[str, float] = Field(default_factory=dict)
    diagnosis: dict[str, Separation] = Field(default_factory=dict)

    @model_validator(mode="before")
    @classmethod
    def _terms_of_earlier_versions(cls, content: Any) -> Any:
        """Terms once stood beside the loss."""
        if not isinstance(content, dict) or "terms" in content:
            return content
        terms = {name: value for name, value in content.items() if name not in cls.model_fields}
        return {name: value for name, value in content.items() if name not in terms} | {"terms": terms}


class Outcome(Record):
    """``training.json``, written once, when a training has ended.

    Attributes:
        epochs: of the run.
        best_epoch: the one chosen on dev, from 0.
        dev: its recalls and ``r_sum``.
        steps: of each network; empty in runs of earlier versions.
        pairs_seen: captions that each network encoded in training, with or without gradient; mean of the networks.
        cost: seconds that the epochs took, over what as many steps of the mean triplet take on one network of the
            backbone, timed in between; None where the recipe gives no number of steps.
        best_sha256: of ``best.safetensors``; None in runs of earlier versions.
    """

    epochs: int
    best_epoch: int
    dev: dict[str, float]
    steps: tuple[int, ...] = ()
    pairs_seen: float | None = None
    cost: float | None = None
    best_sha256: str | None = None
