"""Programs of one file beside the engine: the same network, the same seeds, and the loss of every step."""

from functools import partial

import torch
from pydantic import BaseModel
from support.few_digits import load_few
from torch import Tensor

import baselines.training.job
from baselines.backbones import BACKBONES
from baselines.kit import CosineBackbone, Encoded, derive_seed


class NoOptions(BaseModel):
    """The network has none."""


def backbone_of(one_file):
    """The network of a program, as the trainer wants it."""

    class OneFileNetwork(CosineBackbone):
        name, title, Config = "one_file", "One file", NoOptions
        embed_size = one_file.SIZE

        def __init__(self, config, feature_dim, n_regions, vocabulary_size):
            super().__init__()
            self.network = one_file.Network(feature_dim, vocabulary_size)

        def encode_images(self, image_features, image_lengths):
            return Encoded(
                self.network.images(image_features), torch.ones(len(image_features), dtype=torch.int64)
            )

        def encode_captions(self, caption_tokens, caption_lengths):
            vectors = self.network.captions(caption_tokens, caption_lengths)
            return Encoded(vectors, torch.ones(len(vectors), dtype=torch.int64))

    return OneFileNetwork


def seed_of_the_engine(kind, *purpose):
    """What stands for a program's ``seed_of``: the engine's seeds of a run with seed 0."""
    return derive_seed(0, kind, 0, *purpose) if kind == "order" else derive_seed(0, kind, *purpose)


def record_losses(patch):
    """The loss of every step that anybody takes from now on."""
    found = []
    backward = Tensor.backward

    def recording(loss, *arguments, **options):
        found.append(loss.item())
        backward(loss, *arguments, **options)

    patch.setattr(Tensor, "backward", recording)
    return found


def beside_the_engine(one_file, patch):
    """Let a program and the engine train the same two networks on the same few pairs.

    Returns:
        The losses of all steps from now on, the pairs, and the program's networks.
    """
    losses = record_losses(patch)
    patch.setattr(one_file, "seed_of", seed_of_the_engine)
    patch.setitem(BACKBONES.data, "one_file", backbone_of(one_file))
    fewest = partial(load_few, n_pairs=400)
    patch.setattr(baselines.training.job, "load_dataset", fewest)
    train = fewest("digits", split="train", noise_ratio=0.4)
    torch.manual_seed(derive_seed(0, "networks", 0))
    return losses, train, [one_file.Network(train.feature_dim, train.vocabulary.size) for _ in "AB"]
