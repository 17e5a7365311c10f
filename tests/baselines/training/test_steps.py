"""A recipe with a number of steps: the networks of every method take as many, and a run resumes as any other."""

import json
from contextlib import suppress
from dataclasses import replace
from functools import partial

import pytest
import torch
from rich.console import Console
from support.few_digits import cut_short, digits_job, few_digits_recipe, load_few, outcome
from support.refusals import refused
from torch import nn

from baselines.kit.batches import Batch
from baselines.kit.method import EpochPlan
from baselines.methods import METHODS
from baselines.training.job import TrainingJob, refuse_unselectable
from baselines.training.recipe import Recipe
from baselines.training.run_folder import RunFolder
from baselines.training.step import Budget, OptimiserStep, StepsSpent
from baselines.training.train import Trainer, TrainingProgress
from ncl_bench.errors import TrainingError

STEPS = 6
DIVIDING = {"bicro", "cream", "in2r", "mscn", "ncr", "pc2", "pcsr", "sps"}
"""Methods whose networks divide the pairs for each other, and take unequal numbers of steps."""
FIRST = {"ncr", "mscn", "crcl", "npc"}
"""Of two networks, of a module of its own, of several rounds, of a batch that is read by rows."""
pytestmark = pytest.mark.usefixtures("few_pairs")
BATCH = Batch(*(torch.zeros(3) for _ in range(4)), pair_ids=torch.arange(3))


def trainer(recipe, folder):
    return Trainer(TrainingJob(Recipe.from_dict(recipe), noise_ratio=0.4), RunFolder(folder), "cpu")


def quiet():
    return TrainingProgress(1, Console(quiet=True))


def triplet(steps, **options):
    method = {"name": "triplet", "epochs": 4, "lr_update": 1, "lr_decay": 0.5, "learning_rate": 0.008}
    return digits_job(method | options, recipe={"batch_size": 250, "steps": steps}).recipe.model_dump()


@pytest.mark.usefixtures("unscored")
@pytest.mark.parametrize(
    "name",
    [
        name if name in FIRST else pytest.param(name, marks=pytest.mark.slow)
        for name in METHODS
        if not METHODS[name].closed_form
    ],
)
def test_the_networks_of_every_method_take_as_many_steps(name, tmp_path):
    recipe = few_digits_recipe(name, warmup_epochs=1, epochs=2, rounds=[1, 1], freeze_epochs=1)
    running = trainer(recipe | {"steps": STEPS, "batch_size": min(recipe["batch_size"] * 2, 200)}, tmp_path)
    found = running.run(quiet())
    assert sum(found.steps) == STEPS * METHODS[name].n_networks
    assert name in DIVIDING or len(set(found.steps)) == 1
    assert running.history[-1].taken == found.steps
    if not running.plans[0].select:  # a warm-up takes one step of each network for every batch
        batches = len(range(0, len(running.rows) - 1, running.job.recipe.batch_size))
        assert running.history[0].taken == (min(batches, STEPS),) * len(found.steps)
    assert found.pairs_seen >= STEPS * 20  # of the smallest batch, beside what the division encodes
    assert found.cost > 0


@pytest.mark.usefixtures("unscored")
def test_a_recipe_that_ends_in_its_warm_up_is_refused_before_the_first_step(tmp_path):
    """A thousand pairs make four batches of 250: four steps are one warm-up epoch, and the fifth one is not."""
    recipe = triplet(1, warmup_epochs=1, epochs=2)
    for steps in (1, 4):
        with refused(TrainingError):
            trainer(recipe | {"steps": steps}, tmp_path / "run")
    assert not (tmp_path / "run").exists()
    assert trainer(recipe | {"steps": 5}, tmp_path).run(quiet()).best_epoch == 1


@pytest.mark.parametrize(
    ("warmup", "steps", "n_pairs", "enough"),
    [
        (3, 5, 1_000, 6),
        (3, 6, 1_000, None),
        (30, 40, 1_000, 41),
        (1, 4, 801, 5),
        (1, 5, 802, 6),
        (0, 1, 1_000, None),
    ],
)
def test_enough_steps_are_named(warmup, steps, n_pairs, enough):
    """The plan has one epoch after the warm-up; a batch holds 200 pairs, and a lone pair is dropped."""
    recipe = Recipe.from_dict(triplet(steps) | {"batch_size": 200})
    plans = [EpochPlan(0, 0, "warmup", 0.1, select=False)] * warmup + [EpochPlan(0, 0, "train", 0.1)]
    if enough is None:
        refuse_unselectable(recipe, plans, n_pairs)
    else:
        with refused(TrainingError, f"give steps={enough}, or"):
            refuse_unselectable(recipe, plans, n_pairs)


def test_a_plan_without_an_epoch_to_select_is_refused_with_any_number_of_steps(tmp_path, monkeypatch):
    plan = METHODS["triplet"].plan
    monkeypatch.setattr(
        METHODS["triplet"], "plan", lambda method: [replace(each, select=False) for each in plan(method)]
    )
    for steps in (None, 50):
        recipe = digits_job({"name": "triplet", "epochs": 2}).recipe.model_dump() | {"steps": steps}
        with refused(TrainingError):
            trainer(recipe, tmp_path / "run")
    assert not (tmp_path / "run").exists()


@pytest.mark.usefixtures("unscored")
def test_another_plan_is_stretched_over_the_same_steps(tmp_path, monkeypatch):
    """Two steps are an epoch: 16 steps repeat each of four learning rates once, 4 leave out every second one."""
    monkeypatch.setattr("baselines.training.job.load_dataset", partial(load_few, n_pairs=80))
    rates = {}
    for steps in (16, 4):
        running = trainer(triplet(steps) | {"batch_size": 40}, tmp_path / str(steps))
        running.run(quiet())
        rates[steps] = [entry.learning_rate for entry in running.history]
    assert rates == {16: [0.008, 0.008, 0.004, 0.004, 0.002, 0.002, 0.001, 0.001], 4: [0.008, 0.002]}


@pytest.mark.usefixtures("unscored")
def test_what_a_passed_over_epoch_makes_anew_is_made_anew(tmp_path):
    rounds = few_digits_recipe("crcl", rounds=[1, 1, 1, 1], freeze_epochs=1, selection="published")
    running = trainer(rounds | {"steps": 20}, tmp_path)
    running.run(quiet())
    assert [entry.round for entry in running.history] == [0, 2]
    assert [entry.best for entry in running.history] == [False, True]  # the first network is gone


@pytest.mark.usefixtures("unscored")
def test_an_epoch_that_is_repeated_visits_the_pairs_in_another_order(tmp_path):
    orders = []
    running = trainer(triplet(8, epochs=1), tmp_path)
    train_epoch = running.method.train_epoch

    def listing(plan, batches, step):
        orders.append(next(batches.shuffled("triplet")).pair_ids.tolist())
        return train_epoch(plan, batches, step)

    running.method.train_epoch = listing
    running.run(quiet())
    assert len(orders) == 2
    assert orders[0] != orders[1]


def test_a_stopped_run_of_so_many_steps_goes_on_to_the_same_bits(tmp_path):
    recipe = few_digits_recipe("ncr", warmup_epochs=1, epochs=2) | {"steps": 7, "batch_size": 200}
    trainer(recipe, tmp_path / "whole").run(quiet())
    cut_short(tmp_path / "whole", tmp_path / "broken")
    trainer(recipe, tmp_path / "broken").run(quiet())
    whole, broken = (without_seconds(tmp_path / folder) for folder in ("whole", "broken"))
    assert broken == whole


def without_seconds(folder):
    found = outcome(folder)
    training = json.loads(found.pop("training.json"))
    return {name: x for name, x in found.items() if "seconds" not in name} | (training | {"cost": None})


def test_timing_plain_steps_changes_no_number(tmp_path, monkeypatch):
    trainer(triplet(6), tmp_path / "timed").run(quiet())
    monkeypatch.setattr("baselines.training.step.Budget.time_plain_steps", lambda *arguments: None)
    trainer(triplet(6), tmp_path / "untimed").run(quiet())
    timed, untimed = (tmp_path / name / "best.safetensors" for name in ("timed", "untimed"))
    assert timed.read_bytes() == untimed.read_bytes()
    assert RunFolder(tmp_path / "untimed").read_outcome().cost is None


def test_a_network_that_has_taken_its_share_stays_as_it_is():
    networks = [nn.BatchNorm1d(1, affine=True) for _ in range(2)]
    step = OptimiserStep(1.0, Budget(2, 1))
    step.optimizers = {network: torch.optim.SGD(network.parameters(), lr=1.0) for network in networks}
    step.budget.begin_epoch(networks)
    values = torch.arange(3.0)[:, None]
    step(networks[0], networks[0](values).square().sum(), BATCH)
    after = {name: x.clone() for name, x in networks[0].state_dict().items()}
    step(networks[0], networks[0](values).square().sum(), BATCH)  # in training mode, so the statistics move
    assert not step.budget.used
    with pytest.raises(StepsSpent):
        step(networks[1], networks[1](values).square().sum(), BATCH)
    step.budget.end_epoch()
    assert all(torch.equal(x, after[name]) for name, x in networks[0].state_dict().items())
    assert step.count == 2


@pytest.mark.parametrize(
    ("wanted", "taken"),
    [
        ((5, 5), [(5, 5), (10, 10), (13, 13)]),
        ((13, 13), [(13, 13)]),
        ((4, 6), [(4, 6), (8, 12), (11, 15)]),
        ((9, 0), [(9, 0), (18, 0), (22, 0), (24, 0), (25, 0), (26, 0)]),  # shares of 13, 9, 4, 2, 1 and 1
    ],
)
def test_networks_that_want_unequal_numbers_of_steps_take_as_many_together(wanted, taken):
    """Every epoch, each network asks for so many steps, of 13 in the mean."""
    networks = [nn.Linear(1, 1), nn.Linear(1, 1)]
    step = OptimiserStep(1.0, Budget(2, 13))
    step.optimizers = {network: torch.optim.SGD(network.parameters(), lr=0.0) for network in networks}
    budget, found = step.budget, []
    while not budget.used:
        step.budget.begin_epoch(networks)
        with suppress(StepsSpent):
            for network, times in zip(networks, wanted, strict=True):
                for _ in range(times):
                    step(network, network.weight.sum(), BATCH)
        step.budget.end_epoch()
        found.append(tuple(budget.taken))
    assert found == taken


def test_a_part_of_a_network_is_spent_with_it_and_a_module_of_its_own_with_all():
    part, other, apart = (nn.Linear(1, 1, bias=False) for _ in range(3))
    whole = nn.Sequential(part)
    modules = [whole, part, other, apart]
    step = OptimiserStep(1.0, Budget(2, 1))
    step.optimizers = {module: torch.optim.SGD(module.parameters(), lr=1.0) for module in modules}
    step.budget.begin_epoch([whole, other])
    step(whole, part.weight.sum(), BATCH)
    before = part.weight.item()
    step(part, part.weight.sum(), BATCH)
    assert part.weight.item() == before
    before = apart.weight.item()
    step(apart, apart.weight.sum(), BATCH)
    assert apart.weight.item() != before
    assert step.budget.taken == [1, 0]


def test_a_method_that_takes_no_step_is_told(tmp_path):
    running = trainer(triplet(10), tmp_path)
    running.method.train_epoch = lambda plan, batches, step: None
    with refused(TrainingError):
        running.run(quiet())
