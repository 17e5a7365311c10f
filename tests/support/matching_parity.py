"""What the tests of SCAN, VSRN and IMRAM share: networks from stored weights, gradients and short trainings."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import torch
from support.backbone_parity import SUFFIX, tensor
from torch import Tensor, nn

from baselines.kit.backbone import Encoded
from baselines.kit.losses import hinge_costs

Stored = Mapping[str, np.ndarray]
Build = Callable[[dict[str, Tensor]], nn.Module]

WEIGHTS = ("img_enc.", "txt_enc.", "caption_model.", "linear_", "gate_")
MARGIN, LEARNING_RATE, CLIP = 0.2, 2e-3, 2.0
"""Of the stored losses and trainings."""


def published_state(stored: Stored, dtype: torch.dtype) -> dict[str, Tensor]:
    """The stored weights by their published names."""
    return {name: tensor(stored[name], dtype) for name in stored if name.startswith(WEIGHTS)}


def cut(images: Encoded, rows: np.ndarray) -> Encoded:
    """Some of the images."""
    chosen = torch.from_numpy(rows)
    return Encoded(images.vectors[chosen], images.lengths[chosen])


def assert_gradients(
    network: nn.Module,
    build: Build,
    stored: Stored,
    prefix: str,
    dtype: torch.dtype,
    relative: float,
    noise: Sequence[str] = (),
) -> int:
    """Every gradient against the array ``prefix + published name``; where none is stored there must be none.

    Args:
        network: after its backward pass.
        build: a state with published names to a network.
        stored: the golden file.
        prefix: of the arrays.
        dtype: of the network; float64 compares with the ``__f64`` arrays.
        relative: largest deviation of an array, relative to the array's largest value.
        noise: ends of published names whose gradient is zero in exact arithmetic; float32 shows rounding alone.

    Returns:
        How many arrays were compared.
    """
    state = published_state(stored, dtype)
    names = [name for name in state if state[name].is_floating_point()]
    wanted = {name: stored.get(f"{prefix}{name}{SUFFIX[dtype]}") for name in names}
    gradients = {name: torch.zeros_like(state[name]) for name in names}
    gradients |= {name: tensor(x, dtype) for name, x in wanted.items() if x is not None}
    numbered = {name: torch.full_like(state[name], k) for k, name in enumerate(names)}
    expected, owners = (
        dict(build({**state, **values}).named_parameters()) for values in (gradients, numbered)
    )
    compared = set()
    for ours, weight in network.named_parameters():
        found = torch.zeros_like(weight) if weight.grad is None else weight.grad
        for k in owners[ours].detach().unique().tolist():
            name, here = names[int(k)], owners[ours] == k
            if name.endswith(tuple(noise)):
                assert dtype == torch.float32 or found[here].abs().max().item() < 1e-9
                compared.add(name)
                continue
            largest = expected[ours][here].abs().max().item()
            deviation = (found[here] - expected[ours][here]).abs().max().item()
            assert deviation <= relative * largest, f"{name}: {deviation:.1e} of {largest:.1e}"
            compared.add(name)
    assert {name for name, x in wanted.items() if x is not None} <= compared
    return len(compared)


def published_loss(similarities: Tensor, *, hardest: bool) -> Tensor:
    """Hinge costs summed over the batch: of the hardest negatives, or of all."""
    captions, images = hinge_costs(similarities, MARGIN)
    if hardest:
        return captions.max(dim=1).values.sum() + images.max(dim=0).values.sum()
    return captions.sum() + images.sum()


def five_steps(
    parameters: Sequence[nn.Parameter],
    loss: Callable[[], Tensor],
    after: Callable[[int], Any] = lambda step: None,
) -> tuple[list[float], list[float]]:
    """Losses and lengths of the gradient (before it is clipped) over five steps of Adam."""
    optimizer = torch.optim.Adam(parameters, lr=LEARNING_RATE)
    losses, lengths = [], []
    for step in range(5):
        optimizer.zero_grad()
        value = loss()
        value.backward()
        lengths.append(nn.utils.clip_grad_norm_(parameters, CLIP).item())
        optimizer.step()
        losses.append(value.item())
        after(step)
    return losses, lengths
