"""Packages that only some commands need: the extras of ``pyproject.toml`` and the command that installs one."""

import json
from importlib.metadata import PackageNotFoundError, distribution
from importlib.util import find_spec
from urllib.parse import unquote, urlsplit

from ncl_bench.errors import NclBenchError


def install_command(extra: str) -> str:
    """The pip command that installs an extra, for an editable install from its own checkout.

    Args:
        extra: name of the extra, such as ``leaderboard``.
    """
    try:
        origin = json.loads(distribution("ncl-bench").read_text("direct_url.json") or "{}")
    except PackageNotFoundError:
        origin = {}
    if origin.get("dir_info", {}).get("editable"):
        return f"pip install --editable '{unquote(urlsplit(origin['url']).path)}[{extra}]'"
    return f"pip install 'ncl-bench[{extra}]'"


def require(extra: str, *modules: str, needed_by: str) -> None:
    """Refuse to begin where a module is not installed.

    Args:
        extra: the extra that brings the modules.
        modules: names to import, such as ``matplotlib``.
        needed_by: what the user asked for, such as ``--plot``.

    Raises:
        NclBenchError: with the command that installs the extra.
    """
    missing = [module for module in modules if find_spec(module) is None]
    if missing:
        raise NclBenchError(
            f"{needed_by} needs {' and '.join(missing)}; install with: {install_command(extra)}"
        )
