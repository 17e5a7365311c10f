"""A dataset's downloaded files: check everything, then hand it on for writing."""

import hashlib
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path, PurePosixPath

from ncl_bench.data.download import Source, features_folder, find_file, open_source, read_text, require
from ncl_bench.data.features import FeatureFile, Scan, open_features, scan
from ncl_bench.data.findings import Findings, checked_facts, copies_warning, hashed
from ncl_bench.data.journal import Journal
from ncl_bench.data.layout import FileRecord
from ncl_bench.data.material import Material, SplitCaptions
from ncl_bench.data.spec import SPLITS, DatasetSpec
from ncl_bench.errors import DataError
from ncl_bench.progress import Progress


@dataclass(frozen=True)
class Download:
    """A user's files whose names, sizes, headers and texts are as expected; the numbers are not yet read.

    Attributes:
        source: the folder or zip file.
        features: of each split.
        texts: every other file that is read, below the source.
        material: what they hold.
    """

    source: Source
    features: Mapping[str, FeatureFile]
    texts: tuple[str, ...]
    material: Material


def inspect(spec: DatasetSpec, place: Path) -> Download:
    """Check all that can be checked without reading the features.

    Args:
        spec: the dataset, one that is not embedded.
        place: the downloaded folder, the folder above it, or a zip file.

    Raises:
        DataError: a file is missing, damaged, of another size or content than published.
    """
    origin = spec.origin
    source = open_source(place)
    folder = features_folder(source, origin)
    paths = {split: [f"{folder}{name}" for name in origin.split_files(split)] for split in SPLITS}
    for path in (path for split in SPLITS for path in paths[split]):
        require(source, path)
    features = {s: open_features(source, paths[s][0], spec, s, origin.dtypes) for s in SPLITS}
    captions = {split: spec.read_captions(source, paths[split], split) for split in SPLITS}
    if origin.ids_span_splits:
        _check_disjoint(captions, place)
    texts = [path for split in SPLITS for path in paths[split][1:]]
    texts += [find_file(source, name) for name in origin.extra_files]
    files = sorted([*texts, *(file.path for file in features.values())])
    material = Material(
        captions,
        features,
        spec.read_vocabularies(source),
        fingerprints={},
        identity=sorted([PurePosixPath(name).name, source.sizes[name]] for name in files),
        times=tuple(source.changed_at(name) for name in files),
    )
    return Download(source, features, tuple(texts), material)


def _check_disjoint(captions: Mapping[str, SplitCaptions], place: Path) -> None:
    seen: dict[str, str] = {}
    for split, content in captions.items():
        for own in content.image_ids:
            if seen.setdefault(own, split) != split:
                raise DataError(
                    f"{place}: image id {own} is in {seen[own]} and in {split}, expected it in one of them; "
                    "the files come from different releases"
                )


def find_vocabulary(spec: DatasetSpec, place: Path) -> Path | None:
    """The published vocabulary beside a download: in its folder, in ``vocab/``, or one folder further up.

    Args:
        spec: the dataset, one that is not embedded.
        place: the downloaded folder, the folder above it, or a zip file.

    Returns:
        The file, or None where there is none.
    """
    origin = spec.origin
    if origin.vocabulary is None:
        return None
    folders = [place, *(place / name for name in origin.folders), place.absolute().parent]
    files = (folder / below / origin.vocabulary.name for folder in folders for below in (".", "vocab"))
    return next((file for file in files if file.is_file()), None)


def verify(
    download: Download,
    spec: DatasetSpec,
    *,
    vocabulary: Path | None = None,
    to_float16: bool,
    journal: Journal | None,
    progress: Progress,
) -> Findings:
    """Read every byte once: all numbers finite, no row of zeros alone, repeated rows equal, known hashes compared.

    Args:
        download: what :func:`inspect` returned.
        spec: the protocol's facts.
        vocabulary: the vocabulary file that is used beside it.
        to_float16: the numbers must also fit float16.
        journal: files that it lists are not read again.
        progress: shows the bytes read.

    Returns:
        Every file, what it was compared with, and what deserves a look.

    Raises:
        DataError: see :func:`ncl_bench.data.features.scan`.
    """
    source, origin = download.source, spec.origin
    digests = {path: hashlib.sha256(read_text(source, path)).hexdigest() for path in download.texts}
    warnings = []
    for split, file in download.features.items():
        step = f"scan {split}"
        result = journal.result(step) if journal else None
        if result is None:
            with progress(f"checking {split}", source.sizes[file.path]) as advance:
                result = asdict(scan(file, to_float16=to_float16, advance=advance))
            if journal:
                journal.finish(step, result)
        found = Scan(**result)
        digests[file.path] = found.sha256
        warnings += [copies_warning(file, found)] if found.copies else []
    files = [
        FileRecord(name=path, bytes=source.sizes[path], sha256=digests[path]) for path in sorted(digests)
    ]
    files += [hashed(vocabulary, origin.vocabulary)] if vocabulary else []
    if origin.archive and source.place.is_file() and source.place.stat().st_size == origin.archive.bytes:
        files.append(hashed(source.place, origin.archive))
    return Findings(tuple(files), checked_facts(spec, download.features, files), tuple(warnings))
