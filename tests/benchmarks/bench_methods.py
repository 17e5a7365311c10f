"""What a training step of each method costs beside one of the plain triplet loss on the same network.

    pytest tests/benchmarks/bench_methods.py -m benchmark -s

A step is one step of a network's optimiser; its share of an epoch's other passes (dividing the pairs, predictions,
second networks) counts to it. A method may cost 1.5 plain steps and the arithmetic of its own passes.
"""

import time
from dataclasses import replace

import numpy as np
import pytest
import torch
from support.paired import paired_dataset
from torch.utils.flop_counter import FlopCounterMode

from baselines.backbones import BACKBONES, build_backbone
from baselines.kit.backbone import CosineBackbone
from baselines.kit.batches import TrainingBatches
from baselines.kit.method import Setting
from baselines.methods import METHODS
from baselines.training.step import OptimiserStep
from ncl_bench.errors import TrainingError
from ncl_bench.noise.draw import clean_pairing

pytestmark = [pytest.mark.benchmark, pytest.mark.timeout(3600)]

BATCH, STEPS, ROUNDS, ALLOWED = 16, 2, 3, 1.5
REGIONS, DIM, WORDS, EACH = 36, 2048, 2_000, 5


def random_pairs(n_images):
    """Images and captions of 8 to 20 words, all random."""
    random, pairing = np.random.default_rng(0), clean_pairing(n_images, EACH)
    lengths = random.integers(8, 21, len(pairing))
    words = random.integers(4, WORDS, lengths.sum(), dtype=np.int32)
    features = random.random((n_images, REGIONS, DIM), dtype=np.float32)
    return paired_dataset(features, words, lengths, pairing, WORDS, captions_per_image=EACH)


class Epoch:
    """The last epoch of a method's schedule at learning rate 0: the same work each time."""

    def __init__(self, name, backbone):
        cls = METHODS[name]
        own = {"trusted_pairs": BATCH, "batch_size": BATCH}
        config = cls.Config(**{key: value for key, value in own.items() if key in cls.Config.model_fields})
        trusted, n_pairs = cls.extra_clean_data(config), BATCH * STEPS
        dataset = random_pairs(-(-(n_pairs + trusted) // EACH))
        words = WORDS + cls.extra_words

        def make_network():
            torch.manual_seed(0)
            made = BACKBONES[backbone].Config()
            return build_backbone(backbone, made, feature_dim=DIM, n_regions=REGIONS, vocabulary_size=words)

        setting = Setting(len(dataset), REGIONS, words, make_network, BATCH, torch.arange(trusted))
        self.method = cls(config, setting).train()
        self.plan = replace(list(self.method.plan())[-1], learning_rate=0.0)
        rows = np.arange(trusted, trusted + n_pairs)
        self.batches = TrainingBatches(dataset, batch_size=BATCH, seed=0, pair_rows=rows)
        state = self.method.state_dict()
        self.start = {key: x.clone() for key, x in state.items() if not key.startswith("networks.")}

    def run(self):
        """Train from what the method knew at first; returns how many steps its networks took."""
        networks, taken = set(self.method.networks), 0
        optimiser = OptimiserStep(gradient_clip=2.0)
        optimiser.optimizers = {
            module: self.method.make_optimizer(module, 0.0) for module in self.method.trained_modules()
        }

        def step(modules, *arguments, **options):
            nonlocal taken
            optimiser(modules, *arguments, **options)
            trained = [modules] if isinstance(modules, torch.nn.Module) else modules
            taken += any(module in networks for module in trained)

        self.method.load_state_dict(self.start, strict=False)
        self.method.train_epoch(self.plan, self.batches, step)
        return taken

    def flops(self):
        """Arithmetic of a step."""
        with FlopCounterMode(display=False) as counter:
            steps = self.run()
        return counter.get_total_flops() / steps

    def seconds(self):
        """Of a step."""
        begun = time.process_time()
        steps = self.run()
        return (time.process_time() - begun) / steps


@pytest.mark.parametrize("backbone", ["vse_infinity", "sgr"])
def test_no_method_costs_more_than_its_passes(backbone):
    torch.set_num_threads(1)
    plain, costs = Epoch("triplet", backbone), {}
    for name, method in METHODS.items():
        if name == "triplet" or (
            method.needs_cosines and not issubclass(BACKBONES[backbone], CosineBackbone)
        ):
            continue
        try:
            epoch = Epoch(name, backbone)
        except TrainingError:  # it does not train this backbone
            continue
        passes = epoch.flops() / plain.flops()
        cost = float(np.median([epoch.seconds() / plain.seconds() for _ in range(ROUNDS)]))
        costs[name] = (passes, cost, ALLOWED + max(passes - 1, 0.0))
    print(f"\n| {backbone} | arithmetic | time, plain steps | allowed |\n| --- | ---: | ---: | ---: |")
    for name, (passes, cost, allowed) in costs.items():
        print(f"| {METHODS[name].title} | {passes:.2f} | {cost:.2f} | {allowed:.2f} |")
    assert all(cost <= 1.1 * allowed for _, cost, allowed in costs.values())
