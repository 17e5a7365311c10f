"""The methods, by name."""

from typing import TypeVar

from baselines.kit import registry
from baselines.kit.method import Method
from baselines.methods.bicro import BiCro
from baselines.methods.crcl import CRCL
from baselines.methods.decl import DECL
from baselines.methods.gsc import GSC, GSCPlus
from baselines.methods.info_nce import InfoNCE
from baselines.methods.l2rm import L2RM
from baselines.methods.mscn import MSCN
from baselines.methods.ncr import NCR
from baselines.methods.pc2 import PC2
from baselines.methods.rcl import RCL
from baselines.methods.rince import RINCE
from baselines.methods.triplet import Triplet

METHODS: dict[str, type[Method]] = {}

AnyMethod = TypeVar("AnyMethod", bound=type[Method])


def register(method: AnyMethod) -> AnyMethod:
    """Make a method known under its ``name``; also a decorator, for a method in a file of one's own.

    Raises:
        RecipeError: another method has this name, or the class lacks its name, title or ``Config``.
    """
    registry.add(METHODS, "method", method)
    return method


for _method in (BiCro, CRCL, DECL, GSC, GSCPlus, InfoNCE, L2RM, MSCN, NCR, PC2, RCL, RINCE, Triplet):
    register(_method)
