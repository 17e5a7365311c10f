"""SPS against the published code's numbers, and what it does where that code stops or errs."""

import re
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from support.doubles import GivenEmbeddings, OwnPairs, Steps, bare_batch
from support.parity import (
    PRECISIONS,
    SUFFIX,
    Golden,
    assert_gradients,
    assert_weights_after_a_step,
    column,
    gradients_near,
    names_between,
    network_batches,
    state_of,
    tensor,
)
from support.rounding import assert_near
from support.two_networks import (
    SetsInTurn,
    assert_mixtures,
    assert_similarities,
    assert_turns,
    on_both_networks,
    stored_batches,
)
from torch import Tensor, nn

from baselines.kit.backbone import Encoded, overall
from baselines.kit.batches import Batch
from baselines.kit.losses import info_nce, matching_probability
from baselines.kit.method import EpochPlan, Setting
from baselines.methods.sps import SPS, SPSConfig, cosines, geometry_loss, symmetry_loss, three_sets

TAU = SPSConfig().temperature
WEIGHT = SPSConfig().symmetry_weight
SET_NAMES = ("strict", "clean", "noisy")


@pytest.mark.parametrize("dtype", PRECISIONS)
def test_losses_and_their_gradients_match_the_published_code(dtype: torch.dtype, golden: Golden) -> None:
    stored, suffix = golden("T_sps_losses"), SUFFIX[dtype]
    value, grad, noise = {"": (1e-5, 2e-4, 2e-6), "__f64": (1e-9, 1e-8, 1e-9)}[suffix]
    for name in names_between(stored, "", f".value{suffix}"):
        if name == "geometry":
            continue
        matrix, mode, *labels = name.split(".")
        scores = tensor(stored[f"scores.{matrix}"], dtype).requires_grad_()
        if mode == "train":
            loss = (column(stored[f"labels.{labels[0]}"], dtype) * 2 * info_nce(scores, TAU)).mean()
        elif mode == "symmetry":
            loss = WEIGHT * symmetry_loss(scores)
        else:
            loss = 2 * info_nce(scores, TAU)
            loss = loss.mean() if mode == "warmup" else loss
        loss.sum().backward()
        assert_near(loss, stored[f"{name}.value{suffix}"], value, scale=noise / value, name=name)
        assert_near(scores.grad, stored[f"{name}.grad{suffix}"], grad, scale=noise / grad, name=name)
    for matrix in names_between(stored, "", f".predict.p{suffix}"):
        found = matching_probability(tensor(stored[f"scores.{matrix}"], dtype), TAU)
        assert_near(found, stored[f"{matrix}.predict.p{suffix}"], value, scale=1, name=matrix)


@pytest.mark.parametrize("dtype", PRECISIONS)
def test_cosines_and_geometry_match_the_published_code(dtype: torch.dtype, golden: Golden) -> None:
    stored, suffix = golden("T_sps_losses"), SUFFIX[dtype]
    value, grad, noise = {"": (1e-5, 2e-4, 2e-6), "__f64": (1e-9, 1e-8, 1e-9)}[suffix]
    images, captions, noisy = (
        tensor(stored[f"vectors.{of}"], dtype).requires_grad_() for of in ("images", "captions", "noisy")
    )
    for of, found in (
        ("images", cosines(images, images)),
        ("captions", cosines(captions, captions)),
        ("noisy_images", cosines(noisy, images)),
    ):
        assert_near(found, stored[f"cosine.{of}{suffix}"], value, scale=1, name=of)
    loss = SPSConfig().geometry_weight * geometry_loss(images, captions)
    loss.backward()
    assert_near(loss, stored[f"geometry.value{suffix}"], value, scale=noise / value)
    assert_near(images.grad, stored[f"geometry.grad_images{suffix}"], grad, scale=noise / grad)
    assert_near(captions.grad, stored[f"geometry.grad_captions{suffix}"], grad, scale=noise / grad)


def test_mixtures_and_divisions_match_the_published_code(golden: Golden) -> None:
    stored = golden("T_sps_division")
    for case in names_between(stored, "", ".np_seed"):
        for network, probability in zip("AB", assert_mixtures(stored, case), strict=True):
            assert_divided(probability, {name: stored[f"{case}.{name}_{network}"] for name in SET_NAMES})
    for case in names_between(stored, "direct.", ".prob"):
        want = {name: stored[f"direct.{case}.{name}"] for name in SET_NAMES}
        assert_divided(tensor(stored[f"direct.{case}.prob"]), want)


def assert_divided(probability: Tensor, want: dict[str, np.ndarray]) -> None:
    """As published, where strictly clean pairs may be noisy as well, and repaired, where every pair is in one set."""
    for name, found in zip(SET_NAMES, three_sets(probability, 0.5, 0.6, "published"), strict=True):
        np.testing.assert_array_equal(found, want[name], err_msg=name)
    repaired = three_sets(probability, 0.5, 0.6)
    assert (torch.stack(repaired).sum(dim=0) == 1).all()
    np.testing.assert_array_equal(repaired[0], want["strict"] & ~want["noisy"])
    np.testing.assert_array_equal(torch.stack(repaired[1:]), np.stack([want["clean"], want["noisy"]]))


class Recorded(SPS):
    """SPS with stored predictions and labels of noisy pairs, and what reaches the loss in place of steps."""

    def __init__(self, predictions: list[Tensor], proxy_label: Tensor, sets: tuple[Tensor, ...]) -> None:
        super().__init__(SPSConfig(), Setting(len(proxy_label), 1, 1, OwnPairs))
        self.stored, self.proxy_label = dict(zip(self.networks, predictions, strict=True)), proxy_label
        self.sets = sets
        self.steps: list[tuple[int, list[int], Tensor]] = []

    def divide(self, k: int, batches: Any) -> Any:
        return self.sets

    def predict(self, network: nn.Module, batch: Batch) -> Tensor:
        return self.stored[network][batch.pair_ids]

    def proxies(self, network: nn.Module, strict: Batch, noisy: Batch) -> tuple[Tensor, Tensor]:
        return torch.zeros(len(noisy), dtype=torch.int64), self.proxy_label[noisy.pair_ids]

    def strict_step(self, network: nn.Module, batch: Batch, step: Any) -> None:
        self.take(0, batch, torch.ones(len(batch)))

    def train_step(self, network: nn.Module, batch: Batch, labels: Tensor | None, step: Any) -> None:
        self.take(1, batch, labels)

    def proxy_step(
        self, network: nn.Module, strict: Batch, noisy: Batch, proxies: Tensor, labels: Tensor, step: Any
    ) -> None:
        self.take(2, noisy, labels)

    def take(self, kind: int, batch: Batch, labels: Tensor) -> None:
        if len(batch) > 1:  # the code takes no step on one pair; our batches never hold one
            self.steps.append((kind, batch.pair_ids.tolist(), labels))


def test_labels_and_the_order_of_steps_match_the_published_code(golden: Golden) -> None:
    stored = golden("T_sps_train")
    batches = SetsInTurn(*(stored_batches(stored, name) for name in SET_NAMES))
    for case in names_between(stored, "", ".kind"):
        letter, epoch = re.fullmatch(r"([AB])\.epoch(\d+)", case).groups()
        predictions = [tensor(stored[f"p_{network}"]) for network in "AB"]
        method = Recorded(predictions, tensor(stored["proxy_label"]), batches.sets)
        for memory, network in zip(method.clean_probability, "AB", strict=True):
            memory.write(torch.arange(len(predictions[0])), tensor(stored[f"w_{network}"]))
        method.train_network("AB".index(letter), EpochPlan(0, int(epoch), "train", 1.0), batches, None)
        assert [kind for kind, _, _ in method.steps] == stored[f"{case}.kind"].tolist(), case
        for number, (_, pairs, labels) in enumerate(method.steps):
            assert pairs == stored[f"{case}.step{number}.ids"].tolist()
            assert_near(labels, column(stored[f"{case}.step{number}.labels"]), 1e-6, scale=1)


@pytest.mark.parametrize("dtype", PRECISIONS)
def test_the_search_for_proxies_matches_the_published_code(dtype: torch.dtype, golden: Golden) -> None:
    stored, suffix = golden("T_sps_proxy"), SUFFIX[dtype]
    near = 1e-9 if suffix else 1e-5
    for case in names_between(stored, "", ".nearest"):
        strict_images, noisy_images, captions, lengths, similarities = (
            tensor(stored[f"{case}.{name}"], dtype)
            for name in ("images_strict", "images_noisy", "captions_strict", "lengths_strict", "sims")
        )
        regions = [torch.full((len(images),), images.shape[1]) for images in (strict_images, noisy_images)]
        items = captions[..., None]  # not pooled
        strict = Batch(strict_images, regions[0], items, lengths, torch.arange(len(captions)))
        unused = torch.empty(0)
        noisy = Batch(noisy_images, regions[1], unused, unused, torch.arange(len(noisy_images)))
        of_images = (overall(Encoded(b.image_features, b.image_lengths)) for b in (noisy, strict))
        assert_near(cosines(*of_images), stored[f"{case}.cosine{suffix}"], near, scale=1, name=case)
        found = matching_probability(similarities, TAU)
        assert_near(found, stored[f"{case}.p{suffix}"], near, scale=1, name=case)
        network = GivenEmbeddings(similarities)
        method = SPS(SPSConfig(), Setting(len(captions), 1, 1, nn.Identity))
        nearest, labels = method.proxies(network, strict, noisy)
        np.testing.assert_array_equal(nearest, stored[f"{case}.nearest"])
        np.testing.assert_array_equal(network.compared[0].vectors[..., 0], stored[f"{case}.captions"])
        np.testing.assert_array_equal(network.compared[0].lengths, stored[f"{case}.lengths"])
        assert_near(labels, column(stored[f"{case}.labels{suffix}"]), near, scale=1, name=case)


def watch(network: Any) -> list[Tensor]:
    """The similarities that a network computes from now on."""
    seen: list[Tensor] = []
    compare = network.compare

    def watched(*sides: Encoded) -> Tensor:
        seen.append(compare(*sides).detach())
        return compare(*sides)

    network.compare = watched
    return seen


@pytest.mark.parametrize("dtype", PRECISIONS)
def test_a_network_in_evaluation_mode_matches_the_published_code(dtype: torch.dtype, golden: Golden) -> None:
    stored, suffix = golden("T_sps_network"), SUFFIX[dtype]
    near, label_near = (1e-9, 1e-9) if suffix else (1e-5, 1e-4)
    method, batches = on_both_networks(SPS, stored, dtype), network_batches(stored, dtype, "scn")
    strict, noisy = batches["s"][0], batches["n"][0]
    similarities = []
    for network, letter in zip(method.networks, "AB", strict=True):
        with torch.no_grad():
            encoded = network.eval().encode(strict)
            similarities.append(network.compare(*encoded))
            images = overall(network.encode_images(noisy.image_features, noisy.image_lengths))
        vectors = [overall(side) for side in encoded]
        seen = watch(network)
        nearest, labels = method.proxies(network, strict, noisy)
        for found, name in (
            (similarities[-1], "eval.sims"),
            (vectors[0], "eval.image_vectors"),
            (vectors[1], "eval.caption_vectors"),
            (cosines(images, vectors[0]), "proxy.cosine"),
            (seen[0], "proxy.sims"),
        ):
            assert_near(found, stored[f"{letter}.{name}{suffix}"], near, scale=1, name=name)
        np.testing.assert_array_equal(nearest, stored[f"{letter}.proxy.nearest"])
        assert_near(labels, column(stored[f"{letter}.proxy.labels{suffix}"]), label_near, scale=1)
        assert_near(method.predict(network, strict), stored[f"{letter}.eval.p{suffix}"], label_near, scale=1)
        assert_near(method.pair_losses(similarities[-1]), stored[f"{letter}.eval.loss{suffix}"], label_near)


@pytest.mark.parametrize("dtype", PRECISIONS)
@pytest.mark.parametrize("mode", ["strict", "labelled", "noisy"])
def test_one_step_on_a_network_matches_the_published_code(
    mode: str, dtype: torch.dtype, golden: Golden
) -> None:
    stored, suffix = golden("T_sps_network"), SUFFIX[dtype]
    near, value, norm = (1e-9, 1e-9, 1e-8) if suffix else (1e-5, 1e-4, 1e-3)
    method, batches = on_both_networks(SPS, stored, dtype), network_batches(stored, dtype, "scn")
    network, strict, noisy = method.networks[0], batches["s"][0], batches["n"][0]
    step = Steps(method)
    if mode == "strict":
        with torch.no_grad():  # running statistics do not move what a pass in training mode gives
            vectors = [overall(side) for side in network.train().encode(strict)]
        for each, name in zip(vectors, ("images", "captions"), strict=True):
            assert_near(cosines(each, each), stored[f"A.strict.cosine_{name}{suffix}"], near, scale=1)
        seen = watch(network)
        method.strict_step(network, strict, step)
    elif mode == "labelled":
        seen = watch(network)
        method.train_step(network, strict, column(stored["labels"], dtype), step)
    else:
        proxies, labels = tensor(stored["A.proxy.nearest"]), column(stored[f"A.proxy.labels{suffix}"])
        seen = watch(network)
        method.proxy_step(network, strict, noisy, proxies, labels, step)
    assert_near(seen[0], stored[f"A.{mode}.sims{suffix}"], near, scale=1)
    assert step.norms[0] == pytest.approx(float(stored[f"A.{mode}.grad_norm{suffix}"]), rel=norm)
    if mode != "strict":
        assert step.losses[0] == pytest.approx(float(stored[f"A.{mode}.loss{suffix}"]), rel=value)
        return
    assert losses_of(step)[0] == pytest.approx(
        [float(stored[f"A.strict.{term}{suffix}"]) for term in ("loss", "symmetry", "geometry")], rel=value
    )
    gradients = state_of(stored, "A.strict.grad.", dtype, suffix)
    base = state_of(stored, "A.")
    assert_gradients(network, "sgr", base, gradients, some=True, **gradients_near(dtype, 1e-3, 1e-7))
    if suffix:
        assert_weights_after_a_step(method, base, state_of(stored, "A.strict.after.", dtype, suffix))


def losses_of(step: Steps) -> list[list[float]]:
    """Of every step: cross entropies, and both constraints times their weight."""
    weights = {"symmetry": SPSConfig().symmetry_weight, "geometry": SPSConfig().geometry_weight}
    return [
        [terms.get("contrast", loss), *(weight * terms.get(name, 0.0) for name, weight in weights.items())]
        for loss, (_, _, terms) in zip(step.losses, step.calls, strict=True)
    ]


@pytest.mark.parametrize("dtype", PRECISIONS)
@pytest.mark.parametrize("case", ["strict_only", "clean", "noisy"])
def test_trajectory_matches_the_published_code(
    case: str, dtype: torch.dtype, golden: Golden, monkeypatch: pytest.MonkeyPatch
) -> None:
    stored, suffix, name = golden("T_sps_network"), SUFFIX[dtype], f"trajectory.{case}"
    method, sets = on_both_networks(SPS, stored, dtype), network_batches(stored, dtype, "scn")
    batches = SetsInTurn(*sets.values())
    for memory, network in zip(method.clean_probability, "AB", strict=True):
        memory.values = memory.values.to(dtype)
        memory.write(sets["c"][0].pair_ids, tensor(stored[f"batch.c0.w_{network}"], dtype))
    monkeypatch.setattr(method, "divide", lambda *_: batches.sets)
    monkeypatch.setattr(method, "co_divide", lambda *_: None)
    step, labels = Steps(method, 2e-3), []

    def watched(name: str, labels_of: Callable[..., Tensor]) -> None:
        train = getattr(method, name)
        monkeypatch.setattr(method, name, lambda *given: labels.append(labels_of(*given)) or train(*given))

    watched("strict_step", lambda network, batch, step: torch.ones(len(batch)))
    watched("train_step", lambda network, batch, labels, step: labels)
    watched("proxy_step", lambda network, strict, noisy, proxies, labels, step: labels)
    method.train_epoch(EpochPlan(0, int(stored[f"{name}.epoch"]), "train", 1.0), batches, step)
    assert_turns(method, step, stored, name)
    loss, norm, label = (1e-5, 1e-5, 1e-6) if suffix else (1e-2, 3e-2, 5e-3)
    assert_near(losses_of(step), stored[f"{name}.loss{suffix}"], loss)
    assert_near(step.norms, stored[f"{name}.grad_norm{suffix}"], norm)
    for number, given in enumerate(labels):
        assert_near(given, column(stored[f"{name}.labels{number}{suffix}"]), label, scale=1)
    if suffix:
        assert_similarities(method, sets["s"][0], stored, name)


@pytest.mark.parametrize("empty", ["clean", "noisy"])
def test_an_empty_set_takes_no_step(empty: str) -> None:
    none, some = torch.arange(0), torch.arange(12, 16)
    sets = (torch.arange(8), none if empty == "clean" else some, none if empty == "noisy" else some)
    batches = SetsInTurn(*([bare_batch(ids) for ids in each.split(2) if len(ids)] for each in sets))
    method = Recorded([torch.full((16,), 0.4)] * 2, torch.full((16,), 0.7), sets)
    method.train_network(0, EpochPlan(0, 15, "train", 1.0), batches, None)
    assert [kind for kind, _, _ in method.steps] == ([0, 2] * 4 if empty == "clean" else [0, 1, 0, 1, 0, 0])


@pytest.mark.parametrize("probability", [torch.full((6,), 0.55), torch.tensor([0.9, 0, 0, 0, 0, 0])])
def test_every_pair_is_strictly_clean_where_fewer_than_two_would_be(probability: Tensor) -> None:
    method = SPS(SPSConfig(), Setting(6, 1, 1, nn.Identity))
    method.clean_probability[1].values.copy_(probability)
    sets = method.divide(0, SetsInTurn([bare_batch(6)], [], []))
    assert [len(ids) for ids in sets] == [6, 0, 0]


def test_vectors_without_length_and_batches_of_one_stay_finite() -> None:
    images, captions = (torch.zeros(3, 4).requires_grad_() for _ in range(2))
    geometry_loss(images, captions).backward()
    assert images.grad.isfinite().all()
    scores = torch.rand(1, 1).requires_grad_()
    (2 * info_nce(scores, TAU).mean() + symmetry_loss(scores)).backward()
    assert scores.grad.isfinite().all()
    assert matching_probability(scores, TAU).item() == 1
