"""Scores that a stranger holds: in any form, without a statement, and as the beginning of a submission."""

import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from safetensors.numpy import save_file
from support import miniatures
from support.submission_folders import embeddings, order, read_json, similarities

from ncl_bench.data import DATASETS
from ncl_bench.errors import ScoresError
from ncl_bench.evaluation.call import evaluate
from ncl_bench.evaluation.results import read_result
from ncl_bench.evaluation.submission import read_submission

Run = Callable[..., Any]


def protocols(run: Run, *arguments: object) -> Any:
    """What evaluation writes of each protocol."""
    ran = run("evaluate", *arguments, "--dataset", "digits", "--to", "out")
    assert ran.code == 0, ran.err
    return read_json(Path("out/evaluation.json"))["protocols"]


def refused(run: Run, *arguments: object, dataset: str = "digits") -> str:
    """The one sentence with which evaluation ends."""
    ran = run("evaluate", *arguments, "--dataset", dataset)
    assert (ran.code, ran.out, ran.err.count("\n")) == (2, "", 1), arguments
    return ran.err


@pytest.fixture
def matrix(tmp_path: Path) -> Path:
    np.save(tmp_path / "scores.npy", similarities())
    return tmp_path / "scores.npy"


def test_embeddings_are_compared_by_cosine_or_dot_product(
    run: Run, matrix: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
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


def test_dev_and_pages_are_there_on_request(run: Run, matrix: Path, monkeypatch: pytest.MonkeyPatch) -> None:
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


@pytest.mark.parametrize(
    ("dataset", "shape", "words"),
    [
        (
            "coco",
            (5000, 25010),
            "25,010 captions of this split, 10 are beyond the first 5 of their image: leave",
        ),
        ("coco", (25010, 5000), "10 are beyond the first 5"),
        ("coco", (25000, 5000), "it is transposed: images are rows"),
        ("flickr30k", (5000, 1000), "it is transposed"),
        ("flickr30k", (1000, 1000), "every image has 5 captions, all of which are ranked"),
        ("flickr30k", (5000, 5000), "give each image once"),
        ("cc152k", (1000, 5000), "one row per image and one column per caption"),
    ],
)
def test_a_shape_that_people_hold_is_told_what_it_is(
    run: Run, tmp_path: Path, dataset: str, shape: tuple[int, int], words: str
) -> None:
    # nothing is written to disk
    np.lib.format.open_memmap(tmp_path / "x.npy", "w+", np.float16, shape).flush()
    assert words in refused(run, tmp_path / "x.npy", dataset=dataset)
    if shape == (5000, 25010):
        for name, n in zip(("images", "captions"), shape, strict=True):
            np.save(tmp_path / f"{name}.npy", np.ones((n, 2), np.float16))
        assert words in refused(run, tmp_path / "images.npy", tmp_path / "captions.npy", dataset=dataset)


def test_bad_files_are_one_sentence(run: Run, matrix: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = matrix.parent
    torch.save({"a": torch.zeros(2), "b": torch.zeros(3)}, folder / "two.pt")
    torch.save({"a": torch.zeros(2), "epoch": 3}, folder / "mixed.pt")
    torch.save(np.zeros(3), folder / "array.pt")
    (folder / "cut.pt").write_bytes((folder / "two.pt").read_bytes()[:100])
    save_file({"a": np.zeros(2), "b": np.zeros((2, 3))}, folder / "two.safetensors")
    (folder / "cut.safetensors").write_bytes(b"\x10\0\0")
    (folder / "empty.npy").write_bytes(b"")
    from safetensors.torch import save_file as save_tensors

    save_tensors({"a": torch.zeros(200, 1000, dtype=torch.bfloat16)}, folder / "half.safetensors")
    np.save(folder / "images.npy", np.ones((200, 3), np.float32))
    cases = {
        (folder / "two.pt",): "holds 2 arrays (a (2,), b (3,)), expected one",
        (folder / "mixed.pt",): "holds more than tensors",
        (folder / "array.pt",): "cannot be opened with weights_only=True",
        (folder / "cut.pt",): "cannot be opened with weights_only=True",
        (folder / "nowhere.pt",): "does not exist",
        (folder / "two.safetensors",): "holds 2 arrays (a (2,), b (2, 3)), expected one",
        (folder / "cut.safetensors",): "cannot be read",
        (folder / "half.safetensors",): "in a number type of numpy such as float32",
        (folder / "empty.npy",): "is empty",
        (matrix, "--similarity", "dot"): "--similarity only applies to embeddings",
        (matrix, matrix, matrix): "3 files of scores are given",
        (folder / "images.npy", matrix): "expected one common, positive length",
        ("-",): "- does not exist",
    }
    for arguments, words in cases.items():
        assert words in refused(run, *arguments), arguments


def test_what_a_submission_states_is_not_given_again(run: Run, tmp_path: Path) -> None:
    (tmp_path / "submission.yaml").touch()
    for arguments, words in (
        ((tmp_path, "--dataset", "digits"), "--dataset digits is already set by"),
        ((tmp_path, "--split", "dev"), "--split dev is already set by"),
        ((tmp_path, tmp_path), "evaluate one submission at a time"),
    ):
        ran = run("evaluate", *arguments)
        assert (ran.code, ran.err.count("\n")) == (2, 1)
        assert words in ran.err


def test_a_folder_without_a_statement_is_no_submission(run: Run, tmp_path: Path) -> None:
    told = run("evaluate", tmp_path, "--dataset", "digits")
    assert (told.code, told.err) == (
        2,
        f"ncl-bench: {tmp_path} is a folder, expected an .npy file; correct its name or put the file there\n",
    )


@pytest.mark.parametrize("files", [1, 0])
def test_a_similarity_of_no_embeddings_is_refused(run: Run, matrix: Path, files: int) -> None:
    folder = matrix.parent / "new"
    options = ["--method", "X", "--dataset", "digits", "--similarity", "dot", "--to", folder]
    told = run("submission", "init", *options, *["--scores", matrix] * files)
    sentence = "--similarity is 'dot', which has no effect without two files of embeddings; leave it out"
    assert (told.code, told.err) == (2, f"ncl-bench: {sentence}\n")
    assert not folder.exists()


def test_files_are_opened_without_torch(run: Run, matrix: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    torch.save(torch.zeros(2), matrix.parent / "x.pt")
    monkeypatch.setitem(sys.modules, "torch", None)
    assert run("evaluate", matrix, "--dataset", "digits").code == 0
    assert "x.pt needs torch; install with: pip install" in refused(run, matrix.parent / "x.pt")


def test_pictures_need_an_extra_and_nothing_is_written(
    run: Run, matrix: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for option, module in (("--plot", "matplotlib"), ("--examples=2", "jinja2")):
        monkeypatch.setitem(sys.modules, module, None)
        said = refused(run, matrix, option, "--to", matrix.parent / "out")
        assert f"needs {module}; install with: pip install" in said
    assert not (matrix.parent / "out").exists()


def test_each_direction_may_have_its_matrix(run: Run, matrix: Path) -> None:
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


def test_a_pair_without_a_finite_score_is_named_with_its_matrix() -> None:
    bad = similarities().T.copy()
    bad[8, 3] = -np.inf
    with pytest.raises(
        ScoresError, match=r"^t2i, .* in row 3, column 8; .* a number below all scores, such as -100"
    ):
        evaluate(similarities(), t2i=bad, dataset="digits")


def test_square_matrices_have_queries_as_rows() -> None:
    scores = np.random.default_rng(0).normal(size=(1000, 1000)).astype(np.float32)
    scores[np.arange(1000), np.arange(1000)] += 3
    found = evaluate(scores, t2i=scores.T, dataset="pictograms", intervals=False)
    assert found.recalls() == evaluate(scores, dataset="pictograms", intervals=False).recalls()
    assert "the rows of the first as images and those of the second as captions" in found.notes[0]


def test_a_second_matrix_that_does_not_fit_is_one_sentence(run: Run, matrix: Path) -> None:
    folder = matrix.parent
    np.save(folder / "square.npy", np.zeros((1000, 1000), np.float32))
    np.save(folder / "whole.npy", np.zeros((1000, 200), int))
    for name, words in {
        "square.npy": "has shape (1000, 1000), digits/test needs (1000, 200); give one row per caption",
        "whole.npy": "has dtype int64",
        "gone.npy": "does not exist",
    }.items():
        assert words in refused(run, matrix, "--t2i", folder / name)
    said = refused(run, matrix, matrix)
    assert "two matrices of similarities; give the one of the captions as --t2i" in said
    images, captions = embeddings()
    np.save(folder / "images.npy", images)
    np.save(folder / "captions.npy", captions)
    said = refused(run, folder / "images.npy", folder / "captions.npy", "--t2i", matrix)
    assert "the first input is embeddings; leave t2i out" in said
    ran = run("evaluate", folder, "--t2i", matrix)
    assert (ran.code, "/submission.yaml; leave it out" in ran.err) == (2, True)


@pytest.mark.parametrize(
    ("scale", "options", "words"),
    [
        (1e200, (), "holds numbers up to 1e+200 in row 3, whose norm overflows float64; divide"),
        (1e-200, (), "holds numbers up to 1e-200 in row 3, whose norm underflows float64; divide"),
        (1e200, ("--similarity", "dot"), "the products exceed float32: divide the embeddings by a constant"),
        (1e40, ("--similarity", "dot"), "the products exceed float32: divide the embeddings by a constant"),
    ],
)
def test_embeddings_beyond_the_range_of_numbers_are_named(
    run: Run, tmp_path: Path, scale: float, options: tuple[str, ...], words: str
) -> None:
    images, captions = np.ones((200, 4)), np.ones((1000, 4))
    images[3] = scale
    np.save(tmp_path / "images.npy", images)
    np.save(tmp_path / "captions.npy", captions)
    assert words in refused(run, tmp_path / "images.npy", tmp_path / "captions.npy", *options)


class OnADevice:
    """A tensor on a GPU with a gradient, as far as its methods go."""

    def __init__(self, array: NDArray[np.float32], steps: tuple[str, ...] = ()) -> None:
        self.array, self.steps, self.dtype = array, steps, "torch.float32"

    def detach(self) -> "OnADevice":
        return OnADevice(self.array, (*self.steps, "detach"))

    def cpu(self) -> "OnADevice":
        return OnADevice(self.array, (*self.steps, "cpu"))

    def __array__(self, dtype: object = None, copy: object = None) -> NDArray[np.float32]:
        if self.steps != ("detach", "cpu"):
            raise TypeError("can't convert cuda:0 device type tensor to numpy")
        return self.array


def test_evaluate_takes_what_people_hold(matrix: Path) -> None:
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
    with pytest.raises(ScoresError, match=r"scores\.npy has shape"):
        evaluate(matrix, dataset="flickr30k")
    with pytest.raises(ScoresError, match="dtype object"):
        evaluate(object(), dataset="digits")


@pytest.mark.gpu
def test_a_tensor_on_a_gpu_is_evaluated() -> None:
    tensor = torch.tensor(similarities(), device="cuda", requires_grad=True)
    assert evaluate(tensor, dataset="digits") == evaluate(similarities(), dataset="digits")


def init(run: Run, folder: Path, *options: object, dataset: str = "digits") -> Any:
    return run("submission", "init", "--method", "X", "--dataset", dataset, "--to", folder, *options)


def fill_in(folder: Path) -> None:
    path = folder / "submission.yaml"
    path.write_text(path.read_text().replace("FILL-IN", "mine"))


@pytest.mark.parametrize("suffix", [".npy", ".safetensors", ".pt"])
def test_a_submission_begins_with_its_scores(run: Run, matrix: Path, suffix: str) -> None:
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


def test_a_submission_begins_with_embeddings(run: Run, tmp_path: Path) -> None:
    for name, array in zip(("a", "b"), embeddings(), strict=True):
        np.save(tmp_path / f"{name}.npy", array)
    options = ("--scores", tmp_path / "a.npy", "--scores", tmp_path / "b.npy", "--similarity", "dot")
    assert init(run, tmp_path / "submission", *options).code == 0
    fill_in(tmp_path / "submission")
    assert run("evaluate", tmp_path / "submission").code == 0
    found = read_result(tmp_path / "submission").splits["test"]
    assert found.recalls() == evaluate(similarities(), dataset="digits").recalls()


def test_all_that_is_left_is_listed_at_once_with_its_source(run: Run, tmp_path: Path) -> None:
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


def test_the_order_comes_from_captions_and_ids_alone(
    run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(DATASETS, "flickr30k", miniatures.SPECS["flickr30k"])
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


def test_noise_that_does_not_fit_is_refused_and_not_dropped(run: Run, tmp_path: Path) -> None:
    for dataset, options, words in (
        ("cc152k", ("--noise-ratio", 0.4), "cc152k carries natural noise"),
        ("now", ("--noise-seed", 1), "now carries natural noise"),
        ("digits", ("--noise-seed", 1), "--noise-seed 1 has no effect without noise; give --noise-ratio"),
        ("digits", ("--noise-unit", "image"), "--noise-unit image has no effect without noise"),
        ("now", ("--noise-unit", "image"), "now carries natural noise"),
        ("digits", ("--noise-ratio", 1.0), "expected a number in [0, 1)"),
        ("digits", ("--scores", tmp_path / "no.npy"), "does not exist"),
        ("digits", ("--scores", "a", "--scores", "b", "--scores", "c"), "3 files of scores are given"),
    ):
        ran = init(run, tmp_path / "submission", *options, dataset=dataset)
        assert (ran.code, ran.out, ran.err.count("\n")) == (2, "", 1)
        assert words in ran.err
    for method in ("", "  "):
        given = ("--method", method, "--dataset", "digits", "--to", tmp_path / "submission")
        assert "--method is empty" in run("submission", "init", *given).err
    assert not (tmp_path / "submission").exists()


def test_scores_of_another_shape_or_place_are_refused(run: Run, matrix: Path) -> None:
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


@pytest.mark.parametrize(("name", "sign"), [("RCL^2", "^"), ("GSC†", "†"), ("NCR [ours]", "[")])
def test_a_name_that_the_leaderboard_refuses_begins_no_submission(
    run: Run, tmp_path: Path, name: str, sign: str
) -> None:
    ran = run("submission", "init", "--method", name, "--dataset", "digits", "--to", tmp_path / "to")
    assert ran.code == 2
    assert f"--method is {name!r}: it holds {sign!r}; a name has letters, digits, blanks and" in ran.err
    assert not (tmp_path / "to").exists()
