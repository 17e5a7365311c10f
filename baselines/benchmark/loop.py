"""The loop that the papers' code runs, one caption at a time: an oracle of the tests, written from the equations."""

import importlib.util
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any, Self

from torch import Tensor

from baselines.kit.backbone import Backbone, Encoded, IntraModal
from ncl_bench.errors import NclBenchError

ORACLE = Path(__file__).parents[2] / "tests" / "oracles" / "sgraf_loop.py"


@cache
def oracle() -> Any:
    """The module ``tests/oracles/sgraf_loop.py``.

    Raises:
        NclBenchError: this is no source checkout.
    """
    if not ORACLE.is_file():
        raise NclBenchError(
            f"{ORACLE} is missing; the benchmark compares with it and runs in a source checkout"
        )
    spec = importlib.util.spec_from_file_location("sgraf_loop", ORACLE)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


class Loop(Backbone):
    """A network that shares another one's weights and compares one caption at a time."""

    def __init__(self, network: Backbone) -> None:
        super().__init__()
        self.network = network
        self.embed_size, self.config = network.embed_size, network.config
        self.fixed_regions = network.fixed_regions  # type: ignore[misc]

    def encode_images(self, image_features: Tensor, image_lengths: Tensor) -> Encoded:
        """As the other network."""
        return self.network.encode_images(image_features, image_lengths)

    def encode_captions(self, caption_tokens: Tensor, caption_lengths: Tensor) -> Encoded:
        """As the other network."""
        return self.network.encode_captions(caption_tokens, caption_lengths)

    def similarities(self, images: Encoded, captions: Encoded) -> Tensor:
        """Caption by caption."""
        images, captions = self._with_images(images), self._with_captions(captions)
        result: Tensor = oracle().similarities(self.network, images, captions)
        return result

    def image_image_similarities(self, images: Encoded, variant: IntraModal = "gsc") -> Tensor:
        """Image by image."""
        result: Tensor = oracle().image_image_similarities(self.network, self._with_images(images))
        return result

    def caption_caption_similarities(self, captions: Encoded, variant: IntraModal = "gsc") -> Tensor:
        """Caption by caption."""
        result: Tensor = oracle().caption_caption_similarities(self.network, self._with_captions(captions))
        return result

    def _with_images(self, side: Encoded) -> Encoded:
        network: Any = self.network
        whole = network.image_vector(side.vectors) if side.pooled is None else side.pooled
        return Encoded(side.vectors, side.lengths, whole)

    def _with_captions(self, side: Encoded) -> Encoded:
        network: Any = self.network
        whole = network.caption_vector(side.vectors, side.lengths) if side.pooled is None else side.pooled
        return Encoded(side.vectors, side.lengths, whole)

    @classmethod
    def from_weights(cls, state: Mapping[str, Tensor], **options: Any) -> Self:
        """No weights of its own."""
        raise NotImplementedError
