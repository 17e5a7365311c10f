"""What a user must know to get a dataset, as text."""

from ncl_bench.data import dataset_spec
from ncl_bench.data.findings import how_to_get
from ncl_bench.data.spec import SPLITS, DatasetSpec, Origin

SIZES = {"float32": 4, "float16": 2}


def feature_gigabytes(spec: DatasetSpec, split: str, dtype: str = "float32") -> float:
    """Size of the unique images' features, in 10^9 bytes."""
    return spec.images[split] * spec.n_regions * spec.feature_dim * SIZES[dtype] / 1e9


def describe(name: str) -> str:
    """Where to get a dataset, licence and terms, size, files expected and what may be uploaded.

    Raises:
        DataError: the name is not in ``DATASETS``.
    """
    spec, origin = dataset_spec(name), dataset_spec(name).origin
    total = sum(feature_gigabytes(spec, split) for split in SPLITS)
    uploads = f"{' and '.join(origin.upload)} only" if len(origin.upload) == 1 else "everything"
    lines = [
        f"{spec.title} ({name})",
        "",
        origin.summary,
        f"Homepage: {origin.homepage}",
        "",
        "Where to get it:",
        *(f"  {way}" for way in origin.obtain),
        "",
        f"Licence: {origin.licence}. {origin.terms}",
        f"Noise: {origin.noise}",
        f"Upload: {uploads if origin.upload else 'refused'}; {origin.upload_reason}.",
        "",
        f"Prepared: {total:.2f} GB as float32, {total / 2:.2f} GB as float16 "
        f"({spec.n_regions} regions of {spec.feature_dim} numbers per image).",
        *(
            f"  {split:<6}{spec.images[split]:>9,} images {spec.n_captions(split):>9,} captions"
            for split in SPLITS
        ),
        "",
        *_files(origin),
    ]
    if origin.vocabulary:
        lines += [
            "",
            "WITHOUT THE PUBLISHED VOCABULARY, TOKEN IDS DIFFER FROM THE PUBLISHED ONES: prepare then builds one from "
            f"the training captions; {how_to_get(origin.vocabulary)}.",
        ]
    return "\n".join(lines).rstrip()


def _files(origin: Origin) -> list[str]:
    if not origin.files:
        return []
    return [
        f"Files expected in {' or '.join(f'{name}/' for name in origin.folders)}:",
        *(f"  {'  '.join(origin.split_files(split))}" for split in SPLITS),
        *([f"and beside it in vocab/:  {'  '.join(origin.extra_files)}"] if origin.extra_files else []),
    ]
