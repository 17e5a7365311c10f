"""MSCN against the published code's numbers, and what it does where that code stops or leaks."""

from collections.abc import Iterator
from functools import partial
from itertools import cycle
from typing import Any

import numpy as np
import pytest
import torch
from numpy.random import RandomState
from support.doubles import Steps, StoredBatches
from support.parity import (
    PRECISIONS,
    SUFFIX,
    Arrays,
    Golden,
    assert_gradients,
    assert_matrix_losses,
    assert_weights,
    batch_of,
    gradients_near,
    gradients_of,
    names_between,
    network_of,
    state_of,
    tensor,
)
from support.rounding import assert_near, assert_stored
from torch import Tensor, nn

import baselines.methods.mscn as mscn
from baselines.kit.backbone import Backbone
from baselines.kit.batches import Batch
from baselines.kit.losses import hardest_triplet, mean_triplet
from baselines.kit.method import EpochPlan, Setting
from baselines.kit.mixture import by_moments, fitted
from baselines.methods.mscn import (
    MSCN,
    MetaNetwork,
    MSCNConfig,
    SinglePass,
    adaptive_margin,
    adaptive_triplet,
    clamped,
    matched_posterior,
    meta_loss,
    mismatched,
)
from ncl_bench.errors import TrainingError

TIED = ("all_equal", "ties", "near_0_and_1")
SGR = partial(network_of, "sgr")
MARGIN = MSCNConfig().margin
META = {
    "first_hidden_layer.fc.weight": "hidden.weight",
    "first_hidden_layer.fc.bias": "hidden.bias",
    "output_layer.weight": "out.weight",
    "output_layer.bias": "out.bias",
}
CASES = [("published", "updated"), ("amplified", "updated"), ("amplified", "kept")]


def load_meta(head: nn.Module, stored: Arrays, prefix: str) -> None:
    """Published weights of a meta network."""
    head.load_state_dict({ours: tensor(stored[prefix + theirs]) for theirs, ours in META.items()})


def assert_meta(
    found: dict[str, Tensor], stored: Arrays, prefix: str, suffix: str, tolerance: float, scale: float = 0.0
) -> None:
    """Weights or gradients of a meta network."""
    for theirs, ours in META.items():
        assert_stored(found[ours], stored, f"{prefix}{theirs}{suffix}", tolerance, scale=scale)


def values_of(head: nn.Module) -> dict[str, Tensor]:
    return {name: weight.detach().clone() for name, weight in head.named_parameters()}


def test_losses_and_their_gradients_match_the_published_code(golden: Golden) -> None:
    stored = golden("R_mscn_losses")
    probabilities = tensor(stored["probs"])
    margins = adaptive_margin(torch.diag(probabilities), MARGIN)
    assert_near(margins, stored["margin_of_probs"], 2e-6)
    losses: dict[str, Any] = {
        "warmup": lambda s: mean_triplet(s, MARGIN).sum(),
        "hard": lambda s: hardest_triplet(s, MARGIN).sum(),
        "adaptive.diag": lambda s: adaptive_triplet(s, MARGIN).sum(),
        "adaptive.probs": lambda s: hardest_triplet(s, margins[None, :]).sum(),
    }
    assert_matrix_losses(stored, losses, slope=(2e-4, 0), tied=TIED)


@pytest.mark.parametrize("dtype", PRECISIONS)
def test_meta_network_matches_the_published_code(dtype: torch.dtype, golden: Golden) -> None:
    stored, suffix = golden("R_mscn_losses"), SUFFIX[dtype]
    value, slope = (1e-9, 1e-9) if suffix else (2e-6, 2e-4)
    hidden_size, sim_dim = stored["meta_net.first_hidden_layer.fc.weight"].shape
    network = MetaNetwork(sim_dim, hidden_size).to(dtype)
    load_meta(network, stored, "meta_net.")
    found = network(tensor(stored["meta_net.in"], dtype))
    loss = meta_loss(found.squeeze(1), tensor(stored["meta_net.labels"]))
    loss.backward()
    assert_stored(found.sigmoid(), stored, f"meta_net.out{suffix}", value)
    assert_stored(loss, stored, f"meta_net.bce{suffix}", value)
    assert_meta(gradients_of(network), stored, "meta_net.grad.", suffix, slope)


def test_purification_matches_the_published_code(golden: Golden) -> None:
    stored = golden("R_mscn_mixture")
    for case in names_between(stored, "", ".train_sims"):
        trusted, labels, given = (
            tensor(stored[f"{case}.{name}"]) for name in ("meta_sims", "meta_labels", "train_sims")
        )
        values = clamped(given)
        np.testing.assert_array_equal(values, stored[f"{case}.train_sims_clamped"])
        start = by_moments(clamped(trusted), nn.functional.one_hot(labels, 2))
        for k, name in enumerate(("start_noise", "start_clean")):
            assert_near([start.alpha[k], start.beta[k]], stored[f"{case}.{name}"], 1e-6)
        mixture, _ = fitted(values, start, most_updates=10, least_gain=0.01)
        found = torch.stack([mixture.alpha, mixture.beta], dim=1)
        assert_near(found, stored[f"{case}.fitted"], 1e-6)
        assert_near(mixture.weights, stored[f"{case}.weights"], 1e-6)
        posterior = matched_posterior(given.double(), trusted, labels)
        assert_near(posterior, stored[f"{case}.prob"], 1e-6)
        np.testing.assert_array_equal(posterior > 0.5, stored[f"{case}.pred"])
        for updates, row in enumerate(stored[f"{case}.updates"]):
            mixture, done = fitted(values, start, most_updates=updates, least_gain=-np.inf)
            assert done == updates
            numbers = torch.stack([mixture.alpha, mixture.beta], dim=1).flatten()
            log_likelihood = mixture.log_densities(values).logsumexp(dim=1).sum()
            found = torch.cat([numbers, mixture.weights, log_likelihood[None]])
            assert_near(found, row, 1e-6)


def test_mismatched_pairs_are_drawn_as_in_the_published_code(golden: Golden) -> None:
    stored = golden("R_mscn_mixture")
    for case in names_between(stored, "draw.", ".sizes"):
        name = f"draw.{case}"
        n_trusted, _, n_captions, n_images = stored[f"{name}.sizes"].tolist()
        random = RandomState(int(stored[f"{name}.np_seed"]))
        for time in ("", "_second"):
            drawn = mismatched(n_trusted, n_captions, n_images, int(stored[f"{name}.im_div"]), random)
            for found, side in zip(drawn, ("captions", "images"), strict=True):
                np.testing.assert_array_equal(found, stored[f"{name}.{side}{time}"])


def base_state(stored: Arrays, dtype: torch.dtype | None = None) -> dict[str, Tensor]:
    """The stored backbone with the last layer that it lacks."""
    state = state_of(stored, "net.", dtype)
    sim_dim = stored["meta.first_hidden_layer.fc.weight"].shape[1]
    number = next(iter(state.values())).dtype
    return state | {
        "sim_enc.sim_eval_w.weight": torch.zeros(1, sim_dim, dtype=number),
        "sim_enc.sim_eval_w.bias": torch.zeros(1, dtype=number),
    }


def method_of(golden: Golden, dtype: torch.dtype, **options: Any) -> MSCN:
    """Two copies of the stored network with its meta network."""
    stored = golden("R_mscn_network")
    hidden_size = stored["meta.first_hidden_layer.fc.weight"].shape[0]
    setting = Setting(
        100, 1, 1, lambda: network_of("sgr", base_state(stored, dtype)), trusted_ids=torch.arange(100, 110)
    )
    method = MSCN(MSCNConfig(hidden_size=hidden_size, **options), setting)
    for k in range(method.n_networks):
        load_meta(method.head(k).to(dtype), stored, "meta.")
    return method


def stored_batch(golden: Golden, name: str, dtype: torch.dtype) -> Batch:
    return batch_of(golden("R_mscn_network"), f"batch.{name}.", dtype)


def trusted_batch(golden: Golden, name: str, dtype: torch.dtype) -> tuple[Batch, Tensor]:
    return stored_batch(golden, name, dtype), tensor(golden("R_mscn_network")[f"batch.{name}.labels"])


@pytest.mark.parametrize("dtype", PRECISIONS)
@pytest.mark.parametrize("mode", ["eval", "train"])
def test_similarities_match_the_published_code(mode: str, dtype: torch.dtype, golden: Golden) -> None:
    stored, suffix = golden("R_mscn_network"), SUFFIX[dtype]
    near = 1e-9 if suffix else 1e-5
    network = method_of(golden, dtype).networks[0].train(mode == "train")
    batch = stored_batch(golden, "t0", dtype)
    with torch.no_grad():
        blocks = network(batch).similarities
        whole, own = (SinglePass(network)(batch, own=own).sigmoid() for own in (False, True))
    for found in (blocks, whole):
        assert_stored(found, stored, f"{mode}.sims{suffix}", near, scale=1)
    assert_stored(whole.diagonal(), stored, f"{mode}.confidence{suffix}", near, scale=1)
    assert_stored(own[:, None], stored, f"{mode}.individual{suffix}", near, scale=1)


@pytest.mark.parametrize("dtype", PRECISIONS)
def test_warm_up_matches_the_published_code(dtype: torch.dtype, golden: Golden) -> None:
    stored, suffix = golden("R_mscn_network"), SUFFIX[dtype]
    value, after = (1e-9, 1e-8) if suffix else (3e-5, 1e-5)
    gradients = state_of(stored, "warmup.grad.net.", dtype, suffix)
    largest = max(x.abs().max().item() for x in gradients.values())
    plan = EpochPlan(0, 0, "warmup", 2e-4)
    batches = StoredBatches(stored_batch(golden, "t0", dtype))
    method = method_of(golden, dtype)
    step = Steps(method)
    method.train_epoch(plan, batches, step)
    assert step.losses == pytest.approx([float(stored[f"warmup.loss{suffix}"])] * 2, rel=value)
    near = gradients_near(dtype, 2e-4)
    assert_gradients(method.networks[0], "sgr", base_state(stored), gradients, some=True, **near)
    slope, scale = (1e-9, largest) if suffix else (2e-4, 0)
    assert_meta(gradients_of(method.head(0)), stored, "warmup.grad.meta.", suffix, slope, scale=scale)
    method = method_of(golden, dtype)
    rates = [method.learning_rate(module, plan) for module in method.trained_modules()]
    method.train_epoch(plan, batches, Steps(method, rates))
    assert_meta(values_of(method.head(0)), stored, "warmup.after.meta.", suffix, after, scale=1)


class Seen(MSCN):
    """MSCN that keeps its virtual step; ``direct`` holds the virtual weights constant."""

    direct = False

    def virtual_weights(self, network: nn.Module, loss: Tensor, learning_rate: float) -> dict[str, Tensor]:
        virtual = super().virtual_weights(network, loss, learning_rate)
        self.seen = {"loss": loss.detach(), "rate": learning_rate, "virtual": virtual}
        return {name: weight.detach() for name, weight in virtual.items()} if self.direct else virtual


def seen_method(golden: Golden, dtype: torch.dtype, gru: str) -> Seen:
    method = method_of(golden, dtype, virtual_gru=gru)
    method.__class__ = Seen
    return method  # type: ignore[return-value]


def settings_of(stored: Arrays, rates: str, gru: str) -> tuple[str, float, float]:
    start = f"step.{rates}.{gru}."
    return start, float(stored[start + "lr"]), float(stored[start + "meta_lr"])


@pytest.mark.parametrize("dtype", PRECISIONS)
@pytest.mark.parametrize(("rates", "gru"), CASES)
def test_meta_step_matches_the_published_code(
    rates: str, gru: str, dtype: torch.dtype, golden: Golden, monkeypatch: pytest.MonkeyPatch
) -> None:
    stored, suffix = golden("R_mscn_step"), SUFFIX[dtype]
    value = 1e-9 if suffix else 3e-5
    slope = 1e-8 if suffix else {"published": 5e-4, "amplified": 1e-3}[rates]
    start, rate, _ = settings_of(stored, rates, gru)
    method, outputs = seen_method(golden, dtype, gru), []
    monkeypatch.setattr(mscn, "meta_loss", lambda x, y: meta_loss(outputs.append(x) or x, y))
    network = method.networks[0].train()
    before = {name: x.clone() for name, x in network.state_dict().items()}
    batch, trusted = stored_batch(golden, "t0", dtype), trusted_batch(golden, "m0", dtype)
    for direct in (False, True):
        method.direct = direct
        loss = method.loss_after_virtual_step(network, rate, batch, *trusted)
        gradients = torch.autograd.grad(loss, list(method.head(0).parameters()))
        found = dict(zip(META.values(), gradients, strict=True))
        name = "meta_grad_direct_only." if direct else "meta_grad."
        assert_meta(found, stored, start + name, suffix, slope)
    assert_near(method.seen["loss"], stored[f"{start}pseudo_loss{suffix}"], value)
    assert_near(loss.item(), stored[f"{start}meta_loss{suffix}"], value)
    assert_stored(
        outputs[0].sigmoid()[:, None], stored, f"{start}meta_out{suffix}", 1e-9 if suffix else 2e-5, scale=1
    )
    for key, x in network.state_dict().items():
        assert torch.equal(x, before[key]), key


@pytest.mark.parametrize("dtype", PRECISIONS)
@pytest.mark.parametrize("rates", ["published", "amplified"])
def test_virtual_step_matches_the_published_code(rates: str, dtype: torch.dtype, golden: Golden) -> None:
    stored, suffix = golden("R_mscn_step"), SUFFIX[dtype]
    start, rate, _ = settings_of(stored, rates, "updated")
    key = f"{start}pseudo_grad."
    if f"{key}img_enc.fc.weight{suffix}" not in stored:
        assert (rates, suffix) == ("published", "__f64")  # the one that is not stored
        return
    method = seen_method(golden, dtype, "updated")
    network, base = method.networks[0].train(), base_state(golden("R_mscn_network"))
    batch, trusted = stored_batch(golden, "t0", dtype), trusted_batch(golden, "m0", dtype)
    method.loss_after_virtual_step(network, 1.0, batch, *trusted)
    weights = dict(network.named_parameters())
    for name, virtual in method.seen["virtual"].items():
        weights[name].grad = weights[name].detach() - virtual.detach()
    gradients = state_of(stored, key, dtype, suffix)
    assert_gradients(network, "sgr", base, gradients, some=True, **gradients_near(dtype, 2e-4))
    if rates == "amplified":
        method.loss_after_virtual_step(network, rate, batch, *trusted)
        expected, near = state_of(stored, f"{start}virtual.", dtype, suffix), 1e-8 if suffix else 1e-4
        virtual = method.seen["virtual"]
        assert_weights(virtual, SGR, base, expected, relative=near, absolute=near, some=True)


def rates_of(method: MSCN, rate: float, meta_rate: float) -> list[float]:
    return [meta_rate if isinstance(m, MetaNetwork) else rate for m in method.trained_modules()]


@pytest.mark.parametrize("dtype", PRECISIONS)
@pytest.mark.parametrize(("rates", "gru"), CASES)
def test_one_iteration_matches_the_published_code(
    rates: str, gru: str, dtype: torch.dtype, golden: Golden
) -> None:
    """One pass over t0 with the trusted batch m0, network 0."""
    stored, suffix = golden("R_mscn_step"), SUFFIX[dtype]
    value, norm = (1e-9, 1e-8) if suffix else (3e-5, 2e-4)
    start, rate, meta_rate = settings_of(stored, rates, gru)
    method = seen_method(golden, dtype, gru)
    step = Steps(method, rates_of(method, rate, meta_rate))
    trusted, batches = trusted_batch(golden, "m0", dtype), StoredBatches(stored_batch(golden, "t0", dtype))
    method.trusted_batches = lambda *_: cycle([trusted])  # type: ignore[method-assign]
    method.train_network(0, EpochPlan(0, 0, "train", rate), batches, torch.empty(0), step)
    assert_near(step.losses[1], stored[f"{start}loss{suffix}"], value)
    assert_near(step.norms[1], stored[f"{start}grad_norm{suffix}"], norm)
    after = 1e-8 if suffix else 1e-5 if rates == "published" else 1e-4
    assert_meta(values_of(method.head(0)), stored, f"{start}meta_after.", suffix, after, scale=1)
    if (rates, gru) != ("amplified", "updated"):
        return
    network, base = method.networks[0], base_state(golden("R_mscn_network"))
    moved = {name: weight.detach().clone() for name, weight in network.named_parameters()}
    for name, weight in network.named_parameters():
        weight.grad = step.gradients.get(name)
    gradients = state_of(stored, f"{start}grad.", dtype, suffix)
    assert_gradients(network, "sgr", base, gradients, some=True, **gradients_near(dtype, 2e-4))
    if suffix:
        noise = [name for name, x in step.gradients.items() if x.abs().max() <= 1e-9]  # moves as far
        after = state_of(stored, f"{start}after.", dtype, suffix)
        assert_weights(moved, SGR, base, after, relative=1e-6, absolute=1e-6, some=True, left_out=noise)


@pytest.mark.parametrize("dtype", PRECISIONS)
@pytest.mark.parametrize("gru", ["updated", "kept"])
def test_trajectory_matches_the_published_code(gru: str, dtype: torch.dtype, golden: Golden) -> None:
    stored, suffix, start = golden("R_mscn_step"), SUFFIX[dtype], f"trajectory.{gru}."
    meta_near, loss_near = (1e-6, 1e-6) if suffix else (2e-3, 1e-2)
    method = seen_method(golden, dtype, gru)
    step = Steps(method, rates_of(method, 2e-3, 1e-3))
    trusted = [trusted_batch(golden, name, dtype) for name in ("m0", "m1")]
    method.trusted_batches = lambda *_: cycle(trusted)  # type: ignore[method-assign]
    after: list[dict[str, Tensor]] = []

    def recording(modules: Any, *rest: Any, **terms: Any) -> None:
        step(modules, *rest, **terms)
        if isinstance(modules, MetaNetwork):
            after.append(values_of(modules))

    for epoch, names in ((0, "t0 t1 t2"), (30, "t1 t0")):
        rate = method.plan()[method.config.warmup_epochs + epoch].learning_rate
        scale = rate / method.config.learning_rate
        for module, lr in ((method.networks[0], 2e-3), (method.head(0), 1e-3)):
            step.optimizers[module].param_groups[0]["lr"] = lr * scale
        batches = StoredBatches(*(stored_batch(golden, name, dtype) for name in names.split()))
        method.train_network(
            0, EpochPlan(0, epoch, "train", 2e-3 * scale), batches, torch.empty(0), recording
        )
    assert_near(step.losses[1::2], stored[f"{start}loss{suffix}"], loss_near)
    assert_near(step.losses[::2], stored[f"{start}meta_loss{suffix}"], loss_near)
    for theirs, ours in META.items():
        found = torch.stack([values[ours] for values in after])
        assert_stored(found, stored, f"{start}meta.{theirs}{suffix}", meta_near, scale=1)


def test_trusted_items_are_matched_ones_and_as_many_mismatched_ones(golden: Golden) -> None:
    method, batches = method_of(golden, torch.float32, batch_size=8), StoredBatches(n_pairs=100, batch_size=8)
    plan, trusted = EpochPlan(0, 3, "train", 1.0), method.setting.trusted_ids
    captions, images, labels = items = method.trusted_items(plan, 0, batches)
    matched = labels == 1
    assert torch.equal(captions[matched], trusted)
    assert torch.equal(images[matched], trusted)
    assert len(captions[~matched].unique()) == len(trusted)
    assert (captions[~matched] != images[~matched]).all()
    assert set(captions[~matched].tolist()) <= set(range(100))
    assert torch.equal(items, method.trusted_items(plan, 0, batches))
    assert not torch.equal(items, method.trusted_items(plan, 1, batches))
    stream: Iterator[tuple[Batch, Tensor]] = method.trusted_batches(plan, 0, batches, items)
    seen = [next(stream) for _ in range(6)]
    assert [len(found) for _, found in seen] == [8, 8, 4] * 2
    asked = [pair for read in batches.reads[:3] for pair in zip(*read, strict=True)]
    assert sorted(asked) == sorted(zip(captions.tolist(), images.tolist(), strict=True))
    label_of = dict(zip(zip(captions.tolist(), images.tolist(), strict=True), labels.tolist(), strict=True))
    assert torch.cat([found for _, found in seen[:3]]).tolist() == [label_of[pair] for pair in asked]


def test_a_mixture_that_collapses_keeps_every_pair() -> None:
    labels = torch.tensor([1, 1, 0, 0])
    found = matched_posterior(torch.rand(5), torch.tensor([0.7, 0.7, 0.2, 0.3]), labels)
    assert found.tolist() == [1.0] * 5


def test_where_fewer_than_two_pairs_are_clean_all_are_trained_on(golden: Golden) -> None:
    method, ids = method_of(golden, torch.float32), torch.arange(4)
    method.clean_probability[0].write(ids, torch.tensor([0.9, 0.1, 0.2, 0.3]))
    assert method.clean_ids(0, ids).tolist() == [0, 1, 2, 3]
    method.clean_probability[0].write(ids[1:2], torch.tensor([0.8]))
    assert method.clean_ids(0, ids).tolist() == [0, 1]


def test_margins_are_finite_at_the_ends() -> None:
    assert_near(adaptive_margin(torch.diag(torch.tensor([0.0, 0.5, 1.0])), 0.2), [0, 0.1, 0.2], 1e-6)


def test_each_network_trains_on_the_division_of_the_other_one(
    golden: Golden, monkeypatch: pytest.MonkeyPatch
) -> None:
    method, calls = method_of(golden, torch.float32), []
    monkeypatch.setattr(method, "purify", lambda k, *_: calls.append(("purify", k)))
    monkeypatch.setattr(method, "train_network", lambda k, *_: calls.append(("train", k)))
    method.train_epoch(EpochPlan(0, 0, "train", 1.0), StoredBatches(n_pairs=100, batch_size=8), None)
    assert calls == [("purify", 0), ("train", 1), ("purify", 1), ("train", 0)]


def test_purification_reads_every_pair_and_item_by_its_own_similarity(golden: Golden) -> None:
    method = method_of(golden, torch.float32)
    batch = stored_batch(golden, "t0", torch.float32)
    batches = StoredBatches(batch)
    batches.read = lambda *_: stored_batch(golden, "m0", torch.float32)  # type: ignore[method-assign]
    labels = trusted_batch(golden, "m0", torch.float32)[1]
    items = torch.stack([torch.arange(len(labels)), torch.arange(len(labels)), labels])
    method.purify(0, batches, items)
    network = method.networks[0].eval()
    with torch.no_grad():
        own, trusted = (
            network(b).similarities.diagonal() for b in (batch, stored_batch(golden, "m0", torch.float32))
        )
    expected = matched_posterior(own, trusted, labels)
    assert_near(method.clean_probability[0].read(batch.pair_ids), expected, 1e-4, scale=1)


def test_rates_selection_and_optimisers_follow_the_phases(golden: Golden) -> None:
    method = method_of(golden, torch.float32)
    plan, (network, *_, head) = method.plan(), method.trained_modules()
    for module, rates in ((network, [2e-4, 2e-4, 2e-4, 2e-5]), (head, [2e-4, 1.7e-5, 1.7e-5, 1.7e-6])):
        assert [method.learning_rate(module, plan[k]) for k in (0, 5, 34, 35)] == pytest.approx(rates)
    assert [k for k, epoch in enumerate(plan) if epoch.new_optimizers] == [5]
    assert [k for k, epoch in enumerate(plan) if not epoch.select] == [0, 1, 2, 3]
    trained = [
        weight
        for module in method.trained_modules()
        for group in method.make_optimizer(module, 1.0).param_groups
        for weight in group["params"]
    ]
    assert sorted(map(id, trained)) == sorted(map(id, method.networks.parameters()))


class NoHead(nn.Module):
    """A backbone without a last layer."""


@pytest.mark.parametrize(
    ("network", "trusted", "message"),
    [
        (NoHead, 4, "NoHead has none; set the backbone to sgr or saf"),
        (None, 1, "trusted_pairs of at least 2"),
    ],
)
def test_what_it_cannot_train_is_refused(
    network: type[Backbone] | None, trusted: int, message: str, golden: Golden
) -> None:
    make: Any = network or (lambda: network_of("sgr", base_state(golden("R_mscn_network"))))
    with pytest.raises(TrainingError, match=message):
        MSCN(MSCNConfig(), Setting(4, 1, 1, make, trusted_ids=torch.arange(trusted)))


def test_more_trusted_pairs_than_others_are_refused(golden: Golden) -> None:
    with pytest.raises(TrainingError, match="set trusted_pairs lower"):
        method_of(golden, torch.float32).trusted_items(
            EpochPlan(0, 0, "train", 1.0), 0, StoredBatches(n_pairs=9, batch_size=8)
        )
