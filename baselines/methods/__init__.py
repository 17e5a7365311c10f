"""The methods, by name."""

from baselines.method import Method
from baselines.methods.crcl import CRCL
from baselines.methods.gsc import GSC, GSCPlus
from baselines.methods.ncr import NCR
from baselines.methods.pc2 import PC2
from baselines.methods.triplet import Triplet

METHODS: dict[str, type[Method]] = {
    "crcl": CRCL,
    "gsc": GSC,
    "gsc_plus": GSCPlus,
    "ncr": NCR,
    "pc2": PC2,
    "triplet": Triplet,
}
