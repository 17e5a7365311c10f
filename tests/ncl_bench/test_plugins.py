"""Code from outside: a file registers a method or a dataset, and every process of the command knows it."""

import json
import os
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from support.few_digits import InThisProcess

from baselines.methods import METHODS
from ncl_bench import plugins
from ncl_bench.errors import NclBenchError
from ncl_bench.plugins import load_plugins
from ncl_bench.processes import worker_pool

METHOD = """
from pydantic import BaseModel

from baselines.methods import register
from baselines.methods.triplet import Triplet, TripletConfig


@register
class {name}(Triplet):
    name = "{name}"
    title = "{name}"
"""


@pytest.fixture(autouse=True)
def forgotten(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """An empty current folder; what a test's plugins register is forgotten afterwards."""
    before = dict(METHODS)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("ncl_bench.plugins._loaded", {})
    yield
    for name in METHODS.keys() - before.keys():
        METHODS.pop(name)


def recipe(path: Path, method: str) -> None:
    content = {
        "dataset": "digits",
        "batch_size": 1000,
        "backbone": {"name": "vse_infinity", "embed_size": 8, "word_dim": 4},
        "method": {"name": method, "epochs": 1},
    }
    path.write_text(yaml.safe_dump(content))


@pytest.mark.parametrize(
    ("content", "sentence"),
    [
        (None, "--plugin mine.py does not exist"),
        ("x = (\n", "--plugin mine.py, line 1: '(' was never closed"),
        ("import torch_of_tomorrow\n", "--plugin mine.py, line 1: ModuleNotFoundError: No module named"),
        ("\n\n1 / 0\n", "--plugin mine.py, line 3: ZeroDivisionError: division by zero"),
        ("raise SystemExit\n", "--plugin mine.py, line 1: SystemExit"),
        ("def f():\n    raise ValueError('so\\nso')\nf()", r"--plugin mine.py, line 2: ValueError: so\nso"),
    ],
)
def test_a_plugin_that_fails_is_one_sentence(
    content: str | None, sentence: str, tmp_path: Path, run: Callable[..., Any]
) -> None:
    if content is not None:
        (tmp_path / "mine.py").write_text(content)
    found = run("--plugin", "mine.py", "datasets")
    assert found.code == 2
    assert found.err.startswith(f"ncl-bench: {sentence}")
    assert found.err.count("\n") == 1


@pytest.mark.parametrize("given", ["nobody_wrote_this", "nobody.wrote.this"])
def test_a_module_that_is_not_there_is_one_sentence(given: str) -> None:
    with pytest.raises(NclBenchError, match=f"--plugin {given}: Python finds no module of this name"):
        load_plugins([given])


def test_a_file_of_another_kind_is_refused(tmp_path: Path) -> None:
    (tmp_path / "method.txt").write_text("")
    with pytest.raises(NclBenchError, match="is not a Python file; give a file that ends in"):
        load_plugins([str(tmp_path / "method.txt")])


def test_a_plugin_imports_what_lies_beside_it_and_only_once(tmp_path: Path) -> None:
    (tmp_path / "beside_the_plugin.py").write_text("imported = []\n")
    (tmp_path / "once.py").write_text("import beside_the_plugin\nbeside_the_plugin.imported.append(1)\n")
    load_plugins([str(tmp_path / "once.py"), str(tmp_path / "once.py")])
    assert sys.modules["beside_the_plugin"].imported == [1]


def test_workers_import_the_plugins(tmp_path: Path) -> None:
    (tmp_path / "counted.py").write_text("import os\nos.environ['COUNTED_PLUGIN'] = str(os.getpid())\n")
    load_plugins([str(tmp_path / "counted.py")])
    with worker_pool(1) as pool:
        assert pool.submit(os.getenv, "COUNTED_PLUGIN").result() == str(pool.submit(os.getpid).result())


def test_an_unknown_method_asks_for_its_plugin(tmp_path: Path, run: Callable[..., Any]) -> None:
    recipe(tmp_path / "mine.yaml", "unheard_of")
    found = run("train", "mine.yaml", "--to", "run")
    assert found.code == 2
    assert "unknown method 'unheard_of'" in found.err
    assert "name the file that registers it with --plugin" in found.err


def test_a_name_is_taken_once(tmp_path: Path) -> None:
    (tmp_path / "again.py").write_text(METHOD.format(name="ncr"))
    with pytest.raises(NclBenchError, match=r"again\.py, line 8: .*a method named 'ncr' already exists"):
        load_plugins([str(tmp_path / "again.py")])


def test_a_method_of_a_plugin_is_trained_in_a_sweep_and_recorded(
    tmp_path: Path, run: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("baselines.training.sweep.worker_pool", InThisProcess)
    plugin = tmp_path / "mine.py"
    plugin.write_text(METHOD.format(name="of_a_plugin"))
    recipe(tmp_path / "mine.yaml", "of_a_plugin")
    options = ("--plugin", "mine.py")
    swept = run(*options, "sweep", "mine.yaml", "--noise", "none", "--seed", 0, "--to", "swept")
    assert swept.code == 0, swept.err
    folder = next((tmp_path / "swept" / "runs").iterdir())
    described = json.loads((folder / "run.json").read_text())
    assert [entry["name"] for entry in described["plugins"]] == ["mine.py"]

    plugin.write_text(plugin.read_text() + "# corrected\n")
    METHODS.pop("of_a_plugin")
    plugins._loaded.clear()
    (max((folder / "checkpoints").iterdir())).unlink()
    (folder / "training.json").unlink()
    again = run(*options, "train", "mine.yaml", "--to", folder)
    assert again.code == 0, again.err
    assert "was started with another version of mine.py" in again.err
    assert f"next: ncl-bench --plugin mine.py score {folder}" in again.out
    described = json.loads((folder / "run.json").read_text())
    assert [entry["name"] for entry in described["plugins"]] == ["mine.py", "mine.py"]


@pytest.mark.parametrize(
    ("body", "sentence"),
    [
        ("undefined_name", "mine.py, line 14: NameError: name 'undefined_name' is not defined; fix it"),
        ("pass", "train_epoch of method mine never called step(network, loss, batch); call it for every"),
    ],
)
def test_a_method_that_fails_is_one_sentence(
    body: str, sentence: str, tmp_path: Path, run: Callable[..., Any]
) -> None:
    broken = f"\n    def train_epoch(self, plan, batches, step):\n        {body}\n"
    (tmp_path / "mine.py").write_text(METHOD.format(name="mine") + broken)
    recipe(tmp_path / "mine.yaml", "mine")
    done = run("--plugin", "mine.py", "train", "mine.yaml", "--to", "run")
    assert done.code == 2, done.err
    assert sentence in done.err
    assert "Traceback" not in done.err


def test_names_of_a_plugin_are_listed_and_a_plugin_that_registers_nothing_is_told(
    tmp_path: Path, run: Callable[..., Any]
) -> None:
    (tmp_path / "nothing.py").write_text("import baselines.methods\n")
    done = run("--plugin", "nothing.py", "recipes", "--match", "ncr/digits")
    assert "--plugin nothing.py registers no method, backbone, dataset or unit of noise" in done.err
    (tmp_path / "mine.py").write_text(METHOD.format(name="mine"))
    done = run("--plugin", "mine.py", "recipes", "--match", "mine")
    assert "mine/digits_vse_infinity" in done.out.splitlines()
    assert done.err == ""
