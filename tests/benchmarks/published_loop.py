"""The loops that the papers' code runs: one caption at a time, or one word at a time over whole batches."""

import torch
from oracles import imram_loop, scan_loop, sgraf_loop
from torch.nn import functional

from baselines.backbones.captioner import labels_to_write
from baselines.backbones.imram import IMRAM
from baselines.backbones.scan import SCAN
from baselines.backbones.sgraf import SGRAF
from baselines.backbones.vsrn import VSRN
from baselines.kit.backbone import Backbone, Encoded


class Loop(Backbone):
    """A network that shares another one's weights and computes as the papers' code does."""

    def __init__(self, network):
        super().__init__()
        self.network = network
        self.embed_size, self.config = network.embed_size, network.config
        self.fixed_regions = network.fixed_regions

    def encode_images(self, image_features, image_lengths):
        """As the other network."""
        return self.network.encode_images(image_features, image_lengths)

    def encode_captions(self, caption_tokens, caption_lengths):
        """As the other network."""
        return self.network.encode_captions(caption_tokens, caption_lengths)

    def similarities(self, images, captions):
        """Caption by caption; as the other network where it pools."""
        network = self.network
        if isinstance(network, SGRAF):
            images, captions = _with_image_vectors(network, images), _with_caption_vectors(network, captions)
            return sgraf_loop.similarities(network, images, captions)
        if isinstance(network, SCAN):
            return _scan(network, images, captions)
        if isinstance(network, IMRAM):
            return _imram(network, images, captions)
        return network.similarities(images, captions)

    def image_image_similarities(self, images, variant="gsc"):
        """Not compared."""
        raise NotImplementedError

    caption_caption_similarities = image_image_similarities

    def auxiliary_losses(self, images, batch):
        """Word by word with VSRN; as the other network otherwise."""
        if not isinstance(self.network, VSRN) or not self.network.training:  # scoring keeps no regions
            return self.network.auxiliary_losses(images, batch)
        losses = caption_losses(self.network.captioner, images.regions, batch)
        return self.network.config.caption_weight * losses


def _with_image_vectors(network, images):
    whole = network.image_vector(images.vectors) if images.pooled is None else images.pooled
    return Encoded(images.vectors, images.lengths, whole)


def _with_caption_vectors(network, captions):
    whole = (
        network.caption_vector(captions.vectors, captions.lengths)
        if captions.pooled is None
        else captions.pooled
    )
    return Encoded(captions.vectors, captions.lengths, whole)


def _scan(network, images, captions):
    """Every attended vector in full; images have the same number of regions."""
    c = network.config
    aggregate = scan_loop.mean if c.aggregation == "avg" else scan_loop.log_sum_exp(network.lse_sharpness)
    columns = []
    for words in _cut(captions, len(images)):
        sides = (words, images.vectors) if c.direction == "t2i" else (images.vectors, words)
        columns.append(aggregate(scan_loop.look(*sides, network.sharpness)))
    return torch.stack(columns, dim=1)


def _imram(network, images, captions):
    """Every attended vector and memory in full; images have the same number of regions."""
    columns = []
    for words in _cut(captions, len(images)):
        sides = {"t2i": (words, images.vectors), "i2t": (images.vectors, words)}
        matched = [
            imram_loop.matched(direction, network.config, *sides[name])
            for name, direction in network.directions.items()
        ]
        columns.append(torch.stack(matched).sum(dim=0))
    return torch.stack(columns, dim=1)


def _cut(captions, n_images):
    """Every caption's words, once for each image, float ``(n_images, words, dim)``."""
    return [
        words[:length].expand(n_images, -1, -1)
        for words, length in zip(captions.vectors, captions.lengths.tolist(), strict=True)
    ]


def caption_losses(captioner, regions, batch):
    """VSRN's caption losses, float ``(pairs,)``: attention in full at each word, up to the longest caption allowed.

    Args:
        captioner: its weights.
        regions: float ``(pairs, regions, region_dim)``.
        batch: the captions.
    """
    labels, counts = labels_to_write(batch.caption_tokens, batch.caption_lengths, captioner.longest)
    labels = functional.pad(labels, (0, captioner.longest - labels.shape[1]))
    seen, last = captioner.encoder(captioner.dropout(captioner.regions(regions)))
    state, logs = last[0], []
    for word in labels[:, :-1].T:
        joined = torch.cat([seen, state[:, None].expand_as(seen)], dim=-1)
        weights = torch.softmax(captioner.score(torch.tanh(captioner.attention(joined))), dim=1)
        context = (weights.transpose(1, 2) @ seen).squeeze(1)
        entering = captioner.dropout(torch.cat([captioner.embedding(word), context], dim=-1))
        state = captioner.cell(entering, state)
        logs.append(torch.log_softmax(captioner.out(state), dim=-1))
    costs = -torch.stack(logs, dim=1).gather(2, labels[:, 1:, None]).squeeze(2)
    written = torch.arange(costs.shape[1], device=costs.device) < counts[:, None]
    return (costs * written).sum(dim=1)
