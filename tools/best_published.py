"""Write the highest rSum that papers print, for the note of ``evaluate`` on a result above it.

python -m tools.best_published   write ncl_bench/papers/published/best.json, after a row of a paper was added
"""

import json

from ncl_bench.data import DATASETS
from ncl_bench.evaluation.protocol import BEST_PUBLISHED
from ncl_bench.files import write_text
from ncl_bench.papers import best_published


def content() -> str:
    """The text of the file."""
    sums = best_published()
    best = {name: sums.get(name, {}) for name, spec in DATASETS.items() if not spec.embedded}
    return json.dumps(best, indent=1, sort_keys=True) + "\n"


if __name__ == "__main__":
    write_text(BEST_PUBLISHED, content())
