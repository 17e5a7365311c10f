"""What golden parity tests share: stored networks, batches and gradients, in either precision; small fresh networks.

Arrays of a float64 run end in ``__f64``. Tolerances are those of the index beside the golden files.
"""

from collections.abc import Callable, Mapping
from functools import partial
from types import MappingProxyType

import numpy as np
import torch
from support.rounding import assert_near
from torch import Tensor, nn

from baselines.backbones import BACKBONES, build_backbone
from baselines.kit.batches import Batch
from baselines.kit.losses import hinge_costs
from baselines.published.weights import network_from

Arrays = Mapping[str, np.ndarray]
Golden = Callable[[str], Arrays]
State = Mapping[str, Tensor]

FILES = {
    "imram": "P_imram",
    "saf": "A_backbone_saf",
    "scan": "N_scan",
    "sgr": "A_backbone_sgr",
    "vse_infinity": "B_backbone_vse",
    "vsrn": "O_vsrn_f30k",
}
TRAINED = sorted(name for name in BACKBONES if not BACKBONES[name].closed_form)
"""Backbones with a gradient."""
PARTS = ("img_enc.", "txt_enc.", "sim_enc.", "linear_", "gate_", "caption_model.")
SUFFIX = {torch.float32: "", torch.float64: "__f64"}
PRECISIONS = list(SUFFIX)
NOISE = 1e-4
"""Largest entry of a gradient that vanishes in exact arithmetic, where float32 shows rounding alone."""


def tensor(array, dtype=None):
    """An array as a tensor of its own; floating-point numbers in ``dtype``."""
    found = torch.from_numpy(np.array(array))
    return found.to(dtype) if dtype is not None and found.is_floating_point() else found


def names_between(stored, start, end=""):
    """What stands between ``start`` and ``end`` in the names of arrays; at least one."""
    last = -len(end) or None
    found = [name[len(start) : last] for name in stored if name.startswith(start) and name.endswith(end)]
    assert found
    return found


def state_of(stored, prefix="", dtype=None, suffix=""):
    """Published name to tensor, of the arrays named ``prefix`` + published name + ``suffix``."""
    return {
        name: tensor(stored[prefix + name + suffix], dtype)
        for name in names_between(stored, prefix, suffix)
        if name.startswith(PARTS) and not name.endswith("__f64")
    }


def network_of(backbone, state, **options):
    """A network in evaluation mode with published weights and, as in the golden runs, without dropout."""
    return without_dropout(network_from(backbone, state, **options)).eval()


def without_dropout(network):
    """The network itself, its dropout rates set to zero."""
    for module in network.modules():
        if isinstance(module, nn.Dropout):
            module.p = 0.0
    return network


def batch_of(
    stored,
    prefix="in.",
    dtype=None,
    *,
    regions="",
    ids=0,
    order=None,
):
    """A stored batch.

    Args:
        stored: arrays named ``prefix`` + ``images``, ``captions``, ``lengths``, and perhaps ``image_lengths``.
        prefix: of the names.
        dtype: of the features.
        regions: ``"_full"`` or ``"_var"`` for VSE-infinity, whose images have all regions or fewer.
        ids: of the pairs, or the first one of consecutive numbers.
        order: of the pairs; as stored by default.
    """
    images, captions, lengths = (
        tensor(stored[prefix + x], dtype) for x in (f"images{regions}", "captions", "lengths")
    )
    counts = torch.full((len(images),), images.shape[1])
    if (name := f"{prefix}image_lengths{regions}") in stored:
        counts = tensor(stored[name])
    arrays = (images, counts, captions, lengths)
    if order is not None:
        arrays = tuple(x[tensor(order)] for x in arrays)
    return Batch(*arrays, ids + torch.arange(len(images)) if isinstance(ids, int) else ids)


def network_batches(stored, letters):
    """The stored batches of each letter, in order; pairs are numbered from 0 through all of them."""
    names = stored.names("batch.", ".images")
    found = {letter: [] for letter in letters}
    first = 0
    for name in sorted(names, key=lambda x: (letters.index(x[0]), int(x[1:]))):
        found[name[0]].append(stored.batch(f"batch.{name}.", ids=first))
        first += len(found[name[0]][-1])
    return found


def encoded(network, batch):
    """A batch in the joint space."""
    images = network.encode_images(batch.image_features, batch.image_lengths)
    return images, network.encode_captions(batch.caption_tokens, batch.caption_lengths)


def gradients_of(network):
    """Name to gradient; zero where none arrived."""
    return {
        name: torch.zeros_like(weight) if weight.grad is None else weight.grad
        for name, weight in network.named_parameters()
    }


def assert_weights(
    found,
    build,
    base,
    wanted,
    *,
    relative,
    absolute=0.0,
    of_all=0.0,
    noise=None,
    vanishing=(),
    some=False,
    left_out=(),
):
    """Compare numbers of every parameter, gradients for example, with arrays under published names.

    An array may deviate by ``relative`` times its largest entry, by ``of_all`` times the largest entry of all wanted
    arrays, or by ``absolute``.

    Args:
        found: our name to tensor.
        build: from a published state to a network with our names.
        base: a whole published state.
        wanted: published name to tensor; where none is stored there must be none.
        relative: of the largest entry.
        absolute: suffices, however small the entries are.
        of_all: see above.
        noise: allowed, and nothing else, where no entry is above :data:`NOISE`.
        vanishing: ends of names of what is zero in exact arithmetic.
        some: what ``wanted`` lacks is not compared.
        left_out: our names of what is not compared either.
    """
    dtype = next(iter(wanted.values())).dtype
    floats = {name: x.to(dtype) for name, x in base.items() if x.is_floating_point()}
    names = list(floats)
    assert wanted.keys() <= floats.keys()
    absolute = max(absolute, of_all * max(x.abs().max().item() for x in wanted.values()))
    rest = {name: x for name, x in base.items() if name not in floats}
    expected, owners = (
        dict(build(rest | values).named_parameters())
        for values in (
            {name: wanted.get(name, torch.zeros_like(x)) for name, x in floats.items()},
            {name: torch.full_like(x, k) for k, (name, x) in enumerate(floats.items())},
        )
    )
    compared = set()
    for ours, owner in owners.items():
        for k in owner.detach().unique().tolist():
            name, here = names[int(k)], owner == k
            if some and (name not in wanted or ours in left_out):
                continue
            compared.add(name)
            want = expected[ours][here].detach()
            largest, deviation = (
                want.abs().max().item(),
                (found[ours].detach()[here] - want).abs().max().item(),
            )
            allowed = max(relative * largest, absolute)
            if name.endswith(tuple(vanishing)):
                allowed = torch.inf if dtype == torch.float32 else 1e-9
            elif noise is not None and largest <= NOISE:
                allowed = noise
            assert deviation <= allowed, (
                f"{name}: deviates by {deviation:.1e}, allowed are {allowed:.1e} of {largest:.1e}"
            )
    assert some or wanted.keys() <= compared
    assert compared


def assert_gradients(
    network,
    backbone,
    base,
    wanted,
    options=None,
    **allowed,
):
    """Compare the gradients of a network with these options; see :func:`assert_weights`."""

    def build(state):
        return network_of(backbone, state, **options or {})

    assert_weights(gradients_of(network), build, base, wanted, **allowed)


class Stored(dict[str, np.ndarray]):
    """A golden file in one precision: inputs are cast to it, and results are those of the run in it.

    Args:
        arrays: of the file.
        end: of the names of results: empty for float32, ``__f64`` for float64.
    """

    def __init__(self, arrays, end):
        super().__init__(arrays)
        self.end, self.double = end, bool(end)
        self.dtype = torch.float64 if end else torch.float32

    def __call__(self, name):
        """An input."""
        return tensor(self[name], self.dtype)

    def leaf(self, name):
        """An input with a gradient."""
        return self(name).requires_grad_()

    def has(self, name):
        """Whether a result is stored."""
        return name + self.end in self

    def names(self, start, end=""):
        """What stands between start and end in the names of inputs; see :func:`names_between`."""
        return names_between(self, start, end)

    def results(self, start, end):
        """The same in the names of results."""
        return names_between(self, start, end + self.end)

    def near(self, found, name, single=1e-4, double=1e-8, *, scale=0.0):
        """Compare with a result; see :func:`assert_near`."""
        want = self[name + self.end]
        assert_near(found, want, double if self.double else single, scale=scale, name=name)

    def equal(self, found, name):
        """Compare with a result that has no rounding."""
        np.testing.assert_array_equal(found, self[name], err_msg=name)

    def state(self, prefix=""):
        """Published name to weight."""
        return state_of(self, prefix, self.dtype)

    def wanted(self, prefix):
        """Published name to gradient or weight that the run gave; empty where none is stored."""
        some = any(name.startswith(prefix) and name.endswith(self.end) for name in self)
        return state_of(self, prefix, self.dtype, self.end) if some else {}

    def batch(self, prefix="in.", **options):
        """See :func:`batch_of`."""
        return batch_of(self, prefix, self.dtype, **options)

    def network(self, backbone, prefix="", **options):
        """A stored network; see :func:`network_of`."""
        return network_of(backbone, self.state(prefix), **options)

    def near_gradients(self, network, prefix, base, backbone, slope=1e-3, **allowed):
        """Compare the gradients of a network, if any are stored; see :func:`assert_weights`.

        Args:
            network: that holds them.
            prefix: of their names, which continue with the published name.
            base: a whole published state.
            backbone: of the network.
            slope: tolerance in float32.
            allowed: in place of the tolerances, and what else :func:`assert_weights` takes.

        Returns:
            Whether they are stored.
        """
        if wanted := self.wanted(prefix):
            near = (
                {"relative": 1e-7, "of_all": 1e-9} if self.double else {"relative": slope, "absolute": 1e-4}
            )
            assert_gradients(network, backbone, base, wanted, **{"some": True, **near, **allowed})
        return bool(wanted)

    def near_step(
        self,
        step,
        start,
        base=None,
        backbone="sgr",
        *,
        single=1e-4,
        double=1e-8,
        slope=1e-3,
        terms=MappingProxyType({}),
        **allowed,
    ):
        """Compare the last step: loss, length of the gradient, gradients and, in float64, the weights that follow.

        Args:
            step: which computed it.
            start: of the names of ``loss``, ``grad_norm``, ``grad.*`` and ``after.*``; those that are stored count.
            base: a whole published state, without which no gradient is compared.
            backbone: of the network.
            single: tolerance of numbers in float32.
            double: and in float64.
            slope: tolerance of gradients in float32.
            terms: other numbers by their stored names.
            allowed: see :meth:`near_gradients`.
        """
        assert self.has(f"{start}loss") or terms, start
        for name, found in {"loss": step.losses[-1], "grad_norm": step.norms[-1], **terms}.items():
            if name in terms or self.has(start + name):
                self.near(found, start + name, single, double)
        if base is not None:
            self.near_gradients(step.calls[-1][0][0], f"{start}grad.", base, backbone, slope, **allowed)
        if base is not None and self.double and not step.update and (after := self.wanted(f"{start}after.")):
            near_weights_after(step, after, base, backbone)


def near_weights_after(step, after, base, backbone):
    """Clip the gradients of the last step, let its optimiser take one at rate 2e-3, and compare the weights.

    Args:
        step: which computed them and did not move a weight.
        after: published name to weight.
        base: a whole published state.
        backbone: of the network.
    """
    network = step.calls[-1][0][0]
    vanishing = [
        name for name, x in gradients_of(network).items() if x.abs().max() <= 1e-9
    ]  # move as far as others
    nn.utils.clip_grad_norm_(network.parameters(), 2.0)
    for group in step.optimizers[network].param_groups:
        group["lr"] = 2e-3
    step.optimizers[network].step()
    weights, build = dict(network.named_parameters()), partial(network_of, backbone)
    assert_weights(weights, build, base, after, relative=1e-6, absolute=1e-6, some=True, left_out=vanishing)


def assert_matrix_losses(
    stored,
    losses,
    *,
    value=2e-6,
    slope=2e-4,
    scale=1e-3,
    tied=(),
):
    """Compare losses of every stored matrix of similarities, and their gradients.

    Args:
        stored: ``scores.<matrix>``, ``<matrix>.<loss>.value`` and ``.grad``.
        losses: name to function of a matrix.
        value: tolerance in float32.
        slope: the same of gradients.
        scale: of both; see :func:`assert_near`.
        tied: matrices, or single losses of one, whose ties the library may break in any way: values alone count.
    """
    for matrix in stored.names("scores."):
        for loss, loss_of in losses.items():
            scores, name = stored.leaf(f"scores.{matrix}"), f"{matrix}.{loss}"
            if not stored.has(f"{name}.value"):
                continue
            found = loss_of(scores)
            found.sum().backward()
            stored.near(found, f"{name}.value", value, scale=scale)
            if matrix not in tied and name not in tied:
                stored.near(scores.grad, f"{name}.grad", slope, scale=scale)


def assert_trajectory(losses, want, first=1e-4, later=1e-2):
    """Compare the losses of several optimiser steps, in which rounding grows."""
    assert_near(losses, want, later)
    assert_near(losses[:2], want[:2], first)


def published_loss(similarities, *, hardest):
    """Hinge costs at margin 0.2, summed over the batch: of the hardest negatives, or of all."""
    captions, images = hinge_costs(similarities, 0.2)
    if hardest:
        return captions.max(dim=1).values.sum() + images.max(dim=0).values.sum()
    return captions.sum() + images.sum()


def five_steps(
    parameters,
    loss,
    after=lambda step: None,
):
    """Losses and lengths of the gradient (before it is clipped at 2) over five steps of Adam."""
    optimizer = torch.optim.Adam(parameters, lr=2e-3)
    losses, lengths = [], []
    for step in range(5):
        optimizer.zero_grad()
        value = loss()
        value.backward()
        lengths.append(nn.utils.clip_grad_norm_(parameters, 2.0).item())
        optimizer.step()
        losses.append(value.item())
        after(step)
    return losses, lengths


def weighted_gradients(network, result):
    """Name to gradient of the entries' sum under random weights, where there is one."""
    network.zero_grad()
    generator = torch.Generator().manual_seed(2)
    (result * torch.randn(result.shape, generator=generator, dtype=result.dtype)).sum().backward()
    return {name: p.grad for name, p in network.named_parameters() if p.grad is not None}


def small_network(name, seed=0, **options):
    """A fresh network on 16 x 66 features with 40 words, in double precision and evaluation mode."""
    torch.manual_seed(seed)
    config = BACKBONES[name].Config(**{"embed_size": 32, "word_dim": 12, **options})
    network = build_backbone(name, config, feature_dim=66, n_regions=16, vocabulary_size=40)
    return network.double().eval()


LENGTHS = (3, 9, 4, 4, 7, 9, 2, 5)
REGIONS = (16, 5, 16, 1, 12, 16)
"""Of captions and images of different lengths."""


def small_batch(n_images=6, lengths=LENGTHS, regions=None):
    """Random features and tokens for :func:`small_network`; there may be other numbers of captions and images."""
    generator = torch.Generator().manual_seed(1)
    features = torch.rand(n_images, 16, 66, generator=generator, dtype=torch.float64)
    counts = torch.tensor(lengths)
    tokens = torch.randint(1, 40, (len(lengths), max(lengths)), generator=generator)
    tokens[torch.arange(max(lengths)) >= counts[:, None]] = 0
    sizes = torch.full((n_images,), 16) if regions is None else torch.tensor(regions)
    return Batch(features, sizes, tokens, counts, torch.arange(len(lengths)))
