"""One optimiser step: backward, mean over the ranks, clip, update; and what it saw and counted.

A recipe may give every network the same number of steps. A network that has taken them stays as it is then, whatever
the method goes on to do with it, and the epoch ends when all networks have.
"""

from collections.abc import Sequence

import numpy as np
import torch
from lightning_fabric import Fabric
from torch import Tensor, nn

from baselines.kit.batches import Batch
from baselines.kit.distributed import average_gradients
from ncl_bench.errors import TrainingError


class StepsSpent(Exception):
    """Every network has taken the steps that the recipe gives it."""


class Diverged(TrainingError):
    """The loss is not finite."""


class OptimiserStep:
    """What a method calls with a loss.

    Args:
        fabric: device and arithmetic.
        gradient_clip: largest length of a module's gradient, after the mean over the ranks.
        most: steps that every network may take; any number where None.

    Attributes:
        optimizers: of every module that is trained.
        networks: whose steps are counted.
        count: steps of all modules.
        taken: steps of each network.
    """

    def __init__(self, fabric: Fabric, gradient_clip: float, most: int | None = None) -> None:
        self._fabric = fabric
        self._clip = gradient_clip
        self._most = most
        self.optimizers: dict[nn.Module, torch.optim.Optimizer] = {}
        self.networks: Sequence[nn.Module] = ()
        self.count = 0
        self.taken: list[int] = []
        self._seen: dict[str, list[float]] = {}
        self._final: dict[int, dict[str, Tensor]] = {}

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
            Diverged: the loss is not finite.
            StepsSpent: no network may take a further step.
        """
        trained = [modules] if isinstance(modules, nn.Module) else modules
        if self._most is not None and all(self._is_spent(module) for module in trained):
            return
        named = {"loss": loss, **terms}
        seen = torch.stack([term.detach().mean().double() for term in named.values()]).tolist()
        if not np.isfinite(seen[0]):
            ids = batch.pair_ids.tolist()
            shown = ", ".join(map(str, ids[:8])) + (", ..." if len(ids) > 8 else "")
            raise Diverged(f"the loss is {seen[0]} at step {self.count + 1} (pairs {shown})")
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
        self._count_networks(trained)

    @property
    def spent(self) -> bool:
        """Whether every network has taken all of its steps."""
        return self._most is not None and bool(self.taken) and min(self.taken) >= self._most

    def restore_spent(self) -> None:
        """Put back networks that ran on, in training mode, after their last step; batch statistics had moved."""
        for k, state in self._final.items():
            self.networks[k].load_state_dict(state)
        self._final = {}

    def _is_spent(self, module: nn.Module) -> bool:
        """A part of a network is spent with it; what belongs to none, with all of them."""
        owners = [
            k
            for k, network in enumerate(self.networks)
            if any(module is inner for inner in network.modules())
        ]
        return all(self.taken[k] == self._most for k in owners or range(len(self.networks)))

    def _count_networks(self, trained: Sequence[nn.Module]) -> None:
        for k, network in enumerate(self.networks):
            if any(module is network for module in trained):
                self.taken[k] += 1
                if self.taken[k] == self._most:
                    self._final[k] = {name: x.clone() for name, x in network.state_dict().items()}
        if self.spent:
            raise StepsSpent

    def epoch_means(self) -> dict[str, float]:
        """Mean of the loss and of each term over the steps that named it since the last call."""
        means = {name: sum(values) / len(values) for name, values in self._seen.items()}
        self._seen = {}
        return means


def _parameters(optimizer: torch.optim.Optimizer) -> list[nn.Parameter]:
    groups = (group["params"] for group in optimizer.param_groups)
    return [parameter for group in groups for parameter in group if parameter.requires_grad]
