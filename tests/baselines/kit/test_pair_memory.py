"""Values per pair that outlive a batch."""

import torch
from torch import nn

from baselines.kit.pair_memory import PairMemory


def test_values_are_kept_under_the_number_of_their_pair() -> None:
    memory = PairMemory(6, initial=1.0)
    memory.write(torch.tensor([4, 0]), torch.tensor([0.25, 0.5]))
    assert memory.values.tolist() == [0.5, 1, 1, 1, 0.25, 1]
    assert memory.read(torch.tensor([4, 4, 1])).tolist() == [0.25, 0.25, 1]


def test_several_values_per_pair() -> None:
    memory = PairMemory(4, initial=0.0, width=3)
    memory.write(torch.tensor([2]), torch.tensor([[1.0, 2.0, 3.0]]))
    assert memory.read(torch.tensor([2, 1])).tolist() == [[1, 2, 3], [0, 0, 0]]


def test_a_checkpoint_carries_the_values_and_an_optimiser_does_not_see_them() -> None:
    first, second = (nn.ModuleDict({"label": PairMemory(5, initial=1.0)}) for _ in range(2))
    first["label"].write(torch.arange(5), torch.rand(5))
    second.load_state_dict(first.state_dict())
    assert torch.equal(first["label"].values, second["label"].values)
    assert not list(first.parameters())
