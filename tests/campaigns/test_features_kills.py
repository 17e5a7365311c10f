"""Kills at random moments while images become features: the resumed command ends with the bytes of the whole one."""

import hashlib
import os
import random
import subprocess
import sys
import time
from pathlib import Path

import pytest
from support.drawings import draw

KILLS = 10
IMAGES = 300


def command(photos: Path, to: Path) -> list[str]:
    options = ["--batch-size", "4", "--pca", "8", "--workers", "2"]
    return [sys.executable, "-m", "ncl_bench", "features", str(photos), *options, "--to", str(to)]


def contents(folder: Path) -> dict[str, str]:
    return {path.name: hashlib.sha256(path.read_bytes()).hexdigest() for path in folder.iterdir()}


@pytest.mark.slow
@pytest.mark.timeout(3600)
def test_random_kills_change_nothing(tmp_path: Path) -> None:
    draw(tmp_path / "photos", IMAGES)
    environment = os.environ | {"OMP_NUM_THREADS": "1"}
    subprocess.run(command(tmp_path / "photos", tmp_path / "whole"), check=True, env=environment)
    chance, killed = random.Random(0), 0
    while killed < KILLS:
        before = chunks(tmp_path)
        process = subprocess.Popen(command(tmp_path / "photos", tmp_path / "killed"), env=environment)
        while process.poll() is None and chunks(tmp_path) == before:
            time.sleep(0.02)
        time.sleep(chance.uniform(0, 1))
        if process.poll() is not None:
            break
        process.kill()
        process.wait()
        killed += 1
        assert not (tmp_path / "killed").exists()
    subprocess.run(command(tmp_path / "photos", tmp_path / "killed"), check=True, env=environment)
    assert killed > 1
    assert contents(tmp_path / "killed") == contents(tmp_path / "whole")
    print(f"{killed} kills, each after more chunks than the one before")


def chunks(folder: Path) -> int:
    return len(list((folder / ".killed.partial").glob("[0-9]*.npy")))
