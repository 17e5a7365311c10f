"""Build the shipped files from the packages."""

import io
import json
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from ncl_bench.data.pictograms import SHEETS, THUMBNAIL, THUMBNAILS_IN_A_LINE
from ncl_bench.errors import DataError
from ncl_bench.files import write_bytes, write_text
from ncl_bench.foreign import text_lines
from ncl_bench.progress import Progress, silent
from tools.pictograms.items import SourceItem, read_items
from tools.pictograms.packages import PACKAGES, read_package
from tools.pictograms.pictures import CHANNELS, GRID, make_blocks, read_block
from tools.pictograms.split import NEAR, SEED, clusters, concept, divide, near_pairs

HERE = Path(__file__).parent
PROJECTION = HERE / "projection.npz"
DROPPED_BY_HAND = HERE / "dropped_by_hand.txt"
"""Ids, one per line, each with the reason."""
REPORT = HERE / "report.json"
SHIPPED = HERE.parents[1] / "ncl_bench" / "data" / "pictograms"
DIM = 64


@dataclass(frozen=True, eq=False)
class FeatureProjection:
    """Maps a region of the CNN to the shipped numbers.

    Attributes:
        mean: float32 ``(1280,)``.
        axes: float32 ``(64, 1280)``, orthonormal, by decreasing variance.
        scales: float32 ``(64,)``, quantisation step of each number.
    """

    mean: NDArray[np.float32]
    axes: NDArray[np.float32]
    scales: NDArray[np.float32]

    def __call__(self, grids: NDArray[np.float32]) -> NDArray[np.int8]:
        """Project grids, float32 ``(n, 16, 1280)``, to int8 ``(n, 16, 64)``."""
        steps = (grids - self.mean) @ self.axes.T / self.scales
        return np.clip(np.rint(steps), -127, 127).astype(np.int8)


def read_projection() -> FeatureProjection:
    """Read the projection of the shipped features."""
    with np.load(PROJECTION, allow_pickle=False) as stored:
        return FeatureProjection(**stored)


def fit_projection(blocks: Callable[[], Iterable[NDArray[np.float32]]]) -> FeatureProjection:
    """Fit principal components to the training regions.

    Args:
        blocks: yields float32 ``(n, 16, 1280)``; read twice, because all of them do not fit into a small memory.
    """
    count, total, squares = 0, np.zeros(CHANNELS), np.zeros((CHANNELS, CHANNELS))
    for grids in blocks():
        regions = grids.reshape(-1, CHANNELS)
        count += len(regions)
        total += regions.sum(axis=0, dtype=np.float64)
        squares += regions.T @ regions
    mean = total / count
    values, vectors = np.linalg.eigh(squares / count - np.outer(mean, mean))
    axes = vectors[:, np.argsort(-values)[:DIM]].T
    axes *= np.sign(axes[np.arange(DIM), np.abs(axes).argmax(axis=1)])[:, None]  # fix the arbitrary sign
    mean32, axes32 = mean.astype(np.float32), axes.astype(np.float32)
    largest = np.max([np.abs((grids - mean32) @ axes32.T).max(axis=(0, 1)) for grids in blocks()], axis=0)
    return FeatureProjection(mean32, axes32, (largest / 127).astype(np.float32))


def build(packages: Path, work: Path, to: Path, progress: Progress = silent) -> None:
    """Build every shipped file.

    Args:
        packages: folder of the downloads.
        work: folder of the drawn blocks; a second run resumes there.
        to: folder of the result.
        progress: reports the amount done.

    Raises:
        DataError: a package is missing or has another version.
    """
    reading = read_items(packages)
    paths = make_blocks(reading.items, work, progress)
    empty: list[str] = []
    means: dict[str, NDArray[np.float32]] = {}
    for path in paths:
        block = read_block(path)
        empty += block.empty
        means |= zip(block.ids, block.grids.mean(axis=1), strict=True)
    by_hand = read_dropped_by_hand()
    reading.left_out["empty, or nothing but white"] = len(empty)
    reading.left_out["dropped by hand"] = len(by_hand & set(means))
    items = [item for item in reading.items if item.id in means]
    labels, n_pairs = find_concepts(items, means)
    splits = divide(items, labels, by_hand)
    order = np.random.RandomState(SEED).permutation(len(items)).tolist()
    rank = {"train": 0, "dev": 1, "test": 2, "": 3}
    kept = sorted(
        (items[row] for row in order if items[row].id in splits.checked or items[row].id in splits.web),
        key=lambda item: rank[splits.checked.get(item.id, "")],
    )
    train = {item.id for item in kept if splits.checked.get(item.id) == "train"}
    projection = fit_projection(lambda: _grids(paths, train))
    features, thumbnails = _project(paths, kept, projection, splits.checked)
    to.mkdir(parents=True, exist_ok=True)
    _write_array(to / "features.npy", features)
    _write_array(to / "scales.npy", projection.scales)
    write_text(to / "items.tsv", table(kept, splits.checked, splits.web))
    for name, pictures in thumbnails.items():
        write_bytes(to / f"thumbnails_{name}.webp", sheet(pictures))
    write_text(to / "LICENSES.txt", notices(packages))
    stream = io.BytesIO()
    np.savez(stream, mean=projection.mean, axes=projection.axes, scales=projection.scales)
    write_bytes(to / PROJECTION.name, stream.getvalue())
    report = {
        "read": Counter(item.source for item in reading.items),
        "left_out": dict(sorted(reading.left_out.items())),
        "concepts": int(labels.max()) + 1,
        "near_pairs": n_pairs,
        "left_out_of_concepts_in_dev_and_test": sum(
            bool(item.caption) and item.id not in splits.checked for item in items
        ),
    }
    write_text(to / REPORT.name, json.dumps(report, indent=1) + "\n")


def find_concepts(
    items: Sequence[SourceItem], means: Mapping[str, NDArray[np.float32]]
) -> tuple[NDArray[np.int64], int]:
    """Concept of each item, int64 ``(n,)``, and the number of near pairs of pictures."""
    vectors = np.stack([means[item.id] for item in items])
    pairs = near_pairs(vectors, NEAR)
    return clusters([concept(item.name) if item.name else "" for item in items], pairs), len(pairs)


def read_dropped_by_hand() -> set[str]:
    """Read the ids of pictures removed by a person."""
    lines = text_lines(DROPPED_BY_HAND.read_bytes(), str(DROPPED_BY_HAND), DataError)
    return {line.split("\t")[0] for line in lines if line}


def table(items: Sequence[SourceItem], checked: Mapping[str, str], web: Mapping[str, str]) -> str:
    """Format ``items.tsv``: id, split, caption, Chinese caption, split of ``pictograms-web``, original caption."""
    head = "id\tsplit\tcaption\tchinese\tweb_split\tas_it_comes"
    lines = [
        (
            item.id,
            checked.get(item.id, ""),
            item.caption,
            item.chinese,
            web.get(item.id, ""),
            item.as_it_comes if web.get(item.id) == "train" else "",
        )
        for item in items
    ]
    assert not any("\t" in cell or "\n" in cell for line in lines for cell in line)
    return "\n".join([head, *("\t".join(line) for line in lines), ""])


def notices(packages: Path) -> str:
    """Collect ``LICENSES.txt``: notices that the licences of the sources require."""
    said = {
        "openclipart": "Open Clip Art Library 0.18, dedicated to the public domain by its artists.",
        "noto": "Noto Emoji, copyright Google Inc., under the Apache License 2.0.",
        "fluent": "Fluent Emoji, copyright Microsoft Corporation, under the MIT License.",
        "lucide": "Lucide, under the ISC License; some icons under the MIT License.",
        "phosphor": "Phosphor Icons, under the MIT License.",
        "names": "Unicode CLDR annotations: names and keywords of emoji, under the Unicode License v3.",
    }
    texts = {
        source: read_package(packages, source)[PACKAGES[source].licence_file].decode()
        for source in ("openclipart", "lucide", "phosphor", "names")
    }
    texts["noto"] = (HERE.parents[1] / "LICENSE").read_text(encoding="utf-8")
    texts["fluent"] = texts["phosphor"].replace("(c) 2023 Phosphor Icons", "(c) Microsoft Corporation")
    assert "Microsoft" in texts["fluent"]
    assert "Apache License" in texts["noto"]
    parts = [
        f"{said[source]}\nTaken from {PACKAGES[source].file}.\n\n{texts[source].strip()}\n" for source in said
    ]
    head = (
        "Pictures and texts of the dataset pictograms come from the sources below. Drawings were rendered and turned\n"
        "into numbers by EfficientNet-lite0 (Apache License 2.0), texts were joined to captions, and thumbnails were\n"
        "made of the drawings.\n"
    )
    return f"\n{'=' * 100}\n\n".join([head, *parts])


def sheet(pictures: Sequence[NDArray[np.uint8]]) -> bytes:
    """Pack thumbnails of 64 pixels, 40 per line, into one WebP."""
    lines = -(-len(pictures) // THUMBNAILS_IN_A_LINE)
    canvas = Image.new("RGB", (THUMBNAILS_IN_A_LINE * THUMBNAIL, lines * THUMBNAIL), "white")
    for number, pixels in enumerate(pictures):
        small = Image.fromarray(pixels).resize((THUMBNAIL, THUMBNAIL), Image.Resampling.LANCZOS)
        canvas.paste(
            small, (number % THUMBNAILS_IN_A_LINE * THUMBNAIL, number // THUMBNAILS_IN_A_LINE * THUMBNAIL)
        )
    stream = io.BytesIO()
    canvas.save(stream, "WEBP", quality=70, method=6)
    return stream.getvalue()


def _grids(paths: Sequence[Path], ids: set[str]) -> Iterable[NDArray[np.float32]]:
    for path in paths:
        block = read_block(path)
        chosen = np.array([name in ids for name in block.ids])
        if chosen.any():
            yield block.grids[chosen]


def _project(
    paths: Sequence[Path],
    items: Sequence[SourceItem],
    projection: FeatureProjection,
    checked: Mapping[str, str],
) -> tuple[NDArray[np.int8], dict[str, list[NDArray[np.uint8]]]]:
    """Features of the items, and the pictures of each sheet."""
    rows = {item.id: row for row, item in enumerate(items)}
    features = np.empty((len(items), GRID * GRID, DIM), np.int8)
    pictures: dict[str, dict[int, NDArray[np.uint8]]] = {sheet: {} for sheet in SHEETS}
    for path in paths:
        block = read_block(path)
        for name, numbers, pixels in zip(block.ids, projection(block.grids), block.pictures, strict=True):
            if name in rows:
                features[rows[name]] = numbers
                pictures[checked.get(name, "web")][rows[name]] = pixels
    return features, {sheet: [found[row] for row in sorted(found)] for sheet, found in pictures.items()}


def _write_array(path: Path, array: NDArray[np.int8] | NDArray[np.float32]) -> None:
    stream = io.BytesIO()
    np.save(stream, array, allow_pickle=False)
    write_bytes(path, stream.getvalue())
