"""IN2R against the published code's numbers, and what it does where that code stops or errs."""

import re
from itertools import cycle

import numpy as np
import pytest
import torch
from support.doubles import FixedSimilarities, Steps, StoredBatches, bare_batch
from support.parity import encoded, network_batches, network_of
from support.refusals import refused
from support.rounding import assert_near
from support.two_networks import assert_similarities, mixtures_of
from torch import nn
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
UNCOMPARED = ("num_batches_tracked", "centre_images.mean", "centre_captions.mean")
"""Counters, and running means, of which the published code stores none."""
UNUSED = "edge_nn."
REFINERS = ("i2t", "t2i")
SIDES = ("images", "captions")
TRAIN = EpochPlan(0, 0, "train", 1.0)
EVERY_CASE = pytest.mark.parametrize("case", ["plain", "dropout"])


class Masks:
    """Dropout by the masks of the index; the same element is dropped in every run.

    Attributes:
        step: of the optimiser, from 0.
        passes: forward passes of each role in this step.
    """

    def __init__(self):
        self.step, self.passes = 0, {}

    def next_step(self):
        self.step, self.passes = self.step + 1, {}


class Masked(nn.Module):
    """In place of a dropout layer; role 0: regions, 1: words, 2 and 3: refiners."""

    def __init__(self, masks, role, p):
        super().__init__()
        self.masks, self.role, self.p = masks, role, p

    def forward(self, x):
        if not self.training:
            return x
        number = self.masks.passes.get(self.role, 0)
        self.masks.passes[self.role] = number + 1
        c = 100 * self.masks.step + 10 * self.role + number
        numbers = torch.arange(x.numel()).view(x.shape)
        kept = (7919 * numbers + 104729 * c) % 1000 >= 1000 * self.p
        return x * kept / (1 - self.p)


def centred(network, masks):
    """A network that centres as published, and drops by the masks or not at all."""
    for centring in (network.centre_images, network.centre_captions):
        centring.by_batch = True
    if masks is not None:
        network.region_dropout, network.words.dropout = Masked(masks, 0, 0.3), Masked(masks, 1, 0.3)
    return network


def refiner_of(stored, prefix):
    """A stored refiner without dropout."""
    names = [name for name in stored.names(prefix) if not name.startswith(UNUSED)]
    state = {name: stored(prefix + name) for name in names if not name.endswith("__f64")}
    refiner = Refiner(len(state["layer_norm.weight"]), IN2RConfig().heads, 0.0).to(stored.dtype)
    refiner.load_state_dict(state)
    return refiner


def test_losses_and_their_gradients_match_the_published_code(precise):
    stored = precise("X_in2r_losses")
    for matrix in stored.names("scores."):
        for kind, loss_of in {
            "robust": lambda s: robust_loss(s, TAU).mean(),
            "division": lambda s: mean_triplet(s, IN2RConfig().margin),
            "hinge0.2": lambda s: hardest_triplet(s, 0.2).sum(),
            "hinge0.3": lambda s: hardest_triplet(s, 0.3).sum(),
        }.items():
            scores, name = stored.leaf(f"scores.{matrix}"), f"{matrix}.{kind}"
            loss = loss_of(scores)
            loss.sum().backward()
            stored.near(loss, f"{name}.value", 1e-5, 1e-9, scale=1)
            if not (matrix == "all_equal" and kind.startswith("hinge")):
                stored.near(scores.grad, f"{name}.grad", 2e-4, scale=5e-2)


@pytest.mark.parametrize("form", ["published", "paper"])
def test_rectification_and_its_gradients_match(form, precise):
    stored = precise("X_in2r_losses")
    if not stored.has(f"rectified.{form}.value"):  # the paper's in float64 alone
        pytest.skip("not stored")
    v, u, t, w = vectors = [stored.leaf(f"rectified.{name}") for name in "VUTW"]
    of_images, of_captions = rectification(v, t, u, TAU, form), rectification(u, w, v, TAU, form)
    loss = (of_images.mean() + of_captions.mean()) / 2
    loss.backward()
    stored.near(loss, f"rectified.{form}.value", 1e-5, 1e-9)
    for name, each in zip("VUTW", vectors, strict=True):
        stored.near(each.grad, f"rectified.{form}.grad_{name}", 2e-4)


def test_refiners_match_the_published_code(precise):
    stored = precise("X_in2r_refiner")
    for name in stored.results("", ".prototype"):
        case, _, rate = name.partition(".dropout")
        refiner = refiner_of(stored, "refiner.").train()
        refiner.dropout = Masked(Masks(), 2, float(rate))
        neighbours = stored.leaf(f"{case}.neighbours")
        prototype = refiner(neighbours)
        (prototype * stored(f"{case}.R")).sum().backward()
        stored.near(prototype, f"{name}.prototype", 1e-5, 1e-9)
        stored.near(neighbours.grad, f"{name}.grad_neighbours", scale=0.1)
        for key, weight in refiner.named_parameters():
            stored.near(weight.grad, f"{name}.grad.{key}", scale=0.1)


def test_memory_and_prototypes_match_the_published_code(precise):
    stored = precise("X_in2r_refiner")
    k, *queries = (stored(f"queue.{x}") for x in ("k", "query_images", "query_captions"))
    refiners = [refiner_of(stored, f"{name}.") for name in ("refiner", "refiner_t2i")]
    memory, retrieved = Memory(int(stored["queue.size"]), queries[0].shape[1]).to(stored.dtype), 0
    for number in sorted(int(j) for j in stored.names("queue.push", ".images")):
        pushed = [stored(f"queue.push{number}.{x}") for x in SIDES]
        memory.push(*pushed, torch.arange(len(pushed[0])), torch.ones(len(pushed[0])).bool())
        after = f"queue.after{number}."
        assert [pointer_of(memory), int(memory.pushed) > len(memory.images)] == [
            stored[f"{after}pointer"],
            stored[f"{after}full"],
        ]
        for name in SIDES:
            assert torch.equal(getattr(memory, name)[: len(memory)], stored(after + name)[: len(memory)]), (
                number
            )
        if f"{after}nearest_images" not in stored:
            assert len(memory) < int(k)
            continue
        retrieved += 1
        for side, query, other, refiner, name in zip(
            SIDES, queries, SIDES[::-1], refiners, ("text", "image"), strict=True
        ):
            found = nearest(query, getattr(memory, side)[: len(memory)], int(k))
            stored.equal(found, f"{after}nearest_{side}")
            prototype = refiner(getattr(memory, other)[found])
            stored.near(prototype, f"{after}{name}_prototype", 1e-5, 1e-9)
    assert retrieved


def pointer_of(memory):
    """The published one stands at the end until the next push."""
    return (int(memory.pushed) - 1) % len(memory.images) + 1 if memory.pushed else 0


def plain_method(n_pairs, **options):
    def network():
        similarities = FixedSimilarities(torch.eye(2))
        similarities.embed_size = 4
        return similarities

    return IN2R(IN2RConfig(**options), Setting(n_pairs, 1, 5, network, 2))


def test_mixtures_divisions_and_what_is_stored_match_the_published_code(single):
    stored = single("X_in2r_division")
    for case, both in mixtures_of(stored).items():
        methods = {}
        for faults in ("published", "repaired"):
            method = methods[faults] = plain_method(len(stored[f"{case}.loss_A"]), faults=faults)
            for memory, probability in zip(method.clean_probability, both, strict=True):
                memory.values.copy_(probability)
        batches = StoredBatches(bare_batch(method.setting.n_pairs))
        for k, (network, probability) in enumerate(zip("AB", both, strict=True)):
            stored.equal(exceeds(probability, 0.5), f"{case}.clean_{network}")
            threshold = methods["published"].storing_threshold(k, batches)
            stored.near(threshold, f"{case}.mean_{network}", 1e-6)
            assert_stores(methods["published"], k, threshold, stored[f"{case}.stored_{network}"])
        assert_stores(method, 0, method.storing_threshold(0, batches), stored[f"{case}.stored_A_matched"])
    for case in stored.names("direct.", ".prob"):
        stored.equal(exceeds(stored(f"direct.{case}.prob"), 0.5), f"direct.{case}.clean")


def assert_stores(method, k, threshold, want):
    """But for pairs whose probability is the threshold."""
    probability = method.clean_probability[1 - k].values
    found = method.is_clean(probability) & method.is_stored(probability, threshold)
    apart = (probability.double() - threshold.double()).abs() > 1e-7
    np.testing.assert_array_equal(found[apart], want[apart.numpy()])


@pytest.mark.parametrize(("faults", "n_stored"), [("published", 0), ("repaired", 90)])
def test_where_the_mixture_is_sure_pairs_are_stored_all_the_same(faults, n_stored):
    probability = torch.cat([torch.ones(90), torch.full((10,), 0.1)])
    method = plain_method(100, faults=faults)
    for memory in method.clean_probability:
        memory.values.copy_(probability)
    threshold = method.storing_threshold(0, StoredBatches(bare_batch(100)))
    assert method.is_stored(probability, threshold).sum() == n_stored


@pytest.mark.parametrize("mode", ["eval", "train", "train_dropout"])
def test_the_backbone_matches_the_published_code(mode, precise):
    stored = precise("X_in2r_backbone")
    network = centred(stored.network("vse_infinity"), Masks() if mode == "train_dropout" else None)
    network.train(mode != "eval")
    units = []
    for centring in (network.centre_images, network.centre_captions):
        centring.register_forward_pre_hook(lambda module, inputs: units.append(inputs[0]))
    images, captions = encoded(network, stored.batch())
    found = {"image_units": units[0], "caption_units": units[1]}
    found |= {"images": images.vectors, "captions": captions.vectors}
    for name, each in (found | {"sims": network.similarities(images, captions)}).items():
        stored.near(each, f"{mode}.{name}", 1e-5, 1e-9)
    sum((found[name] * stored(f"in.R_{name}")).sum() for name in SIDES).backward()
    stored.near_gradients(network, f"{mode}.grad.", stored.state(), "vse_infinity")
    if mode == "train":
        moved = network_of("vse_infinity", stored.state() | stored.wanted("train.after."))
        for name, want in moved.named_buffers():
            if not name.endswith(UNCOMPARED):
                near = 1e-9 if stored.double else 1e-5
                assert_near(network.get_buffer(name), want, near, scale=1, name=name)


@pytest.fixture
def on_networks(monkeypatch):
    """Make a method of both stored networks and their refiners; batches are not augmented."""
    monkeypatch.setattr(IN2R, "augmented", lambda method, batch: batch)

    def make(stored, masks):
        batches = network_batches(stored, "lu")
        n_pairs = sum(len(batch) for each in batches.values() for batch in each)
        size = len(stored["trajectory.plain.memory_images_A__f64"])
        neighbours = next(x.shape[1] for name, x in stored.items() if name.endswith(".nearest_images"))
        networks = [stored.network("vse_infinity", f"{letter}.") for letter in "AB"]
        setting = Setting(n_pairs, 1, 1, lambda: networks[0], len(batches["l"][0]))
        method = IN2R(IN2RConfig(memory=size, neighbours=neighbours, faults="published"), setting)
        method.to(stored.dtype).networks[1].load_state_dict(networks[1].state_dict())
        for k, letter in enumerate("AB"):
            centred(method.networks[k], masks)
            for role, way in enumerate(REFINERS, start=2):
                method.refiners[k][way] = refiner_of(stored, f"{letter}.{way}_refiner.")
                if masks is not None:
                    method.refiners[k][way].dropout = Masked(masks, role, 0.1)
        return method

    return make


@EVERY_CASE
def test_losses_of_the_division_and_a_step_of_the_warm_up_match_the_published_code(
    case, precise, on_networks
):
    stored, start = precise("X_in2r_network"), f"warmup.{case}."
    masks, base = Masks() if case == "dropout" else None, stored.state("A.")
    method, batch = on_networks(stored, masks), network_batches(stored, "lu")["l"][0]
    with torch.no_grad():
        losses = method.pair_losses(method.networks[0].eval()(batch).similarities)
    stored.near(losses, "division.loss")
    step = Steps(method)
    method.warmup_step(0, batch, step)
    terms = {"terms": [step.terms[term] for term in ("matching", *SIDES)]}
    vanishing = ["mlp.layers.0.bias"]  # before a batch normalisation
    stored.near_step(step, start, base, "vse_infinity", terms=terms, vanishing=vanishing)


class Watched:
    """A step that keeps what the golden trajectories hold.

    Attributes:
        rows: network, three hinge losses, two rectifying ones, length of the gradients of encoders and refiners,
            pointer and fill of the network's memory after the step.
    """

    def __init__(self, method, masks, rate):
        self.method, self.masks, self.inner = method, masks, Steps(method, rate)
        self.rows = []

    def __call__(self, modules, loss, batch, **options):
        k = list(self.method.networks).index(modules[0])
        self.inner(modules, loss, batch, **options)
        terms, memory = self.inner.terms, self.method.stores[k]
        hinge = [terms[name] for name in ("matching", *SIDES)]
        rectified = [terms.get(f"{side}_rectification", 0.0) for side in ("image", "caption")]
        assert loss.item() == pytest.approx(sum(hinge) + sum(rectified) / 2)
        norms = [w.grad.norm() for m in modules[1:] for w in m.parameters()]
        refiners = torch.stack(norms).norm().item() if norms else 0.0
        full = int(memory.pushed) > len(memory.images)
        self.rows.append([k, *hinge, *rectified, self.inner.norms[-1], refiners, pointer_of(memory), full])
        if self.masks is not None:
            self.masks.next_step()


@EVERY_CASE
def test_trajectory_matches_the_published_code(case, precise, on_networks, monkeypatch):
    stored, start = precise("X_in2r_network"), f"trajectory.{case}."
    masks = Masks() if case == "dropout" else None
    method, sets = on_networks(stored, masks), network_batches(stored, "lu")
    for memory, letter in zip(method.clean_probability, "AB", strict=True):
        for number, batch in enumerate(sets["l"]):
            memory.write(batch.pair_ids, tensor_of(stored, f"batch.l{number}.prob_{letter}"))
    monkeypatch.setattr(method, "co_divide", lambda *_: None)
    monkeypatch.setattr(method, "storing_threshold", lambda k, _: tensor_of(stored, f"mean_{'AB'[k]}"))
    divided = lambda k, _, noisy: zip(sets["l"], cycle(sets["u"]), strict=False)  # noqa: E731
    monkeypatch.setattr(method, "divided_batches", divided)
    found = {}

    def recorded(queries, others, k):
        places = nearest(queries, others, k)
        found.setdefault(len(step.rows), []).append(places)
        return places

    monkeypatch.setattr(in2r, "nearest", recorded)
    step = Watched(method, masks, float(stored["learning_rate"]))
    for epoch in range(len(stored[f"{start}network"]) // (2 * len(sets["l"]))):
        batches = StoredBatches(*sets["l"], *sets["u"])
        method.train_epoch(EpochPlan(0, epoch, "train", 1.0), batches, step)

    rows = np.array(step.rows, dtype=np.float64)
    for name, column in (("network", 0), ("pointer", 8), ("full", 9)):
        stored.equal(rows[:, column], start + name)
    for name, columns in (("hinge", slice(1, 4)), ("rectified", slice(4, 6))):
        stored.near(rows[:, columns], start + name, 1e-3, 1e-6)
    for name, column in (("grad_norm", 6), ("refiner_grad_norm", 7)):
        stored.near(rows[:, column], start + name, 1e-2, 1e-5)
    assert found.keys() == {int(n) for key in stored for n in re.findall(rf"{start}step(\d+).nearest", key)}
    for number, places in found.items():
        for side, each in zip(SIDES, places, strict=True):
            stored.equal(each, f"{start}step{number}.nearest_{side}")
    if stored.double:
        for k, letter in enumerate("AB"):
            for side in SIDES:
                stored.near(getattr(method.stores[k], side), f"{start}memory_{side}_{letter}", 0, 1e-6)
        assert_similarities(method, sets["l"][0], stored, start)


def tensor_of(stored, name):
    """In the precision it is stored in."""
    return torch.from_numpy(stored[name].copy())


def test_centring_matches_the_published_code(precise):
    stored = precise("X_in2r_eval")
    image_units, caption_units = (stored(f"{side}_units") for side in ("image", "caption"))
    per_image = len(caption_units) // len(image_units)
    rows, centring = image_units.repeat_interleave(per_image, dim=0), Centring(image_units.shape[1])
    images, captions = (
        torch.cat([centring.to(stored.dtype)(block) for block in each.split(int(stored["batch_size"]))])
        for each in (rows, caption_units)
    )
    images = images[::per_image]
    found = {"images": images, "captions": captions, "sims": images @ captions.T}
    for name, each in found.items():
        stored.near(each, f"published.{name}", 1e-5, 1e-6 if name == "sims" else 1e-9)
    if stored.double:
        whole = [centring(each) for each in (image_units, caption_units)]
        stored.near(whole[0] @ whole[1].T, "whole_set.sims")
        stored.near(image_units @ caption_units.T, "uncentred.sims")


def test_a_vector_does_not_depend_on_those_beside_it_in_evaluation():
    centring, vectors = Centring(4), torch.randn(6, 4, generator=torch.Generator().manual_seed(0)) + 1
    for _ in range(60):
        centring(vectors)
    assert_near(centring.mean, vectors.mean(dim=0), 1e-2)
    centring.eval()
    assert torch.equal(centring(vectors)[:1], centring(vectors[:1]))


@pytest.fixture
def small():
    """IN2R on fresh networks, without augmentation."""
    torch.manual_seed(0)
    config = VSEInfinity.Config(embed_size=8, word_dim=4, centred=True, caption_mlp=True)
    setting = Setting(20, 3, 9, lambda: VSEInfinity(config, 6, 3, 9))
    return IN2R(IN2RConfig(word_change=0, region_change=0), setting)


def test_the_division_centres_by_the_batch_and_leaves_the_running_mean(small):
    lengths = torch.full((20,), 3)
    batch = Batch(torch.rand(20, 3, 6), lengths, torch.randint(1, 9, (20, 3)), lengths, torch.arange(20))
    small.co_divide(TRAIN, StoredBatches(batch))
    expected = []
    with torch.no_grad():
        for network in small.networks.eval():  # the running mean is still zero
            images, captions = (
                functional.normalize(side.vectors - side.vectors.mean(dim=0))
                for side in network.encode(batch)
            )
            expected.append(mean_triplet(images @ captions.T, small.config.margin))
            assert not network.centre_images.by_batch
            assert network.centre_images.mean.tolist() == [0] * 8
    assert_near(small.divided_by, torch.stack(expected).mean(dim=0), 1e-5)


def test_a_batch_of_one_and_equal_vectors_stay_finite():
    for n in (1, 3):
        vectors = torch.ones(n, 4).requires_grad_()
        centred = Centring(4)(vectors)
        losses = robust_loss(centred @ centred.T, TAU) + hardest_triplet(centred @ centred.T, 0.2)
        losses.sum().backward()
        assert losses.isfinite().all()
        assert vectors.grad.isfinite().all()


def test_only_chosen_pairs_are_stored_and_the_newest_overwrite_the_oldest():
    memory, vectors = Memory(5, 1), torch.arange(12.0)[:, None]
    for batch, chosen in zip(vectors.split(4), ([1, 0, 1, 1], [0, 0, 0, 0], [1, 1, 1, 0]), strict=True):
        memory.push(batch, -batch, batch[:, 0].long(), torch.tensor(chosen).bool())
    assert memory.images[:, 0].tolist() == memory.image_ids.tolist() == [10, 2, 3, 8, 9]
    assert torch.equal(memory.captions, -memory.images)
    assert len(memory) == 5


def test_both_networks_start_equal(small):
    first, second = (network.state_dict() for network in small.networks)
    assert all(torch.equal(first[name], second[name]) for name in first)
    assert small.networks[0].words.embedding.weight is not small.networks[1].words.embedding.weight


@pytest.mark.parametrize("options", [{"heads": 3}, {"memory": 1}])
def test_sizes_that_do_not_fit_are_refused(options):
    with refused(RecipeError):
        plain_method(10, **options)
