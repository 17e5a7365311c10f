"""The leading terms of the arithmetic of each network, in letters: what grows with what.

They hold for captions of one length; padding comes on top. A test compares them with what is counted.
"""

from collections.abc import Mapping
from math import prod
from typing import NamedTuple

from baselines.backbones import BACKBONES
from baselines.benchmark.sizes import Sizes

LETTERS = {
    "I": "images",
    "C": "captions; in a step there are as many as images, the batch",
    "R": "regions of an image",
    "W": "words of a caption",
    "N": "nodes of a pair, W + 1",
    "F": "numbers of a region feature",
    "D": "of the joint space",
    "E": "of a word embedding",
    "S": "of a similarity node",
    "H": "of a state of VSRN's caption writer",
    "V": "words of the vocabulary",
}


class Term(NamedTuple):
    """A product of sizes.

    Attributes:
        what: is computed.
        scoring: factor of the product, in FLOPs, where every image and caption is encoded once.
        step: the same in a training step, which also goes backwards.
        letters: of :data:`LETTERS`, each as often as it is a factor.
    """

    what: str
    scoring: int
    step: int
    letters: str

    @property
    def compares(self) -> bool:
        """Whether it is computed for every image with every caption."""
        return {"I", "C"} <= set(self.letters)

    def of(self, values: Mapping[str, float]) -> float:
        """The product of the sizes."""
        return prod(values[letter] for letter in self.letters)

    def written(self) -> str:
        """As the page has it, such as ``I R D²``."""
        powers = {letter: self.letters.count(letter) for letter in self.letters}
        return " ".join(letter + ("", "", "²", "³")[n] for letter, n in powers.items())


def _encoders(*more: Term) -> tuple[Term, ...]:
    return (
        Term("region layer", 2, 4, "IRFD"),
        Term("GRU over words, both directions", 12, 36, "CWDD"),
        Term("GRU over words, both directions", 12, 36, "CWDE"),
        *more,
    )


SGRAF = _encoders(
    Term("vector of the whole image", 2, 6, "IRDD"),
    Term("vector of the whole caption", 2, 6, "CWDD"),
    Term("attention, and what is attended to", 4, 14, "ICWRD"),
    Term("similarity nodes", 2, 6, "ICNDS"),
)
TERMS = {
    "sgr": (
        *SGRAF,
        Term("graph, its matrices", 8, 32, "ICNSS"),
        Term("graph, its edges", 8, 32, "ICNNS"),
    ),
    "saf": SGRAF,
    "vse_infinity": (
        Term("region layers", 3, 6, "IRFD"),
        Term("region layers", 1, 3, "IRDD"),
        *_encoders()[1:],
        Term("cosines", 2, 6, "ICD"),
    ),
    "scan": _encoders(
        Term("products of words and regions", 2, 6, "ICWRD"),
        Term("lengths of what is attended to", 2, 6, "ICWRR"),
    ),
    "vsrn": (
        Term("region layer", 2, 4, "IRFD"),
        Term("graph, its matrices, 4 layers", 32, 96, "IRDD"),
        Term("graph, its edges, 4 layers", 16, 48, "IRRD"),
        Term("GRU over regions", 12, 36, "IRDD"),
        Term("GRU over words", 6, 18, "CWDD"),
        Term("GRU over words", 6, 18, "CWDE"),
        Term("caption writer, its regions", 0, 6, "CRDH"),
        Term("caption writer, its states", 0, 42, "CRHH"),
        Term("caption writer, its states", 0, 42, "CWHH"),
        Term("caption writer, its words", 0, 6, "CWHV"),
        Term("cosines", 2, 6, "ICD"),
    ),
    "imram": _encoders(
        Term("products, both directions, 3 looks", 28, 112, "ICWRD"),
        Term("memory of words", 4, 16, "ICWDD"),
        Term("memory of regions", 4, 16, "ICRDD"),
        Term("lengths of what is attended to", 6, 24, "ICWRR"),
        Term("lengths of what is attended to", 6, 24, "ICWWR"),
    ),
}
"""Network to terms. In a step IMRAM makes the inner tensors of all comparisons twice, and SCAN keeps them: those of
IMRAM do not fit into the memory of a block, those of SCAN do, up to the batches of its paper."""


def values(name: str, sizes: Sizes, n_images: int, n_captions: int) -> dict[str, float]:
    """What the letters stand for."""
    words = (sizes.shortest + sizes.longest) / 2
    hidden = getattr(BACKBONES[name].Config(), "caption_hidden", 0)
    sized = (
        sizes.regions,
        words,
        words + 1,
        sizes.feature_dim,
        sizes.embed_size,
        sizes.word_dim,
        sizes.sim_dim,
    )
    return dict(zip(LETTERS, (n_images, n_captions, *sized, hidden, sizes.vocabulary), strict=True))


def step_flops(name: str, sizes: Sizes) -> float:
    """Of a training step, by the leading terms."""
    letters = values(name, sizes, sizes.batch, sizes.batch)
    return sum(term.step * term.of(letters) for term in TERMS[name])


def scoring_flops(name: str, sizes: Sizes, n_images: int) -> tuple[float, float]:
    """Of encoding images and their captions, and of comparing them, by the leading terms."""
    letters = values(name, sizes, n_images, n_images * sizes.captions_per_image)
    parts = [0.0, 0.0]
    for term in TERMS[name]:
        parts[term.compares] += term.scoring * term.of(letters)
    return parts[0], parts[1]
