"""The commands `evaluate`, `compare` and `prepare` as calls; the command line parses, calls these, and prints."""

import os
from collections.abc import Callable, Sequence
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, TypeAlias, overload

from ncl_bench.data import ROOT_VARIABLE, dataset_spec
from ncl_bench.errors import DataError, ScoresError, SubmissionError
from ncl_bench.progress import Progress, bar, silent

if TYPE_CHECKING:
    from ncl_bench.evaluation.compare import Comparison
    from ncl_bench.evaluation.encode import Encode
    from ncl_bench.evaluation.pages import Pages
    from ncl_bench.evaluation.results import Evaluation, Result

EVALUATION_FILE = "evaluation.json"
"""File name for the numbers of bare scores; a submission has ``result.json``."""
AnyPath: TypeAlias = str | PathLike[str]


@overload
def evaluate(
    scores: AnyPath,
    *,
    to: AnyPath | None = None,
    plot: bool = False,
    examples: int = 0,
    root: AnyPath | None = None,
    progress: Progress | None = None,
) -> "Result": ...


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
) -> "Evaluation": ...


def evaluate(
    scores: Any,
    captions: Any = None,
    *,
    dataset: str | None = None,
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
) -> "Evaluation | Result":
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
            bfloat16 or on a GPU; or the path of an ``.npy``, ``.safetensors`` or ``.pt`` file.
        captions: embeddings of the captions, ``(n_captions, dim)``.
        dataset: name of the dataset; of all but a submission.
        split: ``test`` or ``dev``.
        t2i: similarities of the captions as queries, ``(n_captions, n_images)``, if they differ, as those of a reranker
            do; images as rows are taken too if the shape tells. ``scores`` then ranks captions for images alone.
        similarity: of embeddings, ``cosine`` or ``dot``.
        encode: called as ``encode(model, kind, batch)`` with kind ``"images"`` or ``"captions"`` (default:
            ``model.encode_images(batch)`` and ``model.encode_captions(batch)``). A batch of images is a list of PIL
            images, or of features, float ``(n, n_regions, feature_dim)``, if the dataset has no pictures; a batch of
            captions is a list of texts. It returns ``(n, dim)``. The model decides device and precision, and whether to
            record gradients.
        batch_size: images or captions per batch of a model.
        pictures: give the model pictures (True) or features (False).
        intervals: compute the 95 % intervals.
        to: folder for ``evaluation.json``, plots and pages (default: of a submission its own folder; otherwise only
            plots and pages are written, to the current folder).
        plot: write histograms of the ranks as SVG.
        examples: write a page with this many worst failures.
        root: folder of prepared datasets (default: environment variable ``NCL_BENCH_DATA``), which a model needs, and
            the labels of ECCV Caption and CxC.
        progress: :func:`ncl_bench.progress.bar` shows a bar (default: for a model only).
    """
    if dataset is None:
        if not isinstance(scores, str | PathLike):
            raise ScoresError("the dataset of these scores is unknown; add dataset=NAME")
        return evaluated_folder(
            Path(scores),
            _path(to),
            plot=plot,
            examples=examples,
            root=_path(root),
            progress=progress or silent,
        )[0]
    given = scores if captions is None else (scores, captions)
    if encode is not None or hasattr(scores, "encode_images"):
        from ncl_bench.evaluation.encode import embeddings_of

        given = embeddings_of(
            scores,
            encode,
            dataset,
            split,
            batch_size=batch_size,
            pictures=pictures,
            root=_path(root),
            progress=progress or bar,
        )
    return evaluated_scores(
        given,
        dataset=dataset,
        split=split,
        t2i=t2i,
        similarity=similarity,
        intervals=intervals,
        to=_path(to),
        plot=plot,
        examples=examples,
        root=_path(root),
        progress=progress or silent,
    )[0]


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
) -> tuple["Evaluation", list[Path]]:
    """Evaluate scores; also return the files written."""
    from ncl_bench.evaluation.protocol import evaluate_scores, expected_shape

    pages = _pages(to or Path(), plot=plot, examples=examples, root=root)
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
    from ncl_bench.files import sole_owner, write_text

    place = to or Path()
    with sole_owner(place, nested=False):
        write_text(place / EVALUATION_FILE, evaluation.to_json() + "\n")
        return evaluation, [place / EVALUATION_FILE, *(pages.write() if pages else ())]


def evaluated_folder(
    folder: Path,
    to: Path | None,
    *,
    plot: bool,
    examples: int,
    root: Path | None,
    progress: Progress,
    say: Callable[[str], object] = lambda line: None,
) -> tuple["Result", list[Path]]:
    """Evaluate a submission; also return the files written, of which there is none until all is computed."""
    from ncl_bench.evaluation.evaluate import evaluate_submission, open_submission
    from ncl_bench.evaluation.results import RESULT_FILE, write_result
    from ncl_bench.evaluation.submission import opening_line
    from ncl_bench.files import sole_owner

    to = to or folder
    opened = open_submission(folder, root=root)
    submission = opened.submission
    say(opening_line(submission.dataset, submission.noise, submission.method, "cpu"))
    pages = _pages(to, plot=plot, examples=examples, root=root)
    with sole_owner(to, nested=False):
        with progress("count ranks", opened.n_images) as on_rows:
            result, _ = evaluate_submission(opened, on_rows=on_rows, pages=pages)
        write_result(to, result)
        return result, [to / RESULT_FILE, *(pages.write() if pages else ())]


def _pages(to: Path, *, plot: bool, examples: int, root: Path | None) -> "Pages | None":
    if not plot and not examples:
        return None
    from ncl_bench.evaluation.pages import Pages

    return Pages(to, plot=plot, examples=examples, root=root)


def compare(
    first: AnyPath | Sequence[AnyPath],
    second: AnyPath | Sequence[AnyPath],
    *,
    split: Literal["test", "dev"] = "test",
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
        split: ``test`` or ``dev``.
        plot: file (.svg, .png or .pdf) for a plot of the resampled differences, or of the rSum of every run.
        root: folder of prepared datasets (default: environment variable ``NCL_BENCH_DATA``).
        progress: :func:`ncl_bench.progress.bar` shows a bar (default: none).
    """
    from ncl_bench.evaluation.compare import compare_folders

    return compare_folders(
        _side(first), _side(second), split, root=_path(root), plot=_path(plot), progress=progress
    )


def _side(given: AnyPath | Sequence[AnyPath]) -> list[Path]:
    folders = [given] if isinstance(given, str | PathLike) else list(given)
    if not folders:
        raise SubmissionError("a side of the comparison is empty, expected at least one submission folder")
    return [Path(folder) for folder in folders]


def prepare(
    name: str,
    place: AnyPath | None = None,
    to: AnyPath | None = None,
    *,
    download: bool = False,
    dtype: Literal["float32", "float16"] | None = None,
    tokenizers: Sequence[str] = (),
    tokenizer_file: AnyPath | None = None,
    vocabulary: AnyPath | None = None,
    push_to_hub: str | None = None,
    progress: Progress = bar,
) -> Path:
    """Check a downloaded dataset and convert it into a folder that loads in a second.

    The same call resumes an interrupted one. Large datasets are tokenized in several processes, so call this from a
    file whose main code is under ``if __name__ == "__main__":``.

    Example::

        ncl_bench.prepare("flickr30k", "downloads/f30k_precomp", "data")
        train = ncl_bench.load_dataset("flickr30k", root="data", noise_ratio=0.4)

    Args:
        name: name of the dataset.
        place: folder of the downloaded files, or a zip file of them.
        to: folder of prepared datasets (default: environment variable ``NCL_BENCH_DATA``).
        download: fetch the dataset's archive from the Hugging Face Hub first, if it is published there.
        dtype: number type of the features (default: the download's).
        tokenizers: ``word``, ``word-punkt``, ``jieba``, ``char``, ``bpe`` or ``bert`` (default: the dataset's own).
        tokenizer_file: ``tokenizer.json`` of the tokenizer ``bert``.
        vocabulary: published json file for ``word`` and ``word-punkt`` (default: the published one if the download has
            it, else one built from the training captions, with other ids).
        push_to_hub: dataset repository of the Hugging Face Hub to upload to afterwards; a new one is private.
        progress: :func:`ncl_bench.progress.silent` shows no bar.

    Returns:
        The prepared folder, ``to/name``.
    """
    from ncl_bench.data import hub
    from ncl_bench.data.prepare import prepare as run
    from ncl_bench.data.tokenize import PrepareOptions

    dataset_spec(name)
    if push_to_hub:
        hub.check_upload(name)
    if download:
        place = hub.downloaded(name, place)
    root = to or os.environ.get(ROOT_VARIABLE)
    if not root:
        raise DataError(f"no output folder given; add --to DIR or set {ROOT_VARIABLE}")
    options = PrepareOptions(dtype, tuple(tokenizers), _path(tokenizer_file), _path(vocabulary))
    folder = run(name, _path(place), Path(root), options, progress=progress)
    if push_to_hub:
        hub.push_to_hub(folder, push_to_hub)
    return folder


def _path(given: AnyPath | None) -> Path | None:
    return None if given is None else Path(given)
