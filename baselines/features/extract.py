"""Images to the layout that ``prepare`` reads: ``{split}_ims.npy``, ``{split}_ids.txt`` and ``features.json``.

Images are encoded in chunks, and a finished chunk is kept. Which images stand together in a batch depends on their
order alone, so that a stopped run goes on to the same bytes.
"""

import hashlib
import json
import logging
import os
import shutil
import warnings
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from typing import Any, Literal, TypeVar

import numpy as np
import torch
from numpy.lib.format import open_memmap
from numpy.typing import NDArray
from PIL import Image

from baselines.features.encoders import Encoder
from baselines.features.listing import Listing
from baselines.features.pictures import read_picture
from ncl_bench import __version__
from ncl_bench.data.encoding import ENCODING_FILE, Encoding, Preprocessing, Projection
from ncl_bench.data.image_table import draw_splits
from ncl_bench.data.layout import Journal
from ncl_bench.data.spec import SPLITS
from ncl_bench.errors import DataError
from ncl_bench.files import atomic_path, sole_owner, write_text
from ncl_bench.progress import Progress, silent

BATCHES_IN_CHUNK = 4

Float32Array = NDArray[np.float32]
Result = TypeVar("Result")


@dataclass(frozen=True)
class FeatureOptions:
    """What the features shall be like.

    Attributes:
        grid: the encoder's grid is averaged to ``grid x grid`` regions.
        pca: principal components to keep; None leaves the features as they are.
        dtype: of the numbers.
        dev: images to draw for dev where no list or column gives the splits; a tenth where None.
        test: likewise.
        seed: of that draw.
        batch_size: images that are encoded together.
        skip_damaged: leave out what cannot be read, instead of refusing it.
    """

    grid: int = 4
    pca: int | None = None
    dtype: Literal["float32", "float16"] = "float16"
    dev: int | None = None
    test: int | None = None
    seed: int = 0
    batch_size: int = 32
    skip_damaged: bool = False


def extract(
    listing: Listing,
    encoder: Encoder,
    to: Path,
    options: FeatureOptions | None = None,
    *,
    workers: int = 1,
    progress: Progress = silent,
) -> Encoding:
    """Encode images and write a folder, whole or not at all; a stopped run goes on where it was.

    Args:
        listing: the images.
        encoder: the network.
        to: the folder; one that these settings and images gave before is left as it is.
        options: see :class:`FeatureOptions`.
        workers: threads that decode images.
        progress: shows how many images are done.

    Returns:
        What is in ``features.json``.

    Raises:
        DataError: an image cannot be read, a split is empty, the options do not fit the images or the encoder, or the
            folder holds something else.
        NclBenchError: another process is at work there.
    """
    options = options or FeatureOptions()
    if listing.splits and (options.dev or options.test):
        raise DataError("the images' splits are given, and none is drawn; leave --dev and --test out")
    work = to.parent / f".{to.name}.partial"
    with sole_owner(to):
        made_of = _stamps(listing)
        settings = _settings(encoder, options)
        key = _sha256([settings, made_of, listing.splits, _choices(options, listing)])
        if to.exists():
            found = _same(to, key)
            shutil.rmtree(work, ignore_errors=True)  # stopped between the last two lines below
            return found
        journal = Journal(work, settings)
        chunks = _Chunks(work, listing.names, made_of, BATCHES_IN_CHUNK * options.batch_size, journal)
        _encode(chunks, listing.folder, encoder, options, workers, progress)
        damaged = chunks.damaged()
        _check_damaged(damaged, listing.folder, options.skip_damaged)
        splits = _splits_of_the_readable(listing, damaged, options)
        result = work / "result"
        shutil.rmtree(result, ignore_errors=True)
        result.mkdir()
        pca = _fit(chunks, splits["train"], options.pca, progress) if options.pca else None
        for split, names in splits.items():
            write_text(result / f"{split}_ids.txt", "".join(f"{name}\n" for name in names))
            _write(result / f"{split}_ims.npy", chunks, names, pca, options.dtype, progress)
        encoding = Encoding(
            tool=f"ncl_bench {__version__}",
            key=key,
            **settings,
            weights=encoder.weights,
            feature_dim=pca.record.dim if pca else chunks.feature_dim,
            pca=pca.record if pca else None,
            dtype=options.dtype,
            splits="given" if listing.splits else f"drawn with seed {options.seed}",
            images={split: len(names) for split, names in splits.items()},
            skipped=damaged,
        )
        write_text(result / ENCODING_FILE, encoding.model_dump_json(indent=2) + "\n")
        os.rename(result, to)
        shutil.rmtree(work)
    return encoding


def _splits_of_the_readable(
    listing: Listing, damaged: Mapping[str, str], options: FeatureOptions
) -> dict[str, list[str]]:
    if listing.splits is None:
        readable = [name for name in listing.names if name not in damaged]
        return draw_splits(readable, options.dev, options.test, options.seed)
    splits = {
        split: [name for name in names if name not in damaged] for split, names in listing.splits.items()
    }
    empty = [split for split in SPLITS if not splits[split]]
    if empty:
        raise DataError(f"no image is left in {' and '.join(empty)}; every split needs one")
    return splits


class _Chunks:
    """Encoded images on disk: float32 ``(n, regions, dim)`` a chunk; an image that cannot be read is a row of zeros.

    Args:
        work: the folder.
        names: of all images.
        made_of: name, size and time of each file; a chunk is done again when one of its files has changed.
        size: images in a chunk.
        journal: lists finished chunks.
    """

    def __init__(
        self, work: Path, names: Sequence[str], made_of: Sequence[object], size: int, journal: Journal
    ) -> None:
        self._work, self._journal, self._size = work, journal, size
        self.names = [names[i : i + size] for i in range(0, len(names), size)]
        self._digests = [_sha256(made_of[i : i + size]) for i in range(0, len(names), size)]
        self._place = {name: divmod(i, size) for i, name in enumerate(names)}

    def is_finished(self, chunk: int) -> bool:
        """Whether its features lie there."""
        done: bool = self._result(chunk).get("digest") == self._digests[chunk]
        return done and self._path(chunk).is_file()

    def finish(self, chunk: int, features: Float32Array, damaged: Mapping[str, str]) -> None:
        """Keep the features of a chunk, and why some of its images have none."""
        with atomic_path(self._path(chunk)) as temporary, temporary.open("wb") as stream:
            np.save(stream, features)
        self._journal.finish(str(chunk), {"digest": self._digests[chunk], "damaged": dict(damaged)})

    def damaged(self) -> dict[str, str]:
        """Image that could not be read to the reason, in order."""
        return {
            name: reason
            for i in range(len(self.names))
            for name, reason in self._result(i)["damaged"].items()
        }

    @property
    def feature_dim(self) -> int:
        """Numbers per region."""
        return int(self._open(0).shape[2])

    def blocks(self, names: Sequence[str]) -> Iterator[Float32Array]:
        """The features of some images in their order, a few at a time."""
        opened: dict[int, Float32Array] = {}
        for start in range(0, len(names), self._size):
            places = [self._place[name] for name in names[start : start + self._size]]
            for chunk in {chunk for chunk, _ in places} - opened.keys():
                opened[chunk] = self._open(chunk)
            yield np.stack([opened[chunk][row] for chunk, row in places])

    def _open(self, chunk: int) -> Float32Array:
        mapped: Float32Array = np.load(self._path(chunk), mmap_mode="r", allow_pickle=False)
        return mapped

    def _path(self, chunk: int) -> Path:
        return self._work / f"{chunk:06}.npy"

    def _result(self, chunk: int) -> dict[str, Any]:
        result: dict[str, Any] = self._journal.result(str(chunk)) or {}
        return result


def _encode(
    chunks: _Chunks, folder: Path, encoder: Encoder, options: FeatureOptions, workers: int, progress: Progress
) -> None:
    """Encode every chunk that is not finished; images are decoded while the network computes."""

    def read(name: str) -> NDArray[np.uint8] | str:
        try:
            return read_picture(folder / name, encoder.size, encoder.interpolation)
        except DataError as error:
            return str(error.args[0]).removeprefix(f"{folder / name} ")

    todo = [chunk for chunk in range(len(chunks.names)) if not chunks.is_finished(chunk)]
    images = sum(map(len, chunks.names))
    with (
        progress(f"encoding {images:,} images", images) as advance,
        warnings.catch_warnings(),
        _threads(workers) as pool,
    ):
        warnings.simplefilter("ignore", Image.DecompressionBombWarning)  # read_picture has a limit of its own
        warnings.filterwarnings("ignore", module="PIL")  # on metadata that Pillow does not understand
        logging.getLogger("PIL").setLevel(logging.CRITICAL)  # on what is told of the file anyway
        advance(images - sum(len(chunks.names[chunk]) for chunk in todo))
        names = (name for chunk in todo for name in chunks.names[chunk])
        pictures = _ahead(pool, read, names, 2 * options.batch_size)
        for chunk in todo:
            parts: list[Float32Array] = []
            damaged: dict[str, str] = {}
            for start in range(0, len(chunks.names[chunk]), options.batch_size):
                batch = chunks.names[chunk][start : start + options.batch_size]
                read_ones = dict(zip(batch, pictures, strict=False))
                damaged |= {name: found for name, found in read_ones.items() if isinstance(found, str)}
                parts.append(_features(encoder, list(read_ones.values()), options.grid))
                _check_finite(parts[-1], batch, encoder.name)
                advance(len(batch))
            chunks.finish(chunk, np.concatenate(parts), damaged)


def _features(encoder: Encoder, pictures: Sequence[NDArray[np.uint8] | str], grid: int) -> Float32Array:
    """Regions of a batch, ``(n, grid * grid, feature_dim)``; zeros for what is no picture."""
    blank = np.zeros((encoder.size, encoder.size, 3), np.uint8)
    batch = torch.from_numpy(np.stack([blank if isinstance(x, str) else x for x in pictures])).to(
        encoder.device
    )
    with torch.inference_mode():
        found = encoder(batch)
        if min(found.shape[2:]) < grid:
            rows, columns = found.shape[2:]
            raise DataError(
                f"--grid is {grid}, {encoder.name} gives {rows} x {columns} regions; choose fewer"
            )
        pooled = torch.nn.functional.adaptive_avg_pool2d(found, grid)
    features: Float32Array = pooled.flatten(2).transpose(1, 2).float().cpu().numpy()
    features[[isinstance(x, str) for x in pictures]] = 0
    return features


@dataclass(frozen=True)
class _Pca:
    """Mean ``(dim,)``, principal components as columns ``(dim, kept)``, and what is told of them."""

    mean: NDArray[np.float64]
    components: NDArray[np.float64]
    record: Projection


def _fit(chunks: _Chunks, train: Sequence[str], kept: int, progress: Progress) -> _Pca:
    """Principal components of all regions of the training images."""
    dim, count = chunks.feature_dim, 0
    if kept > dim:
        raise DataError(f"--pca is {kept}, the encoder gives {dim} numbers per region; choose fewer")
    total, squares = np.zeros(dim), np.zeros((dim, dim))
    with progress("fitting the projection", len(train)) as advance:
        for block in chunks.blocks(train):
            regions = block.reshape(-1, dim).astype(np.float64)
            total += regions.sum(axis=0)
            squares += regions.T @ regions
            count += len(regions)
            advance(len(block))
    mean = total / count
    values, vectors = np.linalg.eigh(squares / count - np.outer(mean, mean))
    components = vectors[:, ::-1][:, :kept]  # the largest first
    largest = np.abs(components).argmax(axis=0)
    components = components * np.sign(components[largest, np.arange(kept)])  # a sign that no library chooses
    variance = float(values[::-1][:kept].sum() / values.sum())
    return _Pca(mean, components, Projection(dim=kept, fitted_on=len(train), variance=round(variance, 6)))


def _write(
    path: Path, chunks: _Chunks, names: Sequence[str], pca: _Pca | None, dtype: str, progress: Progress
) -> None:
    """One split's features, in the order of its names."""
    rows: NDArray[np.floating] | None = None
    done = 0
    with progress(f"writing {path.stem.removesuffix('_ims')}", len(names)) as advance:
        for block in chunks.blocks(names):
            projected = ((block - pca.mean) @ pca.components).astype(np.float32) if pca else block
            if dtype == "float16" and np.abs(projected).max() > np.finfo(np.float16).max:
                raise DataError(
                    f"features reach {np.abs(projected).max():g}, more than float16 holds; give --dtype float32"
                )
            if rows is None:
                rows = open_memmap(path, "w+", dtype, (len(names), *projected.shape[1:]))
            rows[done : done + len(block)] = projected
            done += len(block)
            advance(len(block))


def _settings(encoder: Encoder, options: FeatureOptions) -> dict[str, Any]:
    """All but the images that encoded chunks depend on."""
    packages = ("torch", "pillow", encoder.package)
    return {
        "encoder": encoder.name,
        "weights_sha256": encoder.weights_sha256,
        "preprocessing": _preprocessing(encoder).model_dump(mode="json"),
        "grid": options.grid,
        "batch_size": options.batch_size,
        "device": torch.cuda.get_device_name(encoder.device) if encoder.device.type == "cuda" else "CPU",
        "versions": {package: version(package) for package in packages},
    }


def _choices(options: FeatureOptions, listing: Listing) -> list[object]:
    """What else the folder depends on."""
    draw = [] if listing.splits else [options.dev, options.test, options.seed]
    return [options.pca, options.dtype, options.skip_damaged, *draw]


def _preprocessing(encoder: Encoder) -> Preprocessing:
    return Preprocessing(
        size=encoder.size, interpolation=encoder.interpolation, mean=encoder.mean, std=encoder.std
    )


def _stamps(listing: Listing) -> list[object]:
    stamps: list[object] = []
    for name in listing.names:
        try:
            found = (listing.folder / name).stat()
            stamps.append([name, found.st_size, found.st_mtime_ns])
        except OSError:  # which is told when the image is read
            stamps.append([name])
    return stamps


def _sha256(content: object) -> str:
    return hashlib.sha256(json.dumps(content).encode()).hexdigest()


def _same(to: Path, key: str) -> Encoding:
    """What a finished folder says, where the same command wrote it."""
    try:
        found = Encoding.model_validate_json((to / ENCODING_FILE).read_bytes())
    except (OSError, ValueError):
        raise DataError(f"{to} exists and holds no features; choose another --to") from None
    if found.key != key:
        raise DataError(
            f"{to} holds features of other images or with other settings; delete it or choose another --to"
        )
    return found


def _check_damaged(damaged: Mapping[str, str], folder: Path, skip: bool) -> None:
    if damaged and not skip:
        (name, reason), *others = damaged.items()
        more = f", and {len(others)} more cannot be read" if others else ""
        raise DataError(
            f"{folder / name} {reason}{more}; or leave such files out with --skip-damaged, which lists them"
        )


def _check_finite(features: Float32Array, names: Sequence[str], encoder: str) -> None:
    finite = np.isfinite(features).all(axis=(1, 2))
    if not finite.all():
        raise DataError(
            f"{encoder} gives numbers that are not finite for {names[int(np.argmin(finite))]}; its weights are damaged"
        )


@contextmanager
def _threads(workers: int) -> Iterator[ThreadPoolExecutor]:
    """Threads that begin nothing more when the block ends."""
    pool = ThreadPoolExecutor(workers)
    try:
        yield pool
    finally:
        pool.shutdown(cancel_futures=True)


def _ahead(
    pool: ThreadPoolExecutor, function: Callable[[str], Result], items: Iterable[str], ahead: int
) -> Iterator[Result]:
    """Results in order; no more than ``ahead`` items are begun before their turn."""
    waiting: deque[Future[Result]] = deque()
    for item in items:
        waiting.append(pool.submit(function, item))
        if len(waiting) > ahead:
            yield waiting.popleft().result()
    while waiting:
        yield waiting.popleft().result()
