"""What macOS and Windows lack is done without."""

import os
import sys
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

import ncl_bench
from ncl_bench.evaluation.evaluate import peak_memory_mb


@pytest.fixture
def no_proc(monkeypatch):
    def missing(self, *arguments, **options):
        raise FileNotFoundError(self)

    monkeypatch.setattr(Path, "read_text", missing)


@pytest.mark.usefixtures("no_proc")
@pytest.mark.parametrize(("platform", "peak"), [("darwin", 2.0), ("freebsd", 2048.0)])
def test_peak_memory_is_counted_in_the_unit_of_the_system(monkeypatch, platform, peak):
    monkeypatch.setattr(sys, "platform", platform)
    counted = SimpleNamespace(RUSAGE_SELF=0, getrusage=lambda who: SimpleNamespace(ru_maxrss=2 * 2**20))
    monkeypatch.setitem(sys.modules, "resource", counted)
    assert peak_memory_mb() == peak


@pytest.mark.usefixtures("no_proc")
def test_peak_memory_is_unknown_where_the_system_does_not_say(monkeypatch):
    monkeypatch.setattr(sys, "platform", "win32")
    assert peak_memory_mb() is None


def test_scores_are_evaluated_where_a_process_has_no_affinity(monkeypatch):
    monkeypatch.delattr(os, "sched_getaffinity", raising=False)
    assert ncl_bench.evaluate(np.zeros((200, 1000), np.float32), dataset="digits").r_sum == 0.0
