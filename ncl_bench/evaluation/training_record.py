"""What a submission and a row of the leaderboard say of the training by this repository's trainer."""

from typing import Annotated

from pydantic import Field, NonNegativeInt, PositiveInt

from ncl_bench.evaluation.detection import Division, Share
from ncl_bench.names import ShownText, Text
from ncl_bench.schema import Described, Matching, NotNegative, Precision, RSum

SettingName = Annotated[
    str,
    Field(max_length=60),
    Matching(r"[a-z0-9_]+(\.[a-z0-9_]+)*", "the name of a recipe option, such as method.epochs"),
]


class TrainingCurve(Described):
    """Measurements after each epoch of a run; they choose nothing except the best epoch on dev."""

    steps: tuple[NonNegativeInt, ...]
    """Gradient steps so far, averaged over networks."""
    dev: tuple[RSum, ...]
    """rSum on dev."""
    auroc: tuple[Share, ...] = ()
    """AUROC of the method's clean probability against the true correspondence of the training pairs; empty if the
    method estimates none, or no pair is wrong."""
    average_precision: tuple[Share, ...] = ()
    """Average precision, likewise."""

    @property
    def best(self) -> int:
        """The epoch that is best on dev; the first of equal ones, as training keeps it."""
        return self.dev.index(max(self.dev))


class DetectedPairs(Described, Division):
    """Wrong training pairs found by the clean probability after the last epoch, at the method's own threshold.

    The wrong pair is the positive one.
    """

    threshold: Share
    """Pairs at or below it are called wrong."""
    average_precision_wrong: Share
    """Over all thresholds."""
    precision_at: Annotated[dict[int, Share], Field(max_length=20)]
    """Number of most suspicious pairs to the share of wrong ones."""
    noise_left: tuple[Share, ...] = ()
    """After each epoch: the share of wrong pairs among those called clean; empty if not recorded."""
    precision_by_epoch: tuple[Share, ...] = ()
    """After each epoch: precision; 0 where no pair is called wrong."""
    recall_by_epoch: tuple[Share, ...] = ()
    """After each epoch: recall."""


class TrainingSetup(Described):
    """How a run was trained; the same for all seeds of a leaderboard row."""

    precision: Precision
    """Arithmetic of the networks."""
    settings: dict[SettingName, bool | int | float | ShownText | None] = Field(
        default_factory=dict, max_length=20
    )
    """Overridden recipe options, such as method.epochs: 10."""
    plugins: Annotated[tuple[Text, ...], Field(max_length=20)] = ()
    """Names of the files given with --plugin, which register a user's method or dataset."""
    budget: PositiveInt | None = None
    """Gradient steps that the recipe sets, averaged over networks; null if its epochs decide."""


class TrainingRecord(Described):
    """What the trainer recorded while a run was trained."""

    torch: Text
    """Version of torch, "2.13.0, compiled" for compiled networks; several are joined by " + "."""
    device: Text
    """Name of the GPU, or "CPU, 2 threads"; several are joined by " + "."""
    steps: NonNegativeInt | None = None
    """Gradient steps, averaged over networks, the maximum over runs; null if not counted."""
    pairs_seen: NotNegative | None = None
    """Captions that each network encoded in training, with or without gradient."""
    cost: NotNegative | None = None
    """Training time, added over runs, relative to as many steps of the mean triplet on one network of the backbone."""
    last_epoch: RSum | None = None
    """rSum of the last epoch on test, without selection on dev."""
    curve: TrainingCurve | None = None
    """Learning curve of a single run."""
    found: DetectedPairs | None = None
    """Wrong pairs found by a single run; null without a clean probability, or if the truth is not at hand."""


class Training(TrainingSetup, TrainingRecord):
    """How a run was trained, and what the trainer recorded."""
