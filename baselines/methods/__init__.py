"""The methods, by name."""

from baselines.method import Method
from baselines.methods.crcl import CRCL
from baselines.methods.gsc import GSC, GSCPlus
from baselines.methods.ncr import NCR
from baselines.methods.triplet import Triplet

METHODS: dict[str, type[Method]] = {
    "crcl": CRCL,
    "gsc": GSC,
    "gsc_plus": GSCPlus,
    "ncr": NCR,
    "triplet": Triplet,
}
