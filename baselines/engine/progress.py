"""Progress bar with remaining time for one or several training runs; without a terminal, one line per epoch."""

from types import TracebackType
from typing import Self

from rich.console import Console

from baselines.kit.method import EpochPlan
from ncl_bench.progress import is_live, live_bar


class TrainingProgress:
    """Progress over the epochs of all runs; within an epoch, over the number of pairs of the previous epoch.

    Args:
        n_epochs: total number of epochs of all runs.
        console: console to draw on; standard error by default.
    """

    def __init__(self, n_epochs: int, console: Console | None = None) -> None:
        self._console = console or Console(stderr=True)
        self._bar = live_bar(self._console)
        self._task = self._bar.add_task("train", total=n_epochs, state="")
        self._done = 0.0
        self._size = 1.0
        self._pairs = 0
        self._expected = 1
        self._last_pairs: dict[str, int] = {}
        self._batches = 0
        self._phase = ""
        self._title = ""

    def __enter__(self) -> Self:
        self._bar.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._bar.stop()

    def skip(self, epochs: float) -> None:
        """Count the epochs that a resumed run has already done."""
        self._done += epochs
        self._bar.update(self._task, completed=self._done)

    def begin(self, name: str, plan: EpochPlan, n_pairs: int) -> None:
        """Start an epoch of about ``n_pairs`` pairs; an earlier epoch of the same phase gives a better estimate."""
        self._pairs = self._batches = 0
        self._phase, self._title = plan.phase, f"{plan.phase} {plan.epoch + 1}"
        self._expected = self._last_pairs.get(plan.phase, n_pairs)
        self._bar.update(self._task, description=name)

    def advance(self, n_pairs: int, loss: float | None = None) -> None:
        """Count a batch of the epoch.

        Args:
            n_pairs: number of pairs in the batch.
            loss: mean over the last steps, if known.
        """
        self._pairs += n_pairs
        self._batches += 1
        share = min(self._pairs / max(self._expected, 1), 1.0)
        batches = max(self._batches, round(self._batches * self._expected / self._pairs))
        state = f"{self._title}  batch {self._batches:,} of {batches:,}"
        state += "" if loss is None else f"  loss {loss:.4g}"
        self._bar.update(self._task, completed=self._done + share * self._size, state=state)

    def finish(self, line: str, size: float = 1.0) -> None:
        """End an epoch.

        Args:
            line: summary of the epoch.
            size: number of plan epochs that it covers; the next epoch is expected to cover the same number.
        """
        self._done += size
        self._size = size
        self._last_pairs[self._phase] = self._pairs
        self._bar.update(self._task, completed=self._done, state=line)
        if not is_live(self._console):
            self._console.print(
                f"{round(self._done, 1):g}/{self._bar.tasks[0].total:.0f} {line}", highlight=False
            )
