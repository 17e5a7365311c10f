"""Times of several variants of one workload, taken in turn within one process."""

import time
from collections.abc import Callable, Mapping
from statistics import median

import torch

TOTAL = "total"


class Stopwatch:
    """Seconds of the stages of one pass; a stage ends when the device has done its work.

    On a CPU seconds of the processor, all threads together, which other programs disturb less.
    """

    def __init__(self, device: torch.device) -> None:
        self._device = device
        self.seconds: dict[str, float] = {}
        self._parts = 1
        self._start = self._last = self._now()

    def _now(self) -> float:
        if self._device.type == "cuda":
            torch.cuda.synchronize(self._device)
            return time.perf_counter()
        return time.process_time()

    def stage(self, name: str) -> None:
        """End a stage: what has happened since the last one."""
        now = self._now()
        self.seconds[name], self._last = now - self._last, now

    def divide(self, parts: int) -> None:
        """Count the pass as so many equal parts, such as training steps; its seconds are those of one."""
        self._parts = parts

    def stop(self) -> dict[str, float]:
        """Seconds of each stage and in total."""
        self.seconds[TOTAL] = self._now() - self._start
        return {name: seconds / self._parts for name, seconds in self.seconds.items()}


Variant = Callable[[Stopwatch], None]
"""One way to do a workload; it may end stages such as ``forward``."""


class Timings:
    """Seconds of every variant, stage and round."""

    def __init__(self, rounds: Mapping[str, list[dict[str, float]]]) -> None:
        self._rounds = rounds

    @property
    def rounds(self) -> int:
        """Passes of each variant that count."""
        return min(map(len, self._rounds.values()))

    def stages(self) -> list[str]:
        """Stages that every variant has, the total last."""
        first, *others = (rounds[0] for rounds in self._rounds.values())
        return [stage for stage in first if all(stage in other for other in others)]

    def seconds(self, variant: str, stage: str = TOTAL) -> float:
        """Median over the rounds."""
        return median(round[stage] for round in self._rounds[variant])

    def fastest(self, variant: str) -> float:
        """Seconds of the fastest round."""
        return min(round[TOTAL] for round in self._rounds[variant])

    def ratio(self, reference: str, variant: str, stage: str = TOTAL) -> float:
        """How many times faster than the reference a variant is: median of the rounds' ratios."""
        return median(self._ratios(reference, variant, stage))

    def spread(self, reference: str, variant: str) -> tuple[float, float]:
        """Smallest and largest ratio of a round."""
        ratios = self._ratios(reference, variant, TOTAL)
        return min(ratios), max(ratios)

    def _ratios(self, reference: str, variant: str, stage: str) -> list[float]:
        pairs = zip(self._rounds[reference], self._rounds[variant], strict=True)
        return [a[stage] / b[stage] for a, b in pairs]


def side_by_side(
    variants: Mapping[str, Variant],
    device: torch.device,
    *,
    rounds: int,
    seconds: float,
    on_round: Callable[[float], None] = lambda share: None,
) -> Timings:
    """Run the variants in turn, round after round; the first round warms up and counts only where it stays alone.

    Args:
        variants: name to variant.
        device: where they compute.
        rounds: most rounds, at least 1.
        seconds: measured ones, after which no further round starts.
        on_round: called with the share that is done, in [0, 1].
    """
    taken: dict[str, list[dict[str, float]]] = {name: [] for name in variants}
    elapsed = 0.0
    for number in range(rounds):
        for name, variant in variants.items():
            watch = Stopwatch(device)
            variant(watch)
            taken[name].append(watch.stop())
            elapsed += watch.seconds[TOTAL]
        on_round(min(1.0, max((number + 1) / rounds, elapsed / seconds)))
        if elapsed > seconds:
            break
    if len(next(iter(taken.values()))) > 1:
        taken = {name: passes[1:] for name, passes in taken.items()}
    return Timings(taken)
