"""What training costs: captions that its networks encode, and its time in steps of a plain triplet.

Seconds differ by machine, and on one machine by what else runs there. So a few steps of the mean triplet loss are timed
in between, on a copy of a network that is thrown away: no number of the run depends on them.
"""

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from copy import deepcopy
from dataclasses import asdict, dataclass
from typing import Any, cast

import numpy as np
import torch
from torch import nn

from baselines.engine.step import OptimiserStep
from baselines.kit.backbone import Backbone
from baselines.kit.batches import TrainingBatches
from baselines.kit.losses import mean_triplet
from baselines.kit.randomness import derive_seed

MARGIN = 0.2
TIMED = 3
"""Plain steps before each epoch."""


@dataclass
class Spent:
    """Sums over the epochs of a run.

    Attributes:
        captions: that its networks encoded in training, added up over the networks.
        seconds: of the epochs' training, without evaluation on dev; 0 where no plain step is timed.
        plain_seconds: of the plain steps that were timed.
        plain_steps: how many these were.
    """

    captions: int = 0
    seconds: float = 0.0
    plain_seconds: float = 0.0
    plain_steps: int = 0

    def as_dict(self) -> dict[str, Any]:
        """Plain values, for a checkpoint."""
        return asdict(self)

    def cost(self, steps: float) -> float | None:
        """Seconds of the training, over what ``steps`` plain steps take; None where none was timed."""
        if self.plain_steps == 0 or steps == 0:
            return None
        return round(self.seconds / (steps * self.plain_seconds / self.plain_steps), 3)

    @contextmanager
    def training(self, networks: Sequence[nn.Module], device: torch.device) -> Iterator[None]:
        """Count the captions that networks encode in this context, and its seconds."""

        def counted(network: Backbone) -> Callable[..., Any]:
            encode = network.encode_captions

            def encode_and_count(tokens: torch.Tensor, lengths: torch.Tensor) -> Any:
                self.captions += len(tokens)
                return encode(tokens, lengths)

            return encode_and_count

        backbones = [cast(Backbone, network) for network in networks]
        for backbone in backbones:
            backbone.encode_captions = counted(backbone)  # type: ignore[method-assign]
        begun = _now(device)
        try:
            yield
        finally:
            if self.plain_steps:  # seconds without a measure would only make checkpoints differ
                self.seconds += _now(device) - begun
            for backbone in backbones:
                del backbone.encode_captions  # that of the class is back

    def time_plain_steps(
        self,
        device: torch.device,
        network: nn.Module,
        batches: TrainingBatches,
        gradient_clip: float,
        epoch: int,
    ) -> None:
        """Time some steps of the mean triplet on a copy of a network, with batches as those of the epoch."""
        copied = deepcopy(network).train()
        step = OptimiserStep(gradient_clip)
        step.optimizers = {copied: torch.optim.Adam(copied.parameters())}
        random = np.random.default_rng(derive_seed(batches.seed, "plain steps", epoch))
        ids = batches.pair_ids.numpy()
        for number in range(1 + TIMED):  # the first one also makes the optimiser's state
            chosen = random.choice(ids, min(batches.batch_size, len(ids)), replace=False)
            begun = _now(device)
            batch = batches.read(torch.from_numpy(chosen))
            step(copied, mean_triplet(copied(batch), MARGIN).sum(), batch)
            if number > 0:
                self.plain_seconds += _now(device) - begun
                self.plain_steps += 1


def _now(device: torch.device) -> float:
    """Seconds of this process on a CPU, which other processes do not lengthen; those of the wall beside a GPU."""
    if device.type != "cuda":
        return time.process_time()
    torch.cuda.synchronize(device)
    return time.perf_counter()
