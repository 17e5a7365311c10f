"""Files that are either whole or absent, and folders that one process owns at a time."""

import fcntl
import hashlib
import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from ncl_bench.errors import NclBenchError


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
        _remove_orphans(target)
        try:
            yield temporary
            _flush(temporary)
            os.replace(temporary, target)
        finally:
            _remove(temporary)
    except OSError as error:
        raise NclBenchError(f"cannot write {target}: {error.strerror or error}") from error


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
def sole_owner(folder: Path) -> Iterator[None]:
    """Hold a folder for this process; the lock goes with the process, however it ends.

    The lock file lies in the system's temporary folder, so that nothing is left behind in ``folder``.

    Raises:
        NclBenchError: another process holds the folder.
    """
    key = hashlib.sha256(str(folder.resolve()).encode()).hexdigest()[:16]
    path = Path(tempfile.gettempdir()) / f"ncl-bench-{os.getuid()}-{key}.lock"
    with path.open("a") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            message = f"{folder} is in use by another ncl-bench process; wait for it or choose another folder"
            raise NclBenchError(message) from None
        yield


def _flush(path: Path) -> None:
    if path.is_file():
        with path.open("rb") as stream:
            os.fsync(stream.fileno())


def _remove_orphans(target: Path) -> None:
    """Delete what a killed process left beside the target."""
    for path in target.parent.glob(f".{target.name}.*.tmp"):
        owner = path.name.split(".")[-2]
        if owner.isdigit() and not Path(f"/proc/{owner}").exists():
            _remove(path)


def _remove(path: Path) -> None:
    if path.is_dir():
        shutil.rmtree(path, ignore_errors=True)
    else:
        path.unlink(missing_ok=True)
