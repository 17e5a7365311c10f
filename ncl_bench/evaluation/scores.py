"""Read similarities from users' files and arrays, in blocks of rows, and write them as an ``.npy`` matrix.

Nothing is unpickled, and memory use does not grow with the matrix.
"""

import mmap
import os
import warnings
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from threading import Lock
from typing import Any, Literal, cast

import numpy as np
from numpy.typing import NDArray

from ncl_bench.arguments import checked_arguments
from ncl_bench.decoding import decode
from ncl_bench.errors import ScoresError
from ncl_bench.extras import require
from ncl_bench.files import AnyPath, atomic_path
from ncl_bench.foreign import readable, reading
from ncl_bench.npy import Float64Array, FloatArray, map_npy, read_header
from ncl_bench.torch_files import check_sums, opened

BLOCK = 50
"""Rows read per block."""
COLUMNS_AT_ONCE = 1_000
"""Columns read per block from a file stored by columns."""
SAMPLE = 20_000
FILLED_SHARE = 0.01
FILLED_OFTEN = 10
"""A value in place of a score is this many times as frequent as any other value; rounding makes many frequent."""
ROWS_PER_WRITE = 100


def as_array(given: Any) -> NDArray[Any]:
    """Convert what a user gives to a numpy array.

    Args:
        given: an array, a tensor (also with a gradient, on a GPU, in bfloat16), nested lists, or the path of a file
            that :func:`read_array` reads.

    Returns:
        The array. Arrays are not copied; an ``.npy`` file is memory-mapped.
    """
    if isinstance(given, str | os.PathLike):
        return read_array(Path(given))
    # numpy would drop the mask and rank what lies under it
    # by its mask: numpy loads its module of masked arrays only when that is named, which takes as long as to rank
    if isinstance(getattr(given, "mask", None), np.ndarray | np.bool_):
        raise ScoresError("a masked array is given, expected a score for every pair; fill the mask")
    # a list of lists of unequal length; a torch tensor without data
    with reading("what is given", ScoresError, fix="give a numpy array, a tensor, or the path of a file"):
        return np.asanyarray(_on_the_cpu(given))


def _on_the_cpu(given: Any) -> Any:
    """Convert a torch tensor to what numpy accepts, by its methods only, so torch is not imported; pass on the rest."""
    if not (hasattr(given, "detach") and hasattr(given, "cpu")):
        return given
    tensor = given.detach().cpu()
    # numpy has no bfloat16
    return tensor.float() if str(tensor.dtype) == "torch.bfloat16" else tensor


def read_array(path: Path) -> NDArray[Any]:
    """Read the only array in a file.

    Args:
        path: ``.npy``, which is memory-mapped; or a file that holds one array, which is read into memory:
            ``.safetensors``, ``.pt`` and ``.pth`` of torch (opened with ``weights_only=True``), ``.npz``, ``.mat`` of
            MATLAB, and numbers alone in ``.csv``, ``.tsv`` or ``.txt``.
    """
    # everything else is read as .npy, whose header says whether it is one
    reader = _READERS.get(path.suffix.lower())
    readable(path, ScoresError, f"a {path.suffix} file" if reader else "an .npy file")
    return reader(path) if reader else map_npy(path, read_header(path))


def _read_safetensors(path: Path) -> NDArray[Any]:
    from safetensors import safe_open

    with (
        reading(path, ScoresError, fix="write it again, in a number type of numpy such as float32"),
        safe_open(path, framework="numpy") as file,
    ):
        shapes = {name: file.get_slice(name).get_shape() for name in file.keys()}  # noqa: SIM118 (it is no dict)
        return np.asarray(file.get_tensor(_only(shapes, path)))


def _decoded(array_of: Callable[[Path, str], NDArray[Any]], fix: str, path: Path) -> NDArray[Any]:
    return cast("NDArray[Any]", decode(array_of, path, error=ScoresError, fix=fix))


def array_of_npz(path: Path, _: str) -> NDArray[Any]:
    """The only array of an ``.npz`` file; called in a worker, since a few bytes may expand without end."""
    with np.load(path, allow_pickle=False) as archive:
        return np.asarray(archive[_only(dict.fromkeys(archive.files, ()), path)])


def array_of_matlab(path: Path, _: str) -> NDArray[Any]:
    """The only matrix of a ``.mat`` file; called in a worker."""
    from scipy.io import loadmat, whosmat

    name = _only({name: shape for name, shape, _ in whosmat(path)}, path)
    return np.asarray(loadmat(path, variable_names=[name])[name])


def _read_text(path: Path) -> NDArray[Any]:
    with reading(path, ScoresError, fix="write the numbers alone, without names of rows and columns"):
        with path.open(encoding="utf-8") as lines:
            first = lines.readline()
        mark = next((mark for mark in ",;\t" if mark in first), None)
        with warnings.catch_warnings(action="error"):  # that nothing is in it
            return np.loadtxt(path, delimiter=mark, ndmin=2, encoding="utf-8")


def _read_torch(path: Path) -> NDArray[Any]:
    require("baselines", "torch", needed_by=str(path))
    return _decoded(array_of_torch, "save the tensor alone with torch.save", path)


def array_of_torch(path: Path, _: str) -> NDArray[Any]:
    """The only tensor of a file of ``torch.save``; called in a worker, as its size may be a lie."""
    check_sums(path)
    content = opened(path)
    tensors = content if isinstance(content, dict) else {"tensor": content}
    return np.asarray(_on_the_cpu(tensors[_only({name: x.shape for name, x in tensors.items()}, path)]))


def _only(shapes: Mapping[Any, Sequence[int]], path: Path) -> Any:
    """The only name in the file."""
    # a checkpoint by mistake, or several splits: no name says which one is meant
    if len(shapes) != 1:
        some = ", ".join(f"{name} {tuple(shape) or ''}".rstrip() for name, shape in list(shapes.items())[:3])
        raise ScoresError(f"{path} holds {len(shapes)} arrays ({some}), expected one; save that one alone")
    return next(iter(shapes))


_READERS: dict[str, Callable[[Path], NDArray[Any]]] = {
    ".safetensors": _read_safetensors,
    ".pt": _read_torch,
    ".pth": _read_torch,
    ".npz": partial(_decoded, array_of_npz, "write it with numpy.savez"),
    ".mat": partial(_decoded, array_of_matlab, "save the matrix alone with save -v7"),
    **dict.fromkeys((".csv", ".tsv", ".txt"), _read_text),
}


@checked_arguments(ScoresError)
def write_scores(path: AnyPath, similarities: Any) -> None:
    """Write similarities as a float32 ``.npy`` file.

    Example::

        ncl_bench.write_scores("test.npy", similarities)  # (n_images, n_captions)

    Args:
        path: the ``.npy`` file to write.
        similarities: float ``(n_images, n_captions)``, images as rows; an array, also memory-mapped, or a CPU tensor.
    """
    path = Path(path)
    if path.suffix != ".npy":  # evaluate would read it as another kind of file
        raise ScoresError(f"path is {path}, expected a name that ends in .npy")
    similarities = as_array(similarities)
    if similarities.ndim != 2 or similarities.dtype.kind != "f":
        raise ScoresError(
            f"similarities have shape {similarities.shape} and dtype {similarities.dtype}, "
            "expected a matrix of floats with images as rows"
        )
    with atomic_path(path) as temporary, temporary.open("wb") as stream:
        header = {"descr": "<f4", "fortran_order": False, "shape": similarities.shape}
        np.lib.format.write_array_header_1_0(stream, header)
        for start in range(0, len(similarities), ROWS_PER_WRITE):
            with np.errstate(over="ignore"):  # float64 beyond float32 becomes infinite
                rows = np.asarray(similarities[start : start + ROWS_PER_WRITE], "<f4")
            if not np.isfinite(rows).all():
                row, column = np.argwhere(~np.isfinite(rows))[0]
                raise ScoresError(
                    f"similarities are not finite as float32 in row {start + row}, column {column}; score this pair "
                    "again"
                )
            stream.write(rows.tobytes())


class ArrayRows:
    """Rows of an array in memory or mapped from disk; float16 and foreign byte order become native floats.

    Args:
        array: float ``(n_images, n_captions)``.
        name: name in errors.
        remark: how the array was taken, if its user may have meant another way.
    """

    remedy = "score these pairs again, or give pairs without a score a number below all scores, such as -100"

    def __init__(self, array: FloatArray, name: str = "similarities", remark: str = "") -> None:
        self.array, self.name, self.remark = array, name, remark
        self.shape: tuple[int, int] = (array.shape[0], array.shape[1])
        self.dtype: np.dtype[np.floating] = array.dtype
        # float16 is compared as float32: the values are the same, and the comparison is fast
        self.native = np.dtype(np.float64 if array.dtype.itemsize > 4 else np.float32)
        # a transposed matrix: reading whole rows would touch every page of the file for each block
        self._by_columns = bool(array.flags.f_contiguous and not array.flags.c_contiguous)

    def rows(self, start: int, stop: int) -> FloatArray:
        """Return rows as native float32 or float64, without a copy if they already are."""
        if not self._by_columns:
            return np.asarray(self.array[start:stop], dtype=self.native, order="C")
        result = np.empty((stop - start, self.shape[1]), self.native)
        for first in range(0, self.shape[1], COLUMNS_AT_ONCE):
            # a group of columns at a time, whose pages are then let go
            result[:, first : first + COLUMNS_AT_ONCE] = self.array[
                start:stop, first : first + COLUMNS_AT_ONCE
            ]
            release_pages(self.array, first, min(first + COLUMNS_AT_ONCE, self.shape[1]))
        return result

    def own(self, captions_per_image: int) -> FloatArray:
        """Return each caption's score with its own image, ``(n_images, captions_per_image)``."""
        captions = np.arange(self.shape[1]).reshape(-1, captions_per_image)
        result = np.empty(captions.shape, self.native)
        for start in range(0, self.shape[0], BLOCK):
            images = np.arange(start, min(start + BLOCK, self.shape[0]))
            result[images] = self.array[images[:, None], captions[images]]
            self.release(start, int(images[-1]) + 1)
        return result

    def filler(self) -> float | None:
        """Return the value of pairs that were not scored, found in a sample of the first rows, or None."""
        block = self.rows(0, min(BLOCK, self.shape[0])).reshape(-1)
        if block.size > SAMPLE:
            # a sample is enough to find a value that stands for many pairs
            block = block[np.random.default_rng(0).integers(block.size, size=SAMPLE)]
        # by hand: numpy.unique loads numpy's masked arrays, which takes as long as to count the ranks of the rows
        ordered = np.sort(block)
        starts = np.flatnonzero(np.concatenate([[True], ordered[1:] != ordered[:-1]]))
        values, counts = ordered[starts], np.diff(starts, append=block.size)
        place = counts.argmax()
        most, second = counts[place], np.delete(counts, place).max(initial=0)
        # one value in place of a score stands out; rounding makes many values frequent
        often = most >= FILLED_SHARE * block.size and most >= FILLED_OFTEN * second
        return float(values[place]) if often and most > 1 else None

    def column(self, caption: int) -> FloatArray:
        """Return the scores of every image with one caption."""
        parts = []
        for start in range(0, self.shape[0], BLOCK):
            parts.append(self.array[start : start + BLOCK, caption].astype(self.native))
            self.release(start, min(start + BLOCK, self.shape[0]))
        return np.concatenate(parts)

    def release(self, start: int, stop: int) -> None:
        """Release rows that are not needed again."""
        if self._by_columns:
            release_pages(self.array, 0, self.shape[1])
        else:
            release_pages(self.array, start, stop)


def release_pages(array: NDArray[Any], start: int, stop: int) -> None:
    """Release the pages of a mapped file, so that a pass keeps only a few blocks in memory.

    Args:
        array: a whole mapped file, or its transpose; other arrays are left alone.
        start: first row, or first column of an array stored by columns.
        stop: end, exclusive.
    """
    # the map lies one base below, or two below a transposed view
    mapping: object = array.base
    if isinstance(mapping, np.memmap) and mapping.nbytes == array.nbytes:  # transposed
        mapping = mapping.base
    if isinstance(mapping, mmap.mmap) and array.flags.forc and hasattr(mapping, "madvise"):
        offset, stride = len(mapping) - array.nbytes, max(array.strides)
        first = offset + start * stride
        # the system releases whole pages
        first -= first % mmap.PAGESIZE
        # a read-only file: the pages are read again when they are needed
        mapping.madvise(mmap.MADV_DONTNEED, first, offset + stop * stride - first)


TILE_IMAGES = 250
TILE_CAPTIONS = 2_500
KEPT_TILES = 2

Similarity = Literal["cosine", "dot"]

SMALLEST_NORM = 1e-140
"""Squares of smaller numbers lose digits in float64."""


class EmbeddingRows:
    """Rows of the similarities of two embedding arrays, with the methods of :class:`ArrayRows`.

    Args:
        images: float ``(n_images, dim)``.
        captions: float ``(n_captions, dim)``.
        similarity: ``cosine`` or ``dot``.
        names: names of the two arrays in errors.
    """

    remedy = "the products exceed float32: divide the embeddings by a constant"

    def __init__(
        self,
        images: NDArray[Any],
        captions: NDArray[Any],
        similarity: Similarity,
        names: tuple[str, str] = ("images", "captions"),
    ) -> None:
        for vectors, name in zip((images, captions), names, strict=True):
            check_embeddings(vectors, name, similarity)
        self.name = f"{similarity} of {names[0]} and {names[1]}"
        self.images, self.captions, self.similarity = images, captions, similarity
        self.shape = (len(images), len(captions))
        self.dtype: np.dtype[np.floating] = np.dtype(np.float32)
        self._tiles: dict[int, FloatArray] = {}
        self._lock = Lock()

    def rows(self, start: int, stop: int) -> FloatArray:
        """Return the similarities of images ``start`` to ``stop``, float32."""
        parts = []
        # tiles at fixed places: products of other shapes may differ in their last bits, and the result would
        # depend on the block size
        for tile in range(start // TILE_IMAGES, (stop - 1) // TILE_IMAGES + 1):
            first = tile * TILE_IMAGES
            parts.append(self._tile(tile)[max(start - first, 0) : stop - first])
        return parts[0] if len(parts) == 1 else np.concatenate(parts)

    def column(self, caption: int) -> FloatArray:
        """Return the similarities of every image with one caption, float32."""
        vector = self._unit(self.captions, caption, caption + 1)
        images = range(0, self.shape[0], TILE_IMAGES)
        parts = [self._unit(self.images, first, first + TILE_IMAGES) @ vector[0] for first in images]
        return np.concatenate(parts).astype(np.float32)

    def own(self, captions_per_image: int) -> FloatArray:
        """Return each caption's similarity with its own image, float32 ``(n_images, captions_per_image)``."""
        result = np.empty((self.shape[0], captions_per_image), np.float32)
        for first in range(0, self.shape[0], TILE_IMAGES):
            last = min(first + TILE_IMAGES, self.shape[0])
            images = self._unit(self.images, first, last)
            captions = self._unit(self.captions, first * captions_per_image, last * captions_per_image)
            captions = captions.reshape(len(images), captions_per_image, -1)
            with np.errstate(over="ignore"):
                # with its own image alone, n products instead of n x n
                result[first:last] = np.einsum("id,icd->ic", images, captions)
        return result

    def filler(self) -> None:
        """Every pair has a score."""

    def release(self, start: int, stop: int) -> None:
        """Nothing to release: new tiles replace old ones."""

    def _tile(self, tile: int) -> FloatArray:
        with self._lock:
            if tile not in self._tiles:
                # two: threads work near each other, and a block may span two tiles
                while len(self._tiles) >= KEPT_TILES:
                    del self._tiles[min(self._tiles)]
                self._tiles[tile] = self._compute(tile * TILE_IMAGES)
            return self._tiles[tile]

    def _compute(self, first: int) -> FloatArray:
        images = self._unit(self.images, first, min(first + TILE_IMAGES, self.shape[0]))
        result = np.empty((len(images), self.shape[1]), np.float32)
        for start in range(0, self.shape[1], TILE_CAPTIONS):
            captions = self._unit(self.captions, start, start + TILE_CAPTIONS)
            with np.errstate(over="ignore"):
                result[:, start : start + TILE_CAPTIONS] = images @ captions.T
        return result

    def _unit(self, vectors: NDArray[Any], start: int, stop: int) -> Float64Array:
        """Return some vectors in float64, normalised for the cosine."""
        # float64, rounded to float32 once at the end, so that machines agree
        some = vectors[start:stop].astype(np.float64)
        release_pages(vectors, start, min(stop, len(vectors)))
        return some / np.linalg.norm(some, axis=1, keepdims=True) if self.similarity == "cosine" else some


Rows = ArrayRows | EmbeddingRows
"""Similarities read in blocks of rows; values do not depend on the block size."""


def check_embeddings(vectors: NDArray[Any], name: str, similarity: Similarity) -> None:
    """Refuse vectors whose norm is not finite in float64; for the cosine also those whose norm is 0, or nearly."""
    smallest = SMALLEST_NORM if similarity == "cosine" else 0.0
    for start in range(0, len(vectors), TILE_CAPTIONS):
        with np.errstate(over="ignore", under="ignore"):
            norms = np.linalg.norm(vectors[start : start + TILE_CAPTIONS].astype(np.float64), axis=1)
        outside = np.flatnonzero(~((norms >= smallest) & (norms < np.inf)))
        if len(outside):
            raise ScoresError(
                f"{name} has a vector of norm {norms[outside[0]]:g} in row {start + outside[0]}, expected a finite one "
                f"of at least {smallest:g}; embed it again, or scale all embeddings by a constant"
            )
