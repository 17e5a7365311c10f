"""A user's own images and captions: forms of files, columns of a form, and the picture of each row.

The picture, the caption and the index of a row come from what the table says, never from the order of files.
"""

from ncl_bench.extras import require

# here, because every module of this package reads rows into a frame
require("data", "pandas", needed_by="a table of images and captions")
