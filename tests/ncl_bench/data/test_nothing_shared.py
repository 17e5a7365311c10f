"""Data that may not be shared is nowhere in the repository: ten captions of Flickr8K, known by their hash alone."""

import hashlib
import re
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]
WORDS = 6
FIRST_WORDS = {
    "a796fa0d8e036f99851a92bfc8574cdeff9b8ed85853a41483c1667e1427f37b",
    "d1051f0fb7d99c13db94de199920fdca25e322ced08b950950538ad3ac41486d",
    "f53461cbfd8edc48261bd2f50b53b8be04804a82e40d827bb4141ada9c860f58",
    "c58fe3eedc69859a0893d3746a12d3d4a201b1ac69a550dc6e70f571679ddc39",
    "9a34d5849d121824f8ef130132f888865650621775db83239f3b8f4baf79c909",
    "8d2c83c53cee5a574b2cbae9e4067e7e59a96a47a1d4bfb162d42baff9394faa",
    "6bbaeb8942654a7ff4933279841bff316f72af92d5e56b027dc588bed35d1949",
    "b99090f414acaba8c37e5b4e5fc1b539ef3e977debd645654a3d6a2311fcb232",
    "bdc15382f4ac42e7038f6a6a47486a2c4b8f9b9b04e79193de4b1fbac02d1061",
    "ee7bf7d27056cd3ccf5133272c8a16ba793b0dfa143309c8d3e40e8f4e272628",
}
"""sha256 of the first six words of ten captions."""
BINARY = {".npz", ".npy", ".parquet", ".png", ".jpg", ".webp", ".woff2", ".zip"}


def has_caption(text, hashes):
    words = re.findall("[a-z0-9]+", text.lower())
    windows = {" ".join(words[place : place + WORDS]) for place in range(len(words) - WORDS + 1)}
    return any(hashlib.sha256(window.encode()).hexdigest() in hashes for window in windows)


def test_the_search_finds_a_caption():
    told = {hashlib.sha256(b"two dogs run through the snow").hexdigest()}
    assert has_caption("1.jpg,Two dogs run through the snow .", told)
    assert not has_caption("Two dogs run through the grass .", told)


def test_no_file_holds_a_caption_of_flickr8k():
    listed = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, check=False)
    if listed.returncode:
        pytest.skip("not in a git checkout")
    paths = [ROOT / name for name in listed.stdout.decode().split("\0") if name]
    texts = [path for path in paths if path.suffix not in BINARY and path.is_file()]
    assert [
        path for path in texts if has_caption(path.read_text(encoding="utf-8", errors="ignore"), FIRST_WORDS)
    ] == []
