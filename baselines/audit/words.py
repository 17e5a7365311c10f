"""Captions in a script that too few others share."""

from collections import Counter
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from ncl_bench.data.scripts import script_of

RARE_SCRIPT = 0.1
"""Share of captions below which those of another script than most cannot be judged."""


def other_script(captions: Sequence[str]) -> NDArray[np.object_]:
    """Why captions cannot be judged because too few others share their script; an empty text for the others.

    Args:
        captions: of each row; empty ones have no script.
    """
    scripts = [script_of(caption) for caption in captions]
    counts = Counter(filter(None, scripts))
    most = counts.most_common(1)[0][0] if counts else None
    rare = {
        script for script, n in counts.items() if script != most and n < RARE_SCRIPT * sum(counts.values())
    }
    return np.array([f"a caption in {each} among others" if each in rare else "" for each in scripts], object)
