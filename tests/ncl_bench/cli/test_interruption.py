"""A stopped command ends with the exit code that shells expect."""

from pickle import UnpicklingError

import numpy as np
import pytest

from ncl_bench.errors import reason_of


def test_ctrl_c_ends_a_command_without_a_traceback(run, tmp_path):
    (tmp_path / "stops.py").write_text("raise KeyboardInterrupt")
    ended = run("--plugin", tmp_path / "stops.py", "datasets")
    assert (ended.code, ended.out, ended.err) == (130, "", "")


def _python():
    raise MemoryError


def _numpy():
    np.empty(1 << 60, np.uint8)


def _torch():
    raise RuntimeError(
        "[enforce fail at alloc_cpu.cpp:118] DefaultCPUAllocator: can't allocate memory: you tried"
    )


def _loader():
    raise ImportError("libtorch_cpu.so: failed to map segment from shared object")


@pytest.mark.parametrize("command", [_python, _numpy, _torch, _loader])
def test_lack_of_memory_is_one_sentence(command, run, monkeypatch):
    monkeypatch.setattr("ncl_bench.cli.app", command)
    ended = run("datasets", "list")
    assert (ended.code, ended.out) == (2, "")
    assert ended.err == "ncl-bench: out of memory; close other programs, or use a machine with more memory\n"


def test_the_reason_of_a_damaged_file_holds_no_advice_to_unpickle_it():
    advice = "Weights only load failed. Re-running `torch.load` with `weights_only` set to `False` will likely succeed"
    assert reason_of(UnpicklingError(advice)) == "no file of torch.save"
    assert reason_of(ValueError("cut:\n\tmore")) == "cut: more"
    with pytest.raises(RuntimeError, match="allocate"):
        reason_of(RuntimeError("DefaultCPUAllocator: can't allocate memory"))
