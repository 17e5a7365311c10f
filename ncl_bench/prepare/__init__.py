"""Turn the published files, once, into a folder that loads in a second (see ncl_bench.datasets.layout)."""
