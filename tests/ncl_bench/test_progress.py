"""Progress is drawn on a terminal alone."""

import re
from io import StringIO
from time import sleep

from rich.console import Console
from support.processes import python

from ncl_bench.progress import bar, hint, plain_text, say


def test_no_bar_is_drawn_into_a_pipe_where_colours_are_forced():
    """Notebooks set ``FORCE_COLOR``; a cell's output was hundreds of bars."""
    code = "from ncl_bench.progress import bar\nwith bar('work', 2) as advance:\n    advance(2)"
    done = python(code, env={"FORCE_COLOR": "1"})
    assert done.stdout + done.stderr == ""


def test_a_notebook_shows_one_line_without_widgets(monkeypatch):
    drawn = []

    class Handle:
        def update(self, text, raw):
            drawn.append(text["text/plain"])

    def display(text, raw, display_id):
        drawn.append(text["text/plain"])
        return Handle()

    monkeypatch.setattr("IPython.display.display", display)
    with bar("audit", 4, Console(force_jupyter=True)) as advance:
        advance(1)
        advance(3)
    assert " 25%" in drawn[0] or "  0%" in drawn[0]
    assert "100%" in drawn[-1]
    assert "\x1b" not in drawn[-1]


def test_a_line_a_minute_is_printed_without_a_terminal(monkeypatch):
    monkeypatch.setattr("ncl_bench.progress.LINE_EVERY", 0.01)
    log = StringIO()
    with bar("encode", 4, Console(file=log)) as advance:
        while "\n" not in log.getvalue():  # also while nothing advances
            sleep(0.01)
        advance(1)
        while log.getvalue().count("25 %") < 2:
            sleep(0.01)
    assert re.match(r"(encode: 0 %, 0 min\n)+encode: 25 %, 0 min, 0 min left\n", log.getvalue())


def test_quiet_prints_no_line(monkeypatch, capsys):
    monkeypatch.setattr("ncl_bench.progress.LINE_EVERY", 0.0)
    monkeypatch.setattr("ncl_bench.progress._quiet", True)
    with bar("encode", 4) as advance:
        advance(4)
    say("digits: caption noise")
    hint("next: evaluate")
    assert capsys.readouterr() == ("", "")


def test_text_of_a_table_is_text_in_a_notebook_too(monkeypatch):
    """Rich displayed it there, and ``str`` of a result was empty."""
    monkeypatch.setattr("rich.console._is_jupyter", lambda: True)
    assert plain_text("a", "b", width=9) == "a\nb\n"
