"""PC2 against the published code's numbers, and what its configuration changes."""

from collections.abc import Mapping
from dataclasses import replace

import numpy as np
import pytest
import torch
from support.doubles import Steps, StoredBatches, rows_of
from support.parity import (
    FILES,
    TRAINED,
    Arrays,
    Golden,
    State,
    assert_matrix_losses,
    assert_trajectory,
    assert_weights,
    batch_of,
    gradients_of,
    names_between,
    network_of,
    state_of,
    tensor,
)
from support.rounding import assert_near
from torch import Tensor, nn

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

NETWORKS = ("sgr", "saf")


def test_losses_and_their_gradients_match_the_published_code(golden: Golden) -> None:
    stored = golden("F_pc2_losses")
    column, vector = tensor(stored["labels_column"])[:, 0], tensor(stored["labels_vector"])
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
def test_pseudo_classification_matches_the_published_code(case: str, golden: Golden) -> None:
    stored = golden("F_pc2_losses")
    logits, targets = (tensor(stored[f"nc.{case}.{name}"]) for name in ("logits", "targets"))
    logits.requires_grad_()
    cross_entropy = classification_loss(logits, targets.log()).mean()
    spread = entropy(logits.softmax(dim=1)).mean()
    for got, name in (
        (cross_entropy, "hard.ce_mean"),
        (spread, "hard.mean_entropy_of_softmax_logits"),
        (entropy(targets.mean(dim=0)), "hard.entropy_of_mean_targets"),
        (entropy(logits.softmax(dim=1).mean(dim=0)), "soft.entropy_of_mean_softmax_logits"),
    ):
        assert got.item() == pytest.approx(float(stored[f"nc.{case}.{name}"]), rel=1e-5, abs=1e-6)
    (cross_entropy - 10 * spread).backward()
    expected = stored[f"nc.{case}.hard.grad_of_ce_minus_10_entropy"]
    assert_near(logits.grad, expected, 2e-4, scale=1e-3)


def test_division_by_loss_and_oscillation_matches_the_published_code(golden: Golden) -> None:
    stored = golden("F_pc2_cotrain")
    state = np.random.RandomState(int(stored["np_seed"]))
    for network in "AB":
        bank, now = (tensor(stored[f"{network}.{name}"]) for name in ("bank", "pseudo_label_now"))
        assert_near(oscillation(bank, now), stored[f"{network}.kl_raw_all"], 1e-5)
        bank[tensor(stored[f"{network}.missing_from_bank"])] = 0
        oscillations = oscillation(bank, now).double()
        losses = tensor(stored[f"{network}.loss"]).double()
        # float64 throughout from the losses on; the oscillations begin as float32
        for values, name, sharp in ((losses, "loss", 1e-9), (oscillations, "ctt", 1e-5)):
            normalised = min_max_normalised(values.numpy())
            assert_near(normalised, stored[f"{network}.{name}_normalised"], sharp, scale=1)
        for values, name, sharp in ((losses, "loss", 1e-9), (oscillations, "ctt", 1e-5)):
            probability = clean_posterior(values, random_state=state)
            assert_near(probability, stored[f"prob_{name}_{network}"], sharp)
            assert np.array_equal(is_clean(probability, 0.5), stored[f"pred_{name}_{network}"])


def test_rectified_labels_match_the_published_code(golden: Golden) -> None:
    stored = golden("F_pc2_cotrain")
    names = ("targets.w", "targets.w_oscillation", "targets.pred_oscillation")
    labels = rectified_label(*(tensor(stored[name]) for name in names))
    for phase in ("before_warmup_epoch_2", "from_warmup_epoch_2"):
        assert_near(labels, stored[f"targets.{phase}.lb_labels"][:, 0], 1e-6)


def published(stored: Arrays, name: str) -> Batch:
    return batch_of(stored, f"batch.{name}.")


def method_on(backbone: str, golden: Golden, **options: object) -> PC2:
    stored = golden("F_pc2_network")
    n_pairs = max(len(stored[f"batch.{name}.lengths"]) for name in ("short", "mid", "long", "unlabelled"))
    weights = state_of(golden(FILES[backbone]))
    setting = Setting(n_pairs, 36, 50, lambda: network_of(backbone, weights))
    head = pseudo_classifier_of(head_of(stored), setting.make_network().embed_size)
    config = PC2Config(classes=head.out.out_features, hidden_size=head.hidden.out_features, **options)
    method = PC2(config, setting)
    for network in method.networks:
        network.pseudo_classifier.load_state_dict(head.state_dict())
    return method.train()


def head_of(stored: Arrays, prefix: str = "") -> dict[str, Tensor]:
    names = names_between(stored, f"{prefix}img_pro_head.")
    return {f"img_pro_head.{name}": tensor(stored[f"{prefix}img_pro_head.{name}"]) for name in names}


def pseudo_classifier_of(state: Mapping[str, Tensor], embed_size: int) -> PseudoClassifier:
    """C with the entries ``img_pro_head.*`` of a network of the paper's code."""
    layers = {"first_hidden_layer.fc.": "hidden.", "output_layer.": "out."}
    ours = translate(state, {f"img_pro_head.{theirs}": name for theirs, name in layers.items()})
    hidden_size, n_inputs = ours["hidden.weight"].shape
    head = PseudoClassifier(n_inputs // embed_size, embed_size, hidden_size, len(ours["out.weight"]))
    head.load_state_dict(ours)
    return head


def assert_gradients(method: PC2, step: Steps, backbone: str, golden: Golden, case: str) -> None:
    """Compare what the last step left in network 0: its norm and, where stored, every gradient."""
    stored, prefix = golden("F_pc2_network"), f"{case}.grad."
    assert step.norms == pytest.approx([float(stored[f"{case}.grad_norm"])], rel=2e-4)
    if not any(name.startswith(prefix) for name in stored):
        return

    def build(state: State) -> nn.Module:
        heads = {name: x for name, x in state.items() if name.startswith("img_pro_head.")}
        network = network_of(backbone, {name: x for name, x in state.items() if name not in heads})
        network.pseudo_classifier = pseudo_classifier_of(heads, network.embed_size)
        return network

    base = state_of(golden(FILES[backbone])) | head_of(stored)
    wanted = state_of(stored, prefix) | head_of(stored, prefix)
    assert_weights(gradients_of(method.networks[0]), build, base, wanted, relative=2e-4, noise=1e-4)


@pytest.mark.parametrize("size", ["mid", "long"])
@pytest.mark.parametrize("mode", ["lb_train", "warmup", "warmup_sele"])
@pytest.mark.parametrize("backbone", NETWORKS)
def test_one_step_on_given_pairs_matches_the_published_code(
    backbone: str, mode: str, size: str, golden: Golden
) -> None:
    stored = golden("F_pc2_network")
    method = method_on(backbone, golden, warmup_pairs="lowest" if mode == "warmup_sele" else "all")
    labels = tensor(stored["lb.labels"])[:, 0] if mode == "lb_train" else None
    step, case = Steps(method), f"{backbone}.{mode}.{size}"
    batch = published(stored, size)
    method.matched_step(0, batch, labels, step)
    assert step.losses == pytest.approx([float(stored[f"{case}.loss"])], rel=1e-4)
    names = {"triplet": "triplet_loss", "classification": "ce_loss_img", "entropy": "en_loss_img"}
    for ours, theirs in names.items():
        assert step.terms[ours] == pytest.approx(float(stored[f"{case}.{theirs}"]), rel=1e-4), ours
    if mode != "lb_train":
        assert_near(method.prediction[0].read(batch.pair_ids), stored[f"{case}.bank"], 1e-5)
    assert_gradients(method, step, backbone, golden, case)


@pytest.mark.parametrize("size", ["mid", "long"])
def test_captions_at_the_length_of_the_images_match_the_published_code(size: str, golden: Golden) -> None:
    stored = golden("F_pc2_network")
    method = method_on("sgr", golden)
    batch = published(stored, size)
    captions = method.networks[0].encode_captions(batch.caption_tokens, batch.caption_lengths)
    case = f"sgr.lb_train.{size}"
    positions = resized(captions.vectors, method.setting.n_regions)
    (resizing,) = names_between(stored, f"{case}.cap_embs_")
    assert_near(positions, stored[f"{case}.cap_embs_{resizing}"], 1e-5)
    assert_near(classify(method.networks[0], captions), stored[f"{case}.txt_logits"], 2e-5)


@pytest.mark.parametrize("size", ["short", "mid", "long"])
@pytest.mark.parametrize("backbone", NETWORKS)
def test_one_pseudo_captioned_step_matches_the_published_code(
    backbone: str, size: str, golden: Golden
) -> None:
    stored = golden("F_pc2_network")
    method, case = method_on(backbone, golden), f"{backbone}.ulb_train.{size}"
    step, clean = Steps(method), published(stored, size)
    method.pseudo_captioned_step(0, clean, published(stored, "unlabelled"), clean.pair_ids, step)
    assert step.losses == pytest.approx([float(stored[f"{case}.triplet_loss"])], rel=1e-4)
    keys = tensor(stored[f"{case}.bank_keys"])
    written = method.prediction[0].values.sum(dim=1) > 0
    assert keys.tolist() == written.nonzero()[:, 0].tolist()
    assert_near(method.prediction[0].read(keys), stored[f"{case}.bank"], 1e-5)
    assert_gradients(method, step, backbone, golden, case)


@pytest.mark.parametrize("size", ["short", "mid", "long"])
def test_borrowed_captions_match_the_published_code(size: str, golden: Golden) -> None:
    stored = golden("F_pc2_network")
    case, network = f"sgr.ulb_train.{size}", method_on("sgr", golden).networks[0]
    clean, noisy = published(stored, size), published(stored, "unlabelled")
    noisy_label, label = (tensor(stored[f"{case}.pseudo_label_{x}"]) for x in ("unlabelled", "labelled"))
    likeness, rows = most_alike(noisy_label, label, torch.arange(len(label)))
    assert rows.tolist() == stored[f"{case}.chosen"].tolist()
    assert_near(likeness, stored[f"{case}.cosine"].max(axis=1), 1e-5)
    assert_near(likeness.where(likeness >= 0.5, 0.0), stored[f"{case}.labels_after"], 1e-5)
    captions = network.encode_captions(clean.caption_tokens, clean.caption_lengths)
    longest = noisy.caption_tokens.shape[1]
    pseudo = borrowed(captions, rows, longest)
    within = np.arange(longest)[:, None] < pseudo.lengths.numpy()[:, None, None]
    assert_near(pseudo.vectors, stored[f"{case}.cap_embs_after"] * within, 1e-5)
    assert pseudo.lengths.tolist() == np.minimum(stored[f"{case}.cap_lens_after"], longest).tolist()
    images = network.encode_images(noisy.image_features, noisy.image_lengths)
    assert_near(network.similarities(images, pseudo), stored[f"{case}.sims"], 1e-5)


@pytest.mark.parametrize("backbone", NETWORKS)
def test_losses_for_the_division_match_the_published_code(backbone: str, golden: Golden) -> None:
    stored = golden("F_pc2_network")
    network = method_on(backbone, golden).eval().networks[0]
    batch = published(stored, "unlabelled")
    images = network.encode_images(batch.image_features, batch.image_lengths)
    losses = mean_triplet(network(batch).similarities, 0.2, floor=FLOOR)
    assert_near(losses, stored[f"{backbone}.eval_loss.loss"], 1e-5)
    assert_near(classify(network, images).softmax(dim=1), stored[f"{backbone}.eval_loss.pseudo_label"], 1e-5)


@pytest.mark.parametrize("backbone", NETWORKS)
def test_trajectory_matches_the_published_code(backbone: str, golden: Golden) -> None:
    stored = golden("F_pc2_network")
    method = method_on(backbone, golden)
    step = Steps(method, 1e-3)
    mid, labels = published(stored, "mid"), tensor(stored["lb.labels"])[:, 0]
    for given in (None, None, labels, labels):
        method.matched_step(0, mid, given, step)
    method.pseudo_captioned_step(0, mid, published(stored, "unlabelled"), mid.pair_ids, step)
    triplets = [next(iter(terms.values())) for _, _, terms in step.calls]
    assert_trajectory(triplets, stored[f"{backbone}.trajectory.returned"][:, 0])


def small(backbone: str = "vse_infinity", **options: object) -> PC2:
    """PC2 on a tiny backbone with random weights; 4 regions of 3 numbers, 20 pairs, 9 words."""
    torch.manual_seed(0)
    config = BACKBONES[backbone].Config(embed_size=6, word_dim=5)
    setting = Setting(20, 4, 9, lambda: BACKBONES[backbone](config, 3, 4, 9))
    return PC2(PC2Config(classes=5, hidden_size=7, **options), setting).train()


@pytest.mark.parametrize("backbone", [name for name in TRAINED if not BACKBONES[name].reads_images])
def test_the_pseudo_classifier_reads_what_the_backbone_hands_out(backbone: str) -> None:
    method, batch = small(backbone), random_batch(list(range(6)))
    network, pools = method.networks[0], BACKBONES[backbone].pools
    assert network.pseudo_classifier.n_vectors == (1 if pools else 4)
    method.matched_step(0, batch, None, Steps(method, 1e-3))
    images = network.encode_images(batch.image_features, batch.image_lengths)
    assert classify(network, images).shape == (6, 5)


def random_batch(pair_ids: list[int], longest: int = 6) -> Batch:
    n = len(pair_ids)
    lengths = torch.randint(2, longest + 1, (n,))
    lengths[0] = longest
    tokens = torch.randint(1, 9, (n, longest)) * (torch.arange(longest) < lengths[:, None])
    return Batch(torch.rand(n, 4, 3), torch.full((n,), 4), tokens, lengths, torch.tensor(pair_ids))


def twenty_pairs() -> StoredBatches:
    """In order, six in a batch."""
    whole = random_batch(list(range(20)))
    return StoredBatches(*(rows_of(whole, ids) for ids in torch.arange(20).split(6)))


@pytest.mark.parametrize(("backbone", "n_inputs"), [("vse_infinity", 6), ("sgr", 4 * 6)])
def test_each_network_carries_a_classifier_of_its_own(backbone: str, n_inputs: int) -> None:
    method = small(backbone)
    first, second = (network.pseudo_classifier for network in method.networks)
    assert first.hidden.in_features == n_inputs
    assert not torch.equal(first.hidden.weight, second.hidden.weight)
    assert "networks.1.pseudo_classifier.out.weight" in method.state_dict()


def test_warm_up_stores_predictions_under_the_number_of_their_pair() -> None:
    method = small()
    method.matched_step(1, random_batch([3, 19, 8]), None, Steps(method))
    stored = method.prediction[1].values.sum(dim=1)
    assert stored[[3, 19, 8]].tolist() == pytest.approx([1, 1, 1])
    assert stored.sum().item() == pytest.approx(3)
    assert (method.prediction[0].values == 0).all()


def test_without_rectification_clean_pairs_have_label_one(monkeypatch: pytest.MonkeyPatch) -> None:
    method, seen = small(rectify=False, noisy_from_epoch=9), list[float]()
    method.clean_probability[1].write(torch.arange(20), torch.full((20,), 0.9))
    monkeypatch.setattr(method, "matched_step", lambda k, batch, labels, step: seen.extend(labels.tolist()))
    method.train_network(0, EpochPlan(0, 5, "train", 1.0), twenty_pairs(), Steps(method))
    assert len(seen) > 1
    assert set(seen) == {1.0}


def test_of_copies_of_an_image_the_first_lends_its_caption() -> None:
    clean = torch.tensor([[0.0, 1.0], [1.0, 0.0], [1.0, 1e-7], [0.0, 1.0]])
    # rounding makes row 2 the nearest of its image, and rows 0 and 3 tie although their images differ
    likeness, rows = most_alike(torch.tensor([[1.0, 2e-7], [0.0, 1.0]]), clean, torch.tensor([5, 7, 7, 9]))
    assert rows.tolist() == [1, 0]
    assert likeness.tolist() == [1, 1]


@pytest.mark.parametrize("backbone", ["vse_infinity", "sgr", "scan"])
def test_captions_are_borrowed_by_the_nearest_embedding(
    backbone: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    method, batch = small(backbone, borrow_by="embedding"), random_batch(list(range(8)))
    clean, noisy = rows_of(batch, torch.arange(4)), rows_of(batch, torch.tensor([2, 0]))
    noisy = replace(noisy, pair_ids=torch.tensor([18, 19]))
    chosen: list[Tensor] = []
    monkeypatch.setattr(
        pc2, "borrowed", lambda c, rows, longest: chosen.append(rows) or borrowed(c, rows, longest)
    )
    method.eval()
    method.pseudo_captioned_step(0, clean, noisy, clean.pair_ids, Steps(method))
    assert chosen[0].tolist() == [2, 0]


@pytest.mark.parametrize("epoch", [1, 2])
def test_noisy_batches_follow_clean_ones_of_the_division_that_the_peer_made(epoch: int) -> None:
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
