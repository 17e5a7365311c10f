"""Loading at real size: opening MS-COCO, and random batches against a raw ``numpy.memmap`` gather.

The feature files have the real number of rows and are made sparse, so that they take no disk.

    pytest tests/benchmarks/bench_loading.py -m benchmark -s
"""

import json
import pickle
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from ncl_bench import load_dataset
from ncl_bench.data import coco, flickr30k, write
from ncl_bench.data import prepare as run
from ncl_bench.data.columns import TokenTable
from ncl_bench.data.prepared import load_prepared
from ncl_bench.data.spec import DatasetSpec, Material, SplitCaptions, TokenKey
from ncl_bench.data.verify import Findings, Inspection
from ncl_bench.data.vocabulary import build_vocabulary, vocabulary_json

pytestmark = pytest.mark.benchmark

BATCH, BATCHES, ROUNDS = 128, 10, 5
LEAST_SHARE = 0.8
MOST_SECONDS, MOST_MEGABYTES = 1.0, 300
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


class SparseFile:
    """A file that skips large writes, which are zeros here."""

    closed = False

    def __init__(self, path: Path) -> None:
        self._file = path.open("wb")

    def write(self, content: Any) -> int:
        view = memoryview(content)
        if view.nbytes < 2**20:
            return self._file.write(view)
        self._file.seek(view.nbytes, 1)
        return view.nbytes

    def finish(self) -> None:
        self._file.truncate()
        self._file.close()

    def flush(self) -> None:
        self._file.flush()


@contextmanager
def sparse_writer(path: Path, schema: Any, file_format: str) -> Iterator[Callable[[Any], None]]:
    """``table_writer``, with holes for zeros."""
    sink = SparseFile(path)
    with pa.ipc.new_stream(pa.PythonFile(sink, "w"), schema) as stream:
        yield stream.write_batch
    sink.finish()


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
    monkeypatch.setattr(write, "table_writer", sparse_writer)
    monkeypatch.setattr(run, "_check_space", lambda *arguments: None)
    monkeypatch.setattr(run, "inspect", lambda *arguments: Inspection(None, {}, (), content, None))
    monkeypatch.setattr(run, "verify", lambda *arguments, **options: Findings())
    run.prepare(spec.name, root, root)


def seconds(gather: Callable[[np.ndarray], np.ndarray], rows: list[np.ndarray]) -> float:
    start = time.perf_counter()
    for batch in rows:
        gather(batch)
    return time.perf_counter() - start


def test_random_batches_keep_up_with_a_raw_memmap(tmp_path, monkeypatch):
    spec = flickr30k.SPEC
    prepare_sparse(spec, tmp_path, monkeypatch)
    shape = (spec.images["train"], spec.n_regions, spec.feature_dim)
    raw = np.lib.format.open_memmap(tmp_path / "raw.npy", "w+", np.float32, shape)
    raw = np.load(tmp_path / "raw.npy", mmap_mode="r")
    ours = load_prepared(tmp_path, spec, "train").image_features
    random = np.random.default_rng(0)
    shares = []
    for _ in range(ROUNDS):
        rows = [random.integers(0, shape[0], BATCH) for _ in range(BATCHES)]
        seconds(ours.__getitem__, rows)
        seconds(raw.__getitem__, rows)
        shares.append(seconds(raw.__getitem__, rows) / seconds(ours.__getitem__, rows))
    print(f"\nbatches of {BATCH} images: {np.median(shares):.2f} of a raw memmap gather, rounds {shares}")
    assert np.median(shares) >= LEAST_SHARE


def test_a_large_split_is_pickled_in_few_kilobytes(tmp_path, monkeypatch):
    prepare_sparse(flickr30k.SPEC, tmp_path, monkeypatch)
    train = load_dataset("flickr30k", noise_ratio=0.4, root=tmp_path)
    start = time.process_time()
    pickled = pickle.dumps(train)
    middle = time.process_time()
    copy = pickle.loads(pickled)
    opened = time.process_time() - middle
    print(
        f"\nflickr30k/train: {len(pickled)} bytes in {middle - start:.4f} s, opened again in {opened:.2f} s"
    )
    assert len(pickled) < 4096
    assert copy.noise.sha256 == train.noise.sha256


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
    table = datasets.load_from_disk(str(tmp_path / spec.name / "images" / "train"))
    arrays, tensors = table.with_format("numpy"), table.with_format("torch")
    row_numbers = datasets.Dataset.from_dict({"row": np.arange(len(train))})
    pairs = row_numbers.with_transform(lambda batch: vars(train.read(batch["row"])))
    shape = (-1, spec.n_regions, spec.feature_dim)
    images = train.caption_to_image
    ways: dict[str, Callable[[np.ndarray], object]] = {
        "raw memmap": lambda rows: raw[images[rows]],
        "read": train.read,
        "to_torch": train.to_torch,
        "datasets, with_transform": lambda rows: pairs[rows],
        "datasets, format numpy": lambda rows: arrays[images[rows]]["image_features"].reshape(shape),
        "datasets, format torch": lambda rows: tensors[images[rows]]["image_features"].reshape(shape),
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
    assert found["read"] < 1 / LEAST_SHARE


OPEN = r"""
import json, re, sys, time
from pathlib import Path
import ncl_bench
from ncl_bench.data import load_dataset
start = time.perf_counter()
dataset = load_dataset("coco", split="train", root=sys.argv[1])
elapsed = time.perf_counter() - start
peak = re.search(r"VmHWM:\s+(\d+) kB", Path("/proc/self/status").read_text())
print(json.dumps([elapsed, int(peak[1]) / 1024, len(dataset)]))
"""


def test_opening_the_largest_dataset_is_quick_and_small(tmp_path, monkeypatch):
    prepare_sparse(coco.SPEC, tmp_path, monkeypatch)
    found = []
    for _ in range(3):
        process = subprocess.run(
            [sys.executable, "-c", OPEN, str(tmp_path)], capture_output=True, text=True, check=True
        )
        found.append(json.loads(process.stdout))
    times, megabytes, lengths = zip(*found, strict=True)
    print(f"\nopening coco/train: {min(times):.2f} s (runs {times}), {max(megabytes):.0f} MB of memory")
    assert set(lengths) == {coco.SPEC.n_captions("train")}
    assert min(times) < MOST_SECONDS
    assert max(megabytes) < MOST_MEGABYTES
