"""``ncl-bench doctor --gpu`` with tiny networks on the CPU, which is its own reference."""

import torch
from support.tiny_clip import MODEL, WORDS

from baselines.backbones import BACKBONES
from baselines.engine.cost import CARDS
from baselines.engine.gpu_check import CPU, HEAD, Size, known_card, published, table, trained
from ncl_bench.errors import NclBenchError

FURTHER = {
    "saf": {"sim_dim": 8},
    "sgr": {"sim_dim": 8},
    "vsrn": {"caption_hidden": 8, "caption_word_dim": 4, "caption_longest": 6},
}
SIZES = {
    name: Size(BACKBONES[name].Config(embed_size=8, word_dim=4, **FURTHER.get(name, {})), 4, 4, 6, 50)
    for name in BACKBONES
    if name != "clip"
} | {"clip": Size(BACKBONES["clip"].Config(model=MODEL), 4, 16, 192, WORDS)}


def rows(sizes: dict[str, Size]) -> tuple[list[list[str]], str]:
    """The cells of every row, and what is said after the table."""
    lines, said = [], ""
    try:
        for line in table(CPU, sizes, CARDS["H100"]):
            lines.append(line)
    except NclBenchError as error:
        said = str(error)
    assert lines[0] == HEAD
    assert {line.count("|") for line in lines} == {HEAD.count("|")}
    return [[cell.strip() for cell in line.strip("|").split("|")] for line in lines[2:]], said


def test_every_backbone_trains_as_on_the_cpu_in_every_precision() -> None:
    found, said = rows(SIZES)
    assert said == ""
    assert [row[:2] for row in found] == [
        [name, precision] for name in SIZES for precision in ("32-true", "tf32", "bf16-mixed")
    ]
    for name, precision, apart, pairs, milliseconds, limit, ratio in found:
        assert float(apart) == 0 if precision == "32-true" else float(apart) < 0.05, name
        assert pairs == "4"
        assert min(float(milliseconds), float(ratio)) > 0 <= float(limit)
    assert torch.get_float32_matmul_precision() == "highest"


def test_a_backbone_that_fails_says_why_and_the_others_follow() -> None:
    broken = SIZES["saf"]._replace(regions=-1)
    found, said = rows({"saf": broken, "scan": SIZES["scan"]})
    assert [row[2].startswith("failed: ") for row in found] == 3 * [True] + 3 * [False]
    assert said == "3 of the rows above failed; send the table with the bug report"


def test_losses_fall() -> None:
    losses, _ = trained("vse_infinity", SIZES["vse_infinity"], "32-true", CPU, 8, 10)
    assert losses[-1] < losses[0]


def test_published_sizes_are_the_defaults_and_a_card_is_known_by_its_name() -> None:
    sizes = published()
    assert set(sizes) == set(BACKBONES)
    assert sizes["sgr"] == Size(BACKBONES["sgr"].Config(), 128, 36, 2048, 8481)
    assert known_card("NVIDIA H100 80GB HBM3") == CARDS["H100"]
    assert known_card("Example GPU") is None
