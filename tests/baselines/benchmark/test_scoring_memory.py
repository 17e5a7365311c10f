"""The tensors of one tile stay within the memory budget when all of COCO is scored: 5,000 images, 25,000 captions."""

from collections.abc import Callable, Mapping
from typing import Any

import pytest
import torch
from torch import Tensor

from baselines.backbones import BACKBONES, build_backbone
from baselines.backbones.cross_attention import Side, in_tiles
from baselines.backbones.pairwise import CPU_BYTES
from baselines.engine.similarities import CAPTION_BLOCK
from baselines.kit.backbone import Encoded

IMAGES, REGIONS, WORDS = 5000, 36, 60


@pytest.mark.parametrize(
    ("name", "options", "n_captions"),
    [
        ("scan", {"direction": "t2i"}, CAPTION_BLOCK),
        ("scan", {"direction": "i2t"}, CAPTION_BLOCK),
        ("imram", {"mode": "full"}, 20),  # its tiles are small and many
    ],
)
def test_no_tile_exceeds_the_budget(
    name: str, options: Mapping[str, Any], n_captions: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    config = BACKBONES[name].Config(word_dim=4, **options)
    network = build_backbone(name, config, feature_dim=4, n_regions=REGIONS, vocabulary_size=5).eval()
    tiles = []

    def planned(
        rows: Encoded,
        columns: Encoded,
        prepare: Callable[..., Any],
        compare: Callable[..., Any],
        bytes_of_pair: Callable[[int, int], int],
        size: int | None,
    ) -> Tensor:
        def measure(rows: Side, columns: Side) -> Tensor:
            pairs = len(rows.vectors), len(columns.vectors)
            tiles.append(pairs[0] * pairs[1] * bytes_of_pair(rows.vectors.shape[1], columns.vectors.shape[1]))
            return torch.zeros(pairs)

        return in_tiles(rows, columns, lambda rows: (), measure, bytes_of_pair, size)

    monkeypatch.setattr(f"baselines.backbones.{name}.in_tiles", planned)
    images, captions = (
        Encoded(torch.zeros(1, 1, 1).expand(n, items, network.embed_size), lengths)
        for n, items, lengths in (
            (IMAGES, REGIONS, torch.full((IMAGES,), REGIONS)),
            (n_captions, WORDS, torch.arange(n_captions) % (WORDS - 5) + 6),
        )
    )
    with torch.no_grad():
        assert network.similarities(images, captions).shape == (IMAGES, n_captions)
    assert 0.5 * CPU_BYTES < max(tiles) <= CPU_BYTES
