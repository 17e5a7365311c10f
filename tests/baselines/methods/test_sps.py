"""SPS against the published code's numbers, and what it does where that code stops or errs."""

import re

import numpy as np
import pytest
import torch
from support.doubles import GivenEmbeddings, OwnPairs, Steps, bare_batch
from support.parity import network_batches, tensor
from support.two_networks import (
    SetsInTurn,
    mixtures_of,
    near_trajectory,
    on_both_networks,
    stored_batches,
)
from torch import nn

from baselines.kit.backbone import Encoded, overall
from baselines.kit.batches import Batch
from baselines.kit.losses import info_nce, matching_probability
from baselines.kit.method import EpochPlan, Setting
from baselines.methods.sps import SPS, SPSConfig, cosines, geometry_loss, symmetry_loss, three_sets

TAU = SPSConfig().temperature
WEIGHTS = {"symmetry": SPSConfig().symmetry_weight, "geometry": SPSConfig().geometry_weight}
SET_NAMES = ("strict", "clean", "noisy")


def test_losses_and_their_gradients_match_the_published_code(precise):
    stored = precise("T_sps_losses")
    for name in set(stored.results("", ".value")) - {"geometry"}:
        matrix, mode, *labels = name.split(".")
        scores = stored.leaf(f"scores.{matrix}")
        if mode == "train":
            loss = (stored(f"labels.{labels[0]}")[:, 0] * 2 * info_nce(scores, TAU)).mean()
        elif mode == "symmetry":
            loss = WEIGHTS[mode] * symmetry_loss(scores)
        else:
            loss = 2 * info_nce(scores, TAU)
            loss = loss.mean() if mode == "warmup" else loss
        loss.sum().backward()
        stored.near(loss, f"{name}.value", 1e-5, 1e-9, scale=0.2)
        stored.near(scores.grad, f"{name}.grad", 2e-4, scale=0.01)
    for matrix in stored.results("", ".predict.p"):
        found = matching_probability(stored(f"scores.{matrix}"), TAU)
        stored.near(found, f"{matrix}.predict.p", 1e-5, 1e-9)


def test_cosines_and_geometry_match_the_published_code(precise):
    stored = precise("T_sps_losses")
    images, captions, noisy = (stored.leaf(f"vectors.{of}") for of in ("images", "captions", "noisy"))
    for of, pair in (
        ("images", (images, images)),
        ("captions", (captions, captions)),
        ("noisy_images", (noisy, images)),
    ):
        stored.near(cosines(*pair), f"cosine.{of}", 1e-5, 1e-9)
    loss = WEIGHTS["geometry"] * geometry_loss(images, captions)
    loss.backward()
    stored.near(loss, "geometry.value", 1e-5, 1e-9, scale=0.2)
    stored.near(images.grad, "geometry.grad_images", 2e-4, scale=0.01)
    stored.near(captions.grad, "geometry.grad_captions", 2e-4, scale=0.01)


def test_mixtures_and_divisions_match_the_published_code(single):
    """As published, where strictly clean pairs may be noisy as well, and repaired, where every pair is in one set."""
    stored, given = single("T_sps_division"), {}
    for case, both in mixtures_of(stored).items():
        given |= {f"{case}.{{}}_A": both[0], f"{case}.{{}}_B": both[1]}
    for case in stored.names("direct.", ".prob"):
        given[f"direct.{case}.{{}}"] = tensor(stored[f"direct.{case}.prob"])
    for key, probability in given.items():
        strict, clean, noisy = want = [stored[key.format(name)] for name in SET_NAMES]
        np.testing.assert_array_equal(torch.stack(three_sets(probability, 0.5, 0.6, "published")), want)
        repaired = torch.stack(three_sets(probability, 0.5, 0.6))
        assert (repaired.sum(dim=0) == 1).all()
        np.testing.assert_array_equal(repaired, [strict & ~noisy, clean, noisy])


class Recorded(SPS):
    """SPS with stored predictions and labels of noisy pairs, and what reaches the loss in place of steps."""

    def __init__(self, predictions, proxy_label, sets):
        super().__init__(SPSConfig(), Setting(len(proxy_label), 1, 1, OwnPairs))
        self.stored, self.proxy_label = dict(zip(self.networks, predictions, strict=True)), proxy_label
        self.sets = sets
        self.steps = []

    def divide(self, k, batches):
        return self.sets

    def predict(self, network, batch):
        return self.stored[network][batch.pair_ids]

    def proxies(self, network, strict, noisy):
        return torch.zeros(len(noisy), dtype=torch.int64), self.proxy_label[noisy.pair_ids]

    def strict_step(self, network, batch, step):
        self.take(0, batch, torch.ones(len(batch)))

    def train_step(self, network, batch, labels, step):
        self.take(1, batch, labels)

    def proxy_step(self, network, strict, noisy, proxies, labels, step):
        self.take(2, noisy, labels)

    def take(self, kind, batch, labels):
        if len(batch) > 1:  # the code takes no step on one pair; our batches never hold one
            self.steps.append((kind, batch.pair_ids.tolist(), labels))


def test_labels_and_the_order_of_steps_match_the_published_code(single):
    stored = single("T_sps_train")
    batches = SetsInTurn(*(stored_batches(stored, name) for name in SET_NAMES))
    for case in stored.names("", ".kind"):
        letter, epoch = re.fullmatch(r"([AB])\.epoch(\d+)", case).groups()
        predictions = [stored(f"p_{network}") for network in "AB"]
        method = Recorded(predictions, stored("proxy_label"), batches.sets)
        for memory, network in zip(method.clean_probability, "AB", strict=True):
            memory.write(torch.arange(len(predictions[0])), stored(f"w_{network}"))
        method.train_network("AB".index(letter), EpochPlan(0, int(epoch), "train", 1.0), batches, None)
        stored.equal([kind for kind, _, _ in method.steps], f"{case}.kind")
        for number, (_, pairs, labels) in enumerate(method.steps):
            stored.equal(pairs, f"{case}.step{number}.ids")
            stored.near(labels[:, None], f"{case}.step{number}.labels", 1e-6)


def test_the_search_for_proxies_matches_the_published_code(precise):
    stored = precise("T_sps_proxy")
    for case in stored.names("", ".nearest"):
        strict_images, noisy_images, captions, lengths, similarities = (
            stored(f"{case}.{name}")
            for name in ("images_strict", "images_noisy", "captions_strict", "lengths_strict", "sims")
        )
        regions = [torch.full((len(images),), images.shape[1]) for images in (strict_images, noisy_images)]
        items = captions[..., None]  # not pooled
        strict = Batch(strict_images, regions[0], items, lengths, torch.arange(len(captions)))
        unused = torch.empty(0)
        noisy = Batch(noisy_images, regions[1], unused, unused, torch.arange(len(noisy_images)))
        of_images = (overall(Encoded(b.image_features, b.image_lengths)) for b in (noisy, strict))
        stored.near(cosines(*of_images), f"{case}.cosine", 1e-5, 1e-9)
        stored.near(matching_probability(similarities, TAU), f"{case}.p", 1e-5, 1e-9)
        network = GivenEmbeddings(similarities)
        nearest, labels = SPS(SPSConfig(), Setting(len(captions), 1, 1, nn.Identity)).proxies(
            network, strict, noisy
        )
        stored.equal(nearest, f"{case}.nearest")
        stored.equal(network.compared[0].vectors[..., 0], f"{case}.captions")
        stored.equal(network.compared[0].lengths, f"{case}.lengths")
        stored.near(labels[:, None], f"{case}.labels", 1e-5, 1e-9)


def watch(network):
    """The similarities that a network computes from now on."""
    seen = []
    compare = network.compare

    def watched(*sides):
        seen.append(compare(*sides))
        return seen[-1]

    network.compare = watched
    return seen


def test_a_network_in_evaluation_mode_matches_the_published_code(precise):
    stored = precise("T_sps_network")
    method, batches = on_both_networks(SPS, stored), network_batches(stored, "scn")
    strict, noisy = batches["s"][0], batches["n"][0]
    for network, letter in zip(method.networks, "AB", strict=True):
        with torch.no_grad():
            encoded = network.eval().encode(strict)
            similarities = network.compare(*encoded)
            images = overall(network.encode_images(noisy.image_features, noisy.image_lengths))
        vectors = [overall(side) for side in encoded]
        seen = watch(network)
        nearest, labels = method.proxies(network, strict, noisy)
        for found, name in (
            (similarities, "eval.sims"),
            (vectors[0], "eval.image_vectors"),
            (vectors[1], "eval.caption_vectors"),
            (cosines(images, vectors[0]), "proxy.cosine"),
            (seen[0], "proxy.sims"),
        ):
            stored.near(found, f"{letter}.{name}", 1e-5, 1e-9)
        stored.equal(nearest, f"{letter}.proxy.nearest")
        stored.near(labels[:, None], f"{letter}.proxy.labels")
        stored.near(method.predict(network, strict), f"{letter}.eval.p")
        stored.near(method.pair_losses(similarities), f"{letter}.eval.loss")


@pytest.mark.parametrize("mode", ["strict", "labelled", "noisy"])
def test_one_step_on_a_network_matches_the_published_code(mode, precise):
    stored = precise("T_sps_network")
    method, batches = on_both_networks(SPS, stored), network_batches(stored, "scn")
    network, strict, noisy = method.networks[0], batches["s"][0], batches["n"][0]
    step, seen, terms = Steps(method), watch(network), {}
    if mode == "strict":
        method.strict_step(network, strict, step)
        loss, *terms = losses_of(step)[0]
        terms = dict(zip(WEIGHTS, terms, strict=True)) | {"loss": loss}
    elif mode == "labelled":
        method.train_step(network, strict, stored("labels")[:, 0], step)
    else:
        labels = tensor(stored[f"A.proxy.labels{stored.end}"])[:, 0]
        method.proxy_step(network, strict, noisy, stored("A.proxy.nearest"), labels, step)
    stored.near(seen[0], f"A.{mode}.sims", 1e-5, 1e-9)
    stored.near_step(step, f"A.{mode}.", stored.state("A."), single=1e-3, terms=terms)


def losses_of(step):
    """Of every step: cross entropies, and both constraints times their weight."""
    return [
        [terms.get("contrast", loss), *(weight * terms.get(name, 0.0) for name, weight in WEIGHTS.items())]
        for loss, (_, _, terms) in zip(step.losses, step.calls, strict=True)
    ]


@pytest.mark.parametrize("case", ["strict_only", "clean", "noisy"])
def test_trajectory_matches_the_published_code(case, precise, monkeypatch):
    stored, start = precise("T_sps_network"), f"trajectory.{case}."
    method, sets = on_both_networks(SPS, stored), network_batches(stored, "scn")
    batches = SetsInTurn(*sets.values())
    for memory, network in zip(method.clean_probability, "AB", strict=True):
        memory.values = memory.values.to(stored.dtype)
        memory.write(sets["c"][0].pair_ids, stored(f"batch.c0.w_{network}"))
    monkeypatch.setattr(method, "divide", lambda *_: batches.sets)
    monkeypatch.setattr(method, "co_divide", lambda *_: None)
    step, labels = Steps(method, 2e-3), []

    def watched(name, labels_of):
        train = getattr(method, name)
        monkeypatch.setattr(method, name, lambda *given: labels.append(labels_of(*given)) or train(*given))

    watched("strict_step", lambda network, batch, step: torch.ones(len(batch)))
    watched("train_step", lambda network, batch, labels, step: labels)
    watched("proxy_step", lambda network, strict, noisy, proxies, labels, step: labels)
    method.train_epoch(EpochPlan(0, int(stored[f"{start}epoch"]), "train", 1.0), batches, step)
    near_trajectory(method, step, losses_of(step), labels, sets["s"][0], stored, start)


@pytest.mark.parametrize(("empty", "kinds"), [("clean", [0, 2] * 4), ("noisy", [0, 1, 0, 1, 0, 0])])
def test_an_empty_set_takes_no_step(empty, kinds):
    some = {"strict": torch.arange(8), "clean": torch.arange(12, 16), "noisy": torch.arange(12, 16)}
    sets = (some | {empty: torch.arange(0)}).values()
    batches = SetsInTurn(*([bare_batch(ids) for ids in each.split(2) if len(ids)] for each in sets))
    method = Recorded([torch.full((16,), 0.4)] * 2, torch.full((16,), 0.7), tuple(sets))
    method.train_network(0, EpochPlan(0, 15, "train", 1.0), batches, None)
    assert [kind for kind, _, _ in method.steps] == kinds


@pytest.mark.parametrize("probability", [torch.full((6,), 0.55), torch.tensor([0.9, 0, 0, 0, 0, 0])])
def test_every_pair_is_strictly_clean_where_fewer_than_two_would_be(probability):
    method = SPS(SPSConfig(), Setting(6, 1, 1, nn.Identity))
    method.clean_probability[1].values.copy_(probability)
    sets = method.divide(0, SetsInTurn([bare_batch(6)], [], []))
    assert [len(ids) for ids in sets] == [6, 0, 0]


def test_vectors_without_length_and_batches_of_one_stay_finite():
    images, captions = (torch.zeros(3, 4).requires_grad_() for _ in range(2))
    geometry_loss(images, captions).backward()
    scores = torch.rand(1, 1).requires_grad_()
    (2 * info_nce(scores, TAU).mean() + symmetry_loss(scores)).backward()
    for leaf in (images, captions, scores):
        assert leaf.grad.isfinite().all()
    assert matching_probability(scores, TAU).item() == 1
