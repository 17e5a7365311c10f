"""Worker processes that never outlive the process that started them, however it ends."""

import multiprocessing
import os
import signal
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager
from typing import Any

from ncl_bench import plugins
from ncl_bench.errors import NclBenchError


@contextmanager
def worker_pool(
    n_workers: int, initializer: Callable[..., None] | None = None, arguments: tuple[Any, ...] = ()
) -> Iterator[ProcessPoolExecutor]:
    """Open a pool of newly started worker processes.

    They end with this process even if it is killed, and at once if the block raises. Ctrl-C, which a terminal sends
    to all of them, is left to this process. They import its plugins.

    Args:
        n_workers: how many.
        initializer: called in each of them first.
        arguments: of ``initializer``.
    """
    context = multiprocessing.get_context("spawn")
    given = [plugin.given for plugin in plugins.loaded()]
    with ProcessPoolExecutor(n_workers, context, _begin, (given, initializer, *arguments)) as pool:
        try:
            with ctrl_c_ignored():
                pool.submit(int)  # starts all of them
            yield pool
        except BaseException as error:
            pool.shutdown(wait=False, cancel_futures=True)
            for worker in multiprocessing.active_children():
                worker.terminate()
            if isinstance(error, BrokenProcessPool):
                raise NclBenchError(
                    "a worker process died, perhaps because memory ran out; run the same command again to resume"
                ) from None
            raise


@contextmanager
def ctrl_c_ignored() -> Iterator[None]:
    """Ignore Ctrl-C while processes start: they inherit it, and so leave Ctrl-C to this process from the beginning.

    Another thread than the main one cannot change it, and leaves it as it is.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    ours = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, ours)


def _begin(given: list[str], initializer: Callable[..., None] | None, *arguments: Any) -> None:
    parent = multiprocessing.parent_process()
    assert parent is not None

    def watch() -> None:
        parent.join()
        os._exit(1)

    threading.Thread(target=watch, daemon=True).start()
    plugins.load_plugins(given)
    if initializer is not None:
        initializer(*arguments)
