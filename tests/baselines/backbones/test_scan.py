"""SCAN against the numbers of the published code, and in tiles against the loop from the definition."""

import math
from collections.abc import Callable
from functools import partial
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from oracles import scan_loop
from support.parity import (
    REGIONS,
    Arrays,
    Golden,
    batch_of,
    encoded,
    network_of,
    small_batch,
    small_network,
    state_of,
    weighted_gradients,
)
from support.rounding import assert_equals_loop, assert_near
from torch import Tensor, nn

from baselines.backbones import cross_attention, pairwise
from baselines.backbones.cross_attention import Side, attention, gram, products, relevance
from baselines.backbones.scan import PUBLISHED_LSE_SHARPNESS, PUBLISHED_SHARPNESS, SCAN
from baselines.kit.backbone import Encoded

VARIANTS: dict[str, dict[str, Any]] = {
    "t2i_lse": {"direction": "t2i", "aggregation": "lse"},
    "t2i_avg": {"direction": "t2i", "aggregation": "avg"},
    "i2t_lse": {"direction": "i2t", "aggregation": "lse"},
    "i2t_avg": {"direction": "i2t", "aggregation": "avg"},
    "i2t_lse20": {"direction": "i2t", "aggregation": "lse", "lse_sharpness": 20.0},
}
Similarities = Callable[[Encoded, Encoded], Tensor]


def stored_sides(golden: Golden) -> tuple[Arrays, SCAN, Encoded, Encoded]:
    stored = golden("N_scan")
    network = network_of("scan", state_of(stored))
    return stored, network, *encoded(network, batch_of(stored))


@pytest.mark.parametrize("direction", ["t2i", "i2t"])
def test_attention_and_cosines_match(direction: str, golden: Golden) -> None:
    stored, _, images, captions = stored_sides(golden)
    regions = Side(images.vectors, None)
    for j, k in enumerate(stored["attn.captions"].tolist()):
        words = Side(captions.vectors[k : k + 1, : int(captions.lengths[k])], None)
        looking, seen = (words, regions) if direction == "t2i" else (regions, words)
        between = products(looking, seen)
        weights = attention(between, None, PUBLISHED_SHARPNESS[direction])
        cosines = relevance(looking, between, weights, gram(seen))
        of_images = weights.squeeze(2) if direction == "t2i" else weights.squeeze(0).transpose(0, 1)
        assert_near(of_images, stored[f"attn.{direction}.cap{j}"], 2e-5, scale=1)
        assert_near(cosines.flatten(0, 1), stored[f"attn.{direction}.rel{j}"], 2e-5, scale=1)


OTHER_NORMALISATIONS = {
    "softmax": lambda scores: torch.softmax(scores, dim=-1),
    "l2norm": scan_loop.unit,
    "clipped": lambda scores: nn.functional.leaky_relu(scores, 0.1),
    "no_norm": lambda scores: scores,
}
OTHER_AGGREGATIONS = {
    "Max": lambda cosines: cosines.amax(dim=-1),
    "Sum": lambda cosines: cosines.sum(dim=-1),
}


@pytest.mark.parametrize("option", [*OTHER_NORMALISATIONS, *OTHER_AGGREGATIONS])
def test_the_loop_gives_the_published_numbers_of_options_that_we_leave_out(
    option: str, golden: Golden
) -> None:
    stored, _, images, captions = stored_sides(golden)
    aggregate = OTHER_AGGREGATIONS.get(option, scan_loop.mean)
    normalise = OTHER_NORMALISATIONS.get(option)
    found = scan_loop.similarities(images, captions, "t2i", PUBLISHED_SHARPNESS["t2i"], aggregate, normalise)
    assert_near(found, stored[f"other.t2i.{option}.sims"], 5e-6, scale=1)


def test_words_of_the_forward_direction_alone_match(golden: Golden) -> None:
    stored, network, *_ = stored_sides(golden)
    tokens, lengths = (torch.from_numpy(stored[key]) for key in ("in.captions", "in.lengths"))
    both = network.words.gru
    forward = nn.GRU(both.input_size, both.hidden_size, batch_first=True)
    forward.load_state_dict(
        {name: x for name, x in both.state_dict().items() if not name.endswith("_reverse")}
    )
    words = scan_loop.unit(forward(network.words.embedding(tokens))[0])
    words = words * (torch.arange(tokens.shape[1]) < lengths[:, None])[..., None]
    assert_near(words, stored["other.uni_gru.cap_emb"], 5e-6, scale=1)


def looped(network: SCAN, looking: Encoded, seen: Encoded, direction: str = "") -> Tensor:
    c = network.config
    lse = c.lse_sharpness or PUBLISHED_LSE_SHARPNESS[c.direction]
    aggregate = scan_loop.mean if c.aggregation == "avg" else scan_loop.log_sum_exp(lse)
    sharpness = c.attention_sharpness or PUBLISHED_SHARPNESS[c.direction]
    return scan_loop.similarities(looking, seen, direction or c.direction, sharpness, aggregate)


@given(
    words=st.lists(st.integers(1, 9), min_size=1, max_size=9),
    regions=st.lists(st.integers(1, 16), min_size=1, max_size=6),
    block_captions=st.one_of(st.none(), st.integers(1, 9)),
    sharpness=st.floats(0.5, 30),
)
@settings(max_examples=20)
@pytest.mark.parametrize("variant", VARIANTS)
def test_similarities_and_gradients_equal_the_loop(
    variant: str, words: list[int], regions: list[int], block_captions: int | None, sharpness: float
) -> None:
    network = small_network(
        "scan", **VARIANTS[variant], attention_sharpness=sharpness, block_captions=block_captions
    )

    def results(similarities: Similarities) -> dict[str, Tensor]:
        found = similarities(*encoded(network, small_batch(len(regions), words, regions)))
        return {"similarities": found, **weighted_gradients(network, found)}

    assert_equals_loop(
        network, lambda: results(network.similarities), lambda: results(partial(looped, network))
    )


@pytest.mark.parametrize("variant", VARIANTS)
def test_intra_modal_similarities_equal_the_loop(variant: str) -> None:
    network = small_network("scan", **VARIANTS[variant])
    images, captions = encoded(network, small_batch(regions=REGIONS))
    for found, side in (
        (network.image_image_similarities(images), images),
        (network.caption_caption_similarities(captions), captions),
    ):
        assert_near(found, looped(network, side, side, "t2i"), 1e-12, scale=1)


@pytest.mark.parametrize("variant", VARIANTS)
def test_tiles_stay_within_the_budget_and_change_nothing(
    variant: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    network = small_network("scan", **VARIANTS[variant])
    with torch.no_grad():
        sides = encoded(network, small_batch(regions=REGIONS))
        expected = network.similarities(*sides)
        seen: list[int] = []
        inner = cross_attention.attention

        def recorded(scores: Tensor, *others: Any) -> Tensor:
            seen.append(6 * scores.numel() * scores.element_size())
            return inner(scores, *others)

        monkeypatch.setattr("baselines.backbones.scan.attention", recorded)
        monkeypatch.setattr(pairwise, "CPU_BYTES", 20_000)
        found = network.similarities(*sides)
    assert_near(found, expected, 1e-12, scale=1)
    assert len(seen) > 3
    assert max(seen) <= 20_000


@pytest.mark.parametrize("variant", VARIANTS)
def test_the_range_is_reached_and_kept(variant: str) -> None:
    network = small_network("scan", **VARIANTS[variant])
    low, high = network.similarity_range
    found = network.similarities(*encoded(network, small_batch(regions=REGIONS)))
    assert ((found >= low) & (found <= high)).all()
    equal = torch.full((1, 16, 32), 32**-0.5, dtype=torch.float64)
    images, captions = Encoded(equal, torch.tensor([16])), Encoded(equal[:, :2], torch.tensor([2]))
    largest = network.similarities(images, captions).item()
    n_looking = 2 if network.config.direction == "t2i" else 16
    beyond = math.log(n_looking) / network.lse_sharpness if network.config.aggregation == "lse" else 0.0
    assert largest == pytest.approx(1 + beyond)
    assert high == (math.inf if beyond else 1.0)
