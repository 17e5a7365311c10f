"""DCL against the published code's numbers, and what its batches do."""

import math

import numpy as np
import pytest
import torch
from support.doubles import FixedSimilarities, Steps, StoredBatches, bare_batch
from support.parity import Golden, names_between, small_batch, small_network, tensor
from support.rounding import assert_near

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


def cases(stored: dict[str, np.ndarray]) -> list[str]:
    return names_between(stored, "scores.")


def test_probabilities_and_losses_match_the_published_code(golden: Golden) -> None:
    stored = golden("Z_dcl_losses")
    tau = float(stored["tau"])
    for case in cases(stored):
        scores = tensor(stored[f"scores.{case}"])
        for name, found in zip("pq", matching(scores, tau), strict=True):
            want = stored[f"{case}.{name}"]
            assert_near(found, want if name == "p" else want.T, 1e-5, scale=1, name=case)
        p, q = matching(scores.double(), tau)
        if f"{case}.p__f64" in stored:
            assert_near(p, stored[f"{case}.p__f64"], 1e-9, name=case)
            assert_near(q, stored[f"{case}.q__f64"].T, 1e-9, name=case)
        assert_near(pair_losses(p, q), stored[f"{case}.l__f64"], 1e-9, name=case)


def test_the_mixture_of_a_batch_matches_the_published_code(golden: Golden) -> None:
    stored = golden("Z_dcl_losses")
    for case in cases(stored):
        losses = tensor(stored[f"{case}.l__f64"])
        x = (losses - losses.min()) / (losses - losses.min()).max()
        assert_near(x, stored[f"{case}.x__f64"], 1e-9, name=case)
        history = stored[f"{case}.beta_history__f64"]
        # two pairs leave a component without variance, and its parameters are what rounding left
        near = 1e-3 if case == "small" else 1e-6
        for updates, want in enumerate(history, start=1):
            components, weights = fitted(x, updates)
            assert_near(components, want, near, name=f"{case} {updates}")
        assert_near(weights, stored[f"{case}.beta_weight__f64"], near, name=case)
        posterior = clean_posterior(losses)
        assert_near(posterior, stored[f"{case}.posterior__f64"], 1e-6, scale=1, name=case)
        used = threshold_of(posterior, float(stored["threshold"]))
        assert used.item() == pytest.approx(float(stored[f"{case}.threshold_used__f64"]), abs=1e-6)
        assert (posterior > used).tolist() == stored[f"{case}.z__f64"].tolist()


def test_the_loss_and_its_gradient_match_the_published_code(golden: Golden) -> None:
    stored = golden("Z_dcl_losses")
    for case in cases(stored):
        clean = tensor(stored[f"{case}.z__f64"])

        def terms(scores: torch.Tensor, clean: torch.Tensor = clean) -> tuple[torch.Tensor, torch.Tensor]:
            return loss_terms(*matching(scores, float(stored["tau"])), clean)

        scores = tensor(stored[f"scores.{case}"]).double()
        for found, name in zip(terms(scores), ("clean_term", "complementary_term"), strict=True):
            assert_near(found, stored[f"{case}.{name}__f64"], 1e-9, scale=1, name=case)
        for setting in names_between(stored, "balance."):
            b1, b2 = stored[f"balance.{setting}"].tolist()
            given = scores.clone().requires_grad_()
            of_clean, of_rest = terms(given)
            loss = b1 * of_clean + b2 * of_rest
            loss.backward()
            assert_near(loss, stored[f"{case}.{setting}.value__f64"], 1e-9, scale=1, name=case)
            assert_near(given.grad, stored[f"{case}.{setting}.grad__f64"], 1e-8, scale=0.1, name=case)
        given = scores.clone().requires_grad_()
        loss = negatives_alone(*matching(given, float(stored["tau"]))).mean()
        loss.backward()
        assert_near(loss, stored[f"{case}.no_mixture.value__f64"], 1e-9, scale=1, name=case)
        assert_near(given.grad, stored[f"{case}.no_mixture.grad__f64"], 1e-8, scale=0.1, name=case)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("optimizer", ["sgd", "adamw"])
def test_a_trajectory_matches_the_published_code(optimizer: str, dtype: torch.dtype, golden: Golden) -> None:
    stored = golden("Z_dcl_trajectory")
    end = "__f64" if dtype == torch.float64 else ""
    value, grad, weight = (1e-9, 1e-8, 1e-8) if end else (1e-5, 5e-4, 2e-4)
    b1, b2 = golden("Z_dcl_losses")["balance.script"].tolist()
    tau, threshold = (float(golden("Z_dcl_losses")[name]) for name in ("tau", "threshold"))
    images, captions = (torch.nn.Parameter(tensor(stored[name], dtype)) for name in ("images", "captions"))
    pairs = torch.nn.ParameterList([images, captions])
    rate = float(stored[f"{optimizer}.rate"])
    rising, total = stored["adamw.warmup_total"].tolist()
    beta1, beta2, eps, decay = stored["adamw.setting"].tolist()
    steps = (
        torch.optim.SGD(pairs.parameters(), lr=rate)
        if optimizer == "sgd"
        else adamw(pairs, rate, betas=(beta1, beta2), eps=eps, weight_decay=decay)
    )
    names = {name.split(".")[0] for name in names_between(stored, f"{optimizer}.step", f".loss{end}")}
    for k in range(len(names)):
        cosines = torch.nn.functional.normalize(images) @ torch.nn.functional.normalize(captions).T
        p, q = matching(cosines.double(), tau)
        posterior = clean_posterior(pair_losses(p, q).detach())
        clean = posterior > threshold_of(posterior, threshold)
        of_clean, of_rest = loss_terms(p, q, clean)
        loss = b1 * of_clean + b2 * of_rest
        steps.zero_grad()
        loss.backward()
        if optimizer == "adamw":
            for group in steps.param_groups:
                group["lr"] = cosine_rate(rate, k, total, rising)
        here = f"{optimizer}.step{k}."
        assert_near(loss, stored[f"{here}loss{end}"], value)
        assert clean.tolist() == stored[f"{here}z{end}"].tolist()
        assert_near(posterior, stored[f"{here}posterior{end}"], 1e-6 if end else 2e-3, scale=1)
        assert_near(images.grad, stored[f"{here}grad_images{end}"], grad)
        assert_near(captions.grad, stored[f"{here}grad_captions{end}"], grad)
        steps.step()
        assert_near(images, stored[f"{here}images{end}"], weight)
        assert_near(captions, stored[f"{here}captions{end}"], weight)


def test_the_rate_of_every_step_matches_the_published_code(golden: Golden) -> None:
    stored = golden("Z_dcl_trajectory")
    rising, total = stored["schedule.warmup_total"].tolist()
    found = [cosine_rate(DCLConfig().learning_rate, step, total, rising) for step in stored["schedule.steps"]]
    np.testing.assert_allclose(found, stored["schedule.rate"], rtol=1e-12, atol=1e-20)


def small(backbone: str = "vse_infinity", **options: object) -> DCL:
    network = small_network(backbone)
    return DCL(DCLConfig(**options), Setting(8, 16, 40, lambda: network))


@pytest.mark.parametrize("backbone", ["vse_infinity", "sgr", "scan", "imram"])
def test_one_similarity_matrix_is_enough(backbone: str) -> None:
    method = small(backbone)
    step = Steps(method, 1e-3)
    method.train_step(small_batch(8), 1e-3, None, step)
    assert np.isfinite(step.losses).all()
    assert method.clean_probability.values.min() >= 0
    assert method.clean_probability.values.max() <= 1


def test_the_log_says_where_the_posterior_does_not_fall_with_the_loss(golden: Golden) -> None:
    stored = golden("Z_dcl_losses")
    for case in ("no_signal", "worst_clean"):
        losses, judged = tensor(stored[f"{case}.l__f64"]), stored[f"{case}.z__f64"]
        posterior = clean_posterior(losses)
        clean = posterior > threshold_of(posterior, 0.5)
        for end in (losses.argmin(), losses.argmax()):
            assert bool(clean[end]) == judged[end]
    method = small()
    step = Steps(method, 1e-3)
    method.train_step(small_batch(8), 1e-3, None, step)
    assert {step.terms["surest_refused"], step.terms["worst_trusted"]} <= {0.0, 1.0}


def test_without_the_mixture_no_pair_is_judged() -> None:
    method = small(mixture=False)
    step = Steps(method, 1e-3)
    method.train_step(small_batch(8), 1e-3, None, step)
    assert (method.clean_probability.values == 1).all()
    assert method.title_of(method.config) == "DCL"


def test_the_published_schedule_takes_pairs_for_steps() -> None:
    plan = EpochPlan(0, 1, "train", 1.0)
    batches = StoredBatches(bare_batch(64), n_pairs=640, batch_size=64)
    options = {"learning_rate": 1.0, "epochs": 4, "rising_steps": 0}
    rates = []
    for faults in ("repaired", "published"):
        config = DCLConfig(**options, faults=faults)
        method = DCL(config, Setting(640, 1, 5, lambda: FixedSimilarities(torch.eye(2))))
        rates.append(method.rate(plan, 5, batches))
    assert rates == pytest.approx(
        [(1 + math.cos(math.pi * 15 / 40)) / 2, (1 + math.cos(math.pi * 645 / 2560)) / 2]
    )
