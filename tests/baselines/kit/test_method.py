"""The base of a method: what it needs not write itself."""

import pytest
from torch import nn

from baselines.kit import EpochPlan, Method, Setting, StepDecay
from ncl_bench.errors import RecipeError


class Plain(Method):
    name = "plain"
    title = "Plain"
    Config = StepDecay

    def train_epoch(self, plan, batches, step) -> None: ...


def plans(config) -> list[EpochPlan]:
    return list(Plain(config, Setting(4, 1, 5, lambda: nn.Linear(2, 2))).plan())


def test_a_config_without_a_schedule_is_one_sentence() -> None:
    with pytest.raises(RecipeError, match=r"method plain has no schedule; derive its Config from StepDecay"):
        plans(object())
