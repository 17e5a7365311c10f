"""No damaged file makes a reader fall: it is read, or refused in one sentence, in bounded time and memory.

By default a few inputs each; a minute each with ``NCL_FUZZ_SECONDS=60 pytest -m slow -s tests/campaigns/fuzz``.
"""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from campaigns.fuzz.mutations import damaged
from campaigns.fuzz.readers import READERS, attempt
from hypothesis import HealthCheck, Phase, given, settings
from support.miniatures import SPECS

from ncl_bench.data import DATASETS

CAMPAIGN = Path(__file__).parent / "campaign.py"
QUICK = settings(
    max_examples=25,
    deadline=None,
    database=None,
    derandomize=True,
    suppress_health_check=list(HealthCheck),
    phases=[Phase.explicit, Phase.generate],
)


@pytest.mark.parametrize("name", READERS)
def test_damaged_files_are_read_or_refused(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for dataset, spec in SPECS.items():
        monkeypatch.setitem(DATASETS, dataset, spec)
    reader = READERS[name](tmp_path)
    assert attempt(lambda: reader.read(reader.seeds[0])), "the good file is refused"

    @QUICK
    @given(content=damaged(reader.seeds, reader.tokens))
    def one(content: bytes) -> None:
        attempt(lambda: reader.read(content))

    one()


@pytest.mark.slow
@pytest.mark.timeout(1200)
@pytest.mark.parametrize("name", READERS)
def test_campaign(name: str, tmp_path: Path) -> None:
    seconds = os.environ.get("NCL_FUZZ_SECONDS", "60")
    kept = tmp_path / "input"
    command = [sys.executable, str(CAMPAIGN), name, seconds, os.environ.get("NCL_FUZZ_SEED", "0"), str(kept)]
    environment = os.environ | {"OMP_NUM_THREADS": "1", "PYTHONPATH": str(Path(__file__).parents[3])}
    done = subprocess.run(command, capture_output=True, text=True, env=environment)
    fallen = f"exit code {done.returncode}; the input lies in {kept}\n{done.stderr[-3000:]}"
    assert done.returncode == 0, fallen
    print(done.stdout.strip())
    assert json.loads(done.stdout.splitlines()[-1])["inputs"] > 0
