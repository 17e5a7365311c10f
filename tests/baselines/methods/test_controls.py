"""The controls and RCL: their losses from the definition, their schedules, what they may not do."""

import math

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from method_parity import GradientStep, batches_of
from torch import Tensor, nn

from baselines.batches import Batch
from baselines.losses import hardest_triplet, info_nce, mean_triplet
from baselines.method import Method, Setting
from baselines.methods.info_nce import InfoNCE, InfoNCEConfig
from baselines.methods.rcl import RCL, RCLConfig, complementary_contrastive, penalised
from baselines.methods.triplet import Triplet, TripletConfig

PENALTIES = {
    "tan": math.tan,
    "log": lambda p: -math.log(1 - min(p, 1 - 1e-6)),
    "exp": lambda p: math.exp(-(1 - p)),
}


class FixedSimilarities(nn.Module):
    """A network whose only weights are the similarities."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.rand(6, 6))

    def forward(self, batch: Batch) -> Tensor:
        return self.weight


def batch() -> Batch:
    empty = torch.empty(0)
    return Batch(empty, empty, empty, empty, torch.arange(6))


def loss_of_an_epoch(method: Method, index: int = 0) -> float:
    step = GradientStep()
    method.train_epoch(method.plan()[index], batches_of(batch()), step)
    assert method.networks[0].weight.grad is not None
    return step.loss


SETTING = Setting(6, 1, 5, FixedSimilarities)


@given(st.integers(2, 8), st.integers(0, 1000), st.floats(0.03, 1.0), st.sampled_from(sorted(PENALTIES)))
@settings(max_examples=40, deadline=None)
def test_complementary_loss_equals_the_loop(size: int, seed: int, temperature: float, penalty: str) -> None:
    similarities = torch.from_numpy(np.random.default_rng(seed).random((size, size)))
    powers = (similarities / temperature).exp().tolist()
    for i, loss in enumerate(complementary_contrastive(similarities, temperature, penalty).tolist()):
        expected = 0.0
        column = math.fsum(row[i] for row in powers)
        for j in (j for j in range(size) if j != i):
            expected += PENALTIES[penalty](powers[i][j] / math.fsum(powers[i]))
            expected += PENALTIES[penalty](powers[j][i] / column)
        assert loss == pytest.approx(expected, rel=1e-6)


@pytest.mark.parametrize("penalty", sorted(PENALTIES))
def test_penalties_rise_and_stay_finite_with_their_gradients(penalty: str) -> None:
    probability = torch.linspace(0, 1, 101, requires_grad=True)
    cost = penalised(probability, penalty)
    assert (cost.diff() >= 0).all()
    cost.sum().backward()
    assert cost.isfinite().all()
    assert probability.grad.isfinite().all()


def test_a_false_pair_costs_rcl_a_bounded_amount() -> None:
    """Probabilities of the negatives sum to 1 at most, so no pair can cost more than 2 tan(1)."""
    similarities = 1 - torch.eye(2)
    assert info_nce(similarities, 0.05).min() > 2 * math.tan(1)
    assert complementary_contrastive(similarities, 0.05).max() <= 2 * math.tan(1)


def test_triplet_warms_up_on_the_mean_then_takes_the_hardest() -> None:
    method = Triplet(TripletConfig(warmup_epochs=1, epochs=2, lr_update=1, learning_rate=1.0), SETTING)
    assert [(e.phase, e.learning_rate) for e in method.plan()] == [
        ("warmup", 1.0),
        ("train", 1.0),
        ("train", 0.1),
    ]
    similarities = method.networks[0].weight.detach()
    assert loss_of_an_epoch(method, 0) == pytest.approx(mean_triplet(similarities, 0.2).sum().item())
    assert loss_of_an_epoch(method, 1) == pytest.approx(hardest_triplet(similarities, 0.2).sum().item())


def test_triplet_over_all_negatives_takes_the_mean_throughout() -> None:
    method = Triplet(TripletConfig(negatives="mean", epochs=1), SETTING)
    expected = mean_triplet(method.networks[0].weight.detach(), 0.2).sum().item()
    assert loss_of_an_epoch(method) == pytest.approx(expected)


def test_info_nce_trains_on_the_batch_mean() -> None:
    method = InfoNCE(InfoNCEConfig(temperature=0.3), SETTING)
    expected = info_nce(method.networks[0].weight.detach(), 0.3).mean().item()
    assert loss_of_an_epoch(method) == pytest.approx(expected)


def test_rcl_trains_on_the_batch_mean() -> None:
    method = RCL(RCLConfig(temperature=0.3, penalty="log"), SETTING)
    expected = complementary_contrastive(method.networks[0].weight.detach(), 0.3, "log").mean().item()
    assert loss_of_an_epoch(method) == pytest.approx(expected)


@pytest.mark.parametrize("method", [InfoNCE, RCL])
def test_one_phase_with_step_decay(method: type[Method]) -> None:
    config = method.Config(epochs=5, lr_update=2, learning_rate=1.0, lr_decay=0.5)
    plan = method(config, SETTING).plan()
    assert [e.epoch for e in plan] == list(range(5))
    assert [e.learning_rate for e in plan] == [1, 1, 0.5, 0.5, 0.25]


@pytest.mark.parametrize(("method", "options"), [(Triplet, {}), (InfoNCE, {}), (RCL, {})])
def test_controls_believe_nothing_about_pairs(method: type[Method], options: dict) -> None:
    assert method(method.Config(**options), SETTING).estimates() == {}
