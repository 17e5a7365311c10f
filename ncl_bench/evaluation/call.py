"""``ncl_bench.evaluate``: one call for scores, embeddings, a model or a submission."""

from collections.abc import Callable
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal, overload

from ncl_bench.arguments import Bounds, Count, checked_arguments, refuse_unused
from ncl_bench.data import dataset_spec
from ncl_bench.errors import ScoresError
from ncl_bench.evaluation.protocol import evaluate_scores, expected_shape
from ncl_bench.evaluation.results import Evaluation, Result
from ncl_bench.files import AnyPath, as_path, sole_owner, write_text
from ncl_bench.progress import Progress, bar, silent

if TYPE_CHECKING:
    from ncl_bench.evaluation.encode import Encode

EVALUATION_FILE = "evaluation.json"
"""File name for the numbers of bare scores; a submission has ``result.json``."""


@overload
def evaluate(
    scores: AnyPath,
    *,
    to: AnyPath | None = None,
    plot: bool = False,
    examples: int = 0,
    root: AnyPath | None = None,
    progress: Progress | None = None,
) -> Result: ...


@overload
def evaluate(
    scores: Any,
    captions: Any = None,
    *,
    dataset: str,
    split: Literal["test", "dev"] = "test",
    t2i: Any = None,
    similarity: Literal["cosine", "dot"] = "cosine",
    encode: "Encode | None" = None,
    batch_size: int = 256,
    pictures: bool | None = None,
    intervals: bool = True,
    to: AnyPath | None = None,
    plot: bool = False,
    examples: int = 0,
    root: AnyPath | None = None,
    progress: Progress | None = None,
) -> Evaluation: ...


@checked_arguments(ScoresError)
def evaluate(
    scores: Any,
    captions: Any = None,
    *,
    dataset: str | None = None,
    split: Literal["test", "dev"] = "test",
    t2i: Any = None,
    similarity: Literal["cosine", "dot"] = "cosine",
    encode: Callable[..., Any] | None = None,
    batch_size: Count = 256,
    pictures: bool | None = None,
    intervals: bool = True,
    to: AnyPath | None = None,
    plot: bool = False,
    examples: Annotated[int, Bounds(0, 1_000)] = 0,
    root: AnyPath | None = None,
    progress: Progress | None = None,
) -> Evaluation | Result:
    """Compute every metric of the protocol for similarities, embeddings, a model or a submission.

    Example::

        ncl_bench.evaluate(similarities, dataset="flickr30k")  # (1000, 5000), images as rows
        ncl_bench.evaluate(image_embeddings, caption_embeddings, dataset="flickr30k")
        ncl_bench.evaluate(model, dataset="flickr30k", root="data")  # model.encode_images, model.encode_captions
        ncl_bench.evaluate("submissions/ncr")

    Args:
        scores: one of

            - similarities, float ``(n_images, n_captions)``, images as rows, larger for a better match; caption ``c``
              belongs to image ``c // captions_per_image``. On dev, give the images used for selection only;
            - embeddings of the images, ``(n_images, dim)``, with those of the captions as the second argument;
            - a model, whose embeddings are computed here (see ``encode``);
            - the folder of a submission. Its file names dataset and split, and ``result.json`` is written next to it.

            An array is one of numpy, in memory or memory-mapped; a tensor of any framework, also with a gradient, in
            bfloat16 or on a GPU; or the path of an ``.npy``, ``.safetensors``, ``.pt``, ``.npz``,
            ``.mat`` or ``.csv`` file.
        captions: embeddings of the captions, ``(n_captions, dim)``.
        dataset: dataset of the scores; a submission folder names its own.
        split: split of the scores (default: test); a submission folder names its own.
        t2i: similarities for the captions as queries, captions as rows, if they differ, as those of a reranker do
            (default: one matrix for both directions). The shape is ``(n_captions, n_images)``; images as rows are taken
            too if the shape tells. ``scores`` then ranks captions for images alone.
        similarity: similarity of two embeddings (default: cosine).
        encode: called as ``encode(model, kind, batch)`` with kind ``"images"`` or ``"captions"`` (default:
            ``model.encode_images(batch)`` and ``model.encode_captions(batch)``). A batch of images is a list of PIL
            images, or of features, float ``(n, n_regions, feature_dim)``, if the dataset has no pictures; a batch of
            captions is a list of texts. It returns ``(n, dim)``. The model decides device and precision, and whether to
            record gradients.
        batch_size: images or captions per batch of a model.
        pictures: give the model pictures (True) or features (False).
        intervals: compute the 95 % intervals.
        to: output folder (default: the submission folder; for scores, the current folder takes plots and pages, and
            metrics are only returned). Metrics of scores go to ``evaluation.json``.
        plot: write histograms of the ranks as SVG.
        examples: write a page with this many worst failures.
        root: folder of prepared datasets (default: environment variable ``NCL_BENCH_DATA``). A model needs it, and the
            labels of ECCV Caption and CxC.
        progress: :func:`ncl_bench.progress.bar` shows a bar (default: for a model only).
    """
    of_models = {"encode": encode, "batch_size": batch_size, "pictures": pictures}
    of_pairs = {"similarity": similarity}
    of_embeddings = {"captions": captions, "t2i": t2i}
    place = Path(scores) if isinstance(scores, str | PathLike) else None
    if dataset is None or (place is not None and is_submission(place)):
        if place is None:
            raise ScoresError("the dataset of these scores is unknown; add dataset=NAME")
        if place.is_file():
            raise ScoresError(f"{place} holds scores of an unknown dataset; add dataset=NAME")
        unread = {
            "dataset": dataset,
            "split": split,
            "intervals": intervals,
            **of_embeddings,
            **of_models,
            **of_pairs,
        }
        refuse_unused(evaluate, unread, "on a submission, which names its own", ScoresError)
        from ncl_bench.evaluation.evaluate import evaluated_folder

        return evaluated_folder(
            place,
            as_path(to),
            plot=plot,
            examples=examples,
            root=as_path(root),
            progress=progress or silent,
        )[0]
    given = scores if captions is None else (scores, captions)
    if encode is not None or hasattr(scores, "encode_images"):
        # before minutes of embedding
        refuse_unused(evaluate, of_embeddings, "beside a model, which embeds both sides", ScoresError)
        from ncl_bench.evaluation.encode import embeddings_of

        given = embeddings_of(
            scores,
            encode,
            dataset,
            split,
            batch_size=batch_size,
            pictures=pictures,
            root=as_path(root),
            progress=progress or bar,
        )
    else:
        refuse_unused(evaluate, of_models, "on scores: it is for models", ScoresError)
        if isinstance(scores, tuple):
            refuse_unused(evaluate, {"captions": captions}, "beside a pair of embeddings", ScoresError)
        elif captions is None:
            refuse_unused(evaluate, of_pairs, "on a matrix: it compares embeddings", ScoresError)
    return evaluated_scores(
        given,
        dataset=dataset,
        split=split,
        t2i=t2i,
        similarity=similarity,
        intervals=intervals,
        to=as_path(to),
        plot=plot,
        examples=examples,
        root=as_path(root),
        progress=progress or silent,
    )[0]


def is_submission(place: Path) -> bool:
    """Whether it is a folder that holds ``submission.yaml``."""
    if not place.is_dir():
        return False
    from ncl_bench.evaluation.submission import SUBMISSION_FILE  # its records are not needed to rank a matrix

    return (place / SUBMISSION_FILE).is_file()


def evaluated_scores(
    scores: Any,
    *,
    dataset: str,
    split: Literal["test", "dev"],
    t2i: Any,
    similarity: Literal["cosine", "dot"],
    to: Path | None,
    plot: bool,
    examples: int,
    root: Path | None,
    progress: Progress,
    intervals: bool = True,
) -> tuple[Evaluation, list[Path]]:
    """Evaluate scores; also return the files written."""
    pages = None
    if plot or examples:
        from ncl_bench.evaluation.pages import Pages

        pages = Pages(to or Path(), plot=plot, examples=examples, root=root)
    n_images = expected_shape(dataset_spec(dataset), split)[0]
    with progress("count ranks", n_images if t2i is None else 2 * n_images) as on_rows:
        evaluation = evaluate_scores(
            scores,
            dataset=dataset,
            split=split,
            t2i=t2i,
            similarity=similarity,
            intervals=intervals,
            root=root,
            on_rows=on_rows,
            pages=pages,
        )
    if not to and not pages:
        return evaluation, []
    place = to or Path()
    with sole_owner(place, nested=False):
        write_text(place / EVALUATION_FILE, evaluation.to_json() + "\n")
        return evaluation, [place / EVALUATION_FILE, *(pages.write() if pages else ())]
