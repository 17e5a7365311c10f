"""The benchmark of large training sets, on tiny ones: what it trains, what it counts, what its table says."""

import mmap
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from baselines.benchmark import million
from baselines.benchmark.million import Found, Peaks, SetCost, markdown, read_costs
from baselines.benchmark.report import FOLDER
from ncl_bench.data import DATASETS

MEBIBYTE = 2**20


class InThisProcess:
    """In place of a process for each training, which would import torch again."""

    def __init__(self, *_: object) -> None: ...

    def __enter__(self) -> "InThisProcess":
        return self

    def __exit__(self, *_: object) -> None: ...

    def submit(self, function: Callable[..., Any], *arguments: Any) -> SimpleNamespace:
        found = function(*arguments)
        return SimpleNamespace(result=lambda: found)


@pytest.fixture
def tiny(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setattr(million, "ProcessPoolExecutor", InThisProcess)
    monkeypatch.setattr(million, "WARM_PAIRS", 130)
    known = dict(DATASETS)
    yield
    for name in DATASETS.keys() - known.keys():
        del DATASETS[name]


@pytest.mark.usefixtures("tiny")
def test_each_set_is_trained_on_and_stands_beside_the_smallest(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    target = tmp_path / "result.json"
    sizes = ["--pairs", "600", "--pairs", "300", "--rounds", "2", "--to", str(target)]
    assert million.main(sizes) == 0
    said = capsys.readouterr()
    assert "round 2 of 2: 600 pairs" in said.err
    first, second = read_costs(target)["sets"]
    assert (first.method, first.pairs, second.pairs) == ("InfoNCE", 300, 600)
    assert (first.training, first.opening, first.spread, first.rounds) == (1, 1, (1, 1), 2)
    assert 0 < second.spread[0] <= second.training <= second.spread[1]
    assert said.out == target.with_suffix(".md").read_text()
    assert million.main(["--table", str(target)]) == 0
    assert capsys.readouterr().out == said.out
    assert million.main(["--method", "ncr", "--pairs", "300", "--rounds", "1", "--to", str(target)]) == 0
    assert [(each.method, each.pairs) for each in read_costs(target)["sets"]] == [
        ("InfoNCE", 300), ("InfoNCE", 600), ("NCR", 300),
    ]  # fmt: skip


def test_ratios_are_per_pair_and_of_one_round() -> None:
    found = {
        100: [Found(1.0, 0.5, 2.0, 10.0), Found(1.5, 0.4, 2.0, 20.0)],
        400: [Found(3.0, 1.0, 4.0, 44.0), Found(2.0, 2.0, 4.0, 80.0)],
    }
    assert million._costs("M", found) == [
        SetCost("M", 100, 1.5, 0.5, 1.0, 1.0, (1.0, 1.0), 2),
        SetCost("M", 400, 3.0, 2.0, 0.5, 1.05, (1.0, 1.1), 2),
    ]
    table = markdown({"device": "A", "torch": "2", "sets": million._costs("M", found)})
    grown = 2**20 * (3.0 - 1.5) / 300
    assert f"| M | 400 | 3 | {grown:.0f} | 2 | 1.05 | 1.00 to 1.10 of 2 | 0.50 |" in table


def test_pages_of_a_mapped_file_are_told_from_memory_of_its_own(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(bytes(40 * MEBIBYTE))
    before, own, mapped = Peaks(), Peaks(), Peaks()
    before.look()
    kept = mmap.mmap(
        -1, 30 * MEBIBYTE, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS
    )  # not what was freed before
    kept.write(bytes(MEBIBYTE) * 30)
    own.look()
    with (tmp_path / "file").open("rb") as file:
        pages = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
    assert not np.frombuffer(pages, np.uint8).any()
    mapped.look()
    assert own.anonymous - before.anonymous > 29
    assert mapped.mapped - before.mapped > 39
    assert mapped.anonymous - own.anonymous < 5
    kept.close()


def test_what_happens_between_two_looks_is_watched() -> None:
    peaks = Peaks()
    with peaks.watched():
        while peaks.anonymous == 0:
            pass


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (["--method", "nrc"], "unknown method 'nrc'"),
        (["--pairs", "64"], "--pairs is at least 128"),
        (["--rounds", "0"], "--rounds at least 1"),
        (["--table", "absent.json"], "absent.json is no result of python -m baselines.benchmark.million"),
    ],
)
def test_mistakes_are_one_sentence(
    arguments: list[str], sentence: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert million.main(arguments) == 2
    assert sentence in capsys.readouterr().err


SHIPPED = sorted((FOLDER / "million").glob("*.json"))


@pytest.mark.parametrize("path", SHIPPED, ids=lambda path: path.stem)
def test_shipped_results_are_tables(path: Path) -> None:
    table = markdown(read_costs(path))
    assert path.with_suffix(".md").read_text(encoding="utf-8") == table


def test_the_page_shows_a_shipped_result() -> None:
    page = (FOLDER.parents[1] / "docs" / "large-sets.md").read_text(encoding="utf-8")
    assert any(markdown(read_costs(path)) in page for path in SHIPPED)


def test_no_set_takes_more_per_pair_than_the_page_says() -> None:
    for path in SHIPPED:
        costs = read_costs(path)["sets"]
        first = costs[0]
        for each in costs:
            if each.method == first.method and each.pairs > first.pairs:
                grown = 2**20 * (each.anonymous - first.anonymous) / (each.pairs - first.pairs)
                assert grown < 64, (path, each.pairs)
                assert each.training < 1.25, (path, each.pairs)
