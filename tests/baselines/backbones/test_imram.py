"""IMRAM against the numbers of the published code, and in tiles against the loop from the definition."""

from collections.abc import Callable
from functools import partial
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from oracles import imram_loop, scan_loop
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
from torch import Tensor

from baselines.backbones import cross_attention, imram, pairwise
from baselines.backbones.cross_attention import Side, mean_over_items
from baselines.backbones.imram import IMRAM, Direction, IMRAMConfig, Look
from baselines.kit.backbone import Encoded
from baselines.published.weights import network_from
from ncl_bench.errors import TrainingError

CASES: dict[str, tuple[str, dict[str, Any]]] = {
    "full.nonorm": ("P_imram", {"mode": "full"}),
    "full.nonorm.steps2": ("P_imram", {"mode": "full", "steps": 2}),
    "text.nonorm": ("P_imram", {"mode": "text"}),
    "image.nonorm": ("P_imram", {"mode": "image"}),
    "text.norm": ("P_imram", {"mode": "text", "memory_norm": True}),
    "image.norm": ("P_imram", {"mode": "image", "memory_norm": True}),
    "coco_script": ("P_imram", {"mode": "text", "attention_sharpness": 11.0}),
    "f30k_script": ("P_imram", {"mode": "image", "steps": 1}),
    "full.norm": ("P_imram_norm", {"mode": "full", "memory_norm": True}),
}
DETAILED = ("full.nonorm", "full.norm")
"""Cases of which every look, every gradient and gradients in double precision are stored."""
GRADIENTS = [
    *((case, "proj") for case in (*DETAILED, "text.nonorm", "image.nonorm", "coco_script", "f30k_script")),
    *((case, target) for case in DETAILED for target in ("sum", "loss_max")),
]
PRECISIONS = (torch.float32, torch.float64)
SIMILARITY = {torch.float32: 5e-6, torch.float64: 1e-9}
GRADIENT = {torch.float32: 2e-4, torch.float64: 1e-9}
Similarities = Callable[[Encoded, Encoded], Tensor]
LENGTHS = [3, 9, 4, 4, 7, 9, 2, 5]
REGIONS = [16, 5, 16, 1, 12, 16]


def build(case: str, state: dict[str, Tensor], **options: Any) -> IMRAM:
    return network_from("imram", state, **{**CASES[case][1], **options})


def stored_network(case: str, stored: Stored, dtype: torch.dtype = torch.float32, **options: Any) -> IMRAM:
    return build(case, published_state(stored, dtype), **options)


@pytest.mark.parametrize("file", ["P_imram", "P_imram_norm"])
def test_embeddings_match(file: str, golden: Golden) -> None:
    stored = golden(file)
    network = stored_network("full.nonorm", stored)
    images, captions = encoded(network, stored, torch.float32)
    assert_near(images.vectors, stored["img_emb"], 5e-6, scale=1)
    assert_near(captions.vectors, stored["cap_emb"], 5e-6, scale=1)


def test_vectors_that_the_published_encoders_return_and_never_use_match(golden: Golden) -> None:
    stored = golden("P_imram")
    network = stored_network("full.nonorm", stored)
    images, _ = encoded(network, stored, torch.float32)
    assert_near(images.vectors.mean(dim=1), stored["img_fc"], 5e-6, scale=1)
    tokens, lengths = (torch.from_numpy(stored[key]) for key in ("in.captions", "in.lengths"))
    words = torch.nn.utils.rnn.pack_padded_sequence(
        network.words.embedding(tokens), lengths, batch_first=True, enforce_sorted=False
    )
    last = network.words.gru(words)[1].mean(dim=0)
    assert_near(last / last.norm(dim=1, keepdim=True), stored["cap_ht"], 5e-6, scale=1)


@pytest.mark.parametrize("dtype", PRECISIONS)
@pytest.mark.parametrize("case", CASES)
def test_similarities_match(case: str, dtype: torch.dtype, golden: Golden) -> None:
    stored = golden(CASES[case][0])
    network = stored_network(case, stored, dtype)
    images, captions = encoded(network, stored, dtype)
    found = network.similarities(images, captions)
    assert_near(found, stored[f"{case}.sims{SUFFIX[dtype]}"], SIMILARITY[dtype], scale=1)
    assert_near(
        network.train().similarities(images, captions).T, stored[f"{case}.train_scores"], 5e-6, scale=1
    )
    some = network.similarities(cut(images, stored["in.rect_rows"]), captions)
    assert_near(some, stored[f"{case}.sims_rect"], 5e-6, scale=1)


def looks(network: IMRAM, name: str, looking: Side, seen: Side) -> list[Look]:
    direction = network.directions[name]
    assert isinstance(direction, Direction)
    return list(direction.looks(looking, seen, direction.of_looking(looking), direction.of_seen(seen)))


@pytest.mark.parametrize("name", ["t2i", "i2t"])
@pytest.mark.parametrize("case", DETAILED)
def test_similarities_of_each_look_match(case: str, name: str, golden: Golden) -> None:
    stored = golden(CASES[case][0])
    network = stored_network(case, stored)
    images, captions = encoded(network, stored, torch.float32)
    regions = Side(images.vectors, None)
    words = Side(captions.vectors, torch.arange(captions.vectors.shape[1]) < captions.lengths[:, None])
    looking, seen = (words, regions) if name == "t2i" else (regions, words)
    means = [mean_over_items(look.cosines, looking.valid) for look in looks(network, name, looking, seen)]
    found = torch.stack(means if name == "t2i" else [mean.T for mean in means])
    assert_near(found, stored[f"{case}.steps.{name}"], 5e-6, scale=1)


@pytest.mark.parametrize("name", ["t2i", "i2t"])
@pytest.mark.parametrize("case", DETAILED)
def test_each_look_matches(case: str, name: str, golden: Golden) -> None:
    stored = golden(CASES[case][0])
    network = stored_network(case, stored)
    images, captions = encoded(network, stored, torch.float32)
    regions, compared = Side(images.vectors, None), set()
    for j, k in enumerate(stored["attn.captions"].tolist()):
        words = Side(captions.vectors[k : k + 1, : int(captions.lengths[k])], None)
        looking, seen = (words, regions) if name == "t2i" else (regions, words)
        for step, look in enumerate(looks(network, name, looking, seen)):
            attended = (look.weights.flatten(2).transpose(1, 2) @ seen.vectors).view(
                len(seen.vectors), *looking.vectors.shape
            )
            values = {
                "attended": attended.flatten(0, 1),
                "rel": look.cosines.flatten(0, 1),
                "query": look.memory.flatten(0, 1),
            }
            for key, value in values.items():
                array = f"{case}.{name}.cap{j}.step{step}.{key}"
                if array in stored:
                    assert_near(value, stored[array], 2e-5, scale=1)
                    compared.add(array)
    assert compared == {array for array in stored if array.startswith(f"{case}.{name}.cap")}


@pytest.mark.parametrize(("case", "target"), GRADIENTS)
def test_gradients_match(case: str, target: str, golden: Golden) -> None:
    stored = golden(CASES[case][0])
    prefix = f"{case}.loss_max.grad." if target == "loss_max" else f"{case}.grad_{target}."
    network = stored_network(case, stored)
    found = network.similarities(*encoded(network, stored, torch.float32))
    values = {
        "sum": found.sum(),
        "proj": (found * tensor(stored["in.proj"], torch.float32)).sum(),
        "loss_max": published_loss(found, hardest=True),
    }
    values[target].backward()
    assert_imram_gradients(case, network, stored, prefix, torch.float32)


def assert_imram_gradients(
    case: str, network: IMRAM, stored: Stored, prefix: str, dtype: torch.dtype
) -> None:
    compared = assert_gradients(
        network, lambda state: build(case, state), stored, prefix, dtype, GRADIENT[dtype]
    )
    assert compared == len(list(network.parameters()))


@pytest.mark.parametrize("tile_rows", [5, cross_attention.TILE_ROWS])
@pytest.mark.parametrize("block_captions", [1, 5, None])
@pytest.mark.parametrize("case", DETAILED)
def test_gradients_match_in_double_precision(
    case: str, block_captions: int | None, tile_rows: int, golden: Golden, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cross_attention, "TILE_ROWS", tile_rows)
    stored = golden(CASES[case][0])
    network = stored_network(case, stored, torch.float64, block_captions=block_captions)
    found = network.similarities(*encoded(network, stored, torch.float64))
    (found * tensor(stored["in.proj"], torch.float64)).sum().backward()
    assert_imram_gradients(case, network, stored, f"{case}.grad_proj.", torch.float64)


@pytest.mark.parametrize("case", CASES)
def test_losses_match(case: str, golden: Golden) -> None:
    stored = golden(CASES[case][0])
    network = stored_network(case, stored)
    similarities = network.similarities(*encoded(network, stored, torch.float32))
    for name, hardest in (("loss_max", True), ("loss_sum", False)):
        found = published_loss(similarities, hardest=hardest).item()
        assert found == pytest.approx(stored[f"{case}.{name}.value"].item(), rel=1e-5)


@pytest.mark.parametrize("case", CASES)
def test_five_steps_of_training_match(case: str, golden: Golden) -> None:
    stored = golden(CASES[case][0])
    network = stored_network(case, stored, torch.float64).train()

    def loss() -> Tensor:
        similarities = network.similarities(*encoded(network, stored, torch.float64))
        return published_loss(similarities, hardest=True)

    losses, lengths = five_steps(list(network.parameters()), loss)
    assert losses == pytest.approx(stored[f"{case}.traj.loss"].tolist(), rel=1e-3)
    assert lengths == pytest.approx(stored[f"{case}.traj.grad_norm"].tolist(), rel=5e-3)


def fresh(seed: int = 0, **options: Any) -> IMRAM:
    torch.manual_seed(seed)
    config = IMRAMConfig(embed_size=32, word_dim=12, **options)
    return IMRAM(config, feature_dim=66, n_regions=16, vocabulary_size=40).double()


def both_sides(
    network: IMRAM, regions: list[int] = REGIONS, words: list[int] = LENGTHS
) -> tuple[Encoded, Encoded]:
    features, _, tokens, caption_lengths = small_inputs(len(regions), words)
    images = network.encode_images(features, torch.tensor(regions))
    return images, network.encode_captions(tokens, caption_lengths)


def gradients(network: IMRAM, result: Tensor) -> dict[str, Tensor]:
    network.zero_grad()
    generator = torch.Generator().manual_seed(2)
    (result * torch.randn(result.shape, generator=generator, dtype=result.dtype)).sum().backward()
    gradients = {name: p.grad for name, p in network.named_parameters() if p.grad is not None}
    return {name: gradient for name, gradient in gradients.items() if gradient.any()}


@given(
    words=st.lists(st.integers(1, 9), min_size=1, max_size=7),
    regions=st.lists(st.integers(1, 16), min_size=1, max_size=5),
    block_captions=st.one_of(st.none(), st.integers(1, 9)),
    steps=st.integers(1, 4),
    memory_norm=st.booleans(),
)
@settings(max_examples=20)
@pytest.mark.parametrize("mode", ["text", "image", "full"])
def test_similarities_and_gradients_equal_the_loop(
    mode: str, words: list[int], regions: list[int], block_captions: int | None, steps: int, memory_norm: bool
) -> None:
    network = fresh(mode=mode, steps=steps, memory_norm=memory_norm, block_captions=block_captions)

    def results(similarities: Similarities) -> dict[str, Tensor]:
        found = similarities(*both_sides(network, regions, words))
        return {"similarities": found, **gradients(network, found)}

    assert_equals_loop(
        network,
        lambda: results(network.similarities),
        lambda: results(partial(imram_loop.similarities, network)),
    )


@pytest.mark.parametrize(("mode", "direction"), [("text", "t2i"), ("image", "i2t")])
def test_a_single_look_is_scan(mode: str, direction: str, golden: Golden) -> None:
    stored = golden("N_scan")
    state = published_state(stored, torch.float64)
    images, captions = encoded(network_from("scan", state), stored, torch.float64)
    network = IMRAM(IMRAMConfig(mode=mode, steps=1, embed_size=2, attention_sharpness=7.0), 2, 1, 4)
    expected = scan_loop.similarities(images, captions, direction, 7.0, scan_loop.mean)
    assert_near(network.similarities(images, captions), expected, 1e-12, scale=1)


@pytest.mark.parametrize("mode", ["text", "image", "full"])
def test_tiles_stay_within_the_budget_and_change_nothing(mode: str, monkeypatch: pytest.MonkeyPatch) -> None:
    network, budget = fresh(mode=mode), 60_000
    with torch.no_grad():
        sides = both_sides(network)
        expected = network.similarities(*sides)
        seen: list[int] = []
        inner = imram.relevance

        def recorded(looking: Side, between: Tensor, *others: Tensor) -> Tensor:
            wide = 8 * looking.vectors.numel() * len(between)
            seen.append((6 * between.numel() + wide) * between.element_size())
            return inner(looking, between, *others)

        monkeypatch.setattr(imram, "relevance", recorded)
        monkeypatch.setattr(pairwise, "CPU_BYTES", budget)
        found = network.similarities(*sides)
    assert_near(found, expected, 1e-12, scale=1)
    assert len(seen) > 9
    assert max(seen) <= budget


@pytest.mark.parametrize(("mode", "steps", "largest"), [("text", 3, 3), ("image", 2, 2), ("full", 3, 6)])
def test_the_range_is_reached_and_kept(mode: str, steps: int, largest: int) -> None:
    network = fresh(mode=mode, steps=steps)
    assert network.similarity_range == (-largest, largest)
    found = network.similarities(*both_sides(network))
    assert (found.abs() <= largest).all()
    equal = torch.full((1, 16, 32), 32**-0.5, dtype=torch.float64)
    images, captions = Encoded(equal, torch.tensor([16])), Encoded(equal[:, :2], torch.tensor([2]))
    assert network.similarities(images, captions).item() == pytest.approx(largest)


def test_similarities_within_a_modality_are_refused() -> None:
    network = fresh()
    images, captions = both_sides(network)
    for refused in (
        lambda: network.image_image_similarities(images),
        lambda: network.caption_caption_similarities(captions),
    ):
        with pytest.raises(TrainingError, match="choose another backbone"):
            refused()
    assert not network.intra_modal


def test_gradients_stay_finite_where_an_image_is_blank() -> None:
    for memory_norm in (False, True):
        network = fresh(memory_norm=memory_norm)
        features, lengths, tokens, caption_lengths = small_inputs(2, LENGTHS)
        images = network.encode_images(torch.zeros_like(features), lengths)
        network.similarities(images, network.encode_captions(tokens, caption_lengths)).sum().backward()
        assert all(p.grad is None or p.grad.isfinite().all() for p in network.parameters())


def test_mixed_precision_trains() -> None:
    network = fresh().float()
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
    assert_near(results[0], results[1], 0.1, scale=1)


def test_other_and_incomplete_published_weights_are_refused(golden: Golden) -> None:
    with pytest.raises(TrainingError, match="the weights"):
        network_from("imram", published_state(golden("N_scan"), torch.float32))
    state = published_state(golden("P_imram"), torch.float32)
    for missing in ("img_enc.fc_local.weight", "img_enc.fc_local.bias", "gate_i2t.bias"):
        with pytest.raises(TrainingError, match="the weights"):
            network_from("imram", {name: x for name, x in state.items() if name != missing})
