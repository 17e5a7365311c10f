"""The datasets of the benchmark, by name."""

from ncl_bench.datasets import cc152k, coco, digits, flickr30k, now
from ncl_bench.datasets.spec import DatasetSpec
from ncl_bench.errors import DataError, unknown_name

DATASETS: dict[str, DatasetSpec] = {
    module.SPEC.name: module.SPEC for module in (flickr30k, coco, cc152k, now, digits)
}


def dataset_spec(name: str) -> DatasetSpec:
    """The protocol's facts about a dataset.

    Raises:
        DataError: the name is not in ``DATASETS``.
    """
    if name not in DATASETS:
        raise DataError(unknown_name("dataset", name, DATASETS))
    return DATASETS[name]
