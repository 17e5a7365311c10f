"""Similarities in one pass: the numbers of the blocks, and what the blocks cannot do."""

import pytest
import torch
from support.parity import encoded as sides_of
from support.parity import small_batch, small_network, without_dropout
from support.rounding import assert_near
from torch import nn
from torch.func import functional_call

LENGTHS = (4, 2, 5, 3)
EVERY_NAME = pytest.mark.parametrize("name", ["sgr", "saf"])


def network_of(name):
    return without_dropout(small_network(name, embed_size=5, word_dim=4, sim_dim=4, block_captions=2))


def encoded(network):
    return sides_of(network, small_batch(len(LENGTHS), LENGTHS))


@EVERY_NAME
@pytest.mark.parametrize("training", [True, False])
def test_numbers_and_running_statistics_are_those_of_the_blocks(name, training):
    blocks, whole = (network_of(name).train(training) for _ in range(2))
    expected, found = blocks.similarities(*encoded(blocks)), whole.all_logits(*encoded(whole)).sigmoid()
    assert_near(found, expected, 1e-12)
    for key, value in blocks.state_dict().items():
        assert_near(whole.state_dict()[key], value, 1e-12)
    expected.sum().backward()
    found.sum().backward()
    for (key, weight), other in zip(blocks.named_parameters(), whole.parameters(), strict=True):
        if weight.grad is not None:
            assert_near(other.grad, weight.grad, 1e-9, scale=1e-3, name=key)


@EVERY_NAME
def test_own_similarities_are_the_diagonal(name):
    network = network_of(name).eval()
    found, expected = (of(*encoded(network)) for of in (network.own_logits, network.all_logits))
    assert_near(found, expected.diagonal(), 1e-12)


@EVERY_NAME
@pytest.mark.parametrize("of", ["all_logits", "own_logits"])
def test_gradients_can_be_differentiated(name, of):
    network = network_of(name).train()
    weight = network.local_nodes.weight
    direction = torch.randn(weight.shape, generator=torch.Generator().manual_seed(5), dtype=torch.float64)

    def gradient():
        loss = getattr(network, of)(*encoded(network)).sigmoid().square().sum()
        return torch.autograd.grad(loss, network.words.embedding.weight, create_graph=True)[0].square().sum()

    (second,) = torch.autograd.grad(gradient(), weight)
    ends = []
    for move in (1e-6, -1e-6):
        with torch.no_grad():
            weight += move * direction
        ends.append(gradient().item())
        with torch.no_grad():
            weight -= move * direction
    assert (second * direction).sum().item() == pytest.approx((ends[0] - ends[1]) / 2e-6, rel=1e-4)


class Whole(nn.Module):
    """All similarities, as a module's call."""

    def __init__(self, network):
        super().__init__()
        self.network = network

    def forward(self):
        return self.network.all_logits(*encoded(self.network))


@EVERY_NAME
def test_exchanged_weights_hold_in_the_backward_pass(name):
    network, other = Whole(network_of(name).eval()), Whole(network_of(name).eval())
    with torch.no_grad():
        for weight in other.parameters():
            weight.mul_(1.5)
    exchanged = {key: weight.detach().clone().requires_grad_() for key, weight in other.named_parameters()}
    functional_call(network, exchanged, ()).square().sum().backward()
    other().square().sum().backward()
    for key, weight in other.named_parameters():
        if weight.grad is not None:
            assert_near(exchanged[key].grad, weight.grad, 1e-9, scale=1e-3, name=key)
