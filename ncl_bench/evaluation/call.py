"""The calls that rank: scores, embeddings, a model or a submission.

This module imports nothing heavy, as ``--help`` reads its signatures; each call imports its work.
"""

from collections.abc import Callable, Sequence
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal, cast

from ncl_bench.arguments import (
    AnyPath,
    Count,
    NoiseUnit,
    Seed,
    as_list,
    as_path,
    checked_arguments,
    warn_of_former,
)
from ncl_bench.errors import ScoresError, SubmissionError, named
from ncl_bench.progress import Progress, bar, silent

if TYPE_CHECKING:
    from ncl_bench.evaluation.compare import Comparison
    from ncl_bench.evaluation.results import Evaluation, Result
    from ncl_bench.evaluation.template import Begun

EVALUATION_FILE = "evaluation.json"
"""File name for the numbers of bare scores; a submission has ``result.json``."""
Split = Literal["test", "dev"]
Similarity = Literal["cosine", "dot"]
Examples = Annotated[int, range(1_001)]


def _formerly_evaluate(
    scores: Any, captions: Any = None, *, dataset: str | None = None, **given: Any
) -> "Evaluation | Result":
    """Use evaluate_embeddings(images, captions, dataset=...), evaluate_model(model, dataset=...) or
    evaluate_submission(folder)."""
    if isinstance(scores, tuple) and len(scores) == 2:
        scores, captions = scores
    if dataset is None and isinstance(scores, str | PathLike) and not Path(scores).is_file():
        return evaluate_submission(scores, **given)
    if dataset is None:
        raise ScoresError(f"the dataset of these scores is unknown; add {named('dataset', 'NAME')}")
    if captions is not None:
        return evaluate_embeddings(scores, captions, dataset=dataset, **given)
    if "encode" in given or hasattr(scores, "encode_images"):
        return evaluate_model(scores, dataset=dataset, **given)
    unread = next(name for name in _FORMER if name in given)
    raise ScoresError(
        f"{named(unread)} does not apply to one matrix of similarities, only to embeddings or a model; leave it out"
    )


_FORMER = ("similarity", "encode", "batch_size", "pictures")


@checked_arguments(ScoresError, formerly=_formerly_evaluate, former=_FORMER)
def evaluate(
    scores: Any,
    *,
    dataset: str,
    split: Split = "test",
    t2i: Any = None,
    intervals: bool = True,
    to: AnyPath | None = None,
    plot: bool = False,
    examples: Examples = 0,
    root: AnyPath | None = None,
    progress: Progress = silent,
) -> "Evaluation":
    """Compute every metric of the protocol for similarities.

    Example::

        ncl_bench.evaluate(similarities, dataset="flickr30k")  # (1000, 5000), images as rows

    Args:
        scores: similarities, float ``(n_images, n_captions)``, images as rows, larger for a better match; caption ``c``
            belongs to image ``c // captions_per_image``. On dev, give the images used for selection only. An array is
            one of numpy, in memory or memory-mapped; a tensor of any framework, also with a gradient, in bfloat16 or on
            a GPU; or the path of an ``.npy``, ``.safetensors``, ``.pt``, ``.npz``, ``.mat`` or ``.csv`` file.
        dataset: dataset of the scores; a submission folder names its own.
        split: split of the scores (default: test); a submission folder names its own.
        t2i: similarities for the captions as queries, captions as rows, if they differ, as those of a reranker do
            (default: one matrix for both directions). The shape is ``(n_captions, n_images)``; images as rows are taken
            too if the shape tells. ``scores`` then ranks captions for images alone.
        intervals: compute the 95 % intervals.
        to: output folder (default: the submission folder; for scores, the current folder takes plots and pages, and
            metrics are only returned). Metrics of scores go to ``evaluation.json``.
        plot: write histograms of the ranks as SVG.
        examples: write a page with this many worst failures.
        root: folder of prepared datasets (default: environment variable ``NCL_BENCH_DATA``). The labels of ECCV Caption
            and CxC need it.
        progress: :func:`ncl_bench.progress.bar` shows a bar (default: none).
    """
    if hasattr(scores, "encode_images") or (isinstance(scores, tuple) and len(scores) == 2):
        warn_of_former(evaluate, _formerly_evaluate)
        given = {
            "split": split,
            "intervals": intervals,
            "to": to,
            "plot": plot,
            "examples": examples,
            "root": root,
        }
        given |= {} if t2i is None else {"t2i": t2i}
        return cast("Evaluation", _formerly_evaluate(scores, dataset=dataset, **given))
    pages = to, plot, examples, root
    return evaluated_scores((scores,), dataset, split, *pages, progress, intervals=intervals, t2i=t2i)[0]


@checked_arguments(ScoresError)
def evaluate_embeddings(
    images: Any,
    captions: Any,
    *,
    dataset: str,
    split: Split = "test",
    similarity: Similarity = "cosine",
    intervals: bool = True,
    to: AnyPath | None = None,
    plot: bool = False,
    examples: Examples = 0,
    root: AnyPath | None = None,
    progress: Progress = silent,
) -> "Evaluation":
    """Compute every metric of the protocol for embeddings, whose similarities are computed in blocks.

    Example::

        ncl_bench.evaluate_embeddings(image_embeddings, caption_embeddings, dataset="flickr30k")

    Args:
        images: float ``(n_images, dim)``, an array, tensor or file as :func:`evaluate` takes.
        captions: likewise, ``(n_captions, dim)``.
        dataset: dataset of the embeddings.
        split: split of the embeddings.
        similarity: similarity of two embeddings (default: cosine).
        intervals, to, plot, examples, root, progress: see :func:`evaluate`.
    """
    given, pages = (images, captions), (to, plot, examples, root)
    return evaluated_scores(
        given, dataset, split, *pages, progress, intervals=intervals, similarity=similarity
    )[0]


@checked_arguments(ScoresError)
def evaluate_model(
    model: Any,
    *,
    dataset: str,
    split: Split = "test",
    encode: Callable[..., Any] | None = None,
    batch_size: Count = 256,
    pictures: bool | None = None,
    similarity: Similarity = "cosine",
    intervals: bool = True,
    to: AnyPath | None = None,
    plot: bool = False,
    examples: Examples = 0,
    root: AnyPath | None = None,
) -> "Evaluation":
    """Embed a split with a model of any framework, and compute every metric of the protocol.

    Example::

        ncl_bench.evaluate_model(model, dataset="flickr30k", root="data")  # model.encode_images, model.encode_captions

    Args:
        model: an object with ``encode_images`` and ``encode_captions``, or any with ``encode``. It decides device and
            precision, and whether to record gradients.
        dataset: dataset to embed.
        split: split to embed.
        encode: called as ``encode(model, kind, batch)`` with kind ``"images"`` or ``"captions"`` (default:
            ``model.encode_images(batch)`` and ``model.encode_captions(batch)``). A batch of images is a list of PIL
            images, or of features, float ``(n, n_regions, feature_dim)``, if the dataset has no pictures; a batch of
            captions is a list of texts. It returns ``(n, dim)``.
        batch_size: images or captions per batch.
        pictures: give the model pictures (True) or features (False).
        similarity: similarity of two embeddings (default: cosine).
        intervals, to, plot, examples: see :func:`evaluate`.
        root: folder of prepared datasets (default: environment variable ``NCL_BENCH_DATA``).
    """
    from ncl_bench.evaluation.encode import embeddings_of

    given = embeddings_of(model, encode, dataset, split, batch_size, pictures, as_path(root), bar)
    pages = to, plot, examples, root
    return evaluated_scores(given, dataset, split, *pages, bar, intervals=intervals, similarity=similarity)[0]


@checked_arguments(ScoresError)
def evaluate_submission(
    folder: AnyPath,
    *,
    to: AnyPath | None = None,
    plot: bool = False,
    examples: Examples = 0,
    root: AnyPath | None = None,
    progress: Progress = silent,
) -> "Result":
    """Check a submission, compute every metric of the protocol, and write them to ``result.json``.

    Example::

        ncl_bench.evaluate_submission("submissions/ncr")

    Args:
        folder: folder with ``submission.yaml``, which names dataset, split and files.
        to: folder to write (default: the submission).
        plot, examples, root, progress: see :func:`evaluate`.
    """
    from ncl_bench.evaluation.evaluate import evaluated_folder

    return evaluated_folder(Path(folder), to, plot, examples, root, progress)[0]


def is_submission(place: Path) -> bool:
    """Whether it is a folder that holds ``submission.yaml``."""
    return (place / "submission.yaml").is_file()


def evaluated_scores(
    given: Sequence[Any],
    dataset: str,
    split: Split,
    to: AnyPath | None,
    plot: bool,
    examples: int,
    root: AnyPath | None,
    progress: Progress,
    *,
    t2i: Any = None,
    similarity: Similarity | None = None,
    intervals: bool = True,
) -> "tuple[Evaluation, list[Path]]":
    """Evaluate a matrix of scores, or two arrays of embeddings; also return the files written."""
    from ncl_bench.data import dataset_spec
    from ncl_bench.evaluation.protocol import measure, open_scores, square_note
    from ncl_bench.files import sole_owner, write_text

    spec, place = dataset_spec(dataset), Path(to or "")
    pages = None
    if plot or examples:
        from ncl_bench.evaluation.pages import Pages

        pages = Pages(place, plot=plot, examples=examples, root=as_path(root))
    sides = open_scores(given, spec, split, similarity=similarity, t2i=t2i)
    with progress("count ranks", len({*sides}) * sides[0].shape[0]) as on_rows:
        evaluation, counted = measure(
            sides, spec, split, intervals=intervals, root=as_path(root), on_rows=on_rows
        )
    notes = square_note(spec) if t2i is None else [*filter(None, [getattr(sides[1], "remark", "")])]
    if len(given) == 2:
        notes = [f"{similarity or 'cosine'} of the embeddings was taken as similarity"]
    evaluation = evaluation.model_copy(update={"notes": (*notes, *evaluation.notes)})
    if pages is not None:
        pages.draw("Scores", sides, counted, spec, split, spec.languages[0])
    if not to and not pages:
        return evaluation, []
    with sole_owner(place, nested=False):
        write_text(place / EVALUATION_FILE, evaluation.to_json() + "\n")
        return evaluation, [place / EVALUATION_FILE, *(pages.write() if pages else ())]


@checked_arguments(SubmissionError)
def compare(
    first: AnyPath | Sequence[AnyPath],
    second: AnyPath | Sequence[AnyPath],
    *,
    split: Split = "test",
    plot: AnyPath | None = None,
    root: AnyPath | None = None,
    progress: Progress = silent,
) -> "Comparison":
    """Test whether two submissions, or two methods with several training seeds each, differ significantly.

    Example::

        print(ncl_bench.compare("submissions/ncr", "submissions/crcl"))
        ncl_bench.compare(["ncr-seed0", "ncr-seed1", "ncr-seed2"], ["crcl-seed0", "crcl-seed1", "crcl-seed2"])

    Two submissions are compared by a bootstrap over images; both see the same resamples. Several seeds per side are
    compared by a test over seeds and images together, as on the leaderboard.

    Args:
        first: submission folder, or one folder per training seed.
        second: likewise.
        split: split to compare.
        plot: file (.svg, .png or .pdf) for a plot of the resampled differences, or of the rSum of every run.
        root: folder of prepared datasets (default: environment variable ``NCL_BENCH_DATA``).
        progress: :func:`ncl_bench.progress.bar` shows a bar (default: none).
    """
    from ncl_bench.evaluation.compare import compared

    return compared([as_list(first), as_list(second)], split, as_path(plot), as_path(root), progress)


@checked_arguments(SubmissionError)
def begin_submission(
    folder: Path,
    method: str,
    dataset: str,
    *,
    scores: Sequence[Path] = (),
    similarity: Similarity | None = None,
    noise_unit: NoiseUnit | None = None,
    noise_ratio: float | None = None,
    noise_seed: Seed | None = None,
    order_from: Path | None = None,
    root: Path | None = None,
) -> "Begun":
    """Copy scores of the test split into a folder and write its ``submission.yaml``, as complete as possible.

    Args:
        folder: folder of the submission, without a submission.yaml so far.
        method: name of the method.
        dataset: name of the dataset.
        scores: file of similarities of the test split (.npy, .safetensors, .pt), which is copied; give two for
            embeddings, images first. None if ``test.npy`` is already in the folder or follows later.
        similarity: similarity of two embeddings (default: cosine). Without ``scores`` it says that embeddings follow.
        noise_unit: unit that the noise moves: random captions (``caption``, the default), images with all their
            captions (``image``), captions to images of similar captions (``similar``) or to images of captions with
            a common noun (``noun``).
        noise_ratio: nominal noise ratio of the training pairs, in [0, 1) (default: clean pairs, or the natural noise of
            the dataset).
        noise_seed: seed of the noise (default: the standard seed of this noise setting).
        order_from: folder with the downloaded captions and ids, to compute the order of the test split; features are
            not needed.
        root: folder of prepared datasets (default: environment variable ``NCL_BENCH_DATA``).
    """
    from ncl_bench.evaluation.template import begin_submission as run

    noise = noise_ratio, noise_unit, noise_seed
    return run(folder, method, dataset, scores, similarity, noise, order_from, root)
