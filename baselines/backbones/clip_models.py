"""Access to the package ``open_clip`` (OpenCLIP): architectures, tokenizer, transforms and weights."""

from collections.abc import Callable
from difflib import get_close_matches
from functools import cache
from pathlib import Path
from typing import Any

from pydantic import PositiveInt
from safetensors.torch import load
from torch import Tensor

from baselines.backbones.torchvision import import_beside
from baselines.kit.options import Options, ShareAboveZero
from ncl_bench.errors import TrainingError
from ncl_bench.extras import require
from ncl_bench.foreign import readable, reading


class Architecture(Options):
    """An architecture in the format of OpenCLIP's files.

    Attributes:
        embed_dim: dimension of the joint space.
        vision_cfg: options of ``open_clip.CLIPVisionCfg``.
        text_cfg: options of ``open_clip.CLIPTextCfg``.
        quick_gelu: whether to use the activation of OpenAI's weights.
    """

    embed_dim: PositiveInt
    vision_cfg: dict[str, Any]
    text_cfg: dict[str, Any]
    quick_gelu: bool = False


class CLIPConfig(Options):
    """Which CLIP.

    Attributes:
        model: name of an architecture in OpenCLIP, such as ``ViT-B-32``, or a custom architecture.
        pretrained: name of weights in OpenCLIP for this model, such as ``openai``; fetched once. Without it and without
            ``weights``, weights are random.
        weights: a safetensors file with the weights under OpenCLIP's names, used instead of fetched ones.
        smallest_crop: minimum share of an image's area in a random training crop, in (0, 1] (OpenCLIP: 0.9); 1 crops
            nothing. Evaluation never crops at random.
        gradient_checkpointing: recompute the towers' layers in the backward pass instead of storing them; takes about a
            third more time and does not change results.
    """

    model: str | Architecture = "ViT-B-32"
    pretrained: str = ""
    weights: str = ""
    smallest_crop: ShareAboveZero = 0.9
    gradient_checkpointing: bool = False


def open_clip_package() -> Any:
    """Import the package; only users of this backbone need it."""
    require("clip", "open_clip", needed_by="CLIP")
    return import_beside("open_clip")


@cache
def byte_pairs() -> Any:
    """CLIP's tokenizer, ``open_clip.SimpleTokenizer``."""
    return open_clip_package().SimpleTokenizer()


def architecture(config: CLIPConfig) -> dict[str, Any]:
    """Options of ``open_clip.CLIP``, with explicit sizes where other code reads them."""
    parts = named(config.model) if isinstance(config.model, str) else config.model.model_dump()
    if _known_weights(config).get("quick_gelu"):
        parts["quick_gelu"] = True
    words = byte_pairs().vocab_size
    text = parts["text_cfg"] = {"context_length": 77, "vocab_size": words} | parts["text_cfg"]
    parts["vision_cfg"] = {"image_size": 224, "patch_size": 16} | parts["vision_cfg"]
    others = {"custom_text", "multimodal_cfg"} & set(parts)
    others |= {key for key in text if key.startswith(("hf_", "tokenizer_", "embed_cls", "pool_type"))}
    if others or text["vocab_size"] != words:
        raise TrainingError(
            f"backbone.model is {config.model}, whose text tower or tokenizer is not CLIP's own; choose one such as "
            "ViT-B-32, RN50 or ViT-L-14"
        )
    return parts


def named(name: str) -> dict[str, Any]:
    """One of OpenCLIP's architectures."""
    open_clip = open_clip_package()
    if name not in open_clip.list_models():
        near = get_close_matches(name, open_clip.list_models(), n=3) or ["ViT-B-32"]
        raise TrainingError(
            f"backbone.model is {name}, which OpenCLIP does not know; did you mean {' or '.join(near)}?"
        )
    architecture_of_name: dict[str, Any] = open_clip.get_model_config(name)
    return architecture_of_name


def _known_weights(config: CLIPConfig) -> dict[str, Any]:
    """OpenCLIP's record of named weights: address, normalisation of images, and activation."""
    if not config.pretrained:
        return {}
    open_clip = open_clip_package()
    tags = open_clip.list_pretrained_tags_by_model(config.model) if isinstance(config.model, str) else []
    if config.pretrained not in tags:
        known = f"choose one of: {', '.join(tags)}" if tags else "leave it out, or give backbone.weights"
        raise TrainingError(
            f"backbone.pretrained is {config.pretrained}, which OpenCLIP does not know for this model; {known}"
        )
    facts: dict[str, Any] = open_clip.get_pretrained_cfg(config.model, config.pretrained)
    return facts


def transform(config: CLIPConfig, size: int) -> Callable[[Any], Tensor]:
    """OpenCLIP's transform for evaluation, from an RGB image to ``(3, size, size)``: resize, centre crop, normalise."""
    from open_clip.transform import PreprocessCfg, image_transform_v2, merge_preprocess_dict

    preparation = merge_preprocess_dict(PreprocessCfg(), {**_known_weights(config), "size": size})
    made: Callable[[Any], Tensor] = image_transform_v2(PreprocessCfg(**preparation), is_train=False)
    return made


def normalisation(config: CLIPConfig) -> tuple[tuple[float, ...], tuple[float, ...], str]:
    """Mean and deviation of RGB values 0 ... 255 that the weights expect, and how images are resized."""
    from open_clip.transform import PreprocessCfg

    known = _known_weights(config)
    plain = PreprocessCfg()
    mean, std = (tuple(255 * x for x in known.get(key, getattr(plain, key))) for key in ("mean", "std"))
    return mean, std, known.get("interpolation", plain.interpolation)


def weights_file(config: CLIPConfig) -> Path | None:
    """Path of the weights, fetched if needed; None for random weights."""
    if config.weights:
        return readable(Path(config.weights), TrainingError, "a safetensors file with backbone.weights")
    if not config.pretrained:
        return None
    facts = _known_weights(config)
    fix = "fetch them where there is a network, and give their safetensors file as backbone.weights"
    with reading(f"the weights {config.pretrained} of {config.model}", TrainingError, fix=fix):
        return Path(open_clip_package().download_pretrained(facts))


def weights(path: Path, config: CLIPConfig) -> dict[str, Tensor]:
    """Read the weights of :func:`weights_file` under OpenCLIP's names."""
    if not config.weights:  # fetched weights come in several formats; OpenCLIP's loader reads them
        plain = open_clip_package().CLIP(**architecture(config))
        open_clip_package().load_checkpoint(plain, str(path))
        state: dict[str, Tensor] = plain.state_dict()
        return state
    with reading(path, TrainingError, fix="save the weights as safetensors"):
        return load(path.read_bytes())
