"""Scores that a stranger holds: in any form, without a statement, and as the beginning of a submission."""

import os
import shlex
import sys
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.numpy import save_file
from safetensors.torch import save_file as save_tensors
from support import miniatures
from support.refusals import refused
from support.submission_folders import embeddings, order, read_json, similarities

from ncl_bench.data import DATASETS
from ncl_bench.errors import ScoresError
from ncl_bench.evaluation.call import evaluate
from ncl_bench.evaluation.results import read_result
from ncl_bench.evaluation.submission import read_submission


def protocols(run, *arguments):
    """What evaluation writes of each protocol."""
    ran = run("evaluate", *arguments, "--dataset", "digits", "--to", "out")
    assert ran.code == 0, ran.err
    return read_json(Path("out/evaluation.json"))["protocols"]


@pytest.fixture
def matrix(tmp_path):
    np.save(tmp_path / "scores.npy", similarities())
    return tmp_path / "scores.npy"


def test_embeddings_are_compared_by_cosine_or_dot_product(run, matrix, monkeypatch):
    monkeypatch.chdir(matrix.parent)
    for name, array in zip(("images", "captions"), embeddings(), strict=True):
        np.save(f"{name}.npy", array)
    assert protocols(run, "images.npy", "captions.npy", "--similarity", "dot") == protocols(run, matrix)
    a, b = (
        x / np.linalg.norm(x, axis=1, keepdims=True) for x in (each.astype(float) for each in embeddings())
    )
    np.save(matrix, (a @ b.T).astype(np.float32))
    assert protocols(run, "images.npy", "captions.npy") == protocols(run, matrix)
    said = run("evaluate", "images.npy", "captions.npy", "--dataset", "digits").out
    assert "cosine of the embeddings was taken" in said


def test_dev_and_pages_are_there_on_request(run, matrix, monkeypatch):
    out = matrix.parent / "out"
    options = ("--split", "dev", "--to", out, "--plot", "--examples", 2)
    ran = run("evaluate", matrix, "--dataset", "digits", *options)
    assert ran.code == 0, ran.err
    assert sorted(os.listdir(out)) == ["evaluation.json", "examples_dev.html", "ranks_dev_dev.svg"]
    found = read_json(out / "evaluation.json")
    assert (found["split"], list(found["protocols"])) == ("dev", ["dev"])
    assert "submission init" not in ran.out
    monkeypatch.chdir(matrix.parent)
    assert run("evaluate", matrix, "--dataset", "digits", "--plot").code == 0
    assert (matrix.parent / "ranks_test_200.svg").is_file()


@pytest.fixture
def held(matrix, monkeypatch):
    """A folder of what people hold and cannot give."""
    folder = matrix.parent
    monkeypatch.chdir(folder)
    torch.save({"a": torch.zeros(2), "b": torch.zeros(3)}, "two.pt")
    torch.save({"a": torch.zeros(2), "epoch": 3}, "mixed.pt")
    torch.save(np.zeros(3), "array.pt")
    Path("cut.pt").write_bytes(Path("two.pt").read_bytes()[:100])
    save_file({"a": np.zeros(2), "b": np.zeros((2, 3))}, "two.safetensors")
    Path("cut.safetensors").write_bytes(b"\x10\0\0")
    save_tensors({"a": torch.zeros(200, 1000, dtype=torch.bfloat16)}, "half.safetensors")
    Path("empty.npy").touch()
    images, captions = np.ones((2, 200, 4)), np.ones((1000, 4))
    np.save("captions.npy", captions)
    for name, scale in (("images", 1.0), ("huge", 1e200), ("large", 1e40), ("tiny", 1e-200)):
        images[1, 3] = scale
        np.save(f"{name}.npy", images[1])
    np.save("short.npy", images[0, :, :3])
    np.save("square.npy", np.zeros((1000, 1000), np.float32))
    np.save("whole.npy", np.zeros((1000, 200), int))
    for rows, columns in (
        (5000, 25010),
        (25010, 5000),
        (25000, 5000),
        (5000, 1000),
        (1000, 1000),
        (5000, 5000),
        (1000, 5000),
    ):
        # nothing is written to disk
        np.lib.format.open_memmap(f"{rows}x{columns}.npy", "w+", np.float16, (rows, columns)).flush()
    for name, n in (("images_of_coco", 5000), ("captions_of_coco", 25010)):
        np.save(f"{name}.npy", np.ones((n, 2), np.float16))
    for name in ("bare", "stated"):
        Path(name).mkdir()
    Path("stated/submission.yaml").touch()
    return folder


REFUSED = """
evaluate two.pt --dataset digits
evaluate mixed.pt --dataset digits
evaluate array.pt --dataset digits
evaluate cut.pt --dataset digits
evaluate nowhere.pt --dataset digits
evaluate two.safetensors --dataset digits
evaluate cut.safetensors --dataset digits
evaluate half.safetensors --dataset digits
evaluate empty.npy --dataset digits
evaluate - --dataset digits
evaluate bare --dataset digits
evaluate scores.npy --similarity dot --dataset digits
evaluate scores.npy scores.npy scores.npy --dataset digits
evaluate scores.npy scores.npy --dataset digits
evaluate short.npy captions.npy --dataset digits
evaluate scores.npy --t2i square.npy --dataset digits
evaluate scores.npy --t2i whole.npy --dataset digits
evaluate scores.npy --t2i gone.npy --dataset digits
evaluate images.npy captions.npy --t2i scores.npy --dataset digits
evaluate bare --t2i scores.npy
evaluate stated --bank scores.npy scores.npy
evaluate stated --dataset digits
evaluate stated --split dev
evaluate stated stated
evaluate huge.npy captions.npy --dataset digits
evaluate tiny.npy captions.npy --dataset digits
evaluate large.npy captions.npy --similarity dot --dataset digits
evaluate 5000x25010.npy --dataset coco
evaluate 25010x5000.npy --dataset coco
evaluate images_of_coco.npy captions_of_coco.npy --dataset coco
evaluate 25000x5000.npy --dataset coco
evaluate 5000x1000.npy --dataset flickr30k
evaluate 1000x1000.npy --dataset flickr30k
evaluate 5000x5000.npy --dataset flickr30k
evaluate 1000x5000.npy --dataset cc152k
submission init --to new --method X --dataset digits --scores no.npy
submission init --to new --method X --dataset digits --scores a --scores b --scores c
submission init --to new --method X --dataset digits --scores scores.npy --similarity cosine
submission init --to new --method X --dataset cc152k --noise-ratio 0.4
submission init --to new --method X --dataset now --noise-seed 1
submission init --to new --method X --dataset now --noise-unit image
submission init --to new --method X --dataset digits --noise-seed 1
submission init --to new --method X --dataset digits --noise-unit image
submission init --to new --method X --dataset digits --noise-ratio 1.0
"""


def test_what_cannot_be_evaluated_or_submitted_is_one_sentence(run, held):
    before = sorted(held.rglob("*"))
    for command in REFUSED.strip().splitlines():
        run(*shlex.split(command)).assert_refused()
    assert sorted(held.rglob("*")) == before


def test_files_are_opened_without_torch(run, matrix, monkeypatch):
    torch.save(torch.zeros(2), matrix.parent / "x.pt")
    monkeypatch.setitem(sys.modules, "torch", None)
    assert run("evaluate", matrix, "--dataset", "digits").code == 0
    run("evaluate", matrix.parent / "x.pt", "--dataset", "digits").assert_refused()


def test_pictures_need_an_extra_and_nothing_is_written(run, matrix, monkeypatch):
    for option, module in (("--plot", "matplotlib"), ("--examples=2", "jinja2")):
        monkeypatch.setitem(sys.modules, module, None)
        run("evaluate", matrix, "--dataset", "digits", option, "--to", matrix.parent / "out").assert_refused()
    assert not (matrix.parent / "out").exists()


def test_each_direction_may_have_its_matrix(run, matrix):
    """As rerankers give them: the best 30 of each query have a score, and queries are rows."""
    rescored = {}
    for name, scores in (("i2t", similarities(1)), ("t2i", similarities(2).T)):
        kept = np.argsort(np.argsort(-scores)) < 30
        rescored[name] = np.where(kept, scores, np.float32(-100))
        np.save(matrix.with_name(f"{name}.npy"), rescored[name])
    files = [matrix.with_name(f"{name}.npy") for name in rescored]
    found = evaluate(files[0], t2i=files[1], dataset="digits")
    alone = [evaluate(each, dataset="digits") for each in (rescored["i2t"], rescored["t2i"].T)]
    assert found.protocols["200"].i2t == alone[0].protocols["200"].i2t
    assert found.protocols["200"].t2i == alone[1].protocols["200"].t2i
    assert found.protocols["200"].i2t.intervals is not None
    assert evaluate(rescored["i2t"], t2i=torch.tensor(rescored["t2i"]), dataset="digits") == found
    by_rows = evaluate(rescored["i2t"], t2i=rescored["t2i"].T, dataset="digits")
    assert by_rows == found.model_copy(update={"notes": by_rows.notes})
    ran = run("evaluate", files[0], "--t2i", files[1], "--dataset", "digits", "--to", matrix.with_name("out"))
    assert read_json(matrix.with_name("out") / "evaluation.json")["protocols"]["200"]["r_sum"] == found.r_sum
    assert "this result cannot be submitted" in ran.out
    assert "to turn it into a submission" not in ran.out


def test_a_pair_without_a_finite_score_is_named_with_its_matrix():
    bad = similarities().T.copy()
    bad[8, 3] = -np.inf
    with refused(ScoresError):
        evaluate(similarities(), t2i=bad, dataset="digits")


def test_square_matrices_have_queries_as_rows():
    scores = np.random.default_rng(0).normal(size=(1000, 1000)).astype(np.float32)
    scores[np.arange(1000), np.arange(1000)] += 3
    found = evaluate(scores, t2i=scores.T, dataset="pictograms", intervals=False)
    assert found.recalls() == evaluate(scores, dataset="pictograms", intervals=False).recalls()
    assert "the rows of the first as images and those of the second as captions" in found.notes[0]


class OnADevice:
    """A tensor on a GPU with a gradient, as far as its methods go."""

    def __init__(self, array, steps=()):
        self.array, self.steps, self.dtype = array, steps, "torch.float32"

    def detach(self):
        return OnADevice(self.array, (*self.steps, "detach"))

    def cpu(self):
        return OnADevice(self.array, (*self.steps, "cpu"))

    def __array__(self, dtype=None, copy=None):
        if self.steps != ("detach", "cpu"):
            raise TypeError("can't convert cuda:0 device type tensor to numpy")
        return self.array


def test_evaluate_takes_what_people_hold(matrix):
    scores = similarities()
    reference = evaluate(scores, dataset="digits")
    save_file({"x": scores}, matrix.with_suffix(".safetensors"))
    torch.save(torch.tensor(scores), matrix.with_suffix(".pt"))
    torch.save({"x": torch.tensor(scores, requires_grad=True)}, matrix.with_suffix(".pth"))
    held = [
        torch.tensor(scores),
        torch.tensor(scores, requires_grad=True),
        torch.nn.Parameter(torch.tensor(scores)) * 1,
        torch.tensor(scores.T.copy()).T,
        OnADevice(scores),
        scores.tolist(),
        str(matrix),
        *(matrix.with_suffix(suffix) for suffix in (".npy", ".safetensors", ".pt", ".pth")),
    ]
    for each in held:
        assert evaluate(each, dataset="digits").recalls() == reference.recalls()
    half = torch.tensor(scores).bfloat16()
    assert evaluate(half, dataset="digits") == evaluate(half.float().numpy(), dataset="digits")
    with refused(ScoresError):
        evaluate(matrix, dataset="flickr30k")
    with refused(ScoresError):
        evaluate(object(), dataset="digits")


@pytest.mark.gpu
def test_a_tensor_on_a_gpu_is_evaluated():
    tensor = torch.tensor(similarities(), device="cuda", requires_grad=True)
    assert evaluate(tensor, dataset="digits") == evaluate(similarities(), dataset="digits")


def init(run, folder, *options, dataset="digits"):
    return run("submission", "init", "--method", "X", "--dataset", dataset, "--to", folder, *options)


def fill_in(folder):
    path = folder / "submission.yaml"
    path.write_text(path.read_text().replace("FILL-IN", "mine"))


@pytest.mark.parametrize("suffix", [".npy", ".safetensors", ".pt"])
def test_a_submission_begins_with_its_scores(run, matrix, suffix):
    source, folder = matrix.with_suffix(suffix), matrix.parent / "submission"
    scores = similarities().astype(np.float64)
    np.save(matrix, scores)
    save_file({"x": scores}, matrix.with_suffix(".safetensors"))
    torch.save(torch.tensor(scores), matrix.with_suffix(".pt"))
    ran = init(run, folder, "--scores", source)
    assert ran.code == 0, ran.err
    assert (folder / "test.npy").read_bytes() == matrix.read_bytes()
    assert "left to fill in:\n  backbone " in ran.out
    fill_in(folder)
    submission = read_submission(folder)
    assert submission.order_fingerprint == {"test": order()}
    assert run("evaluate", folder).code == 0
    assert read_result(folder).splits["test"] == evaluate(scores, dataset="digits")


def test_a_submission_begins_with_embeddings(run, tmp_path):
    for name, array in zip(("a", "b"), embeddings(), strict=True):
        np.save(tmp_path / f"{name}.npy", array)
    options = ("--scores", tmp_path / "a.npy", "--scores", tmp_path / "b.npy", "--similarity", "dot")
    folder = tmp_path / "submission"
    assert init(run, folder, *options).code == 0
    begun = (folder / "submission.yaml").read_text()
    (folder / "submission.yaml").unlink()
    assert init(run, folder, "--similarity", "dot").code == 0  # the files lie in the folder already
    assert (folder / "submission.yaml").read_text() == begun
    fill_in(folder)
    assert run("evaluate", folder).code == 0
    found = read_result(folder).splits["test"]
    assert found.recalls() == evaluate(similarities(), dataset="digits").recalls()


def test_all_that_is_left_is_listed_at_once_with_its_source(run, tmp_path):
    ran = init(run, tmp_path / "submission", dataset="flickr30k")
    left = ran.out.split("left to fill in:\n")[1].split("assumed")[0].splitlines()
    names = ["backbone", "order_fingerprint.test", "hardware", "scores.test.matrix.sha256"]
    assert [line.split()[0] for line in left] == names
    assert all(len(line.split(None, 1)[1]) > 20 for line in left)
    lines = (tmp_path / "submission" / "submission.yaml").read_text().splitlines()
    unfilled = [line.split(":")[0].strip() for line in lines if "FILL-IN" in line and line[0] != "#"]
    assert unfilled == [name.split(".")[-1] for name in names]
    assert 'assumed, please correct if wrong:\n  paper ""' in ran.out
    assert 'noise "none"' in ran.out


def test_the_order_comes_from_captions_and_ids_alone(run, tmp_path, monkeypatch):
    monkeypatch.setitem(DATASETS.data, "flickr30k", miniatures.SPECS["flickr30k"])
    place = miniatures.make(tmp_path / "downloads", "flickr30k")
    for features in place.glob("*.npy"):
        features.unlink()
    np.save(tmp_path / "scores.npy", np.random.default_rng(0).random((3, 15)))
    folder = tmp_path / "submission"
    options = ("--scores", tmp_path / "scores.npy", "--order-from", place)
    ran = init(run, folder, *options, dataset="flickr30k")
    assert ran.code == 0, ran.err
    assert f"order_fingerprint.test     of the files in {place}" in ran.out
    fill_in(folder)
    checked = run("submission", "check", folder)
    assert checked.code == 0, checked.err
    assert "order_fingerprint of flickr30k/test was recorded but not checked" in checked.out


def test_scores_of_another_shape_or_place_are_refused(run, matrix):
    folder = matrix.parent / "submission"
    said = init(run, folder, "--scores", matrix, dataset="flickr30k").err
    assert "flickr30k/test needs (1000, 5000)" in said
    assert not folder.exists()
    folder.mkdir()
    np.save(folder / "test.npy", similarities(1))
    assert "exists already and is not" in init(run, folder, "--scores", matrix).err
    np.save(folder / "test.npy", similarities())
    assert init(run, folder, "--scores", matrix).code == 0, "an interrupted copy is taken up"
    (folder / "submission.yaml").unlink()
    assert init(run, folder, "--scores", folder / "test.npy").code == 0, "scores may lie there already"
