"""Damaged copies of good files: flipped bits, cuts, insertions, repeats, lies in numbers; and bytes at random."""

from collections.abc import Sequence

from hypothesis import strategies as st

ODD = (
    b"\x00",
    b"\xff" * 8,
    b"\xff\xff\xff\x7f",
    (2**62).to_bytes(8, "little"),
    b"18446744073709551616",
    b"9" * 5_000,
    b"-1",
    b"0",
    b"1e999",
    b".nan",
    b"NaN",
    b"Infinity",
    b"null",
    b"true",
    b'""',
    b"''",
    b"[" * 400,
    b"{" * 400,
    b'{"a":' * 400,
    b"(" * 200,
    b"\\ud800",
    b'"\\ud800"',
    "\u202e\u2028\u0085é漢字∞".encode(),
    b"\xed\xa0\x80",
    b"\n",
    b"\r\n",
    b"\t",
    b"../",
    b"/etc/passwd",
    b"\x1b[2J",
    b"%s{0}",
    b"<script>",
)
"""What readers stumble over, whatever they read."""


@st.composite
def damaged(draw: st.DrawFn, seeds: Sequence[bytes], tokens: Sequence[bytes] = ()) -> bytes:
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
