"""What a training step of each method costs beside a step of the plain triplet loss on the same network.

A step is one step of a network's optimiser. Its share of the passes that an epoch spends on dividing the pairs, on
predictions and on second networks counts to it.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import numpy as np
import torch
from torch import Tensor, nn
from torch.utils.flop_counter import FlopCounterMode

from baselines.backbones import BACKBONES
from baselines.benchmark.cost import IN_PLACE
from baselines.benchmark.sizes import Sizes
from baselines.benchmark.stopwatch import Stopwatch, Variant, side_by_side
from baselines.benchmark.workloads import make_dataset, make_network
from baselines.engine.devices import fabric_for
from baselines.engine.step import OptimiserStep
from baselines.kit.batches import Batch, TrainingBatches
from baselines.kit.method import Method, Setting
from baselines.methods import METHODS
from ncl_bench.errors import TrainingError

PLAIN = "triplet"
ALLOWED = 1.5
"""A step may cost so many plain ones, and besides what the method's own passes need."""


@dataclass(frozen=True)
class StepCost:
    """A method beside the plain triplet loss.

    Attributes:
        network: title of the backbone.
        method: title of the method.
        forward: arithmetic of a step's forward passes, in forward passes of a plain step.
        backward: of its backward passes, in backward passes of a plain step.
        passes: of both, in plain steps.
        allowed: :data:`ALLOWED` and the passes beyond those of a plain step, in plain steps.
        cost: time of a step, in plain steps; median over the rounds.
        spread: the same, smallest and largest of a round.
        rounds: passes behind the median.
        steps: of an epoch, over which the cost is a mean.
    """

    network: str
    method: str
    forward: float
    backward: float
    passes: float
    allowed: float
    cost: float
    spread: tuple[float, float]
    rounds: int
    steps: int


class CountedStep(OptimiserStep):
    """An optimiser step that counts steps of networks, and the arithmetic of all steps.

    Args:
        device: of the networks.
        method: whose networks count; a step of what it trains beside them is part of theirs.
    """

    def __init__(self, device: torch.device, method: Method) -> None:
        super().__init__(fabric_for(device.type, "32-true"), gradient_clip=2.0)
        self.optimizers = {module: method.make_optimizer(module, 0.0) for module in method.trained_modules()}
        self._networks = set(method.networks)
        self.steps = 0
        self.executed: Callable[[], int] = lambda: 0
        self.backward = 0

    def __call__(
        self,
        modules: nn.Module | Sequence[nn.Module],
        loss: Tensor,
        batch: Batch,
        *,
        clip: bool = True,
        **terms: Tensor,
    ) -> None:
        """As the engine's."""
        before = self.executed()
        super().__call__(modules, loss, batch, clip=clip, **terms)
        self.backward += self.executed() - before
        trained = [modules] if isinstance(modules, nn.Module) else modules
        self.steps += any(module in self._networks for module in trained)


class Epoch:
    """The last epoch of a method's schedule, again and again on the same pairs; the learning rate is 0.

    Networks and pairs are random, so a method that divides the pairs finds two sides of any size, always the same.

    Args:
        method: its name.
        network: name of the backbone.
        sizes: pairs of a batch, and plain steps of an epoch.
        device: where to train.

    Raises:
        TrainingError: the method does not train this network.
    """

    def __init__(self, method: str, network: str, sizes: Sizes, device: torch.device) -> None:
        n_batch, cls = sizes.method_batch, METHODS[method]
        n_pairs = sizes.method_steps * n_batch
        own = {"trusted_pairs": n_batch, "batch_size": n_batch}
        config = cls.Config(**{name: value for name, value in own.items() if name in cls.Config.model_fields})
        n_trusted = cls.extra_clean_data(config)
        n_images = -(-(n_pairs + n_trusted) // sizes.captions_per_image)
        dataset = make_dataset(sizes, n_images, "train")
        words = sizes.model_copy(update={"vocabulary": sizes.vocabulary + cls.extra_words})
        setting = Setting(
            len(dataset),
            sizes.regions,
            words.vocabulary,
            lambda: make_network(network, words, device),
            n_batch,
            torch.arange(n_trusted),
        )
        self.method = cls(config, setting).to(device)
        self.plan = replace(list(self.method.plan())[-1], learning_rate=0.0)
        self.batches = TrainingBatches(
            dataset,
            batch_size=n_batch,
            seed=0,
            device=device,
            pair_rows=np.arange(n_trusted, n_trusted + n_pairs),
        )
        self.device = device
        state = self.method.state_dict()
        self._start = {name: x.clone() for name, x in state.items() if not name.startswith("networks.")}

    def run(self, step: CountedStep) -> None:
        """Train for an epoch, from what the method knew at first."""
        self.method.load_state_dict(self._start, strict=False)
        self.method.train_epoch(self.plan, self.batches, step)

    def variant(self) -> Variant:
        """An epoch whose time is counted by the step."""
        step = CountedStep(self.device, self.method)

        def epoch(watch: Stopwatch) -> None:
            before = step.steps
            self.run(step)
            watch.divide(step.steps - before)

        return epoch

    def counted(self) -> tuple[float, float, int]:
        """Arithmetic of a step's forward and of its backward passes, and the steps of an epoch."""
        step = CountedStep(self.device, self.method)
        with FlopCounterMode(display=False, custom_mapping=IN_PLACE) as counter:
            step.executed = counter.get_total_flops
            self.run(step)
        executed = counter.get_total_flops()
        return (executed - step.backward) / step.steps, step.backward / step.steps, step.steps


def step_costs(
    network: str, sizes: Sizes, device: torch.device, advance: Callable[[float], None] = lambda share: None
) -> list[StepCost]:
    """Every registered method that trains a network beside the plain triplet loss, in turn with it.

    Args:
        network: name of the backbone.
        sizes: of the batch and the epoch.
        device: where to train.
        advance: called with the share that is done, in [0, 1].
    """
    plain = Epoch(PLAIN, network, sizes, device)
    plain_forward, plain_backward, _ = plain.counted()
    costs = []
    for done, name in enumerate(METHODS):
        advance(done / len(METHODS))
        if name == PLAIN:
            continue
        try:
            epoch = Epoch(name, network, sizes, device)
        except TrainingError:
            continue
        forward, backward, steps = epoch.counted()
        passes = (forward + backward) / (plain_forward + plain_backward)
        variants = {PLAIN: plain.variant(), name: epoch.variant()}
        timings = side_by_side(variants, device, rounds=sizes.method_rounds, seconds=math.inf)
        slowest, fastest = timings.spread(PLAIN, name)
        costs.append(
            StepCost(
                network=BACKBONES[network].title,
                method=METHODS[name].title,
                forward=forward / plain_forward,
                backward=backward / plain_backward,
                passes=passes,
                allowed=ALLOWED + max(passes - 1, 0.0),
                cost=1 / timings.ratio(PLAIN, name),
                spread=(1 / fastest, 1 / slowest),
                rounds=timings.rounds,
                steps=steps,
            )
        )
    return costs
