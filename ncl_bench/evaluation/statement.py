"""What a submitter states about a result: method, data, noise and training. Leaderboard cells use it too."""

from pathlib import PurePosixPath
from typing import Annotated, Literal, Self

from pydantic import AfterValidator, Field, field_validator, model_validator

from ncl_bench.data import DATASETS
from ncl_bench.errors import unknown_name
from ncl_bench.evaluation.protocol import PROTOCOL_VERSION
from ncl_bench.precision import Precision
from ncl_bench.schema import FileName, Record, Sha256
from ncl_bench.shown import Link, LongText, Matching, Name, ShownText, Text

NOTHING = ("none", "no", "n/a", "null", "-")


def _is_something(value: str) -> str:
    if value.lower() in NOTHING:
        raise ValueError('write "" if there is none, because any text here is ranked apart')
    return value


TextIfAny = Annotated[ShownText, AfterValidator(_is_something)]
SettingName = Annotated[
    str,
    Field(max_length=60),
    Matching(r"[a-z0-9_]+(\.[a-z0-9_]+)*", "the name of a recipe option, such as method.epochs"),
]
RecipeName = Annotated[
    str,
    Field(max_length=100),
    Matching("[a-z0-9_]+/[a-z0-9_-]+", "the name of a recipe, as `ncl-bench recipes` lists them"),
]
Ratio = Annotated[float, Field(ge=0, lt=1, allow_inf_nan=False)]
RSum = Annotated[float, Field(ge=0, le=600, allow_inf_nan=False)]
Share = Annotated[float, Field(ge=0, le=1, allow_inf_nan=False)]
Unit = Literal["none", "caption", "image", "similar", "natural"]
Split = Literal["test", "dev"]


class ArrayFile(Record):
    """An ``.npy`` file of the submission.

    Attributes:
        file: path in the submission folder, with ``/``.
        sha256: sha256 of the file, in hex.
    """

    file: FileName
    sha256: Sha256

    @field_validator("file")
    @classmethod
    def _is_an_array(cls, value: str) -> str:
        if PurePosixPath(value).suffix != ".npy":
            raise ValueError("it must be an .npy file")
        return value


class Noise(Record):
    """Noise of the training pairs.

    Attributes:
        unit: ``none``, ``caption``, ``image``, ``similar``, or ``natural`` for datasets that carry their own.
        ratio: nominal, in [0, 1); 0 for ``none``, null for ``natural``.
        seed: seed of the protocol's draw; null for a noise file, ``none`` and ``natural``.
        sha256: hash of the little-endian int64 image of every training caption; null for ``none`` and ``natural``.
        realised_ratio: share of training captions whose image is not their own; null for ``natural``.
        published: name of the shared noise file used for training, such as RCL's; optional.
        index: the noise file itself, if no seed draws the noise; optional.
    """

    unit: Unit
    ratio: Ratio | None
    seed: Annotated[int, Field(ge=0, lt=2**32)] | None = None
    sha256: Sha256 | None = None
    realised_ratio: Ratio | None = None
    published: Text | None = None
    index: ArrayFile | None = None

    @model_validator(mode="after")
    def _is_consistent(self) -> Self:
        if (self.ratio is None) != (self.unit == "natural") or (self.ratio == 0) != (self.unit == "none"):
            raise ValueError(
                f"ratio {self.ratio} does not fit unit {self.unit!r}; state 0 with none and null with natural"
            )
        if self.unit not in ("none", "natural") and self.sha256 is None:
            raise ValueError("sha256 is missing; state the hash of the noise index")
        if self.unit in ("none", "natural") and (self.seed, self.published, self.index) != (None, None, None):
            raise ValueError(f"seed, published and index do not fit unit {self.unit!r}; leave them out")
        return self


def opening_line(dataset: str, noise: Noise, method: str, device: str) -> str:
    """Return the line with which `train`, `score` and `evaluate` begin, such as ``digits: no noise; NCR on cpu``.

    Args:
        dataset: name of the dataset.
        noise: noise of its training pairs.
        method: name of the method.
        device: device that computes.
    """
    if noise.ratio:
        origin = "from a file" if noise.seed is None else f"seed {noise.seed}"
        realised = "" if noise.realised_ratio is None else f", realised {noise.realised_ratio:.4f}"
        words = f"{noise.unit} noise of ratio {noise.ratio:g} ({origin}{realised})"
    else:
        words = "no noise" if noise.unit == "none" else f"{noise.unit} noise"
    return f"{dataset}: {words}; {method} on {device}"


class TrainingCurve(Record):
    """Measurements after each epoch of a run; they choose nothing except the best epoch on dev.

    Attributes:
        steps: gradient steps so far, averaged over networks.
        dev: rSum on dev.
        auroc: AUROC in [0, 1] of the method's clean probability against the true correspondence of the training pairs;
            empty if the method estimates none, or no pair is wrong.
        average_precision: likewise.
    """

    steps: tuple[Annotated[int, Field(ge=0)], ...]
    dev: tuple[RSum, ...]
    auroc: tuple[Share, ...] = ()
    average_precision: tuple[Share, ...] = ()

    @model_validator(mode="after")
    def _has_one_value_per_epoch(self) -> Self:
        for name in ("dev", "auroc", "average_precision"):
            if len(getattr(self, name)) not in ({len(self.steps)} if name == "dev" else {0, len(self.steps)}):
                raise ValueError(f"{name} has {len(getattr(self, name))} values for {len(self.steps)} epochs")
        return self


class TrainingSetup(Record):
    """Training options; the same for all seeds of a leaderboard cell.

    Attributes:
        precision: arithmetic of the networks.
        settings: overridden recipe options, such as ``method.epochs: 10``.
        plugins: names of the files given with ``--plugin``, which register a user's method or dataset.
        budget: gradient steps that the recipe sets, averaged over networks; null if its epochs decide.
    """

    precision: Precision
    settings: dict[SettingName, bool | int | float | ShownText | None] = Field(
        default_factory=dict, max_length=20
    )
    plugins: Annotated[tuple[Text, ...], Field(max_length=20)] = ()
    budget: Annotated[int, Field(ge=1)] | None = None


class FoundPairs(Record):
    """Wrong training pairs found by the clean probability after the last epoch, at the method's own threshold.

    The wrong pair is the positive one.

    Attributes:
        threshold: pairs at or below it are called wrong.
        accuracy, precision, recall, f1: of that division.
        average_precision_wrong: over all thresholds.
        precision_at: number of most suspicious pairs to the share of wrong ones.
    """

    threshold: Share
    accuracy: Share
    precision: Share
    recall: Share
    f1: Share
    average_precision_wrong: Share
    precision_at: Annotated[dict[int, Share], Field(max_length=20)]


class TrainingRecord(Record):
    """Facts that the engine records during training.

    Attributes:
        torch: version of torch; several are joined by " + ".
        device: name of the GPU, or "CPU, 2 threads"; several are joined by " + ".
        steps: gradient steps, averaged over networks, the maximum over runs; null if not counted.
        pairs_seen: captions that each network encoded in training, with or without gradient.
        cost: training time relative to the same number of steps of the mean triplet on one network of the backbone.
        last_epoch: rSum of the last epoch on test, without selection on dev.
        curve: learning curve of a single run.
        found: wrong pairs found by a single run; null without a clean probability, or if the truth is not at hand.
    """

    torch: Text
    device: Text
    steps: Annotated[int, Field(ge=0)] | None = None
    pairs_seen: Annotated[float, Field(ge=0, allow_inf_nan=False)] | None = None
    cost: Annotated[float, Field(ge=0, allow_inf_nan=False)] | None = None
    last_epoch: RSum | None = None
    curve: TrainingCurve | None = None
    found: FoundPairs | None = None


class Training(TrainingSetup, TrainingRecord):
    """How a run was trained, and what the engine recorded."""


class Statement(Record):
    """What a submitter states about a result; the same for every training seed.

    Attributes:
        protocol_version: version of the protocol.
        method: name of the method.
        paper: link to the paper; empty if there is none.
        code: link to the code; empty if there is none.
        backbone: network that computes similarities.
        networks: number of networks whose similarities were averaged.
        dataset: name of the dataset.
        order_fingerprint: evaluated split to sha256 of its image ids and captions in order
            (:func:`ncl_bench.data.order.order_fingerprint`).
        fingerprint: split to sha256 of its content, features included, as stated by the prepared dataset that a
            training run read.
        language: language of the captions.
        tokenizer: tokenizer of the captions.
        noise: noise of the training pairs.
        selection_split: split on which the checkpoint was chosen; ``none`` for the last epoch.
        extra_clean_data: clean pairs used beyond the noisy training split, such as "3,000 pairs of train"; empty if
            none.
        pretrained_encoder: encoder pre-trained on image-text pairs, such as "CLIP ViT-B/32"; empty if none.
        recipes: recipes of this repository used for training, such as ``ncr/flickr30k_sgr``; empty for other code.
        notes: anything a reader should know.
    """

    protocol_version: int
    method: Name
    paper: Link
    code: Link
    backbone: Name
    networks: Annotated[int, Field(ge=1, le=100)]
    dataset: str
    order_fingerprint: dict[Split, Sha256] = Field(default_factory=dict)
    fingerprint: dict[Literal["train", "dev", "test"], Sha256] = Field(default_factory=dict)
    language: Text
    tokenizer: Text
    noise: Noise
    selection_split: Literal["dev", "test", "train", "none"]
    extra_clean_data: TextIfAny
    pretrained_encoder: TextIfAny
    recipes: Annotated[tuple[RecipeName, ...], Field(max_length=10)] = ()
    notes: LongText = ""

    @field_validator("protocol_version")
    @classmethod
    def _is_current(cls, value: int) -> int:
        if value != PROTOCOL_VERSION:
            raise ValueError(f"this release evaluates protocol version {PROTOCOL_VERSION}")
        return value

    @field_validator("dataset")
    @classmethod
    def _is_known(cls, value: str) -> str:
        if value not in DATASETS:
            raise ValueError(unknown_name("dataset", value, DATASETS))
        return value

    @model_validator(mode="after")
    def _agrees_with_the_dataset(self) -> Self:
        spec = DATASETS[self.dataset]
        if self.language not in spec.languages:
            raise ValueError(
                f"language {self.language!r} of {spec.name}; choose one of: {', '.join(spec.languages)}"
            )
        if (self.noise.unit == "natural") != (spec.noise == "natural"):
            raise ValueError(
                f"noise unit {self.noise.unit!r} does not fit {spec.name}, whose noise is {spec.noise}"
            )
        return self
