"""The same inputs give the same bytes whatever the hash seed, locale and time zone.

Evaluation, noise, preparation and leaderboard also give them with one thread and with two. Training promises them
for one number of threads on one machine, since the order of a sum depends on how it is shared out.
"""

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from campaigns.faults.warm import TESTS

USUAL = {"PYTHONHASHSEED": "0", "LC_ALL": "C.UTF-8", "TZ": "UTC", "OMP_NUM_THREADS": "1"}
CHINESE = {
    "PYTHONHASHSEED": "4321",
    "PYTHONUTF8": "0",
    "LC_ALL": "zh_CN.GB18030",
    "TZ": "Asia/Shanghai",
    "OMP_NUM_THREADS": "1",
}
"""Names of files, the terminal and files opened without an encoding are GB18030 there."""
PLAIN = {
    "PYTHONHASHSEED": "77",
    "LC_ALL": "C",
    "TZ": "America/St_Johns",
    "OMP_NUM_THREADS": "2",
}


def written(folder: Path, environment: dict[str, str], *options: str) -> dict[str, str]:
    command = [sys.executable, str(TESTS / "campaigns" / "faults" / "surroundings.py"), str(folder), *options]
    inherited = {name: value for name, value in os.environ.items() if not name.startswith(("LC_", "LANG"))}
    done = subprocess.run(
        command,
        capture_output=True,
        text=True,
        encoding="utf-8",
        env=inherited | environment | {"PYTHONPATH": str(TESTS.parent)},
    )
    assert done.returncode == 0, done.stderr
    found: dict[str, str] = json.loads(done.stdout)
    return found


def test_surroundings_change_no_byte(tmp_path: Path) -> None:
    usual = written(tmp_path / "usual", USUAL)
    assert "submissions/éа/result.json" in usual
    assert written(tmp_path / "plain", PLAIN) == usual


@pytest.fixture
def locales(tmp_path: Path) -> Path:
    """A folder with the Chinese locale, which few systems carry."""
    folder = tmp_path / "locales"
    folder.mkdir()
    name = CHINESE["LC_ALL"]
    command = ["localedef", "-i", "zh_CN", "-f", "GB18030", str(folder / name)]
    if shutil.which("localedef") is None or subprocess.run(command, capture_output=True).returncode:
        pytest.skip(f"this system cannot make {name}")
    asked = [sys.executable, "-c", "import sys; print(sys.getfilesystemencoding())"]
    environment = os.environ | CHINESE | {"LOCPATH": str(folder)}
    assert subprocess.check_output(asked, env=environment, text=True).strip() == "gb18030"
    return folder


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_a_chinese_locale_changes_no_byte_of_any_command(locales: Path, tmp_path: Path) -> None:
    usual = written(tmp_path / "usual", USUAL, "all")
    assert written(tmp_path / "other", CHINESE | {"LOCPATH": str(locales)}, "all") == usual


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_the_plain_locale_changes_no_byte_of_any_command(tmp_path: Path) -> None:
    usual = written(tmp_path / "usual", USUAL, "all")
    assert "runs/ä/best.safetensors" in usual
    assert written(tmp_path / "other", {**PLAIN, "OMP_NUM_THREADS": "1"}, "all") == usual
