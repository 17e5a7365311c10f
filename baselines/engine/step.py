"""One optimiser step: backward, mean over the ranks, clip, update; and what it saw and counted.

What a step saw stays on the device for some steps: to read it, the host would have to wait until the device has done
all its work. A loss that is not finite is therefore noticed late, but before anything made with it is written, and the
step and the pairs that it came from are named all the same.

A recipe may give the networks a number of steps, which is that of each where all take equally many. A method that
divides the pairs anew for every network trains one of them on more pairs than the other; they then take as many
together. In an epoch no network takes more than its share of what is left: it stays as it is then, whatever the method
goes on to do with it.
"""

import math
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import NamedTuple

import torch
from torch import Tensor, nn

from baselines.kit.batches import Batch
from baselines.kit.distributed import average_gradients
from ncl_bench.errors import TrainingError

READ_EVERY = 50
"""Steps after which the host reads what the device has seen."""


class StepsSpent(Exception):
    """The networks have taken the steps that the recipe gives them."""


class Diverged(TrainingError):
    """The loss is not finite."""


class Seen(NamedTuple):
    """What a step saw.

    Attributes:
        number: of the step, from 1.
        names: the loss, then its terms.
        values: float64 ``(names,)``, on the device.
        pair_ids: int64 ``(pairs,)``, of its batch.
    """

    number: int
    names: tuple[str, ...]
    values: Tensor
    pair_ids: Tensor


class OptimiserStep:
    """What a method calls with a loss.

    Args:
        gradient_clip: largest length of a module's gradient, after the mean over the ranks.
        most: steps that the networks may take, in their mean; any number where None.

    Attributes:
        optimizers: of every module that is trained.
        networks: whose steps are counted.
        count: steps of all modules.
        taken: steps of each network.
    """

    def __init__(self, gradient_clip: float, most: int | None = None) -> None:
        self._clip = gradient_clip
        self._most = most
        self.optimizers: dict[nn.Module, torch.optim.Optimizer] = {}
        self.networks: Sequence[nn.Module] = ()
        self.count = 0
        self.taken: list[int] = []
        self._unread: list[Seen] = []
        self._read: dict[str, list[float]] = {}
        self._ends: list[int] = []
        self._final: dict[int, dict[str, Tensor]] = {}

    def begin_epoch(self, networks: Sequence[nn.Module]) -> None:
        """Count the steps of these networks, and give each its share of those that are left."""
        self.networks = networks
        if self._most is not None:
            left = self._most * len(networks) - sum(self.taken)
            self._ends = [taken + math.ceil(left / len(networks)) for taken in self.taken]

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
            Diverged: this loss, or one of the last steps, is not finite.
            StepsSpent: the networks may take no further step.
        """
        trained = [modules] if isinstance(modules, nn.Module) else modules
        if self._most is not None and all(self._is_spent(module) for module in trained):
            return
        named = {"loss": loss, **terms}
        seen = torch.stack([term.detach().mean().double() for term in named.values()])
        self._unread.append(Seen(self.count + 1, tuple(named), seen, batch.pair_ids))
        updated = {module: _parameters(self.optimizers[module]) for module in trained}
        for module in updated:
            self.optimizers[module].zero_grad(set_to_none=True)
        inputs = [parameter for each in updated.values() for parameter in each]
        loss.backward(inputs=inputs)  # type: ignore[no-untyped-call]
        for module, parameters in updated.items():
            average_gradients(parameters)
            optimizer = self.optimizers[module]
            if clip:
                held = [parameter for group in optimizer.param_groups for parameter in group["params"]]
                nn.utils.clip_grad_norm_(held, self._clip)
            optimizer.step()
        self.count += 1
        if len(self._unread) == READ_EVERY:
            self.check()
        self._count_networks(trained)

    def check(self) -> None:
        """Read what the last steps saw.

        Raises:
            Diverged: one of their losses is not finite; the first of them is named.
        """
        unread, self._unread = self._unread, []
        if not unread:
            return
        values = iter(torch.cat([seen.values for seen in unread]).tolist())
        for seen in unread:
            found = {name: next(values) for name in seen.names}
            if not math.isfinite(found["loss"]):
                ids = seen.pair_ids.tolist()
                shown = ", ".join(map(str, ids[:8])) + (", ..." if len(ids) > 8 else "")
                raise Diverged(f"the loss is {found['loss']} at step {seen.number} (pairs {shown})")
            for name, value in found.items():
                self._read.setdefault(name, []).append(value)

    @contextmanager
    def checked(self) -> Iterator[None]:
        """Steps of which none stays unread, also where a method stumbles over what a loss that is not finite left.

        Raises:
            Diverged: as :meth:`check`.
        """
        try:
            yield
        finally:
            self.check()

    @property
    def mean_taken(self) -> float:
        """Steps of the networks, in their mean."""
        return sum(self.taken) / len(self.taken)

    @property
    def running_loss(self) -> float | None:
        """Mean loss of the last steps of the epoch that were read; None before the first ones."""
        last = self._read.get("loss", [])[-READ_EVERY:]
        return sum(last) / len(last) if last else None

    @property
    def spent(self) -> bool:
        """Whether the networks have taken all of their steps."""
        return self._most is not None and sum(self.taken) >= self._most * len(self.taken)

    def restore_spent(self) -> None:
        """Put back networks that ran on, in training mode, after their share; batch statistics had moved."""
        for k, state in self._final.items():
            self.networks[k].load_state_dict(state)
        self._final = {}

    def _is_spent(self, module: nn.Module) -> bool:
        """Whether a network has taken its share; a part of one as the whole, what belongs to none as all of them."""
        owners = [
            k
            for k, network in enumerate(self.networks)
            if any(module is inner for inner in network.modules())
        ]
        return all(self.taken[k] == self._ends[k] for k in owners or range(len(self.networks)))

    def _count_networks(self, trained: Sequence[nn.Module]) -> None:
        for k, network in enumerate(self.networks):
            if any(module is network for module in trained):
                self.taken[k] += 1
                if self._most is not None and self.taken[k] == self._ends[k]:
                    self._final[k] = {name: x.clone() for name, x in network.state_dict().items()}
        if self.spent:
            raise StepsSpent

    def epoch_means(self) -> dict[str, float]:
        """Mean of the loss and of each term over the steps that named it since the last call.

        Raises:
            Diverged: as :meth:`check`.
        """
        self.check()
        means = {name: sum(values) / len(values) for name, values in self._read.items()}
        self._read = {}
        return means


def _parameters(optimizer: torch.optim.Optimizer) -> list[nn.Parameter]:
    groups = (group["params"] for group in optimizer.param_groups)
    return [parameter for group in groups for parameter in group if parameter.requires_grad]
