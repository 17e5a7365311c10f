"""GSC and GSC+ against the published code's numbers, and the life of their labels over epochs."""

import copy
from typing import Any

import pytest
import torch
from numpy.random import RandomState
from support.doubles import Steps, StoredBatches
from support.parity import (
    FILES,
    Arrays,
    Golden,
    assert_gradients,
    assert_trajectory,
    batch_of,
    encoded,
    names_between,
    network_of,
    state_of,
    tensor,
)
from support.rounding import assert_near
from torch import nn

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
ON_NETWORKS = [
    pytest.mark.parametrize("code", CODES),
    pytest.mark.parametrize("backbone", ["sgr", "saf"]),
]


def one_network(code: str, backbone: str, golden: Golden, targets: str) -> tuple[GSC, Batch]:
    """A single network on the batch of group A with its own stored labels, compared as ``code`` does."""
    stored, weights = golden(code), golden(FILES[backbone])
    make = lambda: network_of(backbone, state_of(weights))  # noqa: E731
    method = GSC(GSCConfig(), Setting(int(stored["n_data"]), 36, 50, make))
    method.variant = CODES[code].variant  # type: ignore[misc]
    if targets == "targets_random":
        method.indicators[0].label.values.copy_(tensor(stored["targets_random"]))
    ids, order = tensor(stored["ids"]), stored[f"{backbone}.batch_order"]
    return method, batch_of(weights, ids=ids, order=order)


@pytest.mark.parametrize("code", CODES)
@pytest.mark.parametrize("temperature", [0.07, 1.0])
def test_contrast_and_indicator_match_the_published_code(
    code: str, temperature: float, golden: Golden
) -> None:
    stored, start = golden(code), "infonce.scores."
    for matrix in names_between(stored, start):
        start_of = f"infonce.{matrix}.temp{temperature}."
        expected = {
            name: (stored[f"{start_of}rows.{name}"] + stored[f"{start_of}cols.{name}"]) / 2
            for name in ("loss", "preds", "grad_of_sum")
        }
        similarities = tensor(stored[start + matrix]).requires_grad_()
        loss = info_nce(similarities, temperature)
        loss.sum().backward()
        assert_near(loss, expected["loss"], 1e-5, scale=1)
        found = matching_probability(similarities.detach(), temperature)
        assert_near(found, expected["preds"], 1e-5, scale=1)
        # near probability 1, float32 leaves only rounding
        assert_near(similarities.grad, expected["grad_of_sum"], 2e-4, scale=0.1, name=matrix)


@pytest.mark.parametrize("mode", ["eval", "train"])
@pytest.mark.parametrize("targets", TARGETS)
@ON_NETWORKS[0]
@ON_NETWORKS[1]
def test_one_step_matches_the_published_code(
    code: str, backbone: str, targets: str, mode: str, golden: Golden
) -> None:
    stored, prefix = golden(code), f"{backbone}.{mode}.{targets}"
    method, batch = one_network(code, backbone, golden, targets)
    method.train(mode == "train")
    step = Steps(method)
    method.train_step(0, batch, step)
    own = method.indicators[0]
    for memory, name in ((own.seen_cross_modal, "preds"), (own.seen_agreement, "topos")):
        assert_near(memory.read(batch.pair_ids), stored[f"{prefix}.stored_{name}"], 2e-5, scale=1, name=name)
    assert_losses(step, stored, prefix)
    assert step.norms == pytest.approx([float(stored[f"{prefix}.grad_norm"])], rel=2e-4)
    if (mode, targets) != ("train", "targets_ones_f32"):  # the one case whose gradients are not stored
        base, wanted = state_of(golden(FILES[backbone])), state_of(stored, f"{prefix}.grad.")
        assert_gradients(method.networks[0], backbone, base, wanted, relative=2e-4, noise=1e-4)


def assert_losses(step: Steps, stored: Arrays, prefix: str) -> None:
    assert step.losses == pytest.approx([float(stored[f"{prefix}.loss"])], rel=1e-5)
    assert step.terms["cross_modal"] == pytest.approx(stored[f"{prefix}.loss_cl"].mean(), rel=1e-5)
    assert step.terms["intra_modal"] == pytest.approx(stored[f"{prefix}.loss_topo"].mean(), rel=1e-5)


@pytest.mark.parametrize("mode", ["eval", "train"])
@ON_NETWORKS[0]
@ON_NETWORKS[1]
def test_structures_and_their_losses_match_the_published_code(
    code: str, backbone: str, mode: str, golden: Golden
) -> None:
    stored = golden(code)
    method, batch = one_network(code, backbone, golden, "targets_random")
    network = method.networks[0].train(mode == "train")
    with torch.no_grad():
        images, captions = encoded(network, batch)
        similarities = network.similarities(images, captions)
        between_images = network.image_image_similarities(images, method.variant)
        between_captions = network.caption_caption_similarities(captions, method.variant)
    for targets in TARGETS:
        prefix = f"{backbone}.{mode}.{targets}"
        assert_near(similarities, stored[f"{prefix}.sims"], 1e-5, scale=1)
        labels = torch.ones(len(batch))
        if targets == "targets_random":
            labels = tensor(stored["targets_random"]).float()[batch.pair_ids]
        weighted = [stored[f"{prefix}.sims_{name}"] for name in ("img", "cap")]
        for between, expected in zip((between_images, between_captions), weighted, strict=True):
            assert_near(labels * between, expected, ROUNDED, scale=1)
        structures = [tensor(expected).float() for expected in weighted]
        assert_near(structural_agreement(*structures), stored[f"{prefix}.stored_topos"], 1e-5, scale=1)
        assert_near(intra_modal_loss(*structures, labels, 1.0), stored[f"{prefix}.loss_topo"], 1e-5)


@pytest.mark.parametrize("targets", TARGETS)
@ON_NETWORKS[0]
@ON_NETWORKS[1]
def test_trajectory_matches_the_published_code(
    code: str, backbone: str, targets: str, golden: Golden
) -> None:
    method, batch = one_network(code, backbone, golden, targets)
    step = Steps(method.train(), 2e-3)
    (length,) = names_between(golden(code), f"{backbone}.trajectory.{targets}.loss_")
    expected = golden(code)[f"{backbone}.trajectory.{targets}.loss_{length}"]
    for _ in expected:
        method.train_step(0, batch, step)
    assert_trajectory(step.losses, expected)


@pytest.mark.parametrize("code", CODES)
def test_labels_after_each_epoch_match_the_published_code(code: str, golden: Golden) -> None:
    stored = golden(code)
    n_pairs = len(stored["split.epoch0.topos"])
    indicators, ids = Indicators(n_pairs), torch.arange(n_pairs)
    for prefix in sorted(names_between(stored, "", ".prob")):
        agreement, seed = tensor(stored[f"{prefix}.topos"]), int(stored[f"{prefix}.np_seed"])
        posterior = intra_modal_indicator(agreement, RandomState(seed))
        assert_near(posterior, stored[f"{prefix}.prob"], 1e-5, scale=1)
        indicators.seen_cross_modal.write(ids, tensor(stored[f"{prefix}.preds"]))
        indicators.seen_agreement.write(ids, agreement)
        indicators.update(ids, GSCConfig(), RandomState(seed))
        assert_labels_match(indicators, stored, prefix, "")


def test_an_epoch_with_all_labels_at_one_is_the_published_warm_up(golden: Golden) -> None:
    """GSC+ only: the warm-up of GSC leaves out one direction and one term, and never ran."""
    method, batch = one_network("E_gscplus", "sgr", golden, "targets_ones_f32")
    step = Steps(method.train())
    method.train_step(0, batch, step)
    assert_losses(step, golden("E_gscplus"), "warmup")


def assert_labels_match(
    indicators: Indicators, stored: Arrays, prefix: str, suffix: str, near: float = 1e-5
) -> None:
    for memory, name in (
        (indicators.intra_modal, "topo_targets"),
        (indicators.cross_modal, "preds_targets"),
        (indicators.label, "targets"),
    ):
        assert_near(memory.values, stored[f"{prefix}.{name}{suffix}"], near, scale=1)


def test_two_networks_exchange_labels_as_the_published_code(golden: Golden) -> None:
    stored, state = golden("E_gscplus"), state_of(golden(FILES["sgr"]))
    both = iter([network_of("sgr", x) for x in (state, state | state_of(stored, "duo.B_weights."))])
    n_pairs = len(stored["duo.targets_A_before"])
    method = GSCPlus(GSCConfig(), Setting(n_pairs, 36, 50, lambda: next(both)))
    for own, name in zip(method.indicators, "AB", strict=True):
        own.label.values.copy_(tensor(stored[f"duo.targets_{name}_before"]))
    batches = [batch_of(stored, f"duo.batch{j}.", ids=tensor(ids)) for j, ids in enumerate(stored["duo.ids"])]
    step = Steps(method, 2e-4)
    method.train_epoch(method.plan()[0], StoredBatches(*batches), step)
    expected = [float(stored[f"duo.batch{j}.loss_{name}"]) for j in (0, 1) for name in "AB"]
    assert step.losses == pytest.approx(expected, rel=1e-3)
    assert step.losses[:2] == pytest.approx(expected[:2], rel=1e-5)
    random_state = RandomState(int(stored["duo.np_seed"]))
    for own, name in zip(method.indicators, "AB", strict=True):
        for memory, what in ((own.seen_agreement, "topos"), (own.seen_cross_modal, "preds")):
            assert_near(memory.values, stored[f"duo.{name}.{what}"], 1e-3, scale=1)
        for memory in (own.cross_modal, own.intra_modal):
            memory.values.fill_(1.0)
        own.update(torch.arange(n_pairs), method.config, random_state)
        assert_labels_match(own, stored, f"duo.{name}", "_after", near=2e-3)


def small_method(kind: type[GSC], n_pairs: int, **options: Any) -> GSC:
    backbone = VSEInfinity(VSEInfinityConfig(embed_size=8, word_dim=4), 3, 5, 20)
    return kind(GSCConfig(**options), Setting(n_pairs, 5, 20, lambda: copy.deepcopy(backbone)))


def random_batch(first: int, last: int) -> Batch:
    n, random = last - first, torch.Generator().manual_seed(first + last)
    features, tokens = torch.rand(n, 5, 3, generator=random), torch.randint(1, 20, (n, 6), generator=random)
    return Batch(features, torch.full((n,), 5), tokens, torch.full((n,), 6), torch.arange(first, last))


@pytest.mark.parametrize("kind", [GSC, GSCPlus])
def test_labels_start_at_one_and_those_of_visited_pairs_change_at_the_end_of_an_epoch(
    kind: type[GSC],
) -> None:
    method = small_method(kind, 50, epochs=2)
    own, seen = method.indicators[0], list[torch.Tensor]()

    def step(network: nn.Module, loss: torch.Tensor, batch: Batch, **terms: torch.Tensor) -> None:
        seen.append(own.label.values.clone())

    batches = StoredBatches(random_batch(0, 20), random_batch(20, 40))
    method.train_epoch(method.plan()[0], batches, step)
    assert len(seen) == 2 * method.n_networks
    assert all((labels == 1).all() for labels in seen)
    assert (own.label.values[:40] < 1).any()
    assert (own.label.values[40:] == 1).all()
    assert torch.equal(own.label.values, torch.minimum(own.cross_modal.values, own.intra_modal.values))
    assert_near(own.cross_modal.values[:40], 0.3 + 0.7 * own.seen_cross_modal.values[:40])


def test_without_l_im_the_label_is_the_cross_modal_indicator_alone() -> None:
    method, batch = small_method(GSC, 8, intra_modal=False), random_batch(0, 8)
    step = Steps(method)
    method.train_epoch(method.plan()[0], StoredBatches(batch), step)
    (own,) = method.indicators
    assert step.losses == pytest.approx([step.terms["cross_modal"]])
    assert torch.equal(own.label.values, own.cross_modal.values)
    assert (own.label.values > own.intra_modal.values).any()


def test_labels_stay_at_one_for_the_epochs_of_the_warm_up() -> None:
    method, batch = small_method(GSCPlus, 8, epochs=4, warmup_epochs=3), random_batch(0, 8)
    still = []
    for plan in method.plan():
        method.train_epoch(plan, StoredBatches(batch), Steps(method))
        still.append(all(bool((own.label.values == 1).all()) for own in method.indicators))
    assert still == [True, True, False, False]
