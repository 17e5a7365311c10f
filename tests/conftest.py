"""Fixtures of every room."""

import gc
import os
import shutil
import signal
import sys
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import numpy as np
import pytest
from hypothesis import settings
from support import refusals

os.environ.setdefault("OMP_NUM_THREADS", "1")  # the suite runs a process per core; more threads only wait
if shutil.which("nvidia-smi") is None:
    os.environ.setdefault("TRITON_INTERPRET", "1")  # kernels run on a CPU; read when Triton is imported

# Without deadlines: a loaded machine is no fault. The default suite draws the same cases everywhere; the slow one
# (`make test-slow`) looks for new ones, and prints how to draw a failing one again.
settings.register_profile("fixed", deadline=None, derandomize=True)
settings.register_profile("random", deadline=None, print_blob=True)
settings.load_profile("fixed")

GOLDEN = Path(os.environ.get("NCL_GOLDEN_DIR") or Path(__file__).parent / "golden")


@pytest.fixture(scope="session")
def golden():
    """Read a file of reference numbers by name: ``golden("G_metrics")["fold5.rsum"]``.

    The files lie in ``tests/golden``, or where the environment variable ``NCL_GOLDEN_DIR`` says. The test is
    skipped where a file is absent. Nobody may change an array: all tests share them.
    """

    @cache  # thousands of small arrays, which take longer to read than most tests to compare
    def arrays_of(path):
        with np.load(path, allow_pickle=False) as arrays:
            read = dict(arrays)
        for array in read.values():
            array.flags.writeable = False
        return read

    def read(name):
        path = GOLDEN / f"{name}.npz"
        if not path.exists():
            pytest.skip(f"{path} is absent; NCL_GOLDEN_DIR names its folder")
        return dict(arrays_of(path))

    return read


@dataclass(frozen=True)
class Ran:
    """What a command line did."""

    code: int
    out: str
    err: str

    def assert_refused(self):
        """Assert that it wrote one sentence alone, that of the golden list."""
        assert (self.code, self.out, self.err.count("\n")) == (2, "", 1), self
        refusals.saw(self.err)


@pytest.fixture
def run(monkeypatch, capsys):
    """Run ``ncl-bench`` with arguments."""
    monkeypatch.setenv("COLUMNS", "200")
    monkeypatch.delenv("NCL_BENCH_DATA", raising=False)

    from ncl_bench.cli import main

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


@pytest.fixture
def no_plugins(monkeypatch):
    """No plugin is loaded; the datasets that one registers, and the folder it imports from, go with the test."""
    from ncl_bench.data import DATASETS

    monkeypatch.setattr("ncl_bench.plugins._loaded", {})
    monkeypatch.setattr(DATASETS, "data", dict(DATASETS.data))
    monkeypatch.setattr("sys.path", [*sys.path])


@pytest.fixture
def signals_heard():
    """Let signals stop this process and those that a test starts, as in a terminal.

    What starts in the background (``make test &``) ignores SIGINT, and so do its children.
    """
    heard = {signal.SIGINT: signal.default_int_handler, signal.SIGTERM: signal.SIG_DFL}
    before = {number: signal.signal(number, handler) for number, handler in heard.items()}
    yield
    for number, handler in before.items():
        signal.signal(number, handler)


@pytest.fixture(scope="session", autouse=True)
def no_power_fails():
    """Files are not forced to the disk, which takes long: no test pulls the plug."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(os, "fsync", lambda descriptor: None)
        yield


def pytest_collection_finish():
    """Modules and tests stay to the end, so the collector of garbage looks at them no more, and seldom at the rest."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(20_000, 20, 20)


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(config, items):
    """Keep the ids of all tests, those too that options leave out."""
    config.collected = {item.nodeid for item in items}


@pytest.hookimpl(wrapper=True)
def pytest_runtest_call(item):
    """Compare what a test sees refused with the golden list."""
    with refusals.compared(item.nodeid, item.config._tmp_path_factory.getbasetemp()):
        return (yield)


def pytest_runtest_setup(item):
    """Tests that need a GPU are skipped without one."""
    if item.get_closest_marker("gpu"):
        import torch

        if not torch.cuda.is_available():
            pytest.skip("needs a CUDA device")
