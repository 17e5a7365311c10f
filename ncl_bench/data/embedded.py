"""The embedded digits as material: the same folder as the others, made from memory."""

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from ncl_bench.data import digits
from ncl_bench.data.material import Cut, Material, SplitCaptions
from ncl_bench.data.origin import Origin
from ncl_bench.data.paired import FloatArray, ImageFeatures, TokenTable
from ncl_bench.data.spec import SPLITS, DatasetSpec
from ncl_bench.data.text import vocabulary_json

DIGITS_ORIGIN = Origin(
    summary=(
        "Real handwritten digits placed on a grid, one cell one region, with captions in English and "
        "Chinese that describe the layout; made on the spot, without a download."
    ),
    homepage="https://archive.ics.uci.edu/dataset/80/optical+recognition+of+handwritten+digits",
    obtain=("nothing to download: the digits come with scikit-learn, the rest is generated",),
    folders=(),
    prefixes={split: split for split in SPLITS},
    files=(),
    extra_files=(),
    dtypes=("float32",),
    ids_span_splits=True,
    licence="CC BY 4.0",
    licence_id="cc-by-4.0",
    terms="May be used, changed and passed on for any purpose, with credit to the makers of the digits.",
    noise=(
        "The pairs are clean; the benchmark corrupts train, and only train, by moving images between "
        "captions or between whole groups of captions."
    ),
    upload=("captions", "images"),
    upload_reason="the licence asks for credit",
    citation="""@misc{alpaydin1998optical,
  title        = {Optical Recognition of Handwritten Digits},
  author       = {Alpaydin, Ethem and Kaynak, Cenk},
  howpublished = {UCI Machine Learning Repository},
  year         = {1998},
  doi          = {10.24432/C50P49}
}""",
)


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


def digits_material(spec: DatasetSpec) -> Material:
    """The digits in every language, with the token ids and fingerprints of the embedded dataset."""
    captions, features, fingerprints = {}, {}, {}
    vocabularies: dict[Cut, tuple[bytes, str]] = {}
    for split in SPLITS:
        found = {lang: digits.load_embedded(split, language=lang) for lang in spec.languages}
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
