"""Reading ahead: order, errors, and a thread that ends."""

import threading
import time
from collections.abc import Iterator

import pytest

from baselines.kit.batches import made_ahead


def workers() -> list[str]:
    return [thread.name for thread in threading.enumerate() if thread.name.startswith("prefetch")]


@pytest.mark.parametrize("threads", [1, 4])
@pytest.mark.parametrize("depth", [0, 1, 3, 100])
def test_results_come_in_order_whatever_the_depth(depth: int, threads: int) -> None:
    def make(item: int) -> int:
        time.sleep(0.002 * (item % 3 == 0))
        return item * item

    assert list(made_ahead(range(20), make, depth, threads=threads)) == [item * item for item in range(20)]
    assert list(made_ahead([], make, depth)) == []
    assert workers() == []


@pytest.mark.parametrize(("depth", "made_early"), [(0, 1), (2, 3)])
def test_as_many_as_the_depth_are_made_early(depth: int, made_early: int) -> None:
    asked: list[int] = []

    def endless() -> Iterator[int]:
        number = 0
        while True:
            asked.append(number)
            yield number
            number += 1

    results = made_ahead(endless(), str, depth)
    assert [next(results), next(results)] == ["0", "1"]
    assert len(asked) == 1 + made_early
    results.close()
    assert workers() == []


@pytest.mark.parametrize("depth", [0, 2])
def test_an_error_comes_out_in_its_place(depth: int) -> None:
    results = made_ahead([4, 2, 0, 1], lambda item: 8 // item, depth)
    assert [next(results), next(results)] == [2, 4]
    with pytest.raises(ZeroDivisionError):
        next(results)
    assert workers() == []


def test_a_dropped_iteration_makes_no_more_and_ends_its_thread() -> None:
    made: list[int] = []

    def make(item: int) -> None:
        time.sleep(0.01)
        made.append(item)

    results = made_ahead(range(1000), make, 50)
    next(results)
    del results
    assert workers() == []
    assert len(made) < 1000


def test_an_interrupted_loop_ends_its_thread() -> None:
    def interrupted() -> None:
        for item in made_ahead(range(10), abs, 2):
            if item == 3:
                raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        interrupted()
    assert workers() == []
