"""Flickr30K: sizes, splits and files (protocol.md, Datasets and splits)."""

from ncl_bench.datasets.spec import DatasetSpec

SPEC = DatasetSpec(
    name="flickr30k",
    title="Flickr30K",
    images={"train": 29_000, "dev": 1_014, "test": 1_000},
    captions_per_image=5,
    n_regions=36,
    feature_dim=2048,
    noise="synthetic",
    protocols=("1k",),
    languages=("en",),
    tokenizers={"en": "word"},
)
