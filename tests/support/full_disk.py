"""A disk that is full, for a test."""

import resource
from contextlib import contextmanager


@contextmanager
def largest_file(size):
    """A disk on which no file may become larger."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
