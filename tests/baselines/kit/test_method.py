"""The base of a method: what it needs not write itself."""

import pytest
import torch
from torch import nn

from baselines.kit import EpochPlan, Method, Setting, StepDecay, WarmUpThenStepDecay
from ncl_bench.errors import RecipeError


class Plain(Method):
    name = "plain"
    title = "Plain"
    Config = StepDecay

    def train_epoch(self, plan, batches, step) -> None: ...


def plans(config) -> list[EpochPlan]:
    return list(Plain(config, Setting(4, 1, 5, lambda: nn.Linear(2, 2))).plan())


def test_the_rate_falls_in_steps() -> None:
    found = plans(StepDecay(epochs=5, learning_rate=1.0, lr_update=2, lr_decay=0.5))
    assert found == [EpochPlan(0, k, "train", rate) for k, rate in enumerate((1.0, 1.0, 0.5, 0.5, 0.25))]


@pytest.mark.parametrize(("warmup_rate", "expected"), [(None, 1.0), (3.0, 3.0)])
def test_the_warm_up_is_not_chosen_and_counts_no_decay(warmup_rate: float | None, expected: float) -> None:
    found = plans(
        WarmUpThenStepDecay(
            epochs=2,
            learning_rate=1.0,
            lr_update=1,
            lr_decay=0.5,
            warmup_epochs=2,
            warmup_learning_rate=warmup_rate,
        )
    )
    assert found == [
        EpochPlan(0, 0, "warmup", expected, select=False),
        EpochPlan(0, 1, "warmup", expected, select=False),
        EpochPlan(0, 0, "train", 1.0),
        EpochPlan(0, 1, "train", 0.5),
    ]


def test_a_config_without_a_schedule_is_one_sentence() -> None:
    with pytest.raises(RecipeError, match=r"method plain has no schedule; derive its Config from StepDecay"):
        plans(object())


def test_adam_is_the_optimiser() -> None:
    module = nn.Linear(2, 2)
    optimizer = Plain(StepDecay(), Setting(4, 1, 5, lambda: nn.Linear(2, 2))).make_optimizer(module, 0.5)
    assert type(optimizer) is torch.optim.Adam
    assert optimizer.defaults["lr"] == 0.5
    assert optimizer.defaults["betas"] == (0.9, 0.999)
