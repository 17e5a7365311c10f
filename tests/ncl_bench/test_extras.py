"""The hint that names an extra leads to where ncl_bench came from; the project need not be on a package index."""

import json
import sys
from collections.abc import Callable
from importlib.metadata import PackageNotFoundError
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from ncl_bench import extras

ROOT = Path(__file__).parents[2]


@pytest.mark.parametrize(
    ("origin", "command"),
    [
        (
            {"url": "file:///home/ada/ncl%20bench", "dir_info": {"editable": True}},
            f"--editable '{Path('/home/ada/ncl bench')}[docs]'",
        ),
        ({"url": "file:///home/ada/ncl_bench", "dir_info": {}}, f"'{Path('/home/ada/ncl_bench')}[docs]'"),
        (
            {"url": "file:///tmp/ncl_bench-1-py3-none-any.whl", "archive_info": {}},
            f"'{Path('/tmp/ncl_bench-1-py3-none-any.whl')}[docs]'",
        ),
        (
            {"url": "https://forge.example/ncl_bench.git", "vcs_info": {"vcs": "git", "commit_id": "abc"}},
            "'ncl-bench[docs] @ git+https://forge.example/ncl_bench.git@abc'",
        ),
        (
            {"url": "https://files.example/n.whl", "archive_info": {}},
            "'ncl-bench[docs] @ https://files.example/n.whl'",
        ),
        (None, "'ncl-bench[docs]'"),
    ],
    ids=["editable", "folder", "wheel", "git", "address", "index"],
)
def test_an_extra_comes_from_where_the_package_came_from(
    origin: dict[str, Any] | None, command: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An installation from a folder or a wheel was sent to an index that may not have the project."""
    record = None if origin is None else json.dumps(origin)
    monkeypatch.setattr(extras, "distribution", lambda _: SimpleNamespace(read_text=lambda _: record))
    assert extras.install_command("docs") == f"pip install {command}"


def test_sources_that_were_never_installed_are_installed_in_place(monkeypatch: pytest.MonkeyPatch) -> None:
    def missing(name: str) -> None:
        raise PackageNotFoundError(name)

    monkeypatch.setattr(extras, "distribution", missing)
    assert extras.install_command("docs") == f"pip install --editable '{ROOT}[docs]'"


def test_a_command_that_trains_names_the_extra_it_needs(
    run: Callable[..., Any], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setitem(sys.modules, "torch", None)
    for module in [name for name in sys.modules if name.startswith(("baselines.kit", "baselines.training"))]:
        monkeypatch.delitem(sys.modules, module)
    ran = run("train", "ncr/digits_vse_infinity", "--to", tmp_path / "run")
    assert (ran.code, ran.err.count("\n")) == (2, 1)
    assert ran.err.startswith("ncl-bench: this command needs torch; install with: pip install")
    assert not (tmp_path / "run").exists()
