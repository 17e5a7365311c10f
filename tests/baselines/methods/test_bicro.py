"""BiCro against the published code's numbers, and what it does where that code stops or errs."""

from typing import Any

import numpy as np
import pytest
import torch
from numpy.random import RandomState
from support.doubles import GivenEmbeddings, Steps, StoredBatches
from support.parity import (
    PRECISIONS,
    SUFFIX,
    Arrays,
    Golden,
    assert_gradients,
    assert_matrix_losses,
    assert_weights_after_a_step,
    gradients_near,
    names_between,
    network_batches,
    state_of,
    tensor,
)
from support.rounding import assert_near, assert_stored
from support.two_networks import assert_turns, on_both_networks
from torch import Tensor, nn

import baselines.methods.bicro as bicro
from baselines.kit.backbone import Encoded, overall
from baselines.kit.batches import Batch
from baselines.kit.losses import hardest_triplet, mean_triplet, soft_margin
from baselines.kit.method import EpochPlan, Setting
from baselines.kit.mixture import BetaMixture, fitted_for, is_clean, min_max_normalised, mixture_posterior
from baselines.methods.bicro import (
    BiCro,
    BiCroConfig,
    agreement,
    anchors_first,
    beta_posterior,
    bicro_triplet,
    cosines,
    divided,
    first_component,
    loss_mixture,
    smallest_losses,
    soft_label,
)

TIED = ("all_equal", "ties", "near_0_and_1")
CURVES = ("exponential", "linear", "sin")
MARGIN = BiCroConfig().margin
HALVES = {"first_half": 0, "second_half": 20}


def test_losses_and_their_gradients_match_the_published_code(golden: Golden) -> None:
    stored = golden("Q_bicro_losses")
    labels, column = tensor(stored["labels"]), tensor(stored["labels_column"])
    losses: dict[str, Any] = {
        "warmup": lambda s: mean_triplet(s, MARGIN).sum(),
        "eval_loss": lambda s: mean_triplet(s, MARGIN),
        "hard": lambda s: hardest_triplet(s, MARGIN).sum(),
        "warmup_sele.rate0.3": lambda s: smallest_losses(s, MARGIN, 0.3).sum(),
        "warmup_sele.rate0.5": lambda s: smallest_losses(s, MARGIN, 0.5).sum(),
        "mean.vector.exponential": lambda s: mean_triplet(s, soft_margin(labels, MARGIN)[None]).sum(),
        "noise_hard.tem0.5": lambda s: (bicro_triplet(s, labels, BiCroConfig()) * (labels > 0.5)).sum(),
    }
    for curve in CURVES:
        config, margins = BiCroConfig(curve=curve), soft_margin(column, MARGIN, curve)
        losses[f"hard.vector.{curve}"] = lambda s, c=config: bicro_triplet(s, labels, c).sum()
        losses[f"hard.column.{curve}"] = lambda s, m=margins, c=curve: hardest_triplet(
            s, m.T if c == "exponential" else m, m
        ).sum()
    assert_matrix_losses(stored, losses, slope=(2e-4, 0), tied=TIED)


def test_anchors_match_the_published_code(golden: Golden) -> None:
    stored = golden("Q_bicro_losses")
    for matrix in names_between(stored, "scores."):
        scores = tensor(stored[f"scores.{matrix}"])
        advantage = (MARGIN - mean_triplet(scores, MARGIN) / 2).clamp(0, MARGIN)
        name = f"{matrix}.predict_clean"
        assert_near(advantage, stored[f"{name}.p"], 1e-6, scale=1)
        anchors, others = anchors_first(scores, MARGIN)
        assert_near(
            advantage[torch.cat([others, anchors])],
            stored[f"{name}.p"][np.concatenate([stored[f"{name}.others"], stored[f"{name}.anchors"]])],
            1e-6,
            scale=1,
        )
        if matrix == "smooth":  # the others have ties
            np.testing.assert_array_equal(anchors, stored[f"{name}.anchors"])
            np.testing.assert_array_equal(others, stored[f"{name}.others"])


@pytest.mark.parametrize("network", ["A", "B"])
def test_mixtures_of_losses_match_the_published_code(network: str, golden: Golden) -> None:
    stored = golden("Q_bicro_mixture")
    for case in names_between(stored, "", f".loss_{network}"):
        losses = tensor(stored[f"{case}.loss_{network}"])
        normalised = torch.from_numpy(min_max_normalised(losses.numpy()))
        assert_near(normalised, stored[f"{case}.norm_loss_{network}"], 1e-6, scale=1)
        mixture, name = loss_mixture(normalised), f"{case}.bmm_{network}"
        for found, of in ((mixture.alpha, "alphas"), (mixture.beta, "betas"), (mixture.weights, "weight")):
            assert_near(found, stored[f"{name}.{of}"].ravel(), 1e-3)
        want = stored[f"{case}.bmm.prob_{network}"].ravel()
        assert_near(first_component(mixture, normalised.double()), want, 1e-4, scale=1)
        published = beta_posterior(losses, "published")
        assert_near(published, np.nan_to_num(want), 1e-4, scale=1)
        pred = stored[f"{case}.bmm.pred_{network}"].ravel()
        np.testing.assert_array_equal(divided(published, 0.5, "published"), pred)
        repaired = divided(beta_posterior(losses), 0.5).numpy()
        assert set(np.flatnonzero(repaired != pred)) <= {losses.argmin().item()}
        assert repaired[losses.argmin()] or not np.isnan(want[losses.argmin()])


def test_gaussian_mixtures_match_the_published_code(golden: Golden) -> None:
    stored = golden("Q_bicro_mixture")
    for case in names_between(stored, "", ".gmm.np_seed"):
        random = RandomState(int(stored[f"{case}.gmm.np_seed"]))
        for network in "AB":  # from one stream
            normalised = stored[f"{case}.norm_loss_{network}"]
            found = torch.from_numpy(mixture_posterior(normalised, larger_mean=False, random_state=random))
            assert_near(found, stored[f"{case}.gmm.prob_{network}"], 1e-5, scale=1)
            np.testing.assert_array_equal(is_clean(found, 0.5), stored[f"{case}.gmm.pred_{network}"])
            means = stored[f"{case}.gmm_{network}.means"]
            weighted = np.average(normalised, weights=found)
            assert weighted == pytest.approx(means.min(), abs=0.05)


def test_mixtures_of_given_values_match_the_published_code(golden: Golden) -> None:
    stored = golden("Q_bicro_mixture")
    for case in names_between(stored, "direct.", ".x"):
        values, name = tensor(stored[f"direct.{case}.x"]), f"direct.{case}"
        table = stored[f"{name}.parameters"]
        start = BetaMixture(*(torch.from_numpy(table[0, k : k + 2].copy()) for k in (0, 2, 4)))
        for updates, row in enumerate(table):
            mixture = fitted_for(values.clamp(1e-4, 1 - 1e-4), start, updates, 1e-12)
            found = torch.cat([mixture.alpha, mixture.beta, mixture.weights])
            assert_near(found, row, 1e-9)
        assert_near(loss_mixture(values).alpha, mixture.alpha, 1e-12)
        density = mixture.log_densities(values).exp().sum(dim=1)
        assert_near(density, stored[f"{name}.density"], 1e-9)
        found = first_component(mixture, values)
        assert_near(found, stored[f"{name}.posterior_0"], 1e-9)


def test_divisions_of_given_probabilities_match_the_published_code(golden: Golden) -> None:
    stored = golden("Q_bicro_mixture")
    for case in names_between(stored, "split_prob.", ".prob"):
        given, pred = (stored[f"split_prob.{case}.{name}"] for name in ("prob", "pred"))
        faults = "published" if given.ndim == 2 else "repaired"  # a column cannot be sorted along its rows
        np.testing.assert_array_equal(divided(tensor(given).flatten(), 0.5, faults), pred.ravel())


def test_losses_that_do_not_differ_leave_every_pair_clean() -> None:
    found = beta_posterior(torch.full((7,), 0.3))
    assert (found > 0.5).all()
    assert found.isfinite().all()


def embedded(stored: Arrays, case: str, side: str) -> Batch:
    images, captions, lengths = (
        tensor(stored[f"{case}.{name}_{side}"]) for name in ("img_emb", "cap_emb", "lengths")
    )
    regions = torch.full((len(images),), images.shape[1])
    return Batch(images, regions, captions, lengths, torch.arange(len(images)))


@pytest.mark.parametrize("case", ["similar", "opposed", "tied"])
def test_steps_to_a_label_match_the_published_code(case: str, golden: Golden) -> None:
    stored = golden("Q_bicro_labels")
    anchors = tensor(stored[f"{case}.anchors"])
    of_anchors: list[Tensor] = []
    for side in "lu":
        batch = embedded(stored, case, side)
        images = overall(Encoded(batch.image_features, batch.image_lengths))
        captions = overall(Encoded(batch.caption_tokens, batch.caption_lengths))
        if side == "l":
            of_anchors = [images[anchors], captions[anchors]]
            assert_stored(images, stored, f"{case}.img_g_l", 2e-6)
            assert_stored(captions, stored, f"{case}.text_g_l", 2e-6)
        alike = [cosines(items, own) for items, own in zip((images, captions), of_anchors, strict=True)]
        for found, name in zip(alike, ("sim_img", "sim_text"), strict=True):
            assert_stored(found, stored, f"{case}.{name}_{side}", 2e-6, scale=1)
        for found, name in ((agreement(*alike), "img2text"), (agreement(*alike[::-1]), "text2img")):
            assert_stored(found[:, None], stored, f"{case}.{name}_{side}", 1e-4)


@pytest.mark.parametrize("case", ["similar", "opposed", "tied"])
@pytest.mark.parametrize(("mode", "threshold"), [("soft0.5", 0.5), ("soft0.9", 0.9), ("plain", None)])
def test_labels_match_the_published_code(
    case: str, mode: str, threshold: float | None, golden: Golden, monkeypatch: pytest.MonkeyPatch
) -> None:
    stored, name = golden("Q_bicro_labels"), f"{case}.{mode}"
    network = GivenEmbeddings(tensor(stored[f"{case}.sims_l"]))
    clean, noisy = (embedded(stored, case, side) for side in "lu")
    seen: list[Tensor] = []
    order = tuple(tensor(stored[f"{case}.{of}"]) for of in ("anchors", "others"))
    monkeypatch.setattr(
        bicro,
        "soft_label",
        lambda x, t: soft_label(seen.append(x) or x, t),  # type: ignore[func-returns-value]
    )
    if case == "tied":  # the order of equal margins is up to the library
        advantage = (MARGIN - mean_triplet(network.similarities, MARGIN) / 2).clamp(0, MARGIN)
        np.testing.assert_array_equal(advantage[torch.cat(order[::-1])], advantage.sort().values)
        monkeypatch.setattr(bicro, "anchors_first", lambda *_: order)
    for faults, array in (("published", "c_y"), ("repaired", "c_y_own_position")):
        config = BiCroConfig(label_threshold=threshold, faults=faults)
        method = BiCro(config, Setting(len(clean), 1, 1, nn.Identity))
        labels, noisy_labels = method.labels(network, clean, noisy)
        assert_near(labels, stored[f"{name}.{array}"], 1e-5, scale=1)
        assert_near(noisy_labels, stored[f"{name}.n_y"], 1e-5, scale=1)
        own = seen[0] if threshold is None else seen[0].where(seen[0] > threshold, 0.0)
        assert_near(own[:, None], stored[f"{name}.consistency_l"], 1e-5, scale=1)


def method_and_batches(stored: Arrays, dtype: torch.dtype) -> tuple[BiCro, list[Batch], list[Batch]]:
    """The stored networks with the labels of the published code, and the clean and the noisy batches."""
    method = on_both_networks(BiCro, stored, dtype, faults="published")
    return method, *network_batches(stored, dtype, "lu").values()


@pytest.mark.parametrize("dtype", PRECISIONS)
def test_labels_of_a_network_match_the_published_code(dtype: torch.dtype, golden: Golden) -> None:
    stored, suffix = golden("Q_bicro_network"), SUFFIX[dtype]
    near = 1e-9 if suffix else 2e-5
    method, (clean, *_), (noisy, *_) = method_and_batches(stored, dtype)
    peer = method.networks[1].eval()
    with torch.no_grad():
        similarities = peer(clean).similarities
    anchors, others = anchors_first(similarities, MARGIN)
    np.testing.assert_array_equal(anchors, stored[f"B.predict.anchors{suffix}"])
    np.testing.assert_array_equal(others, stored[f"B.predict.others{suffix}"])
    labels, noisy_labels = method.labels(peer, clean, noisy)
    assert_stored(similarities, stored, f"B.predict.sims{suffix}", 1e-9 if suffix else 1e-5, scale=1)
    assert_stored(labels, stored, f"B.predict.c_y{suffix}", near, scale=1)
    assert_stored(noisy_labels, stored, f"B.predict.n_y{suffix}", near, scale=1)
    assert_stored(mean_triplet(similarities, MARGIN), stored, f"B.eval_loss{suffix}", near, scale=1)


@pytest.mark.parametrize("dtype", PRECISIONS)
@pytest.mark.parametrize("mode", ["warmup_sele", "labelled", "unlabelled"])
def test_one_step_on_a_network_matches_the_published_code(
    mode: str, dtype: torch.dtype, golden: Golden
) -> None:
    stored, suffix = golden("Q_bicro_network"), SUFFIX[dtype]
    value, near = {"": (3e-5, 1e-5), "__f64": (1e-9, 1e-9)}[suffix]
    method, (clean, *_), (noisy, *_) = method_and_batches(stored, dtype)
    own, batch, step = method.networks[0], noisy if mode == "unlabelled" else clean, Steps(method)
    seen, compare = [], own.compare
    own.compare = lambda *sides: seen.append(compare(*sides)) or seen[-1]
    if mode == "warmup_sele":
        method.train_epoch(EpochPlan(0, 0, "warmup", 1.0), StoredBatches(batch), step)
    else:
        key = "n_y" if mode == "unlabelled" else "c_y"
        given = tensor(stored[f"B.predict.{key}{suffix}"], dtype)
        step(own, bicro_triplet(own.train()(batch).similarities, given, method.config).sum(), batch)
    assert_stored(seen[0].detach(), stored, f"A.{mode}.sims{suffix}", near, scale=1)
    assert step.losses[0] == pytest.approx(float(stored[f"A.{mode}.loss{suffix}"]), rel=value)
    assert step.norms[0] == pytest.approx(
        float(stored[f"A.{mode}.grad_norm{suffix}"]), rel=max(value, 2e-4 * (not suffix))
    )
    if mode == "unlabelled" or (mode == "warmup_sele" and not suffix):
        return  # whose gradients are not stored
    gradients, base = state_of(stored, f"A.{mode}.grad.", dtype, suffix), state_of(stored, "A.")
    assert_gradients(own, "sgr", base, gradients, some=True, **gradients_near(dtype, 2e-4))
    if mode == "labelled" and suffix:
        assert_weights_after_a_step(method, base, state_of(stored, "A.labelled.after.", dtype, suffix))


@pytest.mark.parametrize("dtype", PRECISIONS)
@pytest.mark.parametrize("half", HALVES)
def test_trajectory_matches_the_published_code(
    half: str, dtype: torch.dtype, golden: Golden, monkeypatch: pytest.MonkeyPatch
) -> None:
    stored, suffix, name = golden("Q_bicro_network"), SUFFIX[dtype], f"trajectory.{half}"
    label_near, loss_near = {"": (1e-3, 1e-2), "__f64": (1e-6, 1e-5)}[suffix]
    method, (l0, l1, l2), (u0, u1) = method_and_batches(stored, dtype)
    ordered = {"clean_0": [l0, l1, l2], "noisy_0": [u0, u1], "clean_1": [l2, l0, l1], "noisy_1": [u1, u0]}
    step, labels = Steps(method, 2e-4), []

    def recording(similarities: Tensor, given: Tensor, config: BiCroConfig) -> Tensor:
        labels.append(given)
        return bicro_triplet(similarities, given, config)

    monkeypatch.setattr(bicro, "bicro_triplet", recording)
    monkeypatch.setattr(method, "co_divide", lambda *_: None)
    for memory in method.clean_probability:
        memory.values[u0.pair_ids[0] :] = 0
    method.train_epoch(EpochPlan(0, HALVES[half], "train", 1.0), StoredBatches(**ordered), step)
    assert_turns(method, step, stored, name)
    for k, found in enumerate(labels):
        assert_stored(found, stored, f"{name}.labels{k}{suffix}", label_near, scale=1)
    assert_near(step.losses, stored[f"{name}.loss{suffix}"], loss_near)


def test_vectors_of_no_length_agree_by_nothing() -> None:
    assert agreement(torch.zeros(2, 3), torch.zeros(2, 3)).tolist() == [0, 0]


def test_a_warm_up_batch_keeps_at_least_one_pair() -> None:
    assert len(smallest_losses(torch.rand(2, 2), MARGIN, 0.3)) == 1


def test_a_noisy_side_without_two_pairs_is_not_trained_on(golden: Golden) -> None:
    stored = golden("Q_bicro_network")
    method, (batch, *_), _ = method_and_batches(stored, torch.float32)
    method.clean_probability[1].values[len(batch) - 1] = 0
    step, batches = Steps(method), StoredBatches(batch)
    method.train_network(0, EpochPlan(0, 20, "train", 1.0), batches, step)
    assert len(step.calls) == 1
    method.clean_probability[1].values[len(batch) - 2] = 0
    method.train_network(0, EpochPlan(0, 20, "train", 1.0), batches, step)
    assert len(step.calls) == 3


def test_schedule_is_that_of_the_scripts() -> None:
    plan = BiCroConfig().plan()
    assert [epoch.learning_rate for epoch in plan] == pytest.approx([2e-4] * 40 + [2e-5] * 10)
    assert sum(not epoch.select for epoch in plan) == 10
