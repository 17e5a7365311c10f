"""A prepared dataset, read by several processes: shards without overlap, the same batches on all."""

from collections.abc import Mapping
from pathlib import Path

import numpy as np
import pytest
import torch
from support import miniatures
from support.two_processes import in_two_processes

from baselines.kit.batches import TrainingBatches
from baselines.kit.distributed import rank, world_size
from ncl_bench.data import DATASETS
from ncl_bench.data.prepare import prepare
from ncl_bench.data.prepared import load_prepared

SPEC = miniatures.SPECS["flickr30k"]
Tensors = Mapping[str, torch.Tensor]


@pytest.fixture
def root(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A prepared miniature."""
    monkeypatch.setitem(DATASETS, "flickr30k", SPEC)
    prepare("flickr30k", miniatures.make_scan(tmp_path / "from", "flickr30k"), tmp_path / "root")
    return tmp_path / "root"


def own_pairs(root: Path) -> Tensors:
    """What this rank's shard holds."""
    shard = load_prepared(root, SPEC, "train").shard(world_size(), rank())
    return {name: tensor for name, tensor in shard.to_torch().items() if name != "caption_tokens"} | {
        f"tokens of {pair}": tensor[:length]
        for pair, tensor, length in zip(
            shard.pair_ids, shard.to_torch()["caption_tokens"], shard.tokens.lengths, strict=True
        )
    }


def dealt_batches(root: Path) -> Tensors:
    """The batches of an epoch of training."""
    batches = TrainingBatches(load_prepared(root, SPEC, "train"), batch_size=16, seed=3)
    return {
        f"{name} of batch {number}": tensor
        for number, batch in enumerate(batches.shuffled("epoch"))
        for name, tensor in vars(batch).items()
    }


def test_ranks_that_read_shards_read_every_pair_once(root: Path, tmp_path: Path) -> None:
    first, second = in_two_processes(tmp_path / "ranks", own_pairs, root)
    whole = own_pairs(root)
    assert len(whole["pair_ids"]) == SPEC.n_captions("train")
    both = {name: torch.cat([first[name], second[name]]) for name in first.keys() & second.keys()}
    tokens = {
        name: tensor for part in (first, second) for name, tensor in part.items() if name.startswith("tokens")
    }
    torch.testing.assert_close({**both, **tokens}, whole, rtol=0, atol=0)
    assert not set(first["pair_ids"].tolist()) & set(second["pair_ids"].tolist())


def test_ranks_that_train_together_read_the_same_batches(root: Path, tmp_path: Path) -> None:
    """Each compares a part of them: all images with captions of its own, which only the loss of all pairs needs."""
    alone = dealt_batches(root)
    for found in in_two_processes(tmp_path / "ranks", dealt_batches, root):
        torch.testing.assert_close(found, alone, rtol=0, atol=0)
    seen = np.concatenate([ids.numpy() for name, ids in alone.items() if name.startswith("pair_ids")])
    assert sorted(seen.tolist()) == list(range(SPEC.n_captions("train")))
