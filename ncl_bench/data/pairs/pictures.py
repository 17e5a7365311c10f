"""Find the pictures of somebody's pairs, whatever is missing, damaged or there twice, and encode them."""

import hashlib
import os
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

import numpy as np

from ncl_bench.data.columns import Int64Array
from ncl_bench.data.pairs.columns import OwnPairs
from ncl_bench.errors import DataError, listed, shown
from ncl_bench.files import atomic_path, normalized, sha256_of_file
from ncl_bench.progress import Progress, silent

_ENDINGS = (".jpg", ".jpeg", ".png", ".webp", ".bmp", ".gif", ".tif", ".tiff")
ENDINGS = ("", *_ENDINGS, *map(str.upper, _ENDINGS))
"""Endings tried after an image id to find its file."""


@dataclass(frozen=True)
class Pictures:
    """Which picture every row has.

    Attributes:
        files: name to file of every distinct picture, in order of first appearance.
        image_of: int64 ``(rows,)``, the row's picture in ``files``; -1 where it has none.
        doubled: name of a copy to the name of the first file with the same bytes.
        remarks: how names were matched with files, in sentences.
    """

    files: Mapping[str, Path]
    image_of: Int64Array
    doubled: Mapping[str, str]
    remarks: tuple[str, ...] = ()


def find_pictures(pairs: OwnPairs, images: Path | None, work: Path, progress: Progress = silent) -> Pictures:
    """Find the file of every row's picture.

    Args:
        pairs: the rows.
        images: folder of the pictures (default: the folder of the table).
        work: folder for pictures that the rows hold themselves.
        progress: shows the number of rows done.

    Raises:
        DataError: the folder is missing, holds none of the pictures, or two files fit one name.
    """
    if pairs.form.pictures is not None and pairs.image_column == pairs.form.image:
        return _merged(_unpacked(pairs, work, progress), pairs.images, ())
    folder = images or pairs.form.folder or Path()
    if not folder.is_dir():
        raise DataError(f"{folder} is not a folder; give the folder of the pictures with --images")
    index = _Index(folder)
    if pairs.by_row and not index.paths:
        raise DataError(_download(pairs, folder))
    found: dict[str, Path] = {}
    alone: dict[Path, str] = {}
    names = list(dict.fromkeys(name for name in pairs.images if name))
    if not names:
        raise DataError(
            f"{pairs.form.name}: column {pairs.image_column} names no image; choose another with --image-column"
        )
    for name in names:
        file, by_name_alone = index.find(name)
        if file is None:
            continue
        if by_name_alone and alone.setdefault(file, name) != name:
            raise DataError(
                f"{pairs.form.name} names {shown(alone[file])} and {shown(name)}, but {folder} holds one file of this "
                f"name, {file.relative_to(folder)}; put the files into the folders that the table names"
            )
        found[name] = file
    if not found:
        if pairs.by_row:
            raise DataError(_download(pairs, folder))
        raise DataError(
            f"{folder} holds none of the {len(names):,} pictures of {pairs.form.name}: column {pairs.image_column} "
            f"names {listed(names, 3)}; the folder holds {listed(index.paths, 3)}; correct --images or --image-column"
        )
    remarks = []
    if alone:
        file, name = next(iter(alone.items()))
        remarks.append(
            f"{len(alone):,} pictures were found by the name of their file alone: {name} is "
            f"{file.relative_to(folder).as_posix()} in {folder.name}."
        )
    return _merged(found, pairs.images, tuple(remarks))


def _download(pairs: OwnPairs, folder: Path) -> str:
    return (
        f"{pairs.form.name} names pictures by URL, and {folder} holds none of them; download them with `pip install "
        f"img2dataset` and `img2dataset --url_list {pairs.form.name} --input_format tsv --url_col url --caption_col "
        "caption --output_format webdataset --output_folder pictures` (write a line of names above a table without "
        "one), then audit the folder `pictures`; or give --images with files named by row, such as 000000000.jpg"
    )


class _Index:
    """Every file below a folder, by path and by name."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.paths = folder, {}
        self.by_name: dict[str, list[str]] = defaultdict(list)

        def refuse(error: OSError) -> None:
            raise DataError(f"{error.filename} cannot be read ({error.strerror}); check its permissions")

        for place, folders, files in os.walk(folder, onerror=refuse, followlinks=True):
            folders[:] = sorted(each for each in folders if not each.startswith("."))
            for name in sorted(files):
                if not name.startswith("."):
                    file = Path(place, name)
                    path = normalized(file.relative_to(folder).as_posix())
                    self.paths[path] = file
                    self.by_name[PurePosixPath(path).name].append(path)

    def find(self, name: str) -> tuple[Path | None, bool]:
        """The file of a name, and whether only the file's name agrees and not its folder."""
        written = os.path.normpath(normalized(name)).replace(os.sep, "/")
        for path in (written, written.replace("\\", "/")):
            for ending in ENDINGS:
                if path + ending in self.paths:
                    return self.paths[path + ending], False
        if Path(name).is_absolute() and Path(name).is_file():
            return Path(name), False
        last = written.replace("\\", "/").rpartition("/")[2]
        for ending in ENDINGS:
            same = self.by_name.get(last + ending, [])
            if len(same) > 1:
                raise DataError(
                    f"{self.folder} holds {len(same)} files named {last + ending} ({listed(same, 3)}); name the folder "
                    "too in the table"
                )
            if same:
                return self.paths[same[0]], True
        return None, False


def _unpacked(pairs: OwnPairs, work: Path, progress: Progress) -> dict[str, Path]:
    """Write pictures that the rows hold into the folder ``work``, each named by its hash; row's name to file."""
    work.mkdir(parents=True, exist_ok=True)
    found: dict[str, Path] = {}
    assert pairs.form.pictures is not None
    with progress("reading pictures", len(pairs.images)) as advance:
        for name, content in zip(pairs.images, pairs.form.pictures(), strict=True):
            if isinstance(content, Path):
                found[name] = content
            elif content is not None:
                file = work / hashlib.sha256(content).hexdigest()[:32]
                if not file.exists():
                    with atomic_path(file) as temporary:
                        temporary.write_bytes(content)
                found[name] = file
            advance(1)
    return found


def _merged(found: Mapping[str, Path], names: Sequence[str], remarks: tuple[str, ...]) -> Pictures:
    """Take files with equal bytes for one picture, so that no copy vouches for the other."""
    by_size: dict[int, list[str]] = defaultdict(list)
    for name, file in found.items():
        by_size[file.stat().st_size if file.is_file() else -1].append(name)
    first_of: dict[str, str] = {}
    for size, same in by_size.items():
        hashes: dict[Path, str] = {}
        first: dict[object, str] = {}
        for name in same:
            file, key = found[name], name
            if size >= 0 and len(same) > 1:
                try:
                    key = hashes.get(file) or sha256_of_file(file)
                    hashes[file] = key
                except OSError:  # reported when the picture is read
                    pass
            first_of[name] = first.setdefault(key, name)
    doubled = {name: one for name, one in first_of.items() if found[name] != found[one]}
    files = {name: file for name, file in found.items() if first_of[name] == name}
    row_of = {name: row for row, name in enumerate(files)}
    image_of = np.array([row_of[first_of[name]] if name in first_of else -1 for name in names], np.int64)
    return Pictures(files, image_of, doubled, remarks)
