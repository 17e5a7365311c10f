"""The line with which training, scoring and evaluation begin."""

import pytest

from ncl_bench.evaluation.submission import StatedNoise
from ncl_bench.progress import opening_line

SHA256 = "0123456789abcdef" * 4


@pytest.mark.parametrize(
    ("noise", "words"),
    [
        (StatedNoise(unit="none", ratio=0.0), "no noise"),
        (StatedNoise(unit="natural", ratio=None), "natural noise"),
        (
            StatedNoise(unit="image", ratio=0.6, seed=96, sha256=SHA256, realised_ratio=0.59876),
            "image noise of ratio 0.6 (seed 96, realised 0.5988)",
        ),
        (
            StatedNoise(unit="caption", ratio=0.4, seed=0, sha256=SHA256, realised_ratio=0.4),
            "caption noise of ratio 0.4 (seed 0, realised 0.4000)",
        ),
        (StatedNoise(unit="image", ratio=0.2, sha256=SHA256), "image noise of ratio 0.2 (from a file)"),
    ],
)
def test_it_names_dataset_noise_method_and_device(noise, words):
    assert opening_line("digits", noise.in_words, "NCR", "cuda:0") == f"digits: {words}; NCR on cuda:0"
