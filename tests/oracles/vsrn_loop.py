"""VSRN one image, one caption and one word at a time, written from the paper (ICCV 2019).

Slow on purpose: every edge of the graph, every word up to the longest length, and the whole attention for each word.
It reads the weights of a network and uses none of its code.
"""

import torch
from torch import Tensor, nn


def image_vectors(network: nn.Module, features: Tensor) -> tuple[Tensor, Tensor]:
    """Unit vectors ``(n, dim)``, and the regions that the captioner reads, ``(n, regions, dim)``."""
    encoder = network.images
    x = encoder.regions(features)
    if encoder.scaled_first:
        x = _over_dimension_1(x)
    for layer in encoder.graph:
        x = x + _normalised(layer.norm, torch.stack([_graph(layer, image) for image in x]))
    regions = _over_dimension_1(x)
    last = torch.stack([_last_state(encoder.gru, image) for image in regions])
    return _over_dimension_1(encoder.norm(last)), regions


def caption_vectors(network: nn.Module, tokens: Tensor, lengths: Tensor) -> Tensor:
    """Unit vectors, float ``(n, dim)``."""
    encoder = network.captions
    captions = zip(tokens, lengths.tolist(), strict=True)
    last = [_last_state(encoder.gru, encoder.embedding(words[:length])) for words, length in captions]
    return _over_dimension_1(torch.stack(last))


def caption_losses(network: nn.Module, regions: Tensor, tokens: Tensor, lengths: Tensor) -> Tensor:
    """Negative log-likelihood of each caption, float ``(n,)``."""
    captioner, longest = network.captioner, network.captioner.longest
    losses = []
    for image, words, length in zip(regions, tokens.tolist(), lengths.tolist(), strict=True):
        caption = words[:length]
        if length > longest:
            caption = [*caption[: longest - 1], caption[-1]]
        labels = [*caption, *[0] * (longest + 1 - len(caption))]
        mask = [t <= len(caption) for t in range(longest + 1)]
        logs = caption_log_probabilities(captioner, image, labels)
        losses.append(-sum(mask[t + 1] * logs[t][labels[t + 1]] for t in range(longest - 1)))
    return torch.stack(losses)


def caption_log_probabilities(captioner: nn.Module, regions: Tensor, labels: list[int]) -> list[Tensor]:
    """Of the word after each label but the last two, float ``(vocabulary,)`` each, for one image."""
    outputs = captioner.encoder(captioner.regions(regions)[None])[0][0]
    state, logs = outputs[-1], []
    for label in labels[:-2]:
        joined = torch.cat([outputs, state.expand(len(outputs), -1)], dim=1)
        weights = torch.softmax(captioner.score(torch.tanh(captioner.attention(joined))), dim=0)
        context = (weights * outputs).sum(dim=0)
        word = captioner.embedding(torch.tensor(label))
        state = captioner.cell(torch.cat([word, context])[None], state[None])[0]
        logs.append(torch.log_softmax(captioner.out(state), dim=0))
    return logs


def _graph(layer: nn.Module, regions: Tensor) -> Tensor:
    dim = regions.shape[1]
    weights, biases = layer.project.weight.split(dim), layer.project.bias.split(dim)
    theta, phi, g = (regions @ w.T + b for w, b in zip(weights, biases, strict=True))
    taken = [
        sum((theta[n] @ phi[m]) / len(regions) * g[m] for m in range(len(regions)))
        for n in range(len(regions))
    ]
    return layer.out(torch.stack(taken))


def _normalised(norm: nn.Module, x: Tensor) -> Tensor:
    """Batch normalisation over images and regions, feature by feature."""
    mean, variance = norm.running_mean, norm.running_var
    if norm.training:
        mean, variance = x.mean(dim=(0, 1)), x.var(dim=(0, 1), unbiased=False)
    return (x - mean) / torch.sqrt(variance + norm.eps) * norm.weight + norm.bias


def _last_state(gru: nn.Module, sequence: Tensor) -> Tensor:
    return gru(sequence[None])[0][0, -1]


def _over_dimension_1(x: Tensor) -> Tensor:
    return x / x.pow(2).sum(dim=1, keepdim=True).sqrt()
