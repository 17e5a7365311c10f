"""Where each dataset comes from, by name."""

from ncl_bench.datasets import dataset_spec
from ncl_bench.datasets.origin import Origin
from ncl_bench.prepare.embedded import DIGITS_ORIGIN
from ncl_bench.prepare.published import PUBLISHED

ORIGINS: dict[str, Origin] = {name: module.ORIGIN for name, module in PUBLISHED.items()} | {
    "digits": DIGITS_ORIGIN
}


def dataset_origin(name: str) -> Origin:
    """The origin of a dataset.

    Raises:
        DataError: the name is not in ``DATASETS``.
    """
    return ORIGINS[dataset_spec(name).name]
