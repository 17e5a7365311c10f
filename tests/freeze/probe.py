"""Run one part of a probe in the tree that ``PYTHONPATH`` names, and write what it finds as JSON.

Probes use the command line and the public functions, so that they run in both trees. Where they must reach inside, a
small function tries the place of today and the place of the base.
"""

import contextlib
import hashlib
import importlib
import io
import json
import math
import os
import re
import subprocess
import sys
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import numpy as np

BASE = Path(os.environ.get("FREEZE_BASE", "."))
"""The tree of the base."""


def sha(content: bytes | str) -> str:
    """The first 16 digits of the sha256 of bytes or of text."""
    return hashlib.sha256(content.encode() if isinstance(content, str) else content).hexdigest()[:16]


def array(values: Any) -> str:
    """Shape, dtype and hash of an array."""
    values = np.ascontiguousarray(values)
    return f"{'x'.join(map(str, values.shape))} {values.dtype.str} {sha(values.tobytes())}"


def plain(value: Any) -> Any:
    """A value as JSON holds it; a float keeps every bit."""
    if isinstance(value, np.ndarray):
        return array(value)
    if isinstance(value, dict):
        return {str(key): plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [plain(item) for item in value]
    if isinstance(value, set | frozenset):
        return sorted(plain(item) for item in value)
    if isinstance(value, np.generic):
        return plain(value.item())
    if isinstance(value, float):
        return value if math.isfinite(value) else str(value)
    return value if value is None or isinstance(value, bool | int | str) else str(value)


def first_of(*places: str) -> Any:
    """The first of some ``module:name`` that exists: the place of today, then the place of the base."""
    for place in places:
        module, _, name = place.partition(":")
        with contextlib.suppress(ImportError, AttributeError):
            found = importlib.import_module(module)
            return getattr(found, name) if name else found
    raise ImportError(f"none of {places} exists")


def said(text: str) -> str:
    """Text without what differs between two runs: folders, seconds, sizes of memory."""
    text = re.sub(r".*(?:━|\d+:\d\d).*\n?", "", text)  # progress bars
    text = re.sub(r"\S*/(?:tmp|freeze|ncl-bench-freeze)\S*/", "", text)
    return re.sub(r"\d+(\.\d+)? (s|seconds|MB|MiB)\b", "N \\2", text)


def outcome_of(exit_code: int, out: str, err: str) -> dict[str, Any]:
    """What a command said; words stand apart, since sentences are rewritten."""
    traceback = "Traceback (most recent call last)" in out + err
    return {"exit": exit_code, "traceback": traceback, "words": said(out + err)}


def command(*arguments: Any) -> dict[str, Any]:
    """What ``ncl-bench`` says, run in this process."""
    from ncl_bench.cli import main

    out, err, code = io.StringIO(), io.StringIO(), 0
    before, sys.argv = sys.argv, ["ncl-bench", *map(str, arguments)]
    try:
        with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
            main()
    except SystemExit as stop:
        code = stop.code if isinstance(stop.code, int) else 0 if stop.code is None else 1
    finally:
        sys.argv = before
    return outcome_of(code, out.getvalue(), err.getvalue())


PROGRAM = [sys.executable, str(Path(sys.executable).with_name("ncl-bench"))]
"""The installed command, which takes the packages of ``PYTHONPATH``; the base starts it again for several devices."""


def process(*arguments: Any, **environment: str) -> dict[str, Any]:
    """What ``ncl-bench`` says, run in a process of its own."""
    done = subprocess.run(
        [*PROGRAM, *map(str, arguments)],
        capture_output=True,
        text=True,
        env=os.environ | environment,
        check=False,
    )
    return outcome_of(done.returncode, done.stdout, done.stderr)


def refused(call: Callable[[], Any]) -> dict[str, Any]:
    """What a call gives, or how it is refused."""
    try:
        return {"gives": plain(call())}
    except Exception as error:
        return {"refused": type(error).__name__, "words": said(str(error))}


def file_hashes(folder: Path, names: Iterable[str] = ("*",)) -> dict[str, str]:
    """Hash of the files in a folder; of an ``.npy`` file the array."""
    found = sorted({path for name in names for path in folder.rglob(name) if path.is_file()})
    return {
        path.relative_to(folder).as_posix(): array(np.load(path))
        if path.suffix == ".npy"
        else sha(path.read_bytes())
        for path in found
    }


def main() -> None:
    """Run ``PROBE PART TREE TARGET``."""
    probe, part, tree, target = sys.argv[1:]
    import ncl_bench

    assert Path(ncl_bench.__file__).is_relative_to(tree), f"{ncl_bench.__file__} is not of {tree}"
    found = importlib.import_module(f"probe_{probe}").PARTS[part]()
    text = json.dumps(plain(found), indent=1, sort_keys=True).replace(f"{tree}/", "")
    Path(target).write_text(text, encoding="utf-8")


if __name__ == "__main__":
    sys.modules["probe"] = sys.modules["__main__"]
    main()
