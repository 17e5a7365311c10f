"""One seed per purpose, all derived from the run's seed.

Randomness here is a function of (seed, purpose, round, epoch), never a stream that runs on: a resumed run draws
what the uninterrupted one drew, and two runs in one process cannot influence each other.
"""

import hashlib


def derive_seed(seed: int, *purpose: object) -> int:
    """A seed for one purpose.

    Args:
        seed: the run's seed.
        purpose: what the numbers are for, such as ``("epoch", 0, 3)``; compared by their ``str``.

    Returns:
        An integer in [0, 2**32), the same on every machine and Python version.
    """
    text = "/".join(str(part) for part in (seed, *purpose))
    return int.from_bytes(hashlib.sha256(text.encode()).digest()[:4], "little")
