"""Audits of tests use TF-IDF, whether or not the package of the sentence encoder is installed."""

import pytest


@pytest.fixture(autouse=True, scope="session")
def _no_sentence_encoder():
    with pytest.MonkeyPatch.context() as patch:
        for name in ("PACKAGE", "E5_PACKAGE"):
            patch.setattr(f"baselines.audit.sentences.{name}", "absent_package")
        yield
