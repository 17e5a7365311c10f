"""The methods, by name."""

from baselines.method import Method
from baselines.methods.ncr import NCR
from baselines.methods.triplet import Triplet

METHODS: dict[str, type[Method]] = {
    "ncr": NCR,
    "triplet": Triplet,
}
