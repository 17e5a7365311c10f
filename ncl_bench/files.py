"""Files and folders of ours: written whole or not at all, by one process at a time."""

import glob
import hashlib
import json
import os
import re
import secrets
import shutil
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from functools import partial
from itertools import chain
from pathlib import Path
from typing import Any

from ncl_bench.arguments import AnyPath as AnyPath
from ncl_bench.arguments import as_path as as_path
from ncl_bench.errors import NclBenchError, named

_TEMPORARY = re.compile(r"\..+\.(\d+)(?:-[0-9a-f]+)?\.tmp")


@contextmanager
def atomic_path(target: Path) -> Iterator[Path]:
    """Yield a new, empty file next to ``target``; it replaces ``target`` if the block succeeds, else it is deleted.

    The file has a random name and is made exclusively, so no link that lies there is followed. What a killed process
    left behind is removed first.
    """
    with _replacing(target, partial(Path.touch, exist_ok=False)) as temporary:
        yield temporary


@contextmanager
def atomic_folder(target: Path) -> Iterator[Path]:
    """Like :func:`atomic_path` for a folder: yield a new, empty folder. ``target`` must be empty or not exist."""
    place = Path(os.path.realpath(target))  # a link that the user named stays
    with _replacing(place, Path.mkdir) as temporary:
        yield temporary
        if place.is_dir():
            place.rmdir()  # not every system lets a folder replace another


@contextmanager
def _replacing(target: Path, make: Callable[[Path], None]) -> Iterator[Path]:
    temporary = target.parent / f".{target.name}.{os.getpid()}-{secrets.token_hex(8)}.tmp"
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        for leftover in target.parent.glob(f".{glob.escape(target.name)}.*.tmp"):
            if is_leftover(leftover):
                _remove(leftover)
        make(temporary)
        try:
            yield temporary
            if temporary.is_file():
                with temporary.open("rb") as stream:
                    os.fsync(stream.fileno())
            os.replace(temporary, target)
        finally:
            _remove(temporary)
    except (OSError, UnicodeEncodeError) as error:  # a lone surrogate, which JSON and names may hold
        reason = getattr(error, "strerror", None) or error
        raise NclBenchError(f"cannot write {target}: {reason}; fix that or choose another place") from error


def write_bytes(target: Path, content: bytes) -> None:
    """Write a file atomically."""
    with atomic_path(target) as temporary:
        temporary.write_bytes(content)


def write_text(target: Path, content: str) -> None:
    """Write a UTF-8 file with ``\\n`` line ends atomically."""
    with atomic_path(target) as temporary:
        temporary.write_bytes(content.encode("utf-8"))


def sha256_of_file(path: Path, advance: Callable[[int], None] = lambda _: None) -> str:
    """Compute the sha256 (hex) of a file, read in blocks, of as many bytes as the system says that it has.

    Args:
        path: of the file.
        advance: called with the bytes read.
    """
    digest = hashlib.sha256()
    with path.open("rb") as stream:
        left = os.fstat(stream.fileno()).st_size  # a file of the kernel says 0, and may never end
        while left > 0 and (block := stream.read(min(left, 1 << 20))):
            digest.update(block)
            advance(len(block))
            left -= len(block)
    return digest.hexdigest()


@contextmanager
def sole_owner(place: Path, *, inside: Path | None = None, nested: bool = True) -> Iterator[None]:
    """Lock a folder or a file for this process; the lock ends with the process, even if it is killed.

    Links that lead out of the folder are refused, and what killed processes left unfinished in it is removed. The lock
    file ``.NAME.lock`` lies beside the place, where every process finds it, whatever its environment.

    Args:
        place: the folder or file. A link that the user named is followed.
        inside: folder that no link may leave (default: ``place``); give it if the user named it and not ``place``.
        nested: whether folders below ``place`` are written too. Otherwise only files directly in it are; they replace
            links and never follow them, so the folder may be any of the user's, such as the current one.
    """
    from filelock import FileLock, Timeout  # slow to import

    if nested or inside is not None:
        refuse_links_out(place, inside)
    whole = Path(os.path.realpath(place))
    path = whole.with_name(f".{whole.name}.lock") if whole.name else whole / ".lock"
    lock = FileLock(path)
    made = [folder for folder in (path.parent, *path.parent.parents) if not folder.exists()]
    try:
        if path.is_symlink():  # the lock library may follow it, and empty the file at its end
            raise NclBenchError(f"{path} is a link, expected the lock file of {place}; remove it")
        path.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(
            dir=path.parent
        ):  # for a read-only folder the lock library reports "in use"
            pass
        lock.acquire(blocking=False)
    except Timeout:
        raise NclBenchError(
            f"{place} is in use by another ncl-bench process; wait for it or choose another"
        ) from None
    except OSError as error:
        raise NclBenchError(
            f"cannot write {place}: no file can be created next to it ({error.strerror}); choose another place"
        ) from None
    try:
        for leftover in whole.rglob(".*.tmp") if nested else whole.glob(".*.tmp"):
            if is_leftover(leftover):
                _remove(leftover)
        yield
    finally:
        with suppress(OSError):  # Windows does not remove open files
            path.unlink()
        lock.release()
        with suppress(OSError):  # leave no empty folder behind
            for folder in made:
                folder.rmdir()


def refuse_existing(folder: Path) -> None:
    """Refuse a folder to write that holds something, or a file there: it would be lost."""
    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        raise NclBenchError(f"{folder} exists already; choose a new folder with {named('to')}")


def refuse_links_out(folder: Path, inside: Path | None = None) -> None:
    """Refuse a folder with a link that leads out of it; whatever is written or deleted below it then stays inside.

    Args:
        folder: about to be written; it need not exist.
        inside: folder that neither ``folder`` nor a link below it may leave (default: ``folder``).
    """
    home = Path(os.path.realpath(inside or folder))
    below = (Path(place, name) for place, folders, files in os.walk(folder) for name in (*folders, *files))
    for link in chain([folder], filter(Path.is_symlink, below)):
        if not Path(os.path.realpath(link)).is_relative_to(home):
            raise NclBenchError(
                f"{link} is a link out of {inside or folder}, where nothing may be written; remove the link, or put "
                "the files themselves there"
            )


def is_leftover(path: Path) -> bool:
    """Whether a path is unfinished output of :func:`atomic_path` by a process that no longer runs: it may go."""
    owner = _TEMPORARY.fullmatch(path.name)
    return owner is not None and not _is_alive(int(owner[1]))


def _is_alive(process: int) -> bool:
    try:
        os.kill(process, 0)
    except PermissionError:  # another user's
        return True
    except (ProcessLookupError, OverflowError):
        return False
    return True


def _remove(path: Path) -> None:
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path, ignore_errors=True)
    else:
        path.unlink(missing_ok=True)


class Journal:
    """Journal of the finished steps of a preparation, from which the same command resumes.

    Args:
        folder: where the unfinished work lies; what was begun there with other settings is deleted.
        settings: everything that the bytes of the result depend on, as json.
    """

    def __init__(self, folder: Path, settings: Any) -> None:
        self._path = folder / "journal.json"
        refuse_links_out(folder, folder.parent)
        settings = json.loads(json.dumps(settings))
        self._content: dict[str, Any] = {"settings": settings, "done": {}}
        try:
            content = json.loads(self._path.read_bytes())
        except (OSError, ValueError):
            content = None
        if isinstance(content, dict) and content.get("settings") == settings:
            self._content = content
        elif folder.exists():
            shutil.rmtree(folder)
        folder.mkdir(parents=True, exist_ok=True)

    def result(self, step: str) -> Any:
        """Return the result that :meth:`finish` recorded for a step, or None."""
        return self._content["done"].get(step)

    def finish(self, step: str, result: Any) -> None:
        """Record a finished step and its json result."""
        self._content["done"][step] = result
        write_text(self._path, json.dumps(self._content))
