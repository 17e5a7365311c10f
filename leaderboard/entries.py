"""One entry of the leaderboard, shown as a table row: one result in one cell, typed and checked."""

import itertools
import math
from typing import Annotated, Literal, Self

from pydantic import Field, field_validator, model_validator

from ncl_bench.data import DATASETS
from ncl_bench.data.spec import protocol_title
from ncl_bench.errors import unknown_name
from ncl_bench.evaluation.metrics import RECALLS
from ncl_bench.evaluation.statement import FoundPairs, TrainingCurve
from ncl_bench.precision import Precision
from ncl_bench.schema import Record
from ncl_bench.shown import Link, LongText, Matching, Name, OptionalName, ShownText

RECALL_TITLES = dict(zip(RECALLS, ("R@1", "R@5", "R@10") * 2, strict=True))
SUM_TOLERANCE = (
    0.15  # six recalls rounded to 0.05 each differ from a rounded sum by at most this much in practice
)

Unit = Literal["none", "caption", "image", "similar", "unknown", "natural"]
Status = Literal["reported", "submitted", "reproduced"]
SEEDS_FOR_A_RANK = 3
"""A measured row with fewer training seeds is preliminary; docs/protocol.md says why."""
STATUSES: tuple[Status, ...] = ("reported", "submitted", "reproduced")
"""From weakest to strongest claim."""
Selection = Literal["dev", "test", "train", "none", ""]
UNITS: dict[Unit, str] = {
    "none": "no added noise",
    "caption": "caption noise",
    "image": "image noise",
    "similar": "similar-caption noise",
    "unknown": "noise, unit unknown",
    "natural": "natural noise",
}
"""Noise units in words, in the order of the boards."""
Percent = Annotated[float, Field(ge=0, le=100, allow_inf_nan=False)]
Setting = Annotated[LongText, Matching(r"[a-z0-9_.]+=.*", "a recipe option and its value, NAME=VALUE")]


class Cell(Record):
    """Setting within which numbers are comparable.

    Attributes:
        dataset: name of the dataset.
        protocol: ``1k``, ``5fold-1k``, ``5k`` or ``200``.
        noise_unit: ``none`` (ratio 0), ``caption``, ``image``, ``natural``, or ``unknown`` if the source does not say.
        noise_ratio: nominal ratio of synthetic noise in [0, 1); None under natural noise.
        text: language and tokenizer, named only if unusual (always for NoW); a tokenizer built into a network, such as
            CLIP's, is not named.
    """

    dataset: str
    protocol: str
    noise_unit: Unit
    noise_ratio: Annotated[float, Field(ge=0, lt=1)] | None
    text: Annotated[
        str, Field(max_length=20), Matching("[a-z0-9_-]*", "a language and tokenizer, such as zh-bert")
    ] = ""

    @field_validator("dataset")
    @classmethod
    def _known_dataset(cls, value: str) -> str:
        if value not in DATASETS:
            raise ValueError(unknown_name("dataset", value, DATASETS))
        return value

    @model_validator(mode="after")
    def _agrees_with_the_protocol(self) -> Self:
        spec = DATASETS[self.dataset]
        if self.protocol not in spec.protocols:
            raise ValueError(
                f"protocol {self.protocol!r} of {spec.name}; choose one of: {', '.join(spec.protocols)}"
            )
        if (self.noise_unit == "natural") != (spec.noise == "natural"):
            raise ValueError(
                f"noise_unit {self.noise_unit!r} does not fit {spec.name}, whose noise is {spec.noise}"
            )
        if (self.noise_ratio is None) != (self.noise_unit == "natural"):
            raise ValueError(f"noise_ratio {self.noise_ratio} does not fit noise_unit {self.noise_unit!r}")
        if (self.noise_ratio == 0) != (self.noise_unit == "none"):
            raise ValueError(f"noise_ratio {self.noise_ratio} does not fit noise_unit {self.noise_unit!r}")
        return self

    @property
    def percent(self) -> str:
        """The nominal noise ratio in percent, such as ``40``; empty under natural noise."""
        return "" if self.noise_ratio is None else f"{100 * self.noise_ratio:g}"

    @property
    def title(self) -> str:
        """The cell in words, such as ``Flickr30K, 1K test, 40 % caption noise``."""
        noise = UNITS[self.noise_unit]
        if self.noise_ratio:
            noise = f"{self.percent} % {noise}"
        text = f" ({self.text})" if self.text else ""
        return f"{DATASETS[self.dataset].title}, {protocol_title(self.protocol)}, {noise}{text}"

    @property
    def short(self) -> str:
        """The noise alone, such as ``40 % caption noise``."""
        return f"{self.percent} % {UNITS[self.noise_unit]}" if self.noise_ratio else UNITS[self.noise_unit]

    @property
    def slug(self) -> str:
        """Name of the cell in links, such as ``flickr30k-1k-caption-40``."""
        return "-".join(filter(None, (self.dataset, self.protocol, self.noise_unit, self.percent, self.text)))

    @property
    def order(self) -> tuple[int, int, int, float, str]:
        """Sort key: dataset, protocol, unit, ratio, text."""
        return (
            list(DATASETS).index(self.dataset),
            DATASETS[self.dataset].protocols.index(self.protocol),
            list(UNITS).index(self.noise_unit),
            self.noise_ratio or 0.0,
            self.text,
        )


class Recalls(Record):
    """The six recalls in percent; None if a source does not give the value."""

    i2t_r1: Percent | None = None
    i2t_r5: Percent | None = None
    i2t_r10: Percent | None = None
    t2i_r1: Percent | None = None
    t2i_r5: Percent | None = None
    t2i_r10: Percent | None = None

    @property
    def values(self) -> dict[str, float | None]:
        """Name to value, in printed order."""
        return {name: getattr(self, name) for name in RECALLS}

    @property
    def r_sum(self) -> float | None:
        """Sum of the six recalls; None if one is missing."""
        known = [value for value in self.values.values() if value is not None]
        return math.fsum(known) if len(known) == len(RECALLS) else None

    @property
    def falling(self) -> str:
        """First pair of recalls that decreases with K, such as ``i2t_r10 < i2t_r5``; else empty."""
        for small, large in itertools.pairwise(RECALLS):
            low, high = getattr(self, small), getattr(self, large)
            if small[:3] == large[:3] and low is not None and high is not None and high < low:
                return f"{large} < {small}"
        return ""


class Entry(Record):
    """One result in one cell.

    Attributes:
        method: name as printed by its source.
        family: key of the method's page.
        backbone: network that computes similarities; empty if the source does not say.
        features: ``region`` features, a ``pretrained`` vision-language encoder, ``images`` themselves if the weights of
            such a network were drawn, or ``unknown``.
        encoder: the pre-trained encoder, such as ``CLIP ViT-B/32``; rows of different encoders are ranked apart.
        networks: ``single``, or ``ensemble`` if similarities of several networks are averaged at test time.
        extra: help beyond the noisy pairs (extra clean data, a pre-trained filter); empty for none.
        kind: a ``method`` is ranked; an ``ablation``, or an ``oracle`` that saw the true correspondence, is not.
        cell: cell in which it is compared.
        recalls: the six recalls, averaged over seeds.
        intervals: 95 % interval per recall and of ``r_sum``. Of one seed: over test images. Of several: of ``r_sum``
            alone, over seeds and images, if there are too few for a rank.
        spread: standard deviation over training seeds per recall and ``r_sum``, if there are several.
        seeds: training seeds, if known.
        printed_r_sum: sum printed by the source, if any.
        eccv, cxc: percentages on COCO 5K by the labels of ECCV Caption and CxC, such as ``i2t_map_at_r``, averaged over
            seeds; computed when the entry was added, because ranks only cover the dataset's own pairs.
        status: ``reported``: printed; ``submitted``: its recalls follow from the ranks of every query; ``reproduced``:
            the maintainers also trained it, from a recipe of this repository.
        source: key of the paper in ncl_bench/papers/published/sources.yaml, or ``submission``.
        own: whether the source introduces the method.
        table: place in the source.
        file: name of its cell in ``results/``; empty for a printed number.
        runs: keys of its seeds in that file; several if seeds are merged.
        command: command that reproduces it; empty if unknown.
        paper, code: links given by a submitter.
        noise: the noise, named if it is not the cell's standard draw. Always named under image noise, because papers
            share image files that no seed draws.
        selection: split on which the checkpoint was chosen, ``none`` for the last epoch; empty if the source does not
            say. An entry chosen on ``test`` is not ranked.
        precision: arithmetic of the training; empty if not recorded.
        settings: overridden recipe options, such as ``method.epochs=10``.
        ablation: table and row of the paper's ablation that it repeats; empty for none.
        recipe: ``default``: trained by a recipe as shipped; ``tuned``: with values of `ncl-bench tune`; ``tuned on X``:
            with values that were tuned on the dataset X; empty if it names no recipe of this repository.
        budget: gradient steps that the recipe sets, averaged over networks; None if its epochs decide.
        pairs_seen: captions that each network encoded in training; None if unknown.
        cost: training time relative to the same number of plain triplet steps; None if it was not timed.
        last_epoch: rSum of the last epoch, as recorded by the engine; None if it was not.
        curves: measurements after each epoch, one curve per training seed.
        found: wrong pairs found by the method, per training seed that recorded them.
        trained_on: versions of torch and devices, as recorded by the engine.
        notes: remarks. doubts: reasons not to trust the number; an entry with doubts is not ranked.
    """

    method: Name
    family: str
    backbone: OptionalName = ""
    features: Literal["region", "pretrained", "images", "unknown"] = "region"
    encoder: ShownText = ""
    networks: Literal["single", "ensemble", "unknown"] = "unknown"
    extra: ShownText = ""
    kind: Literal["method", "ablation", "oracle"] = "method"
    cell: Cell
    recalls: Recalls
    intervals: dict[str, tuple[float, float]] = Field(default_factory=dict)
    spread: dict[str, float] = Field(default_factory=dict)
    seeds: tuple[int, ...] = ()
    printed_r_sum: Annotated[float, Field(ge=0, le=600)] | None = None
    eccv: dict[str, Percent] = Field(default_factory=dict)
    cxc: dict[str, Percent] = Field(default_factory=dict)
    status: Status
    source: str
    own: bool = False
    table: ShownText = ""
    file: str = ""
    runs: tuple[str, ...] = ()
    command: str = ""
    paper: Link = ""
    code: Link = ""
    noise: ShownText = ""
    selection: Selection = ""
    precision: Precision | Literal[""] = ""
    settings: tuple[Setting, ...] = ()
    ablation: tuple[str, ...] = ()
    recipe: str = ""
    budget: Annotated[int, Field(ge=1)] | None = None
    pairs_seen: Annotated[float, Field(ge=0)] | None = None
    cost: Annotated[float, Field(ge=0)] | None = None
    last_epoch: Annotated[float, Field(ge=0, le=600)] | None = None
    curves: tuple[TrainingCurve, ...] = ()
    found: tuple[FoundPairs, ...] = ()
    trained_on: tuple[LongText, ...] = ()
    notes: tuple[LongText, ...] = ()
    doubts: tuple[LongText, ...] = ()

    @model_validator(mode="after")
    def _has_a_number(self) -> Self:
        if self.r_sum is None and not any(self.recalls.values.values()):
            raise ValueError("neither a recall nor a printed rSum is given")
        return self

    @property
    def label(self) -> str:
        """The method, with reduced precision and changed settings: ``NCR (bf16-mixed, method.epochs=10)``."""
        return f"{self.method} ({', '.join(self.differs)})" if self.differs else self.method

    @property
    def quoted_as(self) -> tuple[object, ...]:
        """Key shared by rows of several papers about one model; a backbone at the end of the name is ignored."""
        name = self.method.removesuffix(f"-{self.backbone}")
        return (name, self.family, self.backbone, self.features, self.networks, self.kind, self.cell)

    @property
    def differs(self) -> tuple[str, ...]:
        """Differences from the shipped recipe trained in float32."""
        precision = (self.precision,) if self.reduced else ()
        tuned = (self.recipe,) if self.tuned else ()
        steps = (f"{self.budget:,} steps",) if self.budget else ()
        return (*precision, *tuned, *steps, *self.settings)

    @property
    def tuned(self) -> bool:
        """Whether its recipe holds values of `ncl-bench tune`, perhaps of another dataset."""
        return self.recipe.startswith("tuned")

    @property
    def reduced(self) -> bool:
        """Whether it was trained in a precision below float32."""
        return self.precision not in ("", "32-true")

    @property
    def r_sum(self) -> float | None:
        """Sum of the six recalls, or the printed sum if recalls are missing; None without either."""
        computed = self.recalls.r_sum
        return self.printed_r_sum if computed is None else computed

    @property
    def printed_gap(self) -> float | None:
        """Printed rSum minus the sum of the recalls, if rounding does not explain it; else None.

        The recalls decide the rank; every table shows the difference.
        """
        computed = self.recalls.r_sum
        if computed is None or self.printed_r_sum is None:
            return None
        gap = self.printed_r_sum - computed
        return gap if abs(gap) > SUM_TOLERANCE else None

    @property
    def ranked(self) -> bool:
        """Whether the entry is ranked: comparable, and printed or measured with enough seeds."""
        return self.comparable and not self.preliminary

    @property
    def comparable(self) -> bool:
        """Whether it is a method with a trusted sum, chosen on dev, with a known noise unit."""
        trusted = not self.doubts and self.selection != "test" and self.cell.noise_unit != "unknown"
        return self.kind == "method" and trusted and self.r_sum is not None

    @property
    def preliminary(self) -> bool:
        """Whether only its number of seeds keeps a measured entry from a rank."""
        few = self.status != "reported" and self.n_seeds < SEEDS_FOR_A_RANK
        return few and self.comparable

    @property
    def n_seeds(self) -> int:
        """Number of independent results; the averaged networks of one result count once, whatever their seeds."""
        return len(self.runs) or len(self.seeds)
