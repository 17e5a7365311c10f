"""SGR and SAF against the numbers of the published code: embeddings, similarities, gradients, statistics."""

import numpy as np
import pytest
import torch
from support.backbone_parity import (
    FILES,
    SIMILARITY_TOLERANCE,
    SUFFIX,
    Golden,
    assert_gradients_match,
    encoded,
    published_network,
    tensor,
)
from support.rounding import assert_near
from torch import Tensor

from baselines.kit.backbone import Backbone, Encoded

NAMES = ("sgr", "saf")
BLOCKS = pytest.mark.parametrize("block_captions", [1, 5, 1000])  # one, a few, the whole batch
PRECISIONS = (torch.float32, torch.float64)
INTRA_MODAL_TOLERANCE = {torch.float32: 2e-5, torch.float64: 1e-9}
"""In float32, squares of small differences lose digits: the numbers are judged in float64."""
GSC_FILES = {"gsc": "E_gsc", "gsc+": "E_gscplus"}


@pytest.mark.parametrize("dtype", PRECISIONS)
@pytest.mark.parametrize("mode", ["eval", "train"])
@pytest.mark.parametrize("name", NAMES)
def test_embeddings_and_similarities_match(name: str, mode: str, dtype: torch.dtype, golden: Golden) -> None:
    stored, suffix, tolerance = golden(FILES[name]), SUFFIX[dtype], SIMILARITY_TOLERANCE[dtype]
    network = published_network(name, stored, dtype, mode)
    images, captions = encoded(network, stored, dtype)
    similarities = network.similarities(images, captions)
    assert_near(images.vectors, stored[f"{mode}.img_emb{suffix}"], tolerance, scale=1)
    assert_near(captions.vectors, stored[f"{mode}.cap_emb{suffix}"], tolerance, scale=1)
    assert_near(similarities, stored[f"{mode}.sims{suffix}"], tolerance, scale=1)
    exact, want = similarities.detach().double(), torch.from_numpy(stored[f"{mode}.logits{suffix}"])
    allowed = {torch.float32: 2e-5 * max(1, want.abs().max().item()), torch.float64: 4e-9}[dtype]
    rounding = 4 * torch.finfo(dtype).eps / (exact * (1 - exact))  # of a similarity, as its logit feels it
    assert ((torch.logit(exact) - want).abs() <= allowed + rounding).all()


@pytest.mark.parametrize("mode", ["eval", "train"])
@pytest.mark.parametrize("name", NAMES)
def test_global_vectors_match(name: str, mode: str, golden: Golden) -> None:
    stored = golden(FILES[name])
    images, captions = encoded(published_network(name, stored, mode=mode), stored, torch.float32)
    assert images.pooled is not None
    assert captions.pooled is not None
    assert_near(images.pooled, stored[f"{mode}.img_glo"], 5e-6, scale=1)
    assert_near(captions.pooled, stored[f"{mode}.cap_glo"], 5e-6, scale=1)


@pytest.mark.parametrize("mode", ["eval", "train"])
@pytest.mark.parametrize("name", NAMES)
def test_similarity_vectors_match(name: str, mode: str, golden: Golden) -> None:
    stored = golden(FILES[name])
    network = published_network(name, stored, mode=mode)
    network.block_captions = 1
    images, captions = encoded(network, stored, torch.float32)
    seen: list[Tensor] = []
    network.head.register_forward_pre_hook(lambda module, inputs: seen.append(inputs[0]))
    with torch.no_grad():
        network.similarities(images, captions)
    order = sorted(range(len(captions)), key=lambda k: -int(captions.lengths[k]))
    want = stored[f"{mode}.sim_vec"][:, order]
    assert_near(torch.cat(seen, dim=1), want, 2e-5 * max(1, np.abs(want).max()), scale=1)


@pytest.mark.parametrize("target", ["sum", "proj"])
@pytest.mark.parametrize("mode", ["eval", "train"])
@pytest.mark.parametrize("name", NAMES)
def test_gradients_match(name: str, mode: str, target: str, golden: Golden) -> None:
    stored = golden(FILES[name])
    network = published_network(name, stored, mode=mode)
    similarities = network.similarities(*encoded(network, stored, torch.float32))
    weights = tensor(stored["in.proj"], torch.float32) if target == "proj" else torch.ones(())
    (similarities * weights).sum().backward()
    assert_gradients_match(name, network, stored, f"grad_{mode}_{target}.", torch.float32)


@BLOCKS
@pytest.mark.parametrize("mode", ["eval", "train"])
@pytest.mark.parametrize("name", NAMES)
def test_gradients_match_in_double_precision(
    name: str, mode: str, block_captions: int, golden: Golden
) -> None:
    stored = golden(FILES[name])
    network = published_network(name, stored, torch.float64, mode)
    network.block_captions = block_captions
    similarities = network.similarities(*encoded(network, stored, torch.float64))
    (similarities * tensor(stored["in.proj"], torch.float64)).sum().backward()
    assert_gradients_match(name, network, stored, f"grad_{mode}_proj.", torch.float64)


@BLOCKS
@pytest.mark.parametrize("name", NAMES)
def test_running_statistics_move_as_published(name: str, block_captions: int, golden: Golden) -> None:
    stored = golden(FILES[name])
    network = published_network(name, stored, mode="train")
    network.block_captions = block_captions
    network.similarities(*encoded(network, stored, torch.float32)).sum().backward()
    prefix = "after_train_forward."
    after = {
        key: stored[prefix + key] if prefix + key in stored else stored[key]
        for key in stored
        if key.startswith(("img_enc.", "txt_enc.", "sim_enc."))
    }
    wanted = dict(published_network(name, after).named_buffers())
    compared = 0
    for key, buffer in network.named_buffers():
        if buffer.is_floating_point():  # the golden runs hold the step counters still
            assert_near(buffer, wanted[key], 2e-6, scale=1)
            compared += 1
    assert compared == {"sgr": 4, "saf": 6}[name]


@pytest.mark.parametrize("name", NAMES)
def test_fewer_images_than_captions(name: str, golden: Golden) -> None:
    stored = golden(FILES[name])
    network = published_network(name, stored)
    images, captions = encoded(network, stored, torch.float32)
    rows = torch.from_numpy(stored["in.rect_rows"])
    assert images.pooled is not None
    chosen = Encoded(images.vectors[rows], images.lengths[rows], images.pooled[rows])
    assert_near(network.similarities(chosen, captions), stored["eval.sims_rect"], 5e-6, scale=1)


@pytest.mark.parametrize("dtype", PRECISIONS)
@BLOCKS
@pytest.mark.parametrize("mode", ["eval", "train"])
@pytest.mark.parametrize("variant", GSC_FILES)
@pytest.mark.parametrize("name", NAMES)
def test_intra_modal_similarities_match(
    name: str, variant: str, mode: str, block_captions: int, dtype: torch.dtype, golden: Golden
) -> None:
    stored, published = golden(FILES[name]), golden(GSC_FILES[variant])
    order = published[f"{name}.batch_order"]
    ordered = dict(stored)
    for key in ("in.images", "in.captions", "in.lengths"):
        ordered[key] = stored[key][order]
    network: Backbone = published_network(name, stored, dtype, mode)
    network.block_captions = block_captions
    images, captions = encoded(network, ordered, dtype)
    found = {
        "img": network.image_image_similarities(images, variant),
        "cap": network.caption_caption_similarities(captions, variant),
    }
    for key, similarities in found.items():
        raw = torch.from_numpy(published[f"{name}.{mode}.sims_{key}_raw{SUFFIX[dtype]}"])
        assert_near(similarities, torch.sigmoid(raw).numpy(), INTRA_MODAL_TOLERANCE[dtype], scale=1)
