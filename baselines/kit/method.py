"""The contract a method fulfils, and what the engine hands it."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Protocol

import torch
from pydantic import BaseModel
from torch import Tensor, nn

from baselines.kit.backbone import Backbone
from baselines.kit.batches import Batch, TrainingBatches


@dataclass(frozen=True)
class Setting:
    """What a method may know about its task before training.

    Attributes:
        n_pairs: pairs in the full training split, the length of every pair memory.
        n_regions: regions per image.
        vocabulary_size: rows of the word embedding.
        make_network: builds one freshly initialised backbone; each call draws new weights.
    """

    n_pairs: int
    n_regions: int
    vocabulary_size: int
    make_network: Callable[[], Backbone]


@dataclass(frozen=True)
class EpochPlan:
    """One epoch of a schedule; schedules are pure functions of the config.

    Attributes:
        round: self-refining round, from 0; methods without rounds have one.
        epoch: epoch within its phase, from 0.
        phase: name of the phase, such as ``"warmup"`` or ``"train"``.
        learning_rate: of every optimiser in this epoch.
        new_networks: draw fresh networks (and optimisers) before this epoch.
        new_optimizers: make the optimisers anew before this epoch.
        forget_best: the best dev score so far no longer counts.
        select: this epoch's networks may be chosen on dev.
    """

    round: int
    epoch: int
    phase: str
    learning_rate: float
    new_networks: bool = False
    new_optimizers: bool = False
    forget_best: bool = False
    select: bool = True


def stepwise(learning_rate: float, decay: float, every: int, epochs: int) -> list[float]:
    """Learning rate of each epoch: multiplied by ``decay`` after every ``every`` epochs."""
    return [learning_rate * decay ** (epoch // every) for epoch in range(epochs)]


class Step(Protocol):
    """One optimiser step, done by the engine: backward, clip, update, log, refuse non-finite losses."""

    def __call__(self, network: nn.Module, loss: Tensor, batch: Batch, **terms: Tensor) -> None:
        """Update ``network`` by the scalar ``loss``; ``terms`` are its named parts, for the log."""
        ...


class Method(nn.Module, ABC):
    """A way to train one or two networks on noisy pairs.

    State that outlives a batch lives in :class:`~baselines.kit.pair_memory.PairMemory` buffers (or other registered
    buffers) of the method, so that ``state_dict`` carries all of it and a resumed run is exact.
    """

    name: ClassVar[str]
    """In recipes and commands, such as ``ncr``."""
    Config: ClassVar[type[BaseModel]]
    title: ClassVar[str]
    """In results, such as ``NCR``."""
    paper: ClassVar[str] = ""
    n_networks: ClassVar[int] = 1
    extra_words: ClassVar[int] = 0
    networks: nn.ModuleList

    def __init__(self, config: Any, setting: Setting) -> None:
        super().__init__()
        self.config = config
        self.setting = setting
        self.networks = nn.ModuleList()
        self.renew_networks()

    @classmethod
    def title_of(cls, config: Any) -> str:
        """Name in results; a control with several forms says which one it is."""
        return cls.title

    def make_network(self) -> Backbone:
        """One fresh network; a method that adds a head overrides this."""
        return self.setting.make_network()

    def renew_networks(self) -> None:
        """Replace every network by a freshly initialised one; memories stay."""
        self.networks = nn.ModuleList(self.make_network() for _ in range(self.n_networks))

    @abstractmethod
    def make_optimizer(self, network: nn.Module, learning_rate: float) -> torch.optim.Optimizer:
        """A fresh optimiser over one network."""

    @abstractmethod
    def plan(self) -> Sequence[EpochPlan]:
        """Every epoch of the run, in order."""

    @abstractmethod
    def train_epoch(self, plan: EpochPlan, batches: TrainingBatches, step: Step) -> None:
        """One epoch: the paper's algorithm box."""

    def estimates(self) -> dict[str, Tensor]:
        """What the method believes after an epoch, for diagnosis only.

        Returns:
            Name to float ``(n_pairs,)``: larger means more likely a true pair. The engine joins the true
            correspondence afterwards; nothing flows back.
        """
        return {}
