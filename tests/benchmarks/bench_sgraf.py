"""SGR and SAF in blocks against the one-caption loop on a CPU, at published sizes with a smaller batch.

Times are taken in turn within one process, peak memory in a process of its own per side.

    pytest tests/benchmarks/bench_sgraf.py -m benchmark -s
"""

import json
import subprocess
import sys
import time
from pathlib import Path

import pytest
import torch

from baselines.backbones import BACKBONES, build_backbone
from baselines.backbones.base import Encoded

TESTS = Path(__file__).parents[1]
sys.path.insert(0, str(TESTS))
from oracles import sgraf_loop  # noqa: E402

pytestmark = pytest.mark.benchmark

ROUNDS, REGIONS, EMBED_SIZE, SHORTEST, LONGEST = 5, 36, 1024, 8, 20
WORK = ("step", "scoring", "images", "captions")


class Comparison:
    """One network, one batch of vectors, and what either side does with them."""

    def __init__(self, name: str, work: str, batch_size: int) -> None:
        torch.set_num_threads(1)
        torch.manual_seed(0)
        config = BACKBONES[name].Config(dropout=0.0)
        self.network = build_backbone(name, config, feature_dim=64, n_regions=REGIONS, vocabulary_size=500)
        self.network.train(work != "scoring")
        self.work = work
        lengths = torch.randint(SHORTEST, LONGEST + 1, (batch_size,))
        tokens = torch.randint(1, 500, (batch_size, LONGEST)) * (torch.arange(LONGEST) < lengths[:, None])
        with torch.no_grad():
            features = torch.rand(batch_size, REGIONS, 64)
            self.images = self.network.encode_images(features, torch.full((batch_size,), REGIONS))
            self.captions = self.network.encode_captions(tokens, lengths)
        if work == "scoring":  # as many pairs, from many images and few captions
            self.images = repeated(self.images, times=16)
            self.captions = self.captions_of(batch_size // 16)

    def captions_of(self, n: int) -> Encoded:
        whole = self.captions.pooled
        assert whole is not None
        return Encoded(self.captions.vectors[:n], self.captions.lengths[:n], whole[:n])

    def run(self, side: str) -> float:
        """Seconds of one pass."""
        start = time.perf_counter()
        with torch.set_grad_enabled(self.work != "scoring"):
            similarities = self.similarities(side, fresh(self.images), fresh(self.captions))
            if self.work != "scoring":
                similarities.sum().backward()
        return time.perf_counter() - start

    def similarities(self, side: str, images: Encoded, captions: Encoded) -> torch.Tensor:
        if self.work == "images":
            if side == "blocks":
                return self.network.image_image_similarities(images)
            whole = self.network.image_vector(images.vectors)
            again = Encoded(images.vectors, images.lengths, whole)
            return sgraf_loop.image_image_similarities(self.network, again)
        if self.work == "captions":
            if side == "blocks":
                return self.network.caption_caption_similarities(captions)
            return sgraf_loop.caption_caption_similarities(self.network, captions)
        if side == "blocks":
            return self.network.similarities(images, captions)
        return sgraf_loop.similarities(self.network, images, captions)


def repeated(side: Encoded, times: int) -> Encoded:
    assert side.pooled is not None
    return Encoded(side.vectors.repeat(times, 1, 1), side.lengths.repeat(times), side.pooled.repeat(times, 1))


def fresh(side: Encoded) -> Encoded:
    assert side.pooled is not None
    return Encoded(
        side.vectors.detach().requires_grad_(), side.lengths, side.pooled.detach().requires_grad_()
    )


def peak_megabytes(name: str, work: str, side: str, batch_size: int) -> float:
    """How far one pass lifts the resident memory of a process that is warm."""
    command = [sys.executable, __file__, name, work, side, str(batch_size)]
    done = subprocess.run(command, check=True, capture_output=True, text=True, cwd=TESTS.parent)
    return float(json.loads(done.stdout))


@pytest.mark.parametrize("work", WORK)
@pytest.mark.parametrize("name", ["saf", "sgr"])
def test_blocks_are_no_slower_and_no_larger_than_the_loop(name: str, work: str) -> None:
    comparison = Comparison(name, work, batch_size=32)
    seconds: dict[str, list[float]] = {"loop": [], "blocks": []}
    for _ in range(ROUNDS):
        for side, taken in seconds.items():
            taken.append(comparison.run(side))
    loop, blocks = (min(seconds[side][1:]) for side in ("loop", "blocks"))
    memory = {side: peak_megabytes(name, work, side, 64) for side in ("loop", "blocks")}
    print(
        f"\n{name} {work}: loop {loop:.2f} s, blocks {blocks:.2f} s, ratio {loop / blocks:.2f}; "
        f"peak at 64 x 64: loop {memory['loop']:.0f} MB, blocks {memory['blocks']:.0f} MB"
    )
    assert blocks <= 1.1 * loop  # the rest is noise
    assert memory["blocks"] < memory["loop"]


def resident(field: str) -> float:
    """``VmRSS``, the resident memory, or ``VmHWM``, its peak, in megabytes (Linux)."""
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith(field)) / 1024


if __name__ == "__main__":
    Comparison(*sys.argv[1:3], batch_size=16).run(sys.argv[3])
    comparison = Comparison(*sys.argv[1:3], batch_size=int(sys.argv[4]))
    Path("/proc/self/clear_refs").write_text("5")  # the peak starts anew
    before = resident("VmRSS")
    comparison.run(sys.argv[3])
    print(json.dumps(resident("VmHWM") - before))
