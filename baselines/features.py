"""Encode a user's own images as region features, in the layout that ``prepare`` reads.

``{split}_ims.npy``   float16 or float32 ``(images, grid * grid, feature_dim)``
``{split}_ids.txt``   one image name per line, in the same order
``{split}_sha256.txt`` hash of each image's file, by which its features are found again
``features.json``     how they were made, see :class:`ncl_bench.data.encoding.Encoding`

Images are encoded in chunks of about a thousand. Finished chunks are kept, so the same command resumes.
"""

import ctypes
import hashlib
import json
import os
import shutil
from collections.abc import Generator, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass, field, replace
from importlib.metadata import version
from itertools import islice
from pathlib import Path
from typing import Any, cast

import numpy as np
import pandas as pd
import torch
from numpy.lib.format import open_memmap
from numpy.typing import NDArray

from baselines import encoders
from baselines.encoders import Encoder
from baselines.feature_options import FeatureOptions as FeatureOptions
from ncl_bench import __version__
from ncl_bench.arguments import Count
from ncl_bench.data.encoding import ENCODING_FILE, Encoding, Preprocessing, Projection, parse_encoding
from ncl_bench.data.own_tables import (
    CaptionTable,
    Splits,
    complete_splits,
    is_text,
    note_split,
    read_images,
)
from ncl_bench.data.pairs.pictures import FileIndex
from ncl_bench.data.pairs.rows import UserPairs, rows_in, with_splits_of_folders
from ncl_bench.data.pictures import picture_path, read_picture
from ncl_bench.data.spec import SPLITS
from ncl_bench.decoding import decoded
from ncl_bench.errors import DataError, listed, named, shorten, shown
from ncl_bench.files import (
    atomic_folder,
    atomic_path,
    refuse_links_out,
    sha256_of_file,
    sole_owner,
    write_text,
)
from ncl_bench.foreign import normalized, readable, text_lines
from ncl_bench.npy import Float32Array, Float64Array, FloatArray, Int64Array, map_npy, read_header
from ncl_bench.progress import Advance, Progress, silent

CHUNK = 1000
"""Images per chunk, rounded down to whole batches."""
CONTENT = "features, damaged, sha256"
"""What a chunk holds; a chunk of other content is made again."""


@dataclass(frozen=True)
class ImageList:
    """A user's images.

    Attributes:
        folder: folder that the names are paths in.
        names: unique ids of the images, in order, in Unicode's composed form.
        splits: split to names; None if the splits are drawn.
        files: name to file; names that are not in it are paths in the folder.
        remarks: what was chosen, in sentences.
    """

    folder: Path
    names: list[str]
    splits: Splits | None
    files: Mapping[str, Path] = field(default_factory=dict)
    remarks: tuple[str, ...] = ()

    def file(self, name: str) -> Path:
        """File of an image."""
        return self.files.get(name, self.folder / name)


def list_images(
    source: Path,
    lists: Sequence[str] = (),
    *,
    images: Path | None = None,
    image_column: str | None = None,
    split_column: str | None = None,
    work: Path | None = None,
    progress: Progress = silent,
) -> ImageList:
    """List the images of a folder, or of a table or another form of :mod:`ncl_bench.data.pairs.rows`.

    Args:
        source: folder of images; or a table (.csv, .tsv, .txt, .jsonl, .json, .parquet) with a column of images and
            optionally `split`, a folder with metadata.csv, WebDataset shards or what `datasets` saved. Of a folder of
            images alone, all files count except those with a path component that starts with a dot. Links are followed.
        lists: file with the image names of a split, one per line; give it for train, dev and test. Other images are
            left out.
        images: folder of the pictures (default: the folder of the table).
        image_column: column of image paths or pictures (default: image, file_name, path, filename or alike).
        split_column: column of splits (default: split, if there is one).
        work: folder for pictures that rows hold; without it, the files that a table names are not looked for.
        progress: shows the number of pictures read from rows.

    Raises:
        DataError: there is no image, a list or table is malformed, or an image is in two splits.
    """
    if not source.is_dir() or rows_in(source):
        table = read_images(
            source,
            images=images,
            image_column=image_column,
            split_column=split_column,
            work=work,
            progress=progress,
        )
        folder = images or (source if source.is_dir() else source.parent)
        for name in table.captions if work is None else ():
            picture_path(folder, name, str(source))
        listed_images = ImageList(folder, list(table.captions), table.splits, table.files, table.remarks)
    else:
        files = FileIndex(source).paths
        names = sorted(files)
        rows = UserPairs("", pd.DataFrame({"image": names}, dtype=object))
        rows = rows if lists else with_splits_of_folders(rows, names)
        splits = None
        if "split" in rows.frame:
            of = rows.frame.groupby("split")["image"].apply(list)
            splits = {split: of.get(split, []) for split in SPLITS}
        listed_images = ImageList(source, names, splits, files, rows.remarks)
    if lists:
        splits = _read_lists(lists, source, set(listed_images.names))
        names = [name for names in splits.values() for name in names]
        listed_images = replace(listed_images, names=names, splits=splits)
    for name in listed_images.names:
        if name != name.strip() or not name or any(end in name for end in "\n\r") or not is_text(name):
            raise DataError(
                f"{source}: the image name {shorten(name)} has surrounding blanks, a line end or bytes that are not "
                "UTF-8; rename it"
            )
    if not listed_images.names:
        raise DataError(f"{source} holds no image; give the folder or the table of your images")
    return listed_images


def _read_lists(lists: Sequence[str], source: Path, known: set[str]) -> Splits:
    files = {split: Path(path) for split, _, path in (each.partition("=") for each in lists) if path}
    if set(files) != set(SPLITS):
        raise DataError(
            f"{named('lists')} names {listed(lists)}, expected SPLIT=FILE for each of {', '.join(SPLITS)}, or none"
        )
    split_of: dict[str, str] = {}
    for split, file in files.items():
        content = readable(file, DataError, "a text").read_bytes()
        lines = text_lines(content, str(file), DataError)
        for line in filter(None, map(str.strip, lines)):
            name = line if line in known else normalized(line)
            if name not in known:
                raise DataError(
                    f"{file} names {shown(name)}, which {source} does not hold; fetch it or correct the list"
                )
            note_split(split_of, name, split, str(file))
    return {split: [name for name, own in split_of.items() if own == split] for split in files}


def extract(
    images: ImageList,
    encoder: Encoder,
    to: Path,
    options: FeatureOptions | None = None,
    *,
    known: Sequence[Path] = (),
    workers: Count = 1,
    progress: Progress = silent,
) -> Encoding:
    """Encode images and write a folder, completely or not at all; the same call resumes.

    Args:
        images: the images.
        encoder: the network.
        to: folder to write. If the same call already wrote it, nothing is done.
        options: see :class:`FeatureOptions`.
        known: folders of features; those of a picture with the same hash, encoder and settings are taken from there.
        workers: processes that decode images.
        progress: shows the number of images done.

    Returns:
        Content of ``features.json``.

    Raises:
        DataError: an image cannot be read, a split is empty, the options do not fit the images or the encoder, or the
            folder has other content.
        NclBenchError: another process is writing there.
    """
    options = options or FeatureOptions()
    work = to.parent / f".{to.name}.partial"
    with sole_owner(to):
        stamps, settings, chunks = _planned(images, encoder, work, options, known)
        given = bool(images.splits and all(images.splits.values()))
        draw = [] if given else [options.dev, options.test, options.seed]
        key = _sha256(
            [settings, stamps, images.splits, [options.pca, options.dtype, options.skip_damaged, *draw]]
        )
        if to.exists():
            shutil.rmtree(work, ignore_errors=True)
            return _same(to, key)
        damaged = _encode(chunks, images, encoder, options, workers, progress)
        if damaged and not options.skip_damaged:
            (name, reason), *others = damaged.items()
            more = f", and {len(others)} more cannot be read" if others else ""
            raise DataError(
                f"{images.file(name)} {reason}{more}; or leave such files out with {named('skip_damaged')}, which "
                "lists them"
            )
        readable = [name for name in images.names if name not in damaged]
        splits = complete_splits(readable, images.splits, options.dev, options.test, options.seed)
        with atomic_folder(to) as result:
            pca = _fit(chunks, splits["train"], options.pca, progress) if options.pca else None
            dim = _write(result, chunks, splits, pca, options.dtype, progress)
            encoding = Encoding(
                tool=f"ncl_bench {__version__}",
                key=key,
                **settings,
                weights=encoder.weights,
                feature_dim=dim,
                pca=pca.record if pca else None,
                dtype=options.dtype,
                splits="given" if given else f"drawn with seed {options.seed}",
                images={split: len(names) for split, names in splits.items()},
                skipped=damaged,
            )
            write_text(result / ENCODING_FILE, encoding.model_dump_json(indent=2) + "\n")
        shutil.rmtree(work)
    return encoding


def extract_shard(
    images: ImageList,
    encoder: Encoder,
    to: Path,
    shard: tuple[int, int],
    options: FeatureOptions | None = None,
    *,
    workers: int = 1,
    progress: Progress = silent,
) -> int:
    """Encode a share of the chunks; when all shards are done, :func:`extract` with the same arguments joins them.

    Args:
        images, encoder, to, options, workers, progress: as for :func:`extract`.
        shard: number of the shard, from 1, and how many there are.

    Returns:
        Number of images of the shard.
    """
    work = to.parent / f".{to.name}.partial"
    with sole_owner(to.with_name(f"{to.name}-shard-{shard[0]}-of-{shard[1]}")):
        _, _, chunks = _planned(images, encoder, work, options or FeatureOptions())
        own = dict(list(chunks.items())[shard[0] - 1 :: shard[1]])
        _encode(own, images, encoder, options or FeatureOptions(), workers, progress)
    return sum(map(len, own.values()))


def encode_pictures(
    table: CaptionTable,
    to: Path,
    *,
    encoder: str | None = None,
    dev: int | None = None,
    test: int | None = None,
    seed: int = 0,
    skip_damaged: bool = False,
    device: str = "auto",
    known: Sequence[Path] = (),
    progress: Progress = silent,
) -> Mapping[str, str]:
    """Encode pictures for a dataset; an entry point, through which ``ncl_bench`` finds it without torch.

    Args:
        table: names the images with captions, their files, and perhaps their splits.
        to: folder to write; features that are there are used again.
        encoder: name of the encoder (default: efficientnet-lite0).
        dev, test: images to draw if the table has no such split (default: a tenth each).
        seed: seed of that draw.
        skip_damaged: leave out images that cannot be read, instead of refusing them.
        device: ``auto``, ``cpu`` or ``cuda``.
        known: folders of features that may hold some of the pictures already.
        progress: shows the number of images done.

    Returns:
        Image that cannot be read to the reason.
    """
    name = encoder or encoders.LITE0
    files = {image: table.files[image] for image in table.captions}
    wanted = FeatureOptions(
        encoders.usual_grid(name), dev=dev, test=test, seed=seed, skip_damaged=skip_damaged
    )
    images = ImageList(to.parent, list(files), table.splits, files)
    network = encoders.load_encoder(name, None, device)
    earlier = to.with_name(f"{to.name}-earlier")
    if to.exists():
        shutil.rmtree(earlier, ignore_errors=True)
        to.rename(earlier)
    done = extract(
        images,
        network,
        to,
        wanted,
        known=[earlier, *known],
        workers=os.cpu_count() or 1,
        progress=progress,
    )
    shutil.rmtree(earlier, ignore_errors=True)
    return done.skipped


def _planned(
    images: ImageList, encoder: Encoder, work: Path, options: FeatureOptions, known: Sequence[Path] = ()
) -> tuple[list[list[object]], dict[str, Any], dict[Path, list[str]]]:
    """Stamp of every image, the settings, and the chunks: a file in ``work`` to the images in it."""
    refuse_links_out(work, work.parent)
    stamps = {name: _stamp(name, images.file(name)) for name in images.names}
    settings = _settings(encoder, options)
    chunks = _reused(images, work, settings, options, known)
    there = {name for names in chunks.values() for name in names}
    left = [name for name in images.names if name not in there]
    size = max(CHUNK // options.batch_size, 1) * options.batch_size
    for start in range(0, len(left), size):
        names = left[start : start + size]
        chunks[work / f"{_sha256([CONTENT, settings, [stamps[name] for name in names]])}.npz"] = names
    return list(stamps.values()), settings, chunks


def _reused(
    images: ImageList,
    work: Path,
    settings: Mapping[str, Any],
    options: FeatureOptions,
    known: Sequence[Path],
) -> dict[Path, list[str]]:
    """Chunks of the images whose features are known, written already."""
    features_of: dict[str, NDArray[Any]] = {}  # by the hash of the picture; views of mapped files
    for folder in known:
        for split in _splits_of_same(folder, settings, options):
            hashes, features = folder / f"{split}_sha256.txt", folder / f"{split}_ims.npy"
            if hashes.is_file():
                rows = np.asarray(map_npy(features, read_header(features)))
                digests = hashes.read_text(encoding="utf-8").split()
                features_of = dict(zip(digests, rows, strict=False)) | features_of
    digest_of = {name: _sha256_if_there(images.file(name)) for name in images.names} if features_of else {}
    known_names = [name for name, digest in digest_of.items() if digest in features_of]
    chunks: dict[Path, list[str]] = {}
    for start in range(0, len(known_names), CHUNK):
        names = known_names[start : start + CHUNK]
        own = [digest_of[name] for name in names]
        path = work / f"{_sha256([CONTENT, settings, names, own])}.npz"
        if not path.exists():
            known_features = np.stack([features_of[digest] for digest in own]).astype(np.float32)
            _write_chunk(path, known_features, [""] * len(names), own)
        chunks[path] = names
    return chunks


def _splits_of_same(folder: Path, settings: Mapping[str, Any], options: FeatureOptions) -> list[str]:
    """Splits of a folder of features that the same encoder made in the same way; none if another one did."""
    if not (folder / ENCODING_FILE).is_file():
        return []
    encoding = parse_encoding((folder / ENCODING_FILE).read_bytes(), str(folder / ENCODING_FILE))
    theirs = encoding.model_dump(mode="json")
    alike = all(theirs[name] == value for name, value in settings.items() if name != "batch_size")
    exact = encoding.dtype == "float32" or (encoding.dtype == options.dtype and options.pca is None)
    return list(encoding.images) if alike and exact and encoding.pca is None else []


def _sha256_if_there(file: Path) -> str:
    # what is no file is reported when the image is read: opening a pipe would wait for ever
    try:
        return sha256_of_file(file) if file.is_file() else ""
    except OSError:
        return ""


def _stamp(name: str, file: Path) -> list[object]:
    """Name, size and time of an image: its chunk is encoded again if one of its files has changed."""
    try:
        status = file.stat()
    except OSError:  # reported when the image is read
        return [name]
    return [name, status.st_size, status.st_mtime_ns]


def _settings(encoder: Encoder, options: FeatureOptions) -> dict[str, Any]:
    """Everything except the images that encoded chunks depend on."""
    seen = Preprocessing(
        size=encoder.size, interpolation=encoder.interpolation, mean=encoder.mean, std=encoder.std
    )
    return {
        "encoder": encoder.name,
        "weights_sha256": encoder.weights_sha256,
        "preprocessing": seen.model_dump(mode="json"),
        "grid": options.grid,
        "batch_size": options.batch_size,
        "device": torch.cuda.get_device_name(encoder.device) if encoder.device.type == "cuda" else "CPU",
        "versions": {package: version(package) for package in ("torch", "pillow", encoder.package)},
    }


def _sha256(content: object) -> str:
    return hashlib.sha256(json.dumps(content).encode()).hexdigest()


def _same(to: Path, key: str) -> Encoding:
    """Read the record of a finished folder, if the same command wrote it."""
    with suppress(OSError, ValueError):  # it holds something else
        encoding = Encoding.model_validate_json((to / ENCODING_FILE).read_bytes())
        if encoding.key == key:
            return encoding
    raise DataError(f"{to} exists with other images or settings; delete it or choose another {named('to')}")


def _encode(
    chunks: Mapping[Path, Sequence[str]],
    images: ImageList,
    encoder: Encoder,
    options: FeatureOptions,
    workers: int,
    progress: Progress,
) -> dict[str, str]:
    """Encode every missing chunk; return images that cannot be read, with the reason."""

    damaged: dict[str, str] = {}
    n_images = sum(map(len, chunks.values()))
    with progress(f"encoding {n_images:,} images", n_images) as advance, _freed_memory_kept():
        for path, names in chunks.items():
            if path.exists():
                advance(len(names))
            else:
                files = [(str(images.file(name)), images.file(name)) for name in names]
                seen = decoded(
                    read_picture, files, encoder.size, encoder.interpolation, encoder.crop, workers=workers
                )
                blank = np.zeros((encoder.size, encoder.size, 3), np.uint8)
                with closing(cast(Generator[Any], seen)):  # closing it stops the decoding
                    pictures = (
                        (blank, str(x.args[0]).removeprefix(f"{file} "))
                        if isinstance(x, DataError)
                        else (x, "")
                        for x, (file, _) in zip(seen, files, strict=True)
                    )
                    _encode_chunk(path, names, pictures, encoder, options, advance, images)
            with np.load(path, allow_pickle=False) as chunk:
                damaged |= {name: str(x) for name, x in zip(names, chunk["damaged"], strict=True) if x}
    return damaged


@contextmanager
def _freed_memory_kept() -> Iterator[None]:
    """Let glibc keep freed memory for the next batch; other C libraries are left alone.

    The activations of an encoder are allocated anew for every batch. By default glibc maps large blocks from the
    system and returns them, and faulting their pages in again takes more than half of the CPU time.
    """
    m_trim_threshold, m_mmap_max = -1, -4  # malloc.h
    try:
        library = ctypes.CDLL(None)
        mallopt, malloc_trim = library.mallopt, library.malloc_trim
    except (AttributeError, OSError, TypeError):  # macOS, musl, Windows
        yield
        return
    mallopt(m_mmap_max, 0)
    mallopt(m_trim_threshold, 2**31 - 1)
    try:
        yield
    finally:
        mallopt(m_mmap_max, 65_536)  # glibc's defaults
        mallopt(m_trim_threshold, 128 * 1_024)
        malloc_trim(0)


def _encode_chunk(
    path: Path,
    names: Sequence[str],
    pictures: Iterator[tuple[NDArray[np.uint8], str]],
    encoder: Encoder,
    options: FeatureOptions,
    advance: Advance,
    images: ImageList,
) -> None:
    """Encode pictures in batches and write their chunk; one with a reason why it is damaged gets zeros."""
    parts, reasons = [], list[str]()
    for start in range(0, len(names), options.batch_size):
        batch = names[start : start + options.batch_size]
        seen, told = zip(*islice(pictures, len(batch)), strict=True)
        features = _features(encoder, seen, options.grid)
        features[np.array(told) != ""] = 0
        reasons += told
        parts.append(features)
        finite = np.isfinite(parts[-1]).all(axis=(1, 2))
        if not finite.all():
            raise DataError(
                f"{encoder.name} gives numbers that are not finite for {batch[int(np.argmin(finite))]}; its weights "
                "are damaged"
            )
        advance(len(batch))
    _write_chunk(
        path, np.concatenate(parts), reasons, [_sha256_if_there(images.file(name)) for name in names]
    )


def _write_chunk(path: Path, features: Float32Array, damaged: Sequence[str], sha256: Sequence[str]) -> None:
    """Write ``features``, float32 ``(n, regions, dim)``, why an image has only zeros or nothing, and hashes."""
    with atomic_path(path) as temporary, temporary.open("wb") as stream:
        np.savez(stream, features=features, damaged=np.array(damaged), sha256=np.array(sha256))


def _features(encoder: Encoder, pictures: Sequence[NDArray[np.uint8]], grid: int) -> Float32Array:
    """Regions of a batch, ``(n, grid * grid, feature_dim)``."""
    batch = torch.from_numpy(np.stack(pictures))
    with torch.inference_mode():
        maps = encoder(batch.to(encoder.device))
        if min(maps.shape[2:]) < grid:
            rows, columns = maps.shape[2:]
            raise DataError(
                f"{named('grid')} is {grid}, {encoder.name} gives {rows} x {columns} regions; choose fewer"
            )
        pooled = torch.nn.functional.adaptive_avg_pool2d(maps, grid)
    features: Float32Array = pooled.flatten(2).transpose(1, 2).float().cpu().numpy()
    return features


def _rows(
    chunks: Mapping[Path, Sequence[str]], wanted: Sequence[str]
) -> Iterator[tuple[Int64Array, Float32Array, list[str]]]:
    """Iterate over chunks: positions in ``wanted``, and the features and hashes of those images."""
    row_of = {name: row for row, name in enumerate(wanted)}
    for path, names in chunks.items():
        with np.load(path, allow_pickle=False) as chunk:
            wanted_rows = [row for row, name in enumerate(names) if name in row_of]
            rows = np.array([row_of[names[row]] for row in wanted_rows], np.int64)
            yield rows, chunk["features"][wanted_rows], chunk["sha256"][wanted_rows].tolist()


@dataclass(frozen=True)
class _Pca:
    """Mean ``(dim,)``, principal components as columns ``(dim, kept)``, and their record."""

    mean: Float64Array
    components: Float64Array
    record: Projection


def _fit(chunks: Mapping[Path, Sequence[str]], train: Sequence[str], kept: int, progress: Progress) -> _Pca:
    """Fit principal components to all regions of the training images."""
    total, squares, count = np.zeros(1), np.zeros(1), 0
    with progress("fitting the projection", len(train)) as advance:
        for _, block, _ in _rows(chunks, train):
            dim = block.shape[2]
            if kept > dim:
                raise DataError(
                    f"{named('pca')} is {kept}, the encoder gives {dim} numbers per region; choose fewer"
                )
            regions = block.reshape(-1, dim).astype(np.float64)
            total = total + regions.sum(axis=0)
            squares = squares + regions.T @ regions
            count += len(regions)
            advance(len(block))
    mean = total / count
    values, vectors = np.linalg.eigh(squares / count - np.outer(mean, mean))
    components = vectors[:, ::-1][:, :kept]  # eigh sorts ascending; take the largest
    largest = np.abs(components).argmax(axis=0)
    components = components * np.sign(components[largest, np.arange(kept)])  # fix the library-dependent sign
    variance = float(values[::-1][:kept].sum() / values.sum())
    return _Pca(mean, components, Projection(dim=kept, fitted_on=len(train), variance=round(variance, 6)))


def _write(
    folder: Path,
    chunks: Mapping[Path, Sequence[str]],
    splits: Splits,
    pca: _Pca | None,
    dtype: str,
    progress: Progress,
) -> int:
    """Write names and features of every split; return the number of values per region."""
    dim = 0
    for split, names in splits.items():
        write_text(folder / f"{split}_ids.txt", "".join(f"{name}\n" for name in names))
        rows: FloatArray | None = None
        hashes = np.full(len(names), "", object)
        with progress(f"writing {split}", len(names)) as advance:
            for places, block, own in _rows(chunks, names):
                projected = ((block - pca.mean) @ pca.components).astype(np.float32) if pca else block
                if dtype == "float16" and np.abs(projected).max(initial=0) > np.finfo(np.float16).max:
                    raise DataError(
                        f"features reach {np.abs(projected).max():g}, more than float16 holds; give "
                        f"{named('dtype', 'float32')}"
                    )
                if rows is None:
                    shape = (len(names), *projected.shape[1:])
                    rows = open_memmap(folder / f"{split}_ims.npy", "w+", dtype, shape)
                    dim = shape[2]
                rows[places], hashes[places] = projected, own
                advance(len(block))
        write_text(folder / f"{split}_sha256.txt", "".join(f"{digest}\n" for digest in hashes))
    return dim
