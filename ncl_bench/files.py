"""Files that are either whole or absent, and places that one process owns at a time."""

import glob
import hashlib
import os
import re
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from filelock import FileLock, Timeout

from ncl_bench.errors import NclBenchError

_TEMPORARY = re.compile(r"\..+\.(\d+)\.tmp")


@contextmanager
def atomic_path(target: Path) -> Iterator[Path]:
    """A temporary path beside ``target`` that becomes ``target`` when the block ends well, else disappears.

    The block may create a file or a folder there. An existing file is replaced, an existing folder is not.
    What a killed process left behind is removed first.

    Raises:
        NclBenchError: the place cannot be written, or the disk is full.
    """
    temporary = target.parent / f".{target.name}.{os.getpid()}.tmp"
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        for leftover in target.parent.glob(f".{glob.escape(target.name)}.*.tmp"):
            if is_leftover(leftover):
                _remove(leftover)
        try:
            yield temporary
            _flush(temporary)
            os.replace(temporary, target)
        finally:
            _remove(temporary)
    except OSError as error:
        raise NclBenchError(
            f"cannot write {target}: {error.strerror or error}; fix that or choose another place"
        ) from error


def write_bytes(target: Path, content: bytes) -> None:
    """Write a file atomically."""
    with atomic_path(target) as temporary:
        temporary.write_bytes(content)


def write_text(target: Path, content: str) -> None:
    """Write a UTF-8 file with ``\\n`` line ends atomically."""
    write_bytes(target, content.encode("utf-8"))


def sha256_of_file(path: Path) -> str:
    """sha256 (hex) of a file, read in blocks."""
    with path.open("rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()


@contextmanager
def sole_owner(place: Path) -> Iterator[None]:
    """Hold a folder or a file for this process; the lock goes with the process, however it ends.

    What killed processes left unfinished in the folder is removed first. The lock file lies in the system's
    temporary folder and stays there, empty, so that it is not among what a folder holds.

    Raises:
        NclBenchError: another process holds the place, or it cannot be locked.
    """
    key = hashlib.sha256(os.fsencode(os.path.realpath(place))).hexdigest()[:16]
    path = Path(tempfile.gettempdir()) / f"ncl-bench-{_user()}-{key}.lock"
    lock = FileLock(path, mode=0o600)
    try:
        lock.acquire(blocking=False)
    except Timeout:
        message = f"{place} is in use by another ncl-bench process; wait for it or choose another"
        raise NclBenchError(message) from None
    except OSError as error:
        message = f"cannot lock {place} with {path}: {error.strerror}; remove that file or set TMPDIR"
        raise NclBenchError(message) from None
    try:
        for leftover in place.rglob(".*.tmp"):
            if is_leftover(leftover):
                _remove(leftover)
        yield
    finally:
        lock.release()


@contextmanager
def scratch_folder() -> Iterator[Path]:
    """An empty folder for this process alone, below the system's temporary folder; it disappears with the block.

    What killed processes left there is removed first. One at a time in a process.

    Raises:
        NclBenchError: there is no place for it.
    """
    place, name = Path(tempfile.gettempdir()), f".ncl-bench-{_user()}"
    folder = place / f"{name}.{os.getpid()}.tmp"
    try:
        for leftover in place.glob(f"{name}.*.tmp"):
            if is_leftover(leftover):
                _remove(leftover)
        _remove(folder)
        folder.mkdir(mode=0o700)
    except OSError as error:
        raise NclBenchError(
            f"cannot make {folder}: {error.strerror}; set TMPDIR to another folder"
        ) from error
    try:
        yield folder
    finally:
        _remove(folder)


def _user() -> str:
    return str(os.getuid()) if hasattr(os, "getuid") else Path.home().name


def is_leftover(path: Path) -> bool:
    """Whether a path is the unfinished work of :func:`atomic_path` in a process that is no more."""
    owner = _TEMPORARY.fullmatch(path.name)
    return owner is not None and not _is_alive(int(owner[1]))


def _is_alive(process: int) -> bool:
    try:
        os.kill(process, 0)
    except PermissionError:
        return True
    except (ProcessLookupError, OverflowError):
        return False
    return True


def _flush(path: Path) -> None:
    if path.is_file():
        with path.open("rb") as stream:
            os.fsync(stream.fileno())


def _remove(path: Path) -> None:
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path, ignore_errors=True)
    else:
        path.unlink(missing_ok=True)
