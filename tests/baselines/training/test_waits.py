"""A training step on a GPU waits for it at most once, whatever the method and the backbone.

The host fills a queue of work, and the device is busy as long as the queue holds some. The device here is a stand-in,
see :mod:`support.stand_in_device`.
"""

from dataclasses import replace

import numpy as np
import pytest
import torch
from support.few_digits import few_digits_recipe
from support.parity import TRAINED
from support.stand_in_device import DEVICE, OnDevice, stand_in
from support.tiny_clip import MODEL, WORDS, clip_batch

from baselines.backbones import BACKBONES, build_backbone
from baselines.kit.augmentation import blank_regions, change_words, drop_regions
from baselines.kit.backbone import Encoded
from baselines.kit.batches import Batch, TrainingBatches, collate
from baselines.kit.transport import partial_transport
from baselines.methods import METHODS
from baselines.training.job import TrainingJob, build_method, with_own_images
from baselines.training.recipe import Recipe
from baselines.training.step import READ_EVERY, OptimiserStep
from ncl_bench.data.load import load_dataset

PAIRS, BATCH_SIZE = 120, 12
SMALL = {"embed_size": 16, "word_dim": 8, "sim_dim": 8, "caption_hidden": 8, "caption_word_dim": 8}


@pytest.fixture
def device(monkeypatch):
    with stand_in(monkeypatch) as found:
        yield found


def digits():
    """Few pairs, their shortest captions, and few regions of their images."""
    found = load_dataset("digits", split="train", noise_ratio=0.4).subset(np.arange(8 * PAIRS))
    found = found.subset(np.argsort(found.tokens.lengths, kind="stable")[:PAIRS])
    features = np.ascontiguousarray(found.image_features[:, :3])
    return replace(found, image_features=features, pair_ids=np.arange(PAIRS))


@pytest.mark.slow
@pytest.mark.parametrize("name", TRAINED)
def test_a_backbone_never_waits_in_a_step(name, device):
    data, backbone = digits(), BACKBONES[name]
    fields = backbone.Config.model_fields
    if backbone.reads_images:
        batch, options, sizes = clip_batch(6), {"model": MODEL}, (192, 16, WORDS)
    else:
        batch = collate(data, np.arange(6))
        options = {option: value for option, value in SMALL.items() if option in fields}
        sizes = (data.feature_dim, data.n_regions, data.vocabulary.size)
    feature_dim, n_regions, words = sizes
    network = build_backbone(
        name,
        backbone.Config(**options),
        feature_dim=feature_dim,
        n_regions=n_regions,
        vocabulary_size=words,
    ).to(DEVICE)
    there = batch.to(DEVICE)
    device.waits.clear()
    images, captions = network.train().encode(there)
    loss = network.compare(images, captions).sum() + network.auxiliary_losses(images, there).sum()
    if network.intra_modal:
        for variant in ("gsc", "gsc+"):
            loss = loss + network.image_image_similarities(images, variant).sum()
            loss = loss + network.caption_caption_similarities(captions, variant).sum()
    loss.backward()
    assert any(isinstance(weight.grad, OnDevice) for weight in network.parameters())
    assert device.waits.total() == 0, device.waits


def waits_of_steps(method, plan, batches, device):
    """Of one epoch: how often each step waited, from the end of the step before."""
    step, found = OptimiserStep(2.0), []
    step.optimizers = {
        module: method.make_optimizer(module, plan.learning_rate) for module in method.trained_modules()
    }
    step.budget.taken = [0] * len(method.networks)
    step.budget.begin_epoch(list(method.networks))

    def counted(*arguments, **terms):
        step(*arguments, **terms)
        found.append(device.waits.total())
        device.waits.clear()

    batches.epoch_key = (plan.round, plan.phase, plan.epoch)
    device.waits.clear()
    method.train_epoch(plan, batches, counted)
    return found


@pytest.mark.slow
@pytest.mark.parametrize("name", [name for name in METHODS if not METHODS[name].closed_form])
def test_a_step_of_a_method_waits_at_most_once(name, device):
    """But for the first steps of the networks in an epoch, before which the pairs are divided."""
    short = {"warmup_epochs": 1, "epochs": 2, "rounds": [2], "freeze_epochs": 1, "noisy_from_epoch": 0}
    # where transport needs more than ROUNDS_UNASKED rounds, the host asks once more
    recipe = few_digits_recipe(name, **short, trusted_pairs=20, regularisation=0.07)
    method_options = {option: 10 if option == "batch_size" else x for option, x in recipe["method"].items()}
    job = TrainingJob(Recipe.from_dict(recipe | {"batch_size": BATCH_SIZE, "method": method_options}))
    data = digits()
    trusted = job.trusted_rows(data)
    method = build_method(job, with_own_images(data, trusted)).to(DEVICE)
    rows = np.setdiff1d(np.arange(PAIRS), trusted)
    batches = TrainingBatches(data, batch_size=BATCH_SIZE, seed=0, device=DEVICE, pair_rows=rows)
    last_of_phase = {plan.phase: plan for plan in method.plan()}
    for phase, plan in last_of_phase.items():
        waits = waits_of_steps(method, plan, batches, device)
        assert len(waits) >= 2 * len(method.networks), phase
        assert sum(waited > 1 for waited in waits) <= len(method.networks), (phase, waits)


@pytest.mark.parametrize(("shape", "waits"), [((4, 3), 0), ((4, 2, 3), 1)], ids=["pooled", "items"])
def test_rows_are_chosen_without_waiting_where_vectors_are_pooled(shape, waits, device):
    vectors, rows = torch.rand(shape), torch.tensor([3, 0, 3])
    there, chosen = Encoded(vectors.to(DEVICE), torch.full((4,), 2)), rows.to(DEVICE)
    device.waits.clear()
    found = there.chosen(chosen)
    assert device.waits.total() == waits
    assert torch.equal(found.vectors.cpu(), vectors[rows])
    assert len(found.lengths) == 3


def test_losses_are_read_now_and_then(device):
    weight = torch.nn.Linear(1, 1).to(DEVICE)
    step = OptimiserStep(2.0)
    step.optimizers = {weight: torch.optim.SGD(weight.parameters(), lr=0.1)}
    batch = Batch(*(torch.zeros(3) for _ in range(4)), pair_ids=torch.arange(3)).to(DEVICE)
    device.waits.clear()
    for _ in range(READ_EVERY - 1):
        step(weight, weight.weight.sum(), batch)
    assert device.waits.total() == 0
    step(weight, weight.weight.sum(), batch)
    assert device.waits.total() == 1


def test_augmentation_changes_a_batch_alike_on_every_device(device):
    batch = collate(digits(), np.arange(20))
    changed = []
    for each in (batch, batch.to(DEVICE)):
        torch.manual_seed(3)
        words = change_words(each, 0.5, mask_word=7, vocabulary_size=9)
        changed.append(blank_regions(drop_regions(words, 0.3), 0.3))
    assert device.waits.total() == 0
    here, there = changed
    for name, tensor in vars(here).items():
        assert torch.equal(tensor, vars(there)[name].cpu()), name
    assert torch.equal(there.caption_lengths, here.caption_lengths)


def test_transport_on_a_device_is_that_on_a_cpu_bit_by_bit(device):
    costs = torch.rand(6, 5, generator=torch.Generator().manual_seed(2)) + 0.1
    here, there = partial_transport(costs, 0.3, 0.05), partial_transport(costs.to(DEVICE), 0.3, 0.05)
    assert here.rounds == there.rounds > 1
    assert here.change == there.change
    assert torch.equal(here.plan, there.plan.cpu())
