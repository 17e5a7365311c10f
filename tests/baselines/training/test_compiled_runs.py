"""``train --compile on``: what is recorded, resumed, and said where torch cannot compile."""

import json

import pytest
import torch
from support.few_digits import cut_short, digits_job, load_few, outcome, trained

from baselines.kit import backbone

TRIPLET = {"name": "triplet", "epochs": 2}


@pytest.fixture(autouse=True)
def _few_pairs(monkeypatch):
    monkeypatch.setattr("baselines.training.job.load_dataset", load_few)


def machines(run):
    return json.loads((run / "run.json").read_text())["trained_on"]


def test_a_run_records_that_it_is_compiled_and_resumes_with_the_same_bits(tmp_path, monkeypatch):
    shapes, job = set(), digits_job(TRIPLET, recipe={"batch_size": 500})

    def seen(network, batch):
        shapes.add((len(batch), batch.caption_tokens.shape[1]))
        return backbone._pass(network, batch)

    monkeypatch.setattr(backbone, "_graphs", lambda device: seen)
    monkeypatch.setattr("baselines.training.train._compiles", lambda device: True)
    finished = trained(job, tmp_path / "whole", compiled=True)
    assert shapes
    assert all(pairs == 500 and words % 8 == 0 for pairs, words in shapes)
    assert [machine["compiled"] for machine in machines(tmp_path / "whole")] == [True]
    assert finished.folder.read_run().trained_on[0].stated_torch == f"{torch.__version__}, compiled"
    cut_short(tmp_path / "whole", tmp_path / "resumed")
    trained(job, tmp_path / "resumed", compiled=True)
    assert outcome(tmp_path / "resumed") == outcome(tmp_path / "whole")


def test_where_torch_cannot_compile_a_sentence_says_why_and_the_run_goes_on(tmp_path, monkeypatch, capsys):
    def fail(function):
        raise RuntimeError(
            "backend='inductor' raised:\nInvalidCxxCompiler: No working C++ compiler\n\nSet ..."
        )

    monkeypatch.setattr(torch, "compile", fail)
    trained(digits_job(TRIPLET | {"epochs": 1}), tmp_path / "run", compiled=True)
    said = "(InvalidCxxCompiler: No working C++ compiler); training is not compiled\n"
    assert capsys.readouterr().err.endswith(said)
    assert [machine["compiled"] for machine in machines(tmp_path / "run")] == [False]
