"""A prepared dataset, read by several processes: the same batches on all."""

import numpy as np
import pytest
import torch
from support import miniatures
from support.two_processes import in_two_processes

from baselines.kit.batches import TrainingBatches
from ncl_bench.data import DATASETS
from ncl_bench.data.prepare import prepare
from ncl_bench.data.prepared import load_prepared

SPEC = miniatures.SPECS["flickr30k"]


@pytest.fixture
def root(tmp_path, monkeypatch):
    """A prepared miniature."""
    monkeypatch.setitem(DATASETS.data, "flickr30k", SPEC)
    prepare("flickr30k", miniatures.make_scan(tmp_path / "from", "flickr30k"), tmp_path / "root")
    return tmp_path / "root"


def dealt_batches(root):
    """The batches of an epoch of training."""
    batches = TrainingBatches(load_prepared(root, SPEC, "train"), batch_size=16, seed=3)
    return {
        f"{name} of batch {number}": tensor
        for number, batch in enumerate(batches.shuffled("epoch"))
        for name, tensor in vars(batch).items()
    }


def test_ranks_that_train_together_read_the_same_batches(root, tmp_path):
    """Each compares a part of them: all images with captions of its own, which only the loss of all pairs needs."""
    alone = dealt_batches(root)
    for found in in_two_processes(tmp_path / "ranks", dealt_batches, root):
        torch.testing.assert_close(found, alone, rtol=0, atol=0)
    seen = np.concatenate([ids.numpy() for name, ids in alone.items() if name.startswith("pair_ids")])
    assert sorted(seen.tolist()) == list(range(SPEC.n_captions("train")))
