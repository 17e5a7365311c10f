"""VSE-infinity against the numbers of the published code, and its pooling against the definition."""

import pytest
import torch
from support.parity import FILES, batch_of, encoded, network_of, state_of, tensor
from support.rounding import assert_near

from baselines.backbones.vse_infinity import VSEInfinity

CASES = [(mode, regions) for mode in ("eval", "train") for regions in ("full", "var")]


@pytest.mark.parametrize(("mode", "regions"), CASES)
def test_pooling_matches(mode, regions, golden):
    stored = golden(FILES["vse_infinity"])
    network = network_of("vse_infinity", state_of(stored)).train(mode == "train")
    assert isinstance(network, VSEInfinity)
    pooled: list[torch.Tensor] = []
    for pooling in (network.region_pooling, network.word_pooling):
        pooling.register_forward_hook(lambda module, inputs, output: pooled.append(output))
    images, captions = encoded(network, batch_of(stored, regions=f"_{regions}"))
    sides = (("img", network.region_pooling, images), ("txt", network.word_pooling, captions))
    for k, (side, pooling, items) in enumerate(sides):
        want = tensor(stored[f"{mode}_{regions}.{side}_pool_weights"]).squeeze(-1)
        found = pooling.weights(items.lengths, want.shape[1]).detach()
        assert_near(found, want, 1e-5, scale=1)
        want = tensor(stored[f"{mode}_{regions}.{side}_pooled"])
        assert_near(pooled[k].detach(), want, 1e-5, scale=1)
