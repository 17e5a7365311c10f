"""Run the command line within the test's process."""

import sys
from dataclasses import dataclass

import pytest
from support.refusals import saw

from ncl_bench.cli import main


@dataclass(frozen=True)
class Ran:
    """What a command line did."""

    code: int
    out: str
    err: str

    def assert_refused(self):
        """Assert that it wrote one sentence alone, that of the golden list."""
        assert (self.code, self.out, self.err.count("\n")) == (2, "", 1), self
        saw(self.err)


@pytest.fixture
def run(monkeypatch, capsys):
    """Run ``ncl-bench`` with arguments."""
    monkeypatch.setenv("COLUMNS", "200")
    monkeypatch.delenv("NCL_BENCH_DATA", raising=False)

    def command(*arguments):
        monkeypatch.setattr(sys, "argv", ["ncl-bench", *map(str, arguments)])
        capsys.readouterr()
        try:
            main()
            code = 0
        except SystemExit as stop:
            code = int(stop.code or 0)
        captured = capsys.readouterr()
        return Ran(code, captured.out, captured.err)

    return command
