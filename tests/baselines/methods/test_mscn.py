"""MSCN against the published code's numbers, and what it does where that code stops or leaks."""

from functools import partial
from itertools import cycle

import numpy as np
import pytest
import torch
from numpy.random import RandomState
from support.doubles import Steps, StoredBatches
from support.parity import assert_matrix_losses, gradients_of, network_of
from support.refusals import refused
from support.rounding import assert_near
from torch import nn

import baselines.methods.mscn as mscn
from baselines.kit.losses import hardest_triplet, mean_triplet
from baselines.kit.method import EpochPlan, Setting
from baselines.kit.mixture import by_moments, clamped, fitted
from baselines.methods.mscn import (
    MSCN,
    MetaNetwork,
    MSCNConfig,
    SinglePass,
    adaptive_margin,
    adaptive_triplet,
    matched_posterior,
    meta_loss,
    mismatched,
)
from ncl_bench.errors import TrainingError

MARGIN = MSCNConfig().margin
TRAIN = EpochPlan(0, 0, "train", 1.0)
META = {
    "first_hidden_layer.fc.weight": "hidden.weight",
    "first_hidden_layer.fc.bias": "hidden.bias",
    "output_layer.weight": "out.weight",
    "output_layer.bias": "out.bias",
}
CASES = pytest.mark.parametrize(
    ("rates", "gru"), [("published", "updated"), ("amplified", "updated"), ("amplified", "kept")]
)


def load_meta(head, stored, prefix):
    """Published weights of a meta network."""
    head.load_state_dict({ours: stored(prefix + theirs) for theirs, ours in META.items()})


def near_meta(found, stored, prefix, scale=0.0):
    """Compare weights or gradients of a meta network."""
    for theirs, ours in META.items():
        stored.near(found[ours], prefix + theirs, 1e-3, scale=scale)


def test_losses_and_their_gradients_match_the_published_code(single):
    stored = single("R_mscn_losses")
    margins = adaptive_margin(torch.diag(stored("probs")), MARGIN)
    stored.near(margins, "margin_of_probs", 2e-6)
    losses = {
        "warmup": lambda s: mean_triplet(s, MARGIN).sum(),
        "hard": lambda s: hardest_triplet(s, MARGIN).sum(),
        "adaptive.diag": lambda s: adaptive_triplet(s, MARGIN).sum(),
        "adaptive.probs": lambda s: hardest_triplet(s, margins[None, :]).sum(),
    }
    assert_matrix_losses(stored, losses, tied=("all_equal", "ties", "near_0_and_1"))


def test_meta_network_matches_the_published_code(precise):
    stored = precise("R_mscn_losses")
    hidden_size, sim_dim = stored["meta_net.first_hidden_layer.fc.weight"].shape
    network = MetaNetwork(sim_dim, hidden_size).to(stored.dtype)
    load_meta(network, stored, "meta_net.")
    found = network(stored("meta_net.in"))
    loss = meta_loss(found.squeeze(1), stored("meta_net.labels"))
    loss.backward()
    stored.near(found.sigmoid(), "meta_net.out", 2e-6, 1e-9)
    stored.near(loss, "meta_net.bce", 2e-6, 1e-9)
    near_meta(gradients_of(network), stored, "meta_net.grad.")


def test_purification_matches_the_published_code(single):
    stored = single("R_mscn_mixture")
    for case in stored.names("", ".train_sims"):
        trusted, labels, given = (
            torch.tensor(stored[f"{case}.{name}"]) for name in ("meta_sims", "meta_labels", "train_sims")
        )
        values = clamped(given)
        stored.equal(values, f"{case}.train_sims_clamped")
        start = by_moments(clamped(trusted), nn.functional.one_hot(labels, 2))
        for k, name in enumerate(("start_noise", "start_clean")):
            stored.near([start.alpha[k], start.beta[k]], f"{case}.{name}", 1e-6)
        mixture, _ = fitted(values, start, most_updates=10, least_gain=0.01)
        stored.near(torch.stack([mixture.alpha, mixture.beta], dim=1), f"{case}.fitted", 1e-6)
        stored.near(mixture.weights, f"{case}.weights", 1e-6)
        posterior = matched_posterior(given.double(), trusted, labels)
        stored.near(posterior, f"{case}.prob", 1e-6)
        stored.equal(posterior > 0.5, f"{case}.pred")
        for updates, row in enumerate(stored[f"{case}.updates"]):
            mixture, done = fitted(values, start, most_updates=updates, least_gain=-np.inf)
            assert done == updates
            numbers = torch.stack([mixture.alpha, mixture.beta], dim=1).flatten()
            log_likelihood = mixture.log_densities(values).logsumexp(dim=1).sum()
            assert_near(torch.cat([numbers, mixture.weights, log_likelihood[None]]), row, 1e-6)


def test_mismatched_pairs_are_drawn_as_in_the_published_code(single):
    stored = single("R_mscn_mixture")
    for case in stored.names("draw.", ".sizes"):
        name = f"draw.{case}"
        n_trusted, _, n_captions, n_images = stored[f"{name}.sizes"].tolist()
        random = RandomState(int(stored[f"{name}.np_seed"]))
        for time in ("", "_second"):
            drawn = mismatched(n_trusted, n_captions, n_images, int(stored[f"{name}.im_div"]), random)
            for found, side in zip(drawn, ("captions", "images"), strict=True):
                stored.equal(found, f"{name}.{side}{time}")


def base_state(stored):
    """The stored backbone with the last layer that it lacks."""
    sim_dim = stored["meta.first_hidden_layer.fc.weight"].shape[1]
    layer = {"weight": torch.zeros(1, sim_dim), "bias": torch.zeros(1)}
    return stored.state("net.") | {
        f"sim_enc.sim_eval_w.{name}": x.to(stored.dtype) for name, x in layer.items()
    }


class Seen(MSCN):
    """MSCN that keeps its virtual step; ``direct`` holds the virtual weights constant."""

    direct = False

    def virtual_weights(self, network, loss, learning_rate):
        virtual = super().virtual_weights(network, loss, learning_rate)
        self.seen = {"loss": loss.detach(), "virtual": virtual}
        return {name: weight.detach() for name, weight in virtual.items()} if self.direct else virtual


def method_of(stored, **options):
    """Two copies of the stored network with its meta network."""
    hidden_size = stored["meta.first_hidden_layer.fc.weight"].shape[0]
    network = partial(network_of, "sgr", base_state(stored))
    setting = Setting(100, 1, 1, network, trusted_ids=torch.arange(100, 110))
    method = Seen(MSCNConfig(hidden_size=hidden_size, **options), setting)
    for k in range(method.n_networks):
        load_meta(method.head(k).to(stored.dtype), stored, "meta.")
    return method


@pytest.fixture
def method(single):
    return method_of(single("R_mscn_network"))


def trusted_batch(stored, name):
    return stored.batch(f"batch.{name}."), stored(f"batch.{name}.labels")


@pytest.mark.parametrize("mode", ["eval", "train"])
def test_similarities_match_the_published_code(mode, precise):
    stored = precise("R_mscn_network")
    network, batch = method_of(stored).networks[0].train(mode == "train"), stored.batch("batch.t0.")
    with torch.no_grad():
        blocks = network(batch).similarities
        whole, own = (SinglePass(network)(batch, own=own).sigmoid() for own in (False, True))
    for found, name in (
        (blocks, "sims"),
        (whole, "sims"),
        (whole.diagonal(), "confidence"),
        (own[:, None], "individual"),
    ):
        stored.near(found, f"{mode}.{name}", 1e-5, 1e-9)


def test_warm_up_matches_the_published_code(precise):
    stored, plan = precise("R_mscn_network"), EpochPlan(0, 0, "warmup", 2e-4)
    batches = StoredBatches(stored.batch("batch.t0."))
    method = method_of(stored)
    step = Steps(method)
    method.train_epoch(plan, batches, step)
    assert step.losses[0] == step.losses[1]
    stored.near(step.losses[0], "warmup.loss", double=1e-9)
    network, head = method.networks[0], method.head(0)
    assert stored.near_gradients(network, "warmup.grad.net.", base_state(stored), "sgr", 2e-4)
    near_meta(gradients_of(head), stored, "warmup.grad.meta.", scale=1)
    method = method_of(stored)
    rates = [method.learning_rate(module, plan) for module in method.trained_modules()]
    method.train_epoch(plan, batches, Steps(method, rates))
    near_meta(dict(method.head(0).named_parameters()), stored, "warmup.after.meta.", scale=1)


def settings_of(stored, rates, gru):
    start = f"step.{rates}.{gru}."
    return start, float(stored[f"{start}lr"]), float(stored[f"{start}meta_lr"])


@CASES
def test_meta_step_matches_the_published_code(rates, gru, precise, monkeypatch):
    stored, of_network = precise("R_mscn_step"), precise("R_mscn_network")
    start, rate, _ = settings_of(stored, rates, gru)
    method, outputs = method_of(of_network, virtual_gru=gru), []
    monkeypatch.setattr(mscn, "meta_loss", lambda x, y: meta_loss(outputs.append(x) or x, y))
    network = method.networks[0].train()
    before = {name: x.clone() for name, x in network.state_dict().items()}
    batch, trusted = of_network.batch("batch.t0."), trusted_batch(of_network, "m0")
    for method.direct, name in ((False, "meta_grad."), (True, "meta_grad_direct_only.")):
        loss = method.loss_after_virtual_step(network, rate, batch, *trusted)
        gradients = torch.autograd.grad(loss, list(method.head(0).parameters()))
        near_meta(dict(zip(META.values(), gradients, strict=True)), stored, start + name)
    stored.near(method.seen["loss"], f"{start}pseudo_loss")
    stored.near(loss, f"{start}meta_loss")
    stored.near(outputs[0].sigmoid()[:, None], f"{start}meta_out")
    assert all(torch.equal(x, before[key]) for key, x in network.state_dict().items())


def rates_of(method, rate, meta_rate):
    return [meta_rate if isinstance(m, MetaNetwork) else rate for m in method.trained_modules()]


@CASES
def test_one_iteration_matches_the_published_code(rates, gru, precise):
    """One pass over t0 with the trusted batch m0, network 0."""
    stored, of_network = precise("R_mscn_step"), precise("R_mscn_network")
    start, rate, meta_rate = settings_of(stored, rates, gru)
    method = method_of(of_network, virtual_gru=gru)
    step = Steps(method, rates_of(method, rate, meta_rate))
    method.trusted_batches = lambda *_: cycle([trusted_batch(of_network, "m0")])
    batches = StoredBatches(of_network.batch("batch.t0."))
    method.train_network(0, EpochPlan(0, 0, "train", rate), batches, torch.empty(0), step)
    network, base = method.networks[0], base_state(of_network)
    stored.near_step(step, start, single=2e-4)
    near_meta(dict(method.head(0).named_parameters()), stored, f"{start}meta_after.", scale=1)
    if (rates, gru) == ("amplified", "updated"):
        for name, weight in network.named_parameters():
            weight.grad = step.gradients.get(name)  # before it was clipped
        assert stored.near_gradients(network, f"{start}grad.", base, "sgr", 2e-4)


@pytest.mark.parametrize("gru", ["updated", "kept"])
def test_trajectory_matches_the_published_code(gru, precise):
    stored, of_network, start = precise("R_mscn_step"), precise("R_mscn_network"), f"trajectory.{gru}."
    method = method_of(of_network, virtual_gru=gru)
    step = Steps(method, rates_of(method, 2e-3, 1e-3))
    trusted = [trusted_batch(of_network, name) for name in ("m0", "m1")]
    method.trusted_batches = lambda *_: cycle(trusted)
    after = []

    def recording(modules, *rest, **terms):
        step(modules, *rest, **terms)
        if isinstance(modules, MetaNetwork):
            after.append({name: weight.detach().clone() for name, weight in modules.named_parameters()})

    for epoch, names in ((0, "t0 t1 t2"), (30, "t1 t0")):
        rate = method.plan()[method.config.warmup_epochs + epoch].learning_rate
        scale = rate / method.config.learning_rate
        for module, lr in ((method.networks[0], 2e-3), (method.head(0), 1e-3)):
            step.optimizers[module].param_groups[0]["lr"] = lr * scale
        batches = StoredBatches(*(of_network.batch(f"batch.{name}.") for name in names.split()))
        plan = EpochPlan(0, epoch, "train", 2e-3 * scale)
        method.train_network(0, plan, batches, torch.empty(0), recording)
    stored.near(step.losses[1::2], f"{start}loss", 1e-2, 1e-6)
    stored.near(step.losses[::2], f"{start}meta_loss", 1e-2, 1e-6)
    for theirs, ours in META.items():
        found = torch.stack([values[ours] for values in after])
        stored.near(found, f"{start}meta.{theirs}", 2e-3, 1e-6)


def test_trusted_items_are_matched_ones_and_as_many_mismatched_ones(single):
    method = method_of(single("R_mscn_network"), batch_size=8)
    batches, trusted = StoredBatches(n_pairs=100, batch_size=8), method.setting.trusted_ids
    captions, images, labels = items = method.trusted_items(TRAIN, 0, batches)
    matched = labels == 1
    assert torch.equal(captions[matched], trusted)
    assert torch.equal(images[matched], trusted)
    assert len(captions[~matched].unique()) == len(trusted)
    assert (captions[~matched] != images[~matched]).all()
    assert set(captions[~matched].tolist()) <= set(range(100))
    assert torch.equal(items, method.trusted_items(TRAIN, 0, batches))
    assert not torch.equal(items, method.trusted_items(TRAIN, 1, batches))
    stream = method.trusted_batches(TRAIN, 0, batches, items)
    seen = [next(stream)[1] for _ in range(6)]
    assert [len(found) for found in seen] == [8, 8, 4] * 2
    asked = [pair for read in batches.reads[:3] for pair in zip(*read, strict=True)]
    label_of = dict(zip(zip(captions.tolist(), images.tolist(), strict=True), labels.tolist(), strict=True))
    assert sorted(asked) == sorted(label_of)
    assert torch.cat(seen[:3]).tolist() == [label_of[pair] for pair in asked]


def test_a_mixture_that_collapses_keeps_every_pair():
    labels = torch.tensor([1, 1, 0, 0])
    found = matched_posterior(torch.rand(5), torch.tensor([0.7, 0.7, 0.2, 0.3]), labels)
    assert found.tolist() == [1.0] * 5


def test_where_fewer_than_two_pairs_are_clean_all_are_trained_on(method):
    ids = torch.arange(4)
    method.clean_probability[0].write(ids, torch.tensor([0.9, 0.1, 0.2, 0.3]))
    assert method.clean_ids(0, ids).tolist() == [0, 1, 2, 3]
    method.clean_probability[0].write(ids[1:2], torch.tensor([0.8]))
    assert method.clean_ids(0, ids).tolist() == [0, 1]


def test_margins_are_finite_at_the_ends():
    assert_near(adaptive_margin(torch.diag(torch.tensor([0.0, 0.5, 1.0])), 0.2), [0, 0.1, 0.2], 1e-6)


def test_each_network_trains_on_the_division_of_the_other_one(method, monkeypatch):
    calls = []
    monkeypatch.setattr(method, "purify", lambda k, *_: calls.append(("purify", k)))
    monkeypatch.setattr(method, "train_network", lambda k, *_: calls.append(("train", k)))
    method.train_epoch(TRAIN, StoredBatches(n_pairs=100, batch_size=8), None)
    assert calls == [("purify", 0), ("train", 1), ("purify", 1), ("train", 0)]


def test_purification_reads_every_pair_and_item_by_its_own_similarity(method, single):
    stored = single("R_mscn_network")
    batch, (trusted, labels) = stored.batch("batch.t0."), trusted_batch(stored, "m0")
    batches = StoredBatches(batch)
    batches.read = lambda *_: trusted
    places = torch.arange(len(labels))
    method.purify(0, batches, torch.stack([places, places, labels]))
    network = method.networks[0].eval()
    with torch.no_grad():
        own, of_trusted = (network(b).similarities.diagonal() for b in (batch, trusted))
    expected = matched_posterior(own, of_trusted, labels)
    assert_near(method.clean_probability[0].read(batch.pair_ids), expected, 1e-4, scale=1)


def test_rates_selection_and_optimisers_follow_the_phases(method):
    plan, (network, *_, head) = method.plan(), method.trained_modules()
    for module, rates in ((network, [2e-4, 2e-4, 2e-4, 2e-5]), (head, [2e-4, 1.7e-5, 1.7e-5, 1.7e-6])):
        assert [method.learning_rate(module, plan[k]) for k in (0, 5, 34, 35)] == pytest.approx(rates)
    assert [k for k, epoch in enumerate(plan) if epoch.new_optimizers] == [5]
    assert [k for k, epoch in enumerate(plan) if not epoch.select] == [0, 1, 2, 3]
    optimizers = (method.make_optimizer(module, 1.0) for module in method.trained_modules())
    trained = [weight for o in optimizers for group in o.param_groups for weight in group["params"]]
    assert sorted(map(id, trained)) == sorted(map(id, method.networks.parameters()))


def test_a_backbone_without_a_last_layer_is_refused():
    with refused(TrainingError):
        MSCN(MSCNConfig(), Setting(4, 1, 1, nn.Identity, trusted_ids=torch.arange(4)))


def test_more_trusted_pairs_than_others_are_refused(method):
    with refused(TrainingError):
        method.trusted_items(TRAIN, 0, StoredBatches(n_pairs=9, batch_size=8))
