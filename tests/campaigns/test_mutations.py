"""Fifty seeded mutations of each kind of file: a sentence, the same result, or another one, and never anything else.

``pytest -m slow -s tests/campaigns/test_mutations.py`` prints what SECURITY.md states.
"""

import collections
import hashlib
import random
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from support import miniatures
from support.submission_folders import similarities, write_folder

from ncl_bench import load_dataset
from ncl_bench.data import DATASETS
from ncl_bench.data.pairs.columns import read_pairs
from ncl_bench.data.prepare import prepare
from ncl_bench.data.prepared import damage
from ncl_bench.errors import DataError, NclBenchError
from ncl_bench.evaluation.evaluate import evaluate_submission, open_submission
from ncl_bench.evaluation.scores import read_array

MUTATIONS = 50
LIMIT = 30
"""Seconds after which a reader hangs."""
WORDS = (
    b"\x00",
    b"\xff",
    b'"',
    b"\n",
    b",",
    b"\t",
    b"{",
    b"[",
    b"9" * 400,
    b"-1",
    b"nan",
    b"1e999",
    b"../",
    b"\xef\xbb\xbf",
)
ROOT = Path(__file__).parents[2]


def mutated(content: bytes, chance: random.Random) -> bytes:
    """One edit of a file: a flipped bit, a cut, bytes that go, come, or come twice."""
    place, length = chance.randrange(len(content)), chance.randint(1, 40)
    before, after = content[:place], content[place:]
    edits = (
        lambda: before + bytes([after[0] ^ 1 << chance.randrange(8)]) + after[1:],
        lambda: before,
        lambda: before + after[length:],
        lambda: before + chance.choice(WORDS) + after,
        lambda: before + after[:length] + after,
    )
    return chance.choice(edits)()


def pairs(path: Path) -> object:
    return read_pairs(path).sha256()


def scores(path: Path) -> object:
    array = read_array(path)
    return hashlib.sha256(np.ascontiguousarray(array).tobytes()).hexdigest(), array.shape


def submission(path: Path) -> object:
    opened = open_submission(path.parent)
    result, _ = evaluate_submission(opened)
    return str(result.splits)


def dataset(path: Path) -> object:
    folder = next(each for each in path.parents if each.name == "flickr30k")
    train = load_dataset("flickr30k", split="train", root=folder.parent)
    for fault in damage(folder):
        raise DataError(fault)
    return np.asarray(train.image_features[:]).tobytes(), train.captions.tolist()


def make_table(folder: Path, ending: str) -> list[Path]:
    frame = pd.DataFrame(
        {"image": [f"{n}.jpg" for n in range(40)], "caption": [f"dog {n} runs" for n in range(40)]}
    )
    path = folder / f"a{ending}"
    if ending == ".csv":
        frame.to_csv(path, index=False)
    elif ending == ".jsonl":
        frame.to_json(path, orient="records", lines=True)
    else:
        frame.to_parquet(path)
    return [path]


def make_scores(folder: Path) -> list[Path]:
    np.save(folder / "a.npy", similarities())
    return [folder / "a.npy"]


def make_prepared(folder: Path) -> list[Path]:
    made = prepare("flickr30k", miniatures.make_scan(folder / "from", "flickr30k"), folder / "data")
    return sorted(path for path in made.rglob("*") if path.is_file() and path.stat().st_size)


KINDS: dict[str, tuple[Callable[[Path], list[Path]], Callable[[Path], object]]] = {
    "csv": (lambda folder: make_table(folder, ".csv"), pairs),
    "jsonl": (lambda folder: make_table(folder, ".jsonl"), pairs),
    "parquet": (lambda folder: make_table(folder, ".parquet"), pairs),
    "npy": (make_scores, scores),
    "submission.yaml": (lambda folder: [write_folder(folder / "submission") / "submission.yaml"], submission),
    "prepared folder": (make_prepared, dataset),
}


def outcomes(kind: str, folder: Path, mutations: int) -> collections.Counter[str]:
    """How many mutations were read alike, refused in a sentence, or read as something else."""
    make, read = KINDS[kind]
    files, chance, found = make(folder), random.Random(kind), collections.Counter[str]()
    expected = read(files[0])
    for _ in range(mutations):
        path = chance.choice(files)
        whole, start = path.read_bytes(), time.monotonic()
        path.write_bytes(mutated(whole, chance))
        try:
            found["the same" if read(path) == expected else "another result"] += 1
        except NclBenchError:
            found["a sentence"] += 1
        finally:
            assert time.monotonic() - start < LIMIT
            path.write_bytes(whole)
    assert read(files[0]) == expected
    return found


@pytest.fixture(autouse=True)
def _miniatures(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(DATASETS.data, "flickr30k", miniatures.SPECS["flickr30k"])


@pytest.mark.slow
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("kind", KINDS)
def test_mutated_files_are_read_or_refused_as_the_page_states(kind: str, tmp_path: Path) -> None:
    found = outcomes(kind, tmp_path, MUTATIONS)
    line = f"| {kind} | {found['a sentence']} | {found['the same']} | {found['another result']} |"
    print(line)
    assert line in (ROOT / "SECURITY.md").read_text(encoding="utf-8")


@pytest.mark.parametrize("kind", ["csv", "submission.yaml"])
def test_a_few_mutated_files_are_read_or_refused(kind: str, tmp_path: Path) -> None:
    assert outcomes(kind, tmp_path, 5).total() == 5
