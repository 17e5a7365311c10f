"""The scores file: written whole or not at all, opened mapped."""

import io

import numpy as np
import pytest
import safetensors.numpy
import torch
from support.damaged import JSON, NPY, PICKLE, assert_damage_is_refused, assert_refused, npy, npy_header
from support.refusals import refused

from ncl_bench import evaluate
from ncl_bench.errors import ScoresError
from ncl_bench.evaluation.scores import read_array, write_scores
from ncl_bench.npy import map_npy, read_header


@pytest.fixture
def scores():
    return np.random.default_rng(0).normal(size=(200, 1000)).astype(np.float32)


def test_scores_come_back(tmp_path, scores):
    path = tmp_path / "deep" / "test.npy"
    write_scores(path, scores)
    opened = read_array(path)
    assert isinstance(opened, np.memmap)
    assert not opened.flags.writeable
    assert opened.dtype == np.float32
    np.testing.assert_array_equal(opened, scores)
    assert path.read_bytes() == npy(scores)
    assert [p.name for p in path.parent.iterdir()] == ["test.npy"]


@pytest.mark.parametrize("dtype", ["f2", "f8", ">f4"])
def test_other_floats_are_written_as_float32(tmp_path, scores, dtype):
    write_scores(tmp_path / "test.npy", scores.astype(dtype))
    opened = read_array(tmp_path / "test.npy")
    np.testing.assert_array_equal(opened, scores.astype(dtype).astype(np.float32))


@pytest.mark.parametrize(("bad", "dtype"), [(np.nan, "f4"), (1e300, "f8")])
def test_numbers_that_are_not_finite_leave_the_old_file(tmp_path, scores, bad, dtype):
    write_scores(tmp_path / "test.npy", scores)
    before = (tmp_path / "test.npy").read_bytes()
    wrong = scores.astype(dtype)
    wrong[150, 17] = bad
    for path in (tmp_path / "test.npy", tmp_path / "new.npy"):
        with refused(ScoresError):
            write_scores(path, wrong)
    assert [path.read_bytes() for path in tmp_path.iterdir()] == [before]


@pytest.mark.parametrize("name", ["test", "test.pt", "test.npz"])
def test_a_file_of_another_kind_is_not_written(tmp_path, scores, name, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with refused(ScoresError):
        write_scores(name, scores)
    assert not any(tmp_path.iterdir())


def test_what_evaluate_takes_is_written(tmp_path, scores):
    class Tensor:  # as torch's, which numpy asks for its values
        def __array__(self, dtype=None, copy=None):
            return scores

    write_scores(tmp_path / "tensor.npy", Tensor())
    write_scores(tmp_path / "lists.npy", scores.tolist())
    for name in ("tensor.npy", "lists.npy"):
        np.testing.assert_array_equal(read_array(tmp_path / name), scores)
    with refused(ScoresError):
        write_scores(tmp_path / "masked.npy", np.ma.masked_all((200, 1000), np.float32))
    assert not (tmp_path / "masked.npy").exists()


NO_ROWS = "{'descr': '<f4', 'fortran_order': False, 'shape': (0, 99999999999999999999)}"
NEGATIVE = "{'descr': '<f4', 'fortran_order': False, 'shape': (-2, -3)}"


def test_damaged_npy_files_are_read_or_refused(tmp_path):
    path = tmp_path / "scores.npy"

    def read(content):
        path.write_bytes(content)
        header = read_header(path)
        array = map_npy(path, header)
        assert array.shape == header.shape
        array[..., :1].sum()

    seeds = [npy(np.ones((4, 20), dtype)) for dtype in ("<f4", ">f2", "<f8", "<i4")]
    seeds += [npy(np.asfortranarray(np.ones((4, 20)))), npy(np.empty((0, 3)))]
    assert_damage_is_refused(seeds, read, NPY)
    assert_refused(read, b"\x93NUMPY\x02\x00\xff\xff\xff\xff{", "cannot be read")
    assert_refused(read, npy_header(NO_ROWS), "cannot be read")
    assert_refused(read, npy_header(NEGATIVE) + bytes(24), "cannot be read")


@pytest.mark.parametrize("suffix", [".safetensors", ".pt"])
def test_damaged_scores_of_other_libraries_are_read_or_refused(suffix, tmp_path):
    path, seeds = tmp_path / f"scores{suffix}", []
    for array in (np.ones((4, 20), np.float32), np.ones((2, 3), np.float16)):
        stream = io.BytesIO()
        torch.save(torch.tensor(array), stream)
        seeds.append(stream.getvalue() if suffix == ".pt" else safetensors.numpy.save({"scores": array}))

    def read(content):
        path.write_bytes(content)
        array = read_array(path)
        assert isinstance(array, np.ndarray)
        array[..., :1].sum() if array.dtype.kind in "fiu" else None

    assert_damage_is_refused(seeds, read, (b"data_offsets", b"BF16", b"F8_E4M3", *PICKLE, *JSON))


def written(folder, name, array):
    """A file of another program, by its name."""
    import pandas as pd
    import scipy.io

    path = folder / name
    if path.suffix == ".npz":
        np.savez_compressed(path, scores=array)
    elif path.suffix == ".mat":
        scipy.io.savemat(path, {"S": array}, do_compression=True)
    else:
        mark = {".csv": ",", ".tsv": "\t", ".txt": " "}[path.suffix]
        frame = pd.DataFrame(array)
        named = "named" in name
        frame.to_csv(path, sep=";" if "semicolon" in name else mark, header=named, index=named)
    return path


FORMS = ["s.npz", "s.mat", "s.csv", "semicolon.csv", "s.tsv", "s.txt"]


@pytest.mark.parametrize("name", FORMS)
def test_files_of_other_programs_give_the_same_result(tmp_path, name):
    array = np.random.default_rng(0).standard_normal((200, 1000)).astype(np.float32)
    path = written(tmp_path, name, array)
    np.testing.assert_array_equal(read_array(path).astype(np.float32), array)
    if name in ("s.mat", "s.csv"):
        found = [evaluate(each, dataset="digits", intervals=False) for each in (path, array)]
        assert found[0].r_sum == found[1].r_sum


@pytest.mark.parametrize(
    "make",
    [
        lambda path: np.savez(path / "a.npz", x=np.ones(3), y=np.ones(3)),
        lambda path: np.savez(path / "a.npz", x=np.array([{}])),
        lambda path: (path / "a.npz").write_bytes(b"PK"),
        lambda path: (path / "a.mat").write_bytes(b"MATLAB 7.3 MAT-file" + bytes(200)),
        lambda path: (path / "a.csv").write_text("image,caption\n1,2\n"),
        lambda path: (path / "a.csv").write_bytes(b"\xff\xfe1\x00"),
        lambda path: (path / "a.csv").write_text(""),
        lambda path: written(path, "named.csv", np.ones((200, 1000))),
        lambda path: np.save(path / "a.npy", np.ones((201, 1000))),
        lambda path: np.save(path / "a.npy", np.ones((200, 1000), bool)),
    ],
)
def test_what_is_no_matrix_of_scores_is_refused(tmp_path, make):
    make(tmp_path)
    (path,) = tmp_path.iterdir()
    with refused(ScoresError):
        evaluate(path, dataset="digits")


def test_a_second_matrix_with_images_as_rows_is_taken_with_a_remark():
    i2t, t2i = np.random.default_rng(0).standard_normal((2, 200, 1000)).astype(np.float32)
    by_rows, by_columns = (
        evaluate(i2t, dataset="digits", t2i=each, intervals=False) for each in (t2i, t2i.T)
    )
    assert by_rows.r_sum == by_columns.r_sum
    assert [note for note in by_rows.notes if note not in by_columns.notes] == [
        "t2i has images as rows by its shape, and was taken so; captions as rows are expected"
    ]
