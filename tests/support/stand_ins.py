"""What stands for a network in the tests of methods."""

from typing import Any

import torch
from torch import Tensor, nn

from baselines.kit.batches import Batch


class StandIn(nn.Module):
    """Goes from a batch to similarities in ``forward``, encodes nothing, and adds no loss of its own."""

    def encode(self, batch: Batch) -> tuple[Any, Any]:
        return batch, batch

    def compare(self, images: Any, captions: Any) -> Tensor:
        similarities: Tensor = self(images)
        return similarities

    def auxiliary_losses(self, images: Any, batch: Batch) -> Tensor:
        return torch.zeros(len(batch))
