"""SGR and SAF: what the published code computes on the way, and in blocks the numbers of the one-caption loop."""

import numpy as np
import pytest
import torch
from oracles import sgraf_loop
from support.parity import (
    FILES,
    LENGTHS,
    small_batch,
    small_network,
    tensor,
    weighted_gradients,
    without_dropout,
)
from support.parity import encoded as sides_of
from support.rounding import assert_equals_loop, assert_near

from baselines.backbones import pairwise
from baselines.backbones.pairwise import plan_blocks, within_memory
from baselines.backbones.squared_difference import attended_difference
from baselines.kit import batches
from baselines.kit.backbone import Encoded

EVERY_NAME = pytest.mark.parametrize("name", ["sgr", "saf"])
EVERY_MODE = pytest.mark.parametrize("mode", ["eval", "train"])
EVERY_BLOCK = pytest.mark.parametrize("block_captions", [1, 7, len(LENGTHS), None])
GSC_FILES = {"gsc": "E_gsc", "gsc+": "E_gscplus"}


@EVERY_MODE
@EVERY_NAME
def test_logits_and_what_they_are_made_of_match(name, mode, precise):
    stored = precise(FILES[name])
    network = stored.network(name).train(mode == "train")
    network.block_captions = 1
    images, captions = sides_of(network, stored.batch())
    seen = []
    network.head.register_forward_pre_hook(lambda module, inputs: seen.append(inputs[0]))
    with torch.no_grad():
        exact = network.similarities(images, captions).double()
    want = tensor(stored[f"{mode}.logits{stored.end}"])
    allowed = 4e-9 if stored.double else 2e-5 * max(1, want.abs().max().item())
    rounding = (
        4 * torch.finfo(stored.dtype).eps / (exact * (1 - exact))
    )  # of a similarity, as its logit feels it
    assert ((torch.logit(exact) - want).abs() <= allowed + rounding).all()
    if not stored.double:
        stored.near(images.pooled, f"{mode}.img_glo", 1e-5)
        stored.near(captions.pooled, f"{mode}.cap_glo", 1e-5)
        order = sorted(range(len(captions)), key=lambda k: -int(captions.lengths[k]))
        want = stored[f"{mode}.sim_vec"][:, order]
        assert_near(torch.cat(seen, dim=1), want, 2e-5 * max(1, np.abs(want).max()), scale=1)


@pytest.mark.parametrize("block_captions", [1, 5, 1000])  # one, a few, the whole batch
@EVERY_MODE
@pytest.mark.parametrize("variant", GSC_FILES)
@EVERY_NAME
def test_intra_modal_similarities_match(name, variant, mode, block_captions, precise):
    """In float32, squares of small differences lose digits: the numbers are judged in float64."""
    stored, weights = precise(GSC_FILES[variant]), precise(FILES[name])
    network = weights.network(name).train(mode == "train")
    network.block_captions = block_captions
    images, captions = sides_of(network, weights.batch(order=stored[f"{name}.batch_order"]))
    for key, found in (
        ("img", network.image_image_similarities(images, variant)),
        ("cap", network.caption_caption_similarities(captions, variant)),
    ):
        raw = tensor(stored[f"{name}.{mode}.sims_{key}_raw{stored.end}"])
        assert_near(found, torch.sigmoid(raw), 1e-9 if stored.double else 2e-5, scale=1)


def small(name, mode, block_captions=None):
    network = without_dropout(small_network(name, sim_dim=8)).train(mode == "train")
    network.block_captions = block_captions
    return network


def encoded(network, n_images=6):
    return sides_of(network, small_batch(n_images))


def everything(network, similarities):
    """Similarities, gradients and running statistics."""
    return {
        "similarities": similarities,
        **weighted_gradients(network, similarities),
        **dict(network.named_buffers()),
    }


@EVERY_BLOCK
@EVERY_MODE
@EVERY_NAME
def test_similarities_gradients_and_statistics_equal_the_loop(name, mode, block_captions):
    network = small(name, mode, block_captions)
    assert_equals_loop(
        network,
        lambda: everything(network, network.similarities(*encoded(network))),
        lambda: everything(network, sgraf_loop.similarities(network, *encoded(network))),
    )


@EVERY_BLOCK
@EVERY_MODE
@EVERY_NAME
def test_intra_modal_similarities_equal_the_loop(name, mode, block_captions):
    network = small(name, mode, block_captions)

    def joined(of_images, of_captions):
        return everything(network, torch.cat([of_images.flatten(), of_captions.flatten()]))

    def fast():
        images, captions = encoded(network)
        return joined(
            network.image_image_similarities(images), network.caption_caption_similarities(captions)
        )

    def loop():
        images, captions = encoded(network)
        again = Encoded(images.vectors, images.lengths, network.image_vector(images.vectors))
        return joined(
            sgraf_loop.image_image_similarities(network, again),
            sgraf_loop.caption_caption_similarities(network, captions),
        )

    assert_equals_loop(network, fast, loop)


@EVERY_NAME
def test_image_blocks_change_nothing(name, monkeypatch):
    network = small(name, "eval")
    images, captions = encoded(network, 9)
    with torch.no_grad():
        expected = network.similarities(images, captions)
        monkeypatch.setattr(batches, "CPU_BYTES", 20_000)
        assert 1 <= network._rows_at_once(9, images.vectors.shape[1], captions) < 9
        bare = Encoded(images.vectors, images.lengths)  # whose global vectors are computed anew
        assert_near(network.similarities(bare, captions), expected, 1e-12, scale=1)


@EVERY_NAME
def test_what_is_kept_and_what_is_made_again_give_the_same_bits(name, monkeypatch):
    results = []
    for run in (pairwise.kept, pairwise.recomputed):
        monkeypatch.setattr("baselines.backbones.sgraf.within_memory", lambda n_blocks, run=run: run)
        network = small(name, "train", 3)
        results.append(weighted_gradients(network, network.similarities(*encoded(network))))
    assert all(torch.equal(results[0][key], results[1][key]) for key in results[0])
    assert (within_memory(1), within_memory(2)) == (pairwise.kept, pairwise.recomputed)


def test_blocks_hold_each_anchor_once_and_stay_within_the_budget():
    lengths = torch.tensor([5, 20, 8, 8, 13, 1])
    per_position = batches.CPU_BYTES // 2000
    blocks = plan_blocks(
        Encoded(torch.zeros(6, 20, 1), lengths), n_items=100, bytes_per_position=per_position
    )
    assert sorted(torch.cat([block.anchors for block in blocks]).tolist()) == list(range(6))
    for block in blocks:
        assert block.longest == lengths[block.anchors].max()
        assert len(block.anchors) == 1 or 100 * block.longest * len(block.anchors) <= 2000
        if block.valid is not None:
            assert block.valid.sum(dim=1).tolist() == (lengths[block.anchors] + 1).tolist()


def test_gradients_stay_finite_where_everything_is_zero():
    weights, keys = torch.full((1, 2, 3), 1 / 3, requires_grad=True), torch.zeros(1, 3, 4, requires_grad=True)
    queries = torch.zeros(2, 4, requires_grad=True)
    attended_difference(weights, keys, queries, torch.ones(2, 4), torch.zeros(2)).sum().backward()
    assert all(x.grad is not None and x.grad.isfinite().all() for x in (weights, keys, queries))
