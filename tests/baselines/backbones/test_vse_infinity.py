"""VSE-infinity against the numbers of the published code, and its pooling against the definition."""

import pytest
from support.parity import FILES, encoded, tensor
from support.rounding import assert_near


@pytest.mark.parametrize("regions", ["full", "var"])
@pytest.mark.parametrize("mode", ["eval", "train"])
def test_pooling_matches(mode, regions, single):
    stored, pooled = single(FILES["vse_infinity"]), []
    network = stored.network("vse_infinity").train(mode == "train")
    poolings = (network.region_pooling, network.word_pooling)
    for pooling in poolings:
        pooling.register_forward_hook(lambda module, inputs, output: pooled.append(output))
    sides = encoded(network, stored.batch(regions=f"_{regions}"))
    for side, pooling, items, found in zip(("img", "txt"), poolings, sides, pooled, strict=True):
        start = f"{mode}_{regions}.{side}_"
        want = tensor(stored[f"{start}pool_weights"]).squeeze(-1)
        assert_near(pooling.weights(items.lengths, want.shape[1]), want, 1e-5, scale=1)
        stored.near(found, f"{start}pooled", 1e-5)
