"""``python -m baselines.benchmark`` on a CPU: never slower than the papers' loops, less memory, no method too dear.

pytest tests/benchmarks/bench_baselines.py -m benchmark -s
"""

import json
from pathlib import Path

import pytest

from baselines.benchmark.__main__ import main
from baselines.benchmark.measure import AGAINST_LOOP

pytestmark = [pytest.mark.benchmark, pytest.mark.timeout(3600)]


def test_blocks_are_no_slower_and_no_larger_than_the_loop(tmp_path: Path) -> None:
    assert main(["--device", "cpu", "--to", str(tmp_path / "result.json")]) == 0
    content = json.loads((tmp_path / "result.json").read_text())
    rows = content["rows"]
    compared = [row for row in rows if row["group"] == AGAINST_LOOP]
    assert len(compared) == 16
    assert sum(row["peak_mebibytes"] is not None for row in compared) == 12
    for row in compared:
        assert row["ratio"] >= 1 / 1.1, row["workload"]  # the rest is noise
        if row["peak_mebibytes"] is not None:
            loop, blocks = row["peak_mebibytes"]
            assert blocks < loop, row["workload"]
    for each in content["step_costs"]:
        assert each["cost"] <= 1.1 * each["allowed"], each["method"]
