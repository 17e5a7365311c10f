"""One gradient step: backward, mean over the ranks, clip, update; and the budget of steps that a run takes.

Losses stay on the device for ``READ_EVERY`` steps, because reading one makes the host wait for the device. A non-finite
loss is therefore noticed some steps late. It is still reported before any file is written, with its step and pairs.
"""

import math
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from copy import deepcopy
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor, nn

from baselines.kit.backbone import Backbone
from baselines.kit.batches import Batch, TrainingBatches, derive_seed
from baselines.kit.distributed import average_gradients
from baselines.kit.losses import mean_triplet
from ncl_bench.errors import TrainingError

READ_EVERY = 50
"""Number of steps between two reads of the losses from the device."""
MARGIN = 0.2
TIMED = 3
"""Number of plain triplet steps timed before each epoch."""


class StepsSpent(Exception):
    """The networks have used all steps of the recipe."""


class Diverged(TrainingError):
    """The loss is not finite."""


class Budget:
    """The steps that each network has taken and may still take, and what they cost.

    Methods that divide the pairs for each network train one network on more pairs than the other, so the budget counts
    the mean over the networks. Each epoch gives every network an equal share of the remaining steps. A network that has
    used its share is frozen for the rest of the epoch.

    Args:
        n_networks: number of networks.
        steps: mean number of steps per network; None for no limit.

    Attributes:
        taken: number of steps of each network.
        spent: ``captions``: encoded in training, summed over the networks; ``seconds``: training time without the
            evaluation on dev, 0 if no plain steps are timed; ``plain_seconds`` and ``plain_steps``: time and number of
            the plain steps.
    """

    def __init__(self, n_networks: int, steps: int | None) -> None:
        self.steps = steps
        self.taken = [0] * n_networks
        self.spending: dict[str, Any] = {
            "captions": 0,
            "seconds": 0.0,
            "plain_seconds": 0.0,
            "plain_steps": 0,
        }
        self._networks: Sequence[nn.Module] = ()
        self._ends: list[int] = []
        self._frozen: dict[int, dict[str, Tensor]] = {}

    @property
    def mean_taken(self) -> float:
        """Mean number of steps per network."""
        return sum(self.taken) / len(self.taken)

    @property
    def used(self) -> bool:
        """Whether the networks have taken all steps of the recipe."""
        return self.steps is not None and sum(self.taken) >= self.steps * len(self.taken)

    def begin_epoch(self, networks: Sequence[nn.Module]) -> None:
        """Give each network its share of the remaining steps."""
        self._networks = networks
        if self.steps is not None:
            left = self.steps * len(networks) - sum(self.taken)
            # rounded up, so that an epoch with steps left always gives every network one
            self._ends = [taken + math.ceil(left / len(networks)) for taken in self.taken]

    def allows(self, modules: Sequence[nn.Module]) -> bool:
        """Whether a share of these modules' networks is left.

        A part of a network counts as that network. Modules outside all networks are frozen when all networks are.
        """
        if self.steps is None:
            return True
        # by identity: a method may train a part of a network, such as its text encoder
        owners = [
            k
            for k, network in enumerate(self._networks)
            if any(module is inner for module in modules for inner in network.modules())
        ]
        return any(self.taken[k] != self._ends[k] for k in owners or range(len(self._networks)))

    def take(self, modules: Sequence[nn.Module]) -> None:
        """Count a step of those modules that are whole networks.

        Raises:
            StepsSpent: it was the last one.
        """
        for k, network in enumerate(self._networks):
            if any(module is network for module in modules):
                self.taken[k] += 1
                if self.steps is not None and self.taken[k] == self._ends[k]:
                    # the method may still run the network, which moves its batch statistics
                    self._frozen[k] = {name: x.clone() for name, x in network.state_dict().items()}
        if self.used:
            raise StepsSpent

    def end_epoch(self) -> None:
        """Restore frozen networks, whose batch statistics may have moved in later forward passes."""
        for k, state in self._frozen.items():
            self._networks[k].load_state_dict(state)
        self._frozen = {}

    @contextmanager
    def training(self, networks: Sequence[Backbone], device: torch.device) -> Iterator[None]:
        """Add the captions that networks encode in this context, and its time."""
        before, begun = sum(network.captions_encoded for network in networks), seconds_of(device)
        try:
            yield
        finally:
            self.spending["captions"] += sum(network.captions_encoded for network in networks) - before
            if self.spending["plain_steps"]:  # unused seconds would make checkpoints of equal runs differ
                self.spending["seconds"] += seconds_of(device) - begun

    def time_plain_steps(
        self, network: Backbone, batches: TrainingBatches, gradient_clip: float | None, epoch: int
    ) -> None:
        """Time some steps of the mean triplet on a copy of a network, with batches like those of the epoch.

        Seconds depend on the machine and its load, so the cost of a run is relative to these steps. They do not
        influence the run.
        """
        # a copy, so that timing moves neither the weights nor the optimiser of the run
        copied = deepcopy(network).train()
        step = OptimiserStep(gradient_clip)
        step.optimizers = {copied: torch.optim.Adam(copied.parameters())}
        # a generator of its own: the order of the epoch's batches stays
        random = np.random.default_rng(derive_seed(batches.seed, "plain steps", epoch))
        ids = batches.pair_ids.numpy()
        for number in range(1 + TIMED):  # the first step is not timed: it also creates the optimiser's state
            chosen = random.choice(ids, min(batches.batch_size, len(ids)), replace=False)
            begun = seconds_of(batches.device)
            batch = batches.read(torch.from_numpy(chosen))
            step(copied, mean_triplet(copied(batch).similarities, MARGIN).sum(), batch)
            if number > 0:
                self.spending["plain_seconds"] += seconds_of(batches.device) - begun
                self.spending["plain_steps"] += 1

    @property
    def cost(self) -> float | None:
        """Training time relative to as many plain steps on one network; None if none were timed."""
        plain = self.spending["plain_steps"]
        if plain == 0 or self.mean_taken == 0:
            return None
        cost: float = round(
            self.spending["seconds"] / (self.mean_taken * self.spending["plain_seconds"] / plain), 3
        )
        return cost


def seconds_of(device: torch.device) -> float:
    """Return process time on a CPU, which the load of other processes does not change; wall time with a GPU."""
    if device.type != "cuda":
        return time.process_time()
    # the host only queues work; without waiting it would time the queueing
    torch.cuda.synchronize(device)
    return time.perf_counter()


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
        budget: counts and limits the steps; None for neither.

    Attributes:
        optimizers: optimizer of every trained module.
        count: number of steps so far, of any module.
    """

    def __init__(self, gradient_clip: float | None, budget: Budget | None = None) -> None:
        self._clip = gradient_clip
        self.budget = budget or Budget(1, None)
        self.optimizers: dict[nn.Module, torch.optim.Optimizer] = {}
        self.count = 0
        self._unread: list[Seen] = []
        self._read: dict[str, list[float]] = {}

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
        if not self.budget.allows(trained):
            return
        named = {"loss": loss, **terms}
        # in float64, as the means of the epoch are
        seen = torch.stack([term.detach().mean().double() for term in named.values()])
        self._unread.append(Seen(self.count + 1, tuple(named), seen, batch.pair_ids))
        updated = {module: _parameters(self.optimizers[module]) for module in trained}
        for module in updated:
            self.optimizers[module].zero_grad(set_to_none=True)
        # a loss may also pass through networks that do not train in this step: they need no gradient
        inputs = [parameter for each in updated.values() for parameter in each]
        loss.backward(inputs=inputs)  # type: ignore[no-untyped-call]
        for module, parameters in updated.items():
            # before clipping: the norm is that of the whole batch, not of one rank's share
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
        # last, because it may end the epoch
        self.budget.take(trained)

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
            value_of = {name: next(values) for name in seen.names}
            if not math.isfinite(value_of["loss"]):
                ids = seen.pair_ids.tolist()
                shown = ", ".join(map(str, ids[:8])) + (", ..." if len(ids) > 8 else "")
                raise Diverged(f"the loss is {value_of['loss']} at step {seen.number} (pairs {shown})")
            for name, value in value_of.items():
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
    def running_loss(self) -> float | None:
        """Mean of the last losses read in this epoch; None before the first read."""
        last = self._read.get("loss", [])[-READ_EVERY:]
        return sum(last) / len(last) if last else None

    def epoch_means(self) -> dict[str, float]:
        """Return the means of the loss and of each term since the last call, and start new ones.

        Raises:
            Diverged: as in :meth:`check`.
        """
        self.check()
        means = {name: sum(values) / len(values) for name, values in self._read.items()}
        self._read = {}
        return means


def load_optimizer(optimizer: torch.optim.Optimizer, saved: dict[str, Any]) -> None:
    """Load an optimiser's state, which torch does not compare with the parameters.

    Raises:
        ValueError: it belongs to other parameters.
    """
    optimizer.load_state_dict(saved)
    for parameter, kept in optimizer.state.items():
        # scalars, such as the number of steps, have no shape to compare
        for name, values in kept.items():
            if getattr(values, "ndim", 0) and values.shape != parameter.shape:
                raise ValueError(f"{name} of an optimizer has shape {tuple(values.shape)}")


def _parameters(optimizer: torch.optim.Optimizer) -> list[nn.Parameter]:
    groups = (group["params"] for group in optimizer.param_groups)
    return [parameter for group in groups for parameter in group if parameter.requires_grad]
