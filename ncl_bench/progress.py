"""Progress of long work: silent for programs, a bar with the time left for people."""

import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from io import StringIO
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import rich.progress
    from rich.console import Console

Advance = Callable[[int], None]
"""Called with the amount done since the last call: bytes, captions or rows."""

Progress = Callable[[str, int], AbstractContextManager[Advance]]
"""Title and total of a piece of work to a context that yields a function for the amount done."""


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
        console: where to draw (default: standard error); without a terminal or a notebook nothing is drawn.
    """
    from rich.console import Console
    from rich.progress import (
        BarColumn,
        TaskProgressColumn,
        TextColumn,
        TimeElapsedColumn,
        TimeRemainingColumn,
    )
    from rich.progress import Progress as RichProgress

    class InNotebook(RichProgress):
        """Draws one line of text again; rich alone would need ipywidgets."""

        shown: Any = None
        next_time = 0.0

        def update(self, *given: Any, **options: Any) -> None:
            super().update(*given, **options)
            self.draw()

        def advance(self, *given: Any, **options: Any) -> None:
            super().advance(*given, **options)
            self.draw()

        def stop(self) -> None:
            super().stop()
            self.next_time = 0.0
            self.draw()

        def draw(self) -> None:
            from IPython.display import display as show

            if time.monotonic() < self.next_time or not self.tasks:
                return
            self.next_time = time.monotonic() + 0.5
            page = Console(file=StringIO(), width=100, color_system=None, force_jupyter=False)
            page.print(self.get_renderable())
            text = {"text/plain": page.file.getvalue().rstrip()}  # type: ignore[attr-defined]
            if self.shown is None:
                self.shown = show(text, raw=True, display_id=True)  # type: ignore[no-untyped-call]
            else:
                self.shown.update(text, raw=True)

    console = console or Console(stderr=True)
    make = InNotebook if console.is_jupyter else RichProgress
    return make(
        TextColumn("{task.description}"),
        BarColumn(bar_width=24),
        TaskProgressColumn(),
        TimeElapsedColumn(),
        TextColumn("left"),
        TimeRemainingColumn(elapsed_when_finished=False),
        TextColumn("{task.fields[state]}"),
        console=console,
        disable=not is_live(console),
        speed_estimate_period=300,  # an epoch's end, when dev is scored, is slower than its steps
    )


def is_live(console: "Console") -> bool:
    """Whether a console can draw a line again.

    ``FORCE_COLOR``, which notebooks and CI set, lets rich take a pipe or a file for a terminal.
    """
    return console.is_terminal and console.file.isatty()
