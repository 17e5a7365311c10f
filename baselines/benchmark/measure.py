"""Every measurement of the benchmark, one row for each comparison."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch.utils.flop_counter import FlopCounterMode

from baselines.backbones import BACKBONES
from baselines.benchmark import workloads
from baselines.benchmark.cost import IN_PLACE
from baselines.benchmark.loop import Loop
from baselines.benchmark.memory import WORKLOADS, ScoringMemory, peak_mebibytes, scoring_memory
from baselines.benchmark.sizes import Sizes
from baselines.benchmark.step_costs import StepCost, step_costs
from baselines.benchmark.stopwatch import TOTAL, Stopwatch, Timings, Variant, side_by_side
from baselines.engine.devices import set_products
from baselines.engine.similarities import score
from baselines.kit.backbone import Backbone
from ncl_bench.errors import NclBenchError

LARGEST_DIFFERENCE = 1e-4
"""Of the loop's similarities and ours; beyond it the two do not do the same work."""

COMPARED = {
    "sgr": ("step", "scoring", "images", "captions", "pc2"),
    "saf": ("step", "scoring", "images", "captions"),
    "scan": ("similarities", "step", "scoring"),
    "imram": ("similarities", "step", "scoring"),
    "vsrn": ("step",),
}
"""Network to what is compared with the loop of its paper's code."""
TITLES = {
    "step": "{name}: training step",
    "similarities": "{name}: similarities and their gradient",
    "scoring": "{name}: scoring",
    "images": "{name}: image-image similarities of GSC",
    "captions": "{name}: caption-caption similarities of GSC",
    "pc2": "{name}: PC2's two steps",
}
AGAINST_LOOP = "Against the loop over captions or, with VSRN, over words"
BESIDE_SGR = "Beside a training step of SGR"
EPOCH = "An epoch of SGR: what waiting for features leaves of the speed"
GROWTH = "Speed per pair as batch and set grow"
PRECISION = "Precision"
GROUPS = (AGAINST_LOOP, BESIDE_SGR, EPOCH, GROWTH, PRECISION)
STEP_COSTS = "A training step of each method"
MEMORY = "Memory of scoring"


@dataclass(frozen=True)
class Row:
    """One variant beside the reference of its workload.

    Attributes:
        group: heading in the table.
        workload: what is done.
        reference: the variant that others are compared with.
        variant: the variant compared.
        ratio: how many times faster than the reference; median over the rounds.
        spread: the same, smallest and largest of a round; None where there was but one.
        stages: the median for parts of the workload, such as ``forward``.
        rounds: passes behind the medians.
        seconds: of reference and variant; None on a CPU, where times are not comparable from run to run.
        peak_mebibytes: memory of one pass of reference and variant; None where not measured.
        share_of_peak: executed matrix arithmetic of the variant over the device's peak; None where not counted.
        difference: largest absolute difference of similarities; None where not compared.
    """

    group: str
    workload: str
    reference: str
    variant: str
    ratio: float
    stages: dict[str, float]
    rounds: int
    spread: tuple[float, float] | None = None
    seconds: tuple[float, float] | None = None
    peak_mebibytes: tuple[float, float] | None = None
    share_of_peak: float | None = None
    difference: float | None = None


Advance = Callable[[float], None]
Found = Row | StepCost | ScoringMemory
Measurement = Callable[[Advance], Sequence[Found]]


class Measurements:
    """All measurements on one device; each entry of :meth:`plan` makes its rows when it is called."""

    def __init__(self, sizes: Sizes, device: torch.device) -> None:
        self.sizes, self.device = sizes, device
        self.matrix_peak = 0.0
        set_products("32-true")

    def plan(self) -> list[tuple[str, Measurement]]:
        """Title and measurement, in order."""
        precisions = ["bf16-mixed"] if self.device.type == "cpu" else ["tf32", "bf16-mixed"]
        return [
            ("matrix product", self._measure_matrix_peak),
            *(
                (self._title(workload, name), self._bound(self._against_loop, workload, name))
                for name, compared in COMPARED.items()
                for workload in compared
            ),
            (BESIDE_SGR, self._beside_sgr),
            (EPOCH, self._epoch),
            *(
                (f"{GROWTH}: {BACKBONES[name].title}", self._bound(self._growth, name))
                for name in ("sgr", "saf", "vse_infinity")
            ),
            *(
                (f"{PRECISION}: {BACKBONES[name].title}", self._bound(self._precision, name, precisions))
                for name in ("sgr", "saf", "vse_infinity")
            ),
            *(
                (f"{STEP_COSTS}: {BACKBONES[name].title}", self._bound(self._step_costs, name))
                for name in ("sgr", "vse_infinity")
            ),
            *(
                (f"{MEMORY}: {BACKBONES[name].title}", self._bound(self._scoring_memory, name))
                for name in ("sgr", "scan", "imram", "vsrn")
            ),
        ]

    def _title(self, workload: str, name: str) -> str:
        title, sizes = TITLES[workload].format(name=BACKBONES[name].title), self.sizes.of(name)
        if workload == "scoring" and sizes.images != self.sizes.images:
            return f"{title}, {sizes.images:,} x {sizes.images * sizes.captions_per_image:,}"
        return title if sizes.batch == self.sizes.batch else f"{title}, batch {sizes.batch}"

    @staticmethod
    def _bound(measure: Callable[..., Sequence[Found]], *arguments: Any) -> Measurement:
        return lambda advance: measure(*arguments, advance)

    def _timed(self, variants: Mapping[str, Variant], advance: Advance) -> Timings:
        limits = {"rounds": self.sizes.rounds, "seconds": self.sizes.seconds}
        return side_by_side(variants, self.device, on_round=advance, **limits)  # type: ignore[arg-type]

    def _row(
        self,
        group: str,
        workload: str,
        reference: str,
        variant: str,
        timings: Timings,
        scale: float = 1.0,
        **facts: Any,
    ) -> Row:
        on_gpu = self.device.type == "cuda"
        low, high = timings.spread(reference, variant)
        return Row(
            group,
            workload,
            reference,
            variant,
            scale * timings.ratio(reference, variant),
            {
                stage: scale * timings.ratio(reference, variant, stage)
                for stage in timings.stages()
                if stage != TOTAL
            },
            timings.rounds,
            (scale * low, scale * high) if timings.rounds > 1 else None,
            seconds=(timings.seconds(reference), timings.seconds(variant)) if on_gpu else None,
            **facts,
        )

    def _measure_matrix_peak(self, advance: Advance) -> list[Row]:
        """Multiply-adds count twice, as everywhere."""
        n = self.sizes.matrix
        a = torch.rand(n, n, device=self.device)

        def product(watch: Stopwatch) -> None:
            torch.matmul(a, a)

        timings = self._timed({"product": product}, advance)
        self.matrix_peak = 2 * n**3 / timings.fastest("product")
        return []

    def _against_loop(self, workload: str, name: str, advance: Advance) -> list[Row]:
        sizes = self.sizes.of(name)
        variants = WORKLOADS[workload](sizes, self.device, name)
        timings = self._timed(variants, advance)
        with FlopCounterMode(display=False, custom_mapping=IN_PLACE) as counter:
            variants[workloads.BLOCKS](Stopwatch(self.device))
        speed = counter.get_total_flops() / timings.seconds(workloads.BLOCKS)
        del variants
        facts: dict[str, Any] = {"share_of_peak": speed / self.matrix_peak}
        if workload != "scoring" or self.device.type == "cuda":  # few images fill no block
            larger = sizes.model_copy(update={"batch": sizes.memory_batch})
            facts["peak_mebibytes"] = tuple(
                peak_mebibytes(workload, name, variant, larger, self.device)
                for variant in (workloads.LOOP, workloads.BLOCKS)
            )
        if workload == "scoring":
            facts["difference"] = self._difference_from_loop(name)
        title = self._title(workload, name)
        return [self._row(AGAINST_LOOP, title, workloads.LOOP, workloads.BLOCKS, timings, **facts)]

    def _difference_from_loop(self, name: str) -> float:
        network = workloads.make_network(name, self.sizes, self.device).eval()
        dataset = workloads.make_dataset(self.sizes, self.sizes.image_counts[0])
        ours, theirs = (score([each], dataset, device=self.device) for each in (network, Loop(network)))
        difference = float(np.abs(ours - theirs).max())
        if not difference <= LARGEST_DIFFERENCE:
            raise NclBenchError(
                f"the similarities of {name} differ by {difference:.1e} from the loop's, expected at most "
                f"{LARGEST_DIFFERENCE:.0e}; the two cannot be compared"
            )
        return difference

    def _beside_sgr(self, advance: Advance) -> list[Row]:
        timings = self._timed(workloads.beside_sgr(self.sizes, self.device), advance)
        titles = {"vse_infinity": "VSE-infinity: training step", "loading": "loading a batch"}
        return [self._row(BESIDE_SGR, title, "sgr", variant, timings) for variant, title in titles.items()]

    def _epoch(self, advance: Advance) -> list[Row]:
        variants = workloads.epoch("sgr", self.sizes, self.device)
        timings = self._timed(variants, advance)
        reference, *others = variants
        return [self._row(EPOCH, "SGR: an epoch", reference, variant, timings) for variant in others]

    def _growth(self, name: str, advance: Advance) -> list[Row]:
        sizes, device = self.sizes, self.device
        most = (sizes.image_counts[0], sizes.most_images)
        several: dict[str, Any] = {"rounds": sizes.rounds, "seconds": sizes.seconds, "on_round": advance}
        once = several | {"rounds": 1}
        rows = []
        for workload, unit, variants, limits in (
            ("training step", "pairs", workloads.growing_step(name, sizes, device), several),
            (
                "scoring",
                "images",
                workloads.growing_scoring(name, sizes, device, sizes.image_counts),
                several,
            ),
            ("scoring, one pass", "images", workloads.growing_scoring(name, sizes, device, most), once),
        ):
            labels = {count: f"{count} {unit}" for count in variants}
            timings = side_by_side({labels[n]: variant for n, variant in variants.items()}, device, **limits)
            first, *others = variants
            rows += [
                self._row(
                    GROWTH,
                    f"{BACKBONES[name].title}: {workload}",
                    labels[first],
                    labels[count],
                    timings,
                    scale=(count / first) ** 2,
                )
                for count in others
            ]
        return rows

    def _precision(self, name: str, precisions: Sequence[str], advance: Advance) -> list[Row]:
        network = workloads.make_network(name, self.sizes, self.device)
        batch = workloads.make_batch(self.sizes, self.sizes.batch, self.device)
        few = workloads.make_dataset(self.sizes, self.sizes.image_counts[0])
        kinds = {kind: self._arithmetic(kind, network) for kind in ("32-true", *precisions)}
        variants = {kind: workloads.step_of(network, batch, arithmetic) for kind, arithmetic in kinds.items()}
        timings = self._timed(variants, advance)
        network.eval()
        scores = {}
        for kind, arithmetic in kinds.items():
            with arithmetic():
                scores[kind] = score([network], few, device=self.device)
        return [
            self._row(
                PRECISION,
                f"{BACKBONES[name].title}: training step",
                "32-true",
                kind,
                timings,
                difference=float(np.abs(scores[kind] - scores["32-true"]).max()),
            )
            for kind in precisions
        ]

    def _step_costs(self, name: str, advance: Advance) -> list[StepCost]:
        return step_costs(name, self.sizes, self.device, advance)

    def _scoring_memory(self, name: str, advance: Advance) -> list[ScoringMemory]:
        return [scoring_memory(name, n, self.sizes, self.device) for n in self.sizes.memory_images]

    def _arithmetic(self, precision: str, network: Backbone) -> workloads.Arithmetic:
        @contextmanager
        def arithmetic() -> Iterator[None]:
            set_products(precision)
            network.mixed = precision == "bf16-mixed"
            try:
                yield
            finally:
                set_products("32-true")
                network.mixed = False

        return arithmetic
