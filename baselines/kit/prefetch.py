"""Work done ahead by a background thread, in order."""

from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from typing import TypeVar

Given = TypeVar("Given")
Made = TypeVar("Made")


def made_ahead(items: Iterable[Given], make: Callable[[Given], Made], depth: int) -> Iterator[Made]:
    """``map(make, items)`` with up to ``depth`` results waiting before they are asked for.

    One thread calls ``make``, so results and their order are those of ``map``; an error comes out where its result
    would have. When the iteration is left early, nothing more is made and the thread ends.

    Args:
        items: what results are made from, read in the caller's thread.
        make: called once for each item.
        depth: at least 0; with 0 there is no thread.
    """
    if depth == 0:
        yield from map(make, items)
        return
    waiting: deque[Future[Made]] = deque()
    with ThreadPoolExecutor(1, thread_name_prefix="prefetch") as worker:
        try:
            for item in items:
                waiting.append(worker.submit(make, item))
                if len(waiting) > depth:
                    yield waiting.popleft().result()
            while waiting:
                yield waiting.popleft().result()
        finally:
            worker.shutdown(cancel_futures=True)
