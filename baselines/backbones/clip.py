"""CLIP: Learning Transferable Visual Models From Natural Language Supervision. Radford et al., ICML 2021.

https://arxiv.org/abs/2103.00020

Two towers, for the pixels of an image and the byte pairs of a caption, embed into a joint space; the similarity is a
cosine. Architectures, weights, transforms and the tokenizer come from the package ``open_clip`` (OpenCLIP). Weights are
fetched by name or read from a file.

Deviations from the training of CLIP itself:
  * The learned temperature stays fixed unless a method trains it: most methods have their own temperatures or margins.
  * Words added by a method, such as CRCL's ``<mask>``, are additional rows of the word embedding.
  * Start and end tokens carry no word. If a method changes or drops words, both are restored before the caption is
    read.
"""

import re
from dataclasses import replace

import torch
from torch import Tensor, nn
from torch.nn import functional

from baselines.backbones.clip_inputs import BytePairs, ImagePatches, pixels_of
from baselines.backbones.clip_models import (
    CLIPConfig,
    architecture,
    byte_pairs,
    open_clip_package,
    transform,
    weights,
    weights_file,
)
from baselines.kit.backbone import CosineBackbone, Encoded
from baselines.kit.batches import Batch, to_device
from baselines.kit.distributed import encoded_in_shares
from ncl_bench.data import DATASETS
from ncl_bench.data.paired import PairedDataset
from ncl_bench.data.vocabulary import Vocabulary
from ncl_bench.errors import DataError, TrainingError
from ncl_bench.files import sha256_of_file
from ncl_bench.foreign import reading


class CLIP(CosineBackbone):
    """Cosine of the two towers' outputs, in [-1, 1]. The patches of an image are its regions.

    Args:
        config: which CLIP.
        feature_dim: values per patch.
        n_regions: patches per image.
        vocabulary_size: rows of the word embedding: the tokenizer's and those that a method adds.
    """

    name = "clip"
    title = "CLIP"
    Config = CLIPConfig
    fixed_regions = True
    reads_images = True
    tokenizer = "OpenCLIP byte pairs"

    def __init__(self, config: CLIPConfig, feature_dim: int, n_regions: int, vocabulary_size: int) -> None:
        super().__init__()
        sizes = architecture(config)
        self.config, self.embed_size = config, sizes["embed_dim"]
        self.patch = sizes["vision_cfg"]["patch_size"]
        with reading("backbone.model", TrainingError, fix="describe a CLIP of OpenCLIP"):
            self.towers = open_clip_package().CLIP(**sizes)
        self.towers.logit_scale.requires_grad_(False)
        self.towers.set_grad_checkpointing(config.gradient_checkpointing)
        own_words = vocabulary_size - self.towers.vocab_size
        if own_words:
            words = self.towers.token_embedding.weight.detach()
            # OpenCLIP's initialisation of words
            more = torch.empty(own_words, words.shape[1]).normal_(std=0.02)
            self.towers.token_embedding.weight = nn.Parameter(torch.cat([words, more]))
        # CLIP finds a caption's end by its largest id, but a method's own words have larger ones: name the end token
        self.towers.text_pool_type, self.towers.text_eos_id = "eos", byte_pairs().eot_token_id
        self.start, self.end = byte_pairs().sot_token_id, byte_pairs().eot_token_id
        # batch statistics need the whole batch, so such towers are not split over the ranks
        self.shared_out = not any(isinstance(x, nn.modules.batchnorm._BatchNorm) for x in self.modules())

    def encode_images(self, image_features: Tensor, image_lengths: Tensor) -> Encoded:
        """Embed images, float ``(n, patches, numbers of a patch)``."""
        pixels = pixels_of(image_features, self.patch)
        return _encoded(self.autocast(self.towers.encode_image, pixels), image_lengths)

    def encode_captions(self, caption_tokens: Tensor, caption_lengths: Tensor) -> Encoded:
        """Embed captions of at most as many tokens as the text tower reads."""
        tokens = functional.pad(caption_tokens, (0, self.towers.context_length - caption_tokens.shape[1]))
        tokens[:, 0] = self.start
        tokens.scatter_(1, to_device(caption_lengths - 1, tokens.device)[:, None], self.end)
        return _encoded(self.autocast(self.towers.encode_text, tokens), caption_lengths)

    def encode(self, batch: Batch) -> tuple[Encoded, Encoded]:
        """Encode a batch, split over the ranks, because the towers are nearly all of the work."""
        if not self.shared_out:
            return super().encode(batch)
        self.captions_encoded += len(batch)

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
        """Compute cosines on every rank: each has all vectors and needs the full gradient of its own."""
        return self.similarities(images, captions)

    @property
    def logit_scale(self) -> nn.Parameter:
        """Logarithm of CLIP's temperature factor, about 100 in released weights."""
        scale: nn.Parameter = self.towers.logit_scale
        return scale

    @classmethod
    def inputs(cls, config: CLIPConfig, dataset: PairedDataset) -> PairedDataset:
        """The dataset with images instead of region features, and OpenCLIP's tokens."""
        if dataset.images is None or dataset.captions is None:
            embedded = dataset.name in DATASETS and DATASETS[dataset.name].embedded
            fix = (
                "choose another dataset"
                if dataset.captions is None
                else "install a clone in place (pip install --editable), which has more pictures than a wheel"
                if embedded
                else f"fix: ncl-bench add-images {dataset.name} --from DIR"
            )
            raise DataError(
                f"{dataset.name}/{dataset.split} has no {'image' if dataset.images is None else 'caption text'} of "
                f"every pair here, which backbone clip reads; {fix}"
            )
        sizes, tokenizer = architecture(config), byte_pairs()
        return replace(
            dataset,
            image_features=ImagePatches(
                dataset.images,
                dataset.image_ids,
                transform(config, sizes["vision_cfg"]["image_size"]),
                sizes["vision_cfg"]["image_size"],
                sizes["vision_cfg"]["patch_size"],
                config.smallest_crop,
            ),
            tokens=BytePairs(
                dataset.captions,
                torch.arange(len(dataset)).numpy(),
                tokenizer,
                sizes["text_cfg"]["context_length"],
            ),
            vocabulary=Vocabulary(tuple(tokenizer.encoder), tokenizer.vocab_size),
        )

    @classmethod
    def title_of(cls, config: CLIPConfig) -> str:
        """Title with the architecture as in papers, such as ``CLIP ViT-B/32``; ``CLIP`` for a custom one."""
        if not isinstance(config.model, str):
            return cls.title
        name = config.model.removesuffix("-quickgelu")
        return f"{cls.title} " + re.sub(r"^(ViT-\w+)-(\d+)", r"\1/\2", name)

    @classmethod
    def pretrained_encoder(cls, config: CLIPConfig) -> str:
        """Model and weights, such as ``CLIP ViT-B/32 (openai, sha256 0123456789ab)``; empty for random weights."""
        path = weights_file(config)
        if path is None:
            return ""
        source = path.name if config.weights else config.pretrained
        return f"{cls.title_of(config)} ({source}, sha256 {sha256_of_file(path)[:12]})"

    def load_pretrained(self) -> None:
        """Load all pre-trained weights; words added by a method keep their random weights."""
        path = weights_file(self.config)
        if path is None:
            return
        state = weights(path, self.config)
        words = state.get("token_embedding.weight")
        if words is not None:
            more = self.towers.token_embedding.weight.detach()[self.towers.vocab_size :]
            state["token_embedding.weight"] = torch.cat([words, more.to(words.dtype)])
        with reading(path, TrainingError, fix=f"give weights of {self.title_of(self.config)}"):
            self.towers.load_state_dict(state)


def _encoded(outputs: Tensor, lengths: Tensor) -> Encoded:
    vectors = functional.normalize(outputs.to(torch.promote_types(outputs.dtype, torch.float32)), dim=-1)
    return Encoded(vectors, lengths, vectors)
