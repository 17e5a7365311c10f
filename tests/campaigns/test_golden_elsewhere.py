"""The comparisons with golden numbers, on files of other sizes and on processors with fewer instructions."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = [pytest.mark.slow, pytest.mark.timeout(1200)]

TESTS = Path(__file__).parents[1]
BACKBONES, METHODS = ("backbones", "sgraf_parity", "vse_infinity"), ("ncr", "crcl", "gsc", "pc2")
COMPARISONS = [
    str(next(TESTS.rglob(f"test_{name}.py")))
    for name in (*BACKBONES, *METHODS, "mixture", "losses", "metrics", "noise")
]


def compare(**environment: str) -> None:
    """Run the comparisons in a process of their own; none may be skipped."""
    command = [sys.executable, "-m", "pytest", "-rs", "-m", "not gpu and not slow", "-p", "no:cacheprovider"]
    run = subprocess.run(
        [*command, *COMPARISONS], env=os.environ | environment, capture_output=True, text=True
    )
    assert run.returncode == 0, run.stdout
    assert "SKIPPED" not in run.stdout


def test_no_comparison_carries_the_sizes_of_the_files(tmp_path: Path) -> None:
    """Groups A to H are made with other sizes; what else a comparison opens is the file of tests/golden."""
    for file in (TESTS / "golden").glob("[I-Z]_*.npz"):
        shutil.copy(file, tmp_path)
    command = [sys.executable, str(TESTS / "support" / "golden_of_other_sizes.py"), str(tmp_path)]
    folders = os.pathsep.join(
        map(str, (TESTS, TESTS / "baselines" / "methods", TESTS / "baselines" / "backbones"))
    )
    subprocess.run(command, check=True, env=os.environ | {"PYTHONPATH": folders})
    compare(NCL_GOLDEN_DIR=str(tmp_path))


@pytest.mark.parametrize("instructions", ["avx2", "default"])
def test_comparisons_hold_with_fewer_instructions(instructions: str) -> None:
    """Rounding depends on the order of sums, and that on the width of a processor's registers."""
    compare(ATEN_CPU_CAPABILITY=instructions, MKL_ENABLE_INSTRUCTIONS="AVX2", ONEDNN_MAX_CPU_ISA="AVX2")
