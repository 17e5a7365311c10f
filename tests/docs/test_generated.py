"""Pages and pictures that are made from the code are current, and say what they should."""

import subprocess
import sys
from pathlib import Path
from xml.etree import ElementTree

import pytest
from pages import ROOT

import ncl_bench

SCRIPTS = {
    "make_api.py": "api.md",
    "make_noise_picture.py": "noise_units.svg",
    "make_architecture_picture.py": "architecture.svg",
}


def run(folder: Path, script: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, str(folder / script), *arguments]
    return subprocess.run(command, capture_output=True, text=True, cwd=folder.parent)


@pytest.mark.parametrize("script", SCRIPTS)
def test_what_is_committed_is_current(script: str) -> None:
    result = run(ROOT / "docs", script, "--check")
    assert result.returncode == 0, result.stdout + result.stderr


def test_a_picture_drawn_elsewhere_has_the_same_bytes_and_a_stale_one_is_found(tmp_path: Path) -> None:
    script = "make_noise_picture.py"
    (tmp_path / script).write_bytes((ROOT / "docs" / script).read_bytes())
    assert run(tmp_path, script).returncode == 0
    drawn = tmp_path / SCRIPTS[script]
    assert drawn.read_bytes() == (ROOT / "docs" / SCRIPTS[script]).read_bytes()
    drawn.write_text(drawn.read_text().replace("18 of 50", "20 of 50"))
    assert run(tmp_path, script, "--check").returncode == 1


def test_the_picture_is_well_formed_and_says_what_it_shows() -> None:
    picture = ElementTree.parse(ROOT / "docs" / "noise_units.svg").getroot()
    assert picture.get("aria-label", "").startswith("Synthetic noise at 40%")
    assert len(picture.findall(".//{*}rect")) == 1 + 2 * 10 * 5


def test_the_reference_covers_the_public_names_and_the_contract_of_a_method() -> None:
    page = (ROOT / "docs" / "api.md").read_text(encoding="utf-8")
    contract = ("Method", "Batch", "Backbone", "Step", "EpochPlan", "Setting", "PairMemory")
    for name in (*ncl_bench.__all__, *contract):
        assert f"\n### {name}\n" in page
    assert "- `forget_best`: the best dev score so far no longer counts." in page
    assert "``" not in page.replace("```", "")
