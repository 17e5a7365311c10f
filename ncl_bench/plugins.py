"""Plugins: a file or module given with ``ncl-bench --plugin`` registers methods, backbones or datasets.

A plugin is imported once per process. Worker processes import what their parent imported.
"""

import hashlib
import importlib
import importlib.util
import os
import sys
import traceback
from collections.abc import Iterable
from pathlib import Path
from types import ModuleType
from typing import NamedTuple

from ncl_bench.errors import NclBenchError


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
        if path is None and ("/" in each or Path(each).is_file()):
            raise NclBenchError(
                f"--plugin {each} is not a Python file; give a file that ends in .py, or a module"
            )
        before = len(_registered)
        module = _module(each) if path is None else _run(path, each)
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
    files = {plugin.file for plugin in loaded()}
    lines = [frame for frame in traceback.extract_tb(error.__traceback__) if frame.filename in files]
    return f"{lines[-1].filename}, line {lines[-1].lineno}: {_problem(error)}" if lines else ""


def _problem(error: BaseException) -> str:
    return f"{type(error).__name__}: {error}" if str(error) else type(error).__name__


def _module(name: str) -> ModuleType:
    try:
        found = importlib.util.find_spec(name)
    except (ImportError, ValueError):  # the package around it does not exist, or fails
        found = None
    if found is None:
        raise NclBenchError(
            f"--plugin {name}: Python finds no module of this name; give the path of a .py file"
        )
    try:
        return importlib.import_module(name)
    except (Exception, SystemExit) as error:
        raise _failed(name, found.origin or name, error) from None


def _run(path: Path, given: str) -> ModuleType:
    if not path.is_file():
        raise NclBenchError(f"--plugin {given} does not exist; give the path of a .py file, or a module")
    # a unique module name, by which worker processes find the file's classes too
    name = f"{path.stem}_{hashlib.sha256(os.fsencode(path)).hexdigest()[:8]}"
    spec = importlib.util.spec_from_file_location(name, path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    if str(path.parent) not in sys.path:
        sys.path.append(str(path.parent))  # it may import files of its folder
    try:
        spec.loader.exec_module(module)
    except (Exception, SystemExit) as error:
        del sys.modules[name]
        raise _failed(given, str(path), error) from None
    return module


def _failed(given: str, file: str, error: BaseException) -> NclBenchError:
    """Build the error for a plugin: its name, the failing line, and the problem."""
    if isinstance(error, SyntaxError):
        line, problem = error.lineno, error.msg
    else:
        lines = [
            frame.lineno for frame in traceback.extract_tb(error.__traceback__) if frame.filename == file
        ]
        line = lines[-1] if lines else None
        problem = _problem(error)
    where = given if line is None else f"{given}, line {line}"
    return NclBenchError(f"--plugin {where}: {problem}; correct the file")
