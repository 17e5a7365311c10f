"""Plugins: a file or module given with ``ncl-bench --plugin`` registers methods, backbones or datasets.

A plugin is imported once per process. Worker processes import what their parent imported.
"""

import hashlib
import importlib
import importlib.util
import os
import sys
import traceback
from collections import UserDict
from collections.abc import Iterable
from pathlib import Path
from types import ModuleType
from typing import Any, NamedTuple, TypeVar

from ncl_bench.errors import NclBenchError

T = TypeVar("T")


class Plugin(NamedTuple):
    """An imported plugin.

    Attributes:
        given: path or module name, as the user gave it.
        name: of the file, without its folder, or of the module.
        sha256: of the file.
        file: its path.
    """

    given: str
    name: str
    sha256: str
    file: str


class Registry(UserDict[str, T]):
    """Entries by name; a plugin adds its own.

    Args:
        kind: what the entries are, such as ``method``.
    """

    def __init__(self, kind: str) -> None:
        super().__init__()
        self._kind = kind

    def __setitem__(self, name: str, entry: T) -> None:
        # results would state the one and hold the numbers of the other
        if self.data.get(name, entry) != entry:
            raise NclBenchError(f"a {self._kind} named {name!r} already exists; give yours another name")
        self.data[name] = entry


_loaded: dict[str, Plugin] = {}
_registered: list[str] = []
_of_plugins: list[str] = []


def registered(name: str) -> None:
    """Record the name of a method, backbone or dataset; every ``register`` calls this."""
    _registered.append(name)


def names_of_plugins() -> frozenset[str]:
    """Return the names that plugins of this process registered."""
    return frozenset(_of_plugins)


def loaded() -> tuple[Plugin, ...]:
    """Return the plugins of this process, in import order."""
    return tuple(_loaded.values())


def load_plugins(given: Iterable[str]) -> None:
    """Import plugins that this process has not imported yet.

    Args:
        given: paths of ``.py`` files, or names of modules that Python finds.
    """
    for each in given:
        path = Path(each).resolve() if each.endswith(".py") else None
        key = str(path or each)
        if key in _loaded:
            continue
        before = len(_registered)
        try:
            module = importlib.import_module(each) if path is None else _run(path)
        except (Exception, SystemExit) as error:
            line, problem = _line(error, key), _problem(error)
            if isinstance(error, SyntaxError):
                line, problem = error.lineno or 0, error.msg
            where = f", line {line}" if line else ""
            raise NclBenchError(
                f"--plugin {each}{where}: {problem}; give the path of a .py file or the name of a module, and correct "
                "what fails in it"
            ) from None
        _of_plugins.extend(_registered[before:])
        if len(_registered) == before:
            print(
                f"ncl-bench: --plugin {each} registers no method, backbone, dataset or unit of noise; "
                "call `register` in it",
                file=sys.stderr,
            )
        content = Path(module.__file__).read_bytes() if module.__file__ else b""
        name = each if path is None else path.name
        _loaded[key] = Plugin(each, name, hashlib.sha256(content).hexdigest(), module.__file__ or "")


def fault_of(error: BaseException) -> str:
    """Return file, line and problem of an error raised in or below a plugin; empty for other errors."""
    lines = [(plugin.file, line) for plugin in loaded() if (line := _line(error, plugin.file))]
    return f"{lines[0][0]}, line {lines[0][1]}: {_problem(error)}" if lines else ""


def _line(error: BaseException, file: str) -> int:
    """The last line of a file that an error passed through; 0 if none."""
    lines = [frame.lineno for frame in traceback.extract_tb(error.__traceback__) if frame.filename == file]
    return lines[-1] or 0 if lines else 0


def _problem(error: BaseException) -> str:
    return f"{type(error).__name__}: {error}" if str(error) else type(error).__name__


def _run(path: Path) -> ModuleType:
    # a unique module name, by which worker processes find the file's classes too
    name = f"{path.stem}_{hashlib.sha256(os.fsencode(path)).hexdigest()[:8]}"
    spec: Any = importlib.util.spec_from_file_location(name, path)
    module = sys.modules[name] = importlib.util.module_from_spec(spec)
    if str(path.parent) not in sys.path:
        sys.path.append(str(path.parent))  # it may import files of its folder
    try:
        spec.loader.exec_module(module)
    except BaseException:
        del sys.modules[name]
        raise
    return module
