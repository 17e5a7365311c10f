"""The arithmetic of a training, as ``--precision``, run folders, submissions and the leaderboard spell it."""

from typing import Literal

Precision = Literal["32-true", "tf32", "bf16-mixed"]
"""float32; float32 with products in TF32 on a GPU's tensor cores; products inside the networks in bfloat16."""
