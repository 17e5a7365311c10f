"""What people see of long work: a bar with the time left, one line a minute without a terminal, or nothing."""

import sys
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from threading import Event, Thread
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import rich.progress
    from rich.console import Console

Advance = Callable[[int], None]
"""Called with the amount done since the last call: bytes, captions or rows."""

Progress = Callable[[str, int], AbstractContextManager[Advance]]
"""Title and total of a piece of work to a context that yields a function for the amount done."""


LINE_EVERY = 60.0
"""Seconds between two lines where no bar can be drawn."""

_quiet = False
_name = "ncl-bench"


def name_command(name: str) -> None:
    """Have every suggested command begin with this. The command line calls it with its plugins."""
    global _name
    _name = name


def as_typed(text: str) -> str:
    """A text that suggests commands, such as ``ncl-bench train RECIPE``, each with the plugins it needs."""
    return text.replace("ncl-bench ", f"{_name} ")


def be_quiet() -> None:
    """Show results and errors alone: no bar, no line on the way, no hint. ``ncl-bench --quiet`` calls this."""
    global _quiet
    _quiet = True


def is_quiet() -> bool:
    """Whether results and errors alone are shown."""
    return _quiet


def say(line: str) -> None:
    """Print a line about the work on standard error."""
    if not _quiet:
        print(line, file=sys.stderr)


def opening_line(dataset: str, noise: str, method: str, device: str) -> str:
    """Return the line with which `train`, `score` and `evaluate` begin, such as ``digits: no noise; NCR on cpu``.

    Args:
        dataset: name of the dataset.
        noise: of its training pairs, see :attr:`ncl_bench.evaluation.submission.StatedNoise.in_words`.
        method: name of the method.
        device: device that computes.
    """
    return f"{dataset}: {noise}; {method} on {device}"


def hint(line: str) -> None:
    """Print what to do next on standard output, after a result."""
    if not _quiet:
        print(as_typed(line))


@contextmanager
def silent(title: str, total: int) -> Iterator[Advance]:
    """Report nothing."""
    yield lambda amount: None


@contextmanager
def bar(title: str, total: int, console: "Console | None" = None) -> Iterator[Advance]:
    """Show one piece of work as :func:`live_bar` does."""
    with live_bar(console) as shown:
        task = shown.add_task(title, total=total, state="")
        yield lambda amount: shown.advance(task, amount)


def live_bar(console: "Console | None" = None) -> "rich.progress.Progress":
    """Return a bar with title, share, elapsed time, time left and the task field ``state``.

    Args:
        console: where to draw (default: standard error). A notebook shows it as text; without a terminal or a notebook,
            one line a minute is printed.
    """
    from rich.console import Console
    from rich.progress import (
        BarColumn,
        TaskID,
        TaskProgressColumn,
        TextColumn,
        TimeElapsedColumn,
        TimeRemainingColumn,
    )
    from rich.progress import Progress as RichProgress

    seen = console or Console(stderr=True, quiet=_quiet)
    notebook: Any = None  # what IPython shows, and changes in place

    class Reported(RichProgress):
        """Reports what rich cannot draw: text in a notebook, where rich needs ipywidgets, and lines in a log."""

        ended = Event()
        next_time = time.monotonic() + (0.0 if seen.is_jupyter else LINE_EVERY)

        def start(self) -> None:
            super().start()
            if not seen.is_jupyter:  # a step that advances seldom has its lines too
                Thread(target=self.watch, daemon=True).start()

        def watch(self) -> None:
            while not self.ended.wait(LINE_EVERY):
                for task_id in self.task_ids[-1:]:
                    self.report(task_id)

        def update(self, task_id: TaskID, **options: Any) -> None:
            super().update(task_id, **options)
            self.report(task_id)

        def advance(self, task_id: TaskID, advance: float = 1) -> None:
            super().advance(task_id, advance)
            self.report(task_id)

        def stop(self) -> None:
            self.ended.set()
            super().stop()
            if seen.is_jupyter and self.tasks:
                self.display()  # the end, which may come before its time

        def report(self, task_id: TaskID) -> None:
            if time.monotonic() < self.next_time:
                return
            self.next_time = time.monotonic() + (0.5 if seen.is_jupyter else LINE_EVERY)
            if seen.is_jupyter:
                self.display()
            else:
                line = _line(self.tasks[self.task_ids.index(task_id)])
                seen.print(line, highlight=False, markup=False, soft_wrap=True)

        def display(self) -> None:
            from IPython.display import display as show

            nonlocal notebook
            text = {"text/plain": plain_text(self.get_renderable(), width=100).rstrip()}
            if notebook is None:
                notebook = show(text, raw=True, display_id=True)  # type: ignore[no-untyped-call]
            else:
                notebook.update(text, raw=True)

    make = RichProgress if _quiet or is_live(seen) else Reported
    return make(
        TextColumn("{task.description}"),
        BarColumn(bar_width=24),
        TaskProgressColumn(),
        TimeElapsedColumn(),
        TextColumn("left"),
        TimeRemainingColumn(elapsed_when_finished=False),
        TextColumn("{task.fields[state]}"),
        console=seen,
        disable=_quiet or not is_live(seen),
        speed_estimate_period=300,  # an epoch's end, when dev is scored, is slower than its steps
    )


def _line(task: "rich.progress.Task") -> str:
    """Say in one line how far a piece of work is."""
    elapsed = (task.elapsed or 0.0) / 60
    left = f", {elapsed * (100 / task.percentage - 1):.0f} min left" if task.percentage else ""
    state = task.fields.get("state", "")
    return f"{task.description}: {task.percentage:.0f} %, {elapsed:.0f} min{left} {state}".rstrip()


def is_live(console: "Console") -> bool:
    """Whether a console can draw a line again.

    ``FORCE_COLOR``, which notebooks and CI set, lets rich take a pipe or a file for a terminal.
    """
    return console.is_terminal and console.file.isatty()


def plain_text(*shown: object, width: int) -> str:
    """What rich prints of tables and lines, without colours; also in a notebook, where rich would display it."""
    from io import StringIO

    from rich.console import Console

    text = StringIO()
    Console(file=text, width=width, color_system=None, force_jupyter=False).print(*shown, sep="\n")
    return text.getvalue()
