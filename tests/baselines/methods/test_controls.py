"""The controls: their losses from the definition, their schedules, what they may not do."""

import pytest
import torch
from support.method_parity import GradientStep, batches_of
from support.stand_ins import StandIn
from torch import Tensor, nn

from baselines.kit.batches import Batch
from baselines.kit.losses import hardest_triplet, info_nce, mean_triplet
from baselines.kit.method import Method, Setting
from baselines.methods.info_nce import InfoNCE, InfoNCEConfig
from baselines.methods.triplet import Triplet, TripletConfig


class FixedSimilarities(StandIn):
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


def test_info_nce_has_one_phase_with_step_decay() -> None:
    plan = InfoNCE(InfoNCEConfig(epochs=5, lr_update=2, learning_rate=1.0, lr_decay=0.5), SETTING).plan()
    assert [e.epoch for e in plan] == list(range(5))
    assert [e.learning_rate for e in plan] == [1, 1, 0.5, 0.5, 0.25]


@pytest.mark.parametrize("method", [Triplet, InfoNCE])
def test_controls_believe_nothing_about_pairs(method: type[Method]) -> None:
    assert method(method.Config(), SETTING).estimates() == {}
