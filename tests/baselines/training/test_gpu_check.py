"""``ncl-bench doctor --gpu`` with tiny networks on the CPU, which is its own reference."""

import torch
from support.parity import TRAINED

from baselines.backbones import BACKBONES
from baselines.training.gpu_check import (
    WARM_UP,
    Size,
    last_loss,
    profile_table,
    profiled,
    published,
    table,
    timed,
    training,
)

CPU = torch.device("cpu")
FURTHER = {
    "saf": {"sim_dim": 8},
    "sgr": {"sim_dim": 8},
    "vsrn": {"caption_hidden": 8, "caption_word_dim": 4, "caption_longest": 6},
}
SIZES = {
    name: Size(BACKBONES[name].Config(embed_size=8, word_dim=4, **FURTHER.get(name, {})), 4, 4, 6, 50)
    for name in TRAINED
    if name != "clip"
}


def rows(sizes):
    """The values of every row."""
    _, *lines = table(CPU, sizes, steps=3)
    return [[value.strip() for value in line.strip("|").split("|")] for line in lines]


def test_every_backbone_trains_as_on_the_cpu_in_every_precision():
    found = rows(SIZES)
    assert [row[:2] for row in found] == [
        [name, precision] for name in SIZES for precision in ("32-true", "tf32", "bf16-mixed")
    ]
    for name, precision, apart, pairs, _, host, on_device, _, peak in found:
        assert float(apart) == 0 if precision == "32-true" else float(apart) < 0.05, name
        assert pairs == "4"
        assert host == on_device  # a CPU is its own host
        assert peak == "-"
    assert torch.get_float32_matmul_precision() == "highest"


def test_a_backbone_that_fails_says_why_and_the_others_follow():
    found = rows({"saf": SIZES["saf"]._replace(regions=-1), "scan": SIZES["scan"]})
    assert [row[2].startswith("failed: ") for row in found] == 3 * [True] + 3 * [False]


def test_losses_fall():
    few, many = (
        last_loss(training("vse_infinity", SIZES["vse_infinity"], "32-true", CPU, 8), n) for n in (1, 10)
    )
    assert many < few


def test_the_warm_up_is_no_timed_step():
    calls = []

    def step():
        calls.append(None)
        return torch.zeros(())

    found = timed(step, CPU, steps=5)
    assert len(calls) == WARM_UP + 5
    assert len(found.host) == len(found.device) == 5


def test_a_profile_counts_the_operations_of_one_step_that_no_other_one_calls():
    weight = torch.ones(3, 3, requires_grad=True)

    def step():
        with torch.no_grad():
            return torch.matmul(weight, weight).sum()  # matmul calls mm

    found = profiled(step, CPU)
    assert found[1:] == (2, 0, 0, 0)
    head, line, *_ = profile_table(CPU, {"scan": SIZES["scan"]})
    assert len(line.split("|")) == len(head.splitlines()[0].split("|"))
    assert int(line.split("|")[5].replace(",", "")) > 50


def test_published_sizes_are_the_defaults():
    assert published()["sgr"] == Size(BACKBONES["sgr"].Config(), 128, 36, 2048, 8481)
