"""PCSR against the published code's numbers, in its published and in its repaired form."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from numpy.random import RandomState
from support.doubles import FixedSimilarities, Steps, StoredBatches, rows_of
from support.parity import (
    TRAINED,
    assert_weights,
    gradients_of,
    network_of,
    small_batch,
    small_network,
    tensor,
)
from support.rounding import assert_near
from torch import nn

from baselines.backbones import BACKBONES
from baselines.backbones.encoders import WordEncoder, unit_length, xavier_linear
from baselines.kit.backbone import Backbone, Encoded
from baselines.kit.batches import Batch, to_device
from baselines.kit.losses import hardest_triplet, info_nce, mean_triplet
from baselines.kit.method import EpochPlan, Setting
from baselines.kit.mixture import clean_posterior, exceeds, is_clean
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
from baselines.methods.pcsr import (
    PCSR,
    VOTES_PER_DIVISION,
    PCSRConfig,
    consistency_score,
    moved_threshold,
    pcsr_triplet,
    resized_from_own_length,
    robust_classification_loss,
    target_share,
)
from baselines.published.weights import SGRAF, translate

HEAD = {"first_hidden_layer.fc.": "hidden.", "output_layer.": "out."}
C = PCSRConfig()
TRAIN = EpochPlan(0, 0, "train", 1.0)
BOTH = pytest.mark.parametrize("faults", ["published", "repaired"])


def test_losses_of_similarities_match_the_published_code(precise):
    stored = precise("Z_pcsr_losses")
    for matrix in stored.names("scores."):
        for name, loss_of in {
            "warmup": lambda s, y: info_nce(s, C.temperature).mean(),
            "division": lambda s, y: mean_triplet(s, C.margin, floor=FLOOR),
            "hinge_plain": lambda s, y: hardest_triplet(s, C.margin, floor=FLOOR).sum(),
            "hinge_row": lambda s, y: pcsr_triplet(s, y, "row", C.margin).sum(),
            "hinge_column": lambda s, y: pcsr_triplet(s, y, "column", C.margin).sum(),
        }.items():
            labels, scores = stored.leaf(f"labels.{matrix}"), stored.leaf(f"scores.{matrix}")
            loss, key = loss_of(scores, labels), f"{matrix}.{name}"
            stored.near(loss, f"{key}.value", 1e-5, 1e-9, scale=0.2)
            loss.sum().backward()
            if matrix in ("ties", "all_equal") and name.startswith("hinge"):
                continue
            stored.near(scores.grad, f"{key}.grad", 2e-4, scale=0.1)
            if labels.grad is not None:
                stored.near(labels.grad, f"{key}.grad_labels", 2e-4, scale=0.1)


def test_losses_of_predictions_match_the_published_code(precise):
    stored = precise("Z_pcsr_losses")
    for case in stored.names("target_logits."):
        targets, logits = stored(f"target_logits.{case}"), stored.leaf(f"logits.{case}")
        predictions = logits.softmax(dim=1)
        spread = entropy(predictions).mean()
        stored.near(spread, f"{case}.entropy", 1e-5, 1e-9)
        for name, losses in (
            ("clean", classification_loss(logits, targets)),
            ("ambiguous", robust_classification_loss(predictions, targets, C.tolerance)),
        ):
            loss = losses.mean()
            stored.near(loss, f"{case}.{name}.value", 1e-5, 1e-9)
            for each, of in ((loss, ""), (loss - C.entropy_weight * spread, "_with_entropy")):
                (grad,) = torch.autograd.grad(each, logits, retain_graph=True)
                stored.near(grad, f"{case}.{name}.grad{of}", 2e-4, scale=0.1)


class StandIn(Backbone):
    """The stand-in of the index: the sigmoid of a scaled cosine between mean region and mean word.

    Its encoders are those of SGR, or hand out stored vectors.
    """

    fixed_regions = True

    def __init__(self, state):
        super().__init__()
        own, of_similarity = dict(state), ("sim_enc.scale", "sim_enc.shift")
        self.scale, self.shift = (nn.Parameter(own.pop(name)) for name in of_similarity)
        if own:
            self.embed_size, feature_dim = own["img_enc.fc.weight"].shape
            self.regions = xavier_linear(feature_dim, self.embed_size)
            self.words = WordEncoder(*own["txt_enc.embed.weight"].shape, self.embed_size)
            self.to(self.scale.dtype).load_state_dict(self.state_dict() | translate(own, SGRAF))

    def encode_images(self, image_features, image_lengths):
        vectors = unit_length(self.regions(image_features)) if hasattr(self, "regions") else image_features
        return Encoded(vectors, image_lengths)

    def encode_captions(self, caption_tokens, caption_lengths):
        vectors = caption_tokens
        if hasattr(self, "words"):
            vectors = unit_length(self.words(caption_tokens, caption_lengths))
        return Encoded(vectors, caption_lengths)

    def similarities(self, images, captions):
        # a count beyond the words: the slice ends there
        counts = captions.lengths.clamp(max=captions.vectors.shape[1])
        read = torch.arange(captions.vectors.shape[1]) < counts[:, None]
        means = (captions.vectors * read[..., None]).sum(dim=1) / to_device(counts, read.device)[:, None]
        cosines = unit_length(images.vectors.mean(dim=1)) @ unit_length(means).T
        return torch.sigmoid(self.scale * cosines + self.shift)


def head_of(state):
    """C with entries ``head.*`` of the paper's code; the images have 36 regions."""
    ours = translate(state, {f"head.{theirs}": name for theirs, name in HEAD.items()})
    hidden_size, n_inputs = ours["hidden.weight"].shape
    head = PseudoClassifier(36, n_inputs // 36, hidden_size, len(ours["out.weight"]))
    head.to(ours["out.weight"].dtype).load_state_dict(ours)
    return head


def heads_in(stored, prefix, end=""):
    names = stored.names(f"{prefix}head.", end)
    names = names if end else [name for name in names if not name.endswith("__f64")]
    return {f"head.{name}": stored(f"{prefix}head.{name}{end}") for name in names}


def network_with(state):
    """SGR, or the stand-in, with a pseudo-classifier."""
    rest = {name: x for name, x in state.items() if not name.startswith("head.")}
    sgr = any(name.startswith("sim_enc.SGR_module") for name in rest)
    network = network_of("sgr", rest) if sgr else StandIn(rest)
    head = head_of({name: x for name, x in state.items() if name not in rest})
    network.embed_size, network.pseudo_classifier = head.hidden.in_features // 36, head
    return network


def method_of(stored, prefixes, n_pairs, **options):
    """PCSR whose networks are stored ones, with the sizes of the stored head."""
    states = [stored.state(prefix) | heads_in(stored, prefix) for prefix in prefixes]
    networks = [network_with(state) for state in states]
    heads, given = [network.pseudo_classifier for network in networks], iter(networks)
    sizes = {"classes": heads[0].out.out_features, "hidden_size": heads[0].hidden.out_features}
    method = PCSR(PCSRConfig(**sizes, **options), Setting(n_pairs, 36, 1, lambda: next(given)))
    for network, head in zip(method.networks, heads, strict=True):
        network.pseudo_classifier = head
    return method.to(stored.dtype).train()


def handed_out(stored, case, ids=None, of=""):
    """A batch whose features and tokens are stored vectors."""
    images, captions = (stored.leaf(f"{case}.{of}{x}") for x in ("images", "captions"))
    lengths, ids = stored(f"{case}.{of}lengths"), torch.arange(len(images)) if ids is None else ids
    return Batch(images, torch.full((len(images),), images.shape[1]), captions, lengths, ids)


def test_predictions_match_the_published_code(precise):
    stored = precise("Z_pcsr_head")
    for case in stored.names("", ".images"):
        batch = handed_out(stored, case)
        method = method_of(stored, ("", ""), len(batch), faults="published")
        network = method.networks[0].eval()
        output = network(batch)
        found = {
            "pooled": resized(output.captions.vectors, 36),
            "P": classify(network, output.images).softmax(dim=1),
            "Q": method.caption_logits(network, output.captions).softmax(dim=1),
            "sims": output.similarities,
            "loss": method.pair_losses(output.similarities),
        }
        if stored.double:
            repaired = method_of(stored, ("", ""), len(batch))
            own = repaired.caption_logits(repaired.networks[0], output.captions)
            found["own_length.Q"] = own.softmax(dim=1)
        for name, each in found.items():
            stored.near(each, f"{case}.{name}", double=1e-9)
        method.vote(0, batch.pair_ids, found["P"], 1)
        stored.equal(method.votes[0].values, f"{case}.votes")


def test_a_caption_is_resized_as_torch_resizes_it_alone():
    words = torch.rand(3, 9, 2)
    lengths = torch.tensor([9, 4, 5])
    words = words * (torch.arange(9) < lengths[:, None])[..., None]
    for n_items in (4, 5, 7, 12):
        alone = torch.cat([resized(words[i : i + 1, :n], n_items) for i, n in enumerate(lengths.tolist())])
        assert_near(resized_from_own_length(Encoded(words, lengths), n_items), alone, 1e-6)


class LeafSteps(Steps):
    """Keeps the gradients of leaves that no optimiser updates too."""

    def __init__(self, method, leaves):
        super().__init__(method)
        self.leaves = leaves

    def __call__(self, modules, loss, *args, **terms):
        found = torch.autograd.grad(loss, list(self.leaves.values()), retain_graph=True)
        for leaf, grad in zip(self.leaves.values(), found, strict=True):
            leaf.grad = grad
        super().__call__(modules, loss, *args, **terms)


@BOTH
@pytest.mark.parametrize("kind", ["refinable", "ambiguous"])
def test_borrowed_captions_match_the_published_code(kind, faults, double):
    stored = double("Z_pcsr_refine")
    for case in stored.names("", ".clean_images"):
        positions, clean = stored(f"{case}.positions"), handed_out(stored, case, of="clean_")
        batch = handed_out(stored, case, positions)
        n_pairs = int(positions.max()) + len(clean) + 1
        method = method_of(stored, ("", ""), n_pairs, faults=faults)
        network = method.networks[0]
        predictions, donors = (
            classify(network, Encoded(x.image_features, x.image_lengths)).softmax(dim=1)
            for x in (batch, clean)
        )
        likeness, rows = most_alike(predictions, donors, torch.arange(len(donors)))
        stored.equal(rows, f"{case}.nearest")
        assert_near(likeness, stored[f"{case}.cosine__f64"].max(axis=1), 1e-9)
        captions = Encoded(clean.caption_tokens, clean.caption_lengths)
        resting = borrowed(captions, rows, batch.caption_tokens.shape[1])
        inside = torch.arange(resting.vectors.shape[1]) < resting.lengths[:, None]
        # the code keeps 1e-8 of the old caption, and we do not
        want = tensor(stored[f"{case}.replaced__f64"]) * inside[..., None]
        assert_near(resting.vectors, want, 1e-6)
        leaves = {"images": batch.image_features, "clean_captions": clean.caption_tokens}
        step = LeafSteps(method, leaves)
        method.borrowed_step(0, clean, batch, clean.pair_ids, step, robust=kind == "ambiguous")
        assert_near(method.prediction[0].read(positions), stored[f"{case}.bank"], 1e-9)
        key = f"{case}.{kind}." + ("" if faults == "published" else "as_it_is.")
        stored.near(step.losses[0], f"{key}loss", double=1e-6)
        largest = max(np.abs(stored[f"{key}grad_{name}__f64"]).max() for name in leaves)
        for name, leaf in leaves.items():
            stored.near(leaf.grad, f"{key}grad_{name}", double=1e-6, scale=largest)
        if kind == "ambiguous" or faults == "published":
            wanted, base = heads_in(stored, f"{key}grad.", "__f64"), heads_in(stored, "")
            near = {"relative": 1e-6, "absolute": 1e-6 * largest}
            near["some"] = faults == "repaired"  # what has no gradient is not stored
            assert_weights(gradients_of(network.pseudo_classifier), head_of, base, wanted, **near)


def test_division_matches_the_published_code(single):
    stored = single("Z_pcsr_division")
    stand_in = FixedSimilarities(torch.eye(2))
    stand_in.embed_size, stand_in.pools = 2, False
    for case in sorted(stored.names("", ".np_seed")):
        state = RandomState(int(stored[f"{case}.np_seed"]))
        loss, now, bank, votes = (
            {of: stored(f"{case}.{name}_{of}") for of in "AB"}
            for name in ("loss", "P", "bank", "votes_before")
        )
        oscillations = {of: oscillation(bank[of].nan_to_num(0.0), now[of]).double() for of in "AB"}
        w = {of: clean_posterior(loss[of].double(), random_state=state) for of in "AB"}
        kept = {of: clean_posterior(oscillations[of], random_state=state) for of in "AB"}
        for number, of in enumerate("AB"):
            (n, classes), ids = now[of].shape, torch.arange(len(now[of]))
            is_kept = is_clean(kept[of], C.clean_threshold)
            label = rectified_label(w[of], kept[of], is_kept)
            found = {"oscillation": oscillations[of], "w": w[of], "c": kept[of], "label": label}
            for name, each in found.items():
                stored.near(each, f"{case}.{name}_{of}", 1e-5)
            method = PCSR(PCSRConfig(classes=classes), Setting(n, 36, 1, lambda: stand_in))
            method.votes[0].values.copy_(votes[of])
            method.vote(0, ids, now[of], VOTES_PER_DIVISION)
            epoch = int(stored[f"{case}.epoch"])
            if epoch > 0:
                method.threshold[0] = float(stored[f"{case}.tau_before"][number])
            method.move_threshold(0, EpochPlan(0, epoch, "train", 1.0), ids)
            stored.near(method.threshold[0], f"{case}.tau_{of}", 1e-6)
            method.clean_probability[0].write(ids, w[of])
            sets = torch.zeros(n, dtype=torch.int64)
            for kind, members in enumerate(method.three_sets(0, ids)):
                sets[members] = kind
            tallies = method.votes[0].values
            exact = {"c_kept": is_kept, "votes": tallies, "pcs": consistency_score(tallies), "set": sets}
            for name, each in exact.items():
                stored.equal(each, f"{case}.{name}_{of}")
    for case in stored.names("direct.", ".prob"):
        stored.equal(exceeds(tensor(stored[f"direct.{case}.prob"]), C.clean_threshold), f"direct.{case}.kept")
    votes = torch.tensor([[4, 1, 0], [7, 0, 0], [0, 0, 0], [2, 2, 1]])
    stored.equal(consistency_score(votes), "direct.pcs")
    plan = PCSRConfig(epochs=len(stored["schedule.rate"])).plan()
    stored.near([each.learning_rate for each in plan if each.phase == "train"], "schedule.rate", 1e-12)


def test_the_threshold_falls_while_too_few_pairs_score_above_it():
    c = PCSRConfig()
    assert [target_share(done, c) for done in (0, 0.5, 1)] == pytest.approx([0.4, 0.65, 0.9])
    tau = torch.tensor(3.0)
    assert moved_threshold(tau, torch.tensor(0.4), 0.9, c).item() == pytest.approx(3 - 0.06 * 0.5)
    assert moved_threshold(tau, torch.tensor(1.0), 0.9, c) > tau


FILES = pytest.mark.parametrize("file", ["Z_pcsr_step", "Z_pcsr_step_sgr"])
KINDS = ("clean", "refinable", "ambiguous")


def stored_steps(stored, **options):
    method = method_of(stored, ("A.", "B."), len(stored["images"]), **options)
    return method, Steps(method, float(stored["learning_rate"]))


def batches_named(stored, name, members=None):
    found, whole = [], stored.batch("")
    for number in sorted(int(n) for n in stored.names(name) if n.isdigit()):
        rows = stored[f"{name}{number}"]
        part = rows_of(whole, tensor(rows if members is None else members[rows]))
        found.append(replace(part, caption_tokens=part.caption_tokens[:, : int(part.caption_lengths.max())]))
    return found


def near_after(method, stored, prefix, absolute):
    """Compare the weights of network A with stored ones."""
    wanted = {
        name: tensor(x)
        for name in stored.results(prefix, "")
        if (x := stored[f"{prefix}{name}__f64"]).dtype.kind == "f" and "running_" not in name
    }
    base, weights = stored.state("A.") | heads_in(stored, "A."), dict(method.networks[0].named_parameters())
    assert_weights(weights, network_with, base, wanted, relative=0, absolute=absolute, some=True)


@FILES
def test_the_warm_up_and_the_division_after_it_match_the_published_code(file, double):
    stored = double(file)
    method, step = stored_steps(stored)
    batches = batches_named(stored, "warmup.batch")
    for _ in range(len(stored["warmup.loss"]) // len(batches)):
        for k in range(2):
            for batch in batches:
                method.warmup_step(k, batch, step)
    of_a = [
        loss
        for loss, (modules, *_) in zip(step.losses, step.calls, strict=True)
        if modules[0] is method.networks[0]
    ]
    stored.near(of_a, "warmup.loss", double=1e-6)
    near_after(method, stored, "warmup.after.", 1e-6)
    for k, of in enumerate("AB"):
        stored.near(method.prediction[k].values, f"warmup.bank_{of}", double=1e-6)
        stored.equal(method.votes[k].values, f"warmup.votes_{of}")
    method.co_divide(TRAIN, StoredBatches(*batches))
    for k, of in enumerate("AB"):
        stored.equal(method.votes[k].values, f"division.votes_{of}")
        assert_near(method.threshold[k], stored[f"division.tau_{of}"], 1e-6)
    losses = (stored["division.loss_A__f64"] + stored["division.loss_B__f64"]) / 2
    assert_near(method.divided_by, losses, 1e-6)
    assert 1 <= method.classes_used.min() <= method.classes_used.max() <= method.config.classes


@BOTH
@pytest.mark.parametrize("kind", KINDS)
@FILES
def test_an_epoch_matches_the_published_code(file, kind, faults, double):
    stored = double(file)
    method, step = stored_steps(stored, faults=faults)
    own = {
        name: batches_named(stored, f"train.{name}_batch", np.flatnonzero(stored["train.set"] == number))
        for number, name in enumerate(KINDS)
    }
    method.prediction[0].values.copy_(stored("train.bank"))
    w, c = stored("train.w"), stored("train.c")
    method.clean_probability[1].write(torch.arange(len(w)), w)
    method.stable_probability[1].write(torch.arange(len(c)), c)
    # the sets are given: a score of 1 for what is refinable
    method.votes[1].values[:, 0] = (stored("train.set") == 1).to(torch.int16)
    method.threshold[1] = 0.5
    method.is_clean = lambda p: (
        stored("train.set") == 0 if torch.equal(p, w.to(p)) else stored("train.c_kept")
    )
    plan = EpochPlan(0, int(stored[f"{kind}.epoch"]), "train", 1.0)
    method.train_network(0, plan, StoredBatches(**own), step)
    names = ("triplet", "refinable", "ambiguous")
    kinds = [next(n for n, name in enumerate(names, start=1) if name in terms) for *_, terms in step.calls]
    stored.equal(kinds, f"{kind}.kind")
    start = f"{kind}." if faults == "published" else f"repaired.{kind}."
    # the code keeps 1e-8 of an old caption, whose gradient Adam divides by its own size
    near = 1e-3 if faults == "published" and kind != "clean" else 1e-6
    matching = [terms[names[number - 1]] for number, (*_, terms) in zip(kinds, step.calls, strict=True)]
    for name, found in (("loss", step.losses), ("matching", matching), ("grad_norm", step.norms)):
        stored.near(found, start + name, double=10 * near)
    if faults == "repaired" and kind != "clean":
        stored.near(method.prediction[0].values, f"{start}bank", double=1e-6)
    if faults == "published" or kind == "ambiguous":
        near_after(method, stored, f"{start}after.", near)


def small(backbone):
    config = {"classes": 5, "hidden_size": 7}
    return PCSR(PCSRConfig(**config), Setting(20, 16, 40, lambda: small_network(backbone))).double().train()


@pytest.mark.parametrize("backbone", [name for name in TRAINED if not BACKBONES[name].reads_images])
def test_every_backbone_takes_every_step(backbone):
    method, batch = small(backbone), small_batch(8)
    step = Steps(method, 1e-3)
    method.warmup_step(0, batch, step)
    method.co_divide(TRAIN, StoredBatches(batch))
    method.clean_step(0, batch, torch.ones(8).double(), step)
    for robust in (True, False):
        method.borrowed_step(0, batch, batch, batch.pair_ids, step, robust=robust)
    assert len(step.losses) == 4
    assert np.isfinite(step.losses).all()
    # a borrowed step lends a pair its own caption here, for its image is nearest to itself
    assert method.votes[0].values[:8].sum(dim=1).tolist() == [1 + VOTES_PER_DIVISION] * 8


def test_votes_and_predictions_are_those_of_a_pair_and_outlive_a_set():
    method, batch = small("vse_infinity"), small_batch(8)
    ids = torch.tensor([3, 19, 8, 0, 5, 6, 7, 9])
    moved = replace(batch, pair_ids=ids)
    method.borrowed_step(1, moved, moved, ids, Steps(method), robust=False)
    stored = method.prediction[1].values.sum(dim=1)
    assert stored[ids].tolist() == pytest.approx([1] * 8)
    assert stored.sum().item() == pytest.approx(8)
    assert {"votes.0.values", "threshold", "classes_used"} <= method.state_dict().keys()
