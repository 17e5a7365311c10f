"""SGR and SAF one caption at a time, written from the equations of SGRAF (AAAI 2021) and GSC (CVPR 2024).

Slow on purpose: for each caption all pairs with it are made in full, nothing merged and nothing left out. It
reads the weights of a network and uses none of its similarity code.
"""

import torch
from torch import Tensor, nn

from baselines.kit.backbone import Encoded


def similarities(network: nn.Module, images: Encoded, captions: Encoded) -> Tensor:
    """Similarity of every image with every caption, float ``(n_images, n_captions)``."""
    columns = []
    for k, length in enumerate(captions.lengths.tolist()):
        words = captions.vectors[k, :length].expand(len(images), -1, -1)
        whole = captions.pooled[k].expand(len(images), -1)
        context = attended(words, images.vectors)
        columns.append(_logits(network, context - words, images.pooled - whole, 0.0, 0.0))
    return torch.sigmoid(torch.stack(columns, dim=1))


def image_image_similarities(network: nn.Module, images: Encoded) -> Tensor:
    """GSC's similarity of images, one anchor (column) at a time: region r against region r."""
    columns = []
    for k in range(len(images)):
        parts = images.vectors - images.vectors[k]
        columns.append(_logits(network, parts, images.pooled - images.pooled[k], 1e-6, 1e-6))
    return torch.sigmoid(torch.stack(columns, dim=1))


def caption_caption_similarities(network: nn.Module, captions: Encoded) -> Tensor:
    """GSC's similarity of captions, one anchor (column) at a time: its words attend to every caption."""
    longest = int(captions.lengths.max())
    hidden = torch.arange(longest) >= captions.lengths[:, None]
    columns = []
    for k, length in enumerate(captions.lengths.tolist()):
        words = captions.vectors[k, :length].expand(len(captions), -1, -1)
        context = attended(words, captions.vectors[:, :longest] + 1e-6, hidden)
        columns.append(_logits(network, context - words, captions.pooled - captions.pooled[k], 0.0, 1e-6))
    return torch.sigmoid(torch.stack(columns, dim=1))


def attended(words: Tensor, parts: Tensor, hidden: Tensor | None = None) -> Tensor:
    """What each word sees of the other side, float ``(n, words, dim)``, of unit length."""
    scores = nn.functional.leaky_relu(torch.bmm(parts, words.transpose(1, 2)), 0.1)
    scores = 9 * _unit(scores)
    if hidden is not None:
        scores = scores.masked_fill(hidden[:, :, None], -1e9)
    return _unit(torch.bmm(torch.softmax(scores, dim=1).transpose(1, 2), parts))


def _unit(x: Tensor) -> Tensor:
    return x / (x.pow(2).sum(dim=-1, keepdim=True).sqrt() + 1e-8)


def _logits(
    network: nn.Module, parts: Tensor, whole: Tensor, parts_offset: float, whole_offset: float
) -> Tensor:
    local = _unit(network.local_nodes(parts.pow(2) + parts_offset))
    overall = _unit(network.global_nodes(whole.pow(2) + whole_offset))
    nodes = torch.cat([overall[:, None], local], dim=1)
    vectors = _reasoned(network, nodes) if hasattr(network.reasoning, "steps") else _filtered(network, nodes)
    return network.head(vectors).squeeze(1)


def _reasoned(network: nn.Module, nodes: Tensor) -> Tensor:
    for step in network.reasoning.steps:
        edges = torch.softmax(torch.bmm(step.query(nodes), step.key(nodes).transpose(1, 2)), dim=-1)
        nodes = torch.relu(step.out(torch.bmm(edges, nodes)))
    return nodes[:, 0]


def _filtered(network: nn.Module, nodes: Tensor) -> Tensor:
    scores = network.reasoning.norm(network.reasoning.score(nodes).permute(0, 2, 1))
    weights = torch.sigmoid(scores)
    weights = weights / (weights.abs().sum(dim=-1, keepdim=True) + 1e-8)
    return _unit(torch.bmm(weights, nodes).squeeze(1))
