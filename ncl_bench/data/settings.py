"""What a prepared folder shall be like, and whether that can be done here."""

import hashlib
import json
import shutil
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from ncl_bench import __version__
from ncl_bench.data.layout import LAYOUT_VERSION, Dtype, Format
from ncl_bench.data.material import Material
from ncl_bench.data.spec import DatasetSpec
from ncl_bench.data.tokenize import TextOptions
from ncl_bench.errors import DataError


@dataclass(frozen=True)
class PrepareOptions:
    """What the prepared folder shall be like.

    Attributes:
        dtype: of the features; as in the source where None.
        file_format: ``arrow`` for training, ``parquet`` for uploading.
        text: how to cut the captions.
    """

    dtype: Dtype | None = None
    file_format: Format = "arrow"
    text: TextOptions = field(default_factory=TextOptions)


def resolved_dtype(wanted: Dtype | None, material: Material) -> Dtype:
    """Number type of the features to write.

    Raises:
        DataError: the splits differ, or float16 features are wanted as float32.
    """
    found = {split: str(features.dtype) for split, features in material.features.items()}
    if len(set(found.values())) > 1:
        raise DataError(
            f"the features' number types differ between splits ({found}); use one release's files"
        )
    stored: Dtype = "float16" if found["train"] == "float16" else "float32"
    if wanted == "float32" and stored == "float16":
        raise DataError("--dtype float32 cannot bring back what float16 features lost; leave it out")
    return wanted or stored


def settings_key(spec: DatasetSpec, material: Material, options: PrepareOptions, dtype: Dtype) -> str:
    """sha256 (hex) of everything that the bytes of the result depend on."""
    files = (options.text.tokenizer_file, options.text.vocabulary)
    settings = {
        "layout": LAYOUT_VERSION,
        "tool": __version__,
        "name": spec.name,
        "images": dict(spec.images),
        "source": material.identity,
        "dtype": dtype,
        "format": options.file_format,
        "tokenizers": options.text.tokenizers,
        "files": [file and hashlib.sha256(file.read_bytes()).hexdigest() for file in files],
    }
    return hashlib.sha256(json.dumps(settings, sort_keys=True).encode()).hexdigest()


def check_space(work: Path, spec: DatasetSpec, dtype: Dtype) -> None:
    """Refuse to begin what the disk cannot hold.

    Args:
        work: the folder of unfinished work; what it already holds counts as done.
        spec: the protocol's facts.
        dtype: of the numbers to write.

    Raises:
        DataError: too little is free.
    """
    numbers = sum(spec.images.values()) * spec.n_regions * spec.feature_dim
    needed = numbers * np.dtype(dtype).itemsize
    work.parent.mkdir(parents=True, exist_ok=True)
    done = sum(path.stat().st_size for path in work.rglob("*") if path.is_file())
    free = shutil.disk_usage(work.parent).free
    if free < needed - done:
        raise DataError(
            f"{work.parent} has {free / 1e9:.1f} GB free, "
            f"{spec.name} as {dtype} needs {needed / 1e9:.1f} GB; "
            "free space, choose another --to or use --dtype float16"
        )
