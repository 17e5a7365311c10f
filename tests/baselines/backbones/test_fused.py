"""The fused kernel makes the nodes of plain torch; without a GPU Triton's interpreter runs it."""

import sys
from importlib.util import find_spec

import pytest
import torch
from support.backbone_parity import small_inputs, small_network, without_dropout
from support.rounding import assert_near

from baselines.backbones.squared_difference import nodes_by
from ncl_bench.errors import TrainingError

HERE = find_spec("triton") is not None
needs_triton = pytest.mark.skipif(not HERE, reason="Triton comes with torch for CUDA")
DEVICE = "cuda" if torch.cuda.is_available() else "cpu"

SIZES = [(3, 70, 5, 40, 20), (2, 7, 36, 96, 32), (1, 64, 16, 32, 16)]  # items, positions, keys, dim, sim_dim


def tensors(items: int, positions: int, keys: int, dim: int, sim_dim: int) -> tuple[torch.Tensor, ...]:
    torch.manual_seed(0)
    return (
        torch.softmax(torch.randn(items, positions, keys), dim=-1).to(DEVICE),
        torch.nn.functional.normalize(torch.randn(items, keys, dim), dim=-1).to(DEVICE),
        torch.nn.functional.normalize(torch.randn(positions, dim), dim=-1).to(DEVICE),
        torch.randn(sim_dim, dim).to(DEVICE),
        torch.randn(sim_dim).to(DEVICE),
    )


@needs_triton
@pytest.mark.parametrize("sizes", SIZES)
def test_nodes_and_lengths_are_those_of_plain_torch(sizes: tuple[int, ...]) -> None:
    inputs = tensors(*sizes)
    for found, expected in zip(nodes_by("triton")(*inputs), nodes_by("torch")(*inputs), strict=True):
        assert_near(found, expected, 1e-5)


@needs_triton
@pytest.mark.parametrize("sizes", SIZES)
def test_half_precision_stays_near(sizes: tuple[int, ...]) -> None:
    """float16, since the interpreter multiplies no bfloat16."""
    from baselines.backbones.fused import attended_nodes

    inputs = tensors(*sizes)
    found, lengths = attended_nodes(*(x.half() for x in inputs))
    expected, _ = nodes_by("torch")(*inputs)
    assert found.dtype == torch.float16
    assert lengths.dtype == torch.float32
    assert_near(found.float(), expected, 1e-2)


@needs_triton
@pytest.mark.parametrize("name", ["sgr", "saf"])
def test_a_network_computes_and_learns_as_with_plain_torch(name: str) -> None:
    results = []
    for kernel in ("torch", "triton"):
        network = without_dropout(small_network(name, sim_dim=8, kernel=kernel)).float().to(DEVICE).train()
        features, image_lengths, tokens, lengths = (x.to(DEVICE) for x in small_inputs(4, [3, 6, 4]))
        images = network.encode_images(features.float(), image_lengths)
        similarities = network.similarities(images, network.encode_captions(tokens, lengths))
        similarities.square().sum().backward()
        gradients = {key: p.grad for key, p in network.named_parameters() if p.grad is not None}
        results.append((similarities.detach(), gradients))
    assert_near(results[1], results[0], 1e-4)


def test_without_triton_one_sentence_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "baselines.backbones.fused", None)
    with pytest.raises(
        TrainingError, match=r"backbone.kernel is triton, which is not installed; it comes with"
    ):
        small_network("sgr", sim_dim=8, kernel="triton")
