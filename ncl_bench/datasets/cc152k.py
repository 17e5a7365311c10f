"""CC152K: sizes, splits and files (protocol.md, Datasets and splits)."""

from ncl_bench.datasets.spec import DatasetSpec

SPEC = DatasetSpec(
    name="cc152k",
    title="CC152K",
    images={"train": 150_000, "dev": 1_000, "test": 1_000},
    captions_per_image=1,
    n_regions=36,
    feature_dim=2048,
    noise="natural",
    protocols=("1k",),
    languages=("en",),
    tokenizers={"en": "word"},
)
