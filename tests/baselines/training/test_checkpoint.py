"""Writing the state of a run: the bytes that torch writes, in memory but once, and nothing of it on a full disk."""

import hashlib
import io
import tracemalloc
from contextlib import nullcontext

import pytest
import torch
from support.full_disk import largest_file
from support.refusals import refused

from baselines.training.run_folder import RunFolder
from baselines.training.step import load_optimizer

PAIRS = 1_000_000


def state_with_memory(n_pairs):
    return {"epochs": 3, "method": {"values": torch.arange(n_pairs, dtype=torch.float32)}, "history": [0.5]}


def test_a_state_is_what_torch_writes_and_is_named_by_its_hash(tmp_path):
    state, expected = state_with_memory(1_000), io.BytesIO()
    torch.save(state, expected)
    path = RunFolder(tmp_path).save_state(3, state)
    assert path.read_bytes() == expected.getvalue()
    assert path.name == f"epoch-000003.{hashlib.sha256(expected.getvalue()).hexdigest()[:16]}.pt"
    assert list(path.parent.iterdir()) == [path]
    found, damaged = RunFolder(tmp_path).latest_state()
    assert damaged == []
    assert found is not None
    torch.testing.assert_close(found, state, rtol=0, atol=0)


@pytest.mark.slow  # measures memory
def test_what_is_remembered_of_every_pair_is_not_copied_to_be_written_or_checked(tmp_path):
    """Memory of tensors is not Python's, which only a copy of their bytes would be."""
    state = state_with_memory(PAIRS)
    tracemalloc.start()
    RunFolder(tmp_path).save_state(3, state)
    RunFolder(tmp_path).latest_state()
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < 4 * PAIRS  # the bytes of a copy


@pytest.mark.parametrize("n_pairs", [1_000, PAIRS])
def test_a_full_disk_is_one_sentence_and_leaves_nothing(n_pairs, tmp_path):
    state = state_with_memory(n_pairs)
    with (
        largest_file(2_000),
        refused(),
    ):
        RunFolder(tmp_path).save_state(3, state)
    assert list((tmp_path / "checkpoints").iterdir()) == []


def test_the_state_of_an_optimizer_belongs_to_its_parameters():
    for size, fits in ((3, True), (4, False)):
        module = torch.nn.Linear(size, 1)
        optimizer = torch.optim.Adam(module.parameters())
        module(torch.ones(1, size)).sum().backward()
        optimizer.step()
        fresh = torch.optim.Adam(torch.nn.Linear(3, 1).parameters())
        with nullcontext() if fits else refused(ValueError):
            load_optimizer(fresh, optimizer.state_dict())
