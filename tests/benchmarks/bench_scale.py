"""From 125 thousand pairs to a million: time per pair stays the same, and each pair adds few bytes of memory.

A pass that measures every pair and remembers its value, the division of the pairs by a mixture, and a pass over the
clean ones in random order, over features on disk of one region with four numbers each. A mean over words stands for
the network, so that what is measured is everything that grows with the set: orders, tables, memories, the mixture.

    pytest tests/benchmarks/bench_scale.py -m benchmark -s
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
from support.paired import paired_dataset

from baselines.kit.batches import TrainingBatches
from baselines.kit.method import PairMemory
from baselines.kit.mixture import clean_posterior, is_clean

pytestmark = [pytest.mark.benchmark, pytest.mark.timeout(3600)]

SIZES = (125_000, 250_000, 500_000, 1_000_000)
WORDS, BATCH, ROUNDS = 2_000, 128, 3
MOST_BYTES = 300
"""Per pair: tables of captions and images, mapped features, an order, a remembered value, and what a mixture needs."""
MOST_RATIO = 1.4
"""Of two times per pair on one machine; caches hold less of a larger set."""


def pairs_on_disk(n_pairs, folder):
    """Pairs whose image and caption agree, but for two fifths; features mapped from disk."""
    random = np.random.default_rng(0)
    topics = random.integers(0, WORDS, n_pairs)
    path = folder / "features.npy"
    features = np.lib.format.open_memmap(path, "w+", np.float16, (n_pairs, 1, 4))
    features[:] = (topics / WORDS)[:, None, None]
    features.flush()
    del features
    lengths, images = 3 + np.arange(n_pairs) % 5, np.arange(n_pairs)
    moved = random.permutation(n_pairs)[: 2 * n_pairs // 5]
    images[moved] = np.roll(moved, 1)
    words = np.repeat(topics, lengths)
    return paired_dataset(np.load(path, mmap_mode="r"), words, lengths, images, WORDS)


def measure(n_pairs, folder):
    """One epoch: nanoseconds per pair of each part, and bytes per pair at the peak over what was there before it."""
    dataset = pairs_on_disk(1_000, folder)
    list(TrainingBatches(dataset, batch_size=BATCH, seed=0).covering("warm"))
    clean_posterior(torch.rand(1_000), random_state=0)
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    dataset = pairs_on_disk(n_pairs, folder)
    batches = TrainingBatches(dataset, batch_size=BATCH, seed=0)
    memory, times = PairMemory(n_pairs, initial=0.0), {}
    for _ in range(ROUNDS):
        marks = [time.process_time()]
        for batch in batches.covering("divide"):
            words = batch.caption_tokens.sum(dim=1) / batch.caption_lengths / WORDS
            memory.write(batch.pair_ids, (batch.image_features.mean(dim=(1, 2)) - words).abs())
        marks.append(time.process_time())
        clean = is_clean(clean_posterior(memory.values, random_state=0), 0.5)
        marks.append(time.process_time())
        visited = 0
        for batch in batches.shuffled("clean", pair_ids=batches.pair_ids[clean]):
            visited += len(batch)
        marks.append(time.process_time())
        for part, begin, end, pairs in zip(
            ("divide", "mixture", "train"), marks, marks[1:], (n_pairs, n_pairs, visited), strict=False
        ):
            times[part] = min(times.get(part, np.inf), 1e9 * (end - begin) / pairs)
    found = clean.numpy() == (dataset.caption_to_image == np.arange(n_pairs))
    assert found.mean() > 0.9
    grown = 1024 * (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before)
    return times | {"bytes": grown / n_pairs}


def test_time_and_memory_per_pair_do_not_grow_with_the_set():
    rows = {}
    for size in SIZES:
        rows[size] = in_own_process("bench_scale", size)
    smallest = rows[SIZES[0]]
    print(
        f"\n{'pairs':>9}  {'divide':>7} {'mixture':>8} {'train':>6}  bytes per pair (time per pair, smallest set = 1)"
    )
    for size, row in rows.items():
        parts = [row[name] / smallest[name] for name in ("divide", "mixture", "train")]
        print(f"{size:>9,}  {parts[0]:>7.2f} {parts[1]:>8.2f} {parts[2]:>6.2f}  {row['bytes']:.0f}")
    for size, row in rows.items():
        for part in ("divide", "mixture", "train"):
            assert row[part] <= MOST_RATIO * smallest[part], (size, part)
        assert row["bytes"] <= MOST_BYTES, size


if __name__ == "__main__":
    torch.set_num_threads(1)
    with tempfile.TemporaryDirectory() as made:
        print(json.dumps(measure(int(sys.argv[1]), Path(made))))
