"""Prepared data: random batches against a raw ``numpy.memmap`` gather, opening, and memory up to a million pairs.

pytest tests/benchmarks/bench_loading.py -m benchmark -s
"""

import json
import re
import sys
import time
from pathlib import Path

import numpy as np
import pytest
from benchmarks.inputs import in_own_process, prepare_images, write_images

from ncl_bench import load_dataset
from ncl_bench.plugins import load_plugins

pytestmark = [pytest.mark.benchmark, pytest.mark.timeout(3600)]

BATCH, BATCHES, ROUNDS = 128, 10, 5
MOST_OF_RAW = 1.2
MOST_SECONDS = 1.0
MOST_BYTES_PER_PAIR = 100


def processor_seconds(gather, rows):
    start = time.process_time()
    for batch in rows:
        gather(batch)
    return time.process_time() - start


def test_ways_to_read_pairs_beside_a_raw_memmap(tmp_path):
    """The table of docs/training-loop.md: processor time of random batches, as multiples of a raw memmap gather."""
    import datasets

    write_images(tmp_path / "own", 2_000, captions_per_image=5, regions=36, dim=2048)
    load_plugins([prepare_images(tmp_path / "own", tmp_path)])
    train = load_dataset("pets", root=tmp_path / "data")
    raw = np.load(tmp_path / "own" / "features" / "train.npy", mmap_mode="r")
    row_numbers = datasets.Dataset.from_dict({"row": np.arange(len(train))})
    pairs = row_numbers.with_transform(lambda batch: vars(train.read(batch["row"])))
    images = train.caption_to_image
    ways = {
        "raw memmap": lambda rows: raw[images[rows]],
        "read": train.read,
        "to_torch": train.to_torch,
        "datasets, with_transform": lambda rows: pairs[rows],
    }
    random = np.random.default_rng(0)
    times = {way: [] for way in ways}
    for _ in range(ROUNDS):
        rows = [random.integers(0, len(train), BATCH) for _ in range(BATCHES)]
        for way, gather in ways.items():
            processor_seconds(gather, rows)  # what is on disk comes into memory
            times[way].append(processor_seconds(gather, rows))
    print("\n| way | processor time, raw memmap = 1 |\n| --- | ---: |")
    found = {way: float(np.median(np.divide(times[way], times["raw memmap"]))) for way in ways}
    for way, ratio in found.items():
        print(f"| {way} | {ratio:.1f} |")
    assert found["read"] <= MOST_OF_RAW


def test_a_pair_costs_the_same_in_a_set_of_a_million(tmp_path):
    read = {}
    for images in (25_000, 200_000):
        folder = tmp_path / str(images)
        write_images(folder, images, captions_per_image=5, regions=1, dim=64)
        prepare_images(folder, folder)
        runs = [in_own_process("bench_loading", folder) for _ in range(3)]
        seconds, kept, read[5 * images] = np.min(runs, axis=0)
        print(f"\n{5 * images:,} pairs: open in {seconds:.2f} s, {kept:.0f} bytes of memory a pair")
        assert seconds < MOST_SECONDS
        assert kept < MOST_BYTES_PER_PAIR
    assert read[1_000_000] < 1.25 * read[125_000]


def opened(folder):
    """Seconds to open train, bytes of memory for each of its pairs, and processor seconds to read one."""
    load_plugins([str(folder / "pets.py")])
    load_dataset("pets", split="dev", root=folder / "data").read([0])  # what is imported stays
    before, begun = private_bytes(), time.perf_counter()
    train = load_dataset("pets", root=folder / "data")
    seconds, kept = time.perf_counter() - begun, private_bytes() - before
    rows = list(np.random.default_rng(0).integers(0, len(train), (200, BATCH)))
    processor_seconds(train.read, rows)  # what is on disk comes into memory
    return [seconds, kept / len(train), processor_seconds(train.read, rows) / (200 * BATCH)]


def private_bytes():
    status = Path("/proc/self/status").read_text(encoding="ascii")
    return 1024 * int(re.findall(r"RssAnon:\s+(\d+) kB", status)[0])


if __name__ == "__main__":
    print(json.dumps(opened(Path(sys.argv[1]))))
