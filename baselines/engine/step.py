"""One gradient step: backward, mean over the ranks, clip, update; and a record of losses and step counts.

Losses stay on the device for ``READ_EVERY`` steps, because reading one makes the host wait for the device. A non-finite
loss is therefore noticed some steps late. It is still reported before any file is written, with its step and pairs.

A recipe may set a number of steps per network. Methods that divide the pairs for each network train one network on more
pairs than the other, so the budget counts the mean over the networks. Each epoch gives every network an equal share of
the remaining steps. A network that has used its share is frozen for the rest of the epoch.
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
"""Number of steps between two reads of the losses from the device."""


class StepsSpent(Exception):
    """The networks have used all steps of the recipe."""


class Diverged(TrainingError):
    """The loss is not finite."""


class Seen(NamedTuple):
    """Losses of one step, still on the device.

    Attributes:
        number: number of the step, from 1.
        names: names of the loss and its terms.
        values: float64 ``(names,)``, on the device.
        pair_ids: int64 ``(pairs,)``, ids of the batch's pairs.
    """

    number: int
    names: tuple[str, ...]
    values: Tensor
    pair_ids: Tensor


class OptimiserStep:
    """The ``step`` that a method calls with a loss.

    Args:
        gradient_clip: largest gradient norm of a module, after the mean over the ranks; None for no limit.
        most: largest mean number of steps per network; None for no limit.

    Attributes:
        optimizers: optimizer of every trained module.
        networks: networks whose steps are counted.
        count: number of steps so far, of any module.
        taken: number of steps of each network.
    """

    def __init__(self, gradient_clip: float | None, most: int | None = None) -> None:
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
        """Give each network its share of the remaining steps."""
        self.networks = networks
        if self._most is not None:
            left = self._most * len(networks) - sum(self.taken)
            # rounded up, so that an epoch with steps left always gives every network one
            self._ends = [taken + math.ceil(left / len(networks)) for taken in self.taken]

    def __call__(
        self,
        modules: nn.Module | Sequence[nn.Module],
        loss: Tensor,
        batch: Batch,
        *,
        clip: bool | nn.Module = True,
        learning_rate: float | None = None,
        **terms: Tensor,
    ) -> None:
        """Update modules by the scalar ``loss``; see :class:`baselines.kit.method.Step`.

        Raises:
            Diverged: a loss since the last read is not finite.
            StepsSpent: the networks have used all steps of the recipe.
        """
        trained = [modules] if isinstance(modules, nn.Module) else modules
        if self._most is not None and self._are_spent(trained):
            return
        named = {"loss": loss, **terms}
        seen = torch.stack([term.detach().mean().double() for term in named.values()])
        self._unread.append(Seen(self.count + 1, tuple(named), seen, batch.pair_ids))
        updated = {module: _parameters(self.optimizers[module]) for module in trained}
        for module in updated:
            self.optimizers[module].zero_grad(set_to_none=True)
        # a loss may also pass through networks that do not train in this step: they need no gradient
        inputs = [parameter for each in updated.values() for parameter in each]
        loss.backward(inputs=inputs)  # type: ignore[no-untyped-call]
        for module, parameters in updated.items():
            average_gradients(parameters)
            optimizer = self.optimizers[module]
            if self._clip is not None and (clip is True or clip is module):
                held = [parameter for group in optimizer.param_groups for parameter in group["params"]]
                nn.utils.clip_grad_norm_(held, self._clip)
            if learning_rate is not None:
                for group in optimizer.param_groups:
                    group["lr"] = learning_rate
            optimizer.step()
        self.count += 1
        if len(self._unread) == READ_EVERY:
            self.check()
        self._count_networks(trained)

    def check(self) -> None:
        """Read the losses since the last read.

        Raises:
            Diverged: a loss is not finite; the message names the first such step and its pairs.
        """
        unread, self._unread = self._unread, []
        if not unread:
            return
        values = iter(torch.cat([seen.values for seen in unread]).tolist())  # one transfer for all steps
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
        """Check every loss at the end, even if the method itself fails on non-finite weights.

        Raises:
            Diverged: as in :meth:`check`; it replaces the method's own error.
        """
        try:
            yield
        finally:
            self.check()

    @property
    def mean_taken(self) -> float:
        """Mean number of steps per network."""
        return sum(self.taken) / len(self.taken)

    @property
    def running_loss(self) -> float | None:
        """Mean of the last losses read in this epoch; None before the first read."""
        last = self._read.get("loss", [])[-READ_EVERY:]
        return sum(last) / len(last) if last else None

    @property
    def spent(self) -> bool:
        """Whether the networks have used all steps of the recipe."""
        return self._most is not None and sum(self.taken) >= self._most * len(self.taken)

    def restore_spent(self) -> None:
        """Restore frozen networks, whose batch statistics may have moved in later forward passes."""
        for k, state in self._final.items():
            self.networks[k].load_state_dict(state)
        self._final = {}

    def _are_spent(self, trained: Sequence[nn.Module]) -> bool:
        """Whether the shares of the trained networks are used.

        A part of a network counts as that network. Modules outside all networks are spent when all networks are.
        """
        owners = [
            k
            for k, network in enumerate(self.networks)
            if any(module is inner for module in trained for inner in network.modules())
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
        """Return the means of the loss and of each term since the last call, and start new ones.

        Raises:
            Diverged: as in :meth:`check`.
        """
        self.check()
        means = {name: sum(values) / len(values) for name, values in self._read.items()}
        self._read = {}
        return means


def _parameters(optimizer: torch.optim.Optimizer) -> list[nn.Parameter]:
    groups = (group["params"] for group in optimizer.param_groups)
    return [parameter for group in groups for parameter in group if parameter.requires_grad]
