"""What the tests of CREAM and SPS share: the batches of three sets of pairs, and a step on stored gradients."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import torch
from support.golden_parity import Arrays, StoredBatches, gradients_of, in_our_names, names_between, tensor
from support.rounding import assert_near
from support.stand_ins import StandIn
from torch import Tensor, nn

from baselines.kit.batches import Batch


class OwnPairs(StandIn):
    """Stands for a network: similarities that only say which pairs they belong to."""

    def forward(self, batch: Batch) -> Tensor:
        return batch.pair_ids.float().repeat(len(batch), 1).requires_grad_()


class SetsInTurn(StoredBatches):
    """Batches of three sets, by the names that the frame gives them.

    Attributes:
        sets: the pairs of each.
    """

    def __init__(self, clean: Sequence[Batch], middle: Sequence[Batch], noisy: Sequence[Batch]) -> None:
        super().__init__(*clean, *middle, *noisy, clean=clean, middle=middle, noisy=noisy)
        none = torch.empty(0, dtype=torch.int64)
        self.sets = tuple(
            torch.cat([none, *(batch.pair_ids for batch in each)]) for each in (clean, middle, noisy)
        )


def unread(ids: np.ndarray) -> Batch:
    """A batch that nobody encodes."""
    empty = torch.empty(0)
    return Batch(empty, empty, empty, empty, tensor(ids))


def stored_batches(stored: Arrays, name: str) -> list[Batch]:
    """The batches of a set, in order."""
    numbers = sorted(int(number) for number in names_between(stored, f"batch.{name}"))
    return [unread(stored[f"batch.{name}{number}"]) for number in numbers]


def assert_state_after_a_step(method: Any, base: Mapping[str, Tensor], after: Mapping[str, Tensor]) -> None:
    """Clip the gradients of network 0 at 2, take a step of its optimiser, compare the weights.

    Args:
        method: whose network carries the gradients.
        base: a whole published state.
        after: published name to weight.
    """
    network = method.networks[0]
    moved = {name: gradient.clone() for name, gradient in gradients_of(network).items()}
    nn.utils.clip_grad_norm_(network.parameters(), 2.0)
    method.make_optimizer(network, 2e-3).step()
    weights, expected = dict(network.named_parameters()), in_our_names(base, after)
    assert expected
    for name, want in expected.items():
        if moved[name].abs().max() > 1e-9:  # noise moves as far as a gradient
            assert_near(weights[name].detach(), want, 1e-6, scale=1, name=name)
