"""VSE-infinity against the numbers of the published code, and its pooling against the definition."""

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

from baselines.backbones.vse_infinity import GeneralizedPooling, VSEInfinity

CASES = [(mode, regions) for mode in ("eval", "train") for regions in ("full", "var")]


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize(("mode", "regions"), CASES)
def test_embeddings_and_similarities_match(
    mode: str, regions: str, dtype: torch.dtype, golden: Golden
) -> None:
    stored, suffix = golden(FILES["vse_infinity"]), SUFFIX[dtype]
    network = published_network("vse_infinity", stored, dtype, mode)
    images, captions = encoded(network, stored, dtype, f"_{regions}")
    found = {
        "img_emb": images.vectors,
        "cap_emb": captions.vectors,
        "sims": network.similarities(images, captions),
    }
    for key, value in found.items():
        want = torch.from_numpy(stored[f"{mode}_{regions}.{key}{suffix}"])
        assert_near(value.detach(), want, SIMILARITY_TOLERANCE[dtype], scale=1)


@pytest.mark.parametrize("target", ["sum", "proj"])
@pytest.mark.parametrize(("mode", "regions"), CASES)
def test_gradients_match(mode: str, regions: str, target: str, golden: Golden) -> None:
    stored = golden(FILES["vse_infinity"])
    network = published_network("vse_infinity", stored, mode=mode)
    similarities = network.similarities(*encoded(network, stored, torch.float32, f"_{regions}"))
    weights = tensor(stored["in.proj"], torch.float32) if target == "proj" else torch.ones(())
    (similarities * weights).sum().backward()
    prefix = f"grad_{mode}_{regions}_{target}."
    assert_gradients_match("vse_infinity", network, stored, prefix, torch.float32)


@pytest.mark.parametrize(("mode", "regions"), CASES)
def test_gradients_match_in_double_precision(mode: str, regions: str, golden: Golden) -> None:
    stored = golden(FILES["vse_infinity"])
    network = published_network("vse_infinity", stored, torch.float64, mode)
    similarities = network.similarities(*encoded(network, stored, torch.float64, f"_{regions}"))
    (similarities * tensor(stored["in.proj"], torch.float64)).sum().backward()
    prefix = f"grad_{mode}_{regions}_proj."
    assert_gradients_match("vse_infinity", network, stored, prefix, torch.float64)


@pytest.mark.parametrize(("mode", "regions"), CASES)
def test_pooling_matches(mode: str, regions: str, golden: Golden) -> None:
    stored = golden(FILES["vse_infinity"])
    network = published_network("vse_infinity", stored, mode=mode)
    assert isinstance(network, VSEInfinity)
    pooled: list[torch.Tensor] = []
    for pooling in (network.region_pooling, network.word_pooling):
        pooling.register_forward_hook(lambda module, inputs, output: pooled.append(output))
    images, captions = encoded(network, stored, torch.float32, f"_{regions}")
    sides = (("img", network.region_pooling, images), ("txt", network.word_pooling, captions))
    for k, (side, pooling, items) in enumerate(sides):
        want = torch.from_numpy(stored[f"{mode}_{regions}.{side}_pool_weights"]).squeeze(-1)
        found = pooling.weights(items.lengths, want.shape[1]).detach()
        assert_near(found, want, 5e-6, scale=1)
        want = torch.from_numpy(stored[f"{mode}_{regions}.{side}_pooled"])
        assert_near(pooled[k].detach(), want, 5e-6, scale=1)


def test_running_statistics_move_as_published(golden: Golden) -> None:
    stored = golden(FILES["vse_infinity"])
    network = published_network("vse_infinity", stored, mode="train")
    encoded(network, stored, torch.float32, "_var")
    assert isinstance(network, VSEInfinity)
    prefix = "after_train_var_forward.img_enc.mlp.bns.0."  # under "full" the file repeats these numbers
    for key in ("running_mean", "running_var", "num_batches_tracked"):
        want = torch.from_numpy(stored[prefix + key])
        assert_near(getattr(network.regions.norm, key), want, 2e-6, scale=1)


def test_pooling_sums_ranked_values() -> None:
    torch.manual_seed(0)
    pooling = GeneralizedPooling(8, 0.1)
    features, lengths = torch.randn(3, 5, 2), torch.tensor([5, 1, 3])
    weights = pooling.weights(lengths, 5)
    assert_near(weights.sum(dim=1), torch.ones(3))
    for row, length in enumerate(lengths.tolist()):
        assert weights[row, length:].eq(0).all()
        for column in range(2):
            ranked = sorted(features[row, :length, column].tolist(), reverse=True)
            want = sum(w * x for w, x in zip(weights[row].tolist(), ranked, strict=False))
            assert pooling(features, lengths)[row, column].item() == pytest.approx(want, abs=1e-6)


def test_intra_modal_similarities_are_inner_products(golden: Golden) -> None:
    stored = golden(FILES["vse_infinity"])
    network = published_network("vse_infinity", stored)
    images, captions = encoded(network, stored, torch.float32, "_full")
    for variant in ("gsc", "gsc+"):
        found = network.image_image_similarities(images, variant)
        assert_near(found, images.vectors @ images.vectors.T)
        found = network.caption_caption_similarities(captions, variant)
        assert_near(found, captions.vectors @ captions.vectors.T)
