"""What a precision does to the training and to the scores of a run."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from support.few_digits import TINY, digits_job, load_few, trained

from baselines.kit.batches import TrainingBatches
from baselines.methods import METHODS
from baselines.training.job import FinishedRun, build_method
from baselines.training.scoring import score
from baselines.training.submit import chosen_method
from ncl_bench.evaluation.call import evaluate

SIZES = {"embed_size": 16, "word_dim": 8, "sim_dim": 8}


@pytest.mark.usefixtures("few_pairs")
def test_half_precision_moves_scores_a_little(tmp_path):
    job = digits_job({"name": "info_nce", "epochs": 1}, 0.0, recipe={"batch_size": 250})
    run = trained(job, tmp_path / "run").folder
    dev, device, scores = load_few("digits", split="dev"), torch.device("cpu"), {}
    for precision in ("32-true", "bf16-mixed"):
        finished = replace(FinishedRun.read(run.path), job=replace(job, precision=precision))
        networks = chosen_method(finished, device).networks
        scores[precision] = score(networks, dev, np.arange(200), device=device)
    exact, half = scores.values()
    assert evaluate(exact, dataset="digits", split="dev").r_sum == run.read_outcome().dev["r_sum"]
    assert 0 < np.abs(half - exact).max() < 0.1


@pytest.mark.usefixtures("few_pairs")
def test_half_precision_learns_as_single_precision_does(tmp_path):
    method = {"name": "info_nce", "epochs": 3, "learning_rate": 0.005}
    recipe = {"batch_size": 50, "backbone": TINY | {"embed_size": 64, "word_dim": 16}}
    exact, half = (
        trained(digits_job(method, 0.0, recipe=recipe, precision=name), tmp_path / name).history[-1]
        for name in ("32-true", "bf16-mixed")
    )
    assert half.loss == pytest.approx(exact.loss, rel=0.03)  # guessing costs 18 % more
    assert min(exact.dev["r_sum"], half.dev["r_sum"]) > 30  # guessing gives 16


CONSTANTS = {"mscn": {"trusted_pairs": 6, "batch_size": 12}, "pc2": {"classes": 4}}
NETWORKS = {"vse": TINY} | {name: {"name": name, **SIZES} for name in ("sgr", "saf")}
FIRST = [
    ("mscn", "sgr"),
    ("gsc_plus", "saf"),
    ("ncr", "saf"),
    ("l2rm", "vse"),
    ("npc", "vse"),
    ("pc2", "vse"),
]
PAIRS = [
    (name, network) if (name, network) in FIRST else pytest.param(name, network, marks=pytest.mark.slow)
    for name, method in METHODS.items()
    for network in NETWORKS
    if not method.closed_form
    and (name, network) != ("mscn", "vse")
    and (network == "vse" or not method.needs_cosines)
]
"""Every method that takes steps, on every network it takes; those in FIRST compute what the others do not."""
SAME_BUT_FOR_ROUNDING = 0.03
"""Of a loss in half precision; 8 bits leave each number 0.4 %."""


def terms_of_steps(name, backbone, precision, epochs):
    """The loss and its terms at every step of some epochs of a method; the weights stay."""
    method = {"name": name, **CONSTANTS.get(name, {})}
    job = digits_job(method, recipe={"batch_size": 12, "backbone": backbone}, precision=precision)
    train = load_few("digits", split="train", noise_ratio=0.4).subset(np.arange(48))
    built = build_method(job, train)
    assert all(network.mixed == (precision == "bf16-mixed") for network in built.networks)
    others = np.setdiff1d(train.pair_ids, built.setting.trusted_ids)
    batches, seen = TrainingBatches(train, batch_size=12, seed=0, pair_rows=others), []

    def step(modules, loss, batch, clip=True, learning_rate=None, **terms):
        loss.backward()
        seen.append((loss, *terms.values()))

    torch.manual_seed(0)
    for epoch in epochs:
        built.train_epoch(built.plan()[epoch], batches, step)
    return seen


@pytest.mark.parametrize(("name", "network"), PAIRS)
def test_every_method_takes_steps_in_half_precision_on_losses_of_single_precision(name, network):
    half = terms_of_steps(name, NETWORKS[network], "bf16-mixed", [0, -1])
    exact = terms_of_steps(name, NETWORKS[network], "32-true", [0])
    assert len(half) >= 6
    for term in (term for terms in half for term in terms):
        assert term.dtype == torch.float32
        assert term.isfinite()
    assert half[0][0].item() == pytest.approx(exact[0][0].item(), rel=SAME_BUT_FOR_ROUNDING)
