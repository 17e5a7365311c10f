"""What the backbone tests share: published weights and inputs in one precision, and small fresh networks."""

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from baselines.backbones import BACKBONES, build_backbone
from baselines.kit.backbone import Backbone, Encoded
from baselines.published.weights import network_from

Golden = Callable[[str], Mapping[str, np.ndarray]]

FILES = {
    "imram": "P_imram",
    "saf": "A_backbone_saf",
    "scan": "N_scan",
    "sgr": "A_backbone_sgr",
    "vse_infinity": "B_backbone_vse",
    "vsrn": "O_vsrn_f30k",
}
PARTS = ("img_enc.", "txt_enc.", "sim_enc.", "linear_", "gate_", "caption_model.")
SUFFIX = {torch.float32: "", torch.float64: "__f64"}
SIMILARITY_TOLERANCE = {torch.float32: 5e-6, torch.float64: 1e-9}


def tensor(array: np.ndarray, dtype: torch.dtype) -> Tensor:
    """An array as a tensor; floating-point numbers in ``dtype``."""
    x = torch.from_numpy(np.array(array))
    return x.to(dtype) if x.is_floating_point() else x


def published_network(
    name: str, stored: Mapping[str, np.ndarray], dtype: torch.dtype = torch.float32, mode: str = "eval"
) -> Backbone:
    """A backbone with published weights and, as in the golden runs, without dropout."""
    state = {key: tensor(stored[key], dtype) for key in stored if key.startswith(PARTS)}
    return without_dropout(network_from(name, state)).train(mode == "train")


def without_dropout(network: Backbone) -> Backbone:
    """The network itself, its dropout rates set to zero."""
    for module in network.modules():
        if isinstance(module, nn.Dropout):
            module.p = 0.0
    return network


def encoded(
    network: Backbone, stored: Mapping[str, np.ndarray], dtype: torch.dtype, regions: str = ""
) -> tuple[Encoded, Encoded]:
    """The golden batch in the joint space; ``regions`` is ``"_full"`` or ``"_var"`` for group B."""
    images = tensor(stored[f"in.images{regions}"], dtype)
    lengths = torch.full((len(images),), images.shape[1])
    if regions:
        lengths = tensor(stored[f"in.image_lengths{regions}"], dtype)
    captions = (tensor(stored[key], dtype) for key in ("in.captions", "in.lengths"))
    return network.encode_images(images, lengths), network.encode_captions(*captions)


def assert_gradients_match(
    name: str,
    network: Backbone,
    stored: Mapping[str, np.ndarray],
    prefix: str,
    dtype: torch.dtype,
) -> None:
    """Every gradient against the array ``prefix + published name``.

    Gradients that vanish in exact arithmetic show the noise of either side only, so those get an absolute
    tolerance; ours may be absent.
    """
    weights = {key: stored[key] for key in stored if key.startswith(PARTS)}
    for key in weights:
        gradient = f"{prefix}{key}{SUFFIX[dtype]}"
        weights[key] = stored[gradient] if gradient in stored else weights[key]
    wanted = published_network(name, weights, dtype)
    compared = 0
    relative, floor = {torch.float32: (2e-4, 1e-4), torch.float64: (1e-9, 1e-9)}[dtype]
    for (ours, weight), want in zip(network.named_parameters(), wanted.parameters(), strict=True):
        largest = want.abs().max().item()
        found = torch.zeros_like(want) if weight.grad is None else weight.grad
        tolerance = (relative * largest) if largest > 1e-4 else floor
        deviation = (found - want).abs().max().item()
        assert deviation <= tolerance, f"{ours} deviates by {deviation:.1e}, allowed are {tolerance:.1e}"
        compared += 1
    assert compared == sum(f"{prefix}{key}{SUFFIX[dtype]}" in stored for key in weights)


def small_network(name: str, seed: int = 0, **options: Any) -> Backbone:
    """A fresh network on 16 x 66 features with 40 words, in double precision and evaluation mode."""
    torch.manual_seed(seed)
    config = BACKBONES[name].Config(**{"embed_size": 32, "word_dim": 12, **options})
    network = build_backbone(name, config, feature_dim=66, n_regions=16, vocabulary_size=40)
    return network.double().eval()


def small_inputs(n_images: int, lengths: list[int], seed: int = 1) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Random features, image lengths, padded tokens and caption lengths."""
    generator = torch.Generator().manual_seed(seed)
    features = torch.rand(n_images, 16, 66, generator=generator, dtype=torch.float64)
    caption_lengths = torch.tensor(lengths)
    tokens = torch.randint(1, 40, (len(lengths), max(lengths)), generator=generator)
    tokens[torch.arange(max(lengths)) >= caption_lengths[:, None]] = 0
    return features, torch.full((n_images,), 16), tokens, caption_lengths
