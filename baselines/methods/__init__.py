"""The methods, by name."""

from typing import TYPE_CHECKING

from baselines.registry import Registry

if TYPE_CHECKING:
    from baselines.kit.method import Method

METHODS: "Registry[Method]" = Registry(
    "method",
    {
        "bicro": "baselines.methods.bicro:BiCro",
        "cca": "baselines.methods.cca:CCA",
        "cca_filtered": "baselines.methods.cca:CCAFiltered",
        "cream": "baselines.methods.cream:CREAM",
        "crcl": "baselines.methods.crcl:CRCL",
        "dcl": "baselines.methods.dcl:DCL",
        "decl": "baselines.methods.decl:DECL",
        "gsc": "baselines.methods.gsc:GSC",
        "gsc_plus": "baselines.methods.gsc:GSCPlus",
        "in2r": "baselines.methods.in2r:IN2R",
        "info_nce": "baselines.methods.info_nce:InfoNCE",
        "l2rm": "baselines.methods.l2rm:L2RM",
        "mscn": "baselines.methods.mscn:MSCN",
        "ncr": "baselines.methods.ncr:NCR",
        "npc": "baselines.methods.npc:NPC",
        "osa": "baselines.methods.osa:OSA",
        "pc2": "baselines.methods.pc2:PC2",
        "pcsr": "baselines.methods.pcsr:PCSR",
        "rcl": "baselines.methods.rcl:RCL",
        "rince": "baselines.methods.rince:RINCE",
        "sps": "baselines.methods.sps:SPS",
        "triplet": "baselines.methods.triplet:Triplet",
    },
)
register = METHODS.add
