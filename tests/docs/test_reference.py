"""The API reference names what there is, and the picture of the noise units is current."""

import re
import subprocess
import sys
from pkgutil import resolve_name
from xml.etree import ElementTree

import pytest
from pages import ROOT

import baselines
import ncl_bench

PAGE = (ROOT / "docs" / "reference.md").read_text("utf-8")
NAMES = re.findall(r"^::: ([\w.]+)$", PAGE, re.MULTILINE)


@pytest.mark.parametrize("name", NAMES)
def test_every_name_of_the_reference_exists_and_is_documented(name):
    assert resolve_name(name).__doc__


def test_the_reference_holds_all_public_names():
    assert {f"ncl_bench.{name}" for name in ncl_bench.__all__} <= set(NAMES)
    assert {f"baselines.{name}" for name in baselines.__all__} <= set(NAMES)
    contract = ("Method", "Batch", "Backbone", "Step", "EpochPlan", "Setting", "PairMemory")
    assert {f"baselines.kit.{name}" for name in contract} <= set(NAMES)


def test_the_pictures_of_the_noise_units_are_current():
    command = [sys.executable, ROOT / "docs" / "make_pictures.py", "--check"]
    result = subprocess.run(command, capture_output=True, text=True, cwd=ROOT)
    assert result.returncode == 0, result.stdout + result.stderr
    picture = ElementTree.parse(ROOT / "docs" / "noise_units.svg").getroot()
    assert picture.get("aria-label", "").startswith("Synthetic noise at 40%")
    assert len(picture.findall(".//{*}rect")) == 1 + 3 * 10 * 5
