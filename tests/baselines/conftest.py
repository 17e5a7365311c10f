"""Fixtures of the baselines."""

from collections.abc import Iterator

import pytest


@pytest.fixture(scope="module")
def few_pairs() -> Iterator[None]:
    """Runs of this module train on a thousand pairs of their dataset."""
    from support.few_digits import load_few  # composes the digits

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("baselines.training.job.load_dataset", load_few)
        yield
