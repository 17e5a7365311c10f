"""BiCro against the published code's numbers, and what it does where that code stops or errs."""

import numpy as np
import pytest
import torch
from support.doubles import GivenEmbeddings, Steps, StoredBatches
from support.parity import assert_matrix_losses, network_batches, tensor
from support.rounding import assert_near
from support.two_networks import assert_turns, on_both_networks
from torch import nn

import baselines.methods.bicro as bicro
from baselines.kit.backbone import Encoded, overall
from baselines.kit.batches import Batch
from baselines.kit.losses import hardest_triplet, mean_triplet, soft_margin
from baselines.kit.method import EpochPlan, Setting
from baselines.kit.mixture import BetaMixture, fitted_for, min_max_normalised
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
MARGIN = BiCroConfig().margin
EVERY_CASE = pytest.mark.parametrize("case", ["similar", "opposed", "tied"])


def advantage_of(scores):
    return (MARGIN - mean_triplet(scores, MARGIN) / 2).clamp(0, MARGIN)


def test_losses_and_their_gradients_match_the_published_code(single):
    stored = single("Q_bicro_losses")
    labels, column = stored("labels"), stored("labels_column")
    losses = {
        "warmup": lambda s: mean_triplet(s, MARGIN).sum(),
        "eval_loss": lambda s: mean_triplet(s, MARGIN),
        "hard": lambda s: hardest_triplet(s, MARGIN).sum(),
        "warmup_sele.rate0.3": lambda s: smallest_losses(s, MARGIN, 0.3).sum(),
        "warmup_sele.rate0.5": lambda s: smallest_losses(s, MARGIN, 0.5).sum(),
        "mean.vector.exponential": lambda s: mean_triplet(s, soft_margin(labels, MARGIN)[None]).sum(),
        "noise_hard.tem0.5": lambda s: (bicro_triplet(s, labels, BiCroConfig()) * (labels > 0.5)).sum(),
    }
    for curve in ("exponential", "linear", "sin"):
        config, margins = BiCroConfig(curve=curve), soft_margin(column, MARGIN, curve)
        losses[f"hard.vector.{curve}"] = lambda s, c=config: bicro_triplet(s, labels, c).sum()
        losses[f"hard.column.{curve}"] = lambda s, m=margins, c=curve: hardest_triplet(
            s, m.T if c == "exponential" else m, m
        ).sum()
    assert_matrix_losses(stored, losses, tied=TIED)
    for matrix in stored.names("scores."):
        scores, name = stored(f"scores.{matrix}"), f"{matrix}.predict_clean"
        stored.near(advantage_of(scores), f"{name}.p", 1e-6)
        order = torch.cat(anchors_first(scores, MARGIN)[::-1])
        published = np.concatenate([stored[f"{name}.others"], stored[f"{name}.anchors"]])
        assert_near(advantage_of(scores)[order], stored[f"{name}.p"][published], 1e-6, scale=1)
        if matrix == "smooth":  # the others have ties
            np.testing.assert_array_equal(order, published)


@pytest.mark.parametrize("network", ["A", "B"])
def test_mixtures_of_losses_match_the_published_code(network, single):
    stored = single("Q_bicro_mixture")
    for case in stored.names("", f".loss_{network}"):
        losses = stored(f"{case}.loss_{network}")
        normalised = torch.from_numpy(min_max_normalised(losses.numpy()))
        stored.near(normalised, f"{case}.norm_loss_{network}", 1e-6)
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


def test_mixtures_and_divisions_of_given_values_match_the_published_code(single):
    stored = single("Q_bicro_mixture")
    for case in stored.names("direct.", ".x"):
        values, name = tensor(stored[f"direct.{case}.x"]), f"direct.{case}"
        table = stored[f"{name}.parameters"]
        start = BetaMixture(*(torch.from_numpy(table[0, k : k + 2].copy()) for k in (0, 2, 4)))
        for updates, row in enumerate(table):
            mixture = fitted_for(values.clamp(1e-4, 1 - 1e-4), start, updates, 1e-12)
            assert_near(torch.cat([mixture.alpha, mixture.beta, mixture.weights]), row, 1e-9)
        assert_near(loss_mixture(values).alpha, mixture.alpha, 1e-12)
        stored.near(mixture.log_densities(values).exp().sum(dim=1), f"{name}.density", 1e-9)
        stored.near(first_component(mixture, values), f"{name}.posterior_0", 1e-9)
    for case in stored.names("split_prob.", ".prob"):
        given, pred = (stored[f"split_prob.{case}.{name}"] for name in ("prob", "pred"))
        faults = "published" if given.ndim == 2 else "repaired"  # a column cannot be sorted along its rows
        np.testing.assert_array_equal(divided(tensor(given).flatten(), 0.5, faults), pred.ravel())


def test_losses_that_do_not_differ_leave_every_pair_clean():
    found = beta_posterior(torch.full((7,), 0.3))
    assert (found > 0.5).all()
    assert found.isfinite().all()


def embedded(stored, case, side):
    images, captions, lengths = (
        stored(f"{case}.{name}_{side}") for name in ("img_emb", "cap_emb", "lengths")
    )
    regions = torch.full((len(images),), images.shape[1])
    return Batch(images, regions, captions, lengths, torch.arange(len(images)))


@EVERY_CASE
def test_steps_to_a_label_match_the_published_code(case, single):
    stored = single("Q_bicro_labels")
    anchors, of_anchors = stored(f"{case}.anchors"), []
    for side in "lu":
        batch = embedded(stored, case, side)
        images = overall(Encoded(batch.image_features, batch.image_lengths))
        captions = overall(Encoded(batch.caption_tokens, batch.caption_lengths))
        if side == "l":
            of_anchors = [images[anchors], captions[anchors]]
            stored.near(images, f"{case}.img_g_l", 2e-6)
            stored.near(captions, f"{case}.text_g_l", 2e-6)
        alike = [cosines(items, own) for items, own in zip((images, captions), of_anchors, strict=True)]
        for found, name in zip(alike, ("sim_img", "sim_text"), strict=True):
            stored.near(found, f"{case}.{name}_{side}", 2e-6)
        for found, name in ((agreement(*alike), "img2text"), (agreement(*alike[::-1]), "text2img")):
            stored.near(found[:, None], f"{case}.{name}_{side}")


@EVERY_CASE
@pytest.mark.parametrize(("mode", "threshold"), [("soft0.5", 0.5), ("soft0.9", 0.9), ("plain", None)])
def test_labels_match_the_published_code(case, mode, threshold, single, monkeypatch):
    stored, name = single("Q_bicro_labels"), f"{case}.{mode}"
    network = GivenEmbeddings(stored(f"{case}.sims_l"))
    clean, noisy = (embedded(stored, case, side) for side in "lu")
    seen = []
    order = tuple(stored(f"{case}.{of}") for of in ("anchors", "others"))
    monkeypatch.setattr(bicro, "soft_label", lambda x, t: soft_label(seen.append(x) or x, t))
    if case == "tied":  # the order of equal margins is up to the library
        advantage = advantage_of(network.similarities)
        np.testing.assert_array_equal(advantage[torch.cat(order[::-1])], advantage.sort().values)
        monkeypatch.setattr(bicro, "anchors_first", lambda *_: order)
    for faults, array in (("published", "c_y"), ("repaired", "c_y_own_position")):
        config = BiCroConfig(label_threshold=threshold, faults=faults)
        method = BiCro(config, Setting(len(clean), 1, 1, nn.Identity))
        labels, noisy_labels = method.labels(network, clean, noisy)
        stored.near(labels, f"{name}.{array}", 1e-5)
        stored.near(noisy_labels, f"{name}.n_y", 1e-5)
        own = seen[0] if threshold is None else seen[0].where(seen[0] > threshold, 0.0)
        stored.near(own[:, None], f"{name}.consistency_l", 1e-5)


def method_and_batches(stored):
    """The stored networks with the labels of the published code, and the clean and the noisy batches."""
    method = on_both_networks(BiCro, stored, faults="published")
    return method, *network_batches(stored, "lu").values()


def test_labels_of_a_network_match_the_published_code(precise):
    stored = precise("Q_bicro_network")
    method, (clean, *_), (noisy, *_) = method_and_batches(stored)
    peer = method.networks[1].eval()
    with torch.no_grad():
        similarities = peer(clean).similarities
    for name, found in zip(("anchors", "others"), anchors_first(similarities, MARGIN), strict=True):
        stored.equal(found, f"B.predict.{name}{stored.end}")
    labels, noisy_labels = method.labels(peer, clean, noisy)
    found = {"predict.sims": similarities, "predict.c_y": labels, "predict.n_y": noisy_labels}
    for name, each in (found | {"eval_loss": mean_triplet(similarities, MARGIN)}).items():
        stored.near(each, f"B.{name}", 2e-5, 1e-9)


@pytest.mark.parametrize("mode", ["warmup_sele", "labelled", "unlabelled"])
def test_one_step_on_a_network_matches_the_published_code(mode, precise):
    stored = precise("Q_bicro_network")
    method, (clean, *_), (noisy, *_) = method_and_batches(stored)
    own, batch, step = method.networks[0], noisy if mode == "unlabelled" else clean, Steps(method)
    if mode == "warmup_sele":
        method.train_epoch(EpochPlan(0, 0, "warmup", 1.0), StoredBatches(batch, warmup_1=[]), step)
    else:
        given = stored[f"B.predict.{'n_y' if mode == 'unlabelled' else 'c_y'}{stored.end}"]
        step(own, bicro_triplet(own.train()(batch).similarities, tensor(given), method.config).sum(), batch)
    stored.near_step(step, f"A.{mode}.", stored.state("A."), single=2e-4, slope=2e-4)


@pytest.mark.parametrize(("half", "epoch"), [("first_half", 0), ("second_half", 20)])
def test_trajectory_matches_the_published_code(half, epoch, precise, monkeypatch):
    stored, start = precise("Q_bicro_network"), f"trajectory.{half}."
    method, (l0, l1, l2), (u0, u1) = method_and_batches(stored)
    ordered = {"clean_0": [l0, l1, l2], "noisy_0": [u0, u1], "clean_1": [l2, l0, l1], "noisy_1": [u1, u0]}
    step, labels = Steps(method, 2e-4), []

    def recording(similarities, given, config):
        labels.append(given)
        return bicro_triplet(similarities, given, config)

    monkeypatch.setattr(bicro, "bicro_triplet", recording)
    monkeypatch.setattr(method, "co_divide", lambda *_: None)
    for memory in method.clean_probability:
        memory.values[u0.pair_ids[0] :] = 0
    method.train_epoch(EpochPlan(0, epoch, "train", 1.0), StoredBatches(**ordered), step)
    assert_turns(method, step, stored, start)
    for k, found in enumerate(labels):
        stored.near(found, f"{start}labels{k}", 1e-3, 1e-6)
    stored.near(step.losses, f"{start}loss", 1e-2, 1e-5)


def test_vectors_of_no_length_agree_by_nothing():
    assert agreement(torch.zeros(2, 3), torch.zeros(2, 3)).tolist() == [0, 0]


def test_a_warm_up_batch_keeps_at_least_one_pair():
    assert len(smallest_losses(torch.rand(2, 2), MARGIN, 0.3)) == 1


def test_a_noisy_side_without_two_pairs_is_not_trained_on(single):
    method, (batch, *_), _ = method_and_batches(single("Q_bicro_network"))
    method.clean_probability[1].values[len(batch) - 1] = 0
    step, batches = Steps(method), StoredBatches(batch)
    method.train_network(0, EpochPlan(0, 20, "train", 1.0), batches, step)
    assert len(step.calls) == 1
    method.clean_probability[1].values[len(batch) - 2] = 0
    method.train_network(0, EpochPlan(0, 20, "train", 1.0), batches, step)
    assert len(step.calls) == 3


def test_schedule_is_that_of_the_scripts():
    plan = BiCroConfig().plan()
    assert [epoch.learning_rate for epoch in plan] == pytest.approx([2e-4] * 40 + [2e-5] * 10)
    assert sum(not epoch.select for epoch in plan) == 10
