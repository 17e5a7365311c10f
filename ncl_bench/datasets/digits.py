"""Digits: sizes, splits and files (protocol.md, Datasets and splits)."""

from ncl_bench.datasets.spec import DatasetSpec

SPEC = DatasetSpec(
    name="digits",
    title="Digits",
    images={"train": 2_000, "dev": 200, "test": 200},
    captions_per_image=5,
    n_regions=16,
    feature_dim=66,
    noise="synthetic",
    protocols=("200",),
    languages=("en", "zh"),
    tokenizers={"en": "word", "zh": "jieba"},
)
