"""CLIP in a size for tests: OpenCLIP's own code with random weights, and images that the tests draw."""

import torch
from safetensors.torch import save_file

from baselines.backbones import build_backbone
from baselines.backbones.clip import CLIP
from baselines.backbones.clip_models import CLIPConfig
from baselines.backbones.torchvision import import_beside
from baselines.kit.batches import Batch

open_clip = import_beside("open_clip")

MODEL = {
    "embed_dim": 32,
    "vision_cfg": {"image_size": 32, "patch_size": 8, "layers": 1, "width": 32, "head_width": 16},
    "text_cfg": {"context_length": 56, "width": 32, "heads": 2, "layers": 1},
}
"""One layer in either tower; reads images of 32 x 32 pixels."""

TINY_CLIP = {"name": "clip", "model": MODEL}
WORDS = 49_408
START, END = 49_406, 49_407


def tiny_clip(seed=0, words=WORDS, **options):
    """A fresh network."""
    torch.manual_seed(seed)
    config = CLIPConfig.model_validate({"model": MODEL, **options})
    network = build_backbone("clip", config, feature_dim=192, n_regions=16, vocabulary_size=words)
    assert isinstance(network, CLIP)
    return network


def clip_batch(n, seed=1):
    """Random images and captions of random lengths."""
    generator = torch.Generator().manual_seed(seed)
    lengths = torch.randint(4, 12, (n,), generator=generator)
    tokens = torch.randint(300, 40_000, (n, 12), generator=generator)
    tokens[:, 0] = START
    tokens.scatter_(1, lengths[:, None] - 1, END)
    tokens *= torch.arange(12) < lengths[:, None]
    patches = torch.randn(n, 16, 192, generator=generator)
    return Batch(patches, torch.full((n,), 16), tokens[:, : lengths.max()], lengths, torch.arange(n))


def random_weights(path, seed=5):
    """A safetensors file of weights of :data:`MODEL` under OpenCLIP's names."""
    save_file(tiny_clip(seed).towers.state_dict(), path)
    return path
