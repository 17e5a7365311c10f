"""What an audit makes of given scores, frozen: ranks, lists, better captions, and what labels move."""

import hashlib
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from baselines.audit import find_wrong_pairs
from baselines.audit.judge import Judged

N = 80


def judged(*_: object, **__: object) -> Judged:
    random = np.random.default_rng(5)
    score = random.standard_normal(N).round(3)
    table = pd.DataFrame({"score": score, "probability": 1 / (1 + np.exp(3 - 2 * score))})
    table = table.assign(similarity=-score / 2, lemon=-score, reason="")
    better = np.where(random.random((N, 3)) < 0.8, random.integers(0, N, (N, 3)), -1)
    return Judged(table, 0.1, 0.05, 0.2, "By hand.", better)


def digest(values: pd.Series) -> str:
    return hashlib.sha256(values.to_csv(index=False, header=False).encode()).hexdigest()[:12]


@pytest.fixture
def given(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> dict[str, object]:
    monkeypatch.setattr("baselines.audit.judge.judge_embeddings", judged)
    names = [f"{row // 2}.jpg" for row in range(N)]
    table = pd.DataFrame({"image": names, "caption": [f"thing {row}" for row in range(N)]})
    table.to_csv(tmp_path / "captions.csv", index=False)
    images, captions = np.random.default_rng(0).standard_normal((2, N, 4))
    return {
        "pairs": tmp_path / "captions.csv",
        "image_embeddings": images,
        "caption_embeddings": captions,
        "to": tmp_path / "audit",
    }


def test_ranks_lists_and_better_captions(given: dict[str, object], tmp_path: Path) -> None:
    table = find_wrong_pairs(**given)
    assert table["rank"].tolist()[:8] == [58, 75, 42, 21, 7, 29, 52, 57]
    assert {name: digest(table[name]) for name in ("rank", "score", "better_1", "better_3")} == {
        "rank": "210490be9c0e",
        "score": "578732336f8b",
        "better_1": "e9c348e5424f",
        "better_3": "b1915cd1704b",
    }
    summary = table.attrs["summary"]
    numbers = ("wrong", "low", "high", "n_rows", "n_judged", "n_pictures", "n_suspects")
    assert [summary[name] for name in numbers] == [8, 4, 23, 80, 80, 80, 8]
    suspects = pd.read_csv(tmp_path / "audit" / "suspects.csv")["caption"].tolist()
    assert suspects == [f"thing {row}" for row in (4, 9, 13, 40, 56, 58, 64, 78)]
    assert len(pd.read_csv(tmp_path / "audit" / "clean.csv")) == N - len(suspects)


def test_two_labels(given: dict[str, object], tmp_path: Path) -> None:
    """The most suspicious pair fits, the least suspicious is wrong."""
    lines = "version,image_id,caption,label", "2,29.jpg,thing 58,matches", "2,21.jpg,thing 42,wrong"
    (tmp_path / "labels.csv").write_text("\n".join(lines))
    find_wrong_pairs(**given, labels=tmp_path / "labels.csv")
    suspects = pd.read_csv(tmp_path / "audit" / "suspects.csv")["caption"].tolist()
    assert suspects == [f"thing {row}" for row in (4, 9, 13, 40, 42, 56, 64, 78)]


def test_labels_need_no_second_judgement(given: dict[str, object], tmp_path: Path, monkeypatch) -> None:
    first = find_wrong_pairs(**given)
    monkeypatch.setattr("baselines.audit.judge.judge_embeddings", None)
    pd.testing.assert_frame_equal(find_wrong_pairs(**given), first)
