"""Prepare a dataset: verify every byte of the download, then write the folder completely or not at all."""

import hashlib
import io
import json
import os
import shutil
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Literal

import numpy as np

from ncl_bench import __version__
from ncl_bench.data import ROOT_VARIABLE, dataset_spec
from ncl_bench.data.card import render_card
from ncl_bench.data.embedded import embedded_material
from ncl_bench.data.hub import check_upload, fetch_archive
from ncl_bench.data.hub import push_to_hub as upload
from ncl_bench.data.judgements import write_judgements
from ncl_bench.data.layout import (
    JUDGEMENTS,
    LAYOUT_VERSION,
    Dtype,
    Manifest,
    SplitRecord,
    read_manifest,
    records_of,
    save_table,
    text_column,
    write_manifest,
)
from ncl_bench.data.order import order_of_captions
from ncl_bench.data.spec import DatasetSpec, Material, Split
from ncl_bench.data.tokenize import PrepareOptions, make_tokens, planned_tokenizations, unknown_words
from ncl_bench.data.verify import (
    Findings,
    find_vocabulary,
    inspect,
    uses_vocabulary_file,
    verify,
    vocabulary_warning,
)
from ncl_bench.data.vocabulary import load_vocabulary
from ncl_bench.errors import DataError, as_size, named
from ncl_bench.extras import require
from ncl_bench.files import AnyPath, Journal, as_path, sha256_of_file, sole_owner, write_text
from ncl_bench.foreign import readable
from ncl_bench.progress import Advance, Progress, bar, silent

BLOCK_ROWS = 128
"""Images hashed per block; a split's fingerprint depends on it."""


def check(name: str, place: Path | None, *, progress: Progress = silent) -> Findings:
    """Check a download completely and write nothing.

    Args:
        name: name of the dataset.
        place: the downloaded folder or zip file.
        progress: shows the bytes read.

    Returns:
        Every file, the checks made, and what deserves a look.

    Raises:
        DataError: a file is missing or damaged, or its layout, count or type differs from the published one.
    """
    spec = dataset_spec(name)
    material = inspect(spec, place)
    dtype = _resolved_dtype(None, material)
    vocabulary = find_vocabulary(spec, place)
    findings = verify(material, spec, vocabulary=vocabulary, dtype=dtype, journal=None, progress=progress)
    sha256 = sha256_of_file(vocabulary) if vocabulary else None
    warning = vocabulary_warning(spec.origin, spec.tokenizers[spec.languages[0]], sha256)
    return replace(findings, warnings=(*findings.warnings, warning)) if warning else findings


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
    """Do what :func:`ncl_bench.calls.prepare` says."""
    require("data", "datasets", needed_by="prepare")
    spec = dataset_spec(name)
    if push_to_hub:
        # before an hour of work, as the licence may permit no upload
        check_upload(name)
    download_folder = fetch_archive(name) if download else as_path(place)
    chosen = to or os.environ.get(ROOT_VARIABLE)
    if not chosen:
        raise DataError(f"no output folder given; add {named('to', 'DIR')} or set {ROOT_VARIABLE}")
    options = PrepareOptions(
        dtype,
        tuple(dict.fromkeys(tokenizers)),
        as_path(tokenizer_file),
        as_path(vocabulary),
    )
    folder = _prepared(spec, download_folder, Path(chosen), options, progress)
    if push_to_hub:
        upload(folder, push_to_hub)
    return folder


def _prepared(
    spec: DatasetSpec, place: Path | None, root: Path, options: PrepareOptions, progress: Progress
) -> Path:
    name = spec.name
    target, work = root / name, root / f".{name}.partial"
    with sole_owner(target, inside=root):
        material = embedded_material(spec) if spec.embedded and place is None else inspect(spec, place)
        options = _with_vocabulary(options, spec, material, place)
        dtype = _resolved_dtype(options.dtype, material)
        # names the content of the result: the same key is the same folder
        key = _settings_key(spec, material, options, dtype)
        if target.exists():
            if read_manifest(target).key != key:
                raise DataError(
                    f"{target} was prepared from other files or with other settings; delete it or choose another "
                    f"{named('to')}"
                )
            # left over if a run stopped between the last two lines below
            shutil.rmtree(work, ignore_errors=True)
            return target
        try:
            _refuse_full_disk(work, spec, dtype)
            # what a stopped run had finished; other settings or files begin a new journal
            journal = Journal(work, [key, material.times])
            findings = verify(
                material,
                spec,
                vocabulary=options.vocabulary,
                dtype=dtype,
                journal=journal,
                progress=progress,
            )
            _write(work / "result", spec, material, options, dtype, key, findings, journal, progress)
            # one step of the file system: the target is whole or absent
            os.rename(work / "result", target)
            shutil.rmtree(work)
        except OSError as error:
            raise DataError(
                f"cannot write {work}: {error.strerror or error}; fix that and run the same command again, "
                "it resumes"
            ) from error
    return target


def _with_vocabulary(
    options: PrepareOptions, spec: DatasetSpec, material: Material, place: Path | None
) -> PrepareOptions:
    """Add the published vocabulary to the options, if the download has it and the user gave none."""
    words = any(uses_vocabulary_file(name) for _, name in planned_tokenizations(spec, material, options))
    vocabulary = options.vocabulary or (find_vocabulary(spec, place) if words else None)
    if vocabulary:
        # for its refusal: a damaged file is told before anything is written
        load_vocabulary(vocabulary)
    return replace(options, vocabulary=vocabulary)


def _resolved_dtype(wanted: Dtype | None, material: Material) -> Dtype:
    """Number type of the features to write.

    Raises:
        DataError: the splits differ.
    """
    dtype_of = {split: str(content.image_features.dtype) for split, content in material.splits.items()}
    if len(set(dtype_of.values())) > 1:
        raise DataError(
            f"the features' number types differ between splits ({dtype_of}); use one release's files"
        )
    # float64 is stored as float32, in which networks compute
    stored: Dtype = "float16" if dtype_of["train"] == "float16" else "float32"
    return wanted or stored


def _settings_key(spec: DatasetSpec, material: Material, options: PrepareOptions, dtype: Dtype) -> str:
    """sha256 (hex) of everything that determines the bytes of the result."""
    files = (options.tokenizer_file, options.vocabulary)
    settings = {
        "layout": LAYOUT_VERSION,
        # another version may write other bytes
        "tool": __version__,
        "name": spec.name,
        "images": dict(spec.images),
        "source": material.identity,
        "dtype": dtype,
        "tokenizers": options.tokenizers or sorted(spec.tokenizers.items()),
        "files": [file and sha256_of_file(readable(file, DataError, "a json file")) for file in files],
    }
    return hashlib.sha256(json.dumps(settings, sort_keys=True).encode()).hexdigest()


def _refuse_full_disk(work: Path, spec: DatasetSpec, dtype: Dtype) -> None:
    """Refuse before an hour of work; what a stopped run had written counts as done."""
    needed = sum(spec.images.values()) * spec.n_regions * spec.feature_dim * np.dtype(dtype).itemsize
    missing = needed - sum(path.stat().st_size for path in work.rglob("*") if path.is_file())
    free = shutil.disk_usage(work.parent).free
    if missing > free:
        raise DataError(
            f"{work.parent} has {as_size(free)} free, and {as_size(missing)} are needed for {spec.name} as {dtype}; "
            f"free space, or choose another {named('to')} or {named('dtype', 'float16')}"
        )


def _write(
    folder: Path,
    spec: DatasetSpec,
    material: Material,
    options: PrepareOptions,
    dtype: Dtype,
    key: str,
    findings: Findings,
    journal: Journal,
    progress: Progress,
) -> None:
    """Write everything into the work folder; features listed in the journal are not written again."""
    folder.mkdir(exist_ok=True)
    contents, tokenizations = make_tokens(folder, spec, material, options, progress)
    unknown = list(unknown_words(folder, spec, contents, tokenizations))
    languages = tuple(contents["train"].captions)
    known, splits = {}, {}
    for split, content in contents.items():
        for tokenization in tokenizations:
            table, names = content.tokens[tokenization.key], tokenization.token_files(split)
            (folder / names[0]).parent.mkdir(parents=True, exist_ok=True)
            np.save(folder / names[0], table.ids)
            np.save(folder / names[1], table.offsets)
        _write_captions(folder / "captions" / split, spec, content, languages)
        for kind, judgements in content.judgements.items():
            (folder / JUDGEMENTS).mkdir(exist_ok=True)
            write_judgements(folder / JUDGEMENTS / f"{split}_{kind}.parquet", judgements)
        path = folder / "features" / f"{split}.npy"
        written = journal.result(f"write {split}")
        # the journal may say that a file is written which somebody has deleted since
        if written is None or not path.is_file() or path.stat().st_size != written["bytes"]:
            with progress(f"writing {split}", spec.images[split]) as advance:
                written = _write_features(path, spec, split, content, dtype, advance)
            journal.finish(f"write {split}", written)
        known[f"features/{split}.npy"] = written["sha256"]
        splits[split] = SplitRecord(
            images=spec.images[split],
            captions=spec.n_captions(split),
            fingerprint=content.fingerprint or _fingerprint(spec, split, content, dtype, written["blocks"]),
            order_fingerprint=order_of_captions(spec, content),
        )
    vocabulary = [
        vocabulary_warning(
            spec.origin, own.tokenizer, None if own.origin == "built" else own.vocabulary_sha256
        )
        for own in tokenizations
    ]
    manifest = Manifest(
        layout_version=LAYOUT_VERSION,
        tool=f"ncl_bench {__version__}",
        key=key,
        name=spec.name,
        dtype=dtype,
        captions_per_image=spec.captions_per_image,
        n_regions=spec.n_regions,
        feature_dim=spec.feature_dim,
        texts={language: text_column(language, languages) for language in languages},
        tokenizations=tuple(tokenizations),
        sources=findings.files,
        encoding=material.encoding,
        splits=splits,
        files=(),
        checked=findings.checked,
        warnings=(*findings.warnings, *filter(None, vocabulary), *unknown),
    )
    # the manifest lists the card too, so its files are added when the card is written
    write_text(folder / "README.md", render_card(spec, manifest))
    write_manifest(folder, manifest.model_copy(update={"files": records_of(folder, known)}))


def _write_features(
    path: Path, spec: DatasetSpec, split: str, content: Split, dtype: Dtype, advance: Advance
) -> dict[str, Any]:
    """Write the features of a split.

    Returns:
        ``bytes`` and ``sha256`` of the file, and ``blocks``, a hash of the hashes of every ``BLOCK_ROWS`` images.
    """
    shape = (spec.images[split], spec.n_regions, spec.feature_dim)
    # by hand instead of np.save, so that the file is hashed while it is written
    header = io.BytesIO()
    layout = {"descr": np.dtype(dtype).newbyteorder("<").str, "fortran_order": False, "shape": shape}
    np.lib.format.write_array_header_1_0(header, layout)
    digest, blocks = hashlib.sha256(header.getvalue()), []
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("wb") as file:
        file.write(header.getvalue())
        for block in content.blocks(BLOCK_ROWS):
            numbers = np.ascontiguousarray(block, dtype).view(np.uint8).data
            file.write(numbers)
            digest.update(numbers)
            blocks.append(hashlib.sha256(numbers).hexdigest())
            advance(len(block))
        file.flush()
        # before the journal says that it is written: a power cut must not leave a shorter file
        os.fsync(file.fileno())
    # for the fingerprint: of the numbers alone, without the header
    whole = hashlib.sha256("".join(blocks).encode()).hexdigest()
    return {"bytes": path.stat().st_size, "sha256": digest.hexdigest(), "blocks": whole}


def _write_captions(folder: Path, spec: DatasetSpec, content: Split, languages: tuple[str, ...]) -> None:
    """Write the captions table of a split, in the order of the clean pairing."""
    rows = np.arange(len(content.image_ids) * spec.captions_per_image)
    images = rows // spec.captions_per_image
    columns: dict[str, Any] = {
        "caption_id": rows,
        "image_row": images,
        "image_id": [content.image_ids[image] for image in images.tolist()],
    }
    columns |= {text_column(language, languages): text for language, text in content.captions.items()}
    shutil.rmtree(folder, ignore_errors=True)  # left over from an interrupted run
    save_table(
        folder, columns, dict.fromkeys(columns, "string") | {"caption_id": "int64", "image_row": "int64"}
    )


def _fingerprint(spec: DatasetSpec, split: str, content: Split, dtype: Dtype, features: str) -> str:
    """sha256 (hex) of a split's content: facts, ids, features, and texts or else the published token ids."""
    facts = [spec.name, split, dtype, spec.images[split], spec.n_regions, spec.feature_dim]
    digest = hashlib.sha256(json.dumps([*facts, content.image_ids, features]).encode())
    for language, text in sorted(content.captions.items()):
        digest.update(json.dumps([language, text]).encode())
    # releases that publish token ids only are told apart by these
    if not content.captions:
        for key, table in sorted(content.tokens.items(), key=lambda item: item[0][1]):
            digest.update(json.dumps(key).encode())
            digest.update(table.ids.astype("<i4").tobytes() + table.offsets.astype("<i8").tobytes())
    return digest.hexdigest()
