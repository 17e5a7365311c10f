"""The interface of methods, and the objects that the trainer passes to them."""

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, ClassVar, Generic, Literal, Protocol, TypeVar

import torch
from pydantic import BaseModel, NonNegativeInt, PositiveFloat, PositiveInt
from torch import Tensor, nn

from baselines.kit.backbone import Backbone
from baselines.kit.batches import Batch, TrainingBatches
from baselines.kit.options import Options, ShareAboveZero

M = TypeVar("M", bound=nn.Module)


class Modules(nn.ModuleList, Generic[M]):
    """``nn.ModuleList`` whose items have one type: torch's own forgets it."""

    if TYPE_CHECKING:

        def __getitem__(self, index: int) -> M: ...  # type: ignore[override]

        def __iter__(self) -> Iterator[M]: ...


class PairMemory(nn.Module):
    """A persistent buffer keyed by position in the full training split.

    Args:
        n_pairs: length of the full training split.
        initial: value of every entry at the start.
        width: values per pair; None stores one number per pair.
        dtype: dtype of the stored values.
    """

    values: Tensor

    def __init__(
        self, n_pairs: int, *, initial: float, width: int | None = None, dtype: torch.dtype = torch.float32
    ) -> None:
        super().__init__()
        shape = (n_pairs,) if width is None else (n_pairs, width)
        self.register_buffer("values", torch.full(shape, initial, dtype=dtype))

    def read(self, pair_ids: Tensor) -> Tensor:
        """Return values of some pairs, ``(len(pair_ids),)`` or ``(len(pair_ids), width)``, without gradient."""
        return self.values[pair_ids]

    @torch.no_grad()
    def write(self, pair_ids: Tensor, values: Tensor) -> None:
        """Replace the values of some pairs."""
        self.values[pair_ids] = values.detach().to(self.values)


@dataclass(frozen=True)
class Setting:
    """Facts that a method may know before training.

    Attributes:
        n_pairs: pairs in the full training split, the length of every pair memory.
        n_regions: regions per image.
        vocabulary_size: rows of the word embedding.
        make_network: builds one freshly initialised backbone; each call draws new weights.
        batch_size: pairs in a full batch.
        trusted_ids: int64, pairs that are known to match, if :meth:`Method.extra_clean_data` asks for some. They are
            not among ``TrainingBatches.pair_ids``; ``TrainingBatches.read`` reads them.
    """

    n_pairs: int
    n_regions: int
    vocabulary_size: int
    make_network: Callable[[], Backbone]
    batch_size: int = 128
    trusted_ids: Tensor = field(default_factory=lambda: torch.empty(0, dtype=torch.int64))


Selection = Literal["best", "published"]
"""Which epoch dev chooses: the best one of the run, or the one that a method's published code keeps."""


@dataclass(frozen=True)
class EpochPlan:
    """One epoch of a schedule; schedules are pure functions of the config.

    Attributes:
        round: self-refining round, from 0; methods without rounds have one.
        epoch: epoch within its phase, from 0.
        phase: name of the phase, such as ``"warmup"`` or ``"train"``.
        learning_rate: learning rate of every optimiser in this epoch, unless a step sets its own.
        new_networks: re-initialise networks and optimisers before this epoch.
        new_optimizers: re-initialise the optimisers before this epoch.
        forget_best: ignore the best dev score of earlier epochs, which only a published rule does (:data:`Selection`).
        select: whether this epoch may be chosen on dev.
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
    # a function of the epoch alone, so that a resumed run needs no scheduler state
    return [learning_rate * decay ** (epoch // every) for epoch in range(epochs)]


def cosine_rate(largest: float, done: float, total: float, rising: int = 0) -> float:
    """Learning rate that rises evenly to ``largest``, then falls to 0 along half a cosine.

    Args:
        largest: above 0.
        done: number of steps before this one, below ``total``.
        total: number of steps of the whole schedule.
        rising: number of steps until ``largest``; a shorter schedule never falls.
    """
    if done < rising:
        return largest * (done + 1) / rising
    return largest * (1 + math.cos(math.pi * (done - rising) / (total - rising))) / 2


def adamw(module: nn.Module, learning_rate: float, **options: Any) -> torch.optim.Optimizer:
    """AdamW over every weight of a module, with options of ``torch.optim.AdamW``."""
    return fused_optimizer(torch.optim.AdamW, module, learning_rate, **options)


def fused_optimizer(
    kind: Callable[..., torch.optim.Optimizer], module: nn.Module, learning_rate: float, **options: Any
) -> torch.optim.Optimizer:
    """Build an optimiser of this kind over every weight, fused on a GPU."""
    parameters = list(module.parameters())
    fused = all(parameter.is_cuda for parameter in parameters) or None  # on a CPU the bits would change
    return kind(parameters, lr=learning_rate, fused=fused, **options)


class StepDecay(Options):
    """The schedule of most papers: one phase, ``train``, whose learning rate falls in steps.

    Attributes:
        epochs: passes over the pairs.
        learning_rate: learning rate of Adam.
        lr_update: epochs between decays.
        lr_decay: factor of a decay.
    """

    epochs: PositiveInt = 40
    learning_rate: PositiveFloat = 2e-4
    lr_update: PositiveInt = 30
    lr_decay: ShareAboveZero = 0.1

    def plan(self) -> list[EpochPlan]:
        """Return every epoch, in order."""
        rates = stepwise(self.learning_rate, self.lr_decay, self.lr_update, self.epochs)
        return [EpochPlan(0, epoch, "train", rate) for epoch, rate in enumerate(rates)]


class WarmUpThenStepDecay(StepDecay):
    """A phase ``warmup`` at a constant learning rate, whose epochs are not chosen on dev, before the step decay.

    Attributes:
        warmup_epochs: warm-up epochs before the first of ``epochs``; decays are counted after them.
        warmup_learning_rate: learning rate of Adam in the warm-up; ``learning_rate`` by default.
    """

    warmup_epochs: NonNegativeInt = 0
    warmup_learning_rate: PositiveFloat | None = None

    def plan(self) -> list[EpochPlan]:
        """Return every epoch, in order."""
        # decays are counted after the warm-up, whose rate stays
        rate = self.warmup_learning_rate or self.learning_rate
        warmup = [EpochPlan(0, epoch, "warmup", rate, select=False) for epoch in range(self.warmup_epochs)]
        return warmup + super().plan()


class Step(Protocol):
    """One gradient step, done by the trainer: backward, clip, update, log, refuse non-finite losses."""

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
        """Update one or several of :meth:`Method.trained_modules`, each with its own optimiser.

        Gradients are computed only for the parameters of these optimisers.

        Args:
            modules: usually one network.
            loss: scalar loss.
            batch: pairs of the loss, which the error names if the loss is not finite.
            clip: clip the gradient of each module, or of this module alone, to the recipe's ``gradient_clip``.
            learning_rate: learning rate of this step; by default the epoch's.
            terms: named terms of the loss, for the log.
        """
        ...


class Method(nn.Module, ABC):
    """A way to train one or two networks on noisy pairs.

    A method defines ``name``, ``title``, ``Config`` and :meth:`train_epoch`, the algorithm box of its paper. A
    ``Config`` derived from :class:`StepDecay` or :class:`WarmUpThenStepDecay` gives it a schedule; its optimiser is
    Adam by default.

    State that outlives a batch lives in :class:`~baselines.kit.method.PairMemory` buffers (or other registered
    buffers) of the method, so that ``state_dict`` carries all of it and a resumed run is exact.
    """

    name: ClassVar[str]
    """Name in recipes and commands, such as ``ncr``."""
    Config: ClassVar[type[BaseModel]]
    title: ClassVar[str]
    """Name in results, such as ``NCR``."""
    paper: ClassVar[str] = ""
    variants: ClassVar[Sequence[tuple[str, object, str]]] = ()
    """Option, value and what the name in results says of it: ``("faults", "published", "the code's faults")``."""
    n_networks: ClassVar[int] = 1
    extra_words: ClassVar[int] = 0
    needs_intra_modal: ClassVar[bool] = False
    """Whether the method compares images with images and captions with captions, which not every backbone can."""
    closed_form: ClassVar[bool] = False
    """Whether ``train_epoch`` fits the networks without gradient steps; then a number of steps has no effect."""
    needs_cosines: ClassVar[bool] = False
    """Whether the method needs one vector of each image and caption, and their cosines."""
    networks: Modules[Backbone]

    def __init__(self, config: Any, setting: Setting) -> None:
        super().__init__()
        self.config = config
        self.setting = setting
        self.networks = Modules()
        self.renew_networks()

    @classmethod
    def title_of(cls, config: Any) -> str:
        """Return the name in results, with the configured :attr:`variants` in brackets."""
        notes = [note for option, value, note in cls.variants if getattr(config, option) == value]
        return f"{cls.title} ({', '.join(notes)})" if notes else cls.title

    @classmethod
    def extra_clean_data(cls, config: Any) -> int:
        """Return the number of training pairs that the method must know to match; submissions state it."""
        return 0

    def make_network(self) -> Backbone:
        """Build one network with initial weights; a method that adds a head overrides this."""
        return self.setting.make_network()

    def renew_networks(self) -> None:
        """Replace every network by a freshly initialised one; memories stay."""
        self.networks = Modules(self.make_network() for _ in range(self.n_networks))

    def trained_modules(self) -> Sequence[nn.Module]:
        """Return the modules with an optimiser of their own: the networks, and any other module that ``step`` gets."""
        return list(self.networks)

    def make_optimizer(self, module: nn.Module, learning_rate: float) -> torch.optim.Optimizer:
        """Build an optimiser for one of :meth:`trained_modules`; Adam with its defaults, as in most papers."""
        return fused_optimizer(torch.optim.Adam, module, learning_rate)

    def learning_rate(self, module: nn.Module, plan: EpochPlan) -> float:
        """Return the learning rate of a module in an epoch; by default that in the plan."""
        return plan.learning_rate

    def plan(self) -> Sequence[EpochPlan]:
        """Return every epoch of the run, in order, as a pure function of the config; by default its schedule."""
        plans: list[EpochPlan] = self.config.plan()
        return plans

    @classmethod
    def plan_steps(cls, config: Any, n_pairs: int, batch_size: int) -> int:
        """Count the gradient steps of all networks in a whole run; no network is built.

        Args:
            config: of the method.
            n_pairs: pairs to train on, with those that :meth:`extra_clean_data` sets apart.
            batch_size: pairs in a full batch.
        """
        if cls.closed_form:
            return 0
        # a plan is a function of the config alone, so networks and memories may be missing
        method = cls.__new__(cls)
        method.config = config
        n_batches = math.ceil((n_pairs - cls.extra_clean_data(config)) / batch_size)
        return cls.n_networks * len(method.plan()) * n_batches

    @abstractmethod
    def train_epoch(self, plan: EpochPlan, batches: TrainingBatches, step: Step) -> None:
        """Train one epoch: the paper's algorithm box."""

    def estimates(self) -> dict[str, Tensor]:
        """Return the method's estimates of the correspondence after an epoch, for diagnosis only.

        Returns:
            Name to float ``(n_pairs,)``; larger means more likely a true pair. The trainer compares them with the true
            correspondence; the method never sees the result.
        """
        return {}

    def measurements(self) -> dict[str, Tensor]:
        """Return what else the method measured of every pair, for figures alone; empty by default.

        Returns:
            Name to finite float ``(n_pairs,)``, kept beside the estimates.
        """
        return {}

    def ranking_scores(self, network: Backbone, similarities: Tensor) -> Tensor:
        """Map similarities to the scores that rank and are averaged over networks; unchanged by default.

        Args:
            network: one of :attr:`networks`.
            similarities: float ``(n_images, captions)``, similarities of this network.

        Returns:
            float, same shape; each entry depends only on the same entry.
        """
        return similarities
