"""Cost of a training: number of encoded captions, and time relative to plain triplet steps.

Seconds depend on the machine and on its load. Therefore a few steps of the mean triplet loss are timed before each
epoch, on a copy of a network that is then discarded. They do not influence the run.
"""

import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from copy import deepcopy
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
import torch

from baselines.engine.step import OptimiserStep
from baselines.kit.backbone import Backbone
from baselines.kit.batches import TrainingBatches, derive_seed
from baselines.kit.losses import mean_triplet

MARGIN = 0.2
TIMED = 3
"""Number of plain steps timed before each epoch."""


@dataclass
class Spent:
    """Sums over the epochs of a run.

    Attributes:
        captions: number of captions encoded in training, summed over the networks.
        seconds: training time without the evaluation on dev; 0 if no plain steps are timed.
        plain_seconds: time of the plain steps.
        plain_steps: number of plain steps timed.
    """

    captions: int = 0
    seconds: float = 0.0
    plain_seconds: float = 0.0
    plain_steps: int = 0

    def as_dict(self) -> dict[str, Any]:
        """Return plain values for a checkpoint."""
        return asdict(self)

    def cost(self, steps: float) -> float | None:
        """Return training time relative to ``steps`` plain steps; None if none were timed."""
        if self.plain_steps == 0 or steps == 0:
            return None
        return round(self.seconds / (steps * self.plain_seconds / self.plain_steps), 3)

    @contextmanager
    def training(self, networks: Iterable[Backbone], device: torch.device) -> Iterator[None]:
        """Count the captions that networks encode in this context, and its time."""

        def counted(network: Backbone) -> Callable[..., Any]:
            encode = network.encode_captions

            def encode_and_count(tokens: torch.Tensor, lengths: torch.Tensor) -> Any:
                self.captions += len(tokens)
                return encode(tokens, lengths)

            return encode_and_count

        for backbone in networks:
            backbone.encode_captions = counted(backbone)  # type: ignore[method-assign]
        begun = _now(device)
        try:
            yield
        finally:
            if self.plain_steps:  # unused seconds would make checkpoints of equal runs differ
                self.seconds += _now(device) - begun
            for backbone in networks:
                del backbone.encode_captions  # uncovers the method of the class

    def time_plain_steps(
        self,
        device: torch.device,
        network: Backbone,
        batches: TrainingBatches,
        gradient_clip: float | None,
        epoch: int,
    ) -> None:
        """Time some steps of the mean triplet on a copy of a network, with batches like those of the epoch."""
        copied = deepcopy(network).train()
        step = OptimiserStep(gradient_clip)
        step.optimizers = {copied: torch.optim.Adam(copied.parameters())}
        random = np.random.default_rng(derive_seed(batches.seed, "plain steps", epoch))
        ids = batches.pair_ids.numpy()
        for number in range(1 + TIMED):  # the first step is not timed: it also creates the optimiser's state
            chosen = random.choice(ids, min(batches.batch_size, len(ids)), replace=False)
            begun = _now(device)
            batch = batches.read(torch.from_numpy(chosen))
            step(copied, mean_triplet(copied(batch).similarities, MARGIN).sum(), batch)
            if number > 0:
                self.plain_seconds += _now(device) - begun
                self.plain_steps += 1


def _now(device: torch.device) -> float:
    """Return process time on a CPU, which the load of other processes does not change; wall time with a GPU."""
    if device.type != "cuda":
        return time.process_time()
    torch.cuda.synchronize(device)
    return time.perf_counter()
