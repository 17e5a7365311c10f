"""An embedded dataset as material: the same folder as the others, made from memory."""

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from ncl_bench.data.material import Cut, Material, SplitCaptions
from ncl_bench.data.paired import FloatArray, ImageFeatures, TokenTable
from ncl_bench.data.spec import SPLITS, DatasetSpec
from ncl_bench.data.text import vocabulary_json


@dataclass(frozen=True)
class FeaturesInMemory:
    """Features that are already there."""

    features: ImageFeatures

    @property
    def dtype(self) -> np.dtype[np.floating]:
        """Type of the numbers."""
        return self.features.dtype

    def blocks(self, first: int, size: int) -> Iterator[FloatArray]:
        """Blocks of ``size`` images from image ``first`` on."""
        for start in range(first, self.features.shape[0], size):
            yield self.features[np.arange(start, min(start + size, self.features.shape[0]))]


def embedded_material(spec: DatasetSpec) -> Material:
    """The dataset in every language, with the token ids and fingerprints of the embedded dataset."""
    captions, features, fingerprints = {}, {}, {}
    vocabularies: dict[Cut, tuple[bytes, str]] = {}
    for split in SPLITS:
        found = {lang: spec.load_embedded(split, lang, None) for lang in spec.languages}
        first = found[spec.languages[0]]
        tokens: dict[Cut, TokenTable] = {
            (lang, spec.tokenizers[lang]): dataset.tokens for lang, dataset in found.items()
        }
        texts = {lang: list(dataset.captions or ()) for lang, dataset in found.items()}
        captions[split] = SplitCaptions([str(i) for i in first.image_ids], texts, tokens)
        features[split] = FeaturesInMemory(first.image_features)
        fingerprints[split] = first.fingerprint
        for lang, dataset in found.items():
            content = vocabulary_json(dataset.vocabulary).encode()
            vocabularies[(lang, spec.tokenizers[lang])] = (content, "as embedded")
    return Material(captions, features, vocabularies, fingerprints, identity=fingerprints)
