"""The hint that names an extra leads to where ncl_bench came from; the project need not be on a package index."""

import json
import sys
from importlib.metadata import PackageNotFoundError
from pathlib import Path
from types import SimpleNamespace

import pytest
from support import miniatures
from support.processes import python
from support.refusals import refused

from leaderboard import load_results
from ncl_bench import extras, load_dataset, prepare
from ncl_bench.data import DATASETS
from ncl_bench.data.tokenizers import _jieba, train_bpe

ROOT = Path(__file__).parents[2]


@pytest.mark.parametrize(
    ("origin", "command"),
    [
        (
            {"url": "file:///home/ada/ncl%20bench", "dir_info": {"editable": True}},
            f"--editable '{Path('/home/ada/ncl bench')}[docs]'",
        ),
        ({"url": "file:///home/ada/ncl_bench", "dir_info": {}}, f"'{Path('/home/ada/ncl_bench')}[docs]'"),
        (
            {"url": "file:///tmp/ncl_bench-1-py3-none-any.whl", "archive_info": {}},
            f"'{Path('/tmp/ncl_bench-1-py3-none-any.whl')}[docs]'",
        ),
        (
            {"url": "https://forge.example/ncl_bench.git", "vcs_info": {"vcs": "git", "commit_id": "abc"}},
            "'ncl-bench[docs] @ git+https://forge.example/ncl_bench.git@abc'",
        ),
        (
            {"url": "https://files.example/n.whl", "archive_info": {}},
            "'ncl-bench[docs] @ https://files.example/n.whl'",
        ),
        (None, "'ncl-bench[docs]'"),
    ],
    ids=["editable", "folder", "wheel", "git", "address", "index"],
)
def test_an_extra_comes_from_where_the_package_came_from(origin, command, monkeypatch):
    """An installation from a folder or a wheel was sent to an index that may not have the project."""
    record = None if origin is None else json.dumps(origin)
    monkeypatch.setattr(
        "importlib.metadata.distribution", lambda _: SimpleNamespace(read_text=lambda _: record)
    )
    assert extras.install_command("docs") == f"pip install {command}"


def test_sources_that_were_never_installed_are_installed_in_place(monkeypatch):
    def missing(name):
        raise PackageNotFoundError(name)

    monkeypatch.setattr("importlib.metadata.distribution", missing)
    assert extras.install_command("docs") == f"pip install --editable '{ROOT}[docs]'"


def test_a_command_that_trains_names_the_extra_it_needs(run, monkeypatch, tmp_path):
    monkeypatch.setitem(sys.modules, "torch", None)
    for module in [
        name for name in sys.modules if name.startswith(("baselines.kit.", "baselines.training."))
    ]:
        monkeypatch.delitem(sys.modules, module)
    run("train", "ncr/digits_vse_infinity", "--to", tmp_path / "run").assert_refused()
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize("command", ["audit captions.csv --images x", "features photos"])
def test_a_command_on_pictures_names_the_one_extra_that_brings_all(command, run, monkeypatch, tmp_path):
    monkeypatch.setitem(sys.modules, "torch", None)
    run(*command.split(), "--to", tmp_path / "to").assert_refused()


WITHOUT = """
import sys
from importlib.machinery import PathFinder
from pathlib import Path
import numpy as np
OTHERS = "datasets huggingface_hub jieba tokenizers torch jinja2 matplotlib pandas pyarrow sklearn joblib".split()
class Without(PathFinder):
    @classmethod
    def find_spec(cls, name, path=None, target=None):
        return None if name.partition(".")[0] in OTHERS else super().find_spec(name, path, target)
sys.meta_path = [Without if each is PathFinder else each for each in sys.meta_path]
import baselines
import ncl_bench
from support import miniatures
from ncl_bench.data.prepared import load_prepared
train = load_prepared(Path({root!r}), miniatures.SPECS["flickr30k"], "train")
assert len(train.read([3, 1]).caption_tokens) == 2 and "no synthetic noise" in repr(train)
digits = ncl_bench.load_dataset("digits", noise_ratio=0.4)
assert len(digits) == 10_000 and "<td>10,000</td>" in digits._repr_html_()
scores = np.eye(1000, dtype=np.float32).repeat(5, axis=1)
result = ncl_bench.evaluate(scores, dataset="flickr30k")
assert result.r_sum == 600 and "600.0" in str(result) and "<td>600.0 (" in result._repr_html_()
needs = {{
    "to_pandas needs pandas": result.to_pandas,
    "a table of images and captions needs pandas": lambda: ncl_bench.new_dataset("x", "x.csv", to="x"),
    "column caption of a prepared dataset needs pyarrow": lambda: train.captions[3],
    "column image_id of a prepared dataset needs pyarrow": lambda: list(train.image_ids),
    "to_torch needs torch": digits.to_torch,
    "train needs torch": lambda: baselines.train("ncr/digits_vse_infinity", to="x"),
    "find_wrong_pairs needs pandas": lambda: baselines.find_wrong_pairs("x.csv", to="x"),
}}
for words, call in needs.items():
    extra = "[baselines]" if "torch" in words or "find_wrong" in words else "[data]"
    try:
        call()
    except ncl_bench.NclBenchError as refusal:
        assert f"{{words}}; install with: pip install " in str(refusal) and extra in str(refusal), refusal
    else:
        raise AssertionError(words)
"""


def test_the_base_installation_loads_and_evaluates(tmp_path, monkeypatch):
    monkeypatch.setitem(DATASETS.data, "flickr30k", miniatures.SPECS["flickr30k"])
    prepare("flickr30k", miniatures.make(tmp_path / "from", "flickr30k"), tmp_path / "root")
    path = {"PYTHONPATH": ":".join(sys.path)}
    code = WITHOUT.format(root=str(tmp_path / "root"))
    python(code, env=path)


@pytest.mark.parametrize(
    ("package", "call"),
    [
        ("datasets", lambda to: prepare("digits", to=to)),
        ("datasets", lambda to: load_dataset("digits").to_hf()),
        ("pandas", lambda to: load_results()),
        ("jieba", lambda to: _jieba.__wrapped__()),
        ("tokenizers", lambda to: train_bpe(["a"], to)),
    ],
)
def test_a_missing_package_is_one_sentence_with_the_command(package, call, monkeypatch, tmp_path):
    monkeypatch.setattr(extras, "find_spec", lambda name: None if name == package else object())
    with refused():
        call(tmp_path)
    assert list(tmp_path.iterdir()) == []
