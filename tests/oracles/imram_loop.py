"""IMRAM one caption at a time, written from the equations of the paper (CVPR 2020).

Slow on purpose: every attended vector and every memory is made in full, each caption cut to its words and each image
to its regions. It reads the weights of a network's memory units and uses none of its similarity code.
"""

import torch
from oracles.scan_loop import cosine, leaky_unit, unit
from torch import Tensor, nn

from baselines.kit.backbone import Encoded


def similarities(network: nn.Module, images: Encoded, captions: Encoded) -> Tensor:
    """Similarity of every image with every caption, float ``(n_images, n_captions)``."""
    result = images.vectors.new_zeros(len(images), len(captions))
    for k, length in enumerate(captions.lengths.tolist()):
        for count in images.lengths.unique().tolist():
            same = images.lengths == count
            parts = images.vectors[same, :count]
            words = captions.vectors[k, :length].expand(len(parts), -1, -1)
            for name, direction in network.directions.items():
                looking, seen = (words, parts) if name == "t2i" else (parts, words)
                result[same, k] += matched(direction, network.config, looking, seen)
    return result


def matched(direction: nn.Module, config: object, looking: Tensor, seen: Tensor) -> Tensor:
    """Sum over the steps of the mean cosine, float ``(n,)``, of ``(n, items, dim)`` either side."""
    memory, total = looking, 0.0
    for _ in range(config.steps):
        scores = leaky_unit(torch.bmm(seen, memory.transpose(1, 2)))
        weights = torch.softmax(config.attention_sharpness * scores, dim=1)
        attended = torch.bmm(weights.transpose(1, 2), seen)
        total = total + cosine(looking, attended).mean(dim=-1)
        joined = torch.cat([memory, attended], dim=-1)
        gate = torch.sigmoid(direction.unit.gate(joined))
        memory = gate * memory + (1 - gate) * torch.tanh(direction.unit.linear(joined))
        if config.memory_norm:
            memory = unit(memory)
    return total
