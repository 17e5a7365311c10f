"""One seed per purpose, all derived from the run's seed.

Random numbers depend only on (seed, purpose, round, epoch), never on a shared stream. So a resumed run draws the same
numbers as an uninterrupted one, and two runs in one process cannot influence each other.
"""

import hashlib


def derive_seed(seed: int, *purpose: object) -> int:
    """Derive a seed for one purpose.

    Args:
        seed: seed of the run.
        purpose: purpose of the random numbers, such as ``("epoch", 0, 3)``; compared by their ``str``.

    Returns:
        An integer in [0, 2**32), the same on every machine and Python version.
    """
    text = "/".join(str(part) for part in (seed, *purpose))
    return int.from_bytes(hashlib.sha256(text.encode()).digest()[:4], "little")
