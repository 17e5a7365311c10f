"""What the parity tests of DECL, RINCE, L2RM, BiCro, MSCN, CREAM and SPS share: stored networks, and a step.

In either precision: arrays of a float64 run end in ``__f64``. Tolerances are those of the index beside the files.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from baselines.kit.backbone import Backbone
from baselines.kit.batches import Batch
from baselines.published.weights import network_from

Arrays = Mapping[str, np.ndarray]
Golden = Callable[[str], Arrays]
ENCODERS = ("img_enc.", "txt_enc.", "sim_enc.")
SUFFIXES = {torch.float32: "", torch.float64: "__f64"}
PRECISIONS = list(SUFFIXES)


def tensor(array: np.ndarray, dtype: torch.dtype | None = None) -> Tensor:
    """An array as a tensor of its own; floating numbers in ``dtype``."""
    found = torch.from_numpy(np.array(array))
    return found.to(dtype) if dtype is not None and found.is_floating_point() else found


def column(array: np.ndarray, dtype: torch.dtype | None = None) -> Tensor:
    """Labels that are stored as ``(pairs, 1)``, ``(pairs,)``."""
    return tensor(array, dtype)[:, 0]


def names_between(stored: Arrays, start: str, end: str = "") -> list[str]:
    """What stands between ``start`` and ``end`` in the names of arrays; at least one."""
    found = [
        name[len(start) : len(name) - len(end)]
        for name in stored
        if name.startswith(start) and name.endswith(end)
    ]
    assert found
    return found


def state_of(
    stored: Arrays, prefix: str, dtype: torch.dtype | None = None, suffix: str = ""
) -> dict[str, Tensor]:
    """Published name to tensor, of the arrays named ``prefix`` + published name + ``suffix``."""
    return {
        name: tensor(stored[prefix + name + suffix], dtype)
        for name in names_between(stored, prefix, suffix)
        if name.startswith(ENCODERS) and not name.endswith("__f64")
    }


def network_of(state: Mapping[str, Tensor]) -> Backbone:
    """An SGR with published weights and, as in the golden runs, without dropout."""
    network = network_from("sgr", state)
    for module in network.modules():
        if isinstance(module, nn.Dropout):
            module.p = 0.0
    return network


def batch_of(stored: Arrays, prefix: str, dtype: torch.dtype, first_id: int = 0) -> Batch:
    """The stored batch; its pairs are numbered from ``first_id``."""
    images, captions, lengths = (
        tensor(stored[prefix + name], dtype) for name in ("images", "captions", "lengths")
    )
    regions = torch.full((len(images),), images.shape[1])
    return Batch(images, regions, captions, lengths, first_id + torch.arange(len(images)))


def network_batches(stored: Arrays, dtype: torch.dtype, letters: str) -> dict[str, list[Batch]]:
    """The stored batches of each letter, in order; pairs are numbered from 0 through all of them."""
    names = sorted(
        names_between(stored, "batch.", ".images"), key=lambda name: (letters.index(name[0]), name)
    )
    found: dict[str, list[Batch]] = {letter: [] for letter in letters}
    first = 0
    for name in names:
        found[name[0]].append(batch_of(stored, f"batch.{name}.", dtype, first))
        first += len(found[name[0]][-1])
    return found


def in_our_names(base: Mapping[str, Tensor], part: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Some parameters of an SGR, or their gradients, by the names of our network.

    Args:
        base: a whole published state, for what ``part`` lacks.
        part: published name to tensor.
    """
    dtype = next(iter(part.values())).dtype
    whole = {name: x.to(dtype) if x.is_floating_point() else x for name, x in base.items()}
    stored, marked = (
        dict(network_of({**whole, **own}).named_parameters())
        for own in (part, {name: torch.full_like(x, torch.nan) for name, x in part.items()})
    )
    return {name: x.detach() for name, x in stored.items() if marked[name].isnan().all()}


def gradients_of(network: nn.Module) -> dict[str, Tensor]:
    """Name to gradient; zero where none arrived."""
    return {
        name: torch.zeros_like(weight) if weight.grad is None else weight.grad
        for name, weight in network.named_parameters()
    }


def assert_gradients(
    network: Backbone,
    base: Mapping[str, Tensor],
    gradients: Mapping[str, Tensor],
    *,
    relative: float,
    absolute: float,
) -> float:
    """Compare gradients with stored ones, each within ``relative`` of its largest entry or ``absolute``.

    Args:
        network: carries the gradients.
        base: a whole published state, for what ``gradients`` lacks.
        gradients: published name to gradient.
        relative: of the largest entry of an array.
        absolute: either suffices.

    Returns:
        The largest deviation, relative to the largest entry of an array that has one above ``absolute``.
    """
    worst = 0.0
    found_all = gradients_of(network)
    for name, want in in_our_names(base, gradients).items():
        found = found_all[name]
        difference, largest = (found - want).abs().max().item(), want.abs().max().item()
        assert difference <= max(relative * largest, absolute), f"{name}: {difference} of {largest}"
        if largest > absolute:
            worst = max(worst, difference / largest if difference > absolute else 0.0)
    return worst


class RecordingStep:
    """The engine's step as extended: gradients for what the modules' optimisers update, clip, update.

    Args:
        method: whose modules are trained.
        rate: of every optimiser, or one for each of the method's trained modules.
        update: also step the optimisers; otherwise gradients are kept, unclipped.
    """

    def __init__(self, method: Any, rate: float | Sequence[float] = 1.0, *, update: bool = True) -> None:
        modules = method.trained_modules() if hasattr(method, "trained_modules") else list(method.networks)
        rates = [rate] * len(modules) if isinstance(rate, float) else rate
        self.update = update
        self.optimizers = {
            module: method.make_optimizer(module, lr) for module, lr in zip(modules, rates, strict=True)
        }
        self.losses: list[float] = []
        self.calls: list[tuple[list[nn.Module], Batch, dict[str, float]]] = []
        self.norms: list[float] = []

    def __call__(
        self,
        modules: nn.Module | Sequence[nn.Module],
        loss: Tensor,
        batch: Batch,
        *,
        clip: bool = True,
        **terms: Tensor,
    ) -> None:
        modules = [modules] if isinstance(modules, nn.Module) else list(modules)
        weights = {m: [w for g in self.optimizers[m].param_groups for w in g["params"]] for m in modules}
        for module in modules:
            self.optimizers[module].zero_grad()
        loss.backward(inputs=[w for own in weights.values() for w in own])
        self.losses.append(loss.item())
        self.calls.append((modules, batch, {name: term.item() for name, term in terms.items()}))
        own = weights[modules[0]]
        self.norms.append(torch.stack([w.grad.norm() for w in own if w.grad is not None]).norm().item())
        if not self.update:
            return
        for module in modules:
            if clip:
                nn.utils.clip_grad_norm_(weights[module], 2.0)
            self.optimizers[module].step()


class StoredBatches:
    """Stands for ``TrainingBatches``: stored batches, by the first word of their purpose or all for any."""

    def __init__(
        self, *batches: Batch, seed: int = 0, batch_size: int | None = None, **by_purpose: Sequence[Batch]
    ):
        self.batches, self.by_purpose, self.seed = batches, by_purpose, seed
        self.batch_size = batch_size or len(batches[0])
        self.pair_ids = torch.cat([batch.pair_ids for batch in batches]).unique()

    def shuffled(self, *purpose: object, **_: object) -> Iterator[Batch]:
        return iter(self.by_purpose.get(str(purpose[0]), self.batches))

    def covering(self, *purpose: object) -> Iterator[Batch]:
        return self.shuffled(*purpose)

    def endless(self, *purpose: object, **_: object) -> Iterator[Batch]:
        while True:
            yield from self.by_purpose.get(str(purpose[0]), self.batches)
