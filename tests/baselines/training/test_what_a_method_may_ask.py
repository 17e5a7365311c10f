"""A second trained module, trusted pairs and ranking scores, which most methods do without."""

from typing import Any

import numpy as np
import pytest
import torch
from rich.console import Console
from support.few_digits import digits_job, trained
from support.refusals import refused
from torch import nn

from baselines.kit.losses import mean_triplet
from baselines.kit.method import Method, StepDecay
from baselines.methods import METHODS
from baselines.training.run_folder import RunFolder
from baselines.training.submit import submit
from baselines.training.train import Trainer
from ncl_bench.errors import TrainingError
from ncl_bench.evaluation.submission import read_submission

TRUSTED = 20


class Asking(Method):
    """Asks for everything."""

    name = "asking"
    title = "Asking"
    Config = StepDecay
    seen: list[Any]

    def __init__(self, config, setting):
        super().__init__(config, setting)
        self.scale = nn.Linear(1, 1)
        self.seen = []

    @classmethod
    def extra_clean_data(cls, config):
        return TRUSTED

    def trained_modules(self):
        return [*self.networks, self.scale]

    def learning_rate(self, module, plan):
        return plan.learning_rate / 10 if module is self.scale else plan.learning_rate

    def train_epoch(self, plan, batches, step):
        network = self.networks[0].train()
        trusted = batches.read(self.setting.trusted_ids)
        self.seen.append((batches.pair_ids, trusted))
        for batch in batches.shuffled("train"):
            loss = mean_triplet(network(batch).similarities, 0.2).mean()
            step([network, self.scale], loss * self.scale(loss.detach()[None]).sum(), batch)

    def ranking_scores(self, network, similarities):
        assert network is self.networks[0]
        return similarities.exp()


@pytest.fixture(autouse=True)
def registered(few_pairs, monkeypatch):
    monkeypatch.setitem(METHODS.data, "asking", Asking)


def job(noise_ratio=0.4, seed=0):
    return digits_job({"name": "asking", "epochs": 2, "learning_rate": 0.01}, noise_ratio, seed=seed)


def trainer(folder, *options):
    return Trainer(job(*options), RunFolder(folder), "cpu")


def test_trusted_pairs_are_true_apart_and_the_same_at_every_noise(tmp_path):
    noisy, noisier = trained(job(), tmp_path / "a"), trainer(tmp_path / "b", 0.8)
    trusted = noisy.method.setting.trusted_ids
    assert len(trusted) == TRUSTED
    assert torch.equal(noisier.method.setting.trusted_ids, trusted)
    assert not torch.equal(trainer(tmp_path / "c", 0.4, 1).method.setting.trusted_ids, trusted)
    visited, batch = noisy.method.seen[0]
    assert len(visited) == 1000 - TRUSTED
    assert not set(visited.tolist()) & set(trusted.tolist())
    own = noisy.train_split.image_features[trusted.numpy() // noisy.train_split.captions_per_image]
    assert np.array_equal(batch.image_features.numpy(), own)
    assert torch.equal(batch.pair_ids, trusted)


def test_every_trained_module_has_its_rate(tmp_path):
    whole = trained(job(), tmp_path / "whole")
    rates = [optimizer.param_groups[0]["lr"] for optimizer in whole.step.optimizers.values()]
    assert rates == [0.01, 0.001]


def test_a_run_is_scored_by_what_its_method_ranks_by_and_says_what_it_knew(tmp_path):
    trained(job(), tmp_path / "run")
    stated = submit([tmp_path / "run"], tmp_path / "submission", device="cpu", console=Console(quiet=True))
    assert stated.extra_clean_data == "20 training pairs that are known to match"
    assert read_submission(tmp_path / "submission") == stated
    scores = np.load(tmp_path / "submission" / "test.npy")
    assert scores.min() > 0  # cosines exist on both sides of it


def test_more_trusted_pairs_than_there_are_is_one_sentence(tmp_path, monkeypatch):
    monkeypatch.setattr(Asking, "extra_clean_data", classmethod(lambda cls, config: 1001))
    with refused(TrainingError):
        trainer(tmp_path)
