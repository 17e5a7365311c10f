"""Shared layers: unit length, Xavier layers, words in context, and one vector per image or caption."""

import math

import torch
from torch import Tensor, nn

from baselines.backbones.gru import both_directions
from baselines.kit.batches import sent

EPSILON = 1e-8


def unit_length(x: Tensor) -> Tensor:
    """Divide ``x`` by its Euclidean length along the last dimension plus 1e-8; zeros stay zeros.

    bfloat16 becomes float32.
    """
    wide = torch.promote_types(x.dtype, torch.float32)
    length: Tensor = torch.linalg.vector_norm(x, dim=-1, keepdim=True, dtype=wide)
    return x / (length + EPSILON)


def valid_items(lengths: Tensor, longest: int, device: torch.device) -> Tensor:
    """Bool ``(n, longest)`` on ``device``: True for the first ``lengths[i]`` items of row i."""
    return sent(torch.arange(longest) < lengths[:, None], device)


def xavier_linear(n_in: int, n_out: int) -> nn.Linear:
    """A linear layer with uniform Xavier weights and zero bias."""
    layer = nn.Linear(n_in, n_out)
    bound = math.sqrt(6 / (n_in + n_out))
    nn.init.uniform_(layer.weight, -bound, bound)
    nn.init.zeros_(layer.bias)
    return layer


class WordEncoder(nn.Module):
    """Word embedding and one bidirectional GRU layer; both directions are averaged.

    Args:
        vocabulary_size: rows of the embedding.
        word_dim: size of a word embedding.
        embed_size: size of the joint space.
        dropout: dropout of word embeddings, in [0, 1).
    """

    def __init__(self, vocabulary_size: int, word_dim: int, embed_size: int, dropout: float = 0.0) -> None:
        super().__init__()
        self.embedding = nn.Embedding(vocabulary_size, word_dim)
        self.dropout = nn.Dropout(dropout)
        self.gru = nn.GRU(word_dim, embed_size, batch_first=True, bidirectional=True)
        nn.init.uniform_(self.embedding.weight, -0.1, 0.1)

    def forward(self, tokens: Tensor, lengths: Tensor) -> Tensor:
        """Words in context, float ``(n, longest, embed_size)``, zero beyond a caption's length.

        Args:
            tokens: int64 ``(n, longest)``.
            lengths: int64 ``(n,)``, at least 1, in any order.
        """
        words = self.dropout(self.embedding(tokens))
        return both_directions(self.gru, words, lengths)


class GlobalVector(nn.Module):
    """One vector per image or caption, by self-attention over its parts (SGRAF, section 3.1).

    Args:
        embed_size: dimension of the joint space.
        dropout: in [0, 1).
        n_regions: batch normalisation per region, for images; None for no normalisation, for captions.
    """

    def __init__(self, embed_size: int, dropout: float, n_regions: int | None = None) -> None:
        super().__init__()
        local: list[nn.Module] = [] if n_regions is None else [nn.BatchNorm1d(n_regions)]
        overall: list[nn.Module] = [] if n_regions is None else [nn.BatchNorm1d(embed_size)]
        ending = [nn.Tanh(), nn.Dropout(dropout)]
        self.local = nn.Sequential(xavier_linear(embed_size, embed_size), *local, *ending)
        self.overall = nn.Sequential(xavier_linear(embed_size, embed_size), *overall, *ending)
        self.common = xavier_linear(embed_size, 1)

    def forward(self, parts: Tensor, lengths: Tensor | None = None) -> Tensor:
        """Unit vectors, float ``(n, dim)``.

        Args:
            parts: float ``(n, parts, dim)``, zero beyond a row's length.
            lengths: int64 ``(n,)`` (default: all parts).
        """
        n_parts = parts.shape[1] if lengths is None else sent(lengths, parts.device)[:, None].to(parts)
        mean = parts.sum(dim=1) / n_parts
        scores = self.common(self.local(parts) * self.overall(mean)[:, None]).squeeze(-1)
        if lengths is not None:
            scores = scores.masked_fill(~valid_items(lengths, parts.shape[1], parts.device), -torch.inf)
        weights = torch.softmax(scores, dim=1)
        return unit_length((weights[..., None] * parts).sum(dim=1))
