"""CLIP: Learning Transferable Visual Models From Natural Language Supervision. Radford et al., ICML 2021.

https://arxiv.org/abs/2103.00020

Two towers, one for the pixels of an image and one for the byte pairs of a caption, meet in a joint space; the
similarity is a cosine. Architectures, weights, transforms and the tokenizer are those of OpenCLIP, the package
``open_clip``; its weights may be fetched by name or read from a file.

Points that differ from a training of CLIP itself:
  * The learned temperature is kept as it is: the methods bring temperatures or margins of their own.
  * Words that a method adds, such as CRCL's ``<mask>``, are further rows of the word embedding.
  * Start and end of a caption carry no word. A method that changes or leaves out words leaves them alone in effect:
    they are set again before the caption is read.
"""

import re
from collections.abc import Callable
from copy import deepcopy
from dataclasses import replace
from difflib import get_close_matches
from functools import cache
from pathlib import Path
from typing import Annotated, Any, cast

import torch
from pydantic import BaseModel, ConfigDict, Field
from safetensors import SafetensorError
from safetensors.torch import load
from torch import Tensor, nn
from torch.nn import functional

from baselines.backbones.clip_inputs import BytePairs, ImagePatches, pixels_of
from baselines.kit.backbone import Backbone, Encoded, IntraModal
from baselines.kit.batches import Batch
from baselines.kit.distributed import encoded_in_shares
from ncl_bench.data.paired import PairedDataset
from ncl_bench.data.vocabulary import Vocabulary
from ncl_bench.errors import DataError, TrainingError
from ncl_bench.files import sha256_of_file


class CLIPConfig(BaseModel):
    """Which CLIP.

    Attributes:
        model: name of an architecture in OpenCLIP, such as ``ViT-B-32``; or an architecture as OpenCLIP's files
            describe one, with ``embed_dim``, ``vision_cfg`` and ``text_cfg``.
        pretrained: name of weights that OpenCLIP knows for this model, such as ``openai``; they are fetched once.
            Without them and without ``weights`` the weights are drawn.
        weights: a safetensors file with the weights under OpenCLIP's names, read in place of fetched ones.
        smallest_crop: share of an image's area that its random crop in training keeps at least, in (0, 1]
            (OpenCLIP: 0.9); 1 crops nothing. Evaluation never crops at random.
        gradient_checkpointing: compute the towers' layers again in the backward pass instead of keeping them, which
            costs about a third more time and changes no number.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    model: str | dict[str, Any] = "ViT-B-32"
    pretrained: str = ""
    weights: str = ""
    smallest_crop: Annotated[float, Field(gt=0, le=1)] = 0.9
    gradient_checkpointing: bool = False


class CLIP(Backbone):
    """Cosine of the two towers' outputs, in [-1, 1]. The patches of an image are its regions.

    Args:
        config: which CLIP.
        feature_dim: numbers of a patch.
        n_regions: patches of an image.
        vocabulary_size: rows of the word embedding: those of the tokenizer and those that a method adds.

    Raises:
        TrainingError: ``open_clip`` is not installed, or the model is unknown or of another kind.
    """

    name = "clip"
    title = "CLIP"
    Config = CLIPConfig
    similarity_range = (-1.0, 1.0)
    pools = True
    dot_products = True
    fixed_regions = True
    reads_images = True
    tokenizer = "OpenCLIP byte pairs"

    def __init__(self, config: CLIPConfig, feature_dim: int, n_regions: int, vocabulary_size: int) -> None:
        super().__init__()
        architecture = _architecture(config)
        self.config, self.embed_size = config, architecture["embed_dim"]
        self.patch = architecture["vision_cfg"]["patch_size"]
        try:
            self.towers = _open_clip().CLIP(**architecture)
        except TypeError as error:
            raise TrainingError(f"backbone.model describes no CLIP of OpenCLIP: {error}") from None
        self.towers.logit_scale.requires_grad_(False)
        self.towers.set_grad_checkpointing(config.gradient_checkpointing)
        own_words = vocabulary_size - self.towers.vocab_size
        if own_words:
            words = self.towers.token_embedding.weight.detach()
            more = torch.empty(own_words, words.shape[1]).normal_(std=0.02)  # as OpenCLIP draws words
            self.towers.token_embedding.weight = nn.Parameter(torch.cat([words, more]))
        # the largest id ends a caption in CLIP; a method's own words are larger still
        self.towers.text_pool_type, self.towers.text_eos_id = "eos", _tokenizer().eot_token_id
        # statistics of a batch need the whole of it
        self.shared_out = not any(isinstance(x, nn.modules.batchnorm._BatchNorm) for x in self.modules())

    def encode_images(self, image_features: Tensor, image_lengths: Tensor) -> Encoded:
        """Embed images, float ``(n, patches, numbers of a patch)``."""
        pixels = pixels_of(image_features, self.patch)
        return _encoded(self.autocast(self.towers.encode_image, pixels), image_lengths)

    def encode_captions(self, caption_tokens: Tensor, caption_lengths: Tensor) -> Encoded:
        """Embed captions of at most as many tokens as the text tower reads."""
        tokens = functional.pad(caption_tokens, (0, self.towers.context_length - caption_tokens.shape[1]))
        tokens[:, 0] = _tokenizer().sot_token_id
        tokens.scatter_(1, caption_lengths[:, None] - 1, _tokenizer().eot_token_id)
        return _encoded(self.autocast(self.towers.encode_text, tokens), caption_lengths)

    def encode(self, batch: Batch) -> tuple[Encoded, Encoded]:
        """Images and captions of a batch, shared out over the ranks: the towers are nearly all of the work."""
        if not self.shared_out:
            return super().encode(batch)

        def images(rows: slice) -> Tensor:
            return self.encode_images(batch.image_features[rows], batch.image_lengths[rows]).vectors

        def captions(rows: slice) -> Tensor:
            return self.encode_captions(batch.caption_tokens[rows], batch.caption_lengths[rows]).vectors

        image_vectors, caption_vectors = (encoded_in_shares(side, len(batch)) for side in (images, captions))
        return (
            Encoded(image_vectors, batch.image_lengths, image_vectors),
            Encoded(caption_vectors, batch.caption_lengths, caption_vectors),
        )

    def compare(self, images: Encoded, captions: Encoded) -> Tensor:
        """Cosines on every rank: each holds all vectors, and needs the whole gradient of its own."""
        return self.similarities(images, captions)

    def similarities(self, images: Encoded, captions: Encoded) -> Tensor:
        """Cosines, float ``(n_images, n_captions)``."""
        return images.vectors @ captions.vectors.T

    def image_image_similarities(self, images: Encoded, variant: IntraModal = "gsc") -> Tensor:
        """Cosines between images; both variants agree."""
        return images.vectors @ images.vectors.T

    def caption_caption_similarities(self, captions: Encoded, variant: IntraModal = "gsc") -> Tensor:
        """Cosines between captions; both variants agree."""
        return captions.vectors @ captions.vectors.T

    @classmethod
    def inputs(cls, config: CLIPConfig, dataset: PairedDataset) -> PairedDataset:
        """The dataset with its images in place of region features, and with OpenCLIP's tokens.

        Raises:
            DataError: it has no images, or no caption texts.
            TrainingError: as for the network.
        """
        if dataset.images is None:
            raise DataError(
                f"{dataset.name} was prepared without its images, which backbone clip reads; "
                f"fix: ncl-bench add-images {dataset.name} --from DIR"
            )
        if dataset.captions is None:
            raise DataError(
                f"{dataset.name} has no caption texts, which backbone clip reads; choose another dataset"
            )
        architecture, tokenizer = _architecture(config), _tokenizer()
        return replace(
            dataset,
            image_features=ImagePatches(
                dataset.images,
                dataset.image_ids,
                _transform(config, architecture),
                architecture["vision_cfg"]["image_size"],
                architecture["vision_cfg"]["patch_size"],
                config.smallest_crop,
            ),
            tokens=BytePairs(
                dataset.captions,
                torch.arange(len(dataset)).numpy(),
                tokenizer,
                architecture["text_cfg"]["context_length"],
            ),
            vocabulary=Vocabulary(tuple(tokenizer.encoder), tokenizer.vocab_size),
        )

    @classmethod
    def title_of(cls, config: CLIPConfig) -> str:
        """With the architecture as papers write it, such as ``CLIP ViT-B/32``; ``CLIP`` for one of the user's own."""
        if not isinstance(config.model, str):
            return cls.title
        name = config.model.removesuffix("-quickgelu")
        return f"{cls.title} " + re.sub(r"^(ViT-\w+)-(\d+)", r"\1/\2", name)

    @classmethod
    def pretrained_encoder(cls, config: CLIPConfig) -> str:
        """Model and weights, such as ``CLIP ViT-B/32 (openai, sha256 0123456789ab)``; empty where they are drawn."""
        path = _weights_file(config)
        if path is None:
            return ""
        source = path.name if config.weights else config.pretrained
        return f"{cls.title_of(config)} ({source}, sha256 {sha256_of_file(path)[:12]})"

    def load_pretrained(self) -> None:
        """Take the pre-trained weights over, every one of them; words that a method adds stay as they were drawn.

        Raises:
            TrainingError: they cannot be had or read, or do not fit.
        """
        path = _weights_file(self.config)
        if path is None:
            return
        state = _file_state(path) if self.config.weights else _fetched_state(path, self.config)
        words = state.get("token_embedding.weight")
        if words is not None:
            more = self.towers.token_embedding.weight.detach()[self.towers.vocab_size :]
            state["token_embedding.weight"] = torch.cat([words, more.to(words.dtype)])
        try:
            self.towers.load_state_dict(state)
        except RuntimeError as error:
            found = " ".join(str(error).split())
            raise TrainingError(f"{path} does not fit {self.title_of(self.config)}: {found}") from None


def _encoded(outputs: Tensor, lengths: Tensor) -> Encoded:
    vectors = functional.normalize(outputs.to(torch.promote_types(outputs.dtype, torch.float32)), dim=-1)
    return Encoded(vectors, lengths, vectors)


def _open_clip() -> Any:
    try:
        import open_clip
    except (ImportError, RuntimeError) as error:  # the latter where torchvision was built for another torch
        raise TrainingError(
            f"backbone clip needs open_clip, which does not load ({error}); fix: pip install 'ncl-bench[clip]'"
        ) from None
    return open_clip


@cache
def _tokenizer() -> Any:
    return _open_clip().SimpleTokenizer()


def _architecture(config: CLIPConfig) -> dict[str, Any]:
    """What ``open_clip.CLIP`` is built from, with the sizes that other code reads spelled out."""
    found = _named_architecture(config) if isinstance(config.model, str) else deepcopy(config.model)
    if _known_weights(config).get("quick_gelu"):
        found["quick_gelu"] = True
    missing = {"embed_dim", "vision_cfg", "text_cfg"} - set(found)
    if missing:
        raise TrainingError(
            f"backbone.model lacks {', '.join(sorted(missing))}; see the model files of OpenCLIP"
        )
    text = found["text_cfg"] = {"context_length": 77, "vocab_size": _tokenizer().vocab_size} | found[
        "text_cfg"
    ]
    found["vision_cfg"] = {"image_size": 224, "patch_size": 16} | found["vision_cfg"]
    others = {"custom_text", "multimodal_cfg"} & set(found)
    others |= {
        key for key in text if key.startswith(("hf_", "tokenizer_")) or key in ("embed_cls", "pool_type")
    }
    if others or text["vocab_size"] != _tokenizer().vocab_size:
        raise TrainingError(
            f"backbone.model is {config.model}, whose text tower or tokenizer is not CLIP's own; choose one such as "
            "ViT-B-32, RN50 or ViT-L-14"
        )
    return found


def _named_architecture(config: CLIPConfig) -> dict[str, Any]:
    open_clip, name = _open_clip(), cast(str, config.model)
    if name not in open_clip.list_models():
        near = get_close_matches(name, open_clip.list_models(), n=3, cutoff=0.3)
        raise TrainingError(
            f"backbone.model is {name}, which OpenCLIP does not know; did you mean {' or '.join(near)}?"
        )
    found: dict[str, Any] = open_clip.get_model_config(name)
    return found


def _known_weights(config: CLIPConfig) -> dict[str, Any]:
    """What OpenCLIP says of named weights: where they are, and how images were normalised and activations computed."""
    if not config.pretrained:
        return {}
    open_clip = _open_clip()
    tags = open_clip.list_pretrained_tags_by_model(config.model) if isinstance(config.model, str) else []
    if config.pretrained not in tags:
        known = f"choose one of: {', '.join(tags)}" if tags else "leave it out, or give backbone.weights"
        raise TrainingError(
            f"backbone.pretrained is {config.pretrained}, which OpenCLIP does not know for this model; {known}"
        )
    found: dict[str, Any] = open_clip.get_pretrained_cfg(config.model, config.pretrained)
    return found


def _transform(config: CLIPConfig, architecture: dict[str, Any]) -> Callable[[Any], Tensor]:
    """OpenCLIP's own for evaluation: resize, crop the middle, normalise."""
    from open_clip.transform import PreprocessCfg, image_transform_v2, merge_preprocess_dict

    size = architecture["vision_cfg"]["image_size"]
    found = merge_preprocess_dict(PreprocessCfg(), {**_known_weights(config), "size": size})
    transform: Callable[[Any], Tensor] = image_transform_v2(PreprocessCfg(**found), is_train=False)
    return transform


def _weights_file(config: CLIPConfig) -> Path | None:
    """Where the weights lie, fetched if need be; None where they are drawn."""
    if config.weights:
        if not Path(config.weights).is_file():
            raise TrainingError(
                f"backbone.weights is {config.weights}, which is no file; give a safetensors file"
            )
        return Path(config.weights)
    if not config.pretrained:
        return None
    found = _known_weights(config)
    try:
        return Path(_open_clip().download_pretrained(found))
    except Exception as error:  # clients raise many classes: network, offline mode, a wrong checksum
        raise TrainingError(
            f"the weights {config.pretrained} of {config.model} cannot be fetched ({' '.join(str(error).split())}); "
            "fix: fetch them where there is a network, and give their safetensors file as backbone.weights"
        ) from None


def _file_state(path: Path) -> dict[str, Tensor]:
    try:
        return load(path.read_bytes())
    except (OSError, SafetensorError) as error:
        raise TrainingError(
            f"{path} is no safetensors file ({error}); save the weights as safetensors"
        ) from None


def _fetched_state(path: Path, config: CLIPConfig) -> dict[str, Tensor]:
    """Fetched weights under OpenCLIP's names, which its loader gives to files of other forms too."""
    open_clip = _open_clip()
    plain = open_clip.CLIP(**_architecture(config))
    open_clip.load_checkpoint(plain, str(path))
    state: dict[str, Tensor] = plain.state_dict()
    return state
