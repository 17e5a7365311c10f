"""The one-file GSC takes the steps of the trainer with ``gsc_plus`` of ``baselines.methods.gsc``, to the bit."""

from pathlib import Path

import gsc_in_one_file as one_file
import pytest
import torch
from support.few_digits import digits_job, load_few, trained
from support.one_file import backbone_of, record_losses, seed_of_the_engine

import baselines.training.job
from baselines.backbones import BACKBONES
from baselines.kit import derive_seed

EPOCHS = 3  # the labels weight the pairs from the second epoch on, and remember from the third


def test_it_takes_the_steps_of_the_engine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    losses = record_losses(monkeypatch)
    monkeypatch.setattr(one_file, "seed_of", seed_of_the_engine)
    train = load_few("digits", split="train", noise_ratio=0.4)
    torch.manual_seed(derive_seed(0, "networks", 0))
    networks = [one_file.Network(train.feature_dim, train.vocabulary.size) for _ in "AB"]
    first = networks[0].word.weight.clone()
    labels = list(one_file.algorithm_1(networks, train, EPOCHS))[-1]
    of_one_file = losses[:]
    losses.clear()

    monkeypatch.setitem(BACKBONES, "one_file", backbone_of(one_file))
    monkeypatch.setattr(baselines.training.job, "load_dataset", load_few)
    method = {"name": "gsc_plus", "epochs": EPOCHS, "learning_rate": one_file.RATE}
    recipe = {"backbone": {"name": "one_file"}, "batch_size": one_file.BATCH}
    of_engine = trained(digits_job(method, recipe=recipe), tmp_path / "run").method
    assert not networks[0].word.weight.equal(first)
    assert of_one_file == losses
    for k, own in enumerate(labels):
        assert own.y.equal(of_engine.indicators[k].label.values)
        assert own.y.std() > 0
    for network, other in zip(networks, of_engine.networks, strict=True):
        for name, weight in network.state_dict().items():
            assert weight.equal(other.network.state_dict()[name]), name
