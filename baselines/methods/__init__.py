"""The methods, by name."""

from baselines.kit.method import Method
from baselines.methods.crcl import CRCL
from baselines.methods.gsc import GSC, GSCPlus
from baselines.methods.info_nce import InfoNCE
from baselines.methods.ncr import NCR
from baselines.methods.pc2 import PC2
from baselines.methods.rcl import RCL
from baselines.methods.triplet import Triplet

METHODS: dict[str, type[Method]] = {
    "crcl": CRCL,
    "gsc": GSC,
    "gsc_plus": GSCPlus,
    "info_nce": InfoNCE,
    "ncr": NCR,
    "pc2": PC2,
    "rcl": RCL,
    "triplet": Triplet,
}
