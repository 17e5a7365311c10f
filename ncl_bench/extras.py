"""Optional packages: the extras of ``pyproject.toml`` and the command that installs one."""

import json
import sys
from importlib.util import find_spec
from pathlib import Path
from urllib.parse import unquote, urlsplit

from ncl_bench.errors import NclBenchError

_SOURCES = Path(__file__).parent.parent
_TO_TRAIN = ("torch", "tensorboard", "jinja2", "huggingface_hub", "pandas", "pyarrow", "sklearn")
"""What the extra ``baselines`` brings; what needs a part of it asks for its own extra by :func:`require`."""


def install_command(extra: str) -> str:
    """Return the pip command that installs an extra from the source of this installation.

    That is a folder of sources, a wheel, a git repository or a package index, as pip records in ``direct_url.json``
    (PEP 610). Sources that were never installed are installed in place.

    Args:
        extra: name of the extra, such as ``leaderboard``.
    """
    from importlib.metadata import PackageNotFoundError, distribution  # slow to import

    try:
        record = distribution("ncl-bench").read_text("direct_url.json")
    except PackageNotFoundError:
        return f"pip install --editable '{_SOURCES}[{extra}]'"
    if record is None:
        return f"pip install 'ncl-bench[{extra}]'"
    origin = json.loads(record)
    if "vcs_info" in origin:
        vcs = origin["vcs_info"]
        return f"pip install 'ncl-bench[{extra}] @ {vcs['vcs']}+{origin['url']}@{vcs['commit_id']}'"
    address = urlsplit(origin["url"])
    if address.scheme != "file":
        return f"pip install 'ncl-bench[{extra}] @ {origin['url']}'"
    path = unquote(address.path)
    if sys.platform == "win32":
        path = path.removeprefix("/")  # of /C:/folder
    editable = "--editable " if origin.get("dir_info", {}).get("editable") else ""
    return f"pip install {editable}'{path}[{extra}]'"


def require(extra: str, *modules: str, needed_by: str) -> None:
    """Raise an error if a module is not installed.

    Args:
        extra: the extra that brings the modules.
        modules: names to import, such as ``matplotlib``.
        needed_by: what the user asked for, such as ``--plot``.
    """
    missing = [module for module in modules if find_spec(module) is None]
    if missing:
        raise NclBenchError(
            f"{needed_by} needs {' and '.join(missing)}; install with: {install_command(extra)}"
        )


def not_installed(error: ModuleNotFoundError, *, needed_by: str) -> Exception:
    """The error in our words if a package of the extra ``baselines`` is missing; else the error itself.

    Args:
        error: of an import.
        needed_by: what the user asked for.
    """
    package = (error.name or "").partition(".")[0]
    if package not in _TO_TRAIN:
        return error
    return NclBenchError(f"{needed_by} needs {package}; install with: {install_command('baselines')}")
