"""Times of several sides of one work, taken in turn within one process."""

import time
from collections.abc import Callable, Mapping
from statistics import median

import torch

TOTAL = "total"


class Stopwatch:
    """Seconds of the laps of one pass; a lap ends when the device has done its work.

    On a CPU seconds of the processor, all threads together, which other programs disturb less.
    """

    def __init__(self, device: torch.device) -> None:
        self._device = device
        self.seconds: dict[str, float] = {}
        self._start = self._last = self._now()

    def _now(self) -> float:
        if self._device.type == "cuda":
            torch.cuda.synchronize(self._device)
            return time.perf_counter()
        return time.process_time()

    def lap(self, name: str) -> None:
        """End a lap: what has happened since the last one."""
        now = self._now()
        self.seconds[name], self._last = now - self._last, now

    def stop(self) -> dict[str, float]:
        """Seconds of each lap and in total."""
        self.seconds[TOTAL] = self._now() - self._start
        return self.seconds


Side = Callable[[Stopwatch], None]
"""One way to do a work; it may end laps such as ``forward``."""


class Timings:
    """Seconds of every side, lap and round."""

    def __init__(self, rounds: Mapping[str, list[dict[str, float]]]) -> None:
        self._rounds = rounds

    @property
    def rounds(self) -> int:
        """Passes of each side that count."""
        return min(map(len, self._rounds.values()))

    def laps(self) -> list[str]:
        """Laps that every side has, the total last."""
        first, *others = (rounds[0] for rounds in self._rounds.values())
        return [lap for lap in first if all(lap in other for other in others)]

    def seconds(self, side: str, lap: str = TOTAL) -> float:
        """Median over the rounds."""
        return median(round[lap] for round in self._rounds[side])

    def fastest(self, side: str) -> float:
        """Seconds of the fastest round."""
        return min(round[TOTAL] for round in self._rounds[side])

    def ratio(self, reference: str, side: str, lap: str = TOTAL) -> float:
        """How many times faster than the reference a side is: median of the rounds' ratios."""
        pairs = zip(self._rounds[reference], self._rounds[side], strict=True)
        return median(a[lap] / b[lap] for a, b in pairs)


def side_by_side(
    sides: Mapping[str, Side],
    device: torch.device,
    *,
    rounds: int,
    seconds: float,
    on_round: Callable[[float], None] = lambda share: None,
) -> Timings:
    """Run the sides in turn, round after round; the first round warms up and counts only where it stays alone.

    Args:
        sides: name to side.
        device: where they compute.
        rounds: most rounds, at least 1.
        seconds: measured ones, after which no further round starts.
        on_round: called with the share that is done, in [0, 1].
    """
    taken: dict[str, list[dict[str, float]]] = {name: [] for name in sides}
    elapsed = 0.0
    for number in range(rounds):
        for name, side in sides.items():
            watch = Stopwatch(device)
            side(watch)
            taken[name].append(watch.stop())
            elapsed += taken[name][-1][TOTAL]
        on_round(min(1.0, max((number + 1) / rounds, elapsed / seconds)))
        if elapsed > seconds:
            break
    if len(next(iter(taken.values()))) > 1:
        taken = {name: passes[1:] for name, passes in taken.items()}
    return Timings(taken)
