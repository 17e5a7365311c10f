"""Progress of long work: silent for programs, a bar with the time left for people."""

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager

Advance = Callable[[int], None]
"""Called with the amount done since the last call: bytes, captions or rows."""

Progress = Callable[[str, int], AbstractContextManager[Advance]]
"""Title and total of a piece of work to a context that yields a function for the amount done."""


@contextmanager
def silent(title: str, total: int) -> Iterator[Advance]:
    """Report nothing."""
    yield lambda amount: None


@contextmanager
def bar(title: str, total: int) -> Iterator[Advance]:
    """A bar on standard error with the share done and the time left; silent where no terminal shows it."""
    from rich.console import Console
    from rich.progress import BarColumn, TaskProgressColumn, TextColumn, TimeRemainingColumn
    from rich.progress import Progress as RichProgress

    columns = (TextColumn("{task.description}"), BarColumn(), TaskProgressColumn(), TimeRemainingColumn())
    console = Console(stderr=True)
    with RichProgress(*columns, console=console, disable=not console.is_terminal) as shown:
        task = shown.add_task(title, total=total)
        yield lambda amount: shown.advance(task, amount)
