"""One optimiser step: backward, mean over the ranks, clip, update; and the running mean of what it saw."""

from collections.abc import Sequence

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
        gradient_clip: largest length of a module's gradient, after the mean over the ranks.
    """

    def __init__(self, fabric: Fabric, gradient_clip: float) -> None:
        self._fabric = fabric
        self._clip = gradient_clip
        self.optimizers: dict[nn.Module, torch.optim.Optimizer] = {}
        self.count = 0
        self._seen: dict[str, list[float]] = {}

    def __call__(
        self,
        modules: nn.Module | Sequence[nn.Module],
        loss: Tensor,
        batch: Batch,
        *,
        clip: bool = True,
        **terms: Tensor,
    ) -> None:
        """Update modules by the scalar ``loss``; see :class:`baselines.kit.method.Step`.

        Raises:
            TrainingError: the loss is not finite.
        """
        named = {"loss": loss, **terms}
        seen = torch.stack([term.detach().mean().double() for term in named.values()]).tolist()
        if not np.isfinite(seen[0]):
            ids = batch.pair_ids.tolist()
            shown = ", ".join(map(str, ids[:8])) + (", ..." if len(ids) > 8 else "")
            raise TrainingError(f"the loss is {seen[0]} at step {self.count + 1} (pairs {shown})")
        trained = [modules] if isinstance(modules, nn.Module) else modules
        updated = {module: _parameters(self.optimizers[module]) for module in trained}
        for module in updated:
            self.optimizers[module].zero_grad(set_to_none=True)
        self._fabric.backward(loss, inputs=[parameter for each in updated.values() for parameter in each])
        for module, parameters in updated.items():
            average_gradients(parameters)
            optimizer = self.optimizers[module]
            if clip:
                self._fabric.clip_gradients(module, optimizer, max_norm=self._clip, error_if_nonfinite=False)
            optimizer.step()
        self.count += 1
        for name, value in zip(named, seen, strict=True):
            self._seen.setdefault(name, []).append(value)

    def epoch_means(self) -> dict[str, float]:
        """Mean of the loss and of each term over the steps that named it since the last call."""
        means = {name: sum(values) / len(values) for name, values in self._seen.items()}
        self._seen = {}
        return means


def _parameters(optimizer: torch.optim.Optimizer) -> list[nn.Parameter]:
    groups = (group["params"] for group in optimizer.param_groups)
    return [parameter for group in groups for parameter in group if parameter.requires_grad]
