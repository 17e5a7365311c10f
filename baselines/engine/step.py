"""One optimiser step: backward, mean over the ranks, clip, update; and the running mean of what it saw."""

import numpy as np
import torch
from lightning_fabric import Fabric
from torch import Tensor, nn

from baselines.kit.batches import Batch
from baselines.kit.distributed import average_gradients
from ncl_bench.errors import TrainingError


class OptimiserStep:
    """What a method calls with a loss.

    Args:
        fabric: device and arithmetic.
        gradient_clip: largest length of a network's gradient, after the mean over the ranks.
    """

    def __init__(self, fabric: Fabric, gradient_clip: float) -> None:
        self._fabric = fabric
        self._clip = gradient_clip
        self.optimizers: dict[nn.Module, torch.optim.Optimizer] = {}
        self.count = 0
        self._sums: dict[str, float] = {}
        self._steps_in_epoch = 0

    def __call__(self, network: nn.Module, loss: Tensor, batch: Batch, **terms: Tensor) -> None:
        """Update ``network`` by the scalar ``loss``; ``terms`` are its named parts, for the log.

        Raises:
            TrainingError: the loss is not finite.
        """
        named = {"loss": loss, **terms}
        seen = torch.stack([term.detach().mean().double() for term in named.values()]).tolist()
        if not np.isfinite(seen[0]):
            ids = batch.pair_ids.tolist()
            shown = ", ".join(map(str, ids[:8])) + (", ..." if len(ids) > 8 else "")
            raise TrainingError(f"the loss is {seen[0]} at step {self.count + 1} (pairs {shown})")
        optimizer = self.optimizers[network]
        optimizer.zero_grad(set_to_none=True)
        self._fabric.backward(loss)
        average_gradients(network.parameters())
        torch.nn.utils.clip_grad_norm_(network.parameters(), self._clip)
        optimizer.step()
        self.count += 1
        self._steps_in_epoch += 1
        for name, value in zip(named, seen, strict=True):
            self._sums[name] = self._sums.get(name, 0.0) + value

    def epoch_means(self) -> dict[str, float]:
        """Mean of the loss and its terms over the steps since the last call."""
        means = {name: total / self._steps_in_epoch for name, total in self._sums.items()}
        self._sums, self._steps_in_epoch = {}, 0
        return means
