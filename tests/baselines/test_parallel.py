"""Two processes compute what one computes: similarities, losses and weights."""

import os
from pathlib import Path

import pytest
import torch
import torch.multiprocessing as mp

from baselines.backbones import BACKBONES, build_backbone
from baselines.backbones.base import Backbone
from baselines.batches import Batch
from baselines.losses import hardest_triplet
from baselines.parallel import average_gradients, own_columns

STEPS = 20
PAIRS = 9  # not a multiple of the number of processes


def network_and_batch(name: str) -> tuple[Backbone, Batch]:
    torch.manual_seed(3)
    config = BACKBONES[name].Config(**small(name))
    network = build_backbone(name, config, feature_dim=10, n_regions=4, vocabulary_size=30)
    lengths = torch.randint(3, 8, (PAIRS,))
    tokens = torch.randint(4, 30, (PAIRS, 8)) * (torch.arange(8) < lengths[:, None])
    features = torch.randn(PAIRS, 4, 10).double()
    # in float32 the hardest negatives of SAF let rounding grow a thousandfold within twenty steps
    return network.double(), Batch(features, torch.full((PAIRS,), 4), tokens, lengths, torch.arange(PAIRS))


def small(name: str) -> dict[str, int]:
    sizes = {"embed_size": 12, "word_dim": 6}
    return sizes if name == "vse_infinity" else sizes | {"sim_dim": 5}


def train(name: str) -> tuple[torch.Tensor, dict[str, torch.Tensor]]:
    network, batch = network_and_batch(name)
    network.train()
    # not Adam, which blows up the rounding of gradients that are zero in exact arithmetic
    optimizer = torch.optim.SGD(network.parameters(), lr=0.01)
    losses = []
    for _ in range(STEPS):
        loss = hardest_triplet(network(batch), 0.2).sum()
        optimizer.zero_grad()
        loss.backward()
        average_gradients(network.parameters())
        optimizer.step()
        losses.append(loss.detach())
    return torch.stack(losses), network.state_dict()


def worker(rank: int, world: int, name: str, folder: str) -> None:
    torch.set_num_threads(1)
    os.environ |= {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": "0"}
    store = torch.distributed.FileStore(f"{folder}/store", world)
    torch.distributed.init_process_group("gloo", store=store, rank=rank, world_size=world)
    losses, state = train(name)
    torch.save({"losses": losses, "state": state}, f"{folder}/{rank}.pt")
    torch.distributed.destroy_process_group()


@pytest.mark.parametrize("name", sorted(BACKBONES))
def test_two_processes_train_like_one(name: str, tmp_path: Path) -> None:
    expected_losses, expected_state = train(name)
    mp.spawn(worker, args=(2, name, str(tmp_path)), nprocs=2)
    for rank in range(2):
        found = torch.load(tmp_path / f"{rank}.pt", weights_only=True)
        torch.testing.assert_close(found["losses"], expected_losses, rtol=0, atol=1e-5)
        torch.testing.assert_close(found["state"], expected_state, rtol=0, atol=1e-5)


def test_shares_cover_every_column_once(monkeypatch: pytest.MonkeyPatch) -> None:
    for world in (1, 2, 3, 5):
        monkeypatch.setattr("baselines.parallel.world_size", lambda world=world: world)
        for n in (0, 1, 7, 128):
            columns = []
            for r in range(world):
                monkeypatch.setattr("baselines.parallel.rank", lambda r=r: r)
                columns += list(range(n))[own_columns(n)]
            assert columns == list(range(n))
