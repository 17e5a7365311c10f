"""What methods believe about the pairs: nothing, or one number in [0, 1] per training pair."""

import numpy as np
import pytest
import torch
from support.doubles import Steps
from support.few_digits import few_digits_recipe, load_few

from baselines.engine.job import TrainingJob, build_method, trusted_rows, with_own_images
from baselines.engine.recipe import Recipe
from baselines.kit.batches import TrainingBatches
from baselines.methods import METHODS


@pytest.mark.parametrize("name", METHODS)
def test_estimates_are_empty_or_one_number_from_0_to_1_per_pair(name: str) -> None:
    recipe = Recipe.from_dict(few_digits_recipe(name, trusted_pairs=20) | {"batch_size": 12})
    split = load_few("digits", split="train", noise_ratio=0.4).subset(np.arange(60))
    trusted = trusted_rows(METHODS[name], recipe.method_config, split, 0)
    method = build_method(TrainingJob(recipe), with_own_images(split, trusted), 0)
    rows = np.setdiff1d(np.arange(60), trusted)
    batches = TrainingBatches(split, batch_size=12, seed=0, pair_rows=rows)
    last_of_phase = {plan.phase: plan for plan in method.plan()}
    for plan in last_of_phase.values():
        method.train_epoch(plan, batches, Steps(method, 0.001))
        for estimate, values in method.estimates().items():
            assert values.shape == (60,), estimate
            assert torch.isfinite(values).all(), estimate
            assert 0 <= values.min() <= values.max() <= 1, estimate
