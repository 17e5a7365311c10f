"""The calls that make data: prepare a download, make a dataset of one's own, add images.

This module imports nothing heavy, as ``--help`` reads its signatures; each call imports its work.
"""

from collections.abc import Sequence
from dataclasses import fields, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from ncl_bench.arguments import AnyPath, Count, checked_arguments
from ncl_bench.errors import DataError, named
from ncl_bench.options import Columns, PictureEncoding, SplitDraw, Words
from ncl_bench.progress import Progress, bar, silent

if TYPE_CHECKING:
    from ncl_bench.data.captions import ScanLayout
    from ncl_bench.data.spec import DatasetSpec


@checked_arguments(DataError)
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
        to: folder of prepared datasets; the dataset is written to its subfolder of this name (default: environment
            variable ``NCL_BENCH_DATA``).
        download: fetch the dataset's archive from the Hugging Face Hub first, if it is published there.
        dtype: number type of the features (default: the download's).
        tokenizers: tokenizer: word, word-punkt, jieba, char, bpe or bert (default: the dataset's own).
        tokenizer_file: file tokenizer.json of the tokenizer ``bert``.
        vocabulary: vocabulary file (json) for word and word-punkt (default: the published one if the download has it,
            else one built from the training captions, with other ids).
        push_to_hub: dataset repository of the Hugging Face Hub to upload to afterwards; a new one is private.
        progress: :func:`ncl_bench.progress.silent` shows no bar.

    Returns:
        The prepared folder, ``to/name``.

    Raises:
        DataError: the download is damaged or its layout, count or type differs from the published one, the target
            folder was prepared with other settings, or the disk is too small.
        NclBenchError: another process is writing there, or the folder cannot be written.
    """
    from ncl_bench.data.prepare import prepare as run

    return run(
        name,
        place,
        to,
        download=download,
        dtype=dtype,
        tokenizers=tokenizers,
        tokenizer_file=tokenizer_file,
        vocabulary=vocabulary,
        push_to_hub=push_to_hub,
        progress=progress,
    )


@checked_arguments(DataError)
def add_images(
    spec: "DatasetSpec",
    source: Path,
    root: Path,
    *,
    names: Path | None = None,
    images: Path | None = None,
    image_column: str | None = None,
    progress: Progress = silent,
) -> Path:
    """Copy the images of every split into a prepared folder; the same call resumes after an interruption.

    Args:
        spec: the dataset.
        source: folder with one file per image; or the table, shards or saved folder that the dataset was made of.
        root: folder that holds the prepared dataset.
        names: CSV or TSV file with the columns image_id and file, a path in ``source`` (default: each file is named
            after its image id). No path may lead out of ``source``; links in it are followed.
        images: folder of the pictures (default: the folder of the table).
        image_column: column of image paths or pictures (default: image, file_name, path, filename or alike).
        progress: shows the number of images done.

    Returns:
        The folder of the images.

    Raises:
        DataError: the dataset is not prepared, already has images, or an image is missing, damaged or outside.
        NclBenchError: another process is writing there.
    """
    from ncl_bench.data.images import add_images as run

    return run(
        spec,
        source,
        root,
        names=names,
        images=images,
        image_column=image_column,
        progress=progress,
    )


def dataset_of_options(
    name: str,
    pairs: Any = None,
    *,
    to: AnyPath,
    clean: AnyPath | None = None,
    features: AnyPath | None = None,
    captions: Any = None,
    **given: Any,
) -> "tuple[ScanLayout, tuple[str, ...]]":
    """Use new_dataset(name, pairs, ...) with the folder of an audit as pairs, or new_dataset_of_features(name,
    features, captions, ...), and group options as columns=Columns(), splits=SplitDraw(), words=Words() and
    encoding=PictureEncoding()."""
    source = [each for each in (pairs, captions, clean) if each is not None]
    if len(source) != 1:
        raise DataError(
            f"{'more than one source' if source else 'no source'} of images and captions is given; give a table or a "
            f"folder, or {named('clean')} with the folder of an audit"
        )
    groups: dict[str, Any] = {}
    for group, kind in _GROUPS.items():
        options = {each.name: given.pop(each.name) for each in fields(kind) if each.name in given}
        groups[group] = replace(given.pop(group, kind()), **options)
    if features is None:
        return new_dataset(name, source[0], to=to, **groups, **given)
    del groups["encoding"]  # no picture is encoded
    return new_dataset_of_features(name, features, source[0], to=to, **groups, **given)


_GROUPS: dict[str, Any] = {
    "columns": Columns,
    "splits": SplitDraw,
    "words": Words,
    "encoding": PictureEncoding,
}


@checked_arguments(
    DataError,
    formerly=dataset_of_options,
    former=[each.name for kind in _GROUPS.values() for each in fields(kind)],
)
def new_dataset(
    name: str,
    pairs: AnyPath | Any,
    *,
    to: AnyPath,
    images: AnyPath | None = None,
    columns: Columns = Columns(),  # noqa: B008
    splits: SplitDraw = SplitDraw(),  # noqa: B008
    words: Words = Words(),  # noqa: B008
    encoding: PictureEncoding = PictureEncoding(),  # noqa: B008
    captions_per_image: Count | None = None,
    noise: Literal["synthetic", "natural"] = "synthetic",
    module: AnyPath | None = None,
    progress: Progress = silent,
) -> "tuple[ScanLayout, tuple[str, ...]]":
    """Make a dataset of images and captions: encode the pictures, split and prepare; the same call resumes.

    Args:
        name: name of the dataset: small letters, digits and ``_``.
        pairs: table with one row per caption (.csv, .tsv, .txt, .jsonl, .json, .parquet; columns: image, caption or one
            per language, and optionally split), or a folder with metadata.csv, WebDataset shards or what ``datasets``
            saved. From Python also a ``pandas.DataFrame`` or a ``datasets.Dataset``; see
            :mod:`ncl_bench.data.pairs.rows`. The folder of an audit of own pairs stands for the pairs that it kept,
            with the features that it computed; so does its file clean.* with ``images``.
        to: folder of prepared datasets; the dataset is written to its subfolder of this name.
        images: folder of the pictures (default: the folder of the table).
        columns: what the columns hold, where their names do not say it.
        splits: how splits are drawn that nothing states.
        words: how captions become words.
        encoding: how pictures become features.
        captions_per_image: captions to keep per image, the first ones; needed if images have different numbers of
            captions.
        noise: noise of the pairs: ``synthetic`` (pairs are correct, noise is drawn) or ``natural`` (many are wrong).
        module: Python file to write (default: NAME.py).
        progress: shows what is done.

    Returns:
        The dataset, which is registered, and remarks: what was chosen and what is left out, in sentences.

    Raises:
        DataError: something is missing, damaged or does not fit together.
    """
    from ncl_bench.data.own import made_dataset

    groups = (columns, splits, words, encoding)
    return made_dataset(
        name,
        pairs,
        None,
        images,
        groups,
        captions_per_image,
        noise,
        to,
        module,
        progress,
    )


@checked_arguments(DataError)
def new_dataset_of_features(
    name: str,
    features: AnyPath,
    captions: AnyPath | Any,
    *,
    to: AnyPath,
    images: AnyPath | None = None,
    columns: Columns = Columns(),  # noqa: B008
    splits: SplitDraw = SplitDraw(),  # noqa: B008
    words: Words = Words(),  # noqa: B008
    captions_per_image: Count | None = None,
    noise: Literal["synthetic", "natural"] = "synthetic",
    module: AnyPath | None = None,
    progress: Progress = silent,
) -> "tuple[ScanLayout, tuple[str, ...]]":
    """Make a dataset of features and captions: split and prepare; the same call resumes.

    Args:
        name: as for :func:`new_dataset`.
        features: folder of features in place of pictures, with train.npy, dev.npy and test.npy and their ids, or with
            one .npy file per image (default: the pictures are encoded). Arrays of ``{split}.npy`` or
            ``{split}_ims.npy`` are ``(images, dim)`` or ``(images, regions, dim)``, with the ids in
            ``{split}_ids.txt``, one per line; that of an image, named by its id, is ``(dim,)`` or ``(regions, dim)``.
            64-bit numbers are stored as 32-bit.
        captions: the table, beside ``features``.
        images: folder of the pictures, where files are named by a table of URLs.
        to, columns, splits, words, captions_per_image, noise, module, progress: as for :func:`new_dataset`.

    Returns:
        As for :func:`new_dataset`.

    Raises:
        DataError: as there.
    """
    from ncl_bench.data.own import made_dataset

    groups = (columns, splits, words, PictureEncoding())
    return made_dataset(
        name,
        captions,
        Path(features),
        images,
        groups,
        captions_per_image,
        noise,
        to,
        module,
        progress,
    )
