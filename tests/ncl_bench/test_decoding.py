"""Foreign bytes that a library hangs, swells or crashes on: each is one sentence, and the others go on."""

import ctypes
import os
import signal
import subprocess
import sys
import time

import numpy as np
import pytest
from support.processes import assert_ends
from support.refusals import refused

from ncl_bench import decoding
from ncl_bench.decoding import decode, decoded
from ncl_bench.errors import DataError, ScoresError


def crash(source, name):
    ctypes.string_at(0)


def swell(source, name):
    return b"x" * (1 << 40)


def hang(source, name):
    hash_of_pairs(60)


def hash_of_pairs(depth):
    pair = ()
    for _ in range(depth):
        pair = (pair, pair)
    return hash(pair)  # 2 ** 60 steps inside the interpreter, which no signal handler of Python interrupts


def wait(source, name):
    time.sleep(1_000)


def leave(source, name):
    os._exit(3)


def fail(source, name):
    raise KeyError("no such block")


def refuse(source, name):
    raise DataError(f"{name} is empty; fill it")


def length(source, name):
    return b"%d" % len(source if isinstance(source, bytes) else source.read_bytes())


def as_numbers(source, name):
    print("what a library prints is no answer")
    return np.frombuffer(source, np.uint8).reshape(-1, 2).astype(">f4")


def as_table(source, name):
    import pyarrow as pa

    return pa.table({"a": list(source)})


def itself(source, name):
    return source


@pytest.mark.parametrize(
    ("function", "words"),
    [
        (crash, "it cannot be read (the process that reads it ends with SIGSEGV); fetch it again"),
        (leave, "it cannot be read (the process that reads it ends with code 3); fetch it again"),
        (swell, "it takes more than 2.1 GB of memory when decoded; fetch it again"),
        (hang, "it cannot be read (it takes more than 1 seconds); fetch it again"),
        (wait, "it cannot be read (it takes more than 1 seconds); fetch it again"),
        (fail, "it cannot be read ('no such block'); fetch it again"),
        (refuse, "it is empty; fill it"),
    ],
    ids=lambda value: getattr(value, "__name__", ""),
)
@pytest.mark.skipif(os.name == "nt", reason="Windows limits neither memory nor CPU time of a process")
def test_a_library_that_fails_is_one_sentence(function, words, monkeypatch):
    monkeypatch.setattr(decoding, "SECONDS", 0.6)  # told in whole seconds; what waits has ten times that
    (found,) = decoded(function, [("it", b"")], fix="fetch it again", error=ScoresError)
    assert isinstance(found, ScoresError)
    assert str(found) == words
    assert list(decoded(length, [("it", b"ab")])) == [b"2"]


def test_the_others_go_on_in_order():
    items = [(str(number), bytes(number)) for number in range(40)]
    found = list(decoded(length, items, workers=3))
    assert found == [b"%d" % number for number in range(40)]
    results = list(decoded(as_numbers, [("odd", b"abc"), ("even", b"abcd")], workers=2))
    assert isinstance(results[0], DataError)
    np.testing.assert_array_equal(results[1], np.array([[97, 98], [99, 100]], ">f4"))


def test_results_are_bytes_numbers_and_tables():
    (content,) = decoded(itself, [("it", bytes(3_000_000))])
    assert content == bytes(3_000_000)
    (table,) = decoded(as_table, [("it", b"ab")])
    assert table.to_pydict() == {"a": [97, 98]}


def test_a_missing_file_is_one_sentence(tmp_path):
    with refused():
        decode(length, tmp_path / "gone")


@pytest.mark.usefixtures("signals_heard")
def test_workers_of_decoding_end_with_their_parent():
    script = """if True:
        import time
        from ncl_bench import decoding
        list(decoding.decoded(decoding.as_size, [("it", b"")]))  # refused; the worker waits for the next item
        print(decoding._idle[0].pid, flush=True)
        time.sleep(600)
    """
    parent = subprocess.Popen([sys.executable, "-c", script], stdout=subprocess.PIPE, text=True)
    worker = int(parent.stdout.readline())
    parent.send_signal(signal.SIGKILL)
    parent.wait(120)
    parent.stdout.close()
    assert_ends(worker)
