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
from support.backbone_parity import SUFFIX, Golden, encoded, small_inputs, tensor
from support.matching_parity import (
    Stored,
    assert_gradients,
    cut,
    five_steps,
    published_loss,
    published_state,
)
from support.rounding import assert_equals_loop, assert_near
from torch import Tensor, nn

from baselines.backbones import cross_attention, pairwise
from baselines.backbones.cross_attention import Side, attention, gram, products, relevance
from baselines.backbones.scan import PUBLISHED_LSE_SHARPNESS, PUBLISHED_SHARPNESS, SCAN, SCANConfig
from baselines.kit.backbone import Encoded
from baselines.published.weights import backbone_of, network_from
from ncl_bench.errors import TrainingError

VARIANTS: dict[str, dict[str, Any]] = {
    "t2i_lse": {"direction": "t2i", "aggregation": "lse"},
    "t2i_avg": {"direction": "t2i", "aggregation": "avg"},
    "i2t_lse": {"direction": "i2t", "aggregation": "lse"},
    "i2t_avg": {"direction": "i2t", "aggregation": "avg"},
    "i2t_lse20": {"direction": "i2t", "aggregation": "lse", "lse_sharpness": 20.0},
}
DETAILED = ("t2i_lse", "t2i_avg", "i2t_lse", "i2t_avg")
"""Variants of which every gradient is stored, and gradients in double precision."""
GRADIENTS = [
    ("i2t_lse20", "proj"),
    *((v, target) for v in DETAILED for target in ("sum", "proj", "loss_max")),
]
PRECISIONS = (torch.float32, torch.float64)
SIMILARITY = {torch.float32: 5e-6, torch.float64: 1e-9}
GRADIENT = {torch.float32: 2e-4, torch.float64: 1e-9}
Similarities = Callable[[Encoded, Encoded], Tensor]
LENGTHS = [3, 9, 4, 4, 7, 9, 2, 5]
REGIONS = [16, 5, 16, 1, 12, 16]


def scan(stored: Stored, variant: str, dtype: torch.dtype = torch.float32) -> SCAN:
    return network_from("scan", published_state(stored, dtype), **VARIANTS[variant])


@pytest.mark.parametrize("dtype", PRECISIONS)
def test_embeddings_match(dtype: torch.dtype, golden: Golden) -> None:
    stored = golden("N_scan")
    images, captions = encoded(scan(stored, "t2i_avg", dtype), stored, dtype)
    assert images.vectors.dtype == dtype
    assert_near(images.vectors, stored[f"img_emb{SUFFIX[dtype]}"], SIMILARITY[dtype], scale=1)
    assert_near(captions.vectors, stored[f"cap_emb{SUFFIX[dtype]}"], SIMILARITY[dtype], scale=1)


@pytest.mark.parametrize("dtype", PRECISIONS)
@pytest.mark.parametrize("variant", VARIANTS)
def test_similarities_match(variant: str, dtype: torch.dtype, golden: Golden) -> None:
    stored = golden("N_scan")
    network = scan(stored, variant, dtype)
    images, captions = encoded(network, stored, dtype)
    found = network.similarities(images, captions)
    assert_near(found, stored[f"{variant}.sims{SUFFIX[dtype]}"], SIMILARITY[dtype], scale=1)
    some = network.similarities(cut(images, stored["in.rect_rows"]), captions)
    assert_near(some, stored[f"{variant}.sims_rect"], SIMILARITY[torch.float32], scale=1)


@pytest.mark.parametrize(("variant", "target"), GRADIENTS)
def test_gradients_match(variant: str, target: str, golden: Golden) -> None:
    stored = golden("N_scan")
    prefix = f"{variant}.loss_max.grad." if target == "loss_max" else f"{variant}.grad_{target}."
    network = scan(stored, variant)
    found = network.similarities(*encoded(network, stored, torch.float32))
    values = {
        "sum": found.sum(),
        "proj": (found * tensor(stored["in.proj"], torch.float32)).sum(),
        "loss_max": published_loss(found, hardest=True),
    }
    values[target].backward()
    compared = assert_gradients(
        network, partial(network_from, "scan"), stored, prefix, torch.float32, GRADIENT[torch.float32]
    )
    assert compared == len(list(network.parameters()))


@pytest.mark.parametrize("tile_rows", [5, cross_attention.TILE_ROWS])
@pytest.mark.parametrize("block_captions", [1, 5, None])
@pytest.mark.parametrize("variant", DETAILED)
def test_gradients_match_in_double_precision(
    variant: str, block_captions: int | None, tile_rows: int, golden: Golden, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cross_attention, "TILE_ROWS", tile_rows)
    stored, options = golden("N_scan"), {**VARIANTS[variant], "block_captions": block_captions}
    prefix = f"{variant}.grad_proj."
    network = network_from("scan", published_state(stored, torch.float64), **options)
    found = network.similarities(*encoded(network, stored, torch.float64))
    (found * tensor(stored["in.proj"], torch.float64)).sum().backward()
    compared = assert_gradients(
        network, partial(network_from, "scan"), stored, prefix, torch.float64, GRADIENT[torch.float64]
    )
    assert compared == len(list(network.parameters()))


@pytest.mark.parametrize("variant", VARIANTS)
def test_losses_match(variant: str, golden: Golden) -> None:
    stored = golden("N_scan")
    network = scan(stored, variant)
    similarities = network.similarities(*encoded(network, stored, torch.float32))
    for name, hardest in (("loss_max", True), ("loss_sum", False)):
        found = published_loss(similarities, hardest=hardest).item()
        assert found == pytest.approx(stored[f"{variant}.{name}.value"].item(), rel=1e-5)


@pytest.mark.parametrize("variant", VARIANTS)
def test_five_steps_of_training_match(variant: str, golden: Golden) -> None:
    stored = golden("N_scan")
    network = scan(stored, variant, torch.float64).train()

    def loss() -> Tensor:
        similarities = network.similarities(*encoded(network, stored, torch.float64))
        return published_loss(similarities, hardest=True)

    losses, lengths = five_steps(list(network.parameters()), loss)
    assert losses == pytest.approx(stored[f"{variant}.traj.loss"].tolist(), rel=1e-5)
    assert lengths == pytest.approx(stored[f"{variant}.traj.grad_norm"].tolist(), rel=5e-3)


@pytest.mark.parametrize("direction", ["t2i", "i2t"])
def test_attention_and_cosines_match(direction: str, golden: Golden) -> None:
    stored = golden("N_scan")
    images, captions = encoded(scan(stored, f"{direction}_avg"), stored, torch.float32)
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
    stored = golden("N_scan")
    images, captions = encoded(scan(stored, "t2i_avg"), stored, torch.float32)
    aggregate = OTHER_AGGREGATIONS.get(option, scan_loop.mean)
    normalise = OTHER_NORMALISATIONS.get(option)
    found = scan_loop.similarities(images, captions, "t2i", PUBLISHED_SHARPNESS["t2i"], aggregate, normalise)
    assert_near(found, stored[f"other.t2i.{option}.sims"], 5e-6, scale=1)


def test_words_of_the_forward_direction_alone_match(golden: Golden) -> None:
    stored = golden("N_scan")
    network = scan(stored, "t2i_avg")
    tokens, lengths = (torch.from_numpy(stored[key]) for key in ("in.captions", "in.lengths"))
    both = network.words.gru
    forward = nn.GRU(both.input_size, both.hidden_size, batch_first=True)
    forward.load_state_dict(
        {name: x for name, x in both.state_dict().items() if not name.endswith("_reverse")}
    )
    words = scan_loop.unit(forward(network.words.embedding(tokens))[0])
    words = words * (torch.arange(tokens.shape[1]) < lengths[:, None])[..., None]
    assert_near(words, stored["other.uni_gru.cap_emb"], 5e-6, scale=1)


def fresh(seed: int = 0, **options: Any) -> SCAN:
    torch.manual_seed(seed)
    config = SCANConfig(embed_size=32, word_dim=12, **options)
    return SCAN(config, feature_dim=66, n_regions=16, vocabulary_size=40).double()


def both_sides(
    network: SCAN, regions: list[int] = REGIONS, words: list[int] = LENGTHS
) -> tuple[Encoded, Encoded]:
    features, _, tokens, caption_lengths = small_inputs(len(regions), words)
    images = network.encode_images(features, torch.tensor(regions))
    return images, network.encode_captions(tokens, caption_lengths)


def looped(network: SCAN, images: Encoded, captions: Encoded) -> Tensor:
    c = network.config
    lse = c.lse_sharpness or PUBLISHED_LSE_SHARPNESS[c.direction]
    aggregate = scan_loop.mean if c.aggregation == "avg" else scan_loop.log_sum_exp(lse)
    sharpness = c.attention_sharpness or PUBLISHED_SHARPNESS[c.direction]
    return scan_loop.similarities(images, captions, c.direction, sharpness, aggregate)


def gradients(network: SCAN, result: Tensor) -> dict[str, Tensor]:
    network.zero_grad()
    generator = torch.Generator().manual_seed(2)
    (result * torch.randn(result.shape, generator=generator, dtype=result.dtype)).sum().backward()
    return {name: p.grad for name, p in network.named_parameters() if p.grad is not None}


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
    network = fresh(**VARIANTS[variant], attention_sharpness=sharpness, block_captions=block_captions)

    def results(similarities: Similarities) -> dict[str, Tensor]:
        found = similarities(*both_sides(network, regions, words))
        return {"similarities": found, **gradients(network, found)}

    assert_equals_loop(
        network, lambda: results(network.similarities), lambda: results(partial(looped, network))
    )


@pytest.mark.parametrize("variant", VARIANTS)
def test_intra_modal_similarities_equal_the_loop(variant: str) -> None:
    network = fresh(**VARIANTS[variant])
    images, captions = both_sides(network)
    for found, side in (
        (network.image_image_similarities(images), images),
        (network.caption_caption_similarities(captions), captions),
    ):
        c = network.config
        lse = c.lse_sharpness or PUBLISHED_LSE_SHARPNESS[c.direction]
        aggregate = scan_loop.mean if c.aggregation == "avg" else scan_loop.log_sum_exp(lse)
        sharpness = PUBLISHED_SHARPNESS[c.direction]
        expected = scan_loop.similarities(side, side, "t2i", sharpness, aggregate)
        assert_near(found, expected, 1e-12, scale=1)


@pytest.mark.parametrize("variant", VARIANTS)
def test_tiles_stay_within_the_budget_and_change_nothing(
    variant: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    network = fresh(**VARIANTS[variant])
    with torch.no_grad():
        sides = both_sides(network)
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
    network = fresh(**VARIANTS[variant])
    low, high = network.similarity_range
    found = network.similarities(*both_sides(network))
    assert ((found >= low) & (found <= high)).all()
    equal = torch.full((1, 16, 32), 32**-0.5, dtype=torch.float64)
    images, captions = Encoded(equal, torch.tensor([16])), Encoded(equal[:, :2], torch.tensor([2]))
    largest = network.similarities(images, captions).item()
    n_looking = 2 if network.config.direction == "t2i" else 16
    beyond = math.log(n_looking) / network.lse_sharpness if network.config.aggregation == "lse" else 0.0
    assert largest == pytest.approx(1 + beyond)
    assert high == (math.inf if beyond else 1.0)


def test_gradients_stay_finite_where_an_image_is_blank() -> None:
    for variant in VARIANTS:
        network = fresh(**VARIANTS[variant])
        features, lengths, tokens, caption_lengths = small_inputs(2, LENGTHS)
        images = network.encode_images(torch.zeros_like(features), lengths)
        network.similarities(images, network.encode_captions(tokens, caption_lengths)).sum().backward()
        assert all(p.grad is None or p.grad.isfinite().all() for p in network.parameters())


@pytest.mark.parametrize("variant", ["t2i_avg", "i2t_lse"])
def test_mixed_precision_trains(variant: str) -> None:
    network = fresh(**VARIANTS[variant]).float()
    features, lengths, tokens, caption_lengths = small_inputs(6, LENGTHS)
    results = []
    for enabled in (False, True):
        with torch.autocast("cpu", torch.bfloat16, enabled=enabled):
            images = network.encode_images(features.float(), lengths)
            found = network.similarities(images, network.encode_captions(tokens, caption_lengths))
        network.zero_grad()
        found.sum().backward()
        assert all(p.grad is None or p.grad.isfinite().all() for p in network.parameters())
        results.append(found.float())
    assert_near(results[0], results[1], 0.03, scale=1)


def test_it_recognises_its_own_weights_alone(golden: Golden) -> None:
    for file in ("N_scan", "P_imram", "O_vsrn_coco", "B_backbone_vse"):
        names = [name for name in golden(file) if name.startswith(("img_enc.", "txt_enc.", "linear_t2i"))]
        assert (backbone_of(names) == "scan") == (file == "N_scan")
    others = published_state(golden("O_vsrn_coco"), torch.float32)
    with pytest.raises(TrainingError, match="the weights"):
        network_from("scan", others)


def test_incomplete_published_weights_are_refused(golden: Golden) -> None:
    state = published_state(golden("N_scan"), torch.float32)
    for missing in ("img_enc.fc.weight", "img_enc.fc.bias", "txt_enc.rnn.bias_hh_l0"):
        with pytest.raises(TrainingError):
            network_from("scan", {name: x for name, x in state.items() if name != missing})
