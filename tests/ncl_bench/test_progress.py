"""Progress is drawn on a terminal alone."""

import subprocess
import sys


def test_no_bar_is_drawn_into_a_pipe_where_colours_are_forced() -> None:
    """Notebooks set ``FORCE_COLOR``; a cell's output was hundreds of bars."""
    code = "from ncl_bench.progress import bar\nwith bar('work', 2) as advance:\n    advance(2)"
    done = subprocess.run(
        [sys.executable, "-c", code], env={"FORCE_COLOR": "1"}, capture_output=True, text=True, check=True
    )
    assert done.stdout + done.stderr == ""
