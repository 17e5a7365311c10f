"""Audits of 1,500 to a million pairs: time per pair stays the same from 30,000 on, and each pair adds few bytes.

Two arrays of embeddings go through the whole command, with its estimates and its report; features and captions through
the estimates. Below 30,000 pairs a fixed part of the work and up to ten draws of chance for each pair weigh more.

    pytest tests/benchmarks/bench_audit.py -m benchmark -s
"""

import json
import resource
import sys
import tempfile
import time
from pathlib import Path

import numpy as np
import pytest
import torch
from benchmarks.inputs import in_own_process
from rich.console import Console

from baselines.audit import find_wrong_pairs, judge

pytestmark = [pytest.mark.benchmark, pytest.mark.timeout(10_000)]

SIZES = (1_500, 30_000, 1_000_000)
DIM, TOPICS, WRONG = 64, 200, 10
"""Length of a vector, kinds of pairs, and one of how many pairs is wrong."""
MOST_RATIO = 1.4
"""Of two times per pair on one machine; caches hold less of a larger set."""
MOST_BYTES = 1_500
"""Per pair, between the last two sizes: the mapped arrays, names, captions, and the table of the report."""


def embedded(n, folder):
    """Seconds of the estimates and of the rest of the command."""
    random = np.random.default_rng(0)
    images = random.standard_normal((n, DIM), np.float32)
    captions = images + random.standard_normal((n, DIM), np.float32)
    captions[::WRONG] = np.roll(captions[::WRONG], 1, axis=0)
    for name, side in (("images", images), ("captions", captions)):
        np.save(folder / f"{name}.npy", side)
    del images, captions, side
    seconds = {}
    judged = judge.judge_embeddings

    def timed(*given, **options):
        start = time.process_time()
        found = judged(*given, **options)
        seconds["estimates"] = time.process_time() - start
        return found

    judge.judge_embeddings = timed
    start = time.process_time()
    files = {f"{name}_embeddings": folder / f"{name}s.npy" for name in ("image", "caption")}
    table = find_wrong_pairs(**files, to=folder / "audit", console=Console(quiet=True))
    assert abs(table.attrs["summary"]["wrong"] / n - 1 / WRONG) < 0.02
    return seconds | {"report": time.process_time() - start - seconds["estimates"]}


def featured(n, folder):
    """Seconds of the estimates from features and captions."""
    random = np.random.default_rng(0)
    topic = random.integers(TOPICS, size=n)
    features = np.lib.format.open_memmap(folder / "features.npy", "w+", np.float16, (n, 1, DIM))
    centres = 2 * random.random((TOPICS, DIM), np.float32)
    for start in range(0, n, 10_000):
        some = centres[topic[start : start + 10_000]]
        features[start : start + 10_000, 0] = some + random.random(some.shape, np.float32)
    features.flush()
    topic[::WRONG] = np.roll(topic[::WRONG], 1)
    captions = [f"topic{each} and {other}" for each, other in zip(topic, topic * 7 % TOPICS, strict=True)]
    start = time.process_time()
    judge.judge_pairs(np.load(folder / "features.npy", mmap_mode="r"), np.arange(n), captions, work=folder)
    return {"estimates": time.process_time() - start}


FORMS = {"embeddings": embedded, "features": featured}


@pytest.mark.parametrize("form", FORMS)
def test_time_and_memory_per_pair_do_not_grow_with_the_set(form):
    rows = {}
    print(f"\n{form}: time per pair, {SIZES[1]:,} pairs = 1; peak memory over {SIZES[1]:,} pairs = 1")
    for n in SIZES:
        rows[n] = in_own_process("bench_audit", form, n)
    middle, last = rows[SIZES[1]], rows[SIZES[2]]
    for n, row in rows.items():
        ratios = {part: row[part] / n / (middle[part] / SIZES[1]) for part in row}
        ratios["bytes"] = row["bytes"] / middle["bytes"]
        print(f"{n:>9,}  " + "  ".join(f"{part} {ratio:.2f}" for part, ratio in ratios.items()))
    grown = (last["bytes"] - middle["bytes"]) / (SIZES[2] - SIZES[1])
    print(f"{grown:,.0f} bytes per pair")
    for part in set(last) - {"bytes"}:
        assert last[part] / SIZES[2] <= MOST_RATIO * middle[part] / SIZES[1], part
    assert grown <= MOST_BYTES


if __name__ == "__main__":
    torch.set_num_threads(1)
    with tempfile.TemporaryDirectory() as made:
        found = FORMS[sys.argv[1]](int(sys.argv[2]), Path(made))
    print(json.dumps(found | {"bytes": 1024 * resource.getrusage(resource.RUSAGE_SELF).ru_maxrss}))
