"""PC2 against the published code's numbers, and what its configuration changes."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from support.doubles import Steps, StoredBatches, rows_of
from support.parity import (
    FILES,
    TRAINED,
    assert_matrix_losses,
    assert_trajectory,
    assert_weights,
    gradients_of,
    network_of,
)
from support.rounding import assert_near

import baselines.methods.pc2 as pc2
from baselines.backbones import BACKBONES
from baselines.kit.batches import Batch
from baselines.kit.losses import mean_triplet
from baselines.kit.method import EpochPlan, Setting
from baselines.kit.mixture import clean_posterior, is_clean, min_max_normalised
from baselines.kit.pseudo_classification import (
    FLOOR,
    PseudoClassifier,
    borrowed,
    classification_loss,
    classify,
    entropy,
    most_alike,
    oscillation,
    rectified_label,
    resized,
)
from baselines.methods.pc2 import PC2, PC2Config, pc2_triplet, warmup_triplet
from baselines.published.weights import translate

NETWORKS = pytest.mark.parametrize("backbone", ["sgr", "saf"])
FILE = "F_pc2_network"
EVERY_SIZE = pytest.mark.parametrize("size", ["short", "mid", "long"])


def test_losses_and_their_gradients_match_the_published_code(single):
    stored = single("F_pc2_losses")
    column, vector = stored("labels_column")[:, 0], stored("labels_vector")
    losses = {
        "warmup": lambda s: warmup_triplet(s, 0.2, "all").sum(),
        "warmup_sele": lambda s: warmup_triplet(s, 0.2, "lowest").sum(),
        "eval_loss": lambda s: mean_triplet(s, 0.2, floor=FLOOR),
    }
    for curve in ("exponential", "linear", "sin"):
        config = PC2Config(curve=curve)
        losses[f"lb_train.column.{curve}"] = lambda s, c=config: pc2_triplet(s, column, "row", c).sum()
        losses[f"ulb_train.vector.{curve}"] = lambda s, c=config: pc2_triplet(s, vector, "column", c).sum()
    assert_matrix_losses(stored, losses, tied={"all_equal.warmup_sele"})  # where any half is the lowest


@pytest.mark.parametrize("case", ["flat", "peaky", "saturated"])
def test_pseudo_classification_matches_the_published_code(case, single):
    stored, start = single("F_pc2_losses"), f"nc.{case}."
    logits, targets = stored.leaf(f"{start}logits"), stored(f"{start}targets")
    cross_entropy = classification_loss(logits, targets.log()).mean()
    spread = entropy(logits.softmax(dim=1)).mean()
    for found, name in (
        (cross_entropy, "hard.ce_mean"),
        (spread, "hard.mean_entropy_of_softmax_logits"),
        (entropy(targets.mean(dim=0)), "hard.entropy_of_mean_targets"),
        (entropy(logits.softmax(dim=1).mean(dim=0)), "soft.entropy_of_mean_softmax_logits"),
    ):
        stored.near(found, start + name, 1e-5, scale=0.1)
    (cross_entropy - 10 * spread).backward()
    stored.near(logits.grad, f"{start}hard.grad_of_ce_minus_10_entropy", 2e-4, scale=1e-3)


def test_division_by_loss_and_oscillation_matches_the_published_code(single):
    stored = single("F_pc2_cotrain")
    state = np.random.RandomState(int(stored["np_seed"]))
    for network in "AB":
        bank, now = (stored(f"{network}.{name}") for name in ("bank", "pseudo_label_now"))
        stored.near(oscillation(bank, now), f"{network}.kl_raw_all", 1e-5)
        bank[stored(f"{network}.missing_from_bank")] = 0
        # float64 throughout from the losses on; the oscillations begin as float32
        for values, name, sharp in (
            (torch.tensor(stored[f"{network}.loss"]).double(), "loss", 1e-9),
            (oscillation(bank, now).double(), "ctt", 1e-5),
        ):
            normalised = min_max_normalised(values.numpy())
            stored.near(normalised, f"{network}.{name}_normalised", sharp)
            probability = clean_posterior(values, random_state=state)
            stored.near(probability, f"prob_{name}_{network}", sharp)
            stored.equal(is_clean(probability, 0.5), f"pred_{name}_{network}")
    names = ("targets.w", "targets.w_oscillation", "targets.pred_oscillation")
    labels = rectified_label(*(stored(name) for name in names))
    for phase in ("before_warmup_epoch_2", "from_warmup_epoch_2"):
        stored.near(labels[:, None], f"targets.{phase}.lb_labels", 1e-6)


def head_of(stored, prefix=""):
    names = stored.names(f"{prefix}img_pro_head.")
    return {f"img_pro_head.{name}": stored(f"{prefix}img_pro_head.{name}") for name in names}


def pseudo_classifier_of(state, embed_size):
    """C with the entries ``img_pro_head.*`` of a network of the paper's code."""
    layers = {"first_hidden_layer.fc.": "hidden.", "output_layer.": "out."}
    ours = translate(state, {f"img_pro_head.{theirs}": name for theirs, name in layers.items()})
    hidden_size, n_inputs = ours["hidden.weight"].shape
    head = PseudoClassifier(n_inputs // embed_size, embed_size, hidden_size, len(ours["out.weight"]))
    head.load_state_dict(ours)
    return head


@pytest.fixture
def method_on(single):
    """Make PC2 on a stored backbone."""

    def make(backbone, **options):
        stored, weights = single(FILE), single(FILES[backbone])
        names = ("short", "mid", "long", "unlabelled")
        n_pairs = max(len(stored[f"batch.{name}.lengths"]) for name in names)
        setting = Setting(n_pairs, 36, 50, lambda: weights.network(backbone))
        head = pseudo_classifier_of(head_of(stored), setting.make_network().embed_size)
        config = PC2Config(classes=head.out.out_features, hidden_size=head.hidden.out_features, **options)
        method = PC2(config, setting)
        for network in method.networks:
            network.pseudo_classifier.load_state_dict(head.state_dict())
        return method.train()

    return make


@pytest.fixture
def near_gradients(single):
    """Compare what the last step left in network 0: its norm and, where stored, every gradient."""

    def compare(step, backbone, case):
        stored, prefix = single(FILE), f"{case}.grad."
        stored.near(step.norms[-1], f"{case}.grad_norm", 2e-4)
        if not (wanted := stored.wanted(prefix)):
            return

        def build(state):
            heads = {name: x for name, x in state.items() if name.startswith("img_pro_head.")}
            network = network_of(backbone, {name: x for name, x in state.items() if name not in heads})
            network.pseudo_classifier = pseudo_classifier_of(heads, network.embed_size)
            return network

        base = single(FILES[backbone]).state() | head_of(stored)
        found = gradients_of(step.calls[-1][0][0])
        assert_weights(found, build, base, wanted | head_of(stored, prefix), relative=2e-4, noise=1e-4)

    return compare


@pytest.mark.parametrize("size", ["mid", "long"])
@pytest.mark.parametrize("mode", ["lb_train", "warmup", "warmup_sele"])
@NETWORKS
def test_one_step_on_given_pairs_matches_the_published_code(
    backbone, mode, size, single, method_on, near_gradients
):
    stored, case = single(FILE), f"{backbone}.{mode}.{size}"
    method = method_on(backbone, warmup_pairs="lowest" if mode == "warmup_sele" else "all")
    labels = stored("lb.labels")[:, 0] if mode == "lb_train" else None
    step, batch = Steps(method), stored.batch(f"batch.{size}.")
    method.matched_step(0, batch, labels, step)
    names = {"triplet": "triplet_loss", "classification": "ce_loss_img", "entropy": "en_loss_img"}
    terms = {theirs: step.terms[ours] for ours, theirs in names.items()}
    stored.near_step(step, f"{case}.", single=2e-4, terms=terms)
    if mode != "lb_train":
        stored.near(method.prediction[0].read(batch.pair_ids), f"{case}.bank", 1e-5)
    near_gradients(step, backbone, case)
    if case.startswith("sgr.lb_train"):
        network = method_on(backbone).networks[0]
        captions = network.encode_captions(batch.caption_tokens, batch.caption_lengths)
        (resizing,) = stored.names(f"{case}.cap_embs_")
        positions = resized(captions.vectors, method.setting.n_regions)
        stored.near(positions, f"{case}.cap_embs_{resizing}", 1e-5)
        stored.near(classify(network, captions), f"{case}.txt_logits", 2e-5)


@EVERY_SIZE
@NETWORKS
def test_one_pseudo_captioned_step_matches_the_published_code(
    backbone, size, single, method_on, near_gradients
):
    stored, case = single(FILE), f"{backbone}.ulb_train.{size}"
    method = method_on(backbone)
    step, clean, noisy = Steps(method), *(stored.batch(f"batch.{name}.") for name in (size, "unlabelled"))
    method.pseudo_captioned_step(0, clean, noisy, clean.pair_ids, step)
    stored.near(step.losses[0], f"{case}.triplet_loss")
    keys = stored(f"{case}.bank_keys")
    stored.equal((method.prediction[0].values.sum(dim=1) > 0).nonzero()[:, 0], f"{case}.bank_keys")
    stored.near(method.prediction[0].read(keys), f"{case}.bank", 1e-5)
    near_gradients(step, backbone, case)


@EVERY_SIZE
def test_borrowed_captions_match_the_published_code(size, single, method_on):
    stored, case, network = single(FILE), f"sgr.ulb_train.{size}", method_on("sgr").networks[0]
    clean, noisy = (stored.batch(f"batch.{name}.") for name in (size, "unlabelled"))
    noisy_label, label = (stored(f"{case}.pseudo_label_{x}") for x in ("unlabelled", "labelled"))
    likeness, rows = most_alike(noisy_label, label, torch.arange(len(label)))
    stored.equal(rows, f"{case}.chosen")
    assert_near(likeness, stored[f"{case}.cosine"].max(axis=1), 1e-5)
    stored.near(likeness.where(likeness >= 0.5, 0.0), f"{case}.labels_after", 1e-5)
    captions = network.encode_captions(clean.caption_tokens, clean.caption_lengths)
    longest = noisy.caption_tokens.shape[1]
    pseudo = borrowed(captions, rows, longest)
    within = np.arange(longest)[:, None] < pseudo.lengths.numpy()[:, None, None]
    assert_near(pseudo.vectors, stored[f"{case}.cap_embs_after"] * within, 1e-5)
    assert pseudo.lengths.tolist() == np.minimum(stored[f"{case}.cap_lens_after"], longest).tolist()
    images = network.encode_images(noisy.image_features, noisy.image_lengths)
    stored.near(network.similarities(images, pseudo), f"{case}.sims", 1e-5)


@NETWORKS
def test_losses_for_the_division_match_the_published_code(backbone, single, method_on):
    stored, network = single(FILE), method_on(backbone).eval().networks[0]
    batch = stored.batch("batch.unlabelled.")
    images = network.encode_images(batch.image_features, batch.image_lengths)
    losses = mean_triplet(network(batch).similarities, 0.2, floor=FLOOR)
    stored.near(losses, f"{backbone}.eval_loss.loss", 1e-5)
    stored.near(classify(network, images).softmax(dim=1), f"{backbone}.eval_loss.pseudo_label", 1e-5)


@NETWORKS
def test_trajectory_matches_the_published_code(backbone, single, method_on):
    stored, method = single(FILE), method_on(backbone)
    step, labels = Steps(method, 1e-3), stored("lb.labels")[:, 0]
    mid, noisy = (stored.batch(f"batch.{name}.") for name in ("mid", "unlabelled"))
    for given in (None, None, labels, labels):
        method.matched_step(0, mid, given, step)
    method.pseudo_captioned_step(0, mid, noisy, mid.pair_ids, step)
    triplets = [next(iter(terms.values())) for _, _, terms in step.calls]
    assert_trajectory(triplets, stored[f"{backbone}.trajectory.returned"][:, 0])


def small(backbone="vse_infinity", **options):
    """PC2 on a tiny backbone with random weights; 4 regions of 3 numbers, 20 pairs, 9 words."""
    torch.manual_seed(0)
    config = BACKBONES[backbone].Config(embed_size=6, word_dim=5)
    setting = Setting(20, 4, 9, lambda: BACKBONES[backbone](config, 3, 4, 9))
    return PC2(PC2Config(classes=5, hidden_size=7, **options), setting).train()


@pytest.mark.parametrize("backbone", [name for name in TRAINED if not BACKBONES[name].reads_images])
def test_the_pseudo_classifier_reads_what_the_backbone_hands_out(backbone):
    method, batch = small(backbone), random_batch(list(range(6)))
    network, other = method.networks
    assert network.pseudo_classifier.n_vectors == (1 if BACKBONES[backbone].pools else 4)
    assert not torch.equal(network.pseudo_classifier.hidden.weight, other.pseudo_classifier.hidden.weight)
    assert "networks.1.pseudo_classifier.out.weight" in method.state_dict()
    method.matched_step(0, batch, None, Steps(method, 1e-3))
    images = network.encode_images(batch.image_features, batch.image_lengths)
    assert classify(network, images).shape == (6, 5)


def random_batch(pair_ids, longest=6):
    n = len(pair_ids)
    lengths = torch.randint(2, longest + 1, (n,))
    lengths[0] = longest
    tokens = torch.randint(1, 9, (n, longest)) * (torch.arange(longest) < lengths[:, None])
    return Batch(torch.rand(n, 4, 3), torch.full((n,), 4), tokens, lengths, torch.tensor(pair_ids))


def twenty_pairs():
    """In order, six in a batch."""
    whole = random_batch(list(range(20)))
    return StoredBatches(*(rows_of(whole, ids) for ids in torch.arange(20).split(6)))


def test_warm_up_stores_predictions_under_the_number_of_their_pair():
    method = small()
    method.matched_step(1, random_batch([3, 19, 8]), None, Steps(method))
    stored = method.prediction[1].values.sum(dim=1)
    assert stored[[3, 19, 8]].tolist() == pytest.approx([1, 1, 1])
    assert stored.sum().item() == pytest.approx(3)
    assert (method.prediction[0].values == 0).all()


def test_without_rectification_clean_pairs_have_label_one(monkeypatch):
    method, seen = small(rectify=False, noisy_from_epoch=9), []
    method.clean_probability[1].write(torch.arange(20), torch.full((20,), 0.9))
    monkeypatch.setattr(method, "matched_step", lambda k, batch, labels, step: seen.extend(labels.tolist()))
    method.train_network(0, EpochPlan(0, 5, "train", 1.0), twenty_pairs(), Steps(method))
    assert len(seen) > 1
    assert set(seen) == {1.0}


def test_of_copies_of_an_image_the_first_lends_its_caption():
    clean = torch.tensor([[0.0, 1.0], [1.0, 0.0], [1.0, 1e-7], [0.0, 1.0]])
    # rounding makes row 2 the nearest of its image, and rows 0 and 3 tie although their images differ
    likeness, rows = most_alike(torch.tensor([[1.0, 2e-7], [0.0, 1.0]]), clean, torch.tensor([5, 7, 7, 9]))
    assert rows.tolist() == [1, 0]
    assert likeness.tolist() == [1, 1]


@pytest.mark.parametrize("backbone", ["vse_infinity", "sgr", "scan"])
def test_captions_are_borrowed_by_the_nearest_embedding(backbone, monkeypatch):
    method, batch = small(backbone, borrow_by="embedding"), random_batch(list(range(8)))
    clean, noisy = rows_of(batch, torch.arange(4)), rows_of(batch, torch.tensor([2, 0]))
    noisy = replace(noisy, pair_ids=torch.tensor([18, 19]))
    chosen = []
    monkeypatch.setattr(
        pc2, "borrowed", lambda c, rows, longest: chosen.append(rows) or borrowed(c, rows, longest)
    )
    method.eval()
    method.pseudo_captioned_step(0, clean, noisy, clean.pair_ids, Steps(method))
    assert chosen[0].tolist() == [2, 0]


@pytest.mark.parametrize("epoch", [1, 2])
def test_noisy_batches_follow_clean_ones_of_the_division_that_the_peer_made(epoch):
    method, batches = small(noisy_from_epoch=2), twenty_pairs()
    clean = torch.zeros(20)
    clean[:12] = 0.9
    method.clean_probability[1].write(torch.arange(20), clean)
    step = Steps(method)
    method.train_network(0, EpochPlan(0, epoch, "train", 1.0), batches, step)
    matched = ["triplet", "classification", "entropy"]
    expected = [(list(range(6)), matched), (list(range(6, 12)), matched)]
    if epoch == 2:
        noisy = [(ids, ["pseudo_captioned"]) for ids in (list(range(12, 18)), [18, 19])]
        expected = [expected[0], noisy[0], expected[1], noisy[1]]
    assert [(batch.pair_ids.tolist(), list(terms)) for _, batch, terms in step.calls] == expected
    assert all(modules == [method.networks[0]] for modules, _, _ in step.calls)
