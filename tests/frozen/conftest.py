"""What must stay equal, as JSON beside the tests; ``NCL_FREEZE=1 pytest tests/frozen`` writes it anew."""

import json
import os
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest

Frozen = Callable[[str, Mapping[str, Any]], Mapping[str, Any]]


@pytest.fixture
def frozen() -> Frozen:
    """What was recorded under these keys, after what was found: ``frozen("noise", found)``."""

    def read(name: str, found: Mapping[str, Any]) -> Mapping[str, Any]:
        path = Path(__file__).parent / f"{name}.json"
        known = json.loads(path.read_text("utf-8")) if path.exists() else {}
        if os.environ.get("NCL_FREEZE") == "1":
            known |= found
            path.write_text(json.dumps(known, indent=1, ensure_ascii=False, sort_keys=True) + "\n", "utf-8")
        return {key: known[key] for key in found}

    return read
