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
from ncl_bench.data.pairs.forms import NUMBER
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
    if pairs.image_column in pairs.form.pictures:
        return _merged(_unpacked(pairs, images, work, progress), pairs.images, ())
    folder = images or pairs.form.folder or Path()
    if not folder.is_dir():
        raise DataError(f"{folder} is not a folder; give the folder of the pictures with --images")
    index = FileIndex(folder)
    wanted = _named_by_the_table(pairs, index) if pairs.by_row else pairs.images
    names = list(dict.fromkeys(name for name in wanted if name))
    if not names:
        raise DataError(
            f"{pairs.form.name}: column {pairs.image_column} names no image; choose another with --image-column"
        )
    found, alone = index.find_all(names, pairs.form.name)
    if not found:
        outside = any(Path(name).is_absolute() for name in names)
        raise DataError(
            f"{folder} holds none of the {len(names):,} pictures of {pairs.form.name}: column {pairs.image_column} "
            f"names {listed(names, 3)}; the folder holds {listed(index.paths, 3)}; "
            f"correct --images{' (a folder above these paths)' if outside else ''} or --image-column"
        )
    remarks = []
    if alone:
        name, file = next(iter(alone.items()))
        remarks.append(
            f"{len(alone):,} pictures were found by the name of their file alone: {name} is "
            f"{file.relative_to(folder).as_posix()} in {folder.name}."
        )
    return _merged(found, wanted, tuple(remarks))


def _named_by_the_table(pairs: OwnPairs, index: "FileIndex") -> list[str]:
    """Names of the files of pictures that the table gives by URL.

    They stand in another column, such as the ``key`` of img2dataset, or are the numbers of all rows of this table.
    Otherwise nothing says which file belongs to which row: a download may leave out some rows, and order others anew.
    """
    table, n = pairs.form.table, len(np.unique(pairs.row_of))
    if not index.paths:
        raise DataError(_download(pairs, index.folder))
    urls = set(table.columns[[column == pairs.image_column for column in table.columns]])
    for column in sorted(
        set(map(str, table.columns)) - urls - {pairs.caption_column}, key=lambda c: c != "key"
    ):
        cells = [cell.strip() if isinstance(cell, str) else "" for cell in table[column].tolist()]
        filled = {cell for cell in cells if cell}
        # each name stands for one picture; a column of few words such as "success" names none
        if filled and sum(index.holds(cell) for cell in filled) * 2 > len(filled):
            return cells
    stems = sorted(Path(path).stem for path in index.paths if path.lower().endswith(ENDINGS[1:]))
    numbers = {int(stem) for stem in stems if NUMBER.fullmatch(stem)}
    if len(stems) != n or numbers != set(range(n)):
        if not stems:
            raise DataError(_download(pairs, index.folder))
        raise DataError(
            f"{pairs.form.name} names pictures by URL, and {index.folder} holds {len(stems):,} pictures for {n:,} rows "
            f"({listed(stems, 3)}), so nothing says which belongs to which row; give the table that img2dataset writes "
            "beside the pictures, whose column key names the files, or choose a column with --image-column"
        )
    of_number = {int(stem): stem for stem in stems}
    return [of_number[row] for row in pairs.row_of.tolist()]


def _download(pairs: OwnPairs, folder: Path) -> str:
    return (
        f"{pairs.form.name} names pictures by URL, and {folder} holds none of them; download them with `pip install "
        f"img2dataset` and `img2dataset --url_list {pairs.form.name} --input_format tsv --url_col url --caption_col "
        "caption --output_format webdataset --output_folder pictures` (write a line of names above a table without "
        "one), then audit the folder `pictures`; or give --images with files named by row, such as 000000000.jpg"
    )


class FileIndex:
    """Every file below a folder, by path and by name. Links are followed; hidden files are left out.

    Args:
        folder: where the files lie.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.paths: dict[str, Path] = {}
        self._by_name: dict[str, list[str]] = defaultdict(list)
        self._in_small: dict[str, list[str]] = defaultdict(list)

        def refuse(error: OSError) -> None:
            raise DataError(f"{error.filename} cannot be read ({error.strerror}); check its permissions")

        for place, folders, files in os.walk(folder, onerror=refuse, followlinks=True):
            folders[:] = sorted(each for each in folders if not each.startswith("."))
            for name in sorted(files):
                if name.startswith("."):
                    continue
                file = Path(place, name)
                path = normalized(file.relative_to(folder).as_posix())
                if path in self.paths:
                    raise DataError(
                        f"{file.parent} holds 2 files that are named {PurePosixPath(path).name} in different "
                        "Unicode forms; remove or rename all but one"
                    )
                self.paths[path] = file
                self._by_name[PurePosixPath(path).name.casefold()].append(path)
                self._in_small[path.casefold()].append(path)

    def find_all(
        self, names: Sequence[str], where: str, *, by_name: bool = True
    ) -> tuple[dict[str, Path], dict[str, Path]]:
        """Find the files of all names of a table: a file that one name gives exactly serves no other name.

        Args:
            names: different names.
            where: the table, for errors.
            by_name: whether the name of a file alone may decide, where no file lies in the folder that is named.

        Returns:
            Name to file, and those that were found by the name of their file alone.

        Raises:
            DataError: several files fit a name, or several inexact names one file.
        """
        exact = {name: path for name in names if (path := self._exact(name))}
        taken = set(exact.values())
        # where folders of the table are there, a name in a folder means this folder and no other
        folders_hold = any("/" in self._written(name) for name in exact)
        found, alone = {name: self.paths[path] for name, path in exact.items()}, {}
        serves: dict[str, str] = {}
        for name in names:
            if name in exact:
                continue
            written = self._written(name)
            path = self._only(self._like(self._in_small, written), written, taken)
            if path is None and by_name and not (folders_hold and "/" in written):
                path = self._only(self._like(self._by_name, PurePosixPath(written).name), written, taken)
                if path is not None:
                    alone[name] = self.paths[path]
            if path is None:
                continue
            if serves.setdefault(path, name) != name:
                raise DataError(
                    f"{where} names {shown(serves[path])} and {shown(name)}, but {self.folder} holds one file of this "
                    f"name, {path}; put the files into the folders that the table names"
                )
            found[name] = self.paths[path]
        return {name: found[name] for name in names if name in found}, alone

    def holds(self, name: str) -> bool:
        """Whether some file fits a name."""
        written = self._written(name)
        return written in self.paths or bool(self._like(self._by_name, PurePosixPath(written).name))

    def _written(self, name: str) -> str:
        """A name as a path in the folder; an absolute path below the folder becomes one too."""
        path = normalized(name)
        if os.path.isabs(path):
            for top in (os.path.abspath(self.folder), os.path.realpath(self.folder)):
                if Path(os.path.normpath(path)).is_relative_to(top):
                    path = os.path.relpath(os.path.normpath(path), top)
        path = os.path.normpath(path).replace(os.sep, "/")
        return path if path in self.paths else path.replace("\\", "/")

    def _exact(self, name: str) -> str | None:
        written = self._written(name)
        if written in self.paths:
            return written
        return self._only(
            [written + end for end in ENDINGS[1:] if written + end in self.paths], written, set()
        )

    @staticmethod
    def _like(index: Mapping[str, list[str]], written: str) -> list[str]:
        small = written.casefold()
        return index.get(small, []) or [
            path for end in ENDINGS[1 : 1 + len(_ENDINGS)] for path in index.get(small + end, [])
        ]

    def _only(self, paths: Sequence[str], name: str, taken: set[str]) -> str | None:
        """The one path that fits a name and that no other name gives exactly, or None."""
        left = [path for path in paths if path not in taken]
        if len(left) > 1:
            raise DataError(
                f"{self.folder} holds {len(left)} files named {PurePosixPath(name).name} ({listed(left, 3)}); name the "
                "folder and the ending too in the table"
            )
        return left[0] if left else None


def _unpacked(pairs: OwnPairs, images: Path | None, work: Path, progress: Progress) -> dict[str, Path]:
    """Write pictures that the rows hold into the folder ``work``, each named by its hash; row's name to file.

    A row may name a file instead; what was read from a file may name only files below its folder, or ``images``.
    """
    work.mkdir(parents=True, exist_ok=True)
    found: dict[str, Path] = {}
    named: dict[str, str] = {}
    folder = images or pairs.form.folder
    with progress("reading pictures", len(pairs.images)) as advance:
        for name, content in zip(pairs.images, pairs.form.pictures[pairs.image_column](), strict=True):
            if isinstance(content, Path):
                named[name] = str(content)
            elif content is not None:
                file = work / hashlib.sha256(content).hexdigest()[:32]
                if not file.exists():
                    with atomic_path(file) as temporary:
                        temporary.write_bytes(content)
                found[name] = file
            advance(1)
    if named and folder is None:  # a dataset in memory is the user's own
        found |= {name: Path(path) for name, path in named.items() if Path(path).is_file()}
    elif named and folder is not None:
        files, _ = FileIndex(folder).find_all(list(dict.fromkeys(named.values())), pairs.form.name)
        if not files and not found:
            raise DataError(
                f"{folder} holds none of the pictures that {pairs.form.name} names, such as "
                f"{shown(next(iter(named.values())))}; give a folder above them with --images"
            )
        found |= {name: files[path] for name, path in named.items() if path in files}
    return {name: found[name] for name in dict.fromkeys(pairs.images) if name in found}


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
