"""The benchmark for noisy-correspondence learning: data, noise, protocol, submissions. Never torch."""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from ncl_bench.calls import new_dataset, new_dataset_of_features, prepare
    from ncl_bench.data import DATASETS
    from ncl_bench.data.load import load_dataset
    from ncl_bench.data.paired import PairedDataset
    from ncl_bench.errors import NclBenchError
    from ncl_bench.evaluation.call import (
        compare,
        evaluate,
        evaluate_embeddings,
        evaluate_model,
        evaluate_submission,
    )
    from ncl_bench.evaluation.hubs import without_hubs
    from ncl_bench.evaluation.protocol import PROTOCOL_VERSION
    from ncl_bench.evaluation.scores import write_scores
    from ncl_bench.noise.draw import inject_noise

__version__ = "1.0.0"
__all__ = [
    "DATASETS",
    "PROTOCOL_VERSION",
    "NclBenchError",
    "PairedDataset",
    "compare",
    "evaluate",
    "evaluate_embeddings",
    "evaluate_model",
    "evaluate_submission",
    "inject_noise",
    "load_dataset",
    "new_dataset",
    "new_dataset_of_features",
    "prepare",
    "without_hubs",
    "write_scores",
]

_HOMES = {
    "DATASETS": "ncl_bench.data",
    "NclBenchError": "ncl_bench.errors",
    "PROTOCOL_VERSION": "ncl_bench.evaluation.protocol",
    "PairedDataset": "ncl_bench.data.paired",
    "compare": "ncl_bench.evaluation.call",
    "evaluate": "ncl_bench.evaluation.call",
    "evaluate_embeddings": "ncl_bench.evaluation.call",
    "evaluate_model": "ncl_bench.evaluation.call",
    "evaluate_submission": "ncl_bench.evaluation.call",
    "inject_noise": "ncl_bench.noise.draw",
    "load_dataset": "ncl_bench.data.load",
    "new_dataset": "ncl_bench.calls",
    "new_dataset_of_features": "ncl_bench.calls",
    "prepare": "ncl_bench.calls",
    "without_hubs": "ncl_bench.evaluation.hubs",
    "write_scores": "ncl_bench.evaluation.scores",
}
"""Where each public name lives; it is imported when first used, so that `import ncl_bench` stays fast."""


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = getattr(import_module(_HOMES[name]), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
