"""The calls that commands make, from Python, and their JSON."""

import json

import numpy as np
import pytest
import torch
from support.refusals import refused
from support.submission_folders import embeddings, scores_of_form, similarities, statement, write_statement

import ncl_bench
from ncl_bench.errors import DataError, ScoresError, SubmissionError

IMAGES, CAPTIONS = embeddings()
EXPECTED = ncl_bench.evaluate_embeddings(IMAGES, CAPTIONS, dataset="digits").recalls()


def submission(folder, seed=0):
    folder.mkdir()
    write_statement(folder, statement({"test": scores_of_form(folder, "matrix", seed)}))
    return folder


class Model:
    """Looks its embeddings up by what it is given, and notes how."""

    def __init__(self):
        self.test = ncl_bench.load_dataset("digits", split="test")
        self.seen = []

    def encode_images(self, batch):
        return self.encode("images", batch)

    def encode_captions(self, batch):
        assert isinstance(batch[0], str)
        return torch.tensor(self.encode("captions", batch), requires_grad=True)

    def encode(self, kind, batch):
        start = sum(n for before, n in self.seen if before == kind)
        self.seen.append((kind, len(batch)))
        return (IMAGES if kind == "images" else CAPTIONS)[start : start + len(batch)]


def test_a_model_is_embedded_batch_by_batch():
    model = Model()
    assert ncl_bench.evaluate_model(model, dataset="digits", batch_size=150).recalls() == EXPECTED
    assert model.seen[:2] == [("images", 150), ("images", 50)]
    assert len(model.seen) == 2 + 7


def test_a_callable_encodes_for_any_model():
    kinds = []

    def encode(model, kind, batch):
        kinds.append((kind, type(batch[0])))
        return model.encode(kind, batch)

    found = ncl_bench.evaluate_model(
        Model(), dataset="digits", encode=encode, batch_size=1000, pictures=False
    )
    assert found.recalls() == EXPECTED
    assert kinds == [("images", np.ndarray), ("captions", str)]


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16])
def test_tensors_of_any_precision_with_gradients(dtype):
    pair = [torch.tensor(each, dtype=dtype, requires_grad=True) for each in (IMAGES, CAPTIONS)]
    found = ncl_bench.evaluate_embeddings(*pair, dataset="digits")
    assert found.r_sum == pytest.approx(EXPECTED["r_sum"], abs=10)


def test_what_is_no_model_is_refused():
    class Half:
        encode_images = Model.encode_images

    with refused(ScoresError):
        ncl_bench.evaluate_model(Half(), dataset="digits")
    with refused(ScoresError):
        ncl_bench.evaluate_model(object(), dataset="digits", encode=lambda model, kind, batch: np.zeros(2))


def test_submissions_are_evaluated_and_compared(run, tmp_path):
    first, second = submission(tmp_path / "a"), submission(tmp_path / "b", seed=1)
    result = ncl_bench.evaluate_submission(first)
    assert result.r_sum == ncl_bench.evaluate(similarities(), dataset="digits").r_sum
    assert "digits, test" in str(result)
    assert json.loads(run("evaluate", first, "--json").out)["splits"]["test"]["dataset"] == "digits"
    found = ncl_bench.compare(first, second)
    assert json.loads(run("compare", first, second, "--json").out) == json.loads(found.to_json())
    assert max(map(len, str(found).split("note:")[0].splitlines())) <= 80
    assert found.names == (str(first), str(second))
    shown = found._repr_html_()
    assert f"<th>{first}</th><th>{second}</th>" in shown
    assert f"<td>rSum, 200</td><td>{found.differences['200'].values[0]:.1f}</td>" in shown
    with refused(SubmissionError):
        ncl_bench.compare([], second)


def test_json_of_scores_is_all_that_is_printed(run, tmp_path):
    np.save(tmp_path / "scores.npy", similarities())
    printed = run("evaluate", tmp_path / "scores.npy", "--dataset", "digits", "--json").out
    assert json.loads(printed)["protocols"]["200"]["i2t"]["r1"] > 50


def test_quiet_leaves_the_result(run, tmp_path, monkeypatch):
    monkeypatch.setattr("ncl_bench.progress._quiet", False)
    np.save(tmp_path / "scores.npy", similarities())
    ran = run("evaluate", tmp_path / "scores.npy", "--dataset", "digits", "--quiet")
    assert "digits, test" in ran.out
    assert "submission init" not in ran.out
    assert ran.err == ""


def test_tab_completion_shows_fields():
    names = dir(ncl_bench.evaluate(similarities(), dataset="digits"))
    assert {"protocols", "notes", "r_sum", "to_pandas"} <= set(names)
    assert not any(name.startswith("model_") for name in names)


@pytest.mark.parametrize("name", ["Flickr30K", "f30k", "flicker30k", "imagenet"])
def test_a_name_that_is_nearly_right_is_suggested(name):
    with refused(DataError):
        ncl_bench.load_dataset(name)


@pytest.mark.parametrize(
    "holds",
    [
        "run.json",
        "",
    ],
)
def test_a_folder_that_is_no_submission_is_named(holds, tmp_path):
    if holds:
        (tmp_path / holds).write_text("{}")
    with refused(SubmissionError):
        ncl_bench.evaluate_submission(tmp_path)


def test_forms_of_scores_that_are_nearly_right(run, tmp_path):
    with refused(ScoresError):
        ncl_bench.evaluate(np.zeros((1000, 5000), np.float32), dataset="coco")
    np.save(tmp_path / "same.npy", np.zeros((200, 1000), np.float32))
    assert "submission init" not in run("evaluate", tmp_path / "same.npy", "--dataset", "digits").out
