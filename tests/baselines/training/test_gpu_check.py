"""``ncl-bench doctor --gpu`` with tiny networks on the CPU, which is its own reference."""

import torch
from support.parity import TRAINED

from baselines.backbones import BACKBONES
from baselines.training.gpu_check import Size, published, table, trained

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


def rows(sizes: dict[str, Size]) -> list[list[str]]:
    """The values of every row."""
    _, *lines = table(CPU, sizes)
    return [[value.strip() for value in line.strip("|").split("|")] for line in lines]


def test_every_backbone_trains_as_on_the_cpu_in_every_precision() -> None:
    found = rows(SIZES)
    assert [row[:2] for row in found] == [
        [name, precision] for name in SIZES for precision in ("32-true", "tf32", "bf16-mixed")
    ]
    for name, precision, apart, pairs, milliseconds in found:
        assert float(apart) == 0 if precision == "32-true" else float(apart) < 0.05, name
        assert pairs == "4"
        assert float(milliseconds) > 0
    assert torch.get_float32_matmul_precision() == "highest"


def test_a_backbone_that_fails_says_why_and_the_others_follow() -> None:
    found = rows({"saf": SIZES["saf"]._replace(regions=-1), "scan": SIZES["scan"]})
    assert [row[2].startswith("failed: ") for row in found] == 3 * [True] + 3 * [False]


def test_losses_fall() -> None:
    few, many = (trained("vse_infinity", SIZES["vse_infinity"], "32-true", CPU, 8, n)[0] for n in (1, 10))
    assert many < few


def test_published_sizes_are_the_defaults() -> None:
    assert published()["sgr"] == Size(BACKBONES["sgr"].Config(), 128, 36, 2048, 8481)
