"""``python -m ncl_bench.cli``: the same as ``ncl-bench``."""

from ncl_bench.cli import main

main()
