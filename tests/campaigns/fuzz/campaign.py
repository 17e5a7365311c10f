"""Damage the files of one reader for a number of seconds, with bounded memory and time for each input.

``python tests/campaigns/fuzz/campaign.py READER SECONDS FIRST_SEED INPUT`` prints one JSON line: inputs, how many
were read, and the growth of memory; where a reader falls, it ends with another code than 0 and leaves the input in
the file INPUT.
"""

import json
import resource
import signal
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

sys.path.append(str(Path(__file__).parents[2]))

from campaigns.fuzz.mutations import damaged
from campaigns.fuzz.readers import READERS, attempt
from hypothesis import HealthCheck, Phase, given, seed, settings
from support.miniatures import SPECS

from ncl_bench.data import DATASETS

MEMORY = 512 * 2**20
"""Bytes that a reader of a small file may take beyond what the process had."""
SECONDS_EACH = 10
AT_ONCE = 200


def fuzz(name: str, seconds: float, first_seed: int, kept: Path) -> dict[str, Any]:
    """Read damaged files until the time is over."""
    DATASETS.update(SPECS)
    with tempfile.TemporaryDirectory() as place:
        reader = READERS[name](Path(place))
        for content in reader.seeds:
            attempt(lambda content=content: reader.read(content))
        limit_memory()
        before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        count = {"inputs": 0, "read": 0}

        @given(content=damaged(reader.seeds, reader.tokens))
        @settings(
            max_examples=AT_ONCE,
            deadline=None,
            database=None,
            suppress_health_check=list(HealthCheck),
            phases=[Phase.generate],
        )
        def one(content: bytes) -> None:
            kept.write_bytes(content)
            count["inputs"] += 1
            signal.alarm(SECONDS_EACH)
            try:
                count["read"] += attempt(lambda: reader.read(content))
            finally:
                signal.alarm(0)

        end, number = time.monotonic() + seconds, first_seed
        while time.monotonic() < end:
            seed(number)(one)()
            number += 1
        kept.unlink()
        grown = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before
    return {"reader": name, **count, "grown_mb": round(grown / 1024, 1)}


def limit_memory() -> None:
    pages = int(Path("/proc/self/statm").read_text().split()[0])
    bound = pages * resource.getpagesize() + MEMORY
    resource.setrlimit(resource.RLIMIT_AS, (bound, bound))


def hang(number: int, frame: Any) -> None:
    raise AssertionError(f"a file took more than {SECONDS_EACH} seconds to read")


if __name__ == "__main__":
    signal.signal(signal.SIGALRM, hang)
    name, seconds, first_seed, kept = sys.argv[1:]
    print(json.dumps(fuzz(name, float(seconds), int(first_seed), Path(kept))))
