"""Each backbone beside its paper's loop: time of a step and of scoring, and peak memory.

    pytest tests/benchmarks/bench_backbones.py -m benchmark -s

Times are of one thread of a CPU, both sides in turn; the networks have their published sizes and few pairs. Those that
compare every image with every caption are also timed with the pairs of a recipe's batch.
"""

import sys
import time
from pathlib import Path

import numpy as np
import pytest
import torch
from benchmarks.inputs import in_own_process, random_batch
from benchmarks.published_loop import Loop

from baselines.backbones import BACKBONES, build_backbone
from baselines.kit.batches import Batch
from baselines.kit.losses import hardest_triplet

pytestmark = [pytest.mark.benchmark, pytest.mark.timeout(3600)]

PAIRS = {"sgr": 16, "saf": 16, "scan": 16, "imram": 8, "vsrn": 16}
OF_A_RECIPE = {"sgr": 128, "saf": 128, "scan": 128}
ROUNDS, NO_SLOWER = 5, 1.1
LARGER = {"saf": 1.5}
"""Memory of few pairs, in that of the loop, which holds one caption's attention at a time; others stay below 1."""
REGIONS, DIM, WORDS = 36, 2048, 8481


def network_and_batch(name, n):
    """A network of published size, and ``n`` random pairs with captions of 8 to 20 words."""
    torch.manual_seed(0)
    config = BACKBONES[name].Config()
    network = build_backbone(name, config, feature_dim=DIM, n_regions=REGIONS, vocabulary_size=WORDS)
    return network, random_batch(n, REGIONS, DIM, WORDS)


def step(network, batch):
    """Forward and backward pass with hardest negatives, the network's own loss among it."""

    def run():
        network.train().zero_grad()
        images, captions = network.encode(batch)
        loss = hardest_triplet(network.compare(images, captions), 0.2).sum()
        (loss + network.auxiliary_losses(images, batch).mean()).backward()

    return run


def scoring(network, batch):
    """Every image with every caption."""

    @torch.no_grad()
    def run():
        return network.eval()(batch)

    return run


def seconds(run):
    begun = time.process_time()
    run()
    return time.process_time() - begun


@pytest.mark.parametrize("name", PAIRS)
def test_blocks_are_no_slower_and_no_larger_than_the_loop(name):
    torch.set_num_threads(1)
    network, batch = network_and_batch(name, PAIRS[name])
    for kind in (step, scoring):
        ours, loop = kind(network, batch), kind(Loop(network), batch)
        ours(), loop()
        ratio = np.median([seconds(loop) / seconds(ours) for _ in range(ROUNDS)])
        print(f"\n{name}, {kind.__name__}: {ratio:.2f} times faster than the loop")
        assert ratio >= 1 / NO_SLOWER, kind
    found = [in_own_process("bench_backbones", name, side) for side in ("loop", "blocks")]
    print(f"{name}, step: {found[0]:.0f} MiB in a loop, {found[1]:.0f} MiB in blocks")
    assert found[1] < LARGER.get(name, 1) * found[0]


@pytest.mark.parametrize("name", OF_A_RECIPE)
def test_a_step_of_a_recipe_is_no_slower_than_the_loop(name):
    torch.set_num_threads(1)
    network, batch = network_and_batch(name, OF_A_RECIPE[name])
    ours, loop = step(network, batch), step(Loop(network), batch)
    ratio = np.median([seconds(loop) / seconds(ours) for _ in range(2)])
    print(f"\n{name}, step of {OF_A_RECIPE[name]} pairs: {ratio:.2f} times faster than the loop")
    assert ratio >= 1 / NO_SLOWER


if __name__ == "__main__":
    torch.set_num_threads(1)
    network, batch = network_and_batch(sys.argv[1], PAIRS[sys.argv[1]])
    run = step(Loop(network) if sys.argv[2] == "loop" else network, batch)
    few = Batch(*(x[:2] for x in vars(batch).values()))
    step(network, few)()  # what stays for good, gradients among it
    Path("/proc/self/clear_refs").write_text("5", encoding="ascii")  # the peak starts anew

    def resident(field):
        lines = Path("/proc/self/status").read_text(encoding="ascii").splitlines()
        return next(int(line.split()[1]) for line in lines if line.startswith(field))

    before = resident("VmRSS")
    run()
    print((resident("VmHWM") - before) / 1024)
