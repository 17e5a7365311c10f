"""VSRN against the numbers of the published code, and against the loop from the definition."""

import warnings

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from oracles import vsrn_loop
from support.parity import (
    encoded,
    five_steps,
    network_of,
    published_loss,
    small_batch,
    without_dropout,
)
from support.rounding import assert_equals_loop, assert_near
from torch import nn

from baselines.backbones.captioner import labels_to_write
from baselines.backbones.encoders import reading_order
from baselines.backbones.vsrn import VSRN, VSRNConfig

FILES = {"scaled": "O_vsrn_coco", "batch_norm": "O_vsrn_f30k"}
EVERY_ENCODER = pytest.mark.parametrize("encoder", FILES)
MODES = ("eval", "train")
LENGTHS = [4, 2, 7, 5]


def vsrn(stored, mode="train"):
    """The network of an image encoder's stored numbers, and the batch."""
    network = stored.network("vsrn", caption_longest=int(stored["in.max_len"]))
    return network.train(mode == "train"), stored.batch()


@pytest.mark.parametrize("mode", MODES)
@EVERY_ENCODER
def test_regions_and_caption_losses_match(encoder, mode, precise):
    stored = precise(FILES[encoder])
    network, batch = vsrn(stored, mode)
    assert network.config.image_encoder == encoder
    images, _ = encoded(network, batch)
    related = network.images.related(batch.image_features)
    regions = images.regions if mode == "train" else related
    stored.near(regions, f"{mode}.regions", 5e-5, 1e-9)
    if not stored.double:
        losses = network.captioner(related, batch.caption_tokens, batch.caption_lengths)
        stored.near(losses.mean(), f"{mode}.caption_loss", 1e-5)


@EVERY_ENCODER
def test_labels_and_caption_probabilities_match(encoder, single):
    stored = single(FILES[encoder])
    longest = int(stored["in.max_len"])
    found, counts = labels_to_write(stored("in.captions"), stored("in.lengths"), longest)
    labels = stored("in.caption_labels")
    assert torch.equal(found, labels[:, :longest])
    assert labels[:, longest].eq(0).all()
    written = torch.arange(1, longest) <= counts[:, None]
    assert torch.equal(written, stored("in.caption_masks")[:, 1:longest].bool())
    network, batch = vsrn(stored)
    n, steps, words = stored["train.caption_logprobs"].shape
    order = reading_order(torch.full((n,), steps), labels.shape[1])
    regions = network.images.related(batch.image_features)
    logits = network.captioner.logits(regions, labels, order, order.items[0])
    found = logits.log_softmax(dim=1).view(steps, n, words).transpose(0, 1)
    stored.near(found, "train.caption_logprobs", 2e-5)


@EVERY_ENCODER
def test_the_auxiliary_losses_have_the_published_mean_and_gradients(encoder, precise):
    stored = precise(FILES[encoder])
    network, batch = vsrn(stored)
    losses = network.auxiliary_losses(network.encode_images(batch.image_features, batch.image_lengths), batch)
    assert losses.shape == (len(batch),)
    stored.near(losses.mean(), "train.caption_loss", 1e-5, 1e-11)
    losses.mean().backward()
    near = {"relative": 1e-9 if stored.double else 2e-3, "of_all": 0, "absolute": 0, "some": False}
    vanishing = (".W.0.bias",)
    assert stored.near_gradients(
        network, "grad_caption_loss.", stored.state(), "vsrn", vanishing=vanishing, **near
    )


@EVERY_ENCODER
def test_five_steps_of_training_match_where_the_captioner_counts_twice(encoder, double):
    """In double precision: rounding in single precision alone moves the last gradient by 0.7 %."""
    stored = double(FILES[encoder])
    network, batch = vsrn(stored)
    parts = {"Le_retrieval": [], "Le_caption": []}

    def loss():
        images, captions = encoded(network, batch)
        retrieval = published_loss(network.similarities(images, captions), hardest=True)
        caption = network.auxiliary_losses(images, batch).mean()
        parts["Le_retrieval"].append(retrieval.item())
        parts["Le_caption"].append(caption.item())
        return retrieval + caption

    def after(step):
        layers = {"img_enc.fc": network.images.regions, "caption_model.decoder.out": network.captioner.out}
        for name, layer in layers.items() if step == 0 else ():
            assert_near(layer.bias, stored[f"traj.after1.{name}.bias"], 2e-5, scale=1)

    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message=".*duplicate parameters.*")
        losses, lengths = five_steps([*network.parameters(), *network.captioner.parameters()], loss, after)
    for name, values in {**parts, "Le": losses, "grad_norm": lengths}.items():
        assert_near(values, stored[f"traj.{name}"], 5e-3 if name == "grad_norm" else 1e-3, name=name)


def fresh(seed=0, **options):
    torch.manual_seed(seed)
    sizes = {"embed_size": 24, "word_dim": 10, "caption_hidden": 14, "caption_word_dim": 8, **options}
    network = VSRN(VSRNConfig(**sizes), feature_dim=66, n_regions=16, vocabulary_size=40).double()
    for name, weight in network.named_parameters():
        if "norm" in name:
            nn.init.normal_(weight, 0.5, 0.3)
    return network


@given(
    lengths=st.lists(st.integers(1, 9), min_size=2, max_size=6),
    padding=st.integers(0, 3),
    longest=st.integers(2, 11),
    encoder=st.sampled_from(sorted(FILES)),
    mode=st.sampled_from(MODES),
)
@settings(max_examples=12)
def test_similarities_caption_losses_and_gradients_equal_the_loop(lengths, padding, longest, encoder, mode):
    network = fresh(image_encoder=encoder, graph_layers=2, caption_longest=longest, caption_dropout=0.0)
    network.train(mode == "train")
    batch = small_batch(len(lengths), lengths)
    features, tokens, counts = batch.image_features[:, :5], batch.caption_tokens, batch.caption_lengths

    def fast():
        padded = nn.functional.pad(tokens, (0, padding))
        regions = network.images.related(features)
        vectors = network.encode_captions(padded, counts).vectors
        return results(network.images.whole(regions), vectors, network.captioner(regions, padded, counts))

    def loop():
        images, regions = vsrn_loop.image_vectors(network, features)
        vectors = vsrn_loop.caption_vectors(network, tokens, counts)
        return results(images, vectors, vsrn_loop.caption_losses(network, regions, tokens, counts))

    def results(images, captions, losses):
        similarities = images @ captions.T
        weights = torch.arange(1.0, 1 + similarities.numel(), dtype=torch.float64).view_as(similarities)
        network.zero_grad()
        ((similarities * weights).sum() + losses @ weights[0]).backward()
        gradients = {name: p.grad for name, p in network.named_parameters() if p.grad is not None}
        return {"similarities": similarities, "losses": losses, **gradients}

    assert_equals_loop(network, fast, loop)


def test_captions_are_cut_to_the_longest_and_keep_their_end():
    tokens = torch.tensor([[1, 7, 8, 9, 2], [1, 7, 2, 0, 0], [1, 5, 6, 2, 0]])
    labels, counts = labels_to_write(tokens, torch.tensor([5, 3, 4]), 4)
    assert labels.tolist() == [[1, 7, 8, 2], [1, 7, 2, 0], [1, 5, 6, 2]]
    assert counts.tolist() == [3, 3, 3]


def test_the_caption_weight_scales_the_auxiliary_losses_and_zero_leaves_the_captioner_out():
    batch, found = small_batch(4, LENGTHS), {}
    for weight in (0.0, 1.0, 0.5):
        network = without_dropout(fresh(caption_weight=weight)).train()
        found[weight] = network.auxiliary_losses(encoded(network, batch)[0], batch)
        assert any(name.startswith("captioner.") for name, _ in network.named_parameters()) == (weight > 0)
    assert torch.equal(found[0.0], torch.zeros(4, dtype=torch.float64))
    assert_near(found[0.5], 0.5 * found[1.0])


def test_regions_are_kept_in_training_alone():
    batch = small_batch(2, LENGTHS)
    assert encoded(fresh().eval(), batch)[0].regions is None
    assert encoded(fresh().train(), batch)[0].regions.shape == (2, 16, 24)


def test_graph_layers_begin_as_the_identity():
    regions = torch.randn(2, 16, 24)
    graph = VSRN(VSRNConfig(embed_size=24, caption_weight=0), 66, 16, 40).images.graph
    assert torch.equal(graph(regions), regions)


@EVERY_ENCODER
def test_a_checkpoint_without_the_captioner_is_read(encoder, single):
    stored = single(FILES[encoder])
    published = {name: x for name, x in stored.state().items() if not name.startswith("caption_model.")}
    network = network_of("vsrn", published)
    assert network.config.caption_weight == 0
    stored.near(network.similarities(*encoded(network, stored.batch())), "eval.sims", 1e-5)
