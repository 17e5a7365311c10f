"""The pseudo-classifier of PC2 (section 4.2): network, loss and entropy."""

from collections.abc import Mapping
from typing import Self, cast

import torch
from torch import Tensor, nn

from baselines.backbones.weight_names import size_of
from baselines.kit.backbone import Encoded

FLOOR = 1e-8


class PseudoClassifier(nn.Module):
    """C of section 4.2: all vectors of an image or caption side by side, one hidden layer, K classes."""

    def __init__(self, n_vectors: int, embed_size: int, hidden_size: int, classes: int) -> None:
        super().__init__()
        self.n_vectors = n_vectors
        self.hidden = nn.Linear(n_vectors * embed_size, hidden_size)
        self.out = nn.Linear(hidden_size, classes)

    def forward(self, vectors: Tensor) -> Tensor:
        """Logits ``(n, K)`` of vectors ``(n, items, dim)``, or of pooled ones ``(n, dim)``."""
        if vectors.dim() == 3:
            vectors = resized(vectors, self.n_vectors).flatten(1)
        logits: Tensor = self.out(torch.relu(self.hidden(vectors)))
        return logits

    @classmethod
    def from_weights(cls, state: Mapping[str, Tensor], embed_size: int) -> Self:
        """Build C from the entries ``img_pro_head.*`` of a network of the paper's code."""
        layers = {"hidden": "img_pro_head.first_hidden_layer.fc", "out": "img_pro_head.output_layer"}
        hidden_size, n_inputs = (size_of(state, f"{layers['hidden']}.weight", dim) for dim in (0, 1))
        head = cls(n_inputs // embed_size, embed_size, hidden_size, size_of(state, f"{layers['out']}.weight"))
        for ours, theirs in layers.items():
            for kind in ("weight", "bias"):
                head.get_parameter(f"{ours}.{kind}").data = state[f"{theirs}.{kind}"].clone()
        return head


def resized(vectors: Tensor, n_items: int) -> Tensor:
    """Sequences ``(n, items, dim)`` at another length: centred between zeros, or interpolated."""
    missing = n_items - vectors.shape[1]
    if missing >= 0:
        return nn.functional.pad(vectors, (0, 0, missing // 2, missing - missing // 2))
    return nn.functional.interpolate(vectors.transpose(1, 2), size=n_items, mode="linear").transpose(1, 2)


def classification_loss(image_logits: Tensor, caption_logits: Tensor) -> Tensor:
    """L^pse of Eq. 2, ``(B,)``: the caption's most likely class is the image's target, without gradient."""
    return nn.functional.cross_entropy(image_logits, caption_logits.argmax(dim=1), reduction="none")


def entropy(probabilities: Tensor) -> Tensor:
    """Entropy over the last dimension (Eq. 3), at least 0."""
    probabilities = probabilities.clamp(min=FLOOR)
    return -(probabilities * probabilities.log()).sum(dim=-1)


def classify(network: nn.Module, items: Encoded) -> Tensor:
    """Logits ``(n, K)`` of images or captions under the pseudo-classifier that ``network`` carries."""
    logits: Tensor = cast(PseudoClassifier, network.pseudo_classifier)(items.vectors)
    return logits
