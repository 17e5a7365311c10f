"""The networks of golden groups V and W: two towers that end in a joint space, and a trained scale of their cosines."""

from types import SimpleNamespace

import numpy as np
import torch
from support.doubles import StandIn
from torch import nn
from torch.nn import functional

from baselines.kit.backbone import CosineBackbone, Encoded
from baselines.kit.batches import Batch
from baselines.kit.method import Setting


class Towers(CosineBackbone):
    """A linear layer for images, flattened, and one for captions, or for the mean of their words."""

    name = "towers"

    def __init__(self, state):
        super().__init__()
        self.image = nn.Linear(*reversed(state["image.weight"].shape))
        self.text = nn.Linear(*reversed(state["text.weight"].shape))
        self.scale = nn.Parameter(torch.zeros(()))
        if "words.weight" in state:
            self.words = nn.Embedding(*state["words.weight"].shape)
        self.load_weights({self.renamed(name): x for name, x in state.items()})

    @staticmethod
    def renamed(name):
        return name.replace("logit_scale", "scale")

    @property
    def logit_scale(self):
        return self.scale

    def encode_images(self, image_features, image_lengths):
        return _unit(self.image(image_features.flatten(1)), image_lengths)

    def encode_captions(self, caption_tokens, caption_lengths):
        items = (
            caption_tokens if caption_tokens.is_floating_point() else self.words(caption_tokens).mean(dim=1)
        )
        return _unit(self.text(items), caption_lengths)


class OpenCLIPTowers(CosineBackbone):
    """OpenCLIP's class at a size of its own, with a vocabulary that ends captions with its largest number."""

    name = "open_clip_towers"

    def __init__(self, state, setting):
        from support.tiny_clip import open_clip  # for the tests of CLIP alone

        super().__init__()
        joint, side, layers, width, patch, context, words, text_width, heads, text_layers = setting.tolist()
        self.towers = open_clip.CLIP(
            joint,
            {"image_size": side, "layers": layers, "width": width, "patch_size": patch, "head_width": 64},
            {
                "context_length": context,
                "vocab_size": words,
                "width": text_width,
                "heads": heads,
                "layers": text_layers,
            },
            quick_gelu=True,
        )
        self.towers.to(next(iter(state.values())).dtype).load_state_dict(state, strict=False)
        assert {name for name, _ in self.towers.named_parameters()} == state.keys()

    @staticmethod
    def renamed(name):
        return f"towers.{name}"

    @property
    def logit_scale(self):
        return self.towers.logit_scale

    def encode_images(self, image_features, image_lengths):
        return _unit(self.towers.encode_image(image_features), image_lengths)

    def encode_captions(self, caption_tokens, caption_lengths):
        return _unit(self.towers.encode_text(caption_tokens), caption_lengths)


def _unit(vectors, lengths):
    vectors = functional.normalize(vectors, dim=-1)
    return Encoded(vectors, lengths, vectors)


def network_of(stored):
    """The stored network, as it is before training."""
    state = {name: stored(f"net.{name}") for name in stored.names("net.")}
    return OpenCLIPTowers(state, stored["setting"]) if "setting" in stored else Towers(state)


def pairs_of(images, captions, first_id=0):
    """A stored batch; its pairs have consecutive numbers."""
    ones = torch.ones(len(images), dtype=torch.int64)
    return Batch(images, ones, captions, ones, first_id + torch.arange(len(images)))


def fine_tuned(method, network, n_pairs, **options):
    """A method on a network that is given."""
    return method(method.Config(**options), Setting(n_pairs, 1, 1, lambda: network))


def assert_parts(stored, start, network, parts):
    """Compare gradients and weights, ``grad`` and ``after`` in the name of their part, of a step just taken."""
    for part, found in parts.items():
        for name in stored:
            if not name.startswith(f"{start}{part}.") or name.endswith("__f64") != stored.double:
                continue
            key = name.removesuffix("__f64")
            ours = network.renamed(key.removeprefix(f"{start}{part}."))
            if "grad" in part:
                stored.near(found[ours], key, 1e-3, 2e-8, scale=0 if stored[name].any() else 1)
            elif not ours.endswith("in_proj_bias"):  # its middle third has no gradient
                assert np.abs(found[ours].detach().numpy() - stored[name]).max() < 1e-6, name


def options_of(setting):
    """What a stored ``setting`` says of schedule and optimiser: base rate, rising steps and epochs come first."""
    rate, rising, epochs, *_ = setting.tolist()
    names = {"learning_rate": rate, "rising_steps": int(rising), "epochs": int(epochs)}
    return names | {"faults": "published"}


def assert_rates(stored, method):
    """Compare the published rate of the batches of every stored schedule."""
    for name in stored.names("schedule.", ".lr"):
        n_pairs, n_batches, epochs, rising, rate = stored[f"schedule.{name}.setting"].tolist()
        made = fine_tuned(method, StandIn(), 1, **options_of(np.array([rate, rising, epochs])))
        batches = SimpleNamespace(pair_ids=range(int(n_pairs)), batch_size=-int(-n_pairs // n_batches))
        rows = stored[f"schedule.{name}.epoch_and_batch"].tolist()
        found = [made.rate(made.plan()[epoch], number, batches) for epoch, number in rows]
        stored.near(found, f"schedule.{name}.lr", 1e-12)
