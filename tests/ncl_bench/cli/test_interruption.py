"""A stopped command ends with the exit code that shells expect."""

from collections.abc import Callable
from pathlib import Path
from typing import Any


def test_ctrl_c_ends_a_command_without_a_traceback(run: Callable[..., Any], tmp_path: Path) -> None:
    (tmp_path / "stops.py").write_text("raise KeyboardInterrupt")
    ended = run("--plugin", tmp_path / "stops.py", "datasets")
    assert (ended.code, ended.out, ended.err) == (130, "", "")
