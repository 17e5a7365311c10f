"""SGR's and SAF's similarities in one pass, kept whole: for gradients of gradients, and for given pairs alone.

The blocks of :mod:`baselines.backbones.pairwise` save memory with backward passes of their own, which cannot be
differentiated again. Here every tensor of the size images x captions x words x dim is kept, so batches have to be
small.
"""

import torch
from torch import Tensor
from torch.nn import functional

from baselines.backbones.encoders import unit_length, valid_items
from baselines.backbones.pairwise import SHARPNESS, SLOPE, Nodes, attention
from baselines.backbones.saf import SAF
from baselines.backbones.sgr import SGR
from baselines.backbones.sgraf import SGRAF
from baselines.kit.backbone import Encoded


def all_logits(network: SGRAF, images: Encoded, captions: Encoded) -> Tensor:
    """Similarity of every image with every caption before the sigmoid, float ``(n_images, n_captions)``."""
    words = captions.vectors
    context = torch.bmm(attention(words, images.vectors), images.vectors)
    difference = unit_length(context) - words.flatten(0, 1)
    parts = network.local_nodes(difference.square()).view(len(images), *words.shape[:2], -1)
    whole_images, whole_captions = wholes(images, captions)
    whole = network.global_nodes((whole_images[:, None] - whole_captions).square())
    return logits(network, Nodes(whole, parts), captions)


def own_logits(network: SGRAF, images: Encoded, captions: Encoded) -> Tensor:
    """Similarity of each image with the caption in the same place, before the sigmoid, float ``(n,)``."""
    words = captions.vectors
    scores = functional.leaky_relu(images.vectors @ words.transpose(1, 2), SLOPE)
    weights = torch.softmax(SHARPNESS * unit_length(scores), dim=1).transpose(1, 2)
    parts = network.local_nodes((unit_length(weights @ images.vectors) - words).square())
    whole_images, whole_captions = wholes(images, captions)
    whole = network.global_nodes((whole_images - whole_captions).square())
    return logits(network, Nodes(whole[None], parts[None]), captions).squeeze(0)


def wholes(images: Encoded, captions: Encoded) -> tuple[Tensor, Tensor]:
    """Global vectors, as the network made them."""
    assert images.pooled is not None
    assert captions.pooled is not None
    return images.pooled, captions.pooled


def logits(network: SGRAF, nodes: Nodes, captions: Encoded) -> Tensor:
    """The network's reasoning on nodes of all captions at once, float ``(items, n_captions)``.

    Nothing is computed again in the backward pass, when exchanged weights may be back in their place.
    """
    longest = captions.vectors.shape[1]
    valid = valid_items(1 + captions.lengths, 1 + longest)
    if isinstance(network, SGR):
        return network._block_logits(*nodes, valid, *network.reasoning.shared_terms())
    assert isinstance(network, SAF)
    found, *statistics = network._block_logits(*nodes, valid)
    if network.training:
        network.reasoning.track(*statistics)
    return found
