"""The GRU of the CPU against torch's own module, and its gradients of first and second order."""

from unittest.mock import patch

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from support.rounding import assert_near
from torch import nn
from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence

from baselines.backbones import encoders
from baselines.backbones.encoders import all_states, both_directions, last_state, states

LENGTHS = torch.tensor([3, 7, 1, 5, 7, 2])


def by_torch(gru, sequences, lengths):
    """States of torch's module on packed sequences."""
    n, longest, _ = sequences.shape
    found, _ = pad_packed_sequence(gru(packed(sequences, lengths))[0], batch_first=True, total_length=longest)
    return found.view(n, longest, -1, gru.hidden_size)


def packed(sequences, lengths):
    return pack_padded_sequence(sequences, lengths, batch_first=True, enforce_sorted=False)


def a_gru(*, both, dtype=torch.float64):
    torch.manual_seed(0)
    return nn.GRU(5, 4, batch_first=True, bidirectional=both).to(dtype)


@settings(max_examples=30)
@given(
    path=st.sampled_from(["of a CPU", "of a GPU", "of fixed shapes"]),
    lengths=st.lists(st.integers(1, 9), min_size=1, max_size=7),
    padding=st.integers(0, 3),
    both=st.booleans(),
    seed=st.integers(0, 99),
)
def test_states_and_gradients_are_those_of_torch(path, lengths, padding, both, seed):
    gru = a_gru(both=both)
    random = torch.Generator().manual_seed(seed)
    sequences = torch.randn(
        len(lengths), max(lengths) + padding, 5, generator=random, dtype=torch.float64, requires_grad=True
    )
    expected = by_torch(gru, sequences, torch.tensor(lengths))
    weight = torch.randn(expected.shape, generator=random, dtype=torch.float64)
    run = encoders.padded_states if path == "of fixed shapes" else states
    with patch.object(encoders, "CPU_PATH", () if path == "of a GPU" else ("cpu",)):
        found = run(gru, sequences, torch.tensor(lengths))
    assert_near(found, expected, 1e-12)
    by = [sequences, *gru.parameters()]
    ours, theirs = (torch.autograd.grad((x * weight).sum(), by) for x in (found, expected))
    assert_near(ours, theirs, 1e-11)


@pytest.mark.parametrize("both", [True, False], ids=["both", "one"])
def test_gradients_can_be_differentiated_again(both):
    gru = a_gru(both=both)
    names, values = zip(*gru.named_parameters(), strict=True)
    sequences = torch.randn(6, 7, 5, dtype=torch.float64, requires_grad=True)

    def of(sequences, *parameters):
        run = Functional(gru, LENGTHS)
        return torch.func.functional_call(
            run, dict(zip((f"gru.{x}" for x in names), parameters, strict=True)), sequences
        )

    assert torch.autograd.gradgradcheck(of, (sequences, *values), fast_mode=True)


class Functional(nn.Module):
    """The states as a module, whose parameters a test replaces."""

    def __init__(self, gru, lengths):
        super().__init__()
        self.gru, self.lengths = gru, lengths

    def forward(self, sequences):
        return states(self.gru, sequences, self.lengths)


def test_what_lies_beyond_a_sequence_counts_for_nothing():
    gru = a_gru(both=True)
    sequences = torch.randn(6, 7, 5, dtype=torch.float64)
    beyond = torch.arange(7) >= LENGTHS[:, None]
    sequences.masked_fill_(beyond[..., None], torch.nan).requires_grad_()
    found = states(gru, sequences, LENGTHS)
    assert not found[beyond].any()
    assert torch.isfinite(found).all()
    (gradient,) = torch.autograd.grad(found.sum(), sequences)
    assert not gradient[beyond].any()
    assert gradient[~beyond].all()


def test_both_directions_are_averaged_and_the_last_state_is_that_of_the_last_item():
    sequences = torch.randn(6, 7, 5, dtype=torch.float64)
    gru = a_gru(both=True)
    expected = by_torch(gru, sequences, LENGTHS).mean(dim=2)
    assert_near(both_directions(gru, sequences, LENGTHS), expected)
    gru = a_gru(both=False)
    assert_near(last_state(gru, sequences, LENGTHS), gru(packed(sequences, LENGTHS))[1][0])
    assert_near(all_states(gru, sequences), gru(sequences)[0])


def test_states_are_float32_where_products_are_bfloat16():
    gru = a_gru(both=True, dtype=torch.float32)
    sequences = torch.randn(6, 7, 5)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        found = states(gru, sequences, LENGTHS)
    assert torch.equal(found, states(gru, sequences, LENGTHS))


@pytest.mark.parametrize(("divided", "dim"), [(encoders.unit_length, 2), (encoders.scaled, 1)])
def test_unit_vectors_of_a_gpu_and_their_gradients_are_those_of_a_cpu(divided, dim):
    vectors = torch.randn(5, 3, 4, dtype=torch.float64)
    vectors[0, 0], vectors[1, 1] = 0.0, 1e-9
    x = vectors.transpose(dim, 2).requires_grad_()
    weight = torch.randn(x.shape, dtype=torch.float64)
    expected = divided(x)
    (slope,) = torch.autograd.grad((expected * weight).sum(), x)
    with patch.object(encoders, "CPU_PATH", ()):
        found = divided(x)
        (ours,) = torch.autograd.grad((found * weight).sum(), x)
        assert torch.autograd.gradgradcheck(divided, x.detach()[2:].requires_grad_())
    assert torch.equal(found, expected)
    for ours_of, slope_of in zip(ours.transpose(dim, 2), slope.transpose(dim, 2), strict=True):
        for a, b in zip(ours_of, slope_of, strict=True):  # the slopes of a short vector are long
            assert_near(a, b, 1e-12)
