"""The backbones, by name."""

from typing import TYPE_CHECKING, Any

from baselines.registry import Registry
from ncl_bench.errors import RecipeError, known_name

if TYPE_CHECKING:
    from baselines.kit.backbone import Backbone

BACKBONES: "Registry[Backbone]" = Registry(
    "backbone",
    {
        "clip": "baselines.backbones.clip:CLIP",
        "imram": "baselines.backbones.imram:IMRAM",
        "linear": "baselines.backbones.linear:Linear",
        "saf": "baselines.backbones.sgraf:SAF",
        "scan": "baselines.backbones.scan:SCAN",
        "sgr": "baselines.backbones.sgraf:SGR",
        "vse_infinity": "baselines.backbones.vse_infinity:VSEInfinity",
        "vsrn": "baselines.backbones.vsrn:VSRN",
    },
)
register = BACKBONES.add


def build_backbone(
    name: str, config: Any, *, feature_dim: int, n_regions: int, vocabulary_size: int
) -> "Backbone":
    """A freshly initialised backbone; weights come from torch's generator.

    Args:
        name: a key of ``BACKBONES``.
        config: the backbone's ``Config``.
        feature_dim: of a region feature.
        n_regions: regions per image.
        vocabulary_size: rows of the word embedding.
    """
    make: Any = BACKBONES[known_name("backbone", name, BACKBONES, RecipeError)]
    network: Backbone = make(config, feature_dim, n_regions, vocabulary_size)
    return network
