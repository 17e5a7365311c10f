"""Noise of Web: sizes, splits and files (protocol.md, Datasets and splits)."""

from ncl_bench.datasets.spec import DatasetSpec

SPEC = DatasetSpec(
    name="now",
    title="Noise of Web",
    images={"train": 98_000, "dev": 1_000, "test": 1_000},
    captions_per_image=1,
    n_regions=36,
    feature_dim=768,
    noise="natural",
    protocols=("1k",),
    languages=("zh", "en", "ja", "ru"),
    tokenizers={"zh": "jieba", "en": "jieba", "ja": "jieba", "ru": "jieba"},
)
