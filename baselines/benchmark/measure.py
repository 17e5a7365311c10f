"""Every measurement of the benchmark, one row for each comparison."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch.utils.flop_counter import FlopCounterMode

from baselines.backbones import BACKBONES
from baselines.benchmark import works
from baselines.benchmark.loop import Loop
from baselines.benchmark.memory import WORKS, peak_mebibytes
from baselines.benchmark.sizes import Sizes
from baselines.benchmark.stopwatch import TOTAL, Side, Stopwatch, Timings, side_by_side
from baselines.engine.devices import set_products
from baselines.engine.similarities import score
from baselines.kit.backbone import Backbone
from ncl_bench.errors import NclBenchError

LARGEST_DIFFERENCE = 1e-4
"""Of the loop's similarities and ours; beyond it the two sides do not do the same work."""

WORK_TITLES = {
    "step": "{name}: training step",
    "scoring": "{name}: scoring",
    "images": "{name}: image-image similarities of GSC",
    "captions": "{name}: caption-caption similarities of GSC",
    "pc2": "{name}: PC2's two steps",
}
AGAINST_LOOP = "Against the loop over captions"
BESIDE_SGR = "Beside a training step of SGR"
EPOCH = "An epoch of SGR: what waiting for features leaves of the speed"
GROWTH = "Speed per pair as batch and set grow"
PRECISION = "Precision"
KERNEL = "Fused kernel"


@dataclass(frozen=True)
class Row:
    """One side beside the reference of its work.

    Attributes:
        group: heading in the table.
        work: what is done.
        reference: the side that others are compared with.
        side: the side compared.
        ratio: how many times faster than the reference; median over the rounds.
        laps: the same for parts of the work, such as ``forward``.
        rounds: passes behind the medians.
        seconds: of reference and side; None on a CPU, where times are not comparable from run to run.
        peak_mebibytes: memory of one pass of reference and side; None where not measured.
        share_of_peak: executed matrix arithmetic of the side over the device's peak; None where not counted.
        difference: largest absolute difference of similarities; None where not compared.
    """

    group: str
    work: str
    reference: str
    side: str
    ratio: float
    laps: dict[str, float]
    rounds: int
    seconds: tuple[float, float] | None = None
    peak_mebibytes: tuple[float, float] | None = None
    share_of_peak: float | None = None
    difference: float | None = None


Advance = Callable[[float], None]
Measurement = Callable[[Advance], list[Row]]


class Measurements:
    """All measurements on one device; each entry of :meth:`plan` makes its rows when it is called."""

    def __init__(self, sizes: Sizes, device: torch.device) -> None:
        self.sizes, self.device = sizes, device
        self.matrix_peak = 0.0
        set_products("32-true")

    def plan(self) -> list[tuple[str, Measurement]]:
        """Title and measurement, in order."""
        compared = [
            (work, name) for name in ("sgr", "saf") for work in ("step", "scoring", "images", "captions")
        ]
        precisions = ["bf16-mixed"] if self.device.type == "cpu" else ["tf32", "bf16-mixed"]
        return [
            ("matrix product", self._measure_matrix_peak),
            *(
                (
                    WORK_TITLES[work].format(name=BACKBONES[name].title),
                    self._bound(self._against_loop, work, name),
                )
                for work, name in [*compared, ("pc2", "sgr")]
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
                (
                    f"{KERNEL}: {BACKBONES['sgr'].title}, {precision}",
                    self._bound(self._kernels, "sgr", precision),
                )
                for precision in precisions
                if self.device.type == "cuda"
            ),
        ]

    @staticmethod
    def _bound(measure: Callable[..., list[Row]], *arguments: Any) -> Measurement:
        return lambda advance: measure(*arguments, advance)

    def _timed(self, sides: Mapping[str, Side], advance: Advance) -> Timings:
        limits = {"rounds": self.sizes.rounds, "seconds": self.sizes.seconds}
        return side_by_side(sides, self.device, on_round=advance, **limits)  # type: ignore[arg-type]

    def _row(
        self,
        group: str,
        work: str,
        reference: str,
        side: str,
        timings: Timings,
        scale: float = 1.0,
        **facts: Any,
    ) -> Row:
        on_gpu = self.device.type == "cuda"
        return Row(
            group,
            work,
            reference,
            side,
            scale * timings.ratio(reference, side),
            {lap: scale * timings.ratio(reference, side, lap) for lap in timings.laps() if lap != TOTAL},
            timings.rounds,
            seconds=(timings.seconds(reference), timings.seconds(side)) if on_gpu else None,
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

    def _against_loop(self, work: str, name: str, advance: Advance) -> list[Row]:
        sides = WORKS[work](self.sizes, self.device, name)
        timings = self._timed(sides, advance)
        with FlopCounterMode(display=False) as counter:
            sides[works.BLOCKS](Stopwatch(self.device))
        speed = counter.get_total_flops() / timings.seconds(works.BLOCKS)
        del sides
        facts: dict[str, Any] = {"share_of_peak": speed / self.matrix_peak}
        if work != "scoring" or self.device.type == "cuda":  # few images fill no block
            sizes = self.sizes.model_copy(update={"batch": self.sizes.memory_batch})
            facts["peak_mebibytes"] = tuple(
                peak_mebibytes(work, name, side, sizes, self.device) for side in (works.LOOP, works.BLOCKS)
            )
        if work == "scoring":
            facts["difference"] = self._difference_from_loop(name)
        title = WORK_TITLES[work].format(name=BACKBONES[name].title)
        return [self._row(AGAINST_LOOP, title, works.LOOP, works.BLOCKS, timings, **facts)]

    def _difference_from_loop(self, name: str) -> float:
        network = works.make_network(name, self.sizes, self.device).eval()
        dataset = works.make_dataset(self.sizes, self.sizes.image_counts[0])
        ours, theirs = (score([each], dataset, device=self.device) for each in (network, Loop(network)))
        difference = float(np.abs(ours - theirs).max())
        if not difference <= LARGEST_DIFFERENCE:
            raise NclBenchError(
                f"the similarities of {name} differ by {difference:.1e} from the loop's, expected at most "
                f"{LARGEST_DIFFERENCE:.0e}; the two cannot be compared"
            )
        return difference

    def _beside_sgr(self, advance: Advance) -> list[Row]:
        timings = self._timed(works.beside_sgr(self.sizes, self.device), advance)
        titles = {"vse_infinity": "VSE-infinity: training step", "loading": "loading a batch"}
        return [self._row(BESIDE_SGR, title, "sgr", side, timings) for side, title in titles.items()]

    def _epoch(self, advance: Advance) -> list[Row]:
        sides = works.epoch("sgr", self.sizes, self.device)
        timings = self._timed(sides, advance)
        reference, *others = sides
        return [self._row(EPOCH, "SGR: an epoch", reference, side, timings) for side in others]

    def _growth(self, name: str, advance: Advance) -> list[Row]:
        sizes, device = self.sizes, self.device
        most = (sizes.image_counts[0], sizes.most_images)
        several: dict[str, Any] = {"rounds": sizes.rounds, "seconds": sizes.seconds, "on_round": advance}
        once = several | {"rounds": 1}
        rows = []
        for work, unit, sides, limits in (
            ("training step", "pairs", works.growing_step(name, sizes, device), several),
            ("scoring", "images", works.growing_scoring(name, sizes, device, sizes.image_counts), several),
            ("scoring, one pass", "images", works.growing_scoring(name, sizes, device, most), once),
        ):
            labels = {count: f"{count} {unit}" for count in sides}
            timings = side_by_side({labels[n]: side for n, side in sides.items()}, device, **limits)
            first, *others = sides
            rows += [
                self._row(
                    GROWTH,
                    f"{BACKBONES[name].title}: {work}",
                    labels[first],
                    labels[count],
                    timings,
                    scale=(count / first) ** 2,
                )
                for count in others
            ]
        return rows

    def _precision(self, name: str, precisions: Sequence[str], advance: Advance) -> list[Row]:
        network = works.make_network(name, self.sizes, self.device)
        batch = works.make_batch(self.sizes, self.sizes.batch, self.device)
        few = works.make_dataset(self.sizes, self.sizes.image_counts[0])
        kinds = {kind: self._arithmetic(kind, network) for kind in ("32-true", *precisions)}
        sides = {kind: works.step_of(network, batch, arithmetic) for kind, arithmetic in kinds.items()}
        timings = self._timed(sides, advance)
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

    def _kernels(self, name: str, precision: str, advance: Advance) -> list[Row]:
        networks = {
            kernel: works.make_network(name, self.sizes, self.device, kernel=kernel)
            for kernel in ("torch", "triton")
        }
        batch = works.make_batch(self.sizes, self.sizes.batch, self.device)
        dataset = works.make_dataset(self.sizes, self.sizes.images)
        side_by_work: dict[str, Callable[[Backbone], Side]] = {
            "training step": lambda network: works.step_of(
                network, batch, self._arithmetic(precision, network)
            ),
            "scoring": lambda network: works.scoring_of(
                network, dataset, self.device, self._arithmetic(precision, network)
            ),
        }
        rows = []
        for work, side_of in side_by_work.items():
            sides = {kernel: side_of(network) for kernel, network in networks.items()}
            timings = self._timed(sides, advance)
            title = f"{BACKBONES[name].title}: {work}, {precision}"
            rows.append(self._row(KERNEL, title, "torch", "triton", timings))
        return rows

    def _arithmetic(self, precision: str, network: Backbone) -> works.Arithmetic:
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
