"""One optimiser step: which weights move, how gradients are cut, and what is remembered."""

import math

import pytest
import torch
from lightning_fabric import Fabric
from torch import nn

from baselines.engine.step import OptimiserStep
from baselines.kit.batches import Batch
from ncl_bench.errors import TrainingError

BATCH = Batch(*(torch.zeros(3) for _ in range(4)), pair_ids=torch.arange(3))


def weight(value: float) -> nn.Linear:
    module = nn.Linear(1, 1, bias=False)
    nn.init.constant_(module.weight, value)
    return module


def stepping(*modules: nn.Module, clip: float = 100.0) -> OptimiserStep:
    step = OptimiserStep(Fabric(accelerator="cpu"), clip)
    step.optimizers = {module: torch.optim.SGD(module.parameters(), lr=1.0) for module in modules}
    return step


def test_only_the_named_modules_move_and_the_others_get_no_gradient() -> None:
    first, second = weight(2.0), weight(3.0)
    step = stepping(first, second)
    step(second, (first.weight * second.weight).sum(), BATCH)
    assert second.weight.item() == 1.0
    assert first.weight.item() == 2.0
    assert first.weight.grad is None


def test_several_modules_take_one_step_together_each_cut_on_its_own() -> None:
    first, second = weight(2.0), weight(3.0)
    step = stepping(first, second, clip=2.5)
    step([first, second], (first.weight * second.weight).sum(), BATCH)
    assert first.weight.item() == pytest.approx(2.0 - 2.5, abs=1e-5)
    assert second.weight.item() == pytest.approx(3.0 - 2.0)
    assert step.count == 1


def test_a_step_may_go_uncut() -> None:
    first = weight(2.0)
    stepping(first, clip=0.5)(first, (3 * first.weight).sum(), BATCH, clip=False)
    assert first.weight.item() == -1.0


def test_a_term_is_averaged_over_the_steps_that_name_it() -> None:
    first = weight(2.0)
    step = stepping(first)
    step(first, first.weight.sum(), BATCH, even=torch.tensor(4.0))
    step(first, first.weight.sum(), BATCH)
    assert step.epoch_means() == {"loss": 1.5, "even": 4.0}
    assert step.epoch_means() == {}


def test_a_loss_that_is_not_finite_names_its_pairs() -> None:
    first = weight(2.0)
    with pytest.raises(TrainingError, match=r"the loss is nan at step 1 \(pairs 0, 1, 2\)"):
        stepping(first)(first, (first.weight * math.nan).sum(), BATCH)
