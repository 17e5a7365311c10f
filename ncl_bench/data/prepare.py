"""Prepare a dataset: verify every byte of the download, then write the folder, whole or not at all."""

import os
import shutil
from dataclasses import replace
from pathlib import Path

from ncl_bench.data import dataset_spec
from ncl_bench.data.embedded import embedded_material
from ncl_bench.data.findings import Findings, uses_vocabulary_file, vocabulary_warning
from ncl_bench.data.job import Job
from ncl_bench.data.journal import Journal
from ncl_bench.data.layout import read_manifest
from ncl_bench.data.material import Material
from ncl_bench.data.published import find_vocabulary, inspect, verify
from ncl_bench.data.settings import PrepareOptions, check_space, resolved_dtype, settings_key
from ncl_bench.data.spec import DatasetSpec
from ncl_bench.data.text import load_vocabulary
from ncl_bench.data.tokenize import planned_cuts
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
    download = inspect(spec, place)
    resolved_dtype(None, download.material)
    vocabulary = find_vocabulary(spec, place)
    found = verify(download, spec, vocabulary=vocabulary, to_float16=False, journal=None, progress=progress)
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

    Large datasets are tokenised in several processes, so call this from a file whose main part stands under
    ``if __name__ == "__main__":``.

    Args:
        name: of a dataset.
        place: the downloaded folder or zip file; ignored for ``digits``, which needs none.
        root: the folder for prepared datasets; the result is ``root/name``.
        options: see :class:`PrepareOptions`.
        progress: shows what is done and how long it will take.

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
        download = None if spec.embedded else inspect(spec, _required(place, name))
        material = download.material if download else embedded_material(spec)
        options = _with_vocabulary(options, spec, material, place)
        dtype = resolved_dtype(options.dtype, material)
        key = settings_key(spec, material, options, dtype)
        if target.exists():
            _check_same(target, key)
            shutil.rmtree(work, ignore_errors=True)  # stopped between the last two lines below
            return target
        try:
            check_space(work, spec, dtype)
            journal = Journal(work, [key, material.times])
            half = dtype == "float16"
            vocabulary = options.text.vocabulary
            findings = (
                verify(
                    download, spec, vocabulary=vocabulary, to_float16=half, journal=journal, progress=progress
                )
                if download
                else Findings()
            )
            Job(work / "result", spec, material, options, dtype, journal, progress).write(key, findings)
            os.rename(work / "result", target)
            shutil.rmtree(work)
        except OSError as error:
            raise DataError(
                f"cannot write {work}: {error.strerror or error}; mend that and run the same command again, "
                "it goes on where it stopped"
            ) from error
    return target


def _with_vocabulary(
    options: PrepareOptions, spec: DatasetSpec, material: Material, place: Path | None
) -> PrepareOptions:
    """The options, with the published vocabulary where it lies beside the download and none was given."""
    words = any(uses_vocabulary_file(name) for _, name in planned_cuts(spec, material, options.text))
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
