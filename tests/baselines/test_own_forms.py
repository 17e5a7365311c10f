"""Every form of a user's pairs goes through every command, and each caption stays with its picture."""

import io
import re
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from PIL import Image
from support.drawings import drawing, tiny_encoder
from support.own_forms import FORMS, NAMES, TEXTS, N, photos
from typer.testing import CliRunner

import baselines.features
from baselines.audit.judge import Judged
from ncl_bench import load_dataset
from ncl_bench.cli import app
from ncl_bench.data import DATASETS

PAGE = Path(__file__).parents[2] / "docs" / "own-pairs.md"
WRONG = {3, 7}
"""Pictures whose captions the judge of these tests calls wrong."""


def judged(features: object, image_of: object, captions: list[str], **_: object) -> Judged:
    numbers = [int(text.rpartition(" ")[2]) for text in captions]
    score = np.array([10.0 + number if number in WRONG else -number for number in numbers])
    table = pd.DataFrame({"score": score, "probability": 1 / (1 + np.exp(-score))})
    table = table.assign(similarity=-score, lemon=-score, reason="")
    return Judged(table, len(WRONG) / N, 0.1, 0.3, "By hand.", np.full((len(score), 3), -1))


@pytest.fixture(autouse=True)
def small(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """A tiny encoder, a judge that knows, few pictures, and an empty folder and registry."""
    monkeypatch.setattr("baselines.encoders.load_encoder", lambda *_: tiny_encoder())
    monkeypatch.setattr("baselines.audit.judge.judge_pairs", judged)
    monkeypatch.setattr("baselines.audit.find.FEWEST", 2)
    monkeypatch.chdir(tmp_path)
    before = dict(DATASETS)
    yield
    DATASETS.clear()
    DATASETS.update(before)


def run(*arguments: object) -> str:
    result = CliRunner().invoke(app, [str(argument) for argument in arguments], catch_exceptions=False)
    assert result.exit_code == 0, result.output
    return result.stdout


def given(form: str, folder: Path) -> tuple[Path, list[object]]:
    source, images = FORMS[form](folder)
    return source, [] if images is None else ["--images", images]


def seen(name: str, root: str = "data") -> dict[str, np.ndarray]:
    """Caption to the features of its image, of all splits."""
    found = {}
    for split in ("train", "dev", "test"):
        data = load_dataset(name, split=split, root=root)
        for row, text in enumerate(data.captions):
            found[text] = data.image_features[np.array([data.caption_to_image[row]])][0]
    return found


@pytest.fixture(scope="module")
def right(tmp_path_factory: pytest.TempPathFactory) -> dict[str, np.ndarray]:
    """Caption to the features of its drawing, each encoded alone."""
    found = {}
    folder = photos(tmp_path_factory.mktemp("right"), NAMES)
    encoder = tiny_encoder()
    for name, text in zip(NAMES, TEXTS, strict=True):
        picture = baselines.features.read_picture(folder / name, encoder.size, encoder.interpolation)
        found[text] = baselines.features._features(encoder, [picture], 4)[0]
    return found


def assert_right(found: dict[str, np.ndarray], right: dict[str, np.ndarray], numbers: set[int]) -> None:
    assert set(found) == {TEXTS[number] for number in numbers}
    largest = max(np.abs(features).max() for features in right.values())
    for text, features in found.items():
        assert np.abs(features - right[text]).max() < 1e-2 * largest  # float16


@pytest.mark.parametrize("form", FORMS)
def test_all_commands_read_all_forms(
    form: str, tmp_path: Path, right: dict[str, np.ndarray], monkeypatch: pytest.MonkeyPatch
) -> None:
    source, images = given(form, tmp_path)
    run("audit", source, *images, "--to", "audit")
    pairs = pd.read_csv("audit/pairs.csv")
    assert pairs["left_out"].isna().all()
    assert len(pairs) == N
    draw = [] if "Karpathy" in form else ["--dev", 2, "--test", 2]
    run("features", source, *images, *draw, "--to", "features")
    run("datasets", "new", "own", source, *images, *draw, "--to", "data")
    assert_right(seen("own"), right, set(range(N)))
    run("datasets", "new", "two", "--features", "features", "--captions", source, *images, "--to", "data")
    assert {text: features.tolist() for text, features in seen("two").items()} == {
        text: features.tolist() for text, features in seen("own").items()
    }
    run("add-images", "own", "--from", source, *images, "--to", "data")
    test = load_dataset("own", split="test", root="data")
    for row, text in enumerate(test.captions):
        picture = Image.open(io.BytesIO(test.images[test.caption_to_image[row]]))
        number = int(text.rpartition(" ")[2])
        np.testing.assert_array_equal(np.asarray(picture), np.asarray(drawing(number)))
    monkeypatch.setattr(baselines.features, "read_picture", None)  # no picture is encoded again
    run("datasets", "new", "cleaned", "--clean", "audit", *draw, "--to", "data")
    assert_right(seen("cleaned"), right, set(range(N)) - WRONG)


def test_the_table_of_the_page_is_that_of_the_test() -> None:
    rows = re.findall(r"^\| (.+?) \| yes \| yes \| yes \| yes \|$", PAGE.read_text("utf-8"), re.MULTILINE)
    assert rows == list(FORMS)
