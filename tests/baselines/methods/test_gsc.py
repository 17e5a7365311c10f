"""GSC and GSC+ against the published code's numbers, and the life of their labels over epochs."""

import copy
import dataclasses
from typing import Any

import numpy as np
import pytest
import torch
from numpy.random import RandomState
from support.method_parity import (
    BACKBONE_FILES,
    Arrays,
    Golden,
    GradientStep,
    OptimizerStep,
    assert_gradients_match,
    assert_trajectory_matches,
    batches_of,
    gradient_norm,
    only,
    published_batch,
    published_network,
    published_setting,
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
CONTRAST = ("loss", "preds", "grad_of_sum")
TARGETS = ("targets_ones_f32", "targets_random")
ROUNDED = 2e-5
"""Of similarities within a modality, where squares of small differences lose digits of float32; the backbones'
parity test compares them in float64, to 1e-9."""


def one_network(code: str, backbone: str, golden: Golden, targets: str) -> tuple[GSC, Batch]:
    """A single network on the batch of group A with its own stored labels, compared as ``code`` does."""
    stored = golden(code)
    method = GSC(GSCConfig(), published_setting(backbone, golden, int(stored["n_data"])))
    method.variant = CODES[code].variant  # type: ignore[misc]
    if targets == "targets_random":
        method.indicators[0].label.values.copy_(torch.from_numpy(stored["targets_random"]))
    pair_ids = torch.from_numpy(stored["ids"])
    batch = published_batch(golden(BACKBONE_FILES[backbone]), stored[f"{backbone}.batch_order"], pair_ids)
    return method, batch


@pytest.mark.parametrize("code", CODES)
@pytest.mark.parametrize("temperature", [0.07, 1.0])
def test_contrast_and_indicator_match_the_published_code(
    code: str, temperature: float, golden: Golden
) -> None:
    stored, start = golden(code), "infonce.scores."
    matrices = [name.removeprefix(start) for name in stored if name.startswith(start)]
    assert matrices
    for matrix in matrices:
        rows, columns = (
            {name: stored[f"infonce.{matrix}.temp{temperature}.{side}.{name}"] for name in CONTRAST}
            for side in ("rows", "cols")
        )
        expected = {name: (rows[name] + columns[name]) / 2 for name in CONTRAST}
        similarities = torch.from_numpy(stored[start + matrix].copy()).requires_grad_()
        loss = info_nce(similarities, temperature)
        loss.sum().backward()
        assert_near(loss, expected["loss"], 1e-5, scale=1)
        indicator = matching_probability(similarities.detach(), temperature)
        assert_near(indicator, expected["preds"], 5e-6, scale=1)
        gradient = expected["grad_of_sum"]  # near probability 1, float32 leaves only rounding
        assert_near(similarities.grad, gradient, 2e-4, scale=0.1, name=matrix)


@pytest.mark.parametrize("code", CODES)
@pytest.mark.parametrize("backbone", ["sgr", "saf"])
@pytest.mark.parametrize("targets", TARGETS)
@pytest.mark.parametrize("mode", ["eval", "train"])
def test_one_step_matches_the_published_code(
    code: str, backbone: str, targets: str, mode: str, golden: Golden
) -> None:
    stored, prefix = golden(code), f"{backbone}.{mode}.{targets}"
    method, batch = one_network(code, backbone, golden, targets)
    step = GradientStep()
    method.train(mode == "train")
    method.train_step(0, batch, step)
    own, ids = method.indicators[0], batch.pair_ids
    for memory, name in ((own.seen_cross_modal, "preds"), (own.seen_agreement, "topos")):
        expected = stored[f"{prefix}.stored_{name}"]
        assert_near(memory.read(ids), expected, 2e-5, scale=1, name=name)
    assert step.loss == pytest.approx(float(stored[f"{prefix}.loss"]), rel=1e-5)
    assert step.terms["cross_modal"] == pytest.approx(stored[f"{prefix}.loss_cl"].mean(), rel=1e-5)
    assert step.terms["intra_modal"] == pytest.approx(stored[f"{prefix}.loss_topo"].mean(), rel=1e-5)
    network = method.networks[0]
    assert gradient_norm(network) == pytest.approx(float(stored[f"{prefix}.grad_norm"]), rel=2e-4)
    if (mode, targets) != ("train", "targets_ones_f32"):  # the one case whose gradients are not stored
        assert_gradients_match(network, published_network(backbone, golden, f"{prefix}.grad.", stored))


@pytest.mark.parametrize("code", CODES)
@pytest.mark.parametrize("backbone", ["sgr", "saf"])
@pytest.mark.parametrize("mode", ["eval", "train"])
def test_structures_and_their_losses_match_the_published_code(
    code: str, backbone: str, mode: str, golden: Golden
) -> None:
    stored = golden(code)
    method, batch = one_network(code, backbone, golden, "targets_random")
    network = method.networks[0].train(mode == "train")
    with torch.no_grad():
        images = network.encode_images(batch.image_features, batch.image_lengths)
        captions = network.encode_captions(batch.caption_tokens, batch.caption_lengths)
        similarities = network.similarities(images, captions)
        between_images = network.image_image_similarities(images, method.variant)
        between_captions = network.caption_caption_similarities(captions, method.variant)
    for found, name in ((between_images, "img"), (between_captions, "cap")):
        raw = stored[f"{backbone}.{mode}.sims_{name}_raw"]
        assert_near(found, 1 / (1 + np.exp(-raw)), ROUNDED, scale=1)
    for targets in TARGETS:
        prefix = f"{backbone}.{mode}.{targets}"
        assert_near(similarities, stored[f"{prefix}.sims"], 5e-6, scale=1)
        labels = torch.ones(len(batch))
        if targets == "targets_random":
            labels = torch.from_numpy(stored["targets_random"]).float()[batch.pair_ids]
        weighted = [stored[f"{prefix}.sims_{name}"] for name in ("img", "cap")]
        for between, expected in zip((between_images, between_captions), weighted, strict=True):
            assert_near(labels * between, expected, ROUNDED, scale=1)
        structures = [torch.from_numpy(expected).float() for expected in weighted]
        agreement = structural_agreement(*structures)
        assert_near(agreement, stored[f"{prefix}.stored_topos"], 5e-6, scale=1)
        per_pair = intra_modal_loss(*structures, labels, 1.0)
        assert_near(per_pair, stored[f"{prefix}.loss_topo"], 1e-5)


@pytest.mark.parametrize("code", CODES)
@pytest.mark.parametrize("backbone", ["sgr", "saf"])
@pytest.mark.parametrize("targets", TARGETS)
def test_trajectory_matches_the_published_code(
    code: str, backbone: str, targets: str, golden: Golden
) -> None:
    method, batch = one_network(code, backbone, golden, targets)
    step = OptimizerStep(method, 2e-3)
    method.train()
    expected = only(golden(code), f"{backbone}.trajectory.{targets}.loss_")
    for _ in expected:
        method.train_step(0, batch, step)
    assert_trajectory_matches(step.losses, expected)


@pytest.mark.parametrize("code", CODES)
def test_labels_after_each_epoch_match_the_published_code(code: str, golden: Golden) -> None:
    stored = golden(code)
    n_pairs = len(stored["split.epoch0.topos"])
    indicators, ids = Indicators(n_pairs), torch.arange(n_pairs)
    epochs = sorted(name.removesuffix(".prob") for name in stored if name.endswith(".prob"))
    assert epochs
    for prefix in epochs:
        agreement = torch.from_numpy(stored[f"{prefix}.topos"])
        random_state = int(stored[f"{prefix}.np_seed"])
        posterior = intra_modal_indicator(agreement, RandomState(random_state))
        assert_near(posterior, stored[f"{prefix}.prob"], 5e-6, scale=1)
        indicators.seen_cross_modal.write(ids, torch.from_numpy(stored[f"{prefix}.preds"]))
        indicators.seen_agreement.write(ids, agreement)
        indicators.update(ids, GSCConfig(), RandomState(random_state))
        assert_labels_match(indicators, stored, prefix, "")


def test_an_epoch_with_all_labels_at_one_is_the_published_warm_up(golden: Golden) -> None:
    """GSC+ only: the warm-up of GSC leaves out one direction and one term, and never ran."""
    stored = golden("E_gscplus")
    method, batch = one_network("E_gscplus", "sgr", golden, "targets_ones_f32")
    step = GradientStep()
    method.train().train_step(0, batch, step)
    assert step.loss == pytest.approx(float(stored["warmup.loss"]), rel=1e-5)
    assert step.terms["cross_modal"] == pytest.approx(stored["warmup.loss_cl"].mean(), rel=1e-5)
    assert step.terms["intra_modal"] == pytest.approx(stored["warmup.loss_topo"].mean(), rel=1e-5)


def assert_labels_match(
    indicators: Indicators, stored: Arrays, prefix: str, suffix: str, atol: float = 5e-6
) -> None:
    for memory, name in (
        (indicators.intra_modal, "topo_targets"),
        (indicators.cross_modal, "preds_targets"),
        (indicators.label, "targets"),
    ):
        assert_near(memory.values, stored[f"{prefix}.{name}{suffix}"], atol, scale=1)


def test_two_networks_exchange_labels_as_the_published_code(golden: Golden) -> None:
    stored = golden("E_gscplus")
    weights = [published_network("sgr", golden), published_network("sgr", golden, "duo.B_weights.", stored)]
    remaining = iter(weights)
    n_pairs = len(stored["duo.targets_A_before"])
    setting = published_setting("sgr", golden, n_pairs)
    method = GSCPlus(GSCConfig(), dataclasses.replace(setting, make_network=lambda: next(remaining)))
    for own, name in zip(method.indicators, "AB", strict=True):
        own.label.values.copy_(torch.from_numpy(stored[f"duo.targets_{name}_before"]))
    batches = []
    for j, ids in enumerate(stored["duo.ids"]):
        arrays = (stored[f"duo.batch{j}.{name}"] for name in ("images", "captions", "lengths"))
        images, captions, lengths = map(torch.from_numpy, arrays)
        regions = torch.full((len(ids),), images.shape[1])
        batches.append(Batch(images, regions, captions, lengths, torch.from_numpy(ids)))
    step = OptimizerStep(method, 2e-4)
    method.train_epoch(method.plan()[0], batches_of(*batches), step)
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
        assert_labels_match(own, stored, f"duo.{name}", "_after", atol=2e-3)


def intra_modal_by_loop(images: np.ndarray, captions: np.ndarray, labels: np.ndarray) -> list[float]:
    """Eq. 7 per pair at temperature 1, with the code's outer label; inputs are not yet weighted."""
    n, losses = len(labels), []
    for i in range(n):
        agreements = [
            sum(labels[k] * images[i, k] * labels[k] * captions[j, k] for k in range(n)) for j in range(n)
        ]
        losses.append(-labels[i] * np.log(np.exp(agreements[i]) / np.exp(agreements).sum()))
    return losses


def test_structures_equal_the_loops() -> None:
    random = np.random.default_rng(0)
    images, captions, labels = random.random((7, 7)), random.random((7, 7)), random.random(7)
    weighted = torch.from_numpy(labels * images), torch.from_numpy(labels * captions)
    loss = intra_modal_loss(*weighted, torch.from_numpy(labels), 1.0)
    assert_near(loss, intra_modal_by_loop(images, captions, labels), 1e-12)
    for i, cosine in enumerate(structural_agreement(*weighted)):
        a, b = labels * images[i], labels * captions[i]
        assert float(cosine) == pytest.approx((a @ b) / np.sqrt((a @ a) * (b @ b)))


def small_method(kind: type[GSC], n_pairs: int, **options: Any) -> GSC:
    backbone = VSEInfinity(VSEInfinityConfig(embed_size=8, word_dim=4), 3, 5, 20)
    return kind(GSCConfig(**options), Setting(n_pairs, 5, 20, lambda: copy.deepcopy(backbone)))


def random_batch(pair_ids: torch.Tensor) -> Batch:
    n, torch_random = len(pair_ids), torch.Generator().manual_seed(int(pair_ids.sum()))
    features = torch.rand(n, 5, 3, generator=torch_random)
    tokens = torch.randint(1, 20, (n, 6), generator=torch_random)
    return Batch(features, torch.full((n,), 5), tokens, torch.full((n,), 6), pair_ids)


@pytest.mark.parametrize(("kind", "others"), [(GSC, [0]), (GSCPlus, [1, 0])])
def test_each_network_learns_from_the_labels_of_the_other(kind: type[GSC], others: list[int]) -> None:
    method, batch = small_method(kind, 8), random_batch(torch.arange(8))
    for k, other in enumerate(others):
        for own in method.indicators:
            own.label.values.fill_(1.0)
        step = GradientStep()
        method.train_step(k, batch, step)
        full = step.terms["cross_modal"]
        method.indicators[other].label.values.fill_(0.25)
        method.train_step(k, batch, step)
        assert step.terms["cross_modal"] == pytest.approx(full / 4)


@pytest.mark.parametrize("kind", [GSC, GSCPlus])
def test_labels_start_at_one_and_change_only_at_the_end_of_an_epoch(kind: type[GSC]) -> None:
    method = small_method(kind, 40, epochs=2)
    batches = [random_batch(torch.arange(start, start + 20)) for start in (0, 20)]
    seen: list[torch.Tensor] = []

    def step(network: nn.Module, loss: torch.Tensor, batch: Batch, **terms: torch.Tensor) -> None:
        seen.append(method.indicators[0].label.values.clone())

    method.train_epoch(method.plan()[0], batches_of(*batches), step)
    assert len(seen) == 2 * method.n_networks
    assert all((labels == 1).all() for labels in seen)
    own = method.indicators[0]
    assert (own.label.values < 1).any()
    assert torch.equal(own.label.values, torch.minimum(own.cross_modal.values, own.intra_modal.values))
    assert_near(own.cross_modal.values, 0.3 + 0.7 * own.seen_cross_modal.values)
    for estimate in method.estimates().values():
        assert estimate.shape == (40,)
        assert ((estimate >= 0) & (estimate <= 1)).all()


def test_pairs_that_are_not_visited_keep_their_labels() -> None:
    method = small_method(GSC, 30)
    batch = random_batch(torch.arange(10, 30))
    method.train_epoch(method.plan()[0], batches_of(batch), GradientStep())
    assert (method.indicators[0].label.values[:10] == 1).all()


def test_rate_decays_and_nothing_is_renewed() -> None:
    method = small_method(GSC, 4, epochs=5, learning_rate=1.0, lr_update=2)
    epochs = method.plan()
    assert [epoch.learning_rate for epoch in epochs] == pytest.approx([1, 1, 0.2, 0.2, 0.04])
    assert not any(epoch.new_networks or epoch.new_optimizers or epoch.forget_best for epoch in epochs)
    assert type(method.make_optimizer(method.networks[0], 1.0)) is torch.optim.Adam


def test_state_of_the_method_carries_every_label() -> None:
    method, other = small_method(GSCPlus, 20), small_method(GSCPlus, 20)
    method.train_epoch(method.plan()[0], batches_of(random_batch(torch.arange(20))), GradientStep())
    other.load_state_dict(method.state_dict())
    for mine, theirs in zip(method.estimates().values(), other.estimates().values(), strict=True):
        assert torch.equal(mine, theirs)
