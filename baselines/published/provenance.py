"""What a user states about a checkpoint; this module imports nothing heavy, as ``--help`` reads it."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from ncl_bench.arguments import NoiseUnit, Seed

Selection = Literal["dev", "test", "none"]
"""Split that chose the epoch of a checkpoint."""


@dataclass(frozen=True)
class Provenance:
    """What the user states about a checkpoint.

    Attributes:
        method: method that trained it.
        dataset: dataset that it was trained on.
        noise_ratio: noise ratio of its training pairs, in [0, 1); 0 means no noise. None if the dataset has natural
            noise or a noise file is given.
        noise_unit: unit that the noise moves: ``caption`` (the default), ``image``, ``similar`` or ``noun``.
        noise_seed: seed of the noise (default: the standard seed of this noise setting).
        noise_file: noise file of its training, in place of drawn noise.
        seed: training seed, if known.
        selection: split that chose the epoch (default: the one that the method's published code uses).
        language: caption language (default: the dataset's first).
        tokenizer: tokenizer of the captions (default: the language's own).
        root: folder of prepared datasets (default: environment variable ``NCL_BENCH_DATA``).
        settings: backbone option that the weights do not reveal, such as ``backbone.direction=i2t``.
    """

    method: str
    dataset: str
    noise_ratio: float | None = None
    noise_unit: NoiseUnit | None = None
    noise_seed: int | None = None
    noise_file: Path | None = None
    seed: Seed | None = None
    selection: Selection | None = None
    language: str | None = None
    tokenizer: str | None = None
    root: Path | None = None
    settings: Sequence[str] = ()
