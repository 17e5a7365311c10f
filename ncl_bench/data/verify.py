"""Verify a download: names, sizes, texts and every number; report findings in sentences."""

import hashlib
from collections.abc import Iterator, Mapping, Sequence, Sized
from dataclasses import dataclass, replace
from pathlib import Path, PurePosixPath
from typing import Any, cast

from ncl_bench.data.download import (
    Download,
    features_folder,
    find_file,
    open_download,
    read_text,
    require,
)
from ncl_bench.data.encoding import ENCODING_FILE, parse_encoding
from ncl_bench.data.features import FeatureFile, open_features, scan
from ncl_bench.data.layout import Dtype, FileRecord
from ncl_bench.data.spec import SPLITS, DatasetSpec, KnownFile, Material, Origin, Split
from ncl_bench.errors import DataError, named
from ncl_bench.files import Journal, sha256_of_file
from ncl_bench.progress import Progress

NAMED = 5
"""Images that a warning names."""


def download_of(spec: DatasetSpec, place: Path | None) -> Download:
    """Open the download of a dataset.

    Args:
        spec: the dataset.
        place: the downloaded folder, the folder above it, or a zip file of either.

    Raises:
        DataError: there is none, or the dataset has none: its files would be taken for what is prepared or checked.
    """
    if place is None or spec.embedded:
        kind = "embedded and has no download" if spec.embedded else "made from downloaded files"
        fix = (
            f"leave {named('place')} and {named('check')} out"
            if spec.embedded
            else f"name them with {named('place')}"
        )
        raise DataError(f"{spec.name} is {kind}; {fix}")
    return open_download(place)


def inspect(spec: DatasetSpec, place: Path | None) -> Material:
    """Open a download, and check everything except the features' numbers.

    Args:
        spec: a dataset that is not embedded.
        place: the downloaded folder, the folder above it, or a zip file of either.

    Raises:
        DataError: a file is missing, damaged, or its size or content differs from the published one.
    """
    origin = spec.origin
    download = download_of(spec, place)
    # the user may name the folder, the one above it, or a zip file: the features of train tell where the files lie
    folder = features_folder(download, origin.split_files("train")[0], origin.folders)
    paths = {split: [f"{folder}{name}" for name in origin.split_files(split)] for split in SPLITS}
    # all names first: a missing last file is told before gigabytes are opened
    for path in (path for split in SPLITS for path in paths[split]):
        require(download, path)
    # headers and sizes only; verify() reads the numbers later, with a progress bar
    features = {s: open_features(download, paths[s][0], spec, s) for s in SPLITS}
    splits = {s: replace(read_split(spec, download, paths[s], s), image_features=features[s]) for s in SPLITS}
    # some releases count images anew in each split, so equal ids mean nothing there
    if origin.ids_span_splits:
        _check_disjoint(splits, download.place)
    # every small file is hashed and listed in the manifest, so that the sources of a folder can be told
    texts = [path for split in SPLITS for path in paths[split][1:]]
    texts += [find_file(download, name) for name in origin.extra_files]
    texts += [find_file(download, origin.judgements[kind]) for kind in splits["test"].judgements]
    # only features of the user's own images come with a record of their encoder
    described = f"{folder}{ENCODING_FILE}"
    texts += [described] if described in download.sizes else []
    files = sorted([*texts, *(file.path for file in features.values())])
    encoding = (
        parse_encoding(read_text(download, described), f"{download.place}/{described}")
        if described in texts
        else None
    )
    return Material(
        splits,
        spec.read_vocabularies(download),
        # without folders: the same files in another place, or zipped, are the same material
        identity=sorted([PurePosixPath(name).name, download.sizes[name]] for name in files),
        # hashes would take minutes; a changed time makes an interrupted run start again
        times=tuple(download.changed_at(name) for name in files),
        download=download,
        texts=tuple(texts),
        encoding=encoding,
    )


def read_split(spec: DatasetSpec, download: Download, paths: Sequence[str], split: str) -> Split:
    """Read the texts of a split by the dataset's class, which may be a user's, and count them.

    Args:
        spec, download, paths, split: see :meth:`ncl_bench.data.spec.DatasetSpec.read_captions`.

    Raises:
        DataError: a file is missing or damaged, or there are more or fewer ids or captions than the protocol says.
    """
    content = spec.read_captions(download, paths, split)
    counts = {"image_ids": len(content.image_ids)}  # published files may repeat an id, which is a warning
    expected = {"image_ids": spec.images[split]}
    texts: Mapping[Any, Sized] = content.tokens or content.captions
    counts |= {str(key): len(each) for key, each in texts.items()}
    expected |= {str(key): spec.n_captions(split) for key in content.tokens or spec.languages}
    # one line too few, and every later caption would belong to another image
    if counts != expected:
        raise DataError(
            f"{download.place}: {spec.name}/{split} has {counts}, expected {expected}: an id for each image, and "
            f"{spec.captions_per_image} captions of each image in a row, in every language; download it again, "
            "or correct read_captions of its class"
        )
    return content


def _check_disjoint(splits: Mapping[str, Split], place: Path) -> None:
    seen: dict[str, str] = {}
    for split, content in splits.items():
        for own in content.image_ids:
            if seen.setdefault(own, split) != split:
                raise DataError(
                    f"{place}: image id {own} is in {seen[own]} and in {split}, expected it in one of them; "
                    "the files come from different releases"
                )


def find_vocabulary(spec: DatasetSpec, place: Path | None) -> Path | None:
    """Find the published vocabulary near a download: in its folder, in ``vocab/``, or one folder up.

    Args:
        spec: the dataset.
        place: the downloaded folder, the folder above it, or a zip file of either; None for an embedded dataset.

    Returns:
        The file, or None.
    """
    origin = spec.origin
    if origin.vocabulary is None or place is None:
        return None
    # absolute, because the parent of `.` is `.` itself
    folders = [place, *(place / name for name in origin.folders), place.absolute().parent]
    files = (folder / below / origin.vocabulary.name for folder in folders for below in (".", "vocab"))
    return next((file for file in files if file.is_file()), None)


@dataclass(frozen=True)
class Findings:
    """What the checks of a download found: all of its files, and sentences on what was checked and deserves a look."""

    files: tuple[FileRecord, ...] = ()
    checked: tuple[str, ...] = ()
    warnings: tuple[str, ...] = ()


def verify(
    material: Material,
    spec: DatasetSpec,
    *,
    vocabulary: Path | None = None,
    dtype: Dtype,
    journal: Journal | None,
    progress: Progress,
) -> Findings:
    """Read every byte once: numbers are finite, no row is all zero, repeated rows are equal, known hashes match.

    Args:
        material: a download; an embedded dataset has no files, and nothing is found.
        spec: the dataset.
        vocabulary: vocabulary file to use.
        dtype: number type to write; the numbers must fit it.
        journal: files listed there are not read again.
        progress: shows the bytes read.
    """
    download, origin = material.download, spec.origin
    if download is None:
        return Findings()
    digests = {path: hashlib.sha256(read_text(download, path)).hexdigest() for path in material.texts}
    keys: dict[str, Sequence[int]] = {}
    for split, file in _feature_files(material):
        step = f"scan {split}"
        result = journal.result(step) if journal else None
        if result is None:
            with progress(f"checking {split}", download.sizes[file.path]) as advance:
                result = scan(file, dtype=dtype, advance=advance)
            if journal:
                journal.finish(step, result)
        digests[file.path], keys[split] = result
    files = [
        FileRecord(name=path, bytes=download.sizes[path], sha256=digests[path]) for path in sorted(digests)
    ]
    files += [hashed(vocabulary, origin.vocabulary)] if vocabulary else []
    # by its size first: hashing another zip file would take minutes for nothing
    if origin.archive and download.place.is_file() and download.place.stat().st_size == origin.archive.bytes:
        files.append(hashed(download.place, origin.archive))
    warnings = (
        *(warning for content in material.splits.values() for warning in content.warnings),
        *(
            f"{file.path}: the numbers are {file.dtype} and are written as {dtype}"
            for _, file in _feature_files(material)
            if file.dtype.itemsize > 4
        ),
        *_copies(material, keys),
    )
    return Findings(tuple(files), tuple(_checked(spec, material, files)), warnings)


def _feature_files(material: Material) -> Iterator[tuple[str, FeatureFile]]:
    for split, content in material.splits.items():
        yield split, cast(FeatureFile, content.image_features)  # of a download


def hashed(path: Path, known: KnownFile | None) -> FileRecord:
    """Hash a file and compare it with a known hash."""
    sha256 = sha256_of_file(path)
    published = None if known is None else sha256.startswith(known.sha256)
    return FileRecord(name=path.name, bytes=path.stat().st_size, sha256=sha256, published=published)


def _checked(spec: DatasetSpec, material: Material, files: Sequence[FileRecord]) -> Iterator[str]:
    """Say what a download was compared with, after all checks passed."""
    images = " / ".join(f"{spec.images[split]:,}" for split in SPLITS)
    dtypes = " and ".join(sorted({str(content.image_features.dtype) for content in material.splits.values()}))
    same = [file.name for file in files if file.published]
    other = [file.name for file in files if file.published is False]
    unknown = sum(file.published is None for file in files)
    hashes = [f"{', '.join(same)} has the published sha256"] if same else []
    hashes += [f"{', '.join(other)} has another sha256 than the published file"] if other else []
    if unknown:
        of = "1 file" if unknown == 1 else f"{unknown} files"
        hashes.append(f"no sha256 is known of {of}, so their content was not compared")
    yield "layout: every file has its published name and place"
    yield f"counts: {images} images in train / dev / test, {spec.captions_per_image} caption(s) each"
    yield f"types: {dtypes}, {spec.n_regions} regions of {spec.feature_dim} numbers, all finite, no row all zero"
    yield f"content: {'; '.join(hashes)}"


def _copies(material: Material, keys: Mapping[str, Sequence[int]]) -> Iterator[str]:
    """Warn of images whose features equal those of an earlier image, in their split or in another.

    Args:
        material: names the files and the images.
        keys: split to the key of every image, see :func:`ncl_bench.data.features.scan`.
    """
    first_with: dict[int, tuple[str, int]] = {}
    for split, file in _feature_files(material):
        within, across = [], []
        for row, key in enumerate(keys[split]):
            other, earlier = first_with.setdefault(key, (split, row))
            if other != split:
                own, same = material.splits[split].image_ids[row], material.splits[other].image_ids[earlier]
                across.append(f"{own} (row {row * file.repeat}) is {same} of {other}")
            elif earlier != row:
                within.append(f"row {row * file.repeat} is row {earlier * file.repeat}")
        of_all = f"of {len(keys[split]):,} images"
        if within:
            yield (
                f"{file.path}: {len(within):,} {of_all} have exactly the features of an earlier one ({within[0]}); a "
                "download that was not finished looks like that, so compare its size and date with its source"
            )
        if across:
            more = f", and {len(across) - NAMED:,} more" if len(across) > NAMED else ""
            yield (
                f"{file.path}: {len(across):,} {of_all} have exactly the features of an image of another split "
                f"({', '.join(across[:NAMED])}{more}); scores on images that were trained on are too high, so take "
                "them out of one split"
            )


def vocabulary_warning(origin: Origin, tokenizer: str, sha256: str | None) -> str | None:
    """Warning that token ids differ from the published ones; None if they do not.

    Args:
        origin: origin of the dataset.
        tokenizer: name of the tokenizer.
        sha256: hash (hex) of the vocabulary file; None for a vocabulary built from the captions.
    """
    known = origin.vocabulary
    if known is None or not uses_vocabulary_file(tokenizer) or (sha256 and sha256.startswith(known.sha256)):
        return None
    own = "built from the training captions" if sha256 is None else "another file than the published one"
    return (
        f"the vocabulary of the tokenizer {tokenizer} is {own}, so TOKEN IDS DIFFER FROM THE PUBLISHED ONES and "
        f"published checkpoints do not fit; {how_to_get(known)}"
    )


def how_to_get(vocabulary: KnownFile) -> str:
    """How to get a published vocabulary, and where to put it."""
    return (
        f"for the published ids put {vocabulary.name} (sha256 begins {vocabulary.sha256}; from {vocabulary.where}) "
        "beside the download, or give it as `prepare --vocabulary`, before you prepare"
    )


def uses_vocabulary_file(tokenizer: str) -> bool:
    """Whether a tokenizer can use the published vocabularies."""
    return tokenizer in ("word", "word-punkt")
