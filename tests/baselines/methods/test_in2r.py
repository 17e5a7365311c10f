"""IN2R against the published code's numbers, and what it does where that code stops or errs."""

import re
from itertools import cycle
from typing import Any

import numpy as np
import pytest
import torch
from support.doubles import FixedSimilarities, Steps, StoredBatches, bare_batch
from support.parity import (
    PRECISIONS,
    SUFFIX,
    Arrays,
    Golden,
    assert_gradients,
    batch_of,
    encoded,
    gradients_near,
    names_between,
    network_batches,
    network_of,
    state_of,
    tensor,
)
from support.rounding import assert_near, assert_stored
from support.two_networks import assert_mixtures, assert_similarities
from torch import Tensor, nn
from torch.nn import functional

from baselines.backbones.vse_infinity import Centring, VSEInfinity
from baselines.kit.batches import Batch
from baselines.kit.losses import hardest_triplet, mean_triplet
from baselines.kit.method import EpochPlan, Setting
from baselines.kit.mixture import exceeds
from baselines.methods import in2r
from baselines.methods.in2r import (
    IN2R,
    IN2RConfig,
    Memory,
    Refiner,
    nearest,
    rectification,
    robust_loss,
)
from ncl_bench.errors import RecipeError

TAU = IN2RConfig().temperature
RUNNING_MEANS = ("centre_images.mean", "centre_captions.mean")
"""Ours alone: the published code stores none."""
UNUSED = "edge_nn."
REFINERS = ("i2t", "t2i")


class Masks:
    """Dropout by the masks of the index; the same element is dropped in every run.

    Attributes:
        step: of the optimiser, from 0.
        passes: forward passes of each role in this step.
    """

    def __init__(self) -> None:
        self.step, self.passes = 0, dict[int, int]()

    def next_step(self) -> None:
        self.step, self.passes = self.step + 1, {}


class Masked(nn.Module):
    """In place of a dropout layer; role 0: regions, 1: words, 2 and 3: refiners."""

    def __init__(self, masks: Masks, role: int, p: float) -> None:
        super().__init__()
        self.masks, self.role, self.p = masks, role, p

    def forward(self, x: Tensor) -> Tensor:
        if not self.training:
            return x
        number = self.masks.passes.get(self.role, 0)
        self.masks.passes[self.role] = number + 1
        c = 100 * self.masks.step + 10 * self.role + number
        numbers = torch.arange(x.numel()).view(x.shape)
        kept = (7919 * numbers + 104729 * c) % 1000 >= 1000 * self.p
        return x * kept / (1 - self.p)


def centred(network: Any, masks: Masks | None) -> VSEInfinity:
    """A network that centres as published, and drops by the masks or not at all."""
    for centring in (network.centre_images, network.centre_captions):
        centring.by_batch = True
    if masks is not None:
        network.region_dropout, network.words.dropout = Masked(masks, 0, 0.3), Masked(masks, 1, 0.3)
    return network


def refiner_of(stored: Arrays, prefix: str, dtype: torch.dtype) -> Refiner:
    """A stored refiner without dropout."""
    names = [name for name in names_between(stored, prefix) if not name.startswith(UNUSED)]
    state = {name: tensor(stored[prefix + name], dtype) for name in names if not name.endswith("__f64")}
    refiner = Refiner(len(state["layer_norm.weight"]), IN2RConfig().heads, 0.0).to(dtype)
    refiner.load_state_dict(state)
    return refiner


@pytest.mark.parametrize("dtype", PRECISIONS)
def test_losses_and_their_gradients_match_the_published_code(dtype: torch.dtype, golden: Golden) -> None:
    stored, suffix = golden("X_in2r_losses"), SUFFIX[dtype]
    value, grad, noise = {"": (1e-5, 2e-4, 2e-6), "__f64": (1e-9, 1e-8, 1e-9)}[suffix]
    for matrix in names_between(stored, "scores."):
        for kind in ("robust", "hinge0.2", "hinge0.3", "division"):
            scores, name = tensor(stored[f"scores.{matrix}"], dtype).requires_grad_(), f"{matrix}.{kind}"
            if kind == "robust":
                loss = robust_loss(scores, TAU).mean()
            elif kind == "division":
                loss = mean_triplet(scores, IN2RConfig().margin)
            else:
                loss = hardest_triplet(scores, float(kind.removeprefix("hinge"))).sum()
            loss.sum().backward()
            assert_near(loss, stored[f"{name}.value{suffix}"], value, scale=noise / value, name=name)
            if matrix != "all_equal" or kind not in ("hinge0.2", "hinge0.3"):
                assert_near(scores.grad, stored[f"{name}.grad{suffix}"], grad, scale=5e-2, name=name)


@pytest.mark.parametrize("form", ["published", "paper"])
@pytest.mark.parametrize("dtype", PRECISIONS)
def test_rectification_and_its_gradients_match(form: Any, dtype: torch.dtype, golden: Golden) -> None:
    stored, suffix = golden("X_in2r_losses"), SUFFIX[dtype]
    if form == "paper" and not suffix:
        pytest.skip("stored in float64 alone")
    value, grad = (1e-9, 1e-8) if suffix else (1e-5, 2e-4)
    vectors = {name: tensor(stored[f"rectified.{name}"], dtype).requires_grad_() for name in "VUTW"}
    v, u, t, w = vectors.values()
    of_images, of_captions = rectification(v, t, u, TAU, form), rectification(u, w, v, TAU, form)
    loss = (of_images.mean() + of_captions.mean()) / 2
    loss.backward()
    assert_near(loss, stored[f"rectified.{form}.value{suffix}"], value)
    for name, each in vectors.items():
        assert_near(each.grad, stored[f"rectified.{form}.grad_{name}{suffix}"], grad, name=name)


@pytest.mark.parametrize("dtype", PRECISIONS)
def test_refiners_match_the_published_code(dtype: torch.dtype, golden: Golden) -> None:
    stored, suffix = golden("X_in2r_refiner"), SUFFIX[dtype]
    near, slope, noise = (1e-9, 1e-8, 1e-9) if suffix else (1e-5, 1e-4, 1e-5)
    for name in names_between(stored, "", f".prototype{suffix}"):
        case, _, rate = name.partition(".dropout")
        refiner = refiner_of(stored, "refiner.", dtype).train()
        refiner.dropout = Masked(Masks(), 2, float(rate))
        neighbours = tensor(stored[f"{case}.neighbours"], dtype).requires_grad_()
        prototype = refiner(neighbours)
        (prototype * tensor(stored[f"{case}.R"], dtype)).sum().backward()
        assert_near(prototype, stored[f"{name}.prototype{suffix}"], near, scale=1, name=name)
        gradients = {key: weight.grad for key, weight in refiner.named_parameters()}
        for key, found in {**gradients, "neighbours": neighbours.grad}.items():
            array = f"{name}.grad{'_' if key == 'neighbours' else '.'}{key}{suffix}"
            assert_near(found, stored[array], slope, scale=noise / slope, name=array)


@pytest.mark.parametrize("dtype", PRECISIONS)
def test_memory_and_prototypes_match_the_published_code(dtype: torch.dtype, golden: Golden) -> None:
    stored, suffix, near = golden("X_in2r_refiner"), SUFFIX[dtype], 1e-9 if SUFFIX[dtype] else 1e-5
    k, images, captions = (
        tensor(stored[f"queue.{x}"], dtype) for x in ("k", "query_images", "query_captions")
    )
    i2t, t2i = (refiner_of(stored, f"{name}.", dtype) for name in ("refiner", "refiner_t2i"))
    memory = Memory(int(stored["queue.size"]), images.shape[1]).to(dtype)
    numbers = sorted(int(j) for j in names_between(stored, "queue.push", ".images"))
    retrieved = 0
    for number in numbers:
        pushed = [tensor(stored[f"queue.push{number}.{x}"], dtype) for x in ("images", "captions")]
        memory.push(*pushed, torch.arange(len(pushed[0])), torch.ones(len(pushed[0])).bool())
        after = f"queue.after{number}"
        assert_memory(memory, stored[f"{after}.pointer"], stored[f"{after}.full"])
        for name in ("images", "captions"):
            want = tensor(stored[f"{after}.{name}"], dtype)[: len(memory)]
            assert torch.equal(getattr(memory, name)[: len(memory)], want), number
        if f"{after}.nearest_images" not in stored:
            assert len(memory) < int(k)
            continue
        retrieved += 1
        for side, queries, others, refiner in (
            ("images", images, "captions", i2t),
            ("captions", captions, "images", t2i),
        ):
            found = nearest(queries, getattr(memory, side)[: len(memory)], int(k))
            np.testing.assert_array_equal(found, stored[f"{after}.nearest_{side}"])
            prototype = refiner(getattr(memory, others)[found])
            name = {"images": "text", "captions": "image"}[side]
            assert_near(prototype, stored[f"{after}.{name}_prototype{suffix}"], near, scale=1, name=after)
    assert retrieved


def assert_memory(memory: Memory, pointer: Any, full: Any) -> None:
    """The published pointer stands at the end until the next push, and so long the store is not full."""
    pushed, size = int(memory.pushed), len(memory.images)
    assert (pushed - 1) % size + 1 == int(pointer)
    assert (pushed > size) == bool(full)


def plain_method(n_pairs: int, **options: Any) -> IN2R:
    def network() -> nn.Module:
        similarities = FixedSimilarities(torch.eye(2))
        similarities.embed_size = 4
        return similarities

    return IN2R(IN2RConfig(**options), Setting(n_pairs, 1, 5, network, 2))


def test_mixtures_divisions_and_what_is_stored_match_the_published_code(golden: Golden) -> None:
    stored = golden("X_in2r_division")
    for case in names_between(stored, "", ".np_seed"):
        published, repaired = (
            plain_method(len(stored[f"{case}.loss_A"]), faults=faults) for faults in ("published", "repaired")
        )
        batches = StoredBatches(bare_batch(published.setting.n_pairs))
        for k, (network, probability) in enumerate(zip("AB", assert_mixtures(stored, case), strict=True)):
            np.testing.assert_array_equal(exceeds(probability, 0.5), stored[f"{case}.clean_{network}"])
            for method in (published, repaired):
                method.clean_probability[k].values.copy_(probability)
        for k, network in enumerate("AB"):
            threshold = published.storing_threshold(k, batches)
            assert_near(threshold, stored[f"{case}.mean_{network}"], 1e-6)
            assert_stores(published, k, threshold, stored[f"{case}.stored_{network}"])
        assert_stores(repaired, 0, repaired.storing_threshold(0, batches), stored[f"{case}.stored_A_matched"])
    for case in names_between(stored, "direct.", ".prob"):
        found = exceeds(tensor(stored[f"direct.{case}.prob"]), 0.5)
        np.testing.assert_array_equal(found, stored[f"direct.{case}.clean"])


def assert_stores(method: IN2R, k: int, threshold: Tensor, want: np.ndarray) -> None:
    """But for pairs whose probability is the threshold."""
    probability = method.clean_probability[1 - k].values
    found = method.is_clean(probability) & method.is_stored(probability, threshold)
    apart = (probability.double() - threshold.double()).abs() > 1e-7
    np.testing.assert_array_equal(found[apart], want[apart.numpy()])


def test_where_the_mixture_is_sure_pairs_are_stored_all_the_same() -> None:
    probability = torch.cat([torch.ones(90), torch.full((10,), 0.1)])
    stored = {}
    for faults in ("published", "repaired"):
        method = plain_method(100, faults=faults)
        for memory in method.clean_probability:
            memory.values.copy_(probability)
        threshold = method.storing_threshold(0, StoredBatches(bare_batch(100)))
        stored[faults] = int(method.is_stored(probability, threshold).sum())
    assert stored == {"published": 0, "repaired": 90}


@pytest.mark.parametrize("dtype", PRECISIONS)
@pytest.mark.parametrize("mode", ["eval", "train", "train_dropout"])
def test_the_backbone_matches_the_published_code(mode: str, dtype: torch.dtype, golden: Golden) -> None:
    stored, suffix = golden("X_in2r_backbone"), SUFFIX[dtype]
    near, relative, absolute = (1e-9, 1e-7, 1e-9) if suffix else (1e-5, 1e-3, 1e-4)
    network = centred(
        network_of("vse_infinity", state_of(stored, "", dtype)), Masks() if mode == "train_dropout" else None
    ).train(mode != "eval")
    units: list[Tensor] = []
    for centring in (network.centre_images, network.centre_captions):
        centring.register_forward_pre_hook(lambda module, inputs: units.append(inputs[0]))
    images, captions = encoded(network, batch_of(stored, "in.", dtype))
    for found, name in (
        (units[0], "image_units"),
        (units[1], "caption_units"),
        (images.vectors, "images"),
        (captions.vectors, "captions"),
        (network.similarities(images, captions), "sims"),
    ):
        assert_near(found, stored[f"{mode}.{name}{suffix}"], near, scale=1, name=name)
    sides = ((images.vectors, "images"), (captions.vectors, "captions"))
    sum((side * tensor(stored[f"in.R_{name}"], dtype)).sum() for side, name in sides).backward()
    if f"{mode}.grad.img_enc.fc.weight{suffix}" in stored:
        gradients = state_of(stored, f"{mode}.grad.", dtype, suffix)
        allowed = {"relative": relative, "of_all": absolute}
        assert_gradients(network, "vse_infinity", state_of(stored), gradients, some=True, **allowed)
    if mode == "train":
        after = state_of(stored, "train.after.", dtype, suffix)
        assert_buffers(network, state_of(stored, "", dtype), after, near)


def assert_buffers(
    network: VSEInfinity, base: dict[str, Tensor], after: dict[str, Tensor], near: float
) -> None:
    """Compare the statistics of batch normalisation."""
    wanted = dict(network_of("vse_infinity", base | after).named_buffers())
    compared = [name for name, x in wanted.items() if x.is_floating_point() and name not in RUNNING_MEANS]
    assert compared
    for name in compared:
        assert_near(network.get_buffer(name), wanted[name], near, name=name)


def method_of(
    stored: Arrays, dtype: torch.dtype, masks: Masks | None, monkeypatch: pytest.MonkeyPatch
) -> IN2R:
    """Both stored networks and their refiners; batches are not augmented."""
    monkeypatch.setattr(IN2R, "augmented", lambda method, batch: batch)
    states = [state_of(stored, f"{letter}.", dtype) for letter in "AB"]
    batches = network_batches(stored, dtype, "lu")
    n_pairs = sum(len(batch) for each in batches.values() for batch in each)
    size = len(stored["trajectory.plain.memory_images_A__f64"])
    neighbours = next(x.shape[1] for name, x in stored.items() if name.endswith(".nearest_images"))
    setting = Setting(n_pairs, 1, 1, lambda: network_of("vse_infinity", states[0]), len(batches["l"][0]))
    method = IN2R(IN2RConfig(memory=size, neighbours=neighbours, faults="published"), setting).to(dtype)
    method.networks[1].load_state_dict(network_of("vse_infinity", states[1]).state_dict())
    for k, letter in enumerate("AB"):
        centred(method.networks[k], masks)
        for role, way in enumerate(REFINERS, start=2):
            method.refiners[k][way] = refiner_of(stored, f"{letter}.{way}_refiner.", dtype)
            if masks is not None:
                method.refiners[k][way].dropout = Masked(masks, role, 0.1)
    return method


@pytest.mark.parametrize("dtype", PRECISIONS)
@pytest.mark.parametrize("case", ["plain", "dropout"])
def test_losses_of_the_division_and_a_step_of_the_warm_up_match_the_published_code(
    case: str, dtype: torch.dtype, golden: Golden, monkeypatch: pytest.MonkeyPatch
) -> None:
    stored, suffix, name = golden("X_in2r_network"), SUFFIX[dtype], f"warmup.{case}"
    value = 1e-9 if suffix else 1e-4
    method = method_of(stored, dtype, Masks() if case == "dropout" else None, monkeypatch)
    batch = network_batches(stored, dtype, "lu")["l"][0]
    with torch.no_grad():
        losses = method.pair_losses(method.networks[0].eval()(batch).similarities)
    assert_near(losses, stored[f"division.loss{suffix}"], value)
    step, base = Steps(method), state_of(stored, "A.", dtype)
    method.warmup_step(0, batch, step)
    terms = [step.terms[term] for term in ("matching", "images", "captions")]
    assert_near(terms, stored[f"{name}.terms{suffix}"], value)
    assert_near(step.losses[0], stored[f"{name}.loss{suffix}"], value)
    assert_near(step.norms[0], stored[f"{name}.grad_norm{suffix}"], value)
    if f"{name}.grad.img_enc.fc.weight{suffix}" in stored:
        gradients = state_of(stored, f"{name}.grad.", dtype, suffix)
        near = gradients_near(dtype, 1e-3, 1e-7)
        vanishing = ["mlp.layers.0.bias"]  # before a batch normalisation
        assert_gradients(
            method.networks[0], "vse_infinity", base, gradients, some=True, vanishing=vanishing, **near
        )
    if case == "dropout" and suffix:
        method = method_of(stored, dtype, Masks(), monkeypatch)
        method.warmup_step(0, batch, Steps(method, float(stored["learning_rate"])))
        assert_state(method.networks[0].state_dict(), base, state_of(stored, f"{name}.after.", dtype, suffix))


def assert_state(found: dict[str, Tensor], base: dict[str, Tensor], after: dict[str, Tensor]) -> None:
    """Compare all weights and statistics of a network after a step."""
    wanted = network_of("vse_infinity", base | after).state_dict()
    for name, want in wanted.items():
        if want.is_floating_point() and name not in RUNNING_MEANS:
            assert_near(found[name], want, 1e-6, scale=1, name=name)


def gradients_by_name(loss: Tensor, module: nn.Module) -> dict[str, Tensor]:
    names, weights = zip(*module.named_parameters(), strict=True)
    found = torch.autograd.grad(loss, weights, retain_graph=True, allow_unused=True)
    return dict(zip(names, found, strict=True))


class Watched:
    """A step that keeps what the golden trajectories hold.

    Attributes:
        rows: network, three hinge losses, two rectifying ones, length of the gradients of encoders and refiners.
        memories: pointer and fill of the network's memory after the step.
        gradients: of all weights of the network and its refiners, of the steps that are asked for.
        states: of both after these steps.
    """

    def __init__(self, method: IN2R, masks: Masks | None, rate: float, wanted: set[int]) -> None:
        self.method, self.masks, self.inner, self.wanted = method, masks, Steps(method, rate), wanted
        self.rows: list[list[float]] = []
        self.gradients: dict[int, list[dict[str, Tensor]]] = {}
        self.states: dict[int, list[dict[str, Tensor]]] = {}

    def __call__(self, modules: list[nn.Module], loss: Tensor, batch: Batch, **options: Any) -> None:
        number, k = len(self.rows), list(self.method.networks).index(modules[0])
        if number in self.wanted:
            self.gradients[number] = [gradients_by_name(loss, module) for module in modules]
        self.inner(modules, loss, batch, **options)
        if number in self.wanted:
            self.states[number] = [{n: x.clone() for n, x in m.state_dict().items()} for m in modules]
        terms = self.inner.terms
        hinge = [terms[name] for name in ("matching", "images", "captions")]
        rectified = [terms.get(f"{side}_rectification", 0.0) for side in ("image", "caption")]
        assert loss.item() == pytest.approx(sum(hinge) + sum(rectified) / 2)
        norms = [w.grad.norm() for m in modules[1:] for w in m.parameters()]
        refiners = torch.stack(norms).norm().item() if norms else 0.0
        memory = self.method.stores[k]
        pushed, size = int(memory.pushed), len(memory.images)
        place = (pushed - 1) % size + 1 if pushed else 0
        self.rows.append([k, *hinge, *rectified, self.inner.norms[-1], refiners, place, pushed > size])
        if self.masks is not None:
            self.masks.next_step()


@pytest.mark.parametrize("dtype", PRECISIONS)
@pytest.mark.parametrize("case", ["plain", "dropout"])
def test_trajectory_matches_the_published_code(
    case: str, dtype: torch.dtype, golden: Golden, monkeypatch: pytest.MonkeyPatch
) -> None:
    stored, suffix, name = golden("X_in2r_network"), SUFFIX[dtype], f"trajectory.{case}"
    masks = Masks() if case == "dropout" else None
    method, sets = method_of(stored, dtype, masks, monkeypatch), network_batches(stored, dtype, "lu")
    batches = StoredBatches(*sets["l"], *sets["u"])
    for memory, letter in zip(method.clean_probability, "AB", strict=True):
        for number, batch in enumerate(sets["l"]):
            memory.write(batch.pair_ids, tensor(stored[f"batch.l{number}.prob_{letter}"]))
    monkeypatch.setattr(method, "co_divide", lambda *_: None)
    monkeypatch.setattr(method, "storing_threshold", lambda k, _: tensor(stored[f"mean_{'AB'[k]}"]))
    monkeypatch.setattr(
        method, "divided_batches", lambda k, _, noisy: zip(sets["l"], cycle(sets["u"]), strict=False)
    )
    found: dict[int, list[Tensor]] = {}

    def recorded(queries: Tensor, others: Tensor, k: int) -> Tensor:
        places = nearest(queries, others, k)
        found.setdefault(len(step.rows), []).append(places)
        return places

    monkeypatch.setattr(in2r, "nearest", recorded)
    wanted = {
        int(number) for key in stored for number in re.findall(rf"{name}\.step(\d+)\.(?:grad|after)\.", key)
    }
    step = Watched(method, masks, float(stored["learning_rate"]), wanted)
    for epoch in range(len(stored[f"{name}.network"]) // (2 * len(sets["l"]))):
        method.train_epoch(EpochPlan(0, epoch, "train", 1.0), batches, step)

    rows = np.array(step.rows, dtype=np.float64)
    hinge, norm = (1e-6, 1e-5) if suffix else (1e-3, 1e-2)
    np.testing.assert_array_equal(rows[:, 0], stored[f"{name}.network"])
    np.testing.assert_array_equal(rows[:, 8], stored[f"{name}.pointer"])
    np.testing.assert_array_equal(rows[:, 9], stored[f"{name}.full"])
    assert_near(rows[:, 1:4], stored[f"{name}.hinge{suffix}"], hinge)
    assert_near(rows[:, 4:6], stored[f"{name}.rectified{suffix}"], hinge)
    assert_near(rows[:, 6], stored[f"{name}.grad_norm{suffix}"], norm)
    assert_near(rows[:, 7], stored[f"{name}.refiner_grad_norm{suffix}"], norm)
    numbers = {int(re.findall(r"\d+", key)[0]) for key in names_between(stored, name, ".nearest_images")}
    assert found.keys() == numbers
    for number, places in found.items():
        for side, each in zip(("images", "captions"), places, strict=True):
            np.testing.assert_array_equal(each, stored[f"{name}.step{number}.nearest_{side}"])
    if suffix:
        assert_trained(stored, name, method, step)
        for k, letter in enumerate("AB"):
            for side in ("images", "captions"):
                have, want = getattr(method.stores[k], side), stored[f"{name}.memory_{side}_{letter}__f64"]
                assert_near(have, want, 1e-6, scale=1)
        assert_similarities(method, sets["l"][0], stored, name)


def assert_trained(stored: Arrays, name: str, method: IN2R, step: Watched) -> None:
    """Compare the gradients and the states of network and refiners in the steps that hold them."""
    for number in step.wanted:
        network, *refiners = step.gradients[number]
        base = state_of(stored, f"{'AB'[int(step.rows[number][0])]}.", torch.float64)
        prefix = f"{name}.step{number}.grad."
        if f"{prefix}img_enc.fc.weight__f64" in stored:
            gradients = state_of(stored, prefix, torch.float64, "__f64")
            holder = network_of("vse_infinity", base)
            for key, weight in holder.named_parameters():
                weight.grad = network[key]
            near = {"relative": 1e-6, "of_all": 1e-7}
            assert_gradients(holder, "vse_infinity", base, gradients, some=True, **near)
            largest = max(x.abs().max().item() for x in gradients.values())
            assert_refiners(refiners[0], stored, prefix, 0.1 * largest)
        prefix = f"{name}.step{number}.after."
        if f"{prefix}img_enc.fc.weight__f64" in stored:
            trained, refiner = step.states[number]
            assert_state(trained, base, state_of(stored, prefix, torch.float64, "__f64"))
            assert_refiners(refiner, stored, prefix, 1.0)


def assert_refiners(found: dict[str, Tensor], stored: Arrays, prefix: str, scale: float) -> None:
    """Compare gradients or weights of both refiners of a network."""
    for way in REFINERS:
        for key in names_between(stored, f"{prefix}{way}_refiner.", "__f64"):
            if not key.startswith(UNUSED):
                assert_stored(
                    found[f"{way}.{key}"], stored, f"{prefix}{way}_refiner.{key}__f64", 1e-6, scale=scale
                )


@pytest.mark.parametrize("dtype", PRECISIONS)
def test_centring_matches_the_published_code(dtype: torch.dtype, golden: Golden) -> None:
    stored, suffix = golden("X_in2r_eval"), SUFFIX[dtype]
    units = {side: tensor(stored[f"{side}_units"], dtype) for side in ("image", "caption")}
    per_image = len(units["caption"]) // len(units["image"])
    rows = units["image"].repeat_interleave(per_image, dim=0)
    size, centring = int(stored["batch_size"]), Centring(rows.shape[1]).to(dtype)
    near = 1e-9 if suffix else 1e-5
    in_blocks = [
        torch.cat([centring(block) for block in each.split(size)]) for each in (rows, units["caption"])
    ]
    images, captions = in_blocks[0][::per_image], in_blocks[1]
    assert_near(images, stored[f"published.images{suffix}"], near, scale=1)
    assert_near(captions, stored[f"published.captions{suffix}"], near, scale=1)
    assert_near(images @ captions.T, stored[f"published.sims{suffix}"], 1e-6, scale=1)
    if suffix:
        whole = [centring(each) for each in units.values()]
        assert_near(whole[0] @ whole[1].T, stored["whole_set.sims__f64"], 1e-9, scale=1)
        plain = units["image"] @ units["caption"].T
        assert_near(plain, stored["uncentred.sims__f64"], 1e-9, scale=1)


def test_a_vector_does_not_depend_on_those_beside_it_in_evaluation() -> None:
    centring, vectors = Centring(4), torch.randn(6, 4, generator=torch.Generator().manual_seed(0)) + 1
    for _ in range(60):
        centring(vectors)
    assert_near(centring.mean, vectors.mean(dim=0), 1e-2)
    centring.eval()
    assert torch.equal(centring(vectors)[:1], centring(vectors[:1]))


def test_the_division_centres_by_the_batch_and_leaves_the_running_mean() -> None:
    torch.manual_seed(0)
    config = VSEInfinity.Config(embed_size=8, word_dim=4, centred=True, caption_mlp=True)
    method = IN2R(
        IN2RConfig(word_change=0, region_change=0), Setting(20, 3, 9, lambda: VSEInfinity(config, 6, 3, 9))
    )
    lengths = torch.full((20,), 3)
    batch = Batch(torch.rand(20, 3, 6), lengths, torch.randint(1, 9, (20, 3)), lengths, torch.arange(20))
    method.co_divide(EpochPlan(0, 0, "train", 1.0), StoredBatches(batch))
    expected = []
    with torch.no_grad():
        for network in method.networks.eval():
            images, captions = (
                side.vectors for side in network.encode(batch)
            )  # the running mean is still zero
            images, captions = (functional.normalize(side - side.mean(dim=0)) for side in (images, captions))
            expected.append(mean_triplet(images @ captions.T, method.config.margin))
    assert_near(method.divided_by, torch.stack(expected).mean(dim=0), 1e-5)
    for network in method.networks:
        assert not network.centre_images.by_batch
        assert network.centre_images.mean.tolist() == [0] * 8


def test_a_batch_of_one_and_equal_vectors_stay_finite() -> None:
    for n in (1, 3):
        vectors = torch.ones(n, 4).requires_grad_()
        centred = Centring(4)(vectors)
        losses = robust_loss(centred @ centred.T, TAU) + hardest_triplet(centred @ centred.T, 0.2)
        losses.sum().backward()
        assert losses.isfinite().all()
        assert vectors.grad.isfinite().all()


def test_only_chosen_pairs_are_stored_and_the_newest_overwrite_the_oldest() -> None:
    memory, vectors = Memory(5, 1), torch.arange(12.0)[:, None]
    for batch, chosen in zip(vectors.split(4), ([1, 0, 1, 1], [0, 0, 0, 0], [1, 1, 1, 0]), strict=True):
        memory.push(batch, -batch, batch[:, 0].long(), torch.tensor(chosen).bool())
    assert memory.images[:, 0].tolist() == [10, 2, 3, 8, 9]
    assert memory.image_ids.tolist() == [10, 2, 3, 8, 9]
    assert torch.equal(memory.captions, -memory.images)
    assert len(memory) == 5


def test_both_networks_start_equal() -> None:
    config = VSEInfinity.Config(embed_size=8, word_dim=4, centred=True, caption_mlp=True)
    method = IN2R(IN2RConfig(), Setting(200, 3, 9, lambda: VSEInfinity(config, 6, 3, 9)))
    first, second = (network.state_dict() for network in method.networks)
    assert all(torch.equal(first[name], second[name]) for name in first)
    assert method.networks[0].words.embedding.weight is not method.networks[1].words.embedding.weight


@pytest.mark.parametrize(
    ("options", "message"),
    [({"heads": 3}, "heads is 3, which does not divide .* 4"), ({"memory": 1}, "memory is 1, .* 2 pairs")],
)
def test_sizes_that_do_not_fit_are_one_sentence(options: dict[str, int], message: str) -> None:
    with pytest.raises(RecipeError, match=message):
        plain_method(10, **options)
