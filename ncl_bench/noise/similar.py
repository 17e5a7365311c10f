"""Noise that is hard to see: captions swap images with captions of similar words (docs/protocol.md, unit ``similar``).

Random noise pairs an image with an unrelated caption. On the web, a wrong caption is often a near miss. So each drawn
caption looks for a partner among the 50 drawn captions with the most similar words, by tf-idf.
"""

import re
from collections import Counter
from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from ncl_bench.errors import NoiseError
from ncl_bench.noise.unit import Task, Unit, choose
from ncl_bench.npy import BoolArray, Int64Array
from ncl_bench.progress import Progress, silent

if TYPE_CHECKING:
    from scipy.sparse import csr_array

NEIGHBOURS = 50
"""Maximum number of candidates per caption."""
SCALE = 4096
"""Weights are multiples of 1 / 4096: products are exact, so ties do not depend on rounding."""
_BLOCK = 128
# frozen by the protocol, and so not ncl_bench.data.scripts.terms: other words would be another noise
_WORD = re.compile(r"[\u4e00-\u9fff]|[^\W_\u4e00-\u9fff]+")


def words(caption: str) -> frozenset[str]:
    """Set of lower-case words of a caption; every Chinese character (U+4E00 to U+9FFF) is a word."""
    return frozenset(_WORD.findall(caption.lower()))


def exchange_similar(
    drawn: Int64Array,
    captions: Sequence[str],
    caption_to_image: Int64Array,
    progress: Progress = silent,
) -> Int64Array:
    """Swap the images of drawn captions with similar words.

    Args:
        drawn: int64 ``(m,)``, the captions to move, in the order of the draw.
        captions: texts of the whole split.
        caption_to_image: int64 ``(n_captions,)``, the clean pairing, with equally many captions per image.
        progress: reports the captions compared so far.

    Returns:
        A new int64 ``(n_captions,)`` array in which every drawn caption has another image.

    Raises:
        NoiseError: some captions find no partner, because their words or images are all the same.
    """
    sets = [words(caption) for caption in captions]
    pairing = _Pairing(drawn, sets, caption_to_image)
    partner, left_over = pairing.exchange(_neighbours([sets[c] for c in drawn], pairing, progress))
    takes = partner.copy()
    lost = sum(not pairing.rotate(position, partner, takes) for position in left_over)
    if lost:
        raise NoiseError(
            f"{lost:,} of {len(drawn):,} drawn captions find no image that would be wrong for them; expected "
            "captions of different words on different images; choose another ratio, or the unit caption"
        )
    moved = caption_to_image.copy()
    moved[drawn] = caption_to_image[drawn[takes]]
    return moved


def share_without_common_word(captions: Sequence[str], clean: Int64Array, paired: Int64Array) -> float:
    """Share of the wrong pairs whose caption has no word in common with any true caption of its new image.

    Args:
        captions: of the whole split.
        clean: int64 ``(n_captions,)``, the clean pairing.
        paired: int64 ``(n_captions,)``, the pairing with noise.

    Returns:
        A number in [0, 1]; 0 where no pair is wrong.
    """
    sets = [words(caption) for caption in captions]
    of_image: dict[int, set[str]] = {}
    for image, own in zip(clean.tolist(), sets, strict=True):
        of_image.setdefault(image, set()).update(own)
    wrong = np.flatnonzero(paired != clean).tolist()
    strangers = sum(
        sets[c].isdisjoint(of_image[image]) for c, image in zip(wrong, paired[wrong].tolist(), strict=True)
    )
    return strangers / max(1, len(wrong))


class _Pairing:
    """Possible swaps; captions are numbered by their position in the draw."""

    def __init__(self, drawn: Int64Array, sets: list[frozenset[str]], caption_to_image: Int64Array) -> None:
        # captions of the same words are one kind: swapping them would leave both right
        number: dict[frozenset[str], int] = {}
        kind = np.array([number.setdefault(each, len(number)) for each in sets], np.int64)
        n_images = int(caption_to_image.max(initial=-1)) + 1
        of_image = kind[np.argsort(caption_to_image, kind="stable")].reshape(n_images, -1)
        self.image = caption_to_image[drawn]
        self.kind = kind[drawn]
        self.true = of_image[self.image]
        """Word sets of all captions of each drawn caption's image, ``(m, captions_per_image)``."""

    def wrong(self, i: int, others: Int64Array) -> BoolArray:
        """Whether caption ``i`` would be wrong for the image of each of the others."""
        fits = (self.true[others] == self.kind[i]).any(axis=1)
        wrong: BoolArray = (self.image[others] != self.image[i]) & ~fits
        return wrong

    def eligible(self, i: int, others: Int64Array) -> BoolArray:
        """Whether ``i`` and each of the others would both be wrong after a swap."""
        fits = (self.kind[others, None] == self.true[i]).any(axis=1)
        wrong: BoolArray = self.wrong(i, others) & ~fits
        return wrong

    def exchange(self, neighbours: NDArray[np.int32]) -> tuple[Int64Array, list[int]]:
        """Swap captions in the order of the draw.

        Returns:
            Partner of each caption, -1 for none, and the captions left without a partner.
        """
        m = len(neighbours)
        partner = np.full(m, -1, np.int64)
        free = np.ones(m, bool)
        left_over = []
        for i in range(m):
            if not free[i]:
                continue
            near = neighbours[i][neighbours[i] >= 0]
            near = near[free[near]]
            j = int(near[0]) if len(near) else self._next(i, free)
            if j < 0:
                left_over.append(i)
                continue
            partner[i], partner[j] = j, i
            free[[i, j]] = False
        return partner, left_over

    def _next(self, i: int, free: BoolArray) -> int:
        """The first free and eligible caption after ``i``, or -1."""
        # doubling blocks: the first one is usually enough, and the rest stays vectorised
        start, size = i + 1, _BLOCK
        while start < len(free):
            others = start + np.flatnonzero(free[start : start + size])
            good = others[self.eligible(i, others)]
            if len(good):
                return int(good[0])
            start, size = start + size, 2 * size
        return -1

    def rotate(self, u: int, partner: Int64Array, takes: Int64Array) -> bool:
        """Turn the latest swap that can take in ``u`` into a rotation of three; return False if there is none.

        Of two swaps ``(v, w)`` with v < w, the one with the larger v is later.
        """
        v = np.flatnonzero(partner > np.arange(len(partner)))[::-1]
        w = partner[v]
        # u takes the image of v, v keeps the image of w, w takes the image of u
        fits_u: BoolArray = np.isin(self.kind[w], self.true[u]) | (self.image[w] == self.image[u])
        good = np.flatnonzero(self.wrong(u, v) & ~fits_u)
        if not len(good):
            return False
        v, w = v[good[0]], w[good[0]]
        takes[[u, v, w]] = v, w, u
        partner[[v, w]] = -1
        return True


def _neighbours(sets: list[frozenset[str]], pairing: _Pairing, progress: Progress) -> NDArray[np.int32]:
    """Find the eligible captions with the most similar words.

    Returns:
        int32 ``(m, 50)``, most similar first, ties in the order of the draw; -1 fills up missing ones.
    """
    weights = _weights(sets)
    columns = weights.T.tocsr()
    neighbours = np.full((len(sets), NEIGHBOURS), -1, np.int32)
    with progress("comparing captions", len(sets)) as advance:
        for start in range(0, len(sets), _BLOCK):
            products = weights[start : start + _BLOCK] @ columns
            for row in range(products.shape[0]):
                span = slice(products.indptr[row], products.indptr[row + 1])
                best = _best(
                    start + row, products.indices[span].astype(np.int64), products.data[span], pairing
                )
                neighbours[start + row, : len(best)] = best
            advance(products.shape[0])
    return neighbours


def _best(i: int, others: Int64Array, products: Int64Array, pairing: _Pairing) -> Int64Array:
    """The nearest eligible neighbours of one caption, among those that share a term with it."""
    key = others - products * len(pairing.kind)  # one key sorts by larger product, then by earlier caption
    # most captions are eligible, so sorting twice as many as needed nearly always suffices
    take = 2 * NEIGHBOURS
    while True:
        near = np.argpartition(key, take)[:take] if take < len(key) else np.arange(len(key))
        near = near[np.argsort(key[near])]
        good = others[near][(products[near] > 0) & pairing.eligible(i, others[near])]
        if len(good) >= NEIGHBOURS or take >= len(key):
            return good[:NEIGHBOURS]
        take *= 4


def _weights(sets: list[frozenset[str]]) -> "csr_array":
    """Binary tf-idf of each word set, L2-normalised and rounded: int64 ``(m, n_terms)``."""
    from scipy.sparse import csr_array

    m = len(sets)
    frequency = Counter(word for each in sets for word in each)
    terms = {
        word: number
        for number, word in enumerate(sorted(frequency))
        # a word of one caption finds no other; one of very many would compare nearly all with all
        if 2 <= frequency[word] <= max(1_000, m // 20)
    }
    columns = [sorted(terms[word] for word in each if word in terms) for each in sets]
    lengths = np.array([len(row) for row in columns], np.int64)
    indices = np.array([column for row in columns for column in row], np.int64)
    counts = np.zeros(len(frequency), np.int64)
    counts[list(terms.values())] = [frequency[word] for word in terms]
    values = np.log(m / counts[indices])
    row = np.repeat(np.arange(m), lengths)
    norm = np.sqrt(np.bincount(row, values**2, minlength=m))
    with np.errstate(invalid="ignore"):  # 0 / 0 if the only terms are in every caption
        # integers: sums of products are then equal on every machine, whatever the order of adding
        whole = np.nan_to_num(np.rint(SCALE * values / norm[row])).astype(np.int64)
    return csr_array((whole, indices, np.concatenate([[0], np.cumsum(lengths)])), shape=(m, len(frequency)))


def draw(task: Task) -> Int64Array:
    """Exchange the images of ``int(ratio * n_captions)`` captions, those of the unit ``caption``."""
    chosen = choose(len(task.clean), task.ratio, task.random)
    return exchange_similar(chosen, task.captions, task.clean, task.progress)


SIMILAR = Unit("similar", "similar captions exchanged", draw, reads_captions=True)
