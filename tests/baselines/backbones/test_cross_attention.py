"""SCAN and IMRAM: what the published code computes on the way, and in tiles the numbers of the one-caption loop."""

import math
from functools import partial

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from oracles import imram_loop, scan_loop
from support.parity import (
    REGIONS,
    encoded,
    small_batch,
    small_network,
    weighted_gradients,
)
from support.rounding import assert_equals_loop, assert_near

from baselines.backbones import cross_attention
from baselines.backbones.cross_attention import Side, attention, gram, mean_over_items, products, relevance
from baselines.backbones.imram import IMRAM, IMRAMConfig
from baselines.backbones.scan import PUBLISHED_LSE_SHARPNESS, PUBLISHED_SHARPNESS
from baselines.kit import batches
from baselines.kit.backbone import Encoded

SCANS = {
    f"{direction}_{how}": {"direction": direction, "aggregation": how}
    for direction in ("t2i", "i2t")
    for how in ("lse", "avg")
} | {"i2t_lse20": {"direction": "i2t", "aggregation": "lse", "lse_sharpness": 20.0}}
IMRAMS = {mode: {"mode": mode} for mode in ("text", "image", "full")}
EVERY_VARIANT = pytest.mark.parametrize(
    ("backbone", "variant"), [*(("scan", name) for name in SCANS), *(("imram", name) for name in IMRAMS)]
)
DIRECTIONS = ("t2i", "i2t")
LOOKS = {"full.nonorm": ("P_imram", False), "full.norm": ("P_imram_norm", True)}
"""Cases of which every look is stored: their file, and whether memories have unit length."""


def small(backbone, variant, **options):
    return small_network(backbone, **{**(SCANS | IMRAMS)[variant], **options})


def looped(network, images, captions, direction=""):
    if isinstance(network, IMRAM):
        return imram_loop.similarities(network, images, captions)
    c = network.config
    lse = c.lse_sharpness or PUBLISHED_LSE_SHARPNESS[c.direction]
    aggregate = scan_loop.mean if c.aggregation == "avg" else scan_loop.log_sum_exp(lse)
    sharpness = c.attention_sharpness or PUBLISHED_SHARPNESS[c.direction]
    return scan_loop.similarities(images, captions, direction or c.direction, sharpness, aggregate)


def by_caption(stored, images, captions, direction):
    """What looks and what is seen, for each caption whose attention is stored."""
    regions, pairs = Side(images.vectors, None), []
    for k in stored["attn.captions"].tolist():
        words = Side(captions.vectors[k : k + 1, : int(captions.lengths[k])], None)
        pairs.append((words, regions) if direction == "t2i" else (regions, words))
    return pairs


@pytest.mark.parametrize("direction", DIRECTIONS)
def test_attention_and_cosines_of_scan_match(direction, single):
    stored = single("N_scan")
    sides = encoded(stored.network("scan"), stored.batch())
    for j, (looking, seen) in enumerate(by_caption(stored, *sides, direction)):
        between = products(looking, seen)
        weights = attention(between, None, PUBLISHED_SHARPNESS[direction])
        cosines = relevance(looking, between, weights, gram(seen))
        of_images = weights.squeeze(2) if direction == "t2i" else weights.squeeze(0).transpose(0, 1)
        stored.near(of_images, f"attn.{direction}.cap{j}", 2e-5)
        stored.near(cosines.flatten(0, 1), f"attn.{direction}.rel{j}", 2e-5)


def looks(network, name, looking, seen):
    direction = network.directions[name]
    return list(direction.looks(looking, seen, direction.of_looking(looking), direction.of_seen(seen)))


@pytest.mark.parametrize("name", DIRECTIONS)
@pytest.mark.parametrize("case", LOOKS)
def test_each_look_of_imram_matches(case, name, single):
    file, memory_norm = LOOKS[case]
    stored = single(file)
    network = stored.network("imram", memory_norm=memory_norm)
    images, captions = encoded(network, stored.batch())
    valid = torch.arange(captions.vectors.shape[1]) < captions.lengths[:, None]
    looking, seen = Side(captions.vectors, valid), Side(images.vectors, None)
    if name == "i2t":
        looking, seen = seen, looking
    means = [mean_over_items(look.cosines, looking.valid) for look in looks(network, name, looking, seen)]
    found = torch.stack([mean if name == "t2i" else mean.T for mean in means])
    stored.near(found, f"{case}.steps.{name}", 1e-5)
    compared = set()
    for j, (looking, seen) in enumerate(by_caption(stored, images, captions, name)):
        for step, look in enumerate(looks(network, name, looking, seen)):
            attended = look.weights.flatten(2).transpose(1, 2) @ seen.vectors
            values = {
                "attended": attended.view(len(seen.vectors), *looking.vectors.shape),
                "rel": look.cosines,
                "query": look.memory,
            }
            for key, value in values.items():
                array = f"{case}.{name}.cap{j}.step{step}.{key}"
                if array in stored:
                    stored.near(value.flatten(0, 1), array, 2e-5)
                    compared.add(array)
    assert compared == {array for array in stored if array.startswith(f"{case}.{name}.cap")}


OPTIONS = {
    "scan": st.fixed_dictionaries({"attention_sharpness": st.floats(0.5, 30)}),
    "imram": st.fixed_dictionaries({"steps": st.integers(1, 4), "memory_norm": st.booleans()}),
}


@given(
    data=st.data(),
    words=st.lists(st.integers(1, 9), min_size=1, max_size=9),
    regions=st.lists(st.integers(1, 16), min_size=1, max_size=6),
    block_captions=st.one_of(st.none(), st.integers(1, 9)),
)
@settings(max_examples=20)
@EVERY_VARIANT
def test_similarities_and_gradients_equal_the_loop(
    backbone,
    variant,
    data,
    words,
    regions,
    block_captions,
):
    network = small(backbone, variant, block_captions=block_captions, **data.draw(OPTIONS[backbone]))

    def results(similarities):
        found = similarities(*encoded(network, small_batch(len(regions), words, regions)))
        gradients = weighted_gradients(network, found).items()
        return {"similarities": found, **{name: gradient for name, gradient in gradients if gradient.any()}}

    assert_equals_loop(
        network, lambda: results(network.similarities), lambda: results(partial(looped, network))
    )


@pytest.mark.parametrize("variant", SCANS)
def test_intra_modal_similarities_of_scan_equal_the_loop(variant):
    network = small("scan", variant)
    images, captions = encoded(network, small_batch(regions=REGIONS))
    for found, side in (
        (network.image_image_similarities(images), images),
        (network.caption_caption_similarities(captions), captions),
    ):
        assert_near(found, looped(network, side, side, "t2i"), 1e-12, scale=1)


@pytest.mark.parametrize(("mode", "direction"), [("text", "t2i"), ("image", "i2t")])
def test_a_single_look_is_scan(mode, direction, double):
    stored = double("N_scan")
    sides = encoded(stored.network("scan"), stored.batch())
    network = IMRAM(IMRAMConfig(mode=mode, steps=1, embed_size=2, attention_sharpness=7.0), 2, 1, 4)
    expected = scan_loop.similarities(*sides, direction, 7.0, scan_loop.mean)
    assert_near(network.similarities(*sides), expected, 1e-12, scale=1)


@EVERY_VARIANT
def test_tiles_stay_within_the_budget_and_change_nothing(backbone, variant, monkeypatch):
    network, wide, budget = small(backbone, variant), 0, 20_000
    if backbone == "imram":
        wide, budget = 8 * network.embed_size, 60_000
    with torch.no_grad():
        sides = encoded(network, small_batch(regions=REGIONS))
        expected = network.similarities(*sides)
        seen = []
        inner = cross_attention.relevance

        def recorded(looking, between, *others):
            n_wide = wide * looking.vectors.shape[:2].numel() * len(between)
            seen.append((6 * between.numel() + n_wide) * between.element_size())
            return inner(looking, between, *others)

        monkeypatch.setattr(f"baselines.backbones.{backbone}.relevance", recorded)
        monkeypatch.setattr(batches, "CPU_BYTES", budget)
        found = network.similarities(*sides)
    assert_near(found, expected, 1e-12, scale=1)
    assert len(seen) > 3
    assert max(seen) <= budget


@EVERY_VARIANT
def test_the_range_is_reached_and_kept(backbone, variant):
    network = small(backbone, variant)
    low, high = network.similarity_range
    found = network.similarities(*encoded(network, small_batch(regions=REGIONS)))
    assert ((found >= low) & (found <= high)).all()
    equal = torch.full((1, 16, 32), 32**-0.5, dtype=torch.float64)
    images, captions = Encoded(equal, torch.tensor([16])), Encoded(equal[:, :2], torch.tensor([2]))
    largest = network.similarities(images, captions).item()
    if variant.endswith(("lse", "lse20")):
        assert high == math.inf
        n_looking = 2 if variant == "t2i_lse" else 16
        assert largest == pytest.approx(1 + math.log(n_looking) / network.lse_sharpness)
    else:
        assert largest == pytest.approx(high)
        assert high == {"text": 3, "image": 3, "full": 6}.get(variant, 1)
