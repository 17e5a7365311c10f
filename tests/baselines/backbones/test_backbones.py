"""What every registered backbone keeps: shapes, range, indifference to padding, no foreign weights."""

from dataclasses import replace

import pytest
import torch
from pydantic import ValidationError
from support.parity import (
    FILES,
    TRAINED,
    encoded,
    small_batch,
    small_network,
    state_of,
    without_dropout,
)
from support.refusals import refused
from support.rounding import assert_near

from baselines.backbones import BACKBONES, build_backbone
from baselines.kit.distributed import set_products
from baselines.published.weights import backbone_of, network_from
from ncl_bench.errors import RecipeError

NAMES = sorted(set(TRAINED) - {"clip"})  # which has a file of its own
DEVICES = ["cpu", pytest.param("cuda", marks=pytest.mark.gpu)]
EVERY_NAME = pytest.mark.parametrize("name", NAMES)
EVERY_DEVICE = pytest.mark.parametrize("device", DEVICES)
LENGTHS = [4, 2, 7, 5]


@EVERY_NAME
def test_forward_gives_images_by_captions_within_the_range(name):
    network = small_network(name)
    similarities = network(small_batch(4, LENGTHS)).similarities
    low, high = network.similarity_range
    assert similarities.shape == (4, 4)
    assert ((similarities >= low) & (similarities <= high)).all()
    assert network.embed_size == 32


def of_type(batch, dtype):
    return replace(batch, image_features=batch.image_features.to(dtype))


def similarities_and_gradients(name, device, dtype):
    set_products("32-true")
    network = without_dropout(small_network(name)).to(device, dtype).train()
    batch = of_type(small_batch(4, LENGTHS), dtype).to(torch.device(device))
    similarities = network(batch).similarities
    similarities.square().sum().backward()
    gradients = {key: p.grad.double().cpu() for key, p in network.named_parameters() if p.grad is not None}
    return similarities.detach().double().cpu(), gradients


@EVERY_DEVICE
@EVERY_NAME
def test_a_device_computes_in_float32_what_double_precision_gives(name, device):
    found = similarities_and_gradients(name, device, torch.float32)
    expected = similarities_and_gradients(name, "cpu", torch.float64)
    assert_near(found, expected, 1e-3, scale=0.01)


RECURRENT = {"scan", "vse_infinity", "vsrn"}
"""Their outputs may hold no product in bfloat16 but those of recurrent units, which are computed in float32."""


@EVERY_DEVICE
@EVERY_NAME
def test_a_mixed_network_gives_float32_similarities_that_are_told_apart(name, device):
    set_products("32-true")
    network = without_dropout(small_network(name)).to(device, torch.float32).train()
    batch = of_type(small_batch(8, [3 + k for k in range(8)]), torch.float32).to(torch.device(device))
    found = {}
    for network.mixed in (False, True):
        images, captions = encoded(network, batch)
        found[network.mixed] = [network.compare(images, captions)]
        if network.intra_modal:
            found[network.mixed].append(network.image_image_similarities(images))
            found[network.mixed].append(network.caption_caption_similarities(captions))
        network.zero_grad()
        losses = [x.sum() for x in (*found[network.mixed], network.auxiliary_losses(images, batch))]
        sum(losses).backward()
        assert all(p.grad is None or p.grad.isfinite().all() for p in network.parameters())
    for half, exact in zip(found[True], found[False], strict=True):
        assert half.dtype == torch.float32
        assert half.unique().numel() > 0.9 * exact.unique().numel()
        assert not torch.equal(half, exact) or name in RECURRENT
        assert_near(half, exact, 0.03 * network.similarity_range[1], scale=1)


@EVERY_NAME
def test_a_similarity_ignores_the_padding_of_its_batch(name):
    network = small_network(name)
    batch = small_batch(3, LENGTHS)
    tokens, caption_lengths = batch.caption_tokens, batch.caption_lengths
    images, captions = encoded(network, batch)
    together = network.similarities(images, captions)
    for k, length in enumerate(LENGTHS):
        alone = network.encode_captions(tokens[k : k + 1, :length], caption_lengths[k : k + 1])
        assert_near(network.similarities(images, alone), together[:, k : k + 1])


@EVERY_NAME
def test_vectors_are_zero_beyond_a_captions_length(name):
    _, captions = encoded(small_network(name), small_batch(1, LENGTHS))
    assert captions.lengths.tolist() == LENGTHS
    assert captions.vectors.dim() == (2 if BACKBONES[name].pools else 3)
    if captions.vectors.dim() == 3:
        assert all(captions.vectors[k, length:].eq(0).all() for k, length in enumerate(LENGTHS))
    if captions.pooled is not None:
        assert_near(captions.pooled.norm(dim=-1), torch.ones(4), 1e-6)


def test_padded_regions_do_not_count_in_a_pooled_image():
    network = small_network("vse_infinity")
    features, lengths = small_batch(2, LENGTHS).image_features, torch.tensor([16, 5])
    cut = network.encode_images(features[1:, :5], lengths[1:])
    assert_near(network.encode_images(features, lengths).vectors[1:], cut.vectors)


@pytest.mark.parametrize("name", ["sgr", "saf"])
def test_all_regions_count_for_region_word_backbones(name):
    network = small_network(name)
    whole, shorter = (encoded(network, small_batch(2, LENGTHS, [n] * 2))[0].vectors for n in (16, 11))
    assert torch.equal(shorter, whole)


@pytest.mark.parametrize("variant", ["gsc", "gsc+"])
@pytest.mark.parametrize("name", ["vse_infinity", "vsrn"])
def test_pooled_items_of_a_modality_are_compared_by_their_inner_product(name, variant):
    network = small_network(name)
    images, captions = encoded(network, small_batch(3, LENGTHS))
    assert_near(network.image_image_similarities(images, variant), images.vectors @ images.vectors.T)
    found = network.caption_caption_similarities(captions, variant)
    assert_near(found, captions.vectors @ captions.vectors.T)


@EVERY_NAME
def test_gradients_stay_finite_where_an_image_is_blank(name):
    network, batch = small_network(name), small_batch(2)
    blank = replace(batch, image_features=torch.zeros_like(batch.image_features))
    similarities = network.similarities(*encoded(network, blank))
    similarities.sum().backward()
    assert similarities.isfinite().all()
    assert all(p.grad is None or p.grad.isfinite().all() for p in network.parameters())


def region_layer(state):
    return next(name for name in ("img_enc.fc.weight", "img_enc.fc_local.weight") if name in state)


@pytest.mark.parametrize(
    ("name", "options"),
    [
        ("imram", {"steps": 2}),
        ("saf", {"dropout": 0.1}),
        ("scan", {"direction": "i2t"}),
        ("sgr", {"dropout": 0.1}),
        ("vse_infinity", {"temperature": 0.5}),
        ("vsrn", {"caption_dropout": 0.1}),
    ],
)
def test_options_that_weights_do_not_tell_are_given(name, options, golden):
    state = state_of(golden(FILES[name]))
    config = network_from(name, state, **options).config
    assert config.model_dump(include=options) == options
    with pytest.raises(ValidationError, match="dropuot"):
        network_from(name, state, dropuot=0.1)


@EVERY_NAME
def test_published_weights_are_recognised_and_fit_their_backbone_alone(name, golden):
    for owner in NAMES:
        state = state_of(golden(FILES[owner]))
        assert backbone_of(state) == owner
        if owner == name:
            sizes = {tuple(p.shape) for p in network_from(name, state).parameters()}
            assert tuple(state[region_layer(state)].shape) in sizes
        else:
            with refused(ValueError):
                network_from(name, state)


@EVERY_NAME
def test_incomplete_published_weights_are_refused(name, golden):
    state = state_of(golden(FILES[name]))
    layer = region_layer(state)
    for missing in (layer, layer.replace("weight", "bias")):
        cut = {key: value for key, value in state.items() if key != missing}
        with pytest.raises((ValueError, RuntimeError), match=r"weights lack|Missing key"):
            network_from(name, cut)


def test_unknown_names_and_options_are_refused():
    with refused(RecipeError):
        build_backbone("sgraf", None, feature_dim=66, n_regions=16, vocabulary_size=40)
    for name in NAMES:
        with pytest.raises(ValidationError):
            BACKBONES[name].Config(embed_sise=4)
