"""MS-COCO, 5,000 x 25,000 float32 on disk: every metric of 5-fold 1K and 5K with intervals, against sorting.

    pytest tests/benchmarks/bench_evaluate.py -m benchmark -s

Both sides run in one process on one processor; peak memory is taken in a process of its own.
"""

import os
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest

from ncl_bench.evaluation.evaluate import peak_memory_mb
from ncl_bench.evaluation.protocol import evaluate
from ncl_bench.evaluation.scores import read_array

pytestmark = pytest.mark.benchmark

IMAGES, CAPTIONS, EACH = 5_000, 25_000, 5
LEAST_RATIO, MOST_MEGABYTES, ROUNDS = 5.0, 300.0, 3


@pytest.fixture(scope="module")
def scores(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("coco") / "test.npy"
    matrix = np.lib.format.open_memmap(path, "w+", np.float32, (IMAGES, CAPTIONS))
    random = np.random.default_rng(0)
    for image in range(IMAGES):
        matrix[image] = random.standard_normal(CAPTIONS, dtype=np.float32)
        matrix[image, EACH * image : EACH * (image + 1)] += 3
    matrix.flush()
    return path


def sort_everything(path: Path) -> float:
    """rSum of 5K by one argsort per row and column."""
    matrix = np.load(path, mmap_mode="r")
    i2t, t2i = np.empty(IMAGES, np.int64), np.empty(CAPTIONS, np.int64)
    for image in range(IMAGES):
        i2t[image] = np.flatnonzero(np.argsort(-matrix[image]) // EACH == image)[0] + 1
    for first in range(0, CAPTIONS, 500):
        columns = -np.ascontiguousarray(matrix[:, first : first + 500].T)
        for caption, column in enumerate(columns, first):
            t2i[caption] = np.flatnonzero(np.argsort(column) == caption // EACH)[0] + 1
    return sum(100 * float(np.mean(ranks <= k)) for ranks in (i2t, t2i) for k in (1, 5, 10))


def test_counting_is_much_faster_than_sorting(scores: Path) -> None:
    everywhere, seconds = os.sched_getaffinity(0), []
    os.sched_setaffinity(0, {min(everywhere)})
    try:
        for _ in range(ROUNDS):
            start = time.perf_counter()
            counted = evaluate(read_array(scores), dataset="coco").protocols["5k"].r_sum
            seconds.append(time.perf_counter() - start)
        start = time.perf_counter()
        expected = sort_everything(scores)
        sorting = time.perf_counter() - start
    finally:
        os.sched_setaffinity(0, everywhere)
    print(
        f"\nsorting {sorting:.1f} s, counting {min(seconds):.2f} s: {sorting / min(seconds):.1f} times faster"
    )
    assert counted == pytest.approx(expected, abs=1e-9)
    assert sorting / min(seconds) >= LEAST_RATIO


def test_memory_stays_small(scores: Path) -> None:
    ran = subprocess.run([sys.executable, __file__, str(scores)], capture_output=True, text=True, check=True)
    print(f"\nextra memory {float(ran.stdout):.0f} MB for a file of {scores.stat().st_size / 1e6:.0f} MB")
    assert 0 < float(ran.stdout) < MOST_MEGABYTES


if __name__ == "__main__":
    evaluate(np.eye(200, dtype=np.float32).repeat(5, axis=1), dataset="digits")  # what is imported stays
    before = peak_memory_mb()
    evaluate(read_array(Path(sys.argv[1])), dataset="coco")
    print((peak_memory_mb() or 0.0) - (before or 0.0))
