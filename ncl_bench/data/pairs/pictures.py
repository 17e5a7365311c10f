"""Find the pictures of somebody's pairs, whatever is missing, damaged or there twice, and encode them."""

import hashlib
import os
import re
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path, PurePosixPath

import numpy as np

from ncl_bench.data.columns import Int64Array
from ncl_bench.data.pairs.columns import OwnPairs, text_cells
from ncl_bench.data.pairs.form import CAPTION_COLUMNS, NUMBER, PICTURE_ENDINGS, URL
from ncl_bench.data.pictures import picture_path
from ncl_bench.errors import DataError, listed, shown
from ncl_bench.files import atomic_path, sha256_of_file
from ncl_bench.foreign import normalized
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
    if not folder.is_dir():
        raise DataError(f"{folder} is not a folder; give the folder of the pictures with --images")
    index = FileIndex(folder)
    # beside names of files, a URL says where a picture came from and not where it lies
    names = list(dict.fromkeys(name for name in wanted if name and not URL.fullmatch(name)))
    if not names:
        raise DataError(
            f"{pairs.form.name}: column {pairs.image_column} names no image; choose another with --image-column"
        )
    found, alone = index.find_all(names, pairs.form.name, by_name=by_name)
    if not found:
        outside = any(Path(name).is_absolute() for name in names)
        raise DataError(
            f"{folder} holds none of the {len(names):,} pictures of {pairs.form.name}: column {pairs.image_column} "
            f"names {listed(names, 3)}; the folder holds {listed(index.paths if by_name else index.top(), 3)}; "
            f"correct --images{' (a folder above these paths)' if outside else ''} or --image-column"
        )
    remarks = []
    if alone:
        name, file = next(iter(alone.items()))
        remarks.append(
            f"{len(alone):,} pictures were found by the name of their file alone: {name} is "
            f"{file.relative_to(folder).as_posix()} in {folder.name}."
        )
    return found, remarks


def _named_by_the_table(pairs: OwnPairs, index: "FileIndex") -> list[str]:
    """Names of the files of pictures that the table gives by URL.

    They stand in another column, such as the ``key`` of img2dataset, or are the numbers of all rows of this table.
    Otherwise nothing says which file belongs to which row: a download may leave out some rows, and order others anew.
    """
    table, n = pairs.form.table, len(np.unique(pairs.row_of))
    if not index.folder.is_dir():
        raise DataError(f"{index.folder} is not a folder; give the folder of the pictures with --images")
    stems = sorted(Path(path).stem for path in index.paths if path.lower().endswith(ENDINGS[1:]))
    if not stems:
        raise DataError(_download(pairs, index.folder))
    of_number = {int(stem): stem for stem in stems if NUMBER.fullmatch(stem)}
    urls = text_cells(pairs.form, pairs.image_column)
    texts = {name for name in map(str, table.columns) if name.casefold() in CAPTION_COLUMNS}
    named: dict[str, list[str]] = {}
    for column in set(map(str, table.columns)) - texts - {pairs.image_column, pairs.caption_column}:
        try:
            cells = text_cells(pairs.form, column)
        except DataError:  # a column of lists names no file
            continue
        if (
            column == "key"
        ):  # of img2dataset; a program may have read it as a number, without the zeros in front
            cells = [of_number.get(int(cell), cell) if NUMBER.fullmatch(cell) else cell for cell in cells]
        url_of = dict(zip(cells, urls, strict=True))
        held = {cell for cell in url_of if cell and index.holds(cell)}
        # a column of few words or numbers, such as a status, names no file: several pictures would share one
        if 2 * len(held) > len(set(cells) - {""}) and all(
            url_of[cell] == url for cell, url in zip(cells, urls, strict=True) if cell and url
        ):
            named[column] = cells
    if "key" in named:
        return named["key"]
    by_row = len(stems) == n and of_number.keys() == set(range(n))
    rows = [of_number[row] for row in pairs.row_of.tolist()] if by_row else []
    # a bare number, such as a width, may name a file by chance
    sure = {
        column: cells for column, cells in named.items() if not all(map(_BARE.fullmatch, filter(None, cells)))
    }
    answers = {
        tuple(PurePosixPath(cell).stem for cell in cells): cells
        for cells in [*(sure or named).values(), *([] if sure or not by_row else [rows])]
    }
    if len(answers) > 1:
        also = ["the number of the row"] if by_row and not sure else []
        raise DataError(
            f"{pairs.form.name} names pictures by URL, and {listed([*sorted(sure or named), *also])} may each name the "
            f"files in {index.folder}; choose a column with --image-column"
        )
    if not answers:
        raise DataError(
            f"{pairs.form.name} names pictures by URL, and {index.folder} holds {len(stems):,} pictures for {n:,} rows "
            f"({listed(stems, 3)}), so nothing says which belongs to which row; give the table that img2dataset writes "
            "beside the pictures, whose column key names the files, or choose a column with --image-column"
        )
    return next(iter(answers.values()))


def _download(pairs: OwnPairs, folder: Path) -> str:
    return (
        f"{pairs.form.name} names pictures by URL, and {folder} holds none of them; download them with `pip install "
        f"img2dataset` and `img2dataset --url_list {pairs.form.name} --input_format tsv --url_col url --caption_col "
        "caption --output_format webdataset --output_folder pictures` (write a line of names above a table without "
        "one), then audit the folder `pictures`; or give --images with files named by row, such as 000000000.jpg"
    )


class FileIndex:
    """Files below a folder, by path and by name. Links are followed; hidden files are left out.

    A name that gives the path of its file costs the listing of the folders that it names. Only a search by the name of
    a file alone walks through all folders.

    Args:
        folder: where the files lie.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._listed: dict[str, dict[str, list[str]]] = {}

    @cached_property
    def paths(self) -> dict[str, Path]:
        """Path of every file in the folder, in Unicode's composed form, to the file."""
        found: dict[str, Path] = {}

        def refuse(error: OSError) -> None:
            raise DataError(f"{error.filename} cannot be read ({error.strerror}); check its permissions")

        for place, folders, files in os.walk(self.folder, onerror=refuse, followlinks=True):
            # in place, so that os.walk does not go into hidden folders
            folders[:] = sorted(each for each in folders if not each.startswith("."))
            for name in sorted(files):
                if name.startswith("."):
                    continue
                file = Path(place, name)
                path = normalized(file.relative_to(self.folder).as_posix())
                if path in found:
                    raise self._two_forms(path)
                found[path] = file
        return found

    def top(self) -> list[str]:
        """Names of files and folders in the folder itself, in order."""
        return sorted({name for names in self._listing("").values() for name in names})

    @cached_property
    def _by_name(self) -> dict[str, list[str]]:
        found: dict[str, list[str]] = defaultdict(list)
        for path in self.paths:
            found[PurePosixPath(path).name.casefold()].append(path)
        return found

    def _two_forms(self, path: str) -> DataError:
        place = self.folder / PurePosixPath(path).parent
        return DataError(
            f"{place} holds 2 files that are named {PurePosixPath(path).name} in different Unicode forms; remove or "
            "rename all but one"
        )

    def _listing(self, place: str) -> Mapping[str, list[str]]:
        """Names in a folder below this one, each under its composed form and under its small letters."""
        if place not in self._listed:
            found = self._listed[place] = defaultdict(list)
            try:
                names = sorted(os.listdir(self.folder / place))
            except (FileNotFoundError, NotADirectoryError, ValueError):
                names = []
            except OSError as error:
                raise DataError(
                    f"{self.folder / place} cannot be read ({error.strerror}); check its permissions"
                ) from None
            for name in names:
                if not name.startswith("."):
                    for key in {normalized(name), "\0" + normalized(name).casefold()}:
                        found[key].append(name)
        return self._listed[place]

    def file(self, name: str) -> Path | None:
        """The file whose path in the folder is this name, in whatever Unicode form it is stored; None without one."""
        path = normalized(name)
        place, _, last = path.rpartition("/")
        for inner in self._folders(place, small=False):
            same = self._listing(inner).get(last, [])
            if len(same) > 1:
                raise self._two_forms(path)
            if same and (file := self.folder / inner / same[0]).is_file():
                return file
        return None

    def _folders(self, place: str, *, small: bool) -> list[str]:
        """Folders below this one that a path names, as they are stored; ``small``: whatever the case of letters."""
        found = [""]
        for part in place.split("/") if place else ():
            if part in ("", ".", ".."):  # an absolute path, or one that leads out
                return []
            key = "\0" + part.casefold() if small else part
            found = [
                f"{outer}/{inner}".lstrip("/")
                for outer in found
                for inner in self._listing(outer).get(key, [])
            ]
        return found

    def _like_path(self, written: str) -> list[str]:
        """Paths that are a name but for the case of letters and an ending."""
        place, _, last = written.rpartition("/")
        small = "\0" + last.casefold()
        for ends in ([""], ENDINGS[1 : 1 + len(PICTURE_ENDINGS)]):
            found = [
                normalized(f"{inner}/{name}".lstrip("/"))
                for inner in self._folders(place, small=True)
                for end in ends
                for name in self._listing(inner).get(small + end, [])
                if (self.folder / inner / name).is_file()
            ]
            if found:
                return found
        return []

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
        at = {path: file for path in taken if (file := self.file(path))}
        # where folders of the table are there, a name in a folder means this folder and no other
        folders_hold = any("/" in self._written(name) for name in exact)
        found, alone = {name: at[path] for name, path in exact.items()}, {}
        serves: dict[str, str] = {}
        for name in names:
            if name in exact:
                continue
            written = self._written(name)
            path = self._only(self._like_path(written), written, taken)
            if path is None and by_name and not (folders_hold and "/" in written):
                path = self._only(self._like_name(PurePosixPath(written).name), written, taken)
                if path is not None:
                    alone[name] = self.paths[path]
            if path is None:
                continue
            if serves.setdefault(path, name) != name:
                raise DataError(
                    f"{where} names {shown(serves[path])} and {shown(name)}, but {self.folder} holds one file of this "
                    f"name, {path}; put the files into the folders that the table names"
                )
            file = self.file(path)
            assert file is not None
            found[name] = file
        return {name: found[name] for name in names if name in found}, alone

    def holds(self, name: str) -> bool:
        """Whether some file fits a name."""
        written = self._written(name)
        return written in self.paths or bool(self._like_name(PurePosixPath(written).name))

    def _written(self, name: str) -> str:
        """A name as a path in the folder; an absolute path below the folder becomes one too."""
        path = normalized(name)
        if os.path.isabs(path):
            for top in (os.path.abspath(self.folder), os.path.realpath(self.folder)):
                if Path(os.path.normpath(path)).is_relative_to(top):
                    path = os.path.relpath(os.path.normpath(path), top)
        path = os.path.normpath(path).replace(os.sep, "/")
        return path if self.file(path) else path.replace("\\", "/")

    def _exact(self, name: str) -> str | None:
        written = self._written(name)
        if self.file(written):
            return written
        return self._only([written + end for end in ENDINGS[1:] if self.file(written + end)], written, set())

    def _like_name(self, last: str) -> list[str]:
        """Paths whose last part is a name, but for the case of letters and an ending."""
        small = last.casefold()
        return self._by_name.get(small, []) or [
            path
            for end in ENDINGS[1 : 1 + len(PICTURE_ENDINGS)]
            for path in self._by_name.get(small + end, [])
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
    files, remarks = _found(pairs, folder, names, by_name=images is not None)
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
    named: dict[int, str] = {}
    with progress("reading pictures", len(pairs.images)) as advance:
        for row, content in enumerate(pairs.form.pictures[pairs.image_column]()):
            found.append(("", None))
            if isinstance(content, Path):
                named[row] = str(content)
            elif content is not None:
                digest = hashlib.sha256(content).hexdigest()[:NAME_DIGITS]
                found[-1] = digest, None if work is None else _written_once(work / digest, content)
            advance(1)
    folder = images or pairs.form.folder
    if named and folder is None:  # a dataset in memory is the user's own
        files = {name: Path(name) for name in named.values() if Path(name).is_file()}
    elif named and folder is not None:
        files, _ = FileIndex(folder).find_all(list(dict.fromkeys(named.values())), pairs.form.name)
        if not files and not any(digest for digest, _ in found):
            raise DataError(
                f"{folder} holds none of the pictures that {pairs.form.name} names, such as "
                f"{shown(next(iter(named.values())))}; give a folder above them with --images"
            )
    digests: dict[Path, str] = {}
    for row, name in named.items():
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
