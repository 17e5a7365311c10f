"""The examples in the docstrings of the public calls run as they stand there, one after the other in one folder."""

import doctest
import re
import shutil
from inspect import cleandoc
from pathlib import Path
from pkgutil import resolve_name

import numpy as np
import pytest
import torch
from givens import GIVENS

import baselines
import ncl_bench
from ncl_bench.evaluation.protocol import expected_shape
from ncl_bench.files import sha256_of_file

IN_ORDER = (
    *("ncl_bench.prepare", "ncl_bench.load_dataset", "ncl_bench.PairedDataset", "ncl_bench.inject_noise"),
    *("ncl_bench.evaluate", "ncl_bench.evaluate_embeddings", "ncl_bench.write_scores"),
    *("baselines.train", "baselines.Run", "baselines.score"),
    *("ncl_bench.evaluate_submission", "ncl_bench.compare"),
)


def example(name):
    """The block under ``Example::`` of a docstring."""
    lines = cleandoc(resolve_name(name).__doc__).split("\n")
    block = []
    for line in lines[lines.index("Example::") + 2 :]:
        if line and not line.startswith("    "):
            break
        block.append(line[4:])
    return "\n".join(block).strip() + "\n"


def copies(submission):
    """Submissions of another method and of other seeds, from one."""
    text, scores = (submission / "submission.yaml").read_text(), np.load(submission / "test.npy")
    before, random = sha256_of_file(submission / "test.npy"), np.random.default_rng(0)
    seeds = {f"{method}-seed{seed}": seed for method in ("ncr", "crcl") for seed in range(3)}
    for folder, seed in {str(submission.with_name("crcl")): 0, **seeds}.items():
        shutil.copytree(submission, folder)
        np.save(Path(folder, "test.npy"), scores + random.normal(0, 0.01, scores.shape).astype(np.float32))
        own = text.replace(before, sha256_of_file(Path(folder, "test.npy")))
        own = re.sub(r"training_seeds:.*\n(?:- .*\n)*", f"training_seeds: [{seed}]\n", own)
        Path(folder, "submission.yaml").write_text(own)


@pytest.mark.timeout(600)
def test_the_examples_run(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("NCL_BENCH_DATA", raising=False)
    GIVENS["the downloads"](tmp_path, monkeypatch)
    random = np.random.default_rng(0)
    shape = expected_shape(ncl_bench.DATASETS["flickr30k"], "test")
    names = {
        "ncl_bench": ncl_bench,
        "baselines": baselines,
        "np": np,
        "torch": torch,
        "similarities": random.random(shape, np.float32),
        "image_embeddings": random.random((shape[0], 8), np.float32),
        "caption_embeddings": random.random((shape[1], 8), np.float32),
    }
    for name in IN_ORDER:
        if name == "baselines.train":
            GIVENS["tiny recipes"](tmp_path, monkeypatch)
        if name == "baselines.Run":  # it trains and scores in the same folders again
            shutil.rmtree("runs")
        if name == "baselines.score":
            shutil.rmtree("submissions", ignore_errors=True)
            shutil.copytree("runs/ncr", "runs/sgr")
            shutil.copytree("runs/ncr", "runs/saf")
        if name == "ncl_bench.evaluate_submission":
            copies(Path("submissions/ncr"))
        code = example(name)
        if ">>>" in code:
            ran = doctest.DocTestRunner().run(
                doctest.DocTestParser().get_doctest(code, dict(names), name, None, 0)
            )
            assert ran.attempted > ran.failed == 0, name
        else:
            exec(compile(code, name, "exec"), names)


def test_the_calls_are_public():
    public = [f"{package.__name__}.{name}" for package in (ncl_bench, baselines) for name in package.__all__]
    assert set(IN_ORDER) <= set(public)
