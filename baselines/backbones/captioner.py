"""The captioner of VSRN (ICCV 2019, section 3.4), which generates captions for a training loss."""

import torch
from torch import Tensor, nn
from torch.nn import functional

from baselines.backbones.encoders import Order, all_states, gru_step, in_rows, on_gpu_path, reading_order
from baselines.kit.batches import to_device, valid_items


def labels_to_write(tokens: Tensor, lengths: Tensor, longest: int) -> tuple[Tensor, Tensor]:
    """Make the captioner's input and target labels.

    Args:
        tokens: int64 ``(n, words)``, padded with 0, the end token last in each caption.
        lengths: int64 ``(n,)``, on the CPU.
        longest: maximum words per caption; a longer one keeps its end token in the last place.

    Returns:
        int64 labels ``(n, at most longest)``, and int64 ``(n,)`` counts: for t below the count, label t is the input
        and label t + 1 the target.
    """
    labels = functional.pad(tokens, (0, 1))[:, :longest]
    places = torch.arange(labels.shape[1], device=lengths.device)
    ends = tokens.gather(1, to_device(lengths - 1, tokens.device)[:, None])
    cut = (places == longest - 1) & (lengths > longest)[:, None]
    return torch.where(to_device(cut, tokens.device), ends, labels), lengths.clamp(max=longest - 1)


def next_state(state: Tensor, entering: Tensor, kept: Tensor) -> Tensor:
    """Compute one step of a GRU.

    Args:
        state: float ``(n, hidden)``.
        entering: float ``(n, 3 * hidden)``, the input's share of reset gate, update gate and new value.
        kept: the state's share, likewise.
    """
    reset, update, new = entering.chunk(3, dim=1)
    reset_kept, update_kept, new_kept = kept.chunk(3, dim=1)
    candidate = torch.tanh(new + torch.sigmoid(reset + reset_kept) * new_kept)
    return candidate + torch.sigmoid(update + update_kept) * (state - candidate)


class Captioner(nn.Module):
    """Generate a caption word by word while attending to the regions (VSRN, section 3.4).

    Args:
        region_dim: dimension of a region.
        vocabulary_size: number of words.
        hidden: size of the states.
        word_dim: dimension of a word embedding.
        dropout: dropout of regions, words and attended regions, in [0, 1).
        longest: maximum words per caption, with start and end token.
    """

    def __init__(
        self, region_dim: int, vocabulary_size: int, hidden: int, word_dim: int, dropout: float, longest: int
    ) -> None:
        super().__init__()
        self.longest = longest
        self.dropout = nn.Dropout(dropout)
        self.regions = nn.Linear(region_dim, hidden)
        self.encoder = nn.GRU(hidden, hidden, batch_first=True)
        self.embedding = nn.Embedding(vocabulary_size, word_dim)
        self.attention = nn.Linear(2 * hidden, hidden)
        self.score = nn.Linear(hidden, 1, bias=False)
        self.cell = nn.GRUCell(word_dim + hidden, hidden)
        self.out = nn.Linear(hidden, vocabulary_size)
        for layer in (self.regions, self.out):
            nn.init.xavier_normal_(layer.weight)

    def forward(self, regions: Tensor, tokens: Tensor, lengths: Tensor) -> Tensor:
        """Negative log-likelihood of each caption, summed over its words, float ``(n,)``.

        Args:
            regions: float ``(n, regions, region_dim)``, regions of each caption's image.
            tokens: int64 ``(n, words)``, padded with 0.
            lengths: int64 ``(n,)``.
        """
        labels, counts = labels_to_write(tokens, lengths, self.longest)
        if torch.compiler.is_compiling():
            return self._padded_costs(regions, labels, counts)
        order = reading_order(counts, labels.shape[1])
        items = to_device(order.items[0], labels.device)
        logits = self.logits(regions, labels, order, items)
        costs = functional.cross_entropy(logits, labels.flatten()[items + 1], reduction="none")
        return in_rows(costs, items, *labels.shape)[:, : len(order.sizes)].sum(dim=1)

    def _padded_costs(self, regions: Tensor, labels: Tensor, counts: Tensor) -> Tensor:
        """:meth:`forward` in shapes that no length changes: padding is written too, and counts nothing."""
        seen = all_states(self.encoder, self.dropout(self.regions(regions)))
        logits = self._logits_of(self._padded_states(seen, labels[:, :-1]))
        targets = labels[:, 1:].T
        costs = functional.cross_entropy(logits.flatten(0, 1), targets.flatten(), reduction="none")
        written = valid_items(counts, len(targets), labels.device)
        return (costs.view_as(targets).T * written).sum(dim=1)

    def logits(self, regions: Tensor, labels: Tensor, order: Order, items: Tensor) -> Tensor:
        """Logits of the words that follow the labels, float ``(all words, vocabulary)``, in reading order.

        Args:
            regions: float ``(n, regions, region_dim)``.
            labels: int64 ``(n, words)``.
            order: reading order of the labels that words follow.
            items: its items, on the device.
        """
        seen = all_states(self.encoder, self.dropout(self.regions(regions)))
        if on_gpu_path(seen):
            states = self._padded_states(seen, labels[:, : len(order.sizes)]).flatten(0, 1)
            n, width = labels.shape
            return self._logits_of(states.index_select(0, items % width * n + items // width))
        return self._logits_of(self._states(seen, labels, order, items))

    def _logits_of(self, states: Tensor) -> Tensor:
        written = states.to(self.out.weight.dtype)
        # bfloat16 is too coarse for a log-likelihood
        with torch.autocast(written.device.type, enabled=False):
            logits: Tensor = self.out(written)
            return logits

    def _states(self, seen: Tensor, labels: Tensor, order: Order, items: Tensor) -> Tensor:
        """States after the labels, float ``(all words, hidden)``, in reading order; see :meth:`logits`."""
        seen = seen[to_device(order.rows, labels.device)]
        state = seen[:, -1]
        words, of_context = self._words(labels.flatten()[items])
        of_seen, of_state = self._attending()
        keys = functional.linear(seen, of_seen, self.attention.bias)
        states = []
        for word in torch.split(words, order.sizes):
            n = len(word)  # longer captions come first, so ended ones drop out
            scores = self.score(torch.tanh(keys[:n] + functional.linear(state[:n], of_state)[:, None]))
            context = (torch.softmax(scores, dim=1).transpose(1, 2) @ seen[:n]).squeeze(1)
            entering = word + functional.linear(self.dropout(context), of_context)
            kept = functional.linear(state[:n], self.cell.weight_hh, self.cell.bias_hh)
            state = next_state(state[:n], entering, kept)
            states.append(state)
        return torch.cat(states)

    def _padded_states(self, seen: Tensor, labels: Tensor) -> Tensor:
        """States after the labels, float ``(words, n, hidden)``, in few operations.

        No caption drops out, and the state enters one product per word.
        """
        state, n_hidden = seen[:, -1], self.cell.hidden_size
        words, of_context = self._words(labels)
        of_seen, of_state = self._attending()
        keys = functional.linear(seen, of_seen, self.attention.bias)
        from_state = torch.cat([of_state, self.cell.weight_hh])
        bias = functional.pad(self.cell.bias_hh, (n_hidden, 0))
        drawn = self.dropout(torch.ones_like(words[..., :n_hidden]))  # one draw for all words
        states = []
        for word, mask in zip(words.unbind(1), drawn.unbind(1), strict=True):
            asked, kept = torch.split(
                functional.linear(state, from_state, bias), [n_hidden, 3 * n_hidden], dim=1
            )
            scores = self.score(torch.tanh(keys + asked[:, None]))
            context = (torch.softmax(scores, dim=1).transpose(1, 2) @ seen).squeeze(1)
            state = gru_step(state, word + functional.linear(context * mask, of_context), kept)
            states.append(state)
        return torch.stack(states)

    def _words(self, labels: Tensor) -> tuple[Tensor, Tensor]:
        """Share of labels in the next state, float ``(..., 3 * hidden)``, and the matrix of the context's share."""
        n_word = self.embedding.embedding_dim
        of_word, of_context = self.cell.weight_ih[:, :n_word], self.cell.weight_ih[:, n_word:]
        return functional.linear(self.dropout(self.embedding(labels)), of_word, self.cell.bias_ih), of_context

    def _attending(self) -> tuple[Tensor, Tensor]:
        """Matrices of the regions' and of the state's share in the attention."""
        n_hidden = self.cell.hidden_size
        return self.attention.weight[:, :n_hidden], self.attention.weight[:, n_hidden:]
