"""The rows of the leaderboard: one result in one condition, typed and checked, with its place among others."""

import itertools
import math
import statistics
from collections.abc import Callable, Iterable, Mapping
from typing import Annotated, Any, Literal, Self, TypeVar

from pydantic import Field

from ncl_bench.data import DATASETS
from ncl_bench.data.spec import protocol_title
from ncl_bench.evaluation.detection import Separation
from ncl_bench.evaluation.metrics import RECALLS
from ncl_bench.evaluation.training_record import DetectedPairs, TrainingCurve
from ncl_bench.names import Link, LongText, Name, OptionalName, ShownText
from ncl_bench.schema import Matching, Percent, Precision, Record

RECALL_TITLES = dict(zip(RECALLS, ("R@1", "R@5", "R@10") * 2, strict=True))
SUM_TOLERANCE = (
    0.15  # six recalls rounded to 0.05 each differ from a rounded sum by at most this much in practice
)

Unit = Literal["none", "caption", "image", "similar", "noun", "file", "unknown", "natural"]
Status = Literal["reported", "submitted", "reproduced"]
SEEDS_FOR_A_RANK = 3
"""A measured row with fewer training seeds is preliminary; docs/protocol.md says why."""
STATUSES: tuple[Status, ...] = ("reported", "submitted", "reproduced")
"""From weakest to strongest claim."""
Selection = Literal["dev", "test", "train", "none", ""]
UNIT_TITLES: dict[Unit, str] = {
    "none": "no added noise",
    "caption": "caption noise",
    "image": "image noise",
    "similar": "similar-caption noise",
    "noun": "common-noun noise",
    "file": "noise of a file",
    "unknown": "noise, unit unknown",
    "natural": "natural noise",
}
"""Noise units in words, in the order of the boards."""
Run = tuple[str, str, str]
"""Name of a row file, key of a seed, and protocol."""
WARM_UP = "(warm-up"
"""In the name of a control that begins with another loss."""
FALLEN = 0.9
"""Share of its best rSum on dev below which a control has collapsed."""
REFERENCE_RATIO = 0.4
"""Noise ratio that orders the lines of figures and tables."""
Shown = TypeVar("Shown")
Key = TypeVar("Key")
LineName = TypeVar("LineName", str, tuple[str, ...])
Setting = Annotated[LongText, Matching(r"[a-z0-9_.]+=.*", "a recipe option and its value, NAME=VALUE")]


class Condition(Record):
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

    @property
    def noise(self) -> tuple[Unit, float | None]:
        """Unit and ratio of the noise, such as ``("caption", 0.4)``."""
        return self.noise_unit, self.noise_ratio

    @property
    def percent(self) -> str:
        """The nominal noise ratio in percent, such as ``40``; empty under natural noise."""
        return "" if self.noise_ratio is None else f"{100 * self.noise_ratio:g}"

    @property
    def data(self) -> str:
        """Dataset and protocol, such as ``Flickr30K, 1K test``."""
        return f"{DATASETS[self.dataset].title}, {protocol_title(self.protocol)}"

    @property
    def title(self) -> str:
        """The condition in words, such as ``Flickr30K, 1K test, 40 % caption noise``."""
        return f"{self.data}, {self.short}{f' ({self.text})' if self.text else ''}"

    @property
    def short(self) -> str:
        """The noise alone, such as ``40 % caption noise``."""
        noise = UNIT_TITLES[self.noise_unit]
        return f"{self.percent} % {noise}" if self.noise_ratio else noise

    @property
    def slug(self) -> str:
        """Name of the condition in links, such as ``flickr30k-1k-caption-40``."""
        return "-".join(filter(None, (self.dataset, self.protocol, self.noise_unit, self.percent, self.text)))

    def at_every_ratio(self, unit: Unit | None = None) -> Self:
        """What the conditions of a line over noise ratios share; of its clean end with the unit of the others."""
        return self.model_copy(update={"noise_ratio": None, "noise_unit": unit or self.noise_unit})

    @property
    def order(self) -> tuple[int, int, int, float, str]:
        """Sort key: dataset, protocol, unit, ratio, text."""
        return (
            list(DATASETS).index(self.dataset),
            DATASETS[self.dataset].protocols.index(self.protocol),
            list(UNIT_TITLES).index(self.noise_unit),
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
        return dict(self)

    @property
    def r_sum(self) -> float | None:
        """Sum of the six recalls; None if one is missing."""
        values = [getattr(self, name) for name in RECALLS]
        return None if None in values else math.fsum(values)

    @property
    def falling(self) -> str:
        """First pair of recalls that decreases with K, such as ``i2t_r10 < i2t_r5``; else empty."""
        for (small, low), (large, high) in itertools.pairwise(self.values.items()):
            if small[:3] == large[:3] and low is not None and high is not None and high < low:
                return f"{large} < {small}"
        return ""


def anchor(condition: Condition, file: str) -> str:
    """Place of a measured row on the page of its board, as ``index.html#...`` names it."""
    return f"{condition.slug}.{file}"


class Entry(Record):
    """One result in one condition: printed by a paper, or measured with one seed; with several once they are merged."""

    method: Name  # as printed by its source
    family: str  # key of the method's page
    backbone: OptionalName = ""  # network that computes similarities; empty if the source does not say
    # `pretrained` is a vision-language encoder, `images` such a network from drawn weights
    features: Literal["region", "pretrained", "images", "unknown"] = "region"
    encoder: ShownText = ""  # such as `CLIP ViT-B/32`; rows of different encoders are ranked apart
    # `ensemble`: similarities of several networks are averaged at test time
    networks: Literal["single", "ensemble", "unknown"] = "unknown"
    extra: ShownText = ""  # help beyond the noisy pairs: extra clean data, a pre-trained filter
    # an ablation, a control that was trained on the truly clean pairs, one result of each of several draws of the
    # noise, and scores that were corrected for hubs, which any method's can be, are not ranked
    kind: Literal["method", "ablation", "clean", "draws", "corrected"] = "method"
    correction: ShownText = (
        ""  # for hubs, such as `CSLS`, or `CSLS, weight 0.5` if dev did not choose the weight
    )
    condition: Condition
    recalls: Recalls
    # 95 %, per recall and of r_sum. Of one seed: over test images. Of several: of r_sum alone, over seeds and images,
    # if there are too few for a rank
    intervals: dict[str, tuple[float, float]] = Field(default_factory=dict)
    spread: dict[str, float] = Field(
        default_factory=dict
    )  # standard deviation over seeds per recall, r_sum and measure of agreement with people
    seeds: tuple[int, ...] = ()
    printed_r_sum: Annotated[float, Field(ge=0, le=600)] | None = None
    # percentages on COCO 5K by the labels of ECCV Caption and CxC, such as i2t_map_at_r; computed when the entry was
    # added, because ranks only cover the dataset's own pairs
    eccv: dict[str, Percent] = Field(default_factory=dict)
    cxc: dict[str, Percent] = Field(default_factory=dict)
    # agreement with people's judgements, such as expert_tau_c; empty except on Flickr8K
    people: dict[str, float] = Field(default_factory=dict)
    # `submitted`: the recalls follow from the ranks of every query; `reproduced`: the maintainers also trained it, from
    # a recipe of this repository
    status: Status
    source: str  # key of the paper in published/sources.yaml, or `submission`
    own: bool = False  # whether the source introduces the method
    table: ShownText = ""  # place in the source
    file: str = ""  # name of its row in results/; empty for a printed number
    runs: tuple[str, ...] = ()  # keys of its seeds in that file
    command: str = ""  # that reproduces it
    paper: Link = ""
    code: Link = ""
    # if it is not the condition's standard draw; always named under image noise, because papers share image files
    # that no seed draws
    noise: ShownText = ""
    # split on which the checkpoint was chosen, `none` for the last epoch; an entry chosen on `test` is not ranked
    selection: Selection = ""
    precision: Precision | Literal[""] = ""  # arithmetic of the training
    settings: tuple[Setting, ...] = ()  # overridden recipe options, such as `method.epochs=10`
    ablation: tuple[str, ...] = ()  # table and row of the paper's ablation that it repeats
    recipe: str = (
        ""  # `default`, `tuned` or `tuned on X`, another dataset; empty if no recipe of this repository
    )
    budget: Annotated[int, Field(ge=1)] | None = None  # steps, averaged over networks; None if epochs decide
    closed_form: bool = False  # fitted without a gradient step, such as CCA
    pairs_seen: Annotated[float, Field(ge=0)] | None = None  # captions that each network encoded in training
    cost: Annotated[float, Field(ge=0)] | None = None  # training time per that of as many plain triplet steps
    last_epoch: Annotated[float, Field(ge=0, le=600)] | None = None  # its rSum
    curves: tuple[TrainingCurve, ...] = ()  # measurements after each epoch, per training seed
    found: tuple[
        DetectedPairs, ...
    ] = ()  # wrong pairs found by the method, per training seed that recorded them
    # how well they are found by what the scored networks say of every training pair, by its name, per training seed
    separated: tuple[dict[str, Separation], ...] = ()
    trained_on: tuple[LongText, ...] = ()  # versions of torch and devices
    notes: tuple[LongText, ...] = ()
    doubts: tuple[LongText, ...] = ()  # reasons not to trust the number; an entry with doubts is not ranked

    def flat(self) -> dict[str, Any]:
        """The entry as one flat row: its condition's fields, its own, the six recalls, and ``r_sum``."""
        return {**vars(self.condition), **vars(self), **self.recalls.values, "r_sum": self.r_sum}

    @property
    def category(self) -> str:
        """Key in ``leaderboard.board.CATEGORIES`` of the entries that it is comparable with."""
        if self.kind != "method":
            return "controls"
        if self.features != "region":
            return "encoder-unstated" if self.features == "unknown" else self.features
        return "extra" if self.extra else self.networks.replace("unknown", "unstated")

    @property
    def label(self) -> str:
        """The method, with reduced precision and changed settings: ``NCR (bf16-mixed, method.epochs=10)``."""
        return f"{self.method} ({', '.join(self.differs)})" if self.differs else self.method

    @property
    def quoted_as(self) -> tuple[object, ...]:
        """Key shared by rows of several papers about one model; a backbone at the end of the name is ignored."""
        name = self.method.removesuffix(f"-{self.backbone}")
        return (name, self.family, self.backbone, self.features, self.networks, self.kind, self.condition)

    @property
    def differs(self) -> tuple[str, ...]:
        """Differences from the shipped recipe trained in float32."""
        precision = () if self.precision in ("", "32-true") else (self.precision,)
        tuned = (self.recipe,) if self.tuned else ()
        steps = (f"{self.budget:,} steps",) if self.budget and not self.closed_form else ()
        corrected = (self.correction,) if self.correction else ()
        return (*precision, *tuned, *steps, *self.settings, *corrected)

    @property
    def tuned(self) -> bool:
        """Whether its recipe holds values of `ncl-bench tune`, perhaps of another dataset."""
        return self.recipe.startswith("tuned")

    @property
    def r_sum(self) -> float | None:
        """Sum of the six recalls, or the printed sum if recalls are missing; None without either."""
        computed = self.recalls.r_sum
        return self.printed_r_sum if computed is None else computed

    @property
    def r_sum_or_0(self) -> float:
        """Its rSum; 0 where it is unknown, so that such rows stand last."""
        return self.r_sum or 0.0

    @property
    def shown_sum(self) -> str:
        """Its rSum with one decimal; empty if unknown."""
        return "" if self.r_sum is None else f"{self.r_sum:.1f}"

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
        trusted = not self.doubts and self.selection != "test" and self.condition.noise_unit != "unknown"
        return self.kind == "method" and trusted and self.r_sum is not None

    @property
    def preliminary(self) -> bool:
        """Whether only its number of seeds keeps a measured entry from a rank; a closed form needs one."""
        few = self.status != "reported" and not self.closed_form and self.n_seeds < SEEDS_FOR_A_RANK
        return few and self.comparable

    @property
    def dev(self) -> tuple[float, float] | None:
        """Highest rSum on dev and that after the last epoch, means over seeds; None without curves."""
        if not self.curves:
            return None
        fmean = statistics.fmean
        return fmean(max(one.dev) for one in self.curves), fmean(one.dev[-1] for one in self.curves)

    @property
    def n_seeds(self) -> int:
        """Number of independent results; the averaged networks of one result count once, whatever their seeds."""
        return len(self.runs) or len(self.seeds)


class Row(Entry):
    """An entry with its place among the others of its condition and category.

    Attributes:
        number: place in the order of reading.
        rank: one more than the number of better rows that differ significantly; None without a rank.
        rank_interval: simultaneous 95 % interval of the rank; None without a rank or evidence.
        also: sources of other rows with the same numbers; None in those rows, which follow the one that leads them.
        shown_as: name in place of the label.
        interval: 95 % interval of what a page other than the boards ranks by; None without evidence.
    """

    number: int = 0
    rank: int | None = None
    rank_interval: tuple[int, int] | None = None
    also: tuple[str, ...] | None = ()
    shown_as: ShownText = ""
    interval: tuple[float, float] | None = None

    @classmethod
    def of(cls, entry: Entry, **facts: Any) -> Self:
        """The entry with further facts; both are checked already."""
        return cls.model_construct(**{**dict(entry), **facts})

    @property
    def label(self) -> str:
        """See :attr:`Entry.label`."""
        return self.shown_as or super().label

    @property
    def plain_steps(self) -> float | None:
        """Training time in steps of the plain triplet loss on one network; None if it was not recorded."""
        return self.cost * self.budget if self.cost and self.budget else None

    @property
    def collapsed(self) -> bool:
        """Whether a control ends more than a tenth below its best rSum on dev, once its warm-up is over.

        A control without a warm-up has one loss throughout: where it falls, it memorises wrong pairs, which is what it
        shows.
        """
        ends = [curve.dev[-1] / max(curve.dev) for curve in self.curves if any(curve.dev)]
        return WARM_UP in self.method and bool(ends) and statistics.fmean(ends) < FALLEN

    @property
    def detection(self) -> dict[str, float] | None:
        """AUROC and average precision of the clean probability at the epoch with the highest rSum on dev.

        ``last_auroc`` is that after the last epoch, ``best_auroc`` the highest of any epoch. Means over seeds, in
        [0, 1]; None if the method estimates nothing or no pair was wrong.
        """
        curves = [curve for curve in self.curves if curve.auroc]
        if not curves:
            return None
        return {
            "auroc": statistics.fmean(curve.auroc[curve.best] for curve in curves),
            "average_precision": statistics.fmean(curve.average_precision[curve.best] for curve in curves),
            "last_auroc": statistics.fmean(curve.auroc[-1] for curve in curves),
            "best_auroc": statistics.fmean(max(curve.auroc) for curve in curves),
        }


def grouped(rows: Iterable[Shown], key: Callable[[Shown], Key]) -> dict[Key, list[Shown]]:
    """Rows by a key, in the order in which the keys first appear."""
    groups: dict[Key, list[Shown]] = {}
    for row in rows:
        groups.setdefault(key(row), []).append(row)
    return groups


def title_of(row: Row, *, tuned: bool = True) -> str:
    """A line's name: the method, “tuned” if its recipe was tuned, and other changed settings."""
    kept = [
        difference
        for difference in row.differs
        if not difference.endswith(" steps") and (tuned or difference != row.recipe)
    ]
    return f"{row.method} ({', '.join(kept)})" if kept else row.method


def by_reference(lines: Mapping[LineName, Mapping[float, Row]]) -> list[LineName]:
    """Keys of lines of rows by noise ratio: best at ``REFERENCE_RATIO`` first, then those without it.

    Lines with a preliminary row come last.
    """

    def key(label: LineName) -> tuple[bool, bool, float]:
        points = lines[label]
        at = points.get(REFERENCE_RATIO)
        sums = [row.r_sum_or_0 for row in points.values()]
        preliminary = any(row.preliminary for row in points.values())
        return preliminary, at is None, -(sum(sums) / len(sums) if at is None else at.r_sum_or_0)

    return sorted(sorted(lines), key=key)
