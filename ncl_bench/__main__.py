"""``python -m ncl_bench``: the same as ``ncl-bench``."""

from ncl_bench.cli import main

main()
