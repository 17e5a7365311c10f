"""The quickstart's path from noise to leaderboard, with two tiny networks in place of its own (two processes)."""

from pathlib import Path

import pytest
import yaml

from baselines import quickstart
from ncl_bench.submission import read_submission

TINY = {
    "dataset": "digits",
    "batch_size": 500,
    "backbone": {"name": "vse_infinity", "embed_size": 8, "word_dim": 8},
}
METHODS = {"ncr": {"warmup_epochs": 1, "epochs": 1}, "triplet": {"epochs": 1}}


@pytest.mark.slow
def test_it_ends_in_a_leaderboard(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    recipes = [tmp_path / "recipes" / name / "tiny.yaml" for name in METHODS]
    for path in recipes:
        path.parent.mkdir(parents=True)
        method = {"name": path.parent.name, **METHODS[path.parent.name]}
        path.write_text(yaml.safe_dump(TINY | {"method": method}))
    monkeypatch.setattr(quickstart, "RECIPES", [str(path) for path in recipes])
    monkeypatch.setattr(quickstart, "NOISES", ("caption-60",))  # one ratio, so no curve
    folder = tmp_path / "quickstart"
    quickstart.quickstart(folder, "cpu")
    rows = list((folder / "leaderboard" / "submissions" / "digits").glob("*.yaml"))
    assert len(rows) == 2
    page = (folder / "leaderboard" / "site" / "index.html").read_text(encoding="utf-8")
    for submission in (folder / "submissions").iterdir():
        stated = read_submission(submission)
        assert stated.noise.ratio == 0.6
        assert stated.method in page
    assert capfd.readouterr().err.count("rSum") == 2
