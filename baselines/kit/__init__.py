"""All that the author of a method or a backbone imports: ``from baselines.kit import Method, StepDecay``."""

from baselines.kit.backbone import Backbone, CosineBackbone, Encoded, Output
from baselines.kit.batches import Batch, TrainingBatches, derive_seed
from baselines.kit.losses import hardest_triplet, hinge_costs, info_nce, mean_triplet
from baselines.kit.method import EpochPlan, Method, PairMemory, Setting, Step, StepDecay, WarmUpThenStepDecay

__all__ = [
    "Backbone",
    "Batch",
    "CosineBackbone",
    "Encoded",
    "EpochPlan",
    "Method",
    "Output",
    "PairMemory",
    "Setting",
    "Step",
    "StepDecay",
    "TrainingBatches",
    "WarmUpThenStepDecay",
    "derive_seed",
    "hardest_triplet",
    "hinge_costs",
    "info_nce",
    "mean_triplet",
]
