"""Prepare a dataset: verify every byte of the download, then write the folder, whole or not at all."""

import hashlib
import json
import os
import shutil
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import cast

import numpy as np

from ncl_bench import __version__
from ncl_bench.data import dataset_spec
from ncl_bench.data.layout import LAYOUT_VERSION, Dtype, Journal, read_manifest
from ncl_bench.data.paired import FloatArray, ImageFeatures, TokenTable
from ncl_bench.data.spec import SPLITS, DatasetSpec, Material, SplitCaptions, TokenKey
from ncl_bench.data.tokenize import planned_tokenizations
from ncl_bench.data.verify import (
    Findings,
    find_vocabulary,
    inspect,
    uses_vocabulary_file,
    verify,
    vocabulary_warning,
)
from ncl_bench.data.vocabulary import load_vocabulary, vocabulary_json
from ncl_bench.data.write import PrepareOptions, write_prepared
from ncl_bench.errors import DataError
from ncl_bench.files import sha256_of_file, sole_owner
from ncl_bench.progress import Progress, silent


def check(name: str, place: Path | None, *, progress: Progress = silent) -> Findings:
    """Check a download completely and write nothing.

    Args:
        name: of a dataset.
        place: the downloaded folder or zip file.
        progress: shows the bytes read.

    Returns:
        Every file, what it was compared with, and what deserves a look.

    Raises:
        DataError: a file is missing or damaged, or has another layout, count or type than published.
    """
    spec, place = dataset_spec(name), _required(place, name)
    inspection = inspect(spec, place)
    dtype = _resolved_dtype(None, inspection.material)
    vocabulary = find_vocabulary(spec, place)
    found = verify(inspection, spec, vocabulary=vocabulary, dtype=dtype, journal=None, progress=progress)
    sha256 = sha256_of_file(vocabulary) if vocabulary else None
    warning = vocabulary_warning(spec.origin, spec.tokenizers[spec.languages[0]], sha256)
    return replace(found, warnings=(*found.warnings, warning)) if warning else found


def prepare(
    name: str,
    place: Path | None,
    root: Path,
    options: PrepareOptions | None = None,
    *,
    progress: Progress = silent,
) -> Path:
    """Check a download completely, then write the prepared folder; a stopped run goes on where it was.

    Large datasets are tokenized in several processes, so call this from a file whose main part stands under
    ``if __name__ == "__main__":``.

    Args:
        name: of a dataset.
        place: the downloaded folder or zip file; ignored for an embedded dataset, which needs none.
        root: the folder for prepared datasets; the result is ``root/name``.
        options: see :class:`PrepareOptions`.
        progress: shows what is done and what is left.

    Returns:
        The prepared folder.

    Raises:
        DataError: the download is damaged or has another layout, count or type than published, the place is taken
            by a dataset with other settings, or the disk cannot hold it.
        NclBenchError: another process is at work there, or the folder cannot be written.
    """
    options = options or PrepareOptions()
    spec = dataset_spec(name)
    target, work = root / name, root / f".{name}.partial"
    with sole_owner(target):
        inspection = None if spec.embedded else inspect(spec, _required(place, name))
        material = inspection.material if inspection else _embedded_material(spec)
        options = _with_vocabulary(options, spec, material, place)
        dtype = _resolved_dtype(options.dtype, material)
        key = _settings_key(spec, material, options, dtype)
        if target.exists():
            _check_same(target, key)
            shutil.rmtree(work, ignore_errors=True)  # stopped between the last two lines below
            return target
        try:
            _check_space(work, spec, dtype)
            journal = Journal(work, [key, material.times])
            findings = Findings()
            if inspection:
                findings = verify(
                    inspection,
                    spec,
                    vocabulary=options.text.vocabulary,
                    dtype=dtype,
                    journal=journal,
                    progress=progress,
                )
            write_prepared(
                work / "result",
                spec,
                material,
                options,
                dtype=dtype,
                key=key,
                findings=findings,
                journal=journal,
                progress=progress,
            )
            os.rename(work / "result", target)
            shutil.rmtree(work)
        except OSError as error:
            raise DataError(
                f"cannot write {work}: {error.strerror or error}; fix that and run the same command again, "
                "it goes on where it stopped"
            ) from error
    return target


def _with_vocabulary(
    options: PrepareOptions, spec: DatasetSpec, material: Material, place: Path | None
) -> PrepareOptions:
    """The options, with the published vocabulary where it lies beside the download and none was given."""
    words = any(uses_vocabulary_file(name) for _, name in planned_tokenizations(spec, material, options.text))
    if options.text.vocabulary or place is None or spec.embedded or not words:
        return options
    found = find_vocabulary(spec, place)
    if found:
        load_vocabulary(found)
    return replace(options, text=replace(options.text, vocabulary=found))


def _required(place: Path | None, name: str) -> Path:
    if dataset_spec(name).embedded:
        raise DataError(f"{name} is embedded and has no download to check; leave --check out")
    if place is None:
        raise DataError(f"{name} is made from downloaded files; give their folder with --from")
    return place


def _check_same(target: Path, key: str) -> None:
    if read_manifest(target).key != key:
        raise DataError(
            f"{target} was prepared from other files or with other settings; delete it or choose another --to"
        )


def _resolved_dtype(wanted: Dtype | None, material: Material) -> Dtype:
    """Number type of the features to write.

    Raises:
        DataError: the splits differ, or float16 features are wanted as float32.
    """
    found = {split: str(features.dtype) for split, features in material.features.items()}
    if len(set(found.values())) > 1:
        raise DataError(
            f"the features' number types differ between splits ({found}); use one release's files"
        )
    stored: Dtype = "float16" if found["train"] == "float16" else "float32"
    if wanted == "float32" and stored == "float16":
        raise DataError("--dtype float32 cannot bring back what float16 features lost; leave it out")
    return wanted or stored


def _settings_key(spec: DatasetSpec, material: Material, options: PrepareOptions, dtype: Dtype) -> str:
    """sha256 (hex) of everything that the bytes of the result depend on."""
    files = (options.text.tokenizer_file, options.text.vocabulary)
    settings = {
        "layout": LAYOUT_VERSION,
        "tool": __version__,
        "name": spec.name,
        "images": dict(spec.images),
        "source": material.identity,
        "dtype": dtype,
        "format": options.file_format,
        "tokenizers": options.text.tokenizers,
        "files": [file and hashlib.sha256(file.read_bytes()).hexdigest() for file in files],
    }
    return hashlib.sha256(json.dumps(settings, sort_keys=True).encode()).hexdigest()


def _check_space(work: Path, spec: DatasetSpec, dtype: Dtype) -> None:
    """Refuse to begin what the disk cannot hold.

    Args:
        work: the folder of unfinished work; what it already holds counts as done.
        spec: the dataset.
        dtype: number type to write.

    Raises:
        DataError: too little is free.
    """
    numbers = sum(spec.images.values()) * spec.n_regions * spec.feature_dim
    needed = numbers * np.dtype(dtype).itemsize
    work.parent.mkdir(parents=True, exist_ok=True)
    done = sum(path.stat().st_size for path in work.rglob("*") if path.is_file())
    free = shutil.disk_usage(work.parent).free
    if free < needed - done:
        raise DataError(
            f"{work.parent} has {free / 1e9:.1f} GB free, "
            f"{spec.name} as {dtype} needs {needed / 1e9:.1f} GB; "
            "free space, choose another --to or use --dtype float16"
        )


@dataclass(frozen=True)
class _FeaturesInMemory:
    """Features that are already there."""

    features: ImageFeatures

    @property
    def dtype(self) -> np.dtype[np.floating]:
        """Type of the numbers."""
        return self.features.dtype

    def blocks(self, first: int, size: int) -> Iterator[FloatArray]:
        """Blocks of ``size`` images from image ``first`` on."""
        for start in range(first, self.features.shape[0], size):
            yield self.features[np.arange(start, min(start + size, self.features.shape[0]))]


def _embedded_material(spec: DatasetSpec) -> Material:
    """An embedded dataset in every language, so that it is written to the same folder as the others."""
    captions, features, fingerprints = {}, {}, {}
    vocabularies: dict[TokenKey, tuple[bytes, str]] = {}
    for split in SPLITS:
        found = {lang: spec.load_embedded(split, lang, None) for lang in spec.languages}
        first = found[spec.languages[0]]
        tokens: dict[TokenKey, TokenTable] = {
            (lang, spec.tokenizers[lang]): cast(TokenTable, dataset.tokens) for lang, dataset in found.items()
        }
        texts = {lang: list(dataset.captions or ()) for lang, dataset in found.items()}
        captions[split] = SplitCaptions([str(i) for i in first.image_ids], texts, tokens)
        features[split] = _FeaturesInMemory(first.image_features)
        fingerprints[split] = first.fingerprint
        for lang, dataset in found.items():
            content = vocabulary_json(dataset.vocabulary).encode()
            vocabularies[(lang, spec.tokenizers[lang])] = (content, "as embedded")
    return Material(captions, features, vocabularies, fingerprints, identity=fingerprints)
