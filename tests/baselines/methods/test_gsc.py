"""GSC and GSC+ against the published code's numbers, and the life of their labels over epochs."""

import copy

import pytest
import torch
from numpy.random import RandomState
from support.doubles import Steps, StoredBatches
from support.parity import FILES, assert_trajectory, encoded, network_of
from support.rounding import assert_near

from baselines.backbones.vse_infinity import VSEInfinity, VSEInfinityConfig
from baselines.kit.batches import Batch
from baselines.kit.losses import info_nce, matching_probability
from baselines.kit.method import Setting
from baselines.methods.gsc import (
    GSC,
    GSCConfig,
    GSCPlus,
    Indicators,
    intra_modal_indicator,
    intra_modal_loss,
    structural_agreement,
)

CODES = {"E_gsc": GSC, "E_gscplus": GSCPlus}
TARGETS = ("targets_ones_f32", "targets_random")
ROUNDED = 2e-5
"""Of similarities within a modality, where squares of small differences lose digits of float32; the backbones'
parity test compares them in float64, to 1e-9."""
EVERY_CODE = pytest.mark.parametrize("code", CODES)
EVERY_TARGET = pytest.mark.parametrize("targets", TARGETS)


@pytest.fixture(params=["sgr", "saf"])
def backbone(request):
    return request.param


@pytest.fixture
def one_network(single, backbone):
    """Make a single network on the batch of group A with its own stored labels, compared as a code does."""

    def make(code, targets):
        stored, weights = single(code), single(FILES[backbone])
        setting = Setting(int(stored["n_data"]), 36, 50, lambda: weights.network(backbone))
        method = GSC(GSCConfig(), setting)
        method.variant = CODES[code].variant
        if targets == "targets_random":
            method.indicators[0].label.values.copy_(stored("targets_random"))
        return stored, method, weights.batch(ids=stored("ids"), order=stored[f"{backbone}.batch_order"])

    return make


@EVERY_CODE
@pytest.mark.parametrize("temperature", [0.07, 1.0])
def test_contrast_and_indicator_match_the_published_code(code, temperature, single):
    stored, start = single(code), "infonce.scores."
    for matrix in stored.names(start):
        start_of = f"infonce.{matrix}.temp{temperature}."
        expected = {
            name: (stored[f"{start_of}rows.{name}"] + stored[f"{start_of}cols.{name}"]) / 2
            for name in ("loss", "preds", "grad_of_sum")
        }
        similarities = stored.leaf(start + matrix)
        loss = info_nce(similarities, temperature)
        loss.sum().backward()
        assert_near(loss, expected["loss"], 1e-5, scale=1)
        assert_near(matching_probability(similarities, temperature), expected["preds"], 1e-5, scale=1)
        # near probability 1, float32 leaves only rounding
        assert_near(similarities.grad, expected["grad_of_sum"], 2e-4, scale=0.1, name=matrix)


@pytest.mark.parametrize("mode", ["eval", "train"])
@EVERY_TARGET
@EVERY_CODE
def test_one_step_matches_the_published_code(code, backbone, targets, mode, one_network, single):
    stored, method, batch = one_network(code, targets)
    prefix, network = f"{backbone}.{mode}.{targets}.", method.networks[0].train(mode == "train")
    step = Steps(method)
    with torch.no_grad():
        buffers = copy.deepcopy(network.state_dict())
        images, captions = encoded(network, batch)
        similarities = network.similarities(images, captions)
        between = {
            "img": network.image_image_similarities(images, method.variant),
            "cap": network.caption_caption_similarities(captions, method.variant),
        }
        network.load_state_dict(buffers)
    labels = method.indicators[0].label.read(batch.pair_ids)
    stored.near(similarities, f"{prefix}sims", 1e-5)
    for name, found in between.items():
        stored.near(labels * found, f"{prefix}sims_{name}", ROUNDED)
    structures = [stored(f"{prefix}sims_{name}") for name in between]
    stored.near(structural_agreement(*structures), f"{prefix}stored_topos", 1e-5)
    stored.near(intra_modal_loss(*structures, labels, 1.0), f"{prefix}loss_topo", 1e-5)
    method.train_step(0, batch, step)
    own = method.indicators[0]
    for memory, name in ((own.seen_cross_modal, "preds"), (own.seen_agreement, "topos")):
        stored.near(memory.read(batch.pair_ids), f"{prefix}stored_{name}", 2e-5)
    for term, name in (("cross_modal", "loss_cl"), ("intra_modal", "loss_topo")):
        assert_near(step.terms[term], stored[prefix + name].mean(), 1e-5)
    near = {"absolute": 0, "noise": 1e-4, "some": False}
    base = single(FILES[backbone]).state()
    stored.near_step(step, prefix, base, backbone, single=2e-4, slope=2e-4, **near)


@EVERY_TARGET
@EVERY_CODE
def test_trajectory_matches_the_published_code(code, backbone, targets, one_network):
    stored, method, batch = one_network(code, targets)
    step, start = Steps(method.train(), 2e-3), f"{backbone}.trajectory.{targets}.loss_"
    (length,) = stored.names(start)
    for _ in stored[start + length]:
        method.train_step(0, batch, step)
    assert_trajectory(step.losses, stored[start + length])


@pytest.mark.parametrize("backbone", ["sgr"], indirect=True)
def test_an_epoch_with_all_labels_at_one_is_the_published_warm_up(one_network):
    """GSC+ only: the warm-up of GSC leaves out one direction and one term, and never ran."""
    stored, method, batch = one_network("E_gscplus", "targets_ones_f32")
    step = Steps(method.train())
    method.train_step(0, batch, step)
    terms = {"": step.losses[-1], "_cl": step.terms["cross_modal"], "_topo": step.terms["intra_modal"]}
    for name, found in terms.items():
        assert_near(found, stored[f"warmup.loss{name}"].mean(), 1e-5)


def near_labels(indicators, stored, prefix, suffix="", near=1e-5):
    for memory, name in (
        (indicators.intra_modal, "topo_targets"),
        (indicators.cross_modal, "preds_targets"),
        (indicators.label, "targets"),
    ):
        stored.near(memory.values, f"{prefix}.{name}{suffix}", near)


@EVERY_CODE
def test_labels_after_each_epoch_match_the_published_code(code, single):
    stored = single(code)
    n_pairs = len(stored["split.epoch0.topos"])
    indicators, ids = Indicators(n_pairs), torch.arange(n_pairs)
    for prefix in sorted(stored.names("", ".prob")):
        agreement, seed = stored(f"{prefix}.topos"), int(stored[f"{prefix}.np_seed"])
        stored.near(intra_modal_indicator(agreement, RandomState(seed)), f"{prefix}.prob", 1e-5)
        indicators.seen_cross_modal.write(ids, stored(f"{prefix}.preds"))
        indicators.seen_agreement.write(ids, agreement)
        indicators.update(ids, GSCConfig(), RandomState(seed))
        near_labels(indicators, stored, prefix)


def test_two_networks_exchange_labels_as_the_published_code(single):
    stored, state = single("E_gscplus"), single(FILES["sgr"]).state()
    both = iter([network_of("sgr", x) for x in (state, state | stored.state("duo.B_weights."))])
    n_pairs = len(stored["duo.targets_A_before"])
    method = GSCPlus(GSCConfig(), Setting(n_pairs, 36, 50, lambda: next(both)))
    for own, name in zip(method.indicators, "AB", strict=True):
        own.label.values.copy_(stored(f"duo.targets_{name}_before"))
    batches = [
        stored.batch(f"duo.batch{j}.", ids=torch.tensor(ids)) for j, ids in enumerate(stored["duo.ids"])
    ]
    step = Steps(method, 2e-4)
    method.train_epoch(method.plan()[0], StoredBatches(*batches), step)
    expected = [float(stored[f"duo.batch{j}.loss_{name}"]) for j in (0, 1) for name in "AB"]
    assert_trajectory(step.losses, expected, 1e-5, 1e-3)
    random_state = RandomState(int(stored["duo.np_seed"]))
    for own, name in zip(method.indicators, "AB", strict=True):
        for memory, what in ((own.seen_agreement, "topos"), (own.seen_cross_modal, "preds")):
            stored.near(memory.values, f"duo.{name}.{what}", 1e-3)
        for memory in (own.cross_modal, own.intra_modal):
            memory.values.fill_(1.0)
        own.update(torch.arange(n_pairs), method.config, random_state)
        near_labels(own, stored, f"duo.{name}", "_after", near=2e-3)


def small_method(kind, n_pairs, **options):
    backbone = VSEInfinity(VSEInfinityConfig(embed_size=8, word_dim=4), 3, 5, 20)
    return kind(GSCConfig(**options), Setting(n_pairs, 5, 20, lambda: copy.deepcopy(backbone)))


def random_batch(first, last):
    n, random = last - first, torch.Generator().manual_seed(first + last)
    features, tokens = torch.rand(n, 5, 3, generator=random), torch.randint(1, 20, (n, 6), generator=random)
    return Batch(features, torch.full((n,), 5), tokens, torch.full((n,), 6), torch.arange(first, last))


@pytest.mark.parametrize("kind", [GSC, GSCPlus])
def test_labels_start_at_one_and_those_of_visited_pairs_change_at_the_end_of_an_epoch(kind):
    method = small_method(kind, 50, epochs=2)
    own, seen = method.indicators[0], []

    def step(network, loss, batch, **terms):
        seen.append(own.label.values.clone())

    batches = StoredBatches(random_batch(0, 20), random_batch(20, 40))
    method.train_epoch(method.plan()[0], batches, step)
    assert len(seen) == 2 * method.n_networks
    assert all((labels == 1).all() for labels in seen)
    assert (own.label.values[:40] < 1).any()
    assert (own.label.values[40:] == 1).all()
    assert torch.equal(own.label.values, torch.minimum(own.cross_modal.values, own.intra_modal.values))
    assert_near(own.cross_modal.values[:40], 0.3 + 0.7 * own.seen_cross_modal.values[:40])


def test_without_l_im_the_label_is_the_cross_modal_indicator_alone():
    method, batch = small_method(GSC, 8, intra_modal=False), random_batch(0, 8)
    step = Steps(method)
    method.train_epoch(method.plan()[0], StoredBatches(batch), step)
    (own,) = method.indicators
    assert step.losses == pytest.approx([step.terms["cross_modal"]])
    assert torch.equal(own.label.values, own.cross_modal.values)
    assert (own.label.values > own.intra_modal.values).any()


def test_labels_stay_at_one_for_the_epochs_of_the_warm_up():
    method, batch = small_method(GSCPlus, 8, epochs=4, warmup_epochs=3), random_batch(0, 8)
    still = []
    for plan in method.plan():
        method.train_epoch(plan, StoredBatches(batch), Steps(method))
        still.append(all(bool((own.label.values == 1).all()) for own in method.indicators))
    assert still == [True, True, False, False]
