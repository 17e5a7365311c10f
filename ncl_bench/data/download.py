"""Read the user's download, a folder or a zip file, without trusting its names, links or sizes."""

import zipfile
from collections.abc import Sequence
from pathlib import Path, PurePosixPath
from typing import IO

from ncl_bench.errors import DataError, named
from ncl_bench.foreign import reading

LARGEST_FILE_OF_TEXT = 512 * 2**20
DOWNLOAD_AGAIN = "download it again"


class Download:
    """Downloaded files: those of a folder and its subfolders.

    Attributes:
        place: the folder, or the zip file of :class:`ZipDownload`.
        sizes: bytes of each file, by its path there.
    """

    def __init__(self, place: Path) -> None:
        self.place = place
        # two levels, as the published archives have; a home folder given by mistake is not walked
        below = [p for pattern in ("*", "*/*") for p in place.glob(pattern) if p.is_file()]
        self.sizes = {p.relative_to(place).as_posix(): p.stat().st_size for p in below}

    def open(self, name: str) -> IO[bytes]:
        """Open one of ``sizes`` for reading and seeking; a symbolic link that leads out of the folder is refused."""
        path = self.place / name
        target = path.resolve()
        # a link in a download may point at any file of the machine
        if not target.is_relative_to(self.place.resolve()):
            raise DataError(
                f"{path} is a symbolic link to {target}, outside {self.place}; give the folder of the files"
            )
        # the callers read large blocks into their own buffers
        return path.open("rb", buffering=0)

    def changed_at(self, name: str) -> int:
        """Modification time of one of ``sizes``, in nanoseconds."""
        return (self.place / name).stat().st_mtime_ns


class ZipDownload(Download):
    """Members of a zip file, read in place."""

    def __init__(self, place: Path) -> None:
        self.place = place
        with reading(place, fix=DOWNLOAD_AGAIN):
            self._zip = zipfile.ZipFile(place)
        # members are read in place and in blocks, so no link or size does harm; no record holds a name that leads out
        members = [
            info
            for info in self._zip.infolist()
            if not info.filename.endswith("/")
            and not {"..", "/", "//"} & {*PurePosixPath(info.filename).parts}
        ]
        if any(info.compress_type == zipfile.ZIP_LZMA for info in members):
            raise DataError(
                f"{place} is compressed by LZMA, where a few bytes can require gigabytes; pack it anew"
            )
        self.sizes = {info.filename: info.file_size for info in members}

    def open(self, name: str) -> IO[bytes]:
        """Open a member."""
        with reading(f"{self.place}/{name}", fix=DOWNLOAD_AGAIN):
            return self._zip.open(name)

    def changed_at(self, name: str) -> int:
        """Modification time of the zip file, in nanoseconds."""
        return self.place.stat().st_mtime_ns


def open_download(path: Path) -> Download:
    """Open a download: a folder or a zip file.

    Raises:
        DataError: it is neither, or the zip file is damaged or dangerous.
    """
    if path.is_dir():
        return Download(path)
    if path.is_file() and zipfile.is_zipfile(path):
        return ZipDownload(path)
    state = "is neither a folder nor a zip file" if path.exists() else "does not exist"
    raise DataError(f"{path} {state}; give the folder that holds the downloaded files")


def features_folder(download: Download, wanted: str, folders: Sequence[str]) -> str:
    """Path of the features folder in the download, with a closing slash; empty for the download itself.

    Args:
        download: the user's download.
        wanted: name of a file in that folder.
        folders: possible names of the folder.

    Raises:
        DataError: no such folder, or more than one.
    """
    folders_of_file = [
        PurePosixPath(name).parent for name in download.sizes if PurePosixPath(name).name == wanted
    ]
    # a download may hold the features of several datasets, with files of the same names
    same = [folder for folder in folders_of_file if folder.name in ("", *folders)]
    if len(same) == 1:
        return "" if same[0].name == "" else f"{same[0]}/"
    names = " or ".join(f"{name}/" for name in folders)
    where = f", neither itself nor in {names}" if folders else ""
    state = f"{wanted} more than once ({', '.join(map(str, same))})" if same else f"no {wanted}{where}"
    raise DataError(f"{download.place} holds {state}; give its folder with {named('place')}")


def find_file(download: Download, name: str) -> str:
    """Find a file by its name, anywhere in the download.

    Raises:
        DataError: the file is missing, or there are two.
    """
    paths = [path for path in download.sizes if PurePosixPath(path).name == name]
    if len(paths) != 1:
        state = f"holds {name} more than once ({', '.join(paths)})" if paths else f"holds no {name}"
        raise DataError(f"{download.place} {state}; the published download has it once")
    return paths[0]


def require(download: Download, path: str) -> int:
    """Size of a required file.

    Raises:
        DataError: the file is missing.
    """
    if path not in download.sizes:
        raise DataError(f"{download.place}/{path} is missing; the published download has it")
    return download.sizes[path]


def read_text(download: Download, path: str) -> bytes:
    """Read all bytes of a text file.

    Raises:
        DataError: the file is missing, damaged, or too large for a text file.
    """
    size = require(download, path)
    if size > LARGEST_FILE_OF_TEXT:
        raise DataError(
            f"{download.place}/{path} has {size} bytes, too many for a text file; download it again"
        )
    with reading(f"{download.place}/{path}", fix=DOWNLOAD_AGAIN), download.open(path) as stream:
        return stream.read()
