"""What the parity tests of methods share: published weights, batches and gradients, and the engine's step."""

from collections.abc import Callable, Mapping
from types import SimpleNamespace
from typing import Any

import numpy as np
import torch
from support.rounding import assert_near
from torch import Tensor, nn

from baselines.kit.backbone import Backbone
from baselines.kit.batches import Batch
from baselines.kit.method import Method, Setting
from baselines.published.weights import network_from

BACKBONE_FILES = {"sgr": "A_backbone_sgr", "saf": "A_backbone_saf", "vse_infinity": "B_backbone_vse"}
ENCODERS = ("img_enc.", "txt_enc.", "sim_enc.")

Arrays = Mapping[str, np.ndarray]
Golden = Callable[[str], Arrays]


def published_network(
    backbone: str, golden: Golden, prefix: str = "", source: Arrays | None = None
) -> Backbone:
    """A backbone with published weights and, as in the golden runs, without dropout.

    Args:
        backbone: its name.
        golden: the fixture.
        prefix: of the arrays in ``source``.
        source: arrays named ``prefix`` + published name, for example gradients, in place of the weights.
    """
    stored = golden(BACKBONE_FILES[backbone])
    state = {name: torch.from_numpy(stored[name].copy()) for name in stored if name.startswith(ENCODERS)}
    for name in source or ():
        if name.startswith(prefix):
            state[name.removeprefix(prefix)] = torch.from_numpy(np.array(source[name]))
    return network_with(backbone, state)


def network_with(backbone: str, state: Mapping[str, Tensor]) -> Backbone:
    """A backbone with these weights, in their precision and without dropout."""
    network = network_from(backbone, state)
    for module in network.modules():
        if isinstance(module, nn.Dropout):
            module.p = 0.0
    return network


def published_setting(backbone: str, golden: Golden, n_pairs: int) -> Setting:
    """Regions and words of the golden batch, and networks with published weights."""
    stored = golden(BACKBONE_FILES[backbone])
    images = stored["in.images_full" if "in.images_full" in stored else "in.images"]
    words = len(stored["txt_enc.embed.weight"])
    return Setting(n_pairs, images.shape[1], words, lambda: published_network(backbone, golden))


def only(stored: Arrays, start: str) -> np.ndarray:
    """The one array whose name begins with ``start``; the rest of its name says a size."""
    (name,) = (name for name in stored if name.startswith(start))
    return stored[name]


def published_batch(stored: Arrays, order: np.ndarray, pair_ids: Tensor) -> Batch:
    """The batch of group A, or that of group B with a varying number of regions, in another order."""
    images = (stored["in.images_var"] if "in.images_var" in stored else stored["in.images"])[order]
    lengths = np.full(len(images), images.shape[1])
    if "in.image_lengths_var" in stored:
        lengths = stored["in.image_lengths_var"][order]
    arrays = (images, lengths, stored["in.captions"][order], stored["in.lengths"][order])
    return Batch(*(torch.from_numpy(np.ascontiguousarray(array)) for array in arrays), pair_ids)


def assert_gradients_match(network: nn.Module, expected: nn.Module) -> None:
    """Gradients of ``network`` against those that ``expected`` carries as its weights.

    Gradients that vanish in exact arithmetic, which the published code shows as noise and ours may leave out, are
    differences of terms that are not: hence the scale.
    """
    for (name, weight), want in zip(network.named_parameters(), expected.parameters(), strict=True):
        found = torch.zeros_like(want) if weight.grad is None else weight.grad
        noise = want.detach().abs().max().item() <= 1e-4
        assert_near(found, want, 2e-4, scale=0.5 if noise else 0, name=name)


def gradient_norm(network: nn.Module) -> float:
    """Norm over all parameters."""
    norms = [weight.grad.norm() for weight in network.parameters() if weight.grad is not None]
    return torch.stack(norms).norm().item()


def assert_trajectory_matches(losses: list[float], expected: np.ndarray) -> None:
    """Several optimiser steps: rounding grows from 1e-4 to 1e-2."""
    assert len(losses) == len(expected)
    assert_near(losses, expected, 1e-2)
    assert_near(losses[:2], expected[:2], 1e-4)


def batches_of(*batches: Batch, seed: int = 0) -> Any:
    """Stands for ``TrainingBatches``: the same batches for every purpose."""
    ids = torch.cat([batch.pair_ids for batch in batches])
    same = {name: lambda *purpose, **_: iter(batches) for name in ("shuffled", "covering")}
    return SimpleNamespace(**same, pair_ids=ids, seed=seed)


class GradientStep:
    """Backward without an update; keeps what the method handed over."""

    def __call__(self, network: nn.Module, loss: Tensor, batch: Batch, **terms: Tensor) -> None:
        network.zero_grad()
        loss.backward()
        self.loss, self.terms = loss.item(), {name: term.item() for name, term in terms.items()}


class OptimizerStep:
    """The engine's step: backward, clip at 2, update; keeps the losses."""

    def __init__(self, method: Method, learning_rate: float) -> None:
        self.optimizers = {net: method.make_optimizer(net, learning_rate) for net in method.networks}
        self.losses: list[float] = []

    def __call__(self, network: nn.Module, loss: Tensor, batch: Batch, **terms: Tensor) -> None:
        self.optimizers[network].zero_grad()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(network.parameters(), 2.0)
        self.optimizers[network].step()
        self.losses.append(loss.item())
