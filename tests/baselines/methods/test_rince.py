"""RINCE against the published code's numbers."""

import pytest
import torch
from support.doubles import Steps, StoredBatches
from support.parity import (
    PRECISIONS,
    SUFFIX,
    Arrays,
    Golden,
    assert_gradients,
    assert_trajectory,
    batch_of,
    names_between,
    network_of,
    state_of,
    tensor,
)
from support.rounding import assert_near, assert_stored
from torch import Tensor, nn

from baselines.kit.batches import Batch
from baselines.kit.losses import info_nce
from baselines.kit.method import EpochPlan, Setting
from baselines.methods.rince import RINCE, RINCEConfig, robust_info_nce
from baselines.training.recipe import Recipe

ROWS = ("gsc_script", "gsc_default", "q0.5", "simclr_default", "moco_flags", "q1")
TRAIN = EpochPlan(0, 0, "train", 1.0)


def setting(stored: Arrays, name: str) -> tuple[float, float, float]:
    """Temperature, q and lambda."""
    temperature, q, weight = stored["settings"][ROWS.index(name)].tolist()
    return temperature, q, weight


def square(logits: Tensor, q: float, weight: float) -> Tensor:
    return robust_info_nce(logits.diagonal(), logits, q, weight)


@pytest.mark.parametrize("dtype", PRECISIONS)
@pytest.mark.parametrize("name", ROWS)
def test_losses_and_their_gradients_match_the_published_code(
    name: str, dtype: torch.dtype, golden: Golden
) -> None:
    stored, suffix = golden("M_rince"), SUFFIX[dtype]
    value, slope, size = {"": (1e-4, 1e-3, 1e-3), "__f64": (1e-9, 1e-8, 0)}[suffix]
    temperature, q, weight = setting(stored, name)
    assert len(stored["settings"]) == len(ROWS)
    for matrix in names_between(stored, "scores."):
        for side in ("rows", "cols"):
            scores = tensor(stored[f"scores.{matrix}"], dtype).requires_grad_()
            loss = square((scores if side == "rows" else scores.T) / temperature, q, weight)
            loss.sum().backward()
            for found, key, near, scale in (
                (loss.detach(), "loss", value, 0),
                (scores.grad, "grad_of_sum", slope, size),
            ):
                start = f"{matrix}.{name}.{side}.{key}{suffix}"
                assert_stored(found, stored, start, near, scale=scale)


def test_info_nce_matches_the_published_code(golden: Golden) -> None:
    stored = golden("M_rince")
    for matrix in names_between(stored, "scores."):
        rows, columns = (stored[f"{matrix}.{side}.info_nce_t0.07"] for side in ("rows", "cols"))
        found = info_nce(tensor(stored[f"scores.{matrix}"]), 0.07)
        assert_near(found, (rows + columns) / 2, 1e-5, scale=1, name=matrix)


@pytest.mark.parametrize("dtype", PRECISIONS)
@pytest.mark.parametrize("name", ROWS)
def test_queries_against_the_keys_of_another_set_match_the_published_code(
    name: str, dtype: torch.dtype, golden: Golden
) -> None:
    stored, suffix = golden("M_rince"), SUFFIX[dtype]
    temperature, q, weight = setting(stored, name)
    first = tensor(stored["features.first"], dtype).requires_grad_()
    queries, keys = (
        nn.functional.normalize(x, dim=1) for x in (first, tensor(stored["features.second"], dtype))
    )
    loss = 2 * temperature * square(queries @ keys.T / temperature, q, weight).mean()
    loss.backward()
    tolerance = {"": 1e-4, "__f64": 1e-9}[suffix]
    assert loss.item() == pytest.approx(float(stored[f"moco.{name}.loss{suffix}"]), rel=tolerance)
    want = stored[f"moco.{name}.grad_first{suffix}"]
    assert_near(first.grad, want, tolerance)


@pytest.mark.parametrize("name", ROWS)
def test_candidates_of_both_sets_match_the_published_code(name: str, golden: Golden) -> None:
    stored = golden("M_rince")
    temperature, q, weight = setting(stored, name)
    first, second = (
        tensor(stored[f"features.{side}"], torch.float64).requires_grad_() for side in ("first", "second")
    )
    views = nn.functional.normalize(torch.cat([first, second]), dim=1)
    logits = views @ views.T / temperature
    own = logits.diagonal(len(first))
    candidates = logits.masked_fill(torch.eye(len(views), dtype=torch.bool), -torch.inf)
    loss = robust_info_nce(torch.cat([own, own]), candidates, q, weight).mean()
    loss.backward()
    assert loss.item() == pytest.approx(float(stored[f"simclr.{name}.loss__f64"]), rel=1e-9)
    want = stored[f"simclr.{name}.grad_first__f64"]
    assert_near(first.grad, want, 1e-9)


def sgr_method(name: str, dtype: torch.dtype, golden: Golden) -> tuple[RINCE, Batch]:
    temperature, q, weight = setting(golden("M_rince"), name)
    weights = golden("J_backbone_sgr")
    batch = batch_of(weights, "in.", dtype)
    config = RINCEConfig(temperature=temperature, exponent=q, density_weight=weight)
    network = network_of("sgr", state_of(weights, "", dtype))
    return RINCE(config, Setting(len(batch), 1, 1, lambda: network)), batch


@pytest.mark.parametrize("dtype", PRECISIONS)
@pytest.mark.parametrize("name", ["gsc_script", "q0.5"])
def test_one_step_on_a_network_matches_the_stored_numbers(
    name: str, dtype: torch.dtype, golden: Golden
) -> None:
    stored, suffix = golden("M_rince"), SUFFIX[dtype]
    value, slope, least = {"": (1e-4, 2e-3, 1e-4), "__f64": (1e-9, 1e-7, 1e-9)}[suffix]
    method, batch = sgr_method(name, dtype, golden)
    step = Steps(method)
    method.train_epoch(TRAIN, StoredBatches(batch), step)
    assert step.losses == pytest.approx([float(stored[f"sgr.{name}.loss{suffix}"])], rel=value)
    if suffix or name == "gsc_script":  # the one gradient stored in float32
        gradients = state_of(stored, f"sgr.{name}.grad.", dtype, suffix)
        base = state_of(golden("J_backbone_sgr"), "")
        assert_gradients(
            method.networks[0], "sgr", base, gradients, relative=slope, some=True, absolute=least
        )


@pytest.mark.parametrize("dtype", PRECISIONS)
def test_trajectory_matches_the_stored_numbers(dtype: torch.dtype, golden: Golden) -> None:
    want = golden("M_rince")[f"sgr.gsc_script.losses_6_steps_lr2e-3{SUFFIX[dtype]}"]
    method, batch = sgr_method("gsc_script", dtype, golden)
    step = Steps(method, 2e-3)
    for _ in want:
        method.train_epoch(TRAIN, StoredBatches(batch), step)
    first, later = {torch.float32: (1e-4, 1e-2), torch.float64: (1e-6, 1e-6)}[dtype]
    assert_trajectory(step.losses, want, first, later)


def test_the_recipe_of_small_sgr_does_not_drift() -> None:
    recipe = Recipe.load("rince/pictograms_sgr")
    assert isinstance(recipe.method_config, RINCEConfig)
    assert recipe.method_config.density_weight * recipe.batch_size == 1
