"""What the tests of CREAM and SPS share: the batches of three sets of pairs."""

from collections.abc import Sequence

import torch
from support.doubles import StoredBatches, bare_batch
from support.parity import Arrays, names_between, tensor

from baselines.kit.batches import Batch


class SetsInTurn(StoredBatches):
    """Batches of three sets, by the names that the frame gives them.

    Attributes:
        sets: the pairs of each.
    """

    def __init__(self, clean: Sequence[Batch], middle: Sequence[Batch], noisy: Sequence[Batch]) -> None:
        super().__init__(clean=clean, middle=middle, noisy=noisy)
        none = torch.empty(0, dtype=torch.int64)
        self.sets = tuple(
            torch.cat([none, *(batch.pair_ids for batch in each)]) for each in (clean, middle, noisy)
        )


def stored_batches(stored: Arrays, name: str) -> list[Batch]:
    """The batches of a set, in order."""
    numbers = sorted(int(number) for number in names_between(stored, f"batch.{name}"))
    return [bare_batch(tensor(stored[f"batch.{name}{number}"])) for number in numbers]
