"""The backbones, by name."""

from typing import Any, TypeVar

from baselines.backbones.clip import CLIP
from baselines.backbones.imram import IMRAM
from baselines.backbones.saf import SAF
from baselines.backbones.scan import SCAN
from baselines.backbones.sgr import SGR
from baselines.backbones.vse_infinity import VSEInfinity
from baselines.backbones.vsrn import VSRN
from baselines.kit import registry
from baselines.kit.backbone import Backbone
from ncl_bench.errors import RecipeError, unknown_name

BACKBONES: dict[str, type[Backbone]] = {}

AnyBackbone = TypeVar("AnyBackbone", bound=type[Backbone])


def register(backbone: AnyBackbone) -> AnyBackbone:
    """Make a backbone known under its ``name``; also a decorator, for a backbone in a file of one's own.

    Raises:
        RecipeError: another backbone has this name, or the class lacks its name, title or ``Config``.
    """
    registry.add(BACKBONES, "backbone", backbone)
    return backbone


for _backbone in (CLIP, IMRAM, SAF, SCAN, SGR, VSEInfinity, VSRN):
    register(_backbone)


def build_backbone(
    name: str, config: Any, *, feature_dim: int, n_regions: int, vocabulary_size: int
) -> Backbone:
    """A freshly initialised backbone; weights come from torch's generator.

    Args:
        name: a key of ``BACKBONES``.
        config: the backbone's ``Config``.
        feature_dim: of a region feature.
        n_regions: regions per image.
        vocabulary_size: rows of the word embedding.

    Raises:
        RecipeError: no backbone of that name.
    """
    if name not in BACKBONES:
        raise RecipeError(unknown_name("backbone", name, BACKBONES))
    make: Any = BACKBONES[name]
    network: Backbone = make(config, feature_dim, n_regions, vocabulary_size)
    return network
