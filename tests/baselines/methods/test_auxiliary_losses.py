"""What a backbone adds to the loss of a pair, VSRN's caption loss, counts as much as the method trusts the pair."""

import pytest
import torch
from support.doubles import Steps, StoredBatches

from baselines.backbones.vsrn import VSRN, VSRNConfig
from baselines.kit.batches import Batch
from baselines.kit.method import Setting
from baselines.methods import METHODS
from baselines.methods.osa import pair_weight

PAIRS = 6
TRUST = torch.tensor([1.0, 0.8, 0.0, 0.3, 0.5, 1.0])
CERTAIN = TRUST > 0.5
EVERY_PAIR, NO_PAIR = torch.ones(PAIRS), torch.zeros(PAIRS)
SIMILARITIES = torch.tensor([0.9, 0.5, 0.1, 0.3, 0.4, 0.6])
OPTIONS = {
    "bicro": {"warmup_epochs": 1},
    "crcl": {"word_change": 0.0, "region_change": 0.0, "confidence_threshold": 0.0},
    "dcl": {"warmup_epochs": 1, "mixture": False},
    "decl": {"fewest_negatives": 1},
    "in2r": {"word_change": 0.0, "region_change": 0.0, "heads": 2},
    "npc": {"warmup_epochs": 1},
    "osa": {"warmup_epochs": 1},
}


def first_epoch(method, batch, step):
    method.train_epoch(method.plan()[0], StoredBatches(batch), step)


def with_labels(labels):
    return lambda method, batch, step: method.train_step(method.networks[0], batch, labels, step)


def with_indicators(method, batch, step):
    for indicators in method.indicators:
        indicators.label.values.copy_(TRUST)
    method.train_step(0, batch, step)


def with_memory(name, values, run):
    def remembering(method, batch, step):
        getattr(method, name).values.copy_(values)
        run(method, batch, step)

    return remembering


def from_batches(method, batch, step):
    method.train_step(batch, 1e-3, StoredBatches(batch), step)


CASES = {
    "triplet": ("triplet", first_epoch, EVERY_PAIR),
    "info_nce": ("info_nce", first_epoch, EVERY_PAIR),
    "rince": ("rince", first_epoch, EVERY_PAIR),
    "rcl": ("rcl", first_epoch, EVERY_PAIR),
    "ncr, warm-up": ("ncr", first_epoch, EVERY_PAIR),
    "ncr, a label per pair": ("ncr", with_labels(TRUST), TRUST),
    "ncr, a label per entry": ("ncr", with_labels(TRUST + torch.eye(PAIRS) * 0.1), TRUST + 0.1),
    "bicro, warm-up": ("bicro", first_epoch, EVERY_PAIR),
    "bicro": ("bicro", with_labels(TRUST), TRUST),
    "crcl": ("crcl", with_memory("labels", TRUST, first_epoch), TRUST),
    "cream, warm-up": ("cream", first_epoch, EVERY_PAIR),
    "cream": ("cream", lambda m, b, step: m.train_step(m.networks[0], b, TRUST, 1.0, step), TRUST),
    "dcl, warm-up": ("dcl", first_epoch, EVERY_PAIR),
    "dcl, without a mixture": ("dcl", from_batches, EVERY_PAIR),
    "decl": ("decl", lambda m, b, step: m.train_step(b, CERTAIN, PAIRS, step), CERTAIN.float()),
    "gsc": ("gsc", with_indicators, TRUST),
    "gsc_plus": ("gsc_plus", with_indicators, TRUST),
    "in2r, warm-up": ("in2r", first_epoch, EVERY_PAIR),
    "in2r": (
        "in2r",
        lambda m, b, step: m.train_step(0, b, None, CERTAIN, torch.arange(PAIRS), 0, step),
        EVERY_PAIR,
    ),
    "l2rm, warm-up": ("l2rm", first_epoch, EVERY_PAIR),
    "l2rm": ("l2rm", lambda m, b, step: m.train_step(b, None, None, step), EVERY_PAIR),
    "npc, warm-up": ("npc", first_epoch, EVERY_PAIR),
    "npc": ("npc", lambda m, b, step: m.weighted_step(b, [b], TRUST, [], 1e-3, step), TRUST),
    "osa, warm-up": ("osa", first_epoch, EVERY_PAIR),
    "osa": ("osa", with_memory("similarity", SIMILARITIES, from_batches), pair_weight(SIMILARITIES, 0.0)),
    "pc2, warm-up": ("pc2", lambda m, b, step: m.matched_step(0, b, None, step), EVERY_PAIR),
    "pc2": ("pc2", lambda m, b, step: m.matched_step(0, b, TRUST, step), TRUST),
    "pc2, borrowed captions": (
        "pc2",
        lambda m, b, step: m.pseudo_captioned_step(0, b, b, b.pair_ids, step),
        NO_PAIR,
    ),
    "pcsr, warm-up": ("pcsr", first_epoch, EVERY_PAIR),
    "pcsr": ("pcsr", lambda m, b, step: m.clean_step(0, b, TRUST, step), TRUST),
    "pcsr, borrowed captions": (
        "pcsr",
        lambda m, b, step: m.borrowed_step(0, b, b, b.pair_ids, step, robust=True),
        NO_PAIR,
    ),
    "sps, warm-up": ("sps", first_epoch, EVERY_PAIR),
    "sps, strictly clean": ("sps", lambda m, b, step: m.strict_step(m.networks[0], b, step), EVERY_PAIR),
    "sps": ("sps", with_labels(TRUST), TRUST),
    "sps, borrowed captions": (
        "sps",
        lambda m, b, step: m.proxy_step(m.networks[0], b, b, torch.arange(PAIRS), TRUST, step),
        NO_PAIR,
    ),
}


def pairs():
    random = torch.Generator().manual_seed(1)
    lengths = torch.tensor([5, 3, 4, 5, 2, 4])
    tokens = torch.randint(1, 9, (PAIRS, 5), generator=random) * (torch.arange(5) < lengths[:, None])
    features = torch.rand(PAIRS, 4, 3, generator=random).double()
    return Batch(features, torch.full((PAIRS,), 4), tokens, lengths, torch.arange(PAIRS))


def network_with(caption_weight):
    torch.manual_seed(0)
    sizes = {"embed_size": 6, "word_dim": 5, "graph_layers": 1, "caption_hidden": 4, "caption_word_dim": 3}
    network = VSRN(VSRNConfig(**sizes, caption_weight=caption_weight, caption_dropout=0.0), 3, 4, 9).double()
    torch.manual_seed(2)  # of whatever a method adds to its networks or draws, with a captioner and without
    return network


def method_with(name, caption_weight):
    setting = Setting(PAIRS, 4, 9, lambda: network_with(caption_weight), PAIRS)
    method = METHODS[name]
    made = method(method.Config(**OPTIONS.get(name, {})), setting)
    return made.double().train()


@pytest.mark.parametrize("case", CASES)
def test_the_caption_loss_counts_as_much_as_the_pair_is_trusted(case):
    name, run, trust = CASES[case]
    losses = {}
    for weight in (0.0, 2.0):
        method = method_with(name, weight)
        step = Steps(method)
        run(method, pairs(), step)
        losses[weight] = step.losses[0]
    twin = network_with(2.0).train()
    images, _ = twin.encode(pairs())
    expected = (trust * twin.auxiliary_losses(images, pairs())).mean().item()
    assert losses[2.0] - losses[0.0] == pytest.approx(expected, rel=1e-6, abs=1e-9)
    assert (expected > 1) == bool(trust.any())


def test_every_method_that_can_train_vsrn_is_covered():
    assert {name for name, _, _ in CASES.values()} == {
        name for name in METHODS if not METHODS[name].closed_form
    } - {"mscn"}
