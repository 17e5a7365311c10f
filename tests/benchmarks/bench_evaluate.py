"""MS-COCO, 5,000 x 25,000 float32 on disk: counting every metric of 5-fold 1K and 5K with intervals, against sorting.

Both sides run in one process, first on one processor, then the evaluation alone on all of them. Peak memory is
taken in a process of its own.

    pytest tests/benchmarks/bench_evaluate.py -m benchmark -s
"""

import json
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import pytest

from ncl_bench.evaluation.protocol import evaluate
from ncl_bench.evaluation.scores import read_array

pytestmark = pytest.mark.benchmark

IMAGES, CAPTIONS, EACH, FOLD = 5_000, 25_000, 5, 1_000
LEAST_RATIO, MOST_MEGABYTES = 5.0, 300.0
ROUNDS = 3

MEASURE_MEMORY = """
import json, sys
from ncl_bench.evaluation import plausibility
from ncl_bench.evaluation.evaluate import peak_memory_mb
from ncl_bench.evaluation.protocol import evaluate
from ncl_bench.evaluation.scores import read_array
before = peak_memory_mb()
result = evaluate(read_array(Path(sys.argv[1])), dataset="coco")
print(json.dumps({"megabytes": peak_memory_mb() - before, "r_sum": result.r_sum}))
"""


@pytest.fixture(scope="module")
def scores(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    path = tmp_path_factory.mktemp("coco") / "test.npy"
    matrix = np.lib.format.open_memmap(path, "w+", np.float32, (IMAGES, CAPTIONS))
    random = np.random.default_rng(0)
    for start in range(0, IMAGES, 100):
        block = random.standard_normal((100, CAPTIONS), dtype=np.float32)
        for row, image in enumerate(range(start, start + 100)):
            block[row, EACH * image : EACH * (image + 1)] += 3
        matrix[start : start + 100] = block
    matrix.flush()
    del matrix
    yield path
    path.unlink()


@contextmanager
def one_processor() -> Iterator[None]:
    usual = os.sched_getaffinity(0)
    os.sched_setaffinity(0, {min(usual)})
    try:
        yield
    finally:
        os.sched_setaffinity(0, usual)


def sort_everything(path: Path) -> tuple[float, float]:
    """Seconds of one argsort per row and column, and the rSum of 5K that the order gives."""
    matrix = np.load(path, mmap_mode="r")
    i2t, t2i = np.empty(IMAGES, np.int64), np.empty(CAPTIONS, np.int64)
    start = time.perf_counter()
    for image in range(IMAGES):
        order = np.argsort(-matrix[image])
        i2t[image] = np.flatnonzero(order // EACH == image)[0] + 1
    for first in range(0, CAPTIONS, 500):
        columns = -np.ascontiguousarray(matrix[:, first : first + 500].T)
        for caption, column in enumerate(columns, first):
            t2i[caption] = np.flatnonzero(np.argsort(column) == caption // EACH)[0] + 1
    seconds = time.perf_counter() - start
    return seconds, sum(100 * float(np.mean(ranks <= k)) for ranks in (i2t, t2i) for k in (1, 5, 10))


def count_everything(path: Path) -> tuple[float, float]:
    """Seconds of the whole evaluation, best of a few rounds, and its rSum of 5K."""
    seconds = []
    for _ in range(ROUNDS):
        start = time.perf_counter()
        result = evaluate(read_array(Path(path)), dataset="coco")
        seconds.append(time.perf_counter() - start)
    return min(seconds), result.protocols["5k"].r_sum


def test_counting_is_much_faster_than_sorting(scores: Path) -> None:
    with one_processor():
        counting, counted = count_everything(scores)
        sorting, expected = sort_everything(scores)
    everywhere, _ = count_everything(scores)
    processors = len(os.sched_getaffinity(0))
    print(
        f"\nsorting {sorting:.1f} s, counting {counting:.2f} s on one processor: {sorting / counting:.1f} times "
        f"faster; counting {everywhere:.2f} s on {processors} processors: {sorting / everywhere:.1f} times faster"
    )
    assert counted == pytest.approx(expected, abs=1e-9)
    assert sorting / counting >= LEAST_RATIO


def test_memory_stays_small(scores: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-c", MEASURE_MEMORY, str(scores)], capture_output=True, text=True, check=True
    )
    measured = json.loads(done.stdout)
    print(f"\nextra memory {measured['megabytes']:.0f} MB for a file of {scores.stat().st_size / 1e6:.0f} MB")
    assert measured["r_sum"] > 0
    assert 0 < measured["megabytes"] < MOST_MEGABYTES
