"""Make a table of all training pairs from finished runs: how well each fits, and which captions fit better.

Two views that err differently are averaged: the similarity of the networks with the best dev score, in evaluation mode,
which have seen every pair and may have memorised wrong ones; and the cross-fitted judgement of
:mod:`baselines.audit.judge`, in which no pair vouches for itself. The truth is not used here;
:mod:`baselines.audit.report` compares the table with it.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import numpy as np
import pandas as pd
import torch
from numpy.typing import NDArray
from rich.console import Console

from baselines.audit.judge import BETTER, SAMPLE, Judged, judge_split, refuse_text_encoder
from baselines.audit.lemon import LEMON, MOST_REFERENCE, lemon
from baselines.kit.batches import TrainingBatches, derive_seed
from baselines.kit.cca import unit
from baselines.kit.distributed import device_for
from baselines.kit.losses import matching_prediction, mean_triplet
from baselines.kit.method import Method
from baselines.kit.mixture import clean_posterior
from baselines.training.job import FinishedRun
from baselines.training.scoring import Networks
from baselines.training.scoring import score as score_rows
from baselines.training.statement import CLEAN_PROBABILITY
from baselines.training.submit import check_alike, check_vocabulary, chosen_method
from ncl_bench.data.columns import taken
from ncl_bench.data.load import refuse_damage
from ncl_bench.data.paired import PairedDataset
from ncl_bench.errors import TrainingError, named, refuse_difference
from ncl_bench.npy import Float32Array, Float64Array, FloatArray, Int64Array
from ncl_bench.progress import Advance, bar

FIT, CROSS_FITTED = "fit", "cross_fitted"
MARGIN = 0.2
"""Threshold of NCR's division (section 4.2)."""
IMAGES_AT_ONCE = 1_024


@dataclass(frozen=True)
class AuditedRuns:
    """Finished runs on the same pairs.

    Attributes:
        runs: the runs, whose jobs have the noise that was trained on.
        train: the whole training split with its noise.
        rows: int64, ascending: the audited pairs; all of them unless the runs kept only some.
    """

    runs: Sequence[FinishedRun]
    train: PairedDataset
    rows: Int64Array

    def methods(self, device: torch.device) -> list[Method]:
        """Load the method of every run, with its best networks."""
        return [chosen_method(run, device) for run in self.runs]


def audit(
    runs: Path | Sequence[Path],
    root: Path | None = None,
    *,
    noise_file: Path | None = None,
    keep: Path | None = None,
    text_encoder: str | None = None,
    device: str = "auto",
    console: Console | None = None,
) -> pd.DataFrame:
    """Describe how a finished run sees every training pair; several runs are averaged.

    Args:
        runs: a finished run, or several on the same data and noise.
        root: folder of prepared datasets.
        noise_file: noise file of the training, if it used one.
        keep: folder of kept pairs of the training, if it used one.
        text_encoder: of ``cross_fitted``, as for :func:`~baselines.audit.judge.judge_split`.
        device: ``auto``, ``cpu`` or ``cuda``.
        console: console for progress (default: standard error).

    Returns:
        One row per pair in the order of the split, with the columns

        - ``pair_id``, ``image_id``, ``caption``: the pair; no caption if the dataset has only token ids;
        - ``fit``: mean of the ranks of ``similarity`` and ``cross_fitted`` as a share of pairs: so many fit at most as
          well as this one, in (0, 1]; small is suspicious;
        - ``probability``: that the pair is wrong, in [0, 1], from ``cross_fitted`` alone;
        - ``cross_fitted``: CCA and LEMoN on features and captions, fitted without the pair's image, in standard
          deviations of chance; larger fits better;
        - ``similarity``: mean over all networks;
        - ``clean_probability``: the method's own, in [0, 1], mean over the runs; empty if no run has one;
        - ``loss``: mean triplet loss (NCR Eq. 2, margin 0.2) in a batch of the recipe's size, in an order that depends
          only on the seed; mean over all networks;
        - ``posterior``: probability of the low-loss component of a Gaussian mixture over ``loss`` (NCR Eq. 3), in
          [0, 1]; empty if all losses are equal;
        - ``rank``: rank of the caption for its image among itself and the captions of 1,000 pairs; ties count against
          it;
        - ``better_1``, ``better_2``, ``better_3``: pairs of these 1,000 whose captions fit the image best, excluding
          pairs with this image;
        - ``reason``: why else the pair should be looked at, found by a rule; mostly empty.

    Raises:
        TrainingError: a run is unfinished, or runs or data do not match.
        NclBenchError: data or noise are missing or refused.
    """
    opened = open_runs([runs] if isinstance(runs, Path) else runs, root, noise_file=noise_file, keep=keep)
    return pair_table(opened, text_encoder=text_encoder, device=device, console=console)[0]


def open_runs(
    runs: Sequence[Path], root: Path | None, *, noise_file: Path | None = None, keep: Path | None = None
) -> AuditedRuns:
    """Open finished runs and the pairs they were trained on; arguments as in :func:`audit`.

    Raises:
        TrainingError: a run is unfinished, or runs or data do not match.
        DataError: a file of the training split has changed since the dataset was prepared.
    """
    finished = [FinishedRun.read(run, root).with_noise(noise_file, keep) for run in runs]
    check_alike(finished)
    first = finished[0]
    train = first.job.load("train")
    check_vocabulary(first, train)
    here, trained = first.job.record(train), first.run
    facts: dict[str, tuple[object, object]] = {
        "fingerprint": (here.fingerprint, trained.fingerprint),
        "noise": (here.noise.sha256, trained.noise.sha256),
        "keep": (here.keep and here.keep.sha256, trained.keep and trained.keep.sha256),
    }
    fix = f"give the {named('root')}, {named('noise_file')} and {named('keep')} that it was trained with"
    refuse_difference(f"{runs[0]} was trained on other pairs", facts, fix, TrainingError)
    refuse_damage(train.name, root, "train", progress=bar)
    return AuditedRuns(finished, train, first.job.kept_rows(train))


def pair_table(
    audited: AuditedRuns,
    *,
    text_encoder: str | None = None,
    device: str = "auto",
    console: Console | None = None,
) -> tuple[pd.DataFrame, Judged]:
    """Compute the table of :func:`audit`, and judge the pairs without the runs.

    Raises:
        TrainingError: the networks give similarities that are not finite.
    """
    refuse_text_encoder(text_encoder, audited.train)  # before minutes of scoring
    train, rows, first = audited.train, audited.rows, audited.runs[0]
    seed, chosen_device = first.job.seed, device_for(device, first.job.precision)
    networks, batches = _opened(audited, chosen_device)
    sample = sample_of(rows, seed)
    n_images = len(np.unique(train.caption_to_image[rows]))
    with bar("audit", 2 * len(rows) + n_images, console) as advance:
        own = _own(networks, batches, advance)
        if not (np.isfinite(own["loss"]).all() and np.isfinite(own["score"]).all()):
            raise TrainingError(f"{first.folder.path} gives similarities that are not finite; train it again")
        scores_of = partial(score_rows, networks, train, device=chosen_device)
        rank, better = among_others(scores_of, train, rows, own["score"], sample, advance)
        judged = judge_split(
            train,
            rows,
            text_encoder=text_encoder,
            seed=derive_seed(seed, "audit", "judge"),
            device=device,
            advance=advance,
        )
    cross_fitted = -judged.table["score"].to_numpy(np.float64)
    values = {
        FIT: _fit(own["similarity"], cross_fitted),
        "probability": judged.table["probability"].to_numpy(np.float64),
        CROSS_FITTED: cross_fitted,
        "similarity": own["similarity"],
        CLEAN_PROBABILITY: clean_probability(audited),
        "loss": own["loss"],
        "posterior": _posterior(own["loss"], derive_seed(seed, "audit", "mixture")),
    }
    table = table_of(train, rows, values, rank, better)
    return table.assign(reason=judged.table["reason"].astype("string")), judged


def _fit(*views: FloatArray) -> Float64Array:
    """Share of pairs whose mean rank is at most a pair's own, in (0, 1]."""
    from scipy.stats import rankdata

    shares: Float64Array = rankdata(sum(map(rankdata, views)), "max") / len(views[0])
    return shares


def sample_of(rows: Int64Array, seed: int) -> Int64Array:
    """Ascending rows of the pairs whose captions every image is compared with."""
    random = np.random.default_rng(derive_seed(seed, "audit"))
    return np.sort(random.choice(rows, min(SAMPLE, len(rows)), replace=False))


def table_of(
    train: PairedDataset,
    rows: Int64Array,
    values: Mapping[str, FloatArray],
    rank: Int64Array,
    better: NDArray[np.object_],
) -> pd.DataFrame:
    """The table of audited pairs: what they are, what was found of each, and what fits its image better.

    Args:
        train: the split, whole.
        rows: int64 ``(n,)``, its audited pairs.
        values: column to a number of each pair.
        rank, better: of :func:`among_others`.
    """
    own_images, captions = train.caption_to_image[rows], train.captions
    texts = [None] * len(rows) if captions is None else list(taken(captions, rows))
    return pd.DataFrame(
        {
            "pair_id": train.pair_ids[rows],
            "image_id": list(map(str, taken(train.image_ids, own_images))),
            "caption": pd.array(texts, "string"),
            **values,
            "rank": rank,
        }
        | {f"better_{place + 1}": pd.array(column, "Int64") for place, column in enumerate(better.T)}
    )


def clean_probability(
    audited: AuditedRuns, epoch: int | None = None, *, run: int | None = None
) -> Float32Array:
    """The method's own clean probability of the audited pairs, float32 ``(n,)``; NaN if no run has one.

    Args:
        audited: the runs; runs without one are left out of the mean.
        epoch: epoch to read (default: the best epoch of each run).
        run: number of one of the runs, to read it alone.
    """
    probabilities = []
    for each in audited.runs if run is None else [audited.runs[run]]:
        kept = each.folder.read_estimates(
            each.outcome.best_epoch if epoch is None else epoch, len(audited.train)
        )
        if CLEAN_PROBABILITY not in kept:
            continue
        values = kept[CLEAN_PROBABILITY]
        unseen = np.setdiff1d(np.arange(len(values)), each.job.rows(audited.train), assume_unique=True)
        values[unseen] = np.nan  # pairs that were never trained on still have the initial value of the memory
        probabilities.append(values[audited.rows])
    if not probabilities:
        return np.full(len(audited.rows), np.nan, np.float32)
    mean: Float32Array = np.mean(probabilities, axis=0, dtype=np.float32)
    return mean


def _opened(audited: AuditedRuns, device: torch.device) -> tuple[Networks, TrainingBatches]:
    """The best networks of the runs, with what they rank by, and batches of the audited pairs."""
    networks = [
        (network, partial(method.ranking_scores, network))
        for method in audited.methods(device)
        for network in method.networks
    ]
    return networks, TrainingBatches(
        audited.train,
        batch_size=audited.runs[0].job.recipe.batch_size,
        seed=audited.runs[0].job.seed,
        device=device,
        pair_rows=audited.rows,
        features="mapped",
    )


def own_values(audited: AuditedRuns, *, device: str = "auto") -> dict[str, Float32Array]:
    """``loss`` and ``similarity`` as in :func:`audit`, ``prediction``: P of NCR's Eq. 5, and ``score``, which ranks."""
    networks, batches = _opened(audited, device_for(device, audited.runs[0].job.precision))
    with bar("compare pairs", len(audited.rows)) as advance:
        return _own(networks, batches, advance)


@torch.no_grad()
def _own(networks: Networks, batches: TrainingBatches, advance: Advance) -> dict[str, Float32Array]:
    """Loss, similarity, ranking score and NCR's prediction of every pair, float32 ``(n,)``: means over the networks."""
    ids = batches.pair_ids.numpy()
    sums = np.zeros((4, len(ids)), np.float32)
    for batch in batches.covering("audit"):
        places = np.searchsorted(ids, batch.pair_ids.cpu().numpy())
        for network, ranking_scores in networks:
            similarities = network(batch).similarities.float()
            own = torch.stack(
                [
                    mean_triplet(similarities, MARGIN),
                    similarities.diagonal(),
                    ranking_scores(similarities).diagonal(),
                    matching_prediction(similarities, MARGIN),
                ]
            )
            sums[:, places] += own.cpu().numpy()
        advance(len(batch))
    return dict(zip(("loss", "similarity", "score", "prediction"), sums / len(networks), strict=True))


def among_others(
    scores_of: Callable[[Int64Array, Int64Array], Float32Array],
    train: PairedDataset,
    rows: Int64Array,
    own: Float32Array,
    sample: Int64Array,
    advance: Advance,
) -> tuple[Int64Array, NDArray[np.object_]]:
    """Rank each pair's caption among those of the sample, and find the best of these for its image.

    Args:
        scores_of: scores of some images (rows) and captions (columns).
        train: the whole split.
        rows: the audited pairs.
        own: float32 ``(n,)``, ranking score of each pair.
        sample: ascending rows of the pairs whose captions are compared.
        advance: called with the number of images done.

    Returns:
        int64 ranks ``(n,)``, at least 1, and pair ids ``(n, 3)``, None if the sample has no more.
    """
    images = np.unique(train.caption_to_image[rows])
    rank = np.zeros(len(rows), np.int64)
    better = np.full((len(rows), BETTER), None, object)
    image_of = train.caption_to_image
    # the same score computed in another batch differs in its last bits
    tied = own - (1e-6 + 1e-5 * np.abs(own))
    for start in range(0, len(images), IMAGES_AT_ONCE):
        block = images[start : start + IMAGES_AT_ONCE]
        scores = scores_of(block, sample)
        places = np.flatnonzero((image_of[rows] >= block[0]) & (image_of[rows] <= block[-1]))
        of_block = np.searchsorted(block, image_of[rows[places]])
        others = sample != rows[places][:, None]
        rank[places] = 1 + ((scores[of_block] >= tied[places][:, None]) & others).sum(axis=1)
        scores[image_of[sample] == block[:, None]] = -np.inf
        best = np.argsort(-scores, axis=1, kind="stable")[:, :BETTER]
        chosen = train.pair_ids[sample[best]].astype(object)
        chosen[np.isneginf(np.take_along_axis(scores, best, axis=1))] = None
        better[places, : chosen.shape[1]] = chosen[of_block]
        advance(len(block))
    return rank, better


def _posterior(losses: Float32Array, seed: int) -> Float32Array:
    if losses.min() == losses.max():
        return np.full(len(losses), np.nan, np.float32)
    return clean_posterior(torch.from_numpy(losses), random_state=seed).numpy()


def lemon_table(
    train: PairedDataset,
    rows: Int64Array,
    seed: int,
    images: FloatArray,
    captions: FloatArray,
    *,
    device: torch.device,
    console: Console | None = None,
) -> pd.DataFrame:
    """The table of an audit by LEMoN's fixed setting.

    Args:
        train: the split with its noise, whole.
        rows: int64 ``(n,)``, its audited pairs, which are the reference too; if they are more than 50,000, that many
            of them are drawn.
        seed: of the draws.
        images: ``(n_images, dim)``, embeddings of the split's images.
        captions: ``(n_captions, dim)``, of its captions.
        device: where to compute.
        console: where to draw progress; standard error by default.

    Returns:
        The columns of :func:`audit`, with ``lemon`` (minus the score) and ``similarity`` (the
        cosine) in place of the method's.

    Raises:
        TrainingError: too few pairs.
    """
    image_of = train.caption_to_image[rows]
    n_images = len(np.unique(image_of))
    random = np.random.default_rng(derive_seed(seed, "audit", LEMON))
    reference = np.sort(random.permutation(len(rows))[:MOST_REFERENCE])
    with bar("audit", len(rows) + n_images, console) as advance:
        lemons = lemon(images, captions[rows], image_of, reference, device=device, advance=advance)
        x, y = unit(images), unit(captions)
        similarity = (1 - lemons.distance).astype(np.float32)

        def scores_of(block: Int64Array, others: Int64Array) -> Float32Array:
            scores: Float32Array = (x[block] @ y[others].T).astype(np.float32)
            return scores

        rank, better = among_others(scores_of, train, rows, similarity, sample_of(rows, seed), advance)
    return table_of(train, rows, {LEMON: -lemons.score, "similarity": similarity}, rank, better)


def suspicious_first(table: pd.DataFrame, chosen_by: str) -> Int64Array:
    """Rows of a run's table: by the chosen column, then the larger loss, then the pair's id."""
    then = table["similarity"] if chosen_by == LEMON else -table["loss"]
    return np.lexsort((table["pair_id"], then, table[chosen_by]))
