"""DCL against the published code's numbers, and what its batches do."""

import math

import numpy as np
import pytest
import torch
from support.doubles import FixedSimilarities, Steps, StoredBatches, bare_batch
from support.parity import small_batch, small_network, tensor
from support.rounding import assert_near
from torch.nn.functional import normalize

from baselines.kit.method import EpochPlan, Setting, adamw, cosine_rate
from baselines.methods.dcl import (
    DCL,
    DCLConfig,
    clean_posterior,
    fitted,
    loss_terms,
    matching,
    negatives_alone,
    pair_losses,
    threshold_of,
)


def test_probabilities_and_losses_match_the_published_code(precise):
    stored = precise("Z_dcl_losses")
    for case in stored.names("scores."):
        p, q = matching(stored(f"scores.{case}"), float(stored["tau"]))
        if stored.has(f"{case}.p"):
            stored.near(p, f"{case}.p", 1e-5, 1e-9)
            stored.near(q.T, f"{case}.q", 1e-5, 1e-9)
        if stored.double:
            stored.near(pair_losses(p, q), f"{case}.l", double=1e-9)


def test_the_mixture_of_a_batch_matches_the_published_code(double):
    stored = double("Z_dcl_losses")
    for case in stored.names("scores."):
        losses = tensor(stored[f"{case}.l__f64"])
        x = (losses - losses.min()) / (losses - losses.min()).max()
        stored.near(x, f"{case}.x", double=1e-9)
        # two pairs leave a component without variance, and its parameters are what rounding left
        near = 1e-3 if case == "small" else 1e-6
        for updates, want in enumerate(stored[f"{case}.beta_history__f64"], start=1):
            components, weights = fitted(x, updates)
            assert_near(components, want, near, name=f"{case} {updates}")
        stored.near(weights, f"{case}.beta_weight", double=near)
        posterior = clean_posterior(losses)
        used = threshold_of(posterior, float(stored["threshold"]))
        stored.near(posterior, f"{case}.posterior", double=1e-6)
        stored.near(used, f"{case}.threshold_used", double=1e-6)
        stored.equal(posterior > used, f"{case}.z__f64")


def test_the_loss_and_its_gradient_match_the_published_code(double):
    stored = double("Z_dcl_losses")
    for case in stored.names("scores."):
        scores = stored.leaf(f"scores.{case}")
        probabilities = matching(scores, float(stored["tau"]))
        of_clean, of_rest = loss_terms(*probabilities, stored(f"{case}.z__f64"))
        stored.near(of_clean, f"{case}.clean_term")
        stored.near(of_rest, f"{case}.complementary_term")
        losses = {"no_mixture": negatives_alone(*probabilities).mean()}
        for setting in stored.names("balance."):
            b1, b2 = stored[f"balance.{setting}"].tolist()
            losses[setting] = b1 * of_clean + b2 * of_rest
        for name, loss in losses.items():
            (grad,) = torch.autograd.grad(loss, scores, retain_graph=True)
            stored.near(loss, f"{case}.{name}.value")
            stored.near(grad, f"{case}.{name}.grad", scale=0.1)


@pytest.mark.parametrize("optimizer", ["sgd", "adamw"])
def test_a_trajectory_matches_the_published_code(optimizer, precise):
    stored, of_losses = precise("Z_dcl_trajectory"), precise("Z_dcl_losses")
    b1, b2 = of_losses["balance.script"].tolist()
    tau, threshold = (float(of_losses[name]) for name in ("tau", "threshold"))
    images, captions = (torch.nn.Parameter(stored(name)) for name in ("images", "captions"))
    pairs = torch.nn.ParameterList([images, captions])
    rate = float(stored[f"{optimizer}.rate"])
    rising, total = stored["adamw.warmup_total"].tolist()
    beta1, beta2, eps, decay = stored["adamw.setting"].tolist()
    steps = (
        torch.optim.SGD(pairs.parameters(), lr=rate)
        if optimizer == "sgd"
        else adamw(pairs, rate, betas=(beta1, beta2), eps=eps, weight_decay=decay)
    )
    for k in range(len(stored.results(f"{optimizer}.step", ".loss"))):
        p, q = matching((normalize(images) @ normalize(captions).T).double(), tau)
        posterior = clean_posterior(pair_losses(p, q).detach())
        clean = posterior > threshold_of(posterior, threshold)
        of_clean, of_rest = loss_terms(p, q, clean)
        loss, here = b1 * of_clean + b2 * of_rest, f"{optimizer}.step{k}."
        steps.zero_grad()
        loss.backward()
        for group in steps.param_groups if optimizer == "adamw" else ():
            group["lr"] = cosine_rate(rate, k, total, rising)
        stored.near(loss, f"{here}loss", 1e-5, 1e-9)
        stored.equal(clean, f"{here}z{stored.end}")
        stored.near(posterior, f"{here}posterior", 2e-3, 1e-6)
        for side, name in ((images, "images"), (captions, "captions")):
            stored.near(side.grad, f"{here}grad_{name}", 5e-4)
        steps.step()
        for side, name in ((images, "images"), (captions, "captions")):
            stored.near(side, f"{here}{name}", 2e-4)


def test_the_rate_of_every_step_matches_the_published_code(golden):
    stored = golden("Z_dcl_trajectory")
    rising, total = stored["schedule.warmup_total"].tolist()
    found = [cosine_rate(DCLConfig().learning_rate, step, total, rising) for step in stored["schedule.steps"]]
    np.testing.assert_allclose(found, stored["schedule.rate"], rtol=1e-12, atol=1e-20)


def stepped(backbone="vse_infinity", **options):
    """A small network after one step."""
    network = small_network(backbone)
    method = DCL(DCLConfig(**options), Setting(8, 16, 40, lambda: network))
    step = Steps(method, 1e-3)
    method.train_step(small_batch(8), 1e-3, None, step)
    assert np.isfinite(step.losses).all()
    return method, step


@pytest.mark.parametrize("backbone", ["vse_infinity", "sgr", "scan", "imram"])
def test_one_similarity_matrix_is_enough(backbone):
    method, _ = stepped(backbone)
    assert 0 <= method.clean_probability.values.min() <= method.clean_probability.values.max() <= 1


def test_the_log_says_where_the_posterior_does_not_fall_with_the_loss(golden):
    stored = golden("Z_dcl_losses")
    for case in ("no_signal", "worst_clean"):
        losses, judged = tensor(stored[f"{case}.l__f64"]), stored[f"{case}.z__f64"]
        posterior = clean_posterior(losses)
        clean = posterior > threshold_of(posterior, 0.5)
        for end in (losses.argmin(), losses.argmax()):
            assert bool(clean[end]) == judged[end]
    _, step = stepped()
    assert {step.terms["surest_refused"], step.terms["worst_trusted"]} <= {0.0, 1.0}


def test_without_the_mixture_no_pair_is_judged():
    method, _ = stepped(mixture=False)
    assert (method.clean_probability.values == 1).all()
    assert method.title_of(method.config) == "DCL"


@pytest.mark.parametrize(("faults", "step", "steps"), [("repaired", 15, 40), ("published", 645, 2560)])
def test_the_published_schedule_takes_pairs_for_steps(faults, step, steps):
    batches = StoredBatches(bare_batch(64), n_pairs=640, batch_size=64)
    config = DCLConfig(learning_rate=1.0, epochs=4, rising_steps=0, faults=faults)
    method = DCL(config, Setting(640, 1, 5, lambda: FixedSimilarities(torch.eye(2))))
    found = method.rate(EpochPlan(0, 1, "train", 1.0), 5, batches)
    assert found == pytest.approx((1 + math.cos(math.pi * step / steps)) / 2)
