"""One optimiser step: which weights move, how gradients are cut, and what is remembered."""

import math
from dataclasses import replace

import pytest
import torch
from support.refusals import refused
from torch import nn

from baselines.kit.batches import Batch
from baselines.training.step import READ_EVERY, OptimiserStep
from ncl_bench.errors import TrainingError

BATCH = Batch(*(torch.zeros(3) for _ in range(4)), pair_ids=torch.arange(3))


def weight(value):
    module = nn.Linear(1, 1, bias=False)
    nn.init.constant_(module.weight, value)
    return module


def stepping(*modules, clip=100.0):
    step = OptimiserStep(clip)
    step.optimizers = {module: torch.optim.SGD(module.parameters(), lr=1.0) for module in modules}
    return step


def test_only_the_named_modules_move_and_the_others_get_no_gradient():
    first, second = weight(2.0), weight(3.0)
    step = stepping(first, second)
    step(second, (first.weight * second.weight).sum(), BATCH)
    assert second.weight.item() == 1.0
    assert first.weight.item() == 2.0
    assert first.weight.grad is None


def test_several_modules_take_one_step_together_each_cut_on_its_own():
    first, second = weight(2.0), weight(3.0)
    step = stepping(first, second, clip=2.5)
    step([first, second], (first.weight * second.weight).sum(), BATCH)
    assert first.weight.item() == pytest.approx(2.0 - 2.5, abs=1e-5)
    assert second.weight.item() == pytest.approx(3.0 - 2.0)
    assert step.count == 1


def test_a_step_may_go_uncut():
    first = weight(2.0)
    stepping(first, clip=0.5)(first, (3 * first.weight).sum(), BATCH, clip=False)
    assert first.weight.item() == -1.0


def test_a_term_is_averaged_over_the_steps_that_name_it():
    first = weight(2.0)
    step = stepping(first)
    step(first, first.weight.sum(), BATCH, even=torch.tensor(4.0))
    step(first, first.weight.sum(), BATCH)
    assert step.epoch_means() == {"loss": 1.5, "even": 4.0}
    assert step.epoch_means() == {}


def numbered(k):
    return replace(BATCH, pair_ids=torch.arange(10 * k, 10 * k + 3))


@pytest.mark.parametrize("value", [math.nan, math.inf])
def test_the_first_loss_that_is_not_finite_names_its_step_and_its_pairs(value):
    first = weight(2.0)
    step = stepping(first)
    for k in range(4):
        step(first, (first.weight * (1.0 if k == 0 else value)).sum(), numbered(k))
    with refused(TrainingError):
        step.epoch_means()


def test_a_loss_that_is_not_finite_is_noticed_within_some_steps():
    first = weight(2.0)
    step = stepping(first)
    step(first, first.weight.sum() * math.nan, numbered(0))
    for k in range(1, READ_EVERY - 1):
        step(first, first.weight.sum(), numbered(k))
    with refused(TrainingError):
        step(first, first.weight.sum(), numbered(0))


def test_it_is_named_too_where_a_method_stumbles_over_what_it_left():
    first = weight(2.0)
    step = stepping(first)

    def stumble():
        with step.checked():
            step(first, first.weight.sum() * math.nan, BATCH)
            raise ValueError("Input contains NaN.")

    with refused(TrainingError):
        stumble()


def test_means_are_those_of_every_step_however_often_they_are_read():
    first = weight(2.0)
    step = stepping(first)
    values = [0.1 * k for k in range(2 * READ_EVERY + 3)]
    for value in values:
        step(first, first.weight.sum(), BATCH, seen=torch.tensor(value, dtype=torch.float64))
    assert step.epoch_means()["seen"] == sum(values) / len(values)
