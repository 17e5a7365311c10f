"""IMRAM against the numbers of the published code, and in tiles against the loop from the definition."""

from collections.abc import Callable
from functools import partial

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from oracles import imram_loop, scan_loop
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
from torch import Tensor

from baselines.backbones import imram, pairwise
from baselines.backbones.cross_attention import Side, mean_over_items
from baselines.backbones.imram import IMRAM, Direction, IMRAMConfig, Look
from baselines.kit.backbone import Encoded

DETAILED = {"full.nonorm": ("P_imram", False), "full.norm": ("P_imram_norm", True)}
"""Cases of which every look is stored: their file, and whether memories have unit length."""
Similarities = Callable[[Encoded, Encoded], Tensor]


def stored_sides(case: str, golden: Golden) -> tuple[Arrays, IMRAM, Encoded, Encoded]:
    file, memory_norm = DETAILED[case]
    stored = golden(file)
    network = network_of("imram", state_of(stored), memory_norm=memory_norm)
    return stored, network, *encoded(network, batch_of(stored))


def test_vectors_that_the_published_encoders_return_and_never_use_match(golden: Golden) -> None:
    stored, network, images, _ = stored_sides("full.nonorm", golden)
    assert_near(images.vectors.mean(dim=1), stored["img_fc"], 5e-6, scale=1)
    tokens, lengths = (torch.from_numpy(stored[key]) for key in ("in.captions", "in.lengths"))
    words = torch.nn.utils.rnn.pack_padded_sequence(
        network.words.embedding(tokens), lengths, batch_first=True, enforce_sorted=False
    )
    last = network.words.gru(words)[1].mean(dim=0)
    assert_near(last / last.norm(dim=1, keepdim=True), stored["cap_ht"], 5e-6, scale=1)


def looks(network: IMRAM, name: str, looking: Side, seen: Side) -> list[Look]:
    direction = network.directions[name]
    assert isinstance(direction, Direction)
    return list(direction.looks(looking, seen, direction.of_looking(looking), direction.of_seen(seen)))


@pytest.mark.parametrize("name", ["t2i", "i2t"])
@pytest.mark.parametrize("case", DETAILED)
def test_similarities_of_each_look_match(case: str, name: str, golden: Golden) -> None:
    stored, network, images, captions = stored_sides(case, golden)
    regions = Side(images.vectors, None)
    words = Side(captions.vectors, torch.arange(captions.vectors.shape[1]) < captions.lengths[:, None])
    looking, seen = (words, regions) if name == "t2i" else (regions, words)
    means = [mean_over_items(look.cosines, looking.valid) for look in looks(network, name, looking, seen)]
    found = torch.stack(means if name == "t2i" else [mean.T for mean in means])
    assert_near(found, stored[f"{case}.steps.{name}"], 5e-6, scale=1)


@pytest.mark.parametrize("name", ["t2i", "i2t"])
@pytest.mark.parametrize("case", DETAILED)
def test_each_look_matches(case: str, name: str, golden: Golden) -> None:
    stored, network, images, captions = stored_sides(case, golden)
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
    network = small_network(
        "imram", mode=mode, steps=steps, memory_norm=memory_norm, block_captions=block_captions
    )

    def results(similarities: Similarities) -> dict[str, Tensor]:
        found = similarities(*encoded(network, small_batch(len(regions), words, regions)))
        gradients = weighted_gradients(network, found).items()
        return {"similarities": found, **{name: gradient for name, gradient in gradients if gradient.any()}}

    assert_equals_loop(
        network,
        lambda: results(network.similarities),
        lambda: results(partial(imram_loop.similarities, network)),
    )


@pytest.mark.parametrize(("mode", "direction"), [("text", "t2i"), ("image", "i2t")])
def test_a_single_look_is_scan(mode: str, direction: str, golden: Golden) -> None:
    stored = golden("N_scan")
    dtype = torch.float64
    images, captions = encoded(
        network_of("scan", state_of(stored, "", dtype)), batch_of(stored, "in.", dtype)
    )
    network = IMRAM(IMRAMConfig(mode=mode, steps=1, embed_size=2, attention_sharpness=7.0), 2, 1, 4)
    expected = scan_loop.similarities(images, captions, direction, 7.0, scan_loop.mean)
    assert_near(network.similarities(images, captions), expected, 1e-12, scale=1)


@pytest.mark.parametrize("mode", ["text", "image", "full"])
def test_tiles_stay_within_the_budget_and_change_nothing(mode: str, monkeypatch: pytest.MonkeyPatch) -> None:
    network, budget = small_network("imram", mode=mode), 60_000
    with torch.no_grad():
        sides = encoded(network, small_batch(regions=REGIONS))
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
    network = small_network("imram", mode=mode, steps=steps)
    assert network.similarity_range == (-largest, largest)
    found = network.similarities(*encoded(network, small_batch(regions=REGIONS)))
    assert (found.abs() <= largest).all()
    equal = torch.full((1, 16, 32), 32**-0.5, dtype=torch.float64)
    images, captions = Encoded(equal, torch.tensor([16])), Encoded(equal[:, :2], torch.tensor([2]))
    assert network.similarities(images, captions).item() == pytest.approx(largest)
