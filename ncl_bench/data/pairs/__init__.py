"""A user's own images and captions: forms of files, columns of a form, and the picture of each row.

The picture, the caption and the index of a row come from what the table says, never from the order of files.
"""
