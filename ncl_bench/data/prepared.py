"""Open a prepared folder, and find damaged files in it."""

from collections.abc import Callable, Iterator, Sequence
from pathlib import Path, PurePosixPath
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ncl_bench.data.columns import TableColumn, TokenTable
from ncl_bench.data.layout import (
    IMAGE_FILES,
    JUDGEMENTS,
    MANIFEST,
    FileRecord,
    Manifest,
    Tokenization,
    check_sizes,
    how_to_prepare,
    read_image_files,
    read_manifest,
)
from ncl_bench.data.paired import PairedDataset
from ncl_bench.data.spec import SPLITS, DatasetSpec
from ncl_bench.data.vocabulary import parse_vocabulary
from ncl_bench.errors import DataError, known_name, refuse_difference
from ncl_bench.files import sha256_of_file
from ncl_bench.noise.draw import clean_pairing, clean_record
from ncl_bench.npy import map_npy, read_header
from ncl_bench.progress import Progress, silent


def load_prepared(
    root: Path,
    spec: DatasetSpec,
    split: str,
    *,
    language: str | None = None,
    tokenizer: str | None = None,
) -> PairedDataset:
    """Open one split of a prepared dataset, with clean pairs.

    Names, sizes and headers of all files are compared with the manifest; :func:`damage` also compares their content.

    Args:
        root: folder of prepared datasets, or the dataset's own folder.
        spec: the dataset.
        split: ``train``, ``dev`` or ``test``.
        language: caption language (default: the dataset's first).
        tokenizer: tokenizer of the token ids (default: the language's own).

    Raises:
        DataError: nothing is prepared there, it is damaged, or it lacks the split, language or tokenizer.
    """
    folder = prepared_folder(root, spec.name)
    manifest = read_manifest(folder)
    _check_facts(manifest, spec, folder)
    check_sizes(folder, manifest.files)
    known_name(f"split of {spec.name}", split, manifest.splits)
    tokenization = _tokenization(manifest, spec, language, tokenizer)
    n_images, each = spec.images[split], spec.captions_per_image
    features = _mapped(
        folder, f"features/{split}.npy", manifest.dtype, (n_images, spec.n_regions, spec.feature_dim)
    )
    pairing = clean_pairing(n_images, each)
    # each tokenization has a vocabulary of its own
    words = folder / tokenization.vocabulary
    vocabulary = parse_vocabulary(words.read_bytes(), str(words))
    text = manifest.texts.get(language or spec.languages[0])
    table = [folder / "captions" / split]
    parts = [folder / IMAGE_FILES / part for part in read_image_files(folder).parts.get(split, ())]
    return PairedDataset(
        name=spec.name,
        split=split,
        image_features=features,
        # captions of an image are consecutive, so every each-th row names the next image
        image_ids=TableColumn(table, "image_id", range(0, len(pairing), each)),
        caption_to_image=pairing,
        pair_ids=np.arange(len(pairing)),
        tokens=_tokens(folder, tokenization, split, len(pairing), vocabulary.size),
        captions=None if text is None else TableColumn(table, text, range(len(pairing))),
        vocabulary=vocabulary,
        captions_per_image=each,
        noise=clean_record(pairing),
        fingerprint=manifest.splits[split].fingerprint,
        encoding=manifest.encoding,
        images=TableColumn(parts, "image", range(n_images)) if parts else spec.drawn_images(split),
        judgement_files={
            kind: path
            for kind in spec.origin.judgements
            if (path := folder / JUDGEMENTS / f"{split}_{kind}.parquet").is_file()
        },
    )


def prepared_folder(root: Path, name: str) -> Path:
    """Folder of a prepared dataset: ``root/name``, or ``root`` if it is the dataset's own."""
    # the user may name the folder itself or the one above it
    return root if (root / MANIFEST).exists() else root / name


def _check_facts(manifest: Manifest, spec: DatasetSpec, folder: Path) -> None:
    names = ("name", "captions_per_image", "n_regions", "feature_dim")
    facts: dict[str, tuple[object, object]] = {
        name: (getattr(manifest, name), getattr(spec, name)) for name in names
    }
    images = {split: record.images for split, record in manifest.splits.items()}
    facts["images"] = images, dict(spec.images)
    refuse_difference(folder / MANIFEST, facts, how_to_prepare(folder))


def _tokenization(
    manifest: Manifest, spec: DatasetSpec, language: str | None, tokenizer: str | None
) -> Tokenization:
    language = known_name(f"language of {spec.name}", language or spec.languages[0], spec.languages)
    # a tokenization without a language serves all of them
    tokenization_of = {
        own.tokenizer: own for own in manifest.tokenizations if own.language in (None, language)
    }
    tokenizer = tokenizer or spec.tokenizers[language]
    if tokenizer not in tokenization_of:
        raise DataError(
            f"{spec.name} was prepared without tokenizer {tokenizer!r} for language {language!r}, "
            f"only with: {', '.join(sorted(tokenization_of)) or 'none'}; prepare it again with this tokenizer"
        )
    return tokenization_of[tokenizer]


def _mapped(folder: Path, name: str, dtype: str, shape: tuple[int, ...]) -> NDArray[Any]:
    """Open an array of the folder, read-only and memory-mapped."""
    path = folder / name
    header = read_header(path, DataError, how_to_prepare(folder))
    if (header.shape, header.dtype, header.fortran_order) != (shape, np.dtype(dtype), False):
        raise DataError(
            f"{path} holds {header.dtype} of shape {header.shape}, expected {dtype} of shape {shape}; "
            f"{how_to_prepare(folder)}"
        )
    # a plain array: np.memmap carries its file into every slice and pickle
    return map_npy(path, header).view(np.ndarray)


def _tokens(folder: Path, tokenization: Tokenization, split: str, n: int, size: int) -> TokenTable:
    names = tokenization.token_files(split)
    offsets = _mapped(folder, names[1], "int64", (n + 1,))
    ids = _mapped(folder, names[0], "int32", (int(offsets[-1]),))
    # offsets that run backwards would read another caption's tokens
    fits = offsets[0] == 0 and (np.diff(offsets) >= 0).all()
    if not fits or (len(ids) and not 0 <= ids.min() <= ids.max() < size):
        raise DataError(
            f"{folder / names[1]} does not fit {names[0]}, or its ids not {tokenization.vocabulary} with {size} words; "
            f"{how_to_prepare(folder)}"
        )
    return TokenTable(ids, offsets)


def damage(folder: Path, *, split: str | None = None, progress: Progress = silent) -> Iterator[str]:
    """Read a whole prepared folder and report every file that has changed since it was written.

    Args:
        folder: folder of the dataset.
        split: leave out the files of other splits (default: read all).
        progress: shows the bytes read.

    Yields:
        One sentence per damaged file, with the command that prepares it again.

    Raises:
        DataError: a manifest cannot be read, or a file is missing or has another size.
    """
    yield from _damage(folder, how_to_prepare(folder), lambda: read_manifest(folder).files, split, progress)
    place = folder / IMAGE_FILES
    if place.exists():
        command = f"ncl-bench add-images {folder.name} --from IMAGES --to {folder.parent}"
        remedy = f"delete {place} and run `{command}`"
        yield from _damage(place, remedy, lambda: read_image_files(folder).files, split, progress)


def _damage(
    place: Path, remedy: str, files: Callable[[], Sequence[FileRecord]], split: str | None, progress: Progress
) -> Iterator[str]:
    sentence = "{} is not the file that was written (its sha256 differs); {}"
    own = place / f"{MANIFEST}.sha256"
    if not own.is_file() or sha256_of_file(place / MANIFEST) != own.read_text(errors="replace")[:64]:
        yield sentence.format(place / MANIFEST, remedy)
        return  # a damaged manifest says nothing about the other files
    records = files()
    check_sizes(place, records, remedy)
    records = [record for record in records if split is None or _belongs(record.name, split)]
    with progress(f"reading {place}", sum(record.bytes for record in records)) as advance:
        for record in records:
            if sha256_of_file(place / record.name, advance) != record.sha256:
                yield sentence.format(place / record.name, remedy)


def _belongs(name: str, split: str) -> bool:
    """Whether a file, such as ``features/train.npy`` or ``tokens/train/word.npy``, is not of another split."""
    return not {part.partition(".")[0] for part in PurePosixPath(name).parts} & {*SPLITS} - {split}
