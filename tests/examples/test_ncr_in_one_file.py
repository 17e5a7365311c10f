"""The one-file NCR takes the steps of the trainer with ``baselines.methods.ncr``, to the bit."""

from pathlib import Path

import ncr_in_one_file as one_file
import pytest
import torch
from support.few_digits import digits_job, load_few, trained
from support.one_file import backbone_of, record_losses, seed_of_the_engine

import baselines.training.job
from baselines.backbones import BACKBONES
from baselines.kit import derive_seed
from baselines.kit.mixture import clean_posterior, is_clean

SCHEDULE = {"warmup_epochs": 2, "epochs": 2}  # the second epoch trains on noisy batches too


def test_it_takes_the_steps_of_the_engine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    losses = record_losses(monkeypatch)
    monkeypatch.setattr(one_file, "seed_of", seed_of_the_engine)
    train = load_few("digits", split="train", noise_ratio=0.4)
    torch.manual_seed(derive_seed(0, "networks", 0))
    networks = [one_file.Network(train.feature_dim, train.vocabulary.size) for _ in "AB"]
    first = networks[0].word.weight.clone()
    assert len(list(one_file.algorithm_1(networks, train, **SCHEDULE))) == SCHEDULE["epochs"]
    of_one_file = losses[:]
    losses.clear()

    monkeypatch.setitem(BACKBONES, "one_file", backbone_of(one_file))
    monkeypatch.setattr(baselines.training.job, "load_dataset", load_few)
    method = SCHEDULE | {
        "name": "ncr",
        "label_shape": "paper",
        "clean_threshold": one_file.CLEAN,
        "warmup_learning_rate": one_file.WARMUP_RATE,
        "learning_rate": one_file.RATE,
    }
    recipe = {"backbone": {"name": "one_file"}, "batch_size": one_file.BATCH}
    method_of_engine = trained(digits_job(method, recipe=recipe), tmp_path / "run").method
    divided = [memory.values > one_file.CLEAN for memory in method_of_engine.clean_probability]
    assert all(1 < clean.sum() < len(train) - 1 for clean in divided)
    assert not networks[0].word.weight.equal(first)
    # weights alone would not do: the gradient of a hinge does not see how large a label is
    assert of_one_file == losses
    for network, of_engine in zip(networks, method_of_engine.networks, strict=True):
        for name, weight in network.state_dict().items():
            assert weight.equal(of_engine.network.state_dict()[name]), name


def test_it_divides_like_the_engine_where_the_mixture_does_not_converge_and_where_all_pairs_are_clean() -> (
    None
):
    losses = torch.linspace(0, 1, 500) ** 8
    assert one_file.clean_probability(losses.numpy(), 7).equal(clean_posterior(losses, random_state=7))
    for w in (torch.linspace(0, 1, 500), torch.linspace(0.96, 1, 500)):
        clean, noisy = one_file.divide(w)
        assert clean.tolist() == is_clean(w, one_file.CLEAN).nonzero().ravel().tolist()
        assert sorted([*clean, *noisy]) == list(range(500))
