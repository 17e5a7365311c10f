"""Shared layers: unit length, Xavier layers, words in context, and one-layer gated recurrent units.

On a GPU, cuDNN runs ``torch.nn.GRU``. On a CPU that module backpropagates through about twenty small operations per
item, which dominates a step of a small network. There, :func:`states` computes the same from the module's parameters
with its own matrix products: 7 operations per item forward and 4 backward, for both directions at once.
"""

import math
from collections.abc import Callable
from typing import Any, NamedTuple, cast

import torch
from torch import Tensor, nn
from torch.nn.utils.rnn import PackedSequence

from baselines.kit.batches import to_device

EPSILON = 1e-8
SMALLEST = EPSILON**2
"""Stands for a length of zero, by which nothing is divided."""
CPU_PATH = frozenset({"cpu"})
"""Types of device that do not take the path of a GPU."""


def unit_length(x: Tensor) -> Tensor:
    """Divide ``x`` by its Euclidean length along the last dimension plus 1e-8; zeros stay zeros.

    bfloat16 becomes float32.
    """
    if on_gpu_path(x):
        return _divided(x, -1, True)
    return x / (_length(x, -1) + EPSILON)


def scaled(x: Tensor) -> Tensor:
    """``x`` divided by its Euclidean length along dimension 1; zeros stay zero; bfloat16 becomes float32."""
    if on_gpu_path(x):
        return _divided(x, 1, False)
    length = _length(x, 1)
    return x / length.masked_fill(length == 0, 1.0)


def _length(x: Tensor, dim: int) -> Tensor:
    wide = torch.promote_types(x.dtype, torch.float32)
    length: Tensor = torch.linalg.vector_norm(x, dim=dim, keepdim=True, dtype=wide)
    return length


def _divided(x: Tensor, dim: int, shifted: bool) -> Tensor:
    run = cast("Callable[..., tuple[Tensor, ...]]", _Divided.apply)
    return run(x, dim, shifted)[0]


class _Divided(torch.autograd.Function):
    """:func:`unit_length` and :func:`scaled` for a GPU: a backward pass of six operations in place of eleven, and ``x``
    is not kept. What is kept is returned too, so that second derivatives pass through it.
    """

    @staticmethod
    def forward(ctx: Any, x: Tensor, dim: int, shifted: bool) -> tuple[Tensor, Tensor, Tensor]:
        length = _length(x, dim)
        divisor = length + EPSILON if shifted else length.masked_fill(length == 0, 1.0)
        unit = x / divisor
        ctx.save_for_backward(unit, length, divisor)
        ctx.set_materialize_grads(False)
        ctx.dim, ctx.dtype = dim, x.dtype
        return unit, length, divisor

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor, None, None]:
        (grad, *of_lengths), (unit, length, divisor) = grads, ctx.saved_tensors
        grad = torch.zeros_like(unit) if grad is None else grad
        along = (grad * unit).sum(dim=ctx.dim, keepdim=True)
        for of_length in of_lengths:
            if of_length is not None:
                along = along - of_length * divisor
        along = along / length.clamp_min(SMALLEST)
        return torch.addcmul(grad / divisor, unit, along, value=-1).to(ctx.dtype), None, None


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


def both_directions(gru: nn.GRU, sequences: Tensor, lengths: Tensor) -> Tensor:
    """Mean of both directions' states, float ``(n, longest, hidden_size)``, zero beyond the lengths."""
    forwards, backwards = states(gru, sequences, lengths).unbind(dim=2)
    return (forwards + backwards) / 2


def last_state(gru: nn.GRU, sequences: Tensor, lengths: Tensor) -> Tensor:
    """State of a one-direction GRU after each sequence's last item, float ``(n, hidden_size)``."""
    rows = torch.arange(len(sequences), device=sequences.device)
    return states(gru, sequences, lengths)[rows, to_device(lengths - 1, sequences.device), 0]


def all_states(gru: nn.GRU, sequences: Tensor) -> Tensor:
    """States of a one-direction GRU over sequences of equal length, float ``(n, length, hidden_size)``."""
    if on_gpu_path(sequences) and not torch.compiler.is_compiling():
        with torch.autocast(sequences.device.type, enabled=False):
            all_of_them: Tensor = gru(sequences.to(next(gru.parameters()).dtype))[0]
        return all_of_them
    n, length, _ = sequences.shape
    return states(gru, sequences, torch.full((n,), length, device=sequences.device)).squeeze(2)


def states(gru: nn.GRU, sequences: Tensor, lengths: Tensor) -> Tensor:
    """States of a GRU, float ``(n, longest, directions, hidden_size)``, zero beyond the lengths.

    Args:
        gru: one layer, with biases, ``batch_first``.
        sequences: float ``(n, longest, input_size)``.
        lengths: int64 ``(n,)``, at least 1, in any order, on the CPU.
    """
    kind, (n, longest, _) = sequences.device.type, sequences.shape
    # bfloat16 does not speed up products of single items, and cuDNN would take float16 in its place
    if torch.is_autocast_enabled(kind):
        with torch.autocast(kind, enabled=False):
            return states(gru, sequences.float(), lengths)
    if torch.compiler.is_compiling():
        return padded_states(gru, sequences, lengths)
    if on_gpu_path(sequences):
        order = reading_order(lengths, longest)
        items = to_device(order.items[0], sequences.device)
        read = sequences.flatten(0, 1).index_select(0, items)
        in_steps = gru(PackedSequence(read, torch.tensor(order.sizes)))[0].data
        return in_rows(in_steps, items, n, longest).view(n, longest, -1, gru.hidden_size)
    run = cast("Callable[..., Tensor]", _States.apply)
    return run(sequences, *_parameters(gru), reading_order(lengths, longest, 1 + gru.bidirectional))


def _parameters(gru: nn.GRU) -> list[Tensor]:
    """Input and state weights, ``(directions, 3 * hidden, ...)``, and their biases."""
    endings = ("", "_reverse") if gru.bidirectional else ("",)
    return [
        torch.stack([getattr(gru, f"{name}_l0{ending}") for ending in endings])
        for name in ("weight_ih", "weight_hh", "bias_ih", "bias_hh")
    ]


def padded_states(gru: nn.GRU, sequences: Tensor, lengths: Tensor) -> Tensor:
    """:func:`states` in shapes that no length changes, for a compiled step; ``lengths`` are on the device."""
    longest, (weight, weight_kept, bias, bias_kept) = sequences.shape[1], _parameters(gru)
    times = torch.arange(longest, device=sequences.device)
    # a sequence is read backwards from its last item; its padding comes after it, and is turned too
    turned = (to_device(lengths, sequences.device)[:, None] - 1 - times) % longest
    rows = torch.arange(len(sequences), device=sequences.device)[:, None]
    both = [sequences, sequences[rows, turned]] if gru.bidirectional else [sequences]
    items = torch.stack(both).transpose(1, 2)
    entering = torch.baddbmm(bias[:, None], items.flatten(1, 2), weight.transpose(1, 2))
    entering = entering.view(*items.shape[:3], -1)
    state = entering.new_zeros(*entering.shape[:1], len(sequences), gru.hidden_size)
    states_of_items = []
    for item in entering.unbind(1):
        state = gru_step(state, item, torch.baddbmm(bias_kept[:, None], state, weight_kept.transpose(1, 2)))
        states_of_items.append(state)
    forwards, *backwards = torch.stack(states_of_items, dim=2).unbind(0)
    every = torch.stack([forwards, *(x[rows, turned] for x in backwards)], dim=2)
    return every * (times < to_device(lengths, times.device)[:, None])[..., None, None]


def on_gpu_path(x: Tensor) -> bool:
    """Whether ``x`` takes the path with few large operations; a CPU's path computes no padding."""
    return x.device.type not in CPU_PATH or torch.compiler.is_compiling()


def gru_step(state: Tensor, entering: Tensor, kept: Tensor) -> Tensor:
    """Compute one step of a GRU, both gates at once.

    Args:
        state: float ``(..., hidden)``.
        entering: float ``(..., 3 * hidden)``, the input's share of reset gate, update gate and new value.
        kept: the state's share, likewise.
    """
    hidden = state.shape[-1]
    gates, new = torch.split(entering, [2 * hidden, hidden], dim=-1)
    gates_kept, new_kept = torch.split(kept, [2 * hidden, hidden], dim=-1)
    reset, update = torch.sigmoid(gates + gates_kept).chunk(2, dim=-1)
    new = torch.tanh(torch.addcmul(new, reset, new_kept))
    return torch.lerp(new.to(state.dtype), state, update.to(state.dtype))


def in_rows(values: Tensor, items: Tensor, n: int, longest: int) -> Tensor:
    """Put the values of items in reading order back into rows, ``(n, longest, ...)``, zero beyond their lengths.

    Args:
        values: ``(total, ...)``.
        items: int64 ``(total,)``, one direction of :class:`Order`, on the device of ``values``.
        n: number of rows.
        longest: items per row.
    """
    rows = values.new_zeros(n * longest, *values.shape[1:]).index_copy(0, items, values)
    return rows.view(n, longest, *values.shape[1:])


class Order(NamedTuple):
    """Reading order of the items: all first items, then all second ones, longer sequences first.

    Attributes:
        items: int64 ``(directions, total)``, position of each item among all ``n * longest``.
        sizes: number of items at each time step, decreasing.
        rows: int64 ``(n,)``, the sequences, longest first.
    """

    items: Tensor
    sizes: list[int]
    rows: Tensor


def reading_order(lengths: Tensor, longest: int, directions: int = 1) -> Order:
    """Order the items of padded sequences, on the CPU; torch's own functions would take a copy per time step.

    Args:
        lengths: int64 ``(n,)``, at least 1, in any order, on the CPU.
        longest: items per padded row.
        directions: 2 to read every sequence backwards too.
    """
    falling, rows = torch.sort(lengths, descending=True)
    times = torch.arange(int(falling[0]))[:, None]
    read = times < falling
    items = [rows * longest + times, rows * longest + falling - 1 - times][:directions]
    return Order(torch.stack([x[read] for x in items]), read.sum(dim=1).tolist(), rows)


class _States(torch.autograd.Function):
    """GRU with a hand-written backward pass. Input x, state h, elementwise ``*`` (Cho et al., 2014, in cuDNN's form):

    r = sigmoid(W_r x + b_r + U_r h + c_r), z = sigmoid(W_z x + b_z + U_z h + c_z),
    m = U_n h + c_n, n = tanh(W_n x + b_n + r * m), and the next state is n + z * (h - n).

    Second derivatives are left to autograd.
    """

    @staticmethod
    def forward(
        ctx: Any, sequences: Tensor, w: Tensor, u: Tensor, b: Tensor, c: Tensor, order: Order
    ) -> Tensor:
        hidden = u.shape[2]
        items = sequences.flatten(0, 1)[order.items]
        from_items = torch.cat([c[:, : 2 * hidden], torch.zeros_like(c[:, 2 * hidden :])], dim=1) + b
        gates = torch.baddbmm(from_items[:, None], items, w.transpose(1, 2))
        kept, states_by_step = (gates.new_empty(*gates.shape[:2], hidden) for _ in range(2))
        h = gates.new_zeros(len(u), order.sizes[0], hidden)
        room = gates.new_empty(h.numel() * 3)
        new_bias, u_back = c[:, None, 2 * hidden :], u.transpose(1, 2)
        at = [
            torch.split(x, order.sizes, dim=1)
            for x in (gates[..., : 2 * hidden], gates[..., 2 * hidden :], kept, states_by_step)
        ]
        for both, n, m, h_next in zip(*at, strict=True):
            h = h[:, : n.shape[1]]
            from_state = room[: 3 * h.numel()].view(*h.shape[:2], -1)
            torch.bmm(h, u_back, out=from_state)
            both.add_(from_state[..., : 2 * hidden]).sigmoid_()
            torch.add(from_state[..., 2 * hidden :], new_bias, out=m)
            n.addcmul_(both[..., :hidden], m).tanh_()
            h = torch.lerp(n, h, both[..., hidden:], out=h_next)
        ctx.order = order
        ctx.save_for_backward(sequences, w, u, b, c, gates, kept, states_by_step)
        return _in_place(states_by_step, sequences, order)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        *inputs, gates, kept, states_by_step = ctx.saved_tensors
        order: Order = ctx.order
        if torch.is_grad_enabled():
            again = _by_autograd(order, *inputs)
            needed = [x for x, wanted in zip(inputs, ctx.needs_input_grad, strict=False) if wanted]
            grads = iter(torch.autograd.grad(again, needed, grad, create_graph=True))
            return *(next(grads) if wanted else None for wanted in ctx.needs_input_grad[:5]), None
        sequences, w, u, _, _ = inputs
        hidden = u.shape[2]
        r, z, n = gates.chunk(3, dim=-1)
        of_new = (1 - z).addcmul_(n * n, z - 1)
        slopes = gates.new_empty(
            *states_by_step.shape[:2], 3, hidden
        )  # derivatives of r, z and m by the state
        torch.mul(of_new, r, out=slopes[:, :, 2])
        torch.mul(states_by_step - n, 1 - z, out=slopes[:, :, 1])
        torch.mul(slopes[:, :, 2], kept * (1 - r), out=slopes[:, :, 0])
        d_states = torch.stack([x[i] for x, i in zip(grad.flatten(0, 1).unbind(1), order.items, strict=True)])
        d_gates = torch.empty_like(gates)
        room = gates.new_empty(len(u) * order.sizes[0] * hidden)
        carried = room[:0].view(len(u), 0, hidden)
        at = [torch.split(x, order.sizes, dim=1) for x in (d_states, slopes, d_gates.view(slopes.shape), z)]
        for d_h, slope, d_gate, z_now in zip(*(x[::-1] for x in at), strict=True):
            d_h[:, : carried.shape[1]].add_(carried)
            torch.mul(d_h[:, :, None], slope, out=d_gate)
            carried = room[: d_h.numel()].view(d_h.shape)
            torch.mul(d_h, z_now, out=carried)
            carried.baddbmm_(d_gate.flatten(2), u)
        d_u = d_gates[:, order.sizes[0] :].transpose(1, 2) @ states_by_step[:, _before(order.sizes)]
        d_c = d_gates.sum(dim=1)
        torch.mul(d_states, of_new, out=d_gates[..., 2 * hidden :])
        items = sequences.flatten(0, 1)[order.items]
        d_w, d_b = d_gates.transpose(1, 2) @ items, d_gates.sum(dim=1)
        d_sequences = None
        if ctx.needs_input_grad[0]:
            d_sequences = torch.zeros_like(sequences)
            for of_items, places in zip(d_gates @ w, order.items, strict=True):
                d_sequences.flatten(0, 1).index_add_(0, places, of_items)
        return d_sequences, d_w, d_u, d_b, d_c, None


def _before(sizes: list[int]) -> Tensor:
    """Position of the previous item in its sequence, for all items but the first ones, int64."""
    counts = torch.tensor(sizes)
    return torch.arange(sizes[0], sum(sizes)) - counts[:-1].repeat_interleave(counts[1:])


def _in_place(states_by_step: Tensor, sequences: Tensor, order: Order) -> Tensor:
    """Unpack states ``(directions, total, hidden)`` to ``(n, longest, directions, hidden)``, zero past the lengths."""
    n, longest, _ = sequences.shape
    out = states_by_step.new_zeros(n * longest, len(states_by_step), states_by_step.shape[2])
    for direction, (rows, places) in enumerate(zip(states_by_step, order.items, strict=True)):
        out[places, direction] = rows
    return out.view(n, longest, *out.shape[1:])


def _by_autograd(order: Order, sequences: Tensor, w: Tensor, u: Tensor, b: Tensor, c: Tensor) -> Tensor:
    """Compute the equations step by step, for autograd."""
    from_items = torch.baddbmm(b[:, None], sequences.flatten(0, 1)[order.items], w.transpose(1, 2))
    h = from_items.new_zeros(len(u), order.sizes[0], u.shape[2])
    states_by_step = []
    for entering in torch.split(from_items, order.sizes, dim=1):
        h = h[:, : entering.shape[1]]
        r, z, n = entering.chunk(3, dim=-1)
        r_kept, z_kept, m = torch.baddbmm(c[:, None], h, u.transpose(1, 2)).chunk(3, dim=-1)
        n = torch.tanh(n + torch.sigmoid(r + r_kept) * m)
        h = n + torch.sigmoid(z + z_kept) * (h - n)
        states_by_step.append(h)
    return _in_place(torch.cat(states_by_step, dim=1), sequences, order)
