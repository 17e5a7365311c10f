"""From the downloads to the page of the papers' tables: every dataset, both noise units, means of runs, and a kill."""

import csv
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from support import flickr8k_miniature, forked, miniatures
from support.few_digits import InThisProcess
from typer.testing import CliRunner

from ncl_bench.cli import app
from ncl_bench.data import DATASETS
from ncl_bench.evaluation import protocol
from ncl_bench.evaluation.submission import read_submission
from ncl_bench.noise.draw import clean_pairing, inject_noise

pytestmark = [pytest.mark.slow, pytest.mark.timeout(3600)]

IMAGES = {"train": 40, "dev": 10, "test": 15}
TINY = "--set steps=25 --set batch_size=20 --set backbone.embed_size=8 --set backbone.word_dim=4 --device cpu"
SWEEPS = {
    "flickr30k": "crcl/flickr30k_sgr crcl/flickr30k_saf --noise caption-40 --seed 0 --seed 1",
    "flickr30k_image": "rcl/flickr30k_sgr rcl/flickr30k_saf --noise image-40 --seed 0 --noise-files files",
    "coco": "ncr --noise none --seed 0",
    "cc152k": "triplet/cc152k_vse_infinity --seed 0",
    "now": "pc2/now_sgr_bpe --seed 0",
    "flickr8k": "info_nce --noise caption-60 --seed 0",
}
"""What each table is narrowed to."""


def miniature(patch: pytest.MonkeyPatch) -> None:
    """Make every dataset small, MS-COCO's folds too, and train in this process."""
    specs = miniatures.SPECS | {"flickr8k": flickr8k_miniature.SPEC}
    for name, spec in specs.items():
        small = replace(spec, images=IMAGES, labels={})  # no more matches of drawn images
        patch.setitem(DATASETS.data, name, small)
    for module in (miniatures, flickr8k_miniature):
        patch.setattr(module, "IMAGES", IMAGES)
    patch.setitem(protocol.IMAGES_PER_FOLD, "5fold-1k", IMAGES["test"] // 5)
    patch.setattr("baselines.training.sweep.worker_pool", InThisProcess)


def command(line: str) -> str:
    """Run a command of `ncl-bench` in this process and return what it prints."""
    found = CliRunner().invoke(app, line.split(), env={"COLUMNS": "200"})
    assert found.exit_code == 0, (line, found.exception)
    return found.output


def swept(table: str, to: str) -> str:
    """Train, score and evaluate a part of a table."""
    return command(f"sweep {SWEEPS[table]} --table {table} --root data --to {to} {TINY}")


def sweep_that_is_killed(folder: Path) -> None:
    """Sweep in a process of its own."""
    with pytest.MonkeyPatch.context() as patch:
        miniature(patch)
        patch.chdir(folder)
        swept("flickr30k", "rows")


def test_the_papers_tables_from_downloads_to_a_page(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    miniature(monkeypatch)
    monkeypatch.chdir(tmp_path)
    for name in miniatures.SPECS:
        miniatures.make(tmp_path / name, name)
    flickr8k_miniature.make(tmp_path / "flickr8k")
    for name in (*miniatures.SPECS, "flickr8k"):
        command(f"prepare {name} --from {name} --to data")
    images = inject_noise(
        clean_pairing(IMAGES["train"], 1), noise_ratio=0.4, noise_unit="caption", seed=5, captions_per_image=1
    )
    (tmp_path / "files").mkdir()
    np.save(tmp_path / "files" / "0.4_noise_index.npy", images)

    job = forked.process(sweep_that_is_killed, tmp_path)
    job.start()
    while not list(tmp_path.glob("rows/runs/*/history.json")) and job.is_alive():
        job.join(0.05)
    job.kill()
    job.join()
    shown = {"flickr30k": swept("flickr30k", "rows")}
    resumed = Path("rows/table.csv").read_text()
    swept("flickr30k", "whole")
    assert resumed == Path("whole/table.csv").read_text()
    means = {row["recipe"].split(" steps=")[0]: row for row in csv.DictReader(resumed.splitlines())}
    mean = means["crcl/flickr30k_sgr + crcl/flickr30k_saf"]
    assert (mean["seeds"], mean["printed"], mean["paper"]) == ("2", "505.2", "CRCL, NeurIPS 2023; Table 1")
    assert mean["stds_apart"]
    assert len(means) == 3

    rows = list(means.values())
    for table in list(SWEEPS)[1:]:
        shown[table] = swept(table, "rows")
        before = len(rows)
        with open("rows/table.csv", encoding="utf-8", newline="") as stream:
            rows = list(csv.DictReader(stream))
        assert len(rows) > before  # those of earlier sweeps stay
        # one seed has no deviation
        assert all(bool(row["stds_apart"]) == (row["seeds"] > "1" and bool(row["printed"])) for row in rows)
        assert all(row["printed"] for row in rows) == (table != "flickr8k")
    assert all(("printed" in text) == (table != "flickr8k") for table, text in shown.items())

    submissions = {path.name: read_submission(path) for path in Path("rows/submissions").iterdir()}
    assert {each.dataset for each in submissions.values()} == {*miniatures.SPECS, "flickr8k"}
    assert submissions["crcl-flickr30k_sgr+crcl-flickr30k_saf-caption-40-seed0"].networks == 2
    drawn, given = (
        submissions[name].noise
        for name in ("crcl-flickr30k_sgr-caption-40-seed0", "rcl-flickr30k_sgr-image-40-seed0")
    )
    assert (drawn.unit, drawn.ratio, drawn.seed is None) == ("caption", 0.4, False)
    assert (given.unit, given.ratio, given.seed) == ("image", 0.4, None)

    command("leaderboard add --root board " + " ".join(f"rows/submissions/{name}" for name in submissions))
    command("leaderboard build --root board --to board/site --tables --no-published")
    board = "".join(path.read_text(encoding="utf-8") for path in Path("board/site").rglob("*.html"))
    for method in ("CRCL", "RCL", "NCR", "PC2", "InfoNCE"):
        assert method in board
    assert "SGRAF" in board
