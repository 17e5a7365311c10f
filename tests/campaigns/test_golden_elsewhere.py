"""The comparisons with golden numbers on processors with fewer instructions."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = [pytest.mark.slow, pytest.mark.timeout(1200)]

TESTS = Path(__file__).parents[1]
BACKBONES, METHODS = ("backbones", "parity", "sgraf", "vse_infinity"), ("ncr", "crcl", "gsc", "pc2")
COMPARISONS = [
    str(next(TESTS.rglob(f"test_{name}.py")))
    for name in (*BACKBONES, *METHODS, "mixture", "losses", "metrics", "noise")
]


def compare(**environment: str) -> None:
    """Run the comparisons in a process of their own; none may be skipped."""
    command = [sys.executable, "-m", "pytest", "-rs", "-m", "not gpu and not slow", "-p", "no:cacheprovider"]
    whole = os.environ | environment
    run = subprocess.run([*command, *COMPARISONS], env=whole, capture_output=True, text=True)
    assert run.returncode == 0, run.stdout
    assert "SKIPPED" not in run.stdout


@pytest.mark.parametrize("instructions", ["avx2", "default"])
def test_comparisons_hold_with_fewer_instructions(instructions: str) -> None:
    """Rounding depends on the order of sums, and that on the width of a processor's registers."""
    compare(ATEN_CPU_CAPABILITY=instructions, MKL_ENABLE_INSTRUCTIONS="AVX2", ONEDNN_MAX_CPU_ISA="AVX2")
