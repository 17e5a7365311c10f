"""Atomic writes, locks of files and folders, and checks of files from users."""

import csv
import glob
import hashlib
import io
import json
import os
import re
import secrets
import shutil
import stat
import tarfile
import tempfile
import unicodedata
import zipfile
from collections.abc import Callable, Collection, Iterable, Iterator
from contextlib import contextmanager, suppress
from functools import partial
from itertools import chain, pairwise
from os import PathLike
from pathlib import Path
from typing import Any, TypeAlias

from filelock import FileLock, Timeout

from ncl_bench.errors import NclBenchError, listed, shorten, shown

AnyPath: TypeAlias = str | PathLike[str]
"""Path as a user gives it."""
_TEMPORARY = re.compile(r"\..+\.(\d+)(?:-[0-9a-f]+)?\.tmp")


def as_path(given: AnyPath | None) -> Path | None:
    """The same path as a ``Path``; None stays None."""
    return None if given is None else Path(given)


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


_FORMULA = re.compile("'*[=+@\t\r\n\uff1d\uff0b\uff20\uff0d-]")
_NUMBER = re.compile(r"[+-]?(\d+\.?\d*|\.\d+)(e[+-]?\d+)?|[+-]?inf(inity)?|nan", re.IGNORECASE | re.ASCII)


class _Lines(list[str]):
    """Lines of CSV with ``\\n`` ends; the writer is told of ``\\r\\n``, so that it quotes cells that hold either."""

    def write(self, line: str) -> None:
        self.append(line.removesuffix("\r\n") + "\n")


def as_csv(rows: Iterable[Iterable[object]], delimiter: str = ",") -> str:
    """Format rows as a table with ``\\n`` line ends; every text as :func:`csv_cell`, which :func:`read_table` undoes.

    Args:
        rows: the cells; None is empty.
        delimiter: between cells; between tabs no cell is quoted, as in the published files.
    """
    lines = _Lines()
    safe = ([csv_cell(cell) for cell in row] for row in rows)
    if delimiter == "\t":
        lines.extend("\t".join("" if cell is None else str(cell) for cell in row) + "\n" for row in safe)
    else:
        csv.writer(lines, delimiter=delimiter, lineterminator="\r\n").writerows(safe)
    return "".join(lines)


def csv_cell(value: object) -> object:
    """A cell that a spreadsheet shows and does not compute: a text like a formula gets an apostrophe; numbers stay."""
    formula = isinstance(value, str) and _FORMULA.match(value) and not _NUMBER.fullmatch(value)
    return f"'{value}" if formula else value


def from_csv_cell(cell: str) -> str:
    """The text that :func:`csv_cell` was given."""
    return cell[1:] if cell.startswith("'") and _FORMULA.match(cell) else cell


Rows = Iterator[tuple[str, dict[str, str]]]
"""Rows of a table: file and line, such as ``captions.csv line 7``, and column to cell."""


def text_lines(content: bytes, name: str, error: type[NclBenchError]) -> list[str]:
    """Split UTF-8 text into lines, without line ends and byte-order mark.

    Only ``\\n`` and ``\\r\\n`` end a line: texts may hold the rarer line ends of ``str.splitlines``.

    Args:
        content: the file's bytes.
        name: name of the file in errors.
        error: class of what is raised.
    """
    return [line.removesuffix("\r") for line in _text(content, name, error).split("\n")]


def _text(content: bytes, name: str, error: type[NclBenchError]) -> str:
    try:
        return content.decode("utf-8-sig")
    except UnicodeDecodeError as problem:
        line = content.count(b"\n", 0, problem.start) + 1
        raise error(
            f"{name} line {line}: byte 0x{content[problem.start]:02x} is not UTF-8; save it as text in UTF-8, or "
            "download the file again"
        ) from None


def read_table(
    path: Path,
    error: type[NclBenchError],
    needed: Collection[str] = (),
    *,
    expected: str = "a table",
    filled: bool = True,
) -> tuple[list[str], Rows]:
    """Read a table in UTF-8 whose first line names its columns; blanks around a name do not count.

    Tabs separate the cells of a ``.tsv`` file, and of others whose first line holds a tab; a quotation mark is then an
    ordinary character, as in the published files. Otherwise it is CSV with commas, or with semicolons if the first line
    holds no comma. Blank lines are skipped, and missing cells are empty. The apostrophe of
    :func:`csv_cell` is taken off.

    Args:
        path: of the file.
        error: class of what is raised, also while rows are read.
        needed: columns that the table must have.
        expected: what the file should be.
        filled: whether missing cells at the end of a row are empty; otherwise the row is refused.

    Returns:
        The columns, and an iterator over the rows.
    """
    try:
        content = readable(path, error, expected).read_bytes()
    except OSError as problem:
        raise error(f"{path} cannot be read ({problem.strerror}); check its permissions") from None
    delimiter = delimiter_of(path, content.split(b"\n", 1)[0])
    tabs = delimiter == "\t"
    lines = _tab_separated(content, str(path), error) if tabs else _quoted(content, path, delimiter, error)
    rows = ((where, [*map(from_csv_cell, cells)]) for where, cells in lines if any(cells))
    _, first = next(rows, ("", []))
    columns = [name.strip() for name in first]
    lacking = [name for name in needed if name not in columns]
    if lacking:
        raise error(
            f"{path} has no column {' or '.join(lacking)}, expected {expected}; its first line holds "
            f"{listed(columns)}: correct these names, or write a line of names above it if it "
            "is a row already"
        )
    named = [name.casefold() for name in columns if name]
    if len(set(named)) < len(named):
        twice = next(name for name in named if named.count(name) > 1)
        raise error(f"{path} has two columns {shown(twice)}; rename one of them")
    return columns, _as_dicts(columns, rows, error, filled)


def delimiter_of(path: Path, head: bytes) -> str:
    """What separates the cells of a table, by its name and its first line; see :func:`read_table`."""
    if path.suffix.lower() == ".tsv" or b"\t" in head:
        return "\t"
    return ";" if b";" in head and b"," not in head else ","


def _as_dicts(
    columns: list[str], rows: Iterator[tuple[str, list[str]]], error: type[NclBenchError], filled: bool
) -> Rows:
    for where, cells in rows:
        if len(cells) < len(columns) and not filled:
            raise error(
                f"{where}: it has fewer cells than the first line ({len(cells)}, not {len(columns)}); complete it"
            )
        if len(cells) > len(columns):
            raise error(
                f"{where}: it has more cells than the first line ({len(cells)}, not {len(columns)}); quote a cell that "
                "holds the separator, or remove the cell"
            )
        yield where, dict(zip(columns, [*cells, *[""] * (len(columns) - len(cells))], strict=True))


def _tab_separated(content: bytes, name: str, error: type[NclBenchError]) -> Iterator[tuple[str, list[str]]]:
    for number, line in enumerate(text_lines(content, name, error), start=1):
        yield f"{name} line {number}", line.split("\t")


LONGEST_CELL = 1_000_000
"""Most characters of a cell of CSV."""


def _quoted(
    content: bytes, path: Path, delimiter: str, error: type[NclBenchError]
) -> Iterator[tuple[str, list[str]]]:
    """Rows of CSV text; a cell that swallowed rows after an open quotation mark is refused."""
    csv.field_size_limit(LONGEST_CELL)  # the process's; no other limit is set
    rows = csv.reader(
        io.StringIO(_text(content, str(path), error), newline=""), delimiter=delimiter, strict=True
    )
    while True:
        begins = rows.line_num + 1
        where = f"{path} line {begins}"
        try:
            cells = next(rows, None)
        except csv.Error as problem:
            if "field larger" in str(problem):
                raise error(
                    f"{where}: a cell has more than {LONGEST_CELL:,} characters; shorten it or close its quotes"
                ) from None
            until = "" if rows.line_num <= begins else f", read up to line {rows.line_num}"
            raise error(
                f"{where}: the quotation marks are wrong ({problem}{until}); close each, and double those inside a cell"
            ) from None
        if cells is None:
            return
        if rows.line_num > begins and (inside := _swallowed(cells, delimiter)):
            raise error(
                f"{where}: a quoted cell goes on to line {rows.line_num} and holds what looks like rows "
                f"({shorten(inside)}); close its quotation mark, or remove its line breaks"
            )
        yield where, cells


def _swallowed(cells: list[str], delimiter: str) -> str | None:
    """A line inside a cell that looks like a row: the cell's lines hold the separators that their rows need."""
    after = len(cells) - 1
    for place, cell in enumerate(cells):
        first, *inner = re.split(r"\r\n|\n|\r", cell)
        if not inner or first.count(delimiter) < after - place or inner[-1].count(delimiter) < place:
            continue
        if found := next((line for line in (first, *inner) if _is_row(line.split(delimiter))), None):
            return found
    return None


_ID = re.compile(r"\S|\S*(?:\d\S*|\.[A-Za-z]{3,4})")
_FILE = re.compile(r"\S+\.[A-Za-z]{3,4}")


def _is_row(cells: list[str]) -> bool:
    """Whether a line inside a cell is more likely a row than prose, which may hold the separator too.

    A row has a file, a number or a letter beside another cell, or a word beside a sentence: ``7,A dog``, ``rex,A dog``,
    and not ``with,dogs`` or ``2,000 dogs``.
    """
    for before, after in pairwise(cells):
        if not after or after[0].isspace() or not before or before[-1].isspace():
            continue
        in_number = re.fullmatch("[0-9]{2}", before[-1] + after[0])
        if _FILE.fullmatch(after) or (not in_number and _ID.fullmatch(before)):
            return True
        if after[0].isupper() and not any(map(str.isspace, before)):
            return True
    return False


def readable(
    path: Path,
    error: type[NclBenchError],
    expected: str,
    *,
    inside: Path | None = None,
    fix: str = "correct its name or put the file there",
) -> Path:
    """Return the path of a user's file if it is a regular, readable file; opening a pipe would wait forever.

    Args:
        path: of the file.
        error: class of what is raised.
        expected: what the file should be, such as "an .npy file".
        inside: folder that a symbolic link must not leave.
        fix: what the user should do, in words that end the sentence.
    """
    leaves = inside is not None and not Path(os.path.realpath(path)).is_relative_to(os.path.realpath(inside))
    try:
        mode = path.stat().st_mode
    except (FileNotFoundError, ValueError):  # no name holds a null character
        problem = "does not exist"
    except OSError as unreachable:
        problem = f"cannot be read ({unreachable.strerror})"
    else:
        kind = "is a folder" if stat.S_ISDIR(mode) else "is not a regular file"
        problem = "" if stat.S_ISREG(mode) else kind
    if leaves:
        problem = f"is a link out of the folder {inside}"
    if problem:
        raise error(f"{path} {problem}, expected {expected}; {fix}")
    return path


def normalized(text: str) -> str:
    """Return a text in Unicode's composed form, NFC, in which names and words are compared.

    A Mac's archives decompose the ``é`` of a file name into two characters, and a table spells it as one.
    """
    return unicodedata.normalize("NFC", text)


def read_limited(path: Path, largest: int, error: type[NclBenchError], fix: str) -> bytes:
    """Read a whole file whose size is known; a larger one is refused unread.

    Args:
        path: of the file.
        largest: number of bytes that it can have.
        error: class of what is raised.
        fix: what the user should do, in words that end the sentence.
    """
    try:
        size = path.stat().st_size
        if size > largest:
            raise error(f"{path} has {size:,} bytes, expected at most {largest:,}; {fix}")
        return path.read_bytes()
    except OSError as problem:
        raise error(f"cannot read {path}: {problem.strerror}; {fix}") from None


def check_torch_file(path: Path, error: type[NclBenchError], *, checksums: bool = False) -> None:
    """Refuse files that ``torch.save`` cannot have written: archives of other files, or compressed entries.

    Args:
        path: a file that torch is about to read. What is neither tar nor zip is left to torch.
        error: class of what is raised.
        checksums: compare the checksum of every entry too; torch compares none.
    """
    damaged = error(f"{path} is damaged or was not written by torch.save; fetch or save it again")
    around = error(f"{path} is an archive of other files; unpack it and give the file that torch.save wrote")
    try:
        if tarfile.is_tarfile(path):
            raise around
        if not zipfile.is_zipfile(path):
            return
        with zipfile.ZipFile(path) as archive:
            entries = archive.infolist()
            if not any(entry.filename.endswith("/data.pkl") for entry in entries):
                raise around
            packed = any(entry.compress_type != zipfile.ZIP_STORED for entry in entries)
            if packed or sum(entry.file_size for entry in entries) > path.stat().st_size:
                raise error(
                    f"{path} is compressed, which torch.save never does; give the file as it was saved"
                )
            if checksums and archive.testzip() is not None:
                raise damaged
    except OSError as problem:
        raise error(f"{path} cannot be read ({problem.strerror}); check its permissions") from None
    except (zipfile.BadZipFile, EOFError, RuntimeError, NotImplementedError, ValueError):
        raise damaged from None


def sha256_of_file(path: Path) -> str:
    """Compute the sha256 (hex) of a file, read in blocks, of as many bytes as the system says that it has."""
    digest = hashlib.sha256()
    with path.open("rb") as stream:
        left = os.fstat(stream.fileno()).st_size  # a file of the kernel says 0, and may never end
        while left > 0 and (block := stream.read(min(left, 1 << 20))):
            digest.update(block)
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
    """Whether a path is unfinished output of :func:`atomic_path` or its folders, of a process that no longer runs."""
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
            found = json.loads(self._path.read_bytes())
        except (OSError, ValueError):
            found = None
        if isinstance(found, dict) and found.get("settings") == settings:
            self._content = found
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
