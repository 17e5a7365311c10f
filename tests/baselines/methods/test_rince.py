"""RINCE against the published code's numbers."""

import pytest
import torch
from support.doubles import Steps, StoredBatches
from support.parity import assert_trajectory
from support.rounding import assert_near
from torch import nn

from baselines.kit.losses import info_nce
from baselines.kit.method import EpochPlan, Setting
from baselines.methods.rince import RINCE, RINCEConfig, robust_info_nce
from baselines.training.recipe import Recipe

ROWS = ("gsc_script", "gsc_default", "q0.5", "simclr_default", "moco_flags", "q1")
EVERY_ROW = pytest.mark.parametrize("name", ROWS)
TRAIN = EpochPlan(0, 0, "train", 1.0)


def setting(stored, name):
    """Temperature, q and lambda."""
    return stored["settings"][ROWS.index(name)].tolist()


def square(logits, q, weight):
    return robust_info_nce(logits.diagonal(), logits, q, weight)


@EVERY_ROW
def test_losses_and_their_gradients_match_the_published_code(name, precise):
    stored = precise("M_rince")
    temperature, q, weight = setting(stored, name)
    assert len(stored["settings"]) == len(ROWS)
    for matrix in stored.names("scores."):
        for side in ("rows", "cols"):
            scores, start = stored.leaf(f"scores.{matrix}"), f"{matrix}.{name}.{side}"
            loss = square((scores if side == "rows" else scores.T) / temperature, q, weight)
            loss.sum().backward()
            stored.near(loss, f"{start}.loss", double=1e-9)
            stored.near(scores.grad, f"{start}.grad_of_sum", 1e-3, scale=0 if stored.double else 1e-3)


def test_info_nce_matches_the_published_code(single):
    stored = single("M_rince")
    for matrix in stored.names("scores."):
        rows, columns = (stored[f"{matrix}.{side}.info_nce_t0.07"] for side in ("rows", "cols"))
        found = info_nce(stored(f"scores.{matrix}"), 0.07)
        assert_near(found, (rows + columns) / 2, 1e-5, scale=1, name=matrix)


@EVERY_ROW
def test_queries_against_the_keys_of_another_set_match_the_published_code(name, precise):
    stored = precise("M_rince")
    temperature, q, weight = setting(stored, name)
    first, second = (stored.leaf(f"features.{side}") for side in ("first", "second"))
    queries, keys = (nn.functional.normalize(x, dim=1) for x in (first, second))
    loss = 2 * temperature * square(queries @ keys.T / temperature, q, weight).mean()
    loss.backward()
    stored.near(loss, f"moco.{name}.loss", double=1e-9)
    stored.near(first.grad, f"moco.{name}.grad_first", double=1e-9)


@EVERY_ROW
def test_candidates_of_both_sets_match_the_published_code(name, double):
    stored = double("M_rince")
    temperature, q, weight = setting(stored, name)
    first, second = (stored.leaf(f"features.{side}") for side in ("first", "second"))
    views = nn.functional.normalize(torch.cat([first, second]), dim=1)
    logits = views @ views.T / temperature
    own = logits.diagonal(len(first))
    candidates = logits.masked_fill(torch.eye(len(views), dtype=torch.bool), -torch.inf)
    loss = robust_info_nce(torch.cat([own, own]), candidates, q, weight).mean()
    loss.backward()
    stored.near(loss, f"simclr.{name}.loss", double=1e-9)
    stored.near(first.grad, f"simclr.{name}.grad_first", double=1e-9)


def sgr_method(stored, name, weights):
    temperature, q, weight = setting(stored, name)
    batch, config = weights.batch(), RINCEConfig(temperature=temperature, exponent=q, density_weight=weight)
    return RINCE(config, Setting(len(batch), 1, 1, lambda: weights.network("sgr"))), batch


@pytest.mark.parametrize("name", ["gsc_script", "q0.5"])
def test_one_step_on_a_network_matches_the_stored_numbers(name, precise):
    stored, weights = precise("M_rince"), precise("J_backbone_sgr")
    method, batch = sgr_method(stored, name, weights)
    step = Steps(method)
    method.train_epoch(TRAIN, StoredBatches(batch), step)
    stored.near_step(step, f"sgr.{name}.", weights.state(), slope=2e-3)


def test_trajectory_matches_the_stored_numbers(precise):
    stored = precise("M_rince")
    want = stored[f"sgr.gsc_script.losses_6_steps_lr2e-3{stored.end}"]
    method, batch = sgr_method(stored, "gsc_script", precise("J_backbone_sgr"))
    step = Steps(method, 2e-3)
    for _ in want:
        method.train_epoch(TRAIN, StoredBatches(batch), step)
    assert_trajectory(step.losses, want, *((1e-6, 1e-6) if stored.double else ()))


def test_the_recipe_of_small_sgr_does_not_drift():
    recipe = Recipe.load("rince/pictograms_sgr")
    assert recipe.method_config.density_weight * recipe.batch_size == 1
