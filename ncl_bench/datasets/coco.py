"""MS-COCO: sizes, splits and files (protocol.md, Datasets and splits)."""

from ncl_bench.datasets.spec import DatasetSpec

SPEC = DatasetSpec(
    name="coco",
    title="MS-COCO",
    images={"train": 113_287, "dev": 1_000, "test": 5_000},
    captions_per_image=5,
    n_regions=36,
    feature_dim=2048,
    noise="synthetic",
    protocols=("5fold-1k", "5k"),
    languages=("en",),
    tokenizers={"en": "word"},
)
