"""Loading at real size: opening, memory, and random batches against a raw ``numpy.memmap`` gather.

The feature files have the real number of rows and are made sparse, so that they take no disk.

    pytest tests/benchmarks/bench_loading.py -m benchmark -s
"""

import json
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from ncl_bench.data import DATASETS, coco, flickr30k
from ncl_bench.data import prepare as run
from ncl_bench.data.columns import TokenTable
from ncl_bench.data.prepared import load_prepared
from ncl_bench.data.spec import DatasetSpec, Material, SplitCaptions, TokenKey
from ncl_bench.data.verify import Findings, Inspection
from ncl_bench.data.vocabulary import build_vocabulary, vocabulary_json

pytestmark = pytest.mark.benchmark

BATCH, BATCHES, ROUNDS = 128, 10, 5
MOST_OF_RAW = 1.2
MOST_SECONDS = 1.0
MOST_BYTES_PER_PAIR = 100
WORDS_PER_CAPTION = 12


class ZeroRows:
    """Features of a split, all zero, from one small buffer."""

    def __init__(self, spec: DatasetSpec, split: str) -> None:
        self._shape = (spec.images[split], spec.n_regions, spec.feature_dim)
        self.dtype = np.dtype(np.float32)

    def blocks(self, first: int, size: int) -> Iterator[np.ndarray]:
        buffer = np.zeros((size, *self._shape[1:]), self.dtype)
        for start in range(first, self._shape[0], size):
            yield buffer[: self._shape[0] - start]


def sparse_features(path: Path, spec: DatasetSpec, split: str, *others: Any) -> dict[str, Any]:
    """``_write_features``, with a hole for zeros."""
    path.parent.mkdir(parents=True, exist_ok=True)
    shape = (spec.images[split], spec.n_regions, spec.feature_dim)
    np.lib.format.open_memmap(path, "w+", np.float32, shape)
    return {"bytes": path.stat().st_size, "sha256": "0" * 64, "blocks": "0" * 64}


def material(spec: DatasetSpec) -> Material:
    """Real counts, zero features, captions of ``WORDS_PER_CAPTION`` words."""
    vocabulary = build_vocabulary([[f"w{i}" for i in range(10_000)]], threshold=1)
    captions = {}
    for split, n_images in spec.images.items():
        n = spec.n_captions(split)
        ids = np.random.default_rng(0).integers(4, 10_000, n * WORDS_PER_CAPTION, dtype=np.int32)
        tokens: dict[TokenKey, TokenTable] = {
            ("en", "word"): TokenTable(ids, np.arange(n + 1) * WORDS_PER_CAPTION)
        }
        text = [f"a caption of about the usual length, number {c}" for c in range(n)]
        captions[split] = SplitCaptions([f"{split}-{i}" for i in range(n_images)], {"en": text}, tokens)
    return Material(
        captions,
        {split: ZeroRows(spec, split) for split in spec.images},
        {("en", "word"): (vocabulary_json(vocabulary).encode(), "benchmark")},
        fingerprints={},
        identity="benchmark",
    )


def prepare_sparse(spec: DatasetSpec, root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A prepared folder of real size that takes the disk of its captions only."""
    content = material(spec)
    monkeypatch.setattr(run, "_write_features", sparse_features)
    monkeypatch.setattr(run, "_check_space", lambda *arguments: None)
    monkeypatch.setattr(run, "inspect", lambda *arguments: Inspection(None, {}, (), content, None))
    monkeypatch.setattr(run, "verify", lambda *arguments, **options: Findings())
    run.prepare(spec.name, root, root)


def processor_seconds(gather: Callable[[np.ndarray], object], rows: list[np.ndarray]) -> float:
    start = time.process_time()
    for batch in rows:
        gather(batch)
    return time.process_time() - start


def test_ways_to_read_pairs_beside_a_raw_memmap(tmp_path, monkeypatch):
    """The table of docs/training-loop.md: processor time of random batches, as multiples of a raw memmap gather."""
    import datasets

    spec = flickr30k.SPEC
    prepare_sparse(spec, tmp_path, monkeypatch)
    train = load_prepared(tmp_path, spec, "train")
    np.lib.format.open_memmap(tmp_path / "raw.npy", "w+", np.float32, train.image_features.shape)
    raw = np.load(tmp_path / "raw.npy", mmap_mode="r")
    row_numbers = datasets.Dataset.from_dict({"row": np.arange(len(train))})
    pairs = row_numbers.with_transform(lambda batch: vars(train.read(batch["row"])))
    images = train.caption_to_image
    ways: dict[str, Callable[[np.ndarray], object]] = {
        "raw memmap": lambda rows: raw[images[rows]],
        "read": train.read,
        "to_torch": train.to_torch,
        "datasets, with_transform": lambda rows: pairs[rows],
    }
    random = np.random.default_rng(0)
    times: dict[str, list[float]] = {way: [] for way in ways}
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


OPEN = r"""
import json, re, sys, time
from pathlib import Path
import numpy as np
from ncl_bench.data import DATASETS
from ncl_bench.data.prepared import load_prepared
from dataclasses import replace

def private():
    return int(re.search(r"RssAnon:\s+(\d+) kB", Path("/proc/self/status").read_text())[1]) * 1024

root, name, facts = Path(sys.argv[1]), sys.argv[2], json.loads(sys.argv[3])
spec = replace(DATASETS[name], **facts)
load_prepared(root, spec, "dev").read([0])
before = private()
start = time.perf_counter()
dataset = load_prepared(root, spec, "train")
elapsed = time.perf_counter() - start
kept = private() - before
rows = np.random.default_rng(0).integers(0, len(dataset), (200, 128))
for _ in range(2):  # what is on disk comes into memory
    start = time.process_time()
    for batch in rows:
        dataset.read(batch)
    read = (time.process_time() - start) / rows.size
print(json.dumps([elapsed, kept / len(dataset), 1e6 * read, len(dataset)]))
"""


def opened(root: Path, spec: DatasetSpec) -> list[float]:
    """Seconds to open train, bytes of memory for each of its pairs, microseconds to read a pair: best of three."""
    facts = {"images": dict(spec.images), "n_regions": spec.n_regions, "feature_dim": spec.feature_dim}
    command = [sys.executable, "-c", OPEN, str(root), spec.name, json.dumps(facts)]
    found = [
        json.loads(subprocess.run(command, capture_output=True, text=True, check=True).stdout)
        for _ in range(3)
    ]
    return np.min(found, axis=0).tolist()


@pytest.mark.parametrize("spec", [flickr30k.SPEC, coco.SPEC], ids=lambda spec: spec.name)
def test_opening_is_quick(spec, tmp_path, monkeypatch):
    prepare_sparse(spec, tmp_path, monkeypatch)
    elapsed, kept, _, n = opened(tmp_path, spec)
    print(f"\nopening {spec.name}/train, {n:,.0f} pairs: {elapsed:.2f} s, {kept:.0f} bytes per pair")
    assert elapsed < MOST_SECONDS
    assert kept < MOST_BYTES_PER_PAIR


def test_a_pair_costs_the_same_in_a_set_of_a_million(tmp_path, monkeypatch):
    found = {}
    for images in (25_000, 200_000):
        spec = replace(
            flickr30k.SPEC, images=dict(flickr30k.SPEC.images, train=images), n_regions=1, feature_dim=64
        )
        monkeypatch.setitem(DATASETS, spec.name, spec)
        root = tmp_path / str(images)
        prepare_sparse(spec, root, monkeypatch)
        _, kept, microseconds, n = opened(root, spec)
        found[int(n)] = microseconds
        print(f"\n{n:,.0f} pairs: {kept:.0f} bytes of memory and {microseconds:.2f} microseconds a pair")
        assert kept < MOST_BYTES_PER_PAIR
    assert found[1_000_000] < 1.25 * found[125_000]
