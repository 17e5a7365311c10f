"""Values per pair that outlive a batch."""

import pytest
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


def test_what_is_read_is_a_copy_without_gradient() -> None:
    memory = PairMemory(3, initial=0.0)
    value = torch.ones(1, requires_grad=True)
    memory.write(torch.tensor([1]), 2 * value)
    read = memory.read(torch.tensor([1]))
    assert not read.requires_grad
    read += 5
    assert memory.values.tolist() == [0, 2, 0]


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_values_take_the_precision_of_the_memory(dtype: torch.dtype) -> None:
    memory = PairMemory(2, initial=0.0, dtype=dtype)
    memory.write(torch.tensor([0]), torch.tensor([0.1], dtype=torch.float64))
    assert memory.values.dtype == dtype
    assert memory.values[0] == torch.tensor(0.1, dtype=torch.float64).to(dtype)


def test_a_checkpoint_carries_the_values_and_an_optimiser_does_not_see_them() -> None:
    first, second = (nn.ModuleDict({"label": PairMemory(5, initial=1.0)}) for _ in range(2))
    first["label"].write(torch.arange(5), torch.rand(5))
    second.load_state_dict(first.state_dict())
    assert torch.equal(first["label"].values, second["label"].values)
    assert not list(first.parameters())


def test_pairs_beyond_the_split_are_refused() -> None:
    with pytest.raises(IndexError):
        PairMemory(3, initial=0.0).read(torch.tensor([3]))
