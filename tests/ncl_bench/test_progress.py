"""Progress is drawn on a terminal alone."""

import subprocess
import sys

import pytest
from rich.console import Console

from ncl_bench.progress import bar


def test_no_bar_is_drawn_into_a_pipe_where_colours_are_forced() -> None:
    """Notebooks set ``FORCE_COLOR``; a cell's output was hundreds of bars."""
    code = "from ncl_bench.progress import bar\nwith bar('work', 2) as advance:\n    advance(2)"
    done = subprocess.run(
        [sys.executable, "-c", code], env={"FORCE_COLOR": "1"}, capture_output=True, text=True, check=True
    )
    assert done.stdout + done.stderr == ""


def test_a_notebook_shows_one_line_without_widgets(monkeypatch: pytest.MonkeyPatch) -> None:
    drawn: list[str] = []

    class Handle:
        def update(self, text: dict[str, str], raw: bool) -> None:
            drawn.append(text["text/plain"])

    def display(text: dict[str, str], raw: bool, display_id: bool) -> Handle:
        drawn.append(text["text/plain"])
        return Handle()

    monkeypatch.setattr("IPython.display.display", display)
    with bar("audit", 4, Console(force_jupyter=True)) as advance:
        advance(1)
        advance(3)
    assert " 25%" in drawn[0] or "  0%" in drawn[0]
    assert "100%" in drawn[-1]
    assert "\x1b" not in drawn[-1]
