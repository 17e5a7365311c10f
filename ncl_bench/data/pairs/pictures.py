"""Find the pictures of somebody's pairs, whatever is missing, damaged or there twice, and encode them."""

import hashlib
import os
import re
from collections import defaultdict
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path, PurePosixPath
from urllib.parse import unquote

import numpy as np
import pandas as pd

from ncl_bench.data.columns import Int64Array
from ncl_bench.data.pairs.cells import picture
from ncl_bench.data.pairs.columns import OwnPairs, text_cells
from ncl_bench.data.pairs.listing import PICTURE_ENDINGS, files_below
from ncl_bench.data.pairs.names import known_columns
from ncl_bench.data.pairs.rows import NUMBER, URL
from ncl_bench.data.pictures import picture_path
from ncl_bench.errors import DataError, listed, named, shown
from ncl_bench.files import atomic_path, sha256_of_file
from ncl_bench.foreign import normalized, told_apart
from ncl_bench.progress import Progress, silent

ENDINGS = ("", *PICTURE_ENDINGS, *map(str.upper, PICTURE_ENDINGS))
"""Endings tried after an image id to find its file."""
_BARE = re.compile(r"0|[1-9][0-9]*")
NAME_DIGITS = 32
"""Hexadecimal digits of the hash that names a picture in a row."""


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
        files = zip(pairs.images, _unpacked(pairs, images, work, progress), strict=True)
        return _merged({name: file for name, (_, file) in files if file}, pairs.images, ())
    folder = images or pairs.form.folder or Path()
    wanted = image_names(pairs, images)
    found, remarks = _found(pairs, folder, wanted)
    return _merged(found, wanted, tuple(remarks))


def _found(
    pairs: OwnPairs, folder: Path, wanted: Sequence[str], *, by_name: bool = True
) -> tuple[dict[str, Path], list[str]]:
    """Name to file, and how they were found; ``by_name`` as for :meth:`FileIndex.find_all`."""
    index = FileIndex(folder)
    # beside names of files, a URL says where a picture came from and not where it lies
    names = list(dict.fromkeys(name for name in wanted if name and not URL.fullmatch(name)))
    found, alone = index.find_all(names, pairs.form.name, by_name=by_name)
    if not found:
        outside = any(Path(name).is_absolute() for name in names)
        there = f"the folder holds {listed(index.paths, 3)}" if folder.is_dir() else "there is no such folder"
        raise DataError(
            f"{folder} holds none of the {len(names):,} pictures of {pairs.form.name}: column {pairs.image_column} "
            f"names {listed(names, 3)}; {there}; "
            f"correct {named('images')}{' (a folder above these paths)' if outside else ''} or {named('image_column')}"
        )
    remarks = []
    if alone:
        name, file = next(iter(alone.items()))
        remarks.append(
            f"{len(alone):,} pictures were found by the name of their file alone, or by the end of their path: {name} "
            f"is {file.relative_to(folder).as_posix()} in {folder.name}."
        )
    return found, remarks


def _named_by_the_table(pairs: OwnPairs, index: "FileIndex") -> list[str]:
    """Names of the files of pictures that the table gives by URL.

    They stand in another column, such as the ``key`` of img2dataset. Files that are numbered as the rows are belong to
    them only if the user says so: a download may leave out some rows, and order others anew.
    """
    rows, urls = pairs.form, text_cells(pairs.form, pairs.image_column)
    stems = sorted(Path(path).stem for path in index.paths if path.lower().endswith(PICTURE_ENDINGS))
    if not stems:
        raise DataError(
            f"{rows.name} names pictures by URL, and {index.folder} holds none of them; download them with "
            f"`pip install img2dataset` and `img2dataset --url_list {rows.name} --input_format tsv --url_col "
            "url --caption_col caption --output_format webdataset --output_folder pictures` (write a line of "
            f"names above a table without one), then give the folder `pictures`; or give {named('images')} "
            "with files named by a column of the table"
        )
    of_number = {int(stem): stem for stem in stems if NUMBER.fullmatch(stem)}
    n = len(np.unique(pairs.row_of))
    numbered = len(stems) == n and of_number.keys() == set(range(n))
    in_order = [of_number[row] for row in pairs.row_of.tolist()] if numbered else []
    if pairs.rows_in_order and numbered:
        return in_order
    columns = [str(name) for name in rows.table]
    others = (
        set(columns) - set(known_columns(columns, "caption")) - {pairs.image_column, pairs.caption_column}
    )
    found: dict[str, list[str]] = {}
    for name in sorted(others):
        if not rows.frame[name].map(pd.api.types.is_scalar).all():
            continue
        cells = text_cells(rows, name)
        if (
            name == "key"
        ):  # a program may have read that of img2dataset as a number, without the zeros in front
            cells = [of_number.get(int(cell), cell) if NUMBER.fullmatch(cell) else cell for cell in cells]
        url_of = dict(zip(cells, urls, strict=True))
        held = {cell for cell in url_of if cell and index.holds(cell)}
        # a column of few words or numbers, such as a status, names no file: several pictures would share one
        if 2 * len(held) > len(set(cells) - {""}) and all(
            url_of[cell] == url for cell, url in zip(cells, urls, strict=True) if cell and url
        ):
            found[name] = cells
    if "key" in found:
        return found["key"]
    # a bare number, such as a width, may name a file by chance
    sure = {
        name: cells for name, cells in found.items() if not all(map(_BARE.fullmatch, filter(None, cells)))
    }
    answers = {tuple(PurePosixPath(cell).stem for cell in cells): cells for cells in (sure or found).values()}
    if len(answers) == 1 and (sure or not numbered or next(iter(answers)) == tuple(in_order)):
        return next(iter(answers.values()))
    may = listed([*sorted(sure or found), *(["the number of the row"] if numbered and not sure else [])])
    raise DataError(
        f"{rows.name} names pictures by URL, and of the {len(stems):,} pictures in {index.folder} for {n:,} rows "
        f"({listed(stems, 3)}) {may} may name the files; choose a column with {named('image_column')}, such "
        f"as the key of img2dataset, or say {named('rows_in_order')} if the files are numbered as the rows are"
    )


class FileIndex:
    """Files below a folder, by path and by name. Links are followed; hidden files are left out.

    A name that gives the path of its file exactly costs one look. Others walk through the folder once.

    Args:
        folder: where the files lie.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    @cached_property
    def paths(self) -> dict[str, Path]:
        """Path of every file in the folder, in Unicode's composed form where one file alone has it, to the file."""
        files = files_below(self.folder) if self.folder.is_dir() else []
        path_of = told_apart(file.relative_to(self.folder).as_posix() for file in files)
        return dict(zip(path_of.values(), files, strict=True))

    @cached_property
    def _small(self) -> dict[str, list[Path]]:
        """Paths, and names of files after a ``/``, in small letters to files."""
        found: dict[str, list[Path]] = defaultdict(list)
        for path, file in self.paths.items():
            small = normalized(path).casefold()
            found[small].append(file)
            found["/" + PurePosixPath(small).name].append(file)
        return found

    def file(self, name: str) -> Path | None:
        """The file whose path in the folder is this name, or the only one in another Unicode form; None without one."""
        composed = normalized(name)
        fits = [
            file
            for file in ([] if self._at(name) else self._small.get(composed.casefold(), []))
            if normalized(file.relative_to(self.folder).as_posix()) == composed
        ]
        return fits[0] if len(fits) == 1 else self._at(name)

    def _at(self, name: str) -> Path | None:
        # an absolute path, one that leads out, or a hidden file
        if any(part == "" or part.startswith(".") for part in name.split("/")) or "\0" in name:
            return None
        file = self.folder / name
        return file if file.is_file() else None

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
        written = {name: self._written(name) for name in names}
        found = {name: file for name, path in written.items() if (file := self._exact(path))}
        alone: dict[str, Path] = {}
        # paths of another machine begin above the folder, and all lose as many parts
        most = max([0, *(path.count("/") for path in written.values())]) if by_name and not found else 0
        for depth in range(1, most):
            inner = {name: path.split("/", depth)[-1] for name, path in written.items()}
            ends = {name: path for name, path in inner.items() if "/" in path}
            if found := {name: file for name, path in ends.items() if (file := self._exact(path))}:
                written, alone = inner, dict(found)
                break
        taken = set(found.values())
        # where folders of the table are there, a name in a folder means this folder and no other
        folders_hold = any("/" in written[name] for name in found)
        serves: dict[Path, str] = {}
        for name, path in written.items():
            if name in found:
                continue
            file = self._only(self._like(path), path, taken)
            if file is None and by_name and not (folders_hold and "/" in path):
                file = self._only(self._like(f"/{PurePosixPath(path).name}"), path, taken)
                alone |= {name: file} if file else {}
            if file is None:
                continue
            if serves.setdefault(file, name) != name:
                raise DataError(
                    f"{where} names {shown(serves[file])} and {shown(name)}, but {self.folder} holds one file of this "
                    f"name, {file.relative_to(self.folder)}; put the files into the folders that the table names"
                )
            found[name] = file
        return {name: found[name] for name in names if name in found}, alone

    def holds(self, name: str) -> bool:
        """Whether some file fits a name."""
        path = self._written(name)
        return path in self.paths or bool(self._like(f"/{PurePosixPath(path).name}"))

    def _written(self, name: str) -> str:
        """A name as a path in the folder; an absolute path below the folder becomes one too."""
        path = name
        for top in (
            (os.path.abspath(self.folder), os.path.realpath(self.folder)) if os.path.isabs(path) else ()
        ):
            if Path(os.path.normpath(path)).is_relative_to(top):
                path = os.path.relpath(os.path.normpath(path), top)
        path = os.path.normpath(path).replace(os.sep, "/")
        # as Windows and a browser write it
        path = path.replace("\\", "/") if "\\" in path and not self.file(path) else path
        return unquote(path) if "%" in path and not self.file(path) else path

    def _exact(self, path: str) -> Path | None:
        for look in (self._at, self.file):
            fits = [(file, end) for end in ENDINGS if (file := look(path + end))]
            if fits:
                return fits[0][0] if fits[0][1] == "" else self._only([file for file, _ in fits], path, ())
        return None

    def _like(self, path: str) -> list[Path]:
        """Files whose paths are a name but for the case of letters and an ending."""
        small = normalized(path).casefold()
        endings = ("", *PICTURE_ENDINGS) if small not in self._small else ("",)
        return [other for end in endings for other in self._small.get(small + end, [])]

    def _only(self, files: Sequence[Path], name: str, taken: Collection[Path]) -> Path | None:
        """The one file that fits a name and that no other name gives exactly, or None."""
        left = [file for file in files if file not in taken]
        if len(left) > 1:
            paths = [file.relative_to(self.folder).as_posix() for file in left]
            raise DataError(
                f"{self.folder} holds {len(left)} files named {PurePosixPath(name).name} "
                f"({listed(paths, 3)}); name the folder and the ending too in the table"
            )
        return left[0] if left else None


def refuse_shared(file_of: Mapping[str, Path], fix: str = "") -> None:
    """Refuse a file that several images find, as ``rex.jpg`` and ``rex.png`` find ``rex.npy``."""
    serves: dict[Path, str] = {}
    for image, file in file_of.items():
        if serves.setdefault(file, image) != image:
            raise DataError(
                f"{file} would be that of {serves[file]} and of {image}; name every file by the whole id of its image, "
                f"such as {image}{file.suffix}{fix}"
            )


def image_names(pairs: OwnPairs, images: Path | None) -> list[str]:
    """Name of each row's image: of its file, or a hash of the picture that the row holds; empty where it has none.

    Args:
        pairs: the rows.
        images: folder of the pictures (default: the folder of the table).
    """
    if pairs.image_column in pairs.form.pictures:
        return [digest for digest, _ in _unpacked(pairs, images, None)]
    if pairs.by_row:
        return _named_by_the_table(pairs, FileIndex(images or pairs.form.folder or Path()))
    return pairs.images


def picture_files(
    pairs: OwnPairs, images: Path | None, work: Path, progress: Progress = silent
) -> tuple[list[str], dict[str, Path], list[str]]:
    """Find the file of every image, for those who need all of them.

    Args:
        pairs: the rows.
        images: folder of the pictures (default: the folder of the table).
        work: folder for pictures that the rows hold themselves.
        progress: shows the number of rows done.

    Returns:
        :func:`image_names`, name to file, and remarks. A file that does not exist is reported when it is read.

    Raises:
        DataError: none of the pictures is there, two files fit one name, or a name leads out of the folder.
    """
    if pairs.image_column in pairs.form.pictures:
        found = _unpacked(pairs, images, work, progress)
        return [digest for digest, _ in found], {digest: file for digest, file in found if file}, []
    folder = images or pairs.form.folder or Path()
    names = image_names(pairs, images)
    files, remarks = _found(pairs, folder, names, by_name=images is not None or pairs.by_row)
    for name in filter(None, names):
        if name not in files:
            files[name] = picture_path(folder, name, pairs.form.name)
    return names, files, remarks


def _unpacked(
    pairs: OwnPairs, images: Path | None, work: Path | None, progress: Progress = silent
) -> list[tuple[str, Path | None]]:
    """Hash and file of the picture that each row holds; empty and None where it has none.

    Pictures are written into the folder ``work``, each named by its hash; without it, none is written. A row may name a
    file instead; what was read from a file may name only files below its folder, or ``images``.
    """
    found: list[tuple[str, Path | None]] = []
    names: dict[int, str] = {}
    with progress("reading pictures", len(pairs.images)) as advance:
        for row, content in enumerate(map(picture, pairs.form.frame[pairs.image_column])):
            found.append(("", None))
            if isinstance(content, Path):
                names[row] = str(content)
            elif content is not None:
                digest = hashlib.sha256(content).hexdigest()[:NAME_DIGITS]
                found[-1] = digest, None if work is None else _written_once(work / digest, content)
            advance(1)
    folder = images or pairs.form.folder
    if names and folder is None:  # a dataset in memory is the user's own
        files = {name: Path(name) for name in names.values() if Path(name).is_file()}
    elif names and folder is not None:
        files, _ = FileIndex(folder).find_all(list(dict.fromkeys(names.values())), pairs.form.name)
        if not files and not any(digest for digest, _ in found):
            raise DataError(
                f"{folder} holds none of the pictures that {pairs.form.name} names, such as "
                f"{shown(next(iter(names.values())))}; give a folder above them with {named('images')}"
            )
    digests: dict[Path, str] = {}
    for row, name in names.items():
        if name in files:
            file = files[name]
            digests[file] = digests.get(file) or sha256_of_file(file)[:NAME_DIGITS]
            found[row] = digests[file], file
    return found


def _written_once(file: Path, content: bytes) -> Path:
    if not file.exists():
        with atomic_path(file) as temporary:
            temporary.write_bytes(content)
            os.utime(temporary, (0, 0))  # the name says all; the same picture is the same file tomorrow
    return file


def _merged(found: Mapping[str, Path], names: Sequence[str], remarks: tuple[str, ...]) -> Pictures:
    """Take files with equal bytes for one picture, so that no copy vouches for the other."""
    # only files of one size can be equal, so most are never read
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
