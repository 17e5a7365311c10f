"""Damaged copies of good files: flipped bits, cuts, insertions, repeats, lies in numbers; and bytes at random.

Every reader of files from strangers has one property in its own test file: a damaged file is read, or refused in one
sentence. The default suite draws the same cases each time, the slow one new ones.
"""

import io

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from ncl_bench.errors import NclBenchError

NPY = (b"'<f4'", b"'<f8'", b"'>f2'", b"'|O'", b"'<U0'", b"'<U9'", b"'<i8'", b"'|V8'", b"'<c8'", b"'<M8[s]'", b"True",
       b"(0,", b"(-1,", b"(1, 9999999999999999)", b"(0, 99999999999999999999)", b"(999999999999,)", b"[('a', '<f4')]",
       b"('<f4', (3,))", b"\x01\x00", b"\x02\x00", b"\x03\x00", b"__import__('os')")  # fmt: skip
YAML = (b"&a ", b"*a", b"!!int ''", b"!!bool x", b"!!timestamp x", b"!!python/object/apply:os.system [ls]", b"!!set",
        b"!!binary 'x'", b"<<: ", b"? ", b"- ", b": ", b"|", b"%YAML 9.9\n", b"---\n", b"0x", b"1:1:1", b"2001-99-99",
        b"~", b"{a: b}", b"[a, b]", b"!!omap", b"\xef\xbb\xbf", b"\xff\xfe")  # fmt: skip
JSON = (b'{"', b"}", b"]", b",", b":", b'"idx"', b'"word2idx"', b"1e5", b"999999999999", b'"\\u0000"')
ZIP = (b"PK\x01\x02", b"PK\x03\x04", b"PK\x05\x06", b"PK\x06\x06", b"../x", b"\xff\xff", b"\x01\x00",
       b"\x0e\x00")  # fmt: skip
PICKLE = (b"cos\nsystem\n", b"cbuiltins\neval\n", b"PK\x03\x04", b"R", b".")
"""Words of formats, to insert and to write over others."""

ODD = (b"\x00", b"\xff" * 8, b"\xff\xff\xff\x7f", (2**62).to_bytes(8, "little"), b"18446744073709551616", b"9" * 5_000,
       b"-1", b"0", b"1e999", b".nan", b"NaN", b"Infinity", b"null", b"true", b'""', b"''", b"[" * 400, b"{" * 400,
       b'{"a":' * 400, b"(" * 200, b"\\ud800", b'"\\ud800"', "\u202e\u2028\u0085é漢字∞".encode(), b"\xed\xa0\x80",
       b"\n", b"\r\n", b"\t", b"../", b"/etc/passwd", b"\x1b[2J", b"%s{0}", b"<script>")  # fmt: skip
"""What readers stumble over, whatever they read."""


@st.composite
def damaged(draw, seeds, tokens=()):
    """A good file after some edits, or arbitrary bytes.

    Args:
        draw: of hypothesis.
        seeds: good files.
        tokens: words of the format, to insert and to write over others.
    """
    if draw(st.integers(0, 19)) == 0:
        return draw(st.binary(max_size=300))
    content = bytearray(draw(st.sampled_from(seeds)))
    words = (*tokens, *ODD)
    for _ in range(draw(st.integers(1, 5))):
        place = draw(st.integers(0, len(content)))
        edit = draw(st.sampled_from(("flip", "byte", "cut", "delete", "insert", "over", "repeat", "near")))
        if edit == "cut":
            del content[place:]
        elif edit == "delete":
            del content[place : place + draw(st.integers(1, 40))]
        elif edit == "insert":
            content[place:place] = draw(st.sampled_from(words))
        elif edit == "over":
            word = draw(st.sampled_from(words))
            content[place : place + len(word)] = word
        elif edit == "repeat":
            content[place:place] = content[place : place + draw(st.integers(1, 60))] * draw(
                st.integers(1, 20)
            )
        elif place < len(content):
            if edit == "flip":
                content[place] ^= 1 << draw(st.integers(0, 7))
            elif edit == "byte":
                content[place] = draw(st.integers(0, 255))
            else:  # within the first bytes, where headers are
                content[place % min(len(content), 128)] = draw(st.integers(0, 255))
    return bytes(content)


def assert_damage_is_refused(seeds, read, tokens=()):
    """Assert that the first good file is read, and that damaged ones are read or refused in one sentence.

    Args:
        seeds: good files.
        read: reads the bytes of a file as a user's file is read, and uses what it says.
        tokens: words of the format.
    """
    assert was_read(read, seeds[0]), "the good file is refused"

    @settings(max_examples=25, database=None, suppress_health_check=list(HealthCheck))
    @given(content=damaged(seeds, tokens))
    def one(content):
        was_read(read, content)

    one()


def was_read(read, content):
    """Whether reading went well; a refusal must be one sentence of ours, and nothing else may be raised."""
    try:
        read(content)
    except NclBenchError as error:
        sentence = str(error)
        assert sentence
        assert sentence.isprintable(), repr(sentence)
        return False
    return True


def assert_refused(read, content, sentence):
    """Assert that this file is refused with these words."""
    with pytest.raises(NclBenchError) as error:
        read(content)
    assert sentence in str(error.value)
    assert str(error.value).isprintable()


def npy(array):
    """An array as the bytes of its file."""
    stream = io.BytesIO()
    np.save(stream, array)
    return stream.getvalue()


def npy_header(text, version=b"\x01\x00"):
    """The head of an ``.npy`` file that says anything."""
    width = 2 if version == b"\x01\x00" else 4
    return b"\x93NUMPY" + version + len(text).to_bytes(width, "little") + text.encode()
