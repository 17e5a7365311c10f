"""Find the pictures of a user's pairs, whatever is missing, damaged or there twice, and encode them."""

import hashlib
import os
import re
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path, PurePosixPath
from urllib.parse import unquote

import numpy as np
import pandas as pd

from ncl_bench.data.pairs.cells import picture
from ncl_bench.data.pairs.columns import text_cells
from ncl_bench.data.pairs.listing import PICTURE_ENDINGS, files_below
from ncl_bench.data.pairs.names import known_columns
from ncl_bench.data.pairs.rows import NUMBER, URL, UserPairs
from ncl_bench.errors import DataError, listed, named, shown
from ncl_bench.files import atomic_path, sha256_of_file
from ncl_bench.foreign import normalized, told_apart
from ncl_bench.npy import Int64Array
from ncl_bench.progress import Progress, silent

ENDINGS = (*PICTURE_ENDINGS, *map(str.upper, PICTURE_ENDINGS))
"""Endings tried after an image id to find its file."""
_BARE = re.compile(r"0|[1-9][0-9]*")
_ROW = "the number of the row"
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


Located = tuple[Sequence[str], dict[str, Path], tuple[str, ...]]
"""Name of each row's image, empty without one; name to file, as far as there is one; and how they were found."""


def locate(
    pairs: UserPairs, images: Path | None, work: Path | None = None, progress: Progress = silent
) -> Located:
    """Name the image of every row by its file, or by a hash of the picture that the row holds, and find its file.

    Args:
        pairs: the rows.
        images: folder of the pictures (default: the folder of the table).
        work: folder for pictures that the rows hold themselves; without it, no file is looked for.
        progress: shows the number of rows done.

    Raises:
        DataError: the folder is missing, holds none of the pictures, or two files fit one name.
    """
    if pairs.image_column in pairs.pictures:
        return _unpacked(pairs, images, work, progress)
    folder = images or pairs.folder or Path()
    names = _named_by_the_table(pairs, FileIndex(folder)) if pairs.by_row else pairs.images
    if work is None:
        return names, {}, ()
    # beside names of files, a URL says where a picture came from and not where it lies
    return names, *_files(pairs, folder, (name for name in names if name and not URL.fullmatch(name)))


def _files(
    pairs: UserPairs, folder: Path, names: Iterable[str], *, needed: bool = True
) -> tuple[dict[str, Path], tuple[str, ...]]:
    """Name to file of all names that have one, and a remark; ``needed``: none at all is refused."""
    index, names = FileIndex(folder), list(dict.fromkeys(names))
    file_of, alone = index.find_all(names, pairs.name)
    if needed and not file_of:
        outside = any(Path(name).is_absolute() for name in names)
        there = f"the folder holds {listed(index.paths, 3)}" if folder.is_dir() else "there is no such folder"
        raise DataError(
            f"{folder} holds none of the {len(names):,} pictures of {pairs.name}: column {pairs.image_column} "
            f"names {listed(names, 3)}; {there}; "
            f"correct {named('images')}{' (a folder above these paths)' if outside else ''} or {named('image_column')}"
        )
    return file_of, tuple(
        f"{len(alone):,} pictures were found by the name of their file alone, or by the end of their path: {name} "
        f"is {file_of[name].relative_to(folder).as_posix()} in {folder.name}."
        for name in alone[:1]
    )


def find_pictures(pairs: UserPairs, images: Path | None, work: Path) -> Pictures:
    """Find the picture of every row, and take files with equal bytes for one, so that no copy vouches for the other.

    Arguments and errors are those of :func:`locate`.
    """
    names, files, remarks = locate(pairs, images, work)
    sizes = {name: file.stat().st_size if file.is_file() else -1 for name, file in files.items()}
    shared = Counter(sizes.values())  # only files of one size can be equal, so most are never read
    first: dict[object, str] = {}
    first_of: dict[str, str] = {}
    for name, file in files.items():
        key: object = name
        if sizes[name] >= 0 and shared[sizes[name]] > 1:
            with suppress(OSError):  # reported when the picture is read
                key = sizes[name], sha256_of_file(file)
        first_of[name] = first.setdefault(key, name)
    row_of = {name: row for row, name in enumerate(first.values())}
    return Pictures(
        {name: files[name] for name in row_of},
        np.array([row_of[first_of[name]] if name in first_of else -1 for name in names], np.int64),
        {name: one for name, one in first_of.items() if files[name] != files[one]},
        remarks,
    )


def _named_by_the_table(pairs: UserPairs, index: "FileIndex") -> list[str]:
    """Names of the files of pictures that the table gives by URL.

    They stand in another column, such as the ``key`` of img2dataset. Files that are numbered as the rows are belong to
    them only if the user says so: a download may leave out some rows, and order others anew.
    """
    urls = text_cells(pairs, pairs.image_column)
    stems = sorted(Path(path).stem for path in index.paths if path.lower().endswith(PICTURE_ENDINGS))
    if not stems:
        raise DataError(
            f"{pairs.name} names pictures by URL, and {index.folder} holds none of them; download them with "
            f"`pip install img2dataset` and `img2dataset --url_list {pairs.name} --input_format tsv --url_col "
            "url --caption_col caption --output_format webdataset --output_folder pictures` (write a line of "
            f"names above a table without one), then give the folder `pictures`; or give {named('images')} "
            "with files named by a column of the table"
        )
    of_number = {int(stem): stem for stem in stems if NUMBER.fullmatch(stem)}
    n = len(np.unique(pairs.row_of))
    numbered = len(stems) == n and of_number.keys() == {*range(n)}
    in_order = [of_number[row] for row in pairs.row_of.tolist()] if numbered else []
    if pairs.rows_in_order and numbered:
        return in_order
    cells_of: dict[str, list[str]] = {}
    for name in sorted(
        {*map(str, pairs.table)}
        - {*known_columns(pairs.columns, "caption"), pairs.image_column, pairs.caption_column}
    ):
        if not pairs.frame[name].map(pd.api.types.is_scalar).all():
            continue
        cells = text_cells(pairs, name)
        if (
            name == "key"
        ):  # a program may have read that of img2dataset as a number, without the zeros in front
            cells = [of_number.get(int(cell), cell) if NUMBER.fullmatch(cell) else cell for cell in cells]
        held = {(cell, url) for cell, url in zip(cells, urls, strict=True) if cell and url}
        different = {cell for cell, _ in held}
        # a column of few words or numbers, such as a status, names no file: several pictures would share one
        if len(different) == len(held) and 2 * sum(map(index.holds, different)) > len(different):
            cells_of[name] = cells
    if "key" in cells_of:
        return cells_of["key"]
    # a bare number, such as a width, may name a file by chance
    sure = {
        name: cells for name, cells in cells_of.items() if not all(map(_BARE.fullmatch, filter(None, cells)))
    }
    may = sure or cells_of | ({_ROW: in_order} if numbered else {})
    answers = {tuple(PurePosixPath(cell).stem for cell in cells): cells for cells in may.values()}
    if len(answers) == 1 and [*may] != [_ROW]:
        return next(iter(answers.values()))
    raise DataError(
        f"{pairs.name} names pictures by URL, and of the {len(stems):,} pictures in {index.folder} for {n:,} rows "
        f"({listed(stems, 3)}) {listed(may)} may name the files; choose a column with {named('image_column')}, such "
        f"as the key of img2dataset, or say {named('rows_in_order')} if the files are numbered as the rows are"
    )


class FileIndex:
    """Files below a folder, by path and by name. Links are followed; hidden files are left out.

    A name that gives the path of its file costs one look. Others walk through the folder once.

    Args:
        folder: where the files lie.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        # once for all names, as every look at links is one at the disk
        self._tops = [os.path.join(top, "") for top in (os.path.abspath(folder), os.path.realpath(folder))]

    @cached_property
    def paths(self) -> dict[str, Path]:
        """Path of every file in the folder, in Unicode's composed form where one file alone has it, to the file."""
        files = files_below(self.folder) if self.folder.is_dir() else []
        path_of = told_apart(file.relative_to(self.folder).as_posix() for file in files)
        return dict(zip(path_of.values(), files, strict=True))

    @cached_property
    def _alike(self) -> dict[str, list[Path]]:
        """Paths, and names of files after a ``/``, in small letters and one Unicode form, to files."""
        files_of: dict[str, list[Path]] = defaultdict(list)
        for path, file in self.paths.items():
            for key in (path, _last(path)):
                files_of[_small(key)].append(file)
        return files_of

    def _like(self, path: str) -> list[Path]:
        """Files whose paths are a path but for the case of letters, the Unicode form and an ending."""
        small = _small(path)
        return self._alike.get(small) or [
            file for end in PICTURE_ENDINGS for file in self._alike.get(small + end, [])
        ]

    def _at(self, path: str) -> list[Path]:
        """The file of a path, or those with an ending; none if it is absolute, leads out, or is hidden."""
        if any(part == "" or part.startswith(".") for part in path.split("/")) or "\0" in path:
            return []
        if (exact := self.folder / path).is_file():
            return [exact]
        return [file for end in ENDINGS if (file := self.folder / (path + end)).is_file()]

    def find_all(self, names: Sequence[str], where: str) -> tuple[dict[str, Path], list[str]]:
        """Find the files of all names of a table: a file that one name gives exactly serves no other name.

        Args:
            names: different names.
            where: the table, for errors.

        Returns:
            Name to file, and the names that were found by that of their file alone, or by the end of their path.

        Raises:
            DataError: several files fit a name, or several inexact names one file.
        """
        paths = written = {name: self._written(name) for name in names}
        file_of: dict[str, Path] = {}
        alone: list[str] = []
        # paths of another machine begin above the folder, and all lose as many parts
        for depth in range(1 + max((path.count("/") for path in written.values()), default=0)):
            ends = {name: path.split("/", depth)[-1] for name, path in written.items()}
            for name, path in ends.items():
                if depth == 0 or "/" in path:
                    file_of |= self._only(self._at(path), name)
            if file_of:
                paths, alone = ends, [*file_of] if depth else []
                break
        # where folders of the table are there, a name in a folder means this folder and no other
        folders_hold = any("/" in paths[name] for name in file_of)
        for last in (False, True):
            taken, inexact = {*file_of.values()}, dict[str, Path]()
            for name, path in paths.items():
                if name in file_of or (last and folders_hold and "/" in path):
                    continue
                like = self._like(_last(path) if last else path)
                inexact |= self._only([file for file in like if file not in taken], name)
            refuse_shared(inexact, f", and in {where} too")
            file_of |= inexact
            alone += inexact if last else []
        return {name: file_of[name] for name in names if name in file_of}, alone

    def _only(self, files: Sequence[Path], name: str) -> dict[str, Path]:
        if len(files) > 1:
            places = listed([file.relative_to(self.folder).as_posix() for file in files], 3)
            raise DataError(
                f"{self.folder} holds {len(files)} files named {PurePosixPath(name).name} ({places}); name the folder "
                "and the ending too in the table"
            )
        return {name: files[0]} if files else {}

    def holds(self, name: str) -> bool:
        """Whether some file has a name, in whatever folder."""
        return bool(self._like(_last(self._written(name))))

    def _written(self, name: str) -> str:
        """A name as a path in the folder; an absolute path below the folder becomes one too."""
        path = os.path.normpath(name)
        for top in self._tops:
            path = path.removeprefix(top)
        path = path.replace(os.sep, "/")
        # as Windows and a browser write it
        path = path.replace("\\", "/") if "\\" in path and not self._at(path) else path
        return unquote(path) if "%" in path and not self._at(path) else path


def _last(path: str) -> str:
    return f"/{PurePosixPath(path).name}"


def _small(path: str) -> str:
    return normalized(path).casefold()


def refuse_shared(file_of: Mapping[str, Path], fix: str = "") -> None:
    """Refuse a file that several images find, as ``rex.jpg`` and ``rex.png`` find ``rex.npy``."""
    serves: dict[Path, str] = {}
    for image, file in file_of.items():
        if serves.setdefault(file, image) != image:
            raise DataError(
                f"{file} would be that of {shown(serves[file])} and of {shown(image)}; name every file by the whole id "
                f"or path of its image{fix}"
            )


def _unpacked(pairs: UserPairs, images: Path | None, work: Path | None, progress: Progress) -> Located:
    """Hash and file of the picture that each row holds; empty where it has none.

    Pictures are written into the folder ``work``, each named by its hash; without it, none is written. A row may name a
    file instead; what was read from a file may name only files below its folder, or ``images``.
    """
    digests, paths, files = [""] * len(pairs.images), dict[int, str](), dict[str, Path]()
    with progress("reading pictures", len(digests)) as advance:
        for row, content in enumerate(map(picture, pairs.frame[pairs.image_column])):
            if isinstance(content, Path):
                paths[row] = str(content)
            elif content is not None:
                digests[row] = hashlib.sha256(content).hexdigest()[:NAME_DIGITS]
                if work is not None:
                    files[digests[row]] = _written_once(work / digests[row], content)
            advance(1)
    if not paths:
        return digests, files, ()
    remarks: tuple[str, ...] = ()
    there = {name: Path(name) for name in paths.values() if Path(name).is_file()}
    if folder := images or pairs.folder:  # a dataset in memory is the user's own
        there, remarks = _files(pairs, folder, paths.values(), needed=not any(digests))
    digest_of = {name: sha256_of_file(file)[:NAME_DIGITS] for name, file in there.items()}
    for row, name in paths.items():
        digests[row] = digest_of.get(name, "")
    return digests, files | {digest_of[name]: file for name, file in there.items()}, remarks


def _written_once(file: Path, content: bytes) -> Path:
    if not file.exists():
        with atomic_path(file) as temporary:
            temporary.write_bytes(content)
            os.utime(temporary, (0, 0))  # the name says all; the same picture is the same file tomorrow
    return file
