"""Files of torch that hang or swell: each is one sentence, through every door that reads one."""

import io
import zipfile

import numpy as np
import pytest
import scipy.io
import torch
from support.refusals import refused

from baselines.encoders import load_encoder
from baselines.published.checkpoint_file import read_checkpoint
from ncl_bench import decoding
from ncl_bench.errors import NclBenchError
from ncl_bench.evaluation.scores import read_array
from ncl_bench.torch_files import load_torch, opened

PAIRS = b"".join(b"h" + bytes([n]) + b"h" + bytes([n]) + b"\x86q" + bytes([n + 1]) for n in range(1, 60))
KEY = b"()q\x01" + PAIRS + b"t"
"""Pickle of tuples that hold one tuple twice, 59 times over: their hash takes 2 ** 59 steps."""


def written(pickled):
    stream = io.BytesIO()
    with zipfile.ZipFile(stream, "w") as archive:
        archive.writestr("a/data.pkl", b"\x80\x02" + pickled + b".")
        archive.writestr("a/version", "3\n")
    return stream.getvalue()


def zeros():
    """A tensor of half a gigabyte of zeros in half a megabyte."""
    plain, packed = io.BytesIO(), io.BytesIO()
    torch.save({"weights": torch.zeros(10)}, plain)
    with (
        zipfile.ZipFile(plain) as source,
        zipfile.ZipFile(packed, "w", zipfile.ZIP_DEFLATED, compresslevel=1) as target,
    ):
        for name in source.namelist():
            if name.endswith("data/0"):
                with target.open(name, "w", force_zip64=True) as stream:
                    for _ in range(50):
                        stream.write(bytes(10**7))
            else:
                target.writestr(name, source.read(name).replace(b"K\x0a", b"J\x40\x59\x73\x07"))
    return packed.getvalue()


HOSTILE = {
    "a key of nested tuples": b"}" + KEY + b"K\x01s",
    "several keys": b"}(K\x00K\x00" + KEY + b"K\x01u",
    "an ordered dictionary": b"ccollections\nOrderedDict\n)R" + KEY + b"K\x01s",
    "a nested key in a list": b"]}" + KEY + b"K\x01sa",
}
DOORS = {
    "evaluate": read_array,
    "import-checkpoint": read_checkpoint,
    "features --weights": lambda path: load_encoder("efficientnet-lite0", path),
    "train": lambda path: load_torch(path, NclBenchError),
}


@pytest.mark.parametrize(("kind", "door"), [*zip(HOSTILE, DOORS, strict=True)])
def test_a_file_of_torch_that_hangs_or_swells_is_one_sentence(kind, door, tmp_path, monkeypatch):
    monkeypatch.setattr(decoding, "SECONDS", 2)
    (tmp_path / "a.pt").write_bytes(written(HOSTILE[kind]))
    with refused(words="takes more than 2 seconds"):
        DOORS[door](tmp_path / "a.pt")


def test_a_file_of_torch_that_swells_is_one_sentence(tmp_path, monkeypatch):
    monkeypatch.setattr(decoding, "MEMORY", 3 * 10**8)
    (tmp_path / "a.pt").write_bytes(zeros())
    with refused(words="takes more than 3"):
        read_array(tmp_path / "a.pt")


def expanded(path):
    torch.save(torch.zeros(1).expand(10**5, 10**5), path)


def without_numbers(path):
    torch.save(torch.empty(10**5, 10**5, device="meta"), path)


def zeros_of_numpy(path):
    np.savez_compressed(path, np.zeros(6 * 10**7, np.float32))


def zeros_of_matlab(path):
    scipy.io.savemat(path, {"scores": np.zeros((10**4, 6_000), np.float32)}, do_compression=True)


@pytest.mark.parametrize(
    ("write", "name"),
    [(expanded, "a.pt"), (without_numbers, "a.pt"), (zeros_of_numpy, "a.npz"), (zeros_of_matlab, "a.mat")],
)
def test_scores_that_swell_are_one_sentence(write, name, tmp_path, monkeypatch):
    monkeypatch.setattr(decoding, "MEMORY", 2 * 10**8)
    write(tmp_path / name)
    with refused(words="takes more than 20"):
        read_array(tmp_path / name)


def test_a_tensor_without_numbers_is_one_sentence(tmp_path):
    torch.save(torch.empty(10, 10, device="meta"), tmp_path / "a.pt")
    with refused(words="meta tensor"):
        read_array(tmp_path / "a.pt")


def test_what_torch_saved_is_read(tmp_path):
    torch.save({"a": torch.arange(3.0), "b": [1, {"c": (2, "d")}]}, tmp_path / "a.pt")
    found = load_torch(tmp_path / "a.pt", NclBenchError)
    assert torch.equal(found.pop("a"), torch.arange(3.0))
    assert found == {"b": [1, {"c": (2, "d")}]}
    assert opened(tmp_path / "a.pt").keys() == {"a", "b"}
