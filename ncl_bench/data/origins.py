"""Where each dataset comes from, by name."""

from ncl_bench.data import dataset_spec
from ncl_bench.data.embedded import DIGITS_ORIGIN
from ncl_bench.data.origin import Origin
from ncl_bench.data.published import PUBLISHED

ORIGINS: dict[str, Origin] = {name: module.ORIGIN for name, module in PUBLISHED.items()} | {
    "digits": DIGITS_ORIGIN
}


def dataset_origin(name: str) -> Origin:
    """The origin of a dataset.

    Raises:
        DataError: the name is not in ``DATASETS``.
    """
    return ORIGINS[dataset_spec(name).name]
