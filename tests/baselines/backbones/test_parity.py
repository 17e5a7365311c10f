"""Every backbone against the numbers of the published code: embeddings, similarities, losses, gradients, statistics."""

from dataclasses import dataclass, field
from itertools import product
from typing import Any

import pytest
import torch
from support.parity import (
    FILES,
    PRECISIONS,
    SUFFIX,
    Arrays,
    Golden,
    assert_gradients,
    batch_of,
    encoded,
    five_steps,
    network_of,
    published_loss,
    state_of,
    tensor,
)
from support.rounding import assert_near
from torch import Tensor

from baselines.backbones import cross_attention
from baselines.kit.backbone import Backbone, Encoded

SINGLE = torch.float32
LOOSE = {"vsrn": (1e-5, 2e-3)}
"""Tolerances of similarities and gradients in float32 where they are not 1e-5 and 2e-4."""


@dataclass(frozen=True)
class Run:
    """A forward and backward pass of the published code.

    Attributes:
        backbone: its name.
        prefix: of the arrays of similarities and embeddings.
        gradients: prefix of those of gradients, before the target.
        mode: of the network.
        regions: ``"_full"`` or ``"_var"`` of VSE-infinity.
        file: of the arrays; the backbone's own by default.
        options: that the weights do not tell.
    """

    backbone: str
    prefix: str
    gradients: str
    mode: str = "eval"
    regions: str = ""
    file: str = ""
    options: dict[str, Any] = field(default_factory=dict)

    def stored(self, golden: Golden) -> Arrays:
        return golden(self.file or FILES[self.backbone])

    def network(self, stored: Arrays, dtype: torch.dtype, **options: Any) -> Backbone:
        state = state_of(stored, "", dtype)
        network = network_of(self.backbone, state, **self.options | options)
        return network.train(self.mode == "train")

    def sides(self, network: Backbone, stored: Arrays, dtype: torch.dtype) -> tuple[Encoded, Encoded]:
        return encoded(network, batch_of(stored, "in.", dtype, regions=self.regions))


def cross_attending(backbone: str, case: str, file: str = "", **options: Any) -> Run:
    return Run(backbone, f"{case}.", f"{case}.grad_", file=file, options=options)


RUNS = {
    **{
        f"{name}-{mode}": Run(name, f"{mode}.", f"grad_{mode}_", mode)
        for name, mode in product(("sgr", "saf", "vsrn"), ("eval", "train"))
    },
    **{
        f"vsrn-coco-{mode}": Run("vsrn", f"{mode}.", f"grad_{mode}_", mode, file="O_vsrn_coco")
        for mode in ("eval", "train")
    },
    **{
        f"vse-{mode}{regions}": Run(
            "vse_infinity", f"{mode}{regions}.", f"grad_{mode}{regions}_", mode, regions
        )
        for mode, regions in product(("eval", "train"), ("_full", "_var"))
    },
    **{
        f"scan-{direction}_{aggregation}": cross_attending(
            "scan", f"{direction}_{aggregation}", direction=direction, aggregation=aggregation
        )
        for direction, aggregation in product(("t2i", "i2t"), ("lse", "avg"))
    },
    "scan-i2t_lse20": cross_attending(
        "scan", "i2t_lse20", direction="i2t", aggregation="lse", lse_sharpness=20.0
    ),
    **{
        f"imram-{mode}.nonorm": cross_attending("imram", f"{mode}.nonorm", mode=mode)
        for mode in ("full", "text", "image")
    },
    **{
        f"imram-{mode}.norm": cross_attending("imram", f"{mode}.norm", file, mode=mode, memory_norm=True)
        for mode, file in (("full", "P_imram_norm"), ("text", ""), ("image", ""))
    },
    "imram-steps2": cross_attending("imram", "full.nonorm.steps2", mode="full", steps=2),
    "imram-coco": cross_attending("imram", "coco_script", mode="text", attention_sharpness=11.0),
    "imram-f30k": cross_attending("imram", "f30k_script", mode="image", steps=1),
}
CROSS_ATTENDING = [name for name in RUNS if name.startswith(("scan", "imram"))]
IN_BLOCKS = [name for name in RUNS if not name.startswith(("vsrn", "vse"))]
IN_ALL_WAYS = [
    pytest.param(name, blocks, rows, id=f"{name}-{blocks}-{rows}")
    for name, blocks, rows in product(IN_BLOCKS, (1, 5, None), (5, cross_attention.TILE_ROWS))
    if name in CROSS_ATTENDING or rows != 5
]


@pytest.mark.parametrize("dtype", PRECISIONS)
@pytest.mark.parametrize("name", RUNS)
def test_embeddings_similarities_and_losses_match(name, dtype, golden):
    run, suffix = RUNS[name], SUFFIX[dtype]
    stored, single = run.stored(golden), LOOSE.get(run.backbone, (1e-5,))[0]
    near = 1e-9 if suffix else single
    network = run.network(stored, dtype)
    images, captions = run.sides(network, stored, dtype)
    similarities = network.similarities(images, captions)
    assert similarities.dtype == dtype
    assert_near(similarities, stored[f"{run.prefix}sims{suffix}"], near, scale=1)
    for key, side in (("img_emb", images), ("cap_emb", captions)):
        prefix = run.prefix if f"{run.prefix}{key}" in stored else ""
        if f"{prefix}{key}{suffix}" in stored:
            assert_near(side.vectors, stored[f"{prefix}{key}{suffix}"], near, scale=1, name=key)
    if f"{run.prefix}sims_rect" in stored:
        rows = tensor(stored["in.rect_rows"])
        pooled = None if images.pooled is None else images.pooled[rows]
        some = network.similarities(Encoded(images.vectors[rows], images.lengths[rows], pooled), captions)
        assert_near(some, stored[f"{run.prefix}sims_rect"], single, scale=1)
    if f"{run.prefix}train_scores" in stored:
        again = network.train().similarities(images, captions)
        assert_near(again.T, stored[f"{run.prefix}train_scores"], single, scale=1)
    for key, hardest in (("loss_max", True), ("loss_sum", False)):
        if f"{run.prefix}{key}.value" in stored:
            found = published_loss(similarities, hardest=hardest).item()
            assert found == pytest.approx(stored[f"{run.prefix}{key}.value"].item(), rel=1e-5)


def assert_gradients_match(run: Run, stored: Arrays, target: str, dtype: torch.dtype, **options: Any) -> None:
    network = run.network(stored, dtype, **options)
    found = network.similarities(*run.sides(network, stored, dtype))
    value = {
        "sum": lambda: found.sum(),
        "proj": lambda: (found * tensor(stored["in.proj"], dtype)).sum(),
        "loss_max": lambda: published_loss(found, hardest=True),
    }[target]
    value().backward()
    allowed: dict[str, Any] = {"relative": 1e-9 if SUFFIX[dtype] else LOOSE.get(run.backbone, (0, 2e-4))[1]}
    if run.backbone in ("sgr", "saf", "vse_infinity"):
        allowed["noise"] = 1e-9 if SUFFIX[dtype] else 1e-4
    if run.backbone == "vsrn" and run.mode == "train":  # batch statistics take the bias out again
        allowed["vanishing"] = (".W.0.bias",)
    wanted = state_of(stored, gradients_prefix(run, target), dtype, SUFFIX[dtype])
    assert_gradients(network, run.backbone, state_of(stored), wanted, run.options, **allowed)


def gradients_prefix(run: Run, target: str) -> str:
    return f"{run.prefix}loss_max.grad." if target == "loss_max" else f"{run.gradients}{target}."


@pytest.mark.parametrize("name", RUNS)
def test_gradients_match(name, golden):
    run = RUNS[name]
    stored, compared = run.stored(golden), 0
    for target in ("sum", "proj", "loss_max"):
        if any(key.startswith(gradients_prefix(run, target)) for key in stored):
            assert_gradients_match(run, stored, target, SINGLE)
            compared += 1
    assert compared or name in ("imram-steps2", "imram-text.norm", "imram-image.norm")  # which store none
    if f"{gradients_prefix(run, 'proj')}txt_enc.embed.weight__f64" in stored:
        assert_gradients_match(run, stored, "proj", torch.float64)


@pytest.mark.parametrize(("name", "block_captions", "tile_rows"), IN_ALL_WAYS)
def test_gradients_match_in_blocks_of_any_size(name, block_captions, tile_rows, golden, monkeypatch):
    run = RUNS[name]
    stored = run.stored(golden)
    if f"{gradients_prefix(run, 'proj')}txt_enc.embed.weight__f64" in stored:
        monkeypatch.setattr(cross_attention, "TILE_ROWS", tile_rows)
        assert_gradients_match(run, stored, "proj", torch.float64, block_captions=block_captions)


@pytest.mark.parametrize("block_captions", [1, 5, None])
@pytest.mark.parametrize("name", ["sgr-train", "saf-train", "vse-train_var", "vsrn-train", "vsrn-coco-train"])
def test_running_statistics_move_as_published(name, block_captions, golden):
    run = RUNS[name]
    stored, own = run.stored(golden), {"block_captions": block_captions} if name in IN_BLOCKS else {}
    network = run.network(stored, SINGLE, **own)
    sides = run.sides(network, stored, SINGLE)
    if own:
        network.similarities(*sides).sum().backward()
    moved = state_of(stored) | state_of(stored, f"after_train{run.regions}_forward.")
    wanted = dict(network_of(run.backbone, moved, **run.options).named_buffers())
    compared = [key for key, buffer in wanted.items() if buffer.is_floating_point()]
    buffers = dict(network.named_buffers())  # the golden runs hold the step counters still
    assert compared
    for key in compared:
        near, scale = (5e-5, 0) if run.backbone == "vsrn" else (2e-6, 1)
        assert_near(buffers[key], wanted[key], near, scale=scale, name=key)


@pytest.mark.parametrize("name", CROSS_ATTENDING)
def test_five_steps_of_training_match(name, golden):
    run, dtype = RUNS[name], torch.float64
    stored = run.stored(golden)
    network = run.network(stored, dtype).train()

    def loss() -> Tensor:
        return published_loss(network.similarities(*run.sides(network, stored, dtype)), hardest=True)

    losses, lengths = five_steps(list(network.parameters()), loss)
    rel = 1e-5 if run.backbone == "scan" else 1e-3
    assert losses == pytest.approx(stored[f"{run.prefix}traj.loss"].tolist(), rel=rel)
    assert lengths == pytest.approx(stored[f"{run.prefix}traj.grad_norm"].tolist(), rel=5e-3)
