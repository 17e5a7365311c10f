"""Training features on the device: equal bits, and a clear refusal where they do not fit."""

import multiprocessing
import os
import signal
import sys
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from support.refusals import refused
from test_batches import dataset

from baselines.kit.batches import TrainingBatches, features_on, memory_budget, where_features_lie
from ncl_bench.errors import TrainingError

CPU = torch.device("cpu")
SIZE = 240
"""Bytes of the features of ten images."""


def test_features_keep_the_type_they_are_stored_in():
    data = dataset(n_images=1030)  # more than two blocks
    resident = features_on(CPU, data)
    assert resident.dtype == torch.float16
    assert np.array_equal(resident.numpy(), data.image_features)


@pytest.mark.parametrize(("features", "readers"), [("gpu", 0), ("mapped", 2)])
def test_batches_are_bit_equal_wherever_their_features_lie_and_whoever_reads_them(features, readers):
    data, kind = dataset(n_images=20), {"batch_size": 7, "seed": 0, "device": CPU}
    plain, other = TrainingBatches(data, **kind), TrainingBatches(data, **kind, features=features)
    other.readers = readers
    drawn = torch.get_rng_state()
    noisy = torch.tensor([1, 5, 8, 30])
    for batches in zip(plain.shuffled("x"), other.shuffled("x"), strict=True):
        compare(*batches)
    streams = [batches.endless("y", pair_ids=noisy) for batches in (plain, other)]
    for _ in range(5):
        compare(*map(next, streams))
    assert torch.equal(torch.get_rng_state(), drawn)


def test_a_block_may_fill_a_quarter_of_a_gpu(monkeypatch):
    card = SimpleNamespace(total_memory=80 * 2**30)
    monkeypatch.setattr(torch.cuda, "get_device_properties", lambda device: card)
    assert memory_budget(torch.device("cuda", 0)) == 20 * 2**30


@pytest.mark.skipif(sys.platform == "win32", reason="Windows sends no signals to a process")
def test_readers_leave_ctrl_c_to_the_process_that_trains():
    batches = TrainingBatches(dataset(n_images=20), batch_size=2, seed=0, device=CPU)
    expected, batches.readers = len(list(batches.shuffled("x"))), 2
    found = batches.shuffled("x")
    next(found)
    readers = multiprocessing.active_children()
    assert len(readers) == 2
    for reader in readers:
        os.kill(reader.pid, signal.SIGINT)
    assert 1 + len(list(found)) == expected


def compare(expected, found):
    for name, tensor in vars(expected).items():
        assert tensor.dtype == vars(found)[name].dtype
        assert torch.equal(tensor, vars(found)[name])


def test_features_that_do_not_fit_are_refused_with_both_sizes(monkeypatch):
    monkeypatch.setattr("baselines.kit.batches.free_memory", lambda device: 10**8)
    data = dataset(n_images=10)
    object.__setattr__(data, "image_features", np.broadcast_to(np.float32(0), (29_000, 36, 2048)))
    with refused(TrainingError):
        TrainingBatches(data, batch_size=2, seed=0, device=CPU, features="gpu")


@pytest.mark.parametrize(
    ("free", "expected"), [(None, "mapped"), (2 * SIZE, "gpu"), (2 * SIZE - 1, "mapped"), (0, "mapped")]
)
def test_features_lie_on_the_device_where_half_of_its_free_memory_holds_them(free, expected, monkeypatch):
    monkeypatch.setattr("baselines.kit.batches.free_memory", lambda device: free)
    data = dataset(n_images=10)
    assert data.image_features.nbytes == SIZE
    assert where_features_lie("auto", CPU, data) == expected
    assert [where_features_lie(asked, CPU, data) for asked in ("mapped", "gpu")] == ["mapped", "gpu"]


@pytest.mark.gpu
@pytest.mark.parametrize("options", [{}, {"features": "gpu"}])
def test_batches_on_a_gpu_are_those_on_a_cpu(options):
    data = dataset(n_images=20)
    plain = TrainingBatches(data, batch_size=7, seed=0)
    other = TrainingBatches(data, batch_size=7, seed=0, device=torch.device("cuda", 0), **options)
    for expected, found in zip(plain.shuffled("x"), other.shuffled("x"), strict=True):
        assert found.image_features.device.type == "cuda"
        assert found.caption_lengths.device.type == "cpu"
        compare(expected, found.to(CPU))
