"""Counted costs: what each operation counts, and that hollow networks cost what real ones compute."""

import pytest
import torch
from support.parity import encoded, small_batch, small_network
from torch.utils.flop_counter import FlopCounterMode

from baselines.backbones import BACKBONES
from baselines.doctor import _peaks
from baselines.engine.cost import CARDS, META, Cost, count, hollow, hollow_batch, scoring_cost, step_cost


def test_a_product_counts_its_arithmetic_what_it_reads_and_writes_and_one_launch() -> None:
    left, right = torch.empty(3, 4, device=META), torch.empty(5, 4, device=META)
    assert count(lambda: left @ right.T) == Cost(2 * 3 * 4 * 5, 4 * (12 + 20 + 15), 1)


def test_what_is_expanded_is_read_once_and_of_a_table_what_is_looked_up() -> None:
    row, table = torch.empty(1, 4, device=META), torch.empty(1000, 4, device=META)
    assert count(lambda: row.expand(3, 4) + 1) == Cost(0, 4 * (4 + 12), 1)
    ids = torch.empty(2, dtype=torch.int64, device=META)
    assert count(lambda: torch.nn.functional.embedding(ids, table)) == Cost(0, 4 * (8 + 8) + 8 * 2, 1)


def test_a_gru_is_one_kernel_per_direction_that_touches_each_tensor_once() -> None:
    gru = torch.nn.GRU(3, 5, batch_first=True, bidirectional=True, device=META)
    items, states, weights = 2 * 4 * 3, 2 * 4 * 2 * 5, 2 * (15 * 3 + 15 * 5 + 2 * 15)
    with torch.no_grad():
        forward = count(lambda: gru(torch.empty(2, 4, 3, device=META)))
    products = 2 * 2 * (8 * 3 * 15 + 8 * 5 * 15)
    assert forward == Cost(products, 4 * (items + weights + states), 2)
    sequences = torch.empty(2, 4, 3, device=META, requires_grad=True)
    grad = torch.empty(2, 4, 10, device=META)
    both = count(lambda: gru(sequences)[0].backward(grad))
    backward = items + 2 * states + weights + items + weights
    assert both == Cost(3 * products, forward.bytes + 4 * backward, 4)


@pytest.mark.parametrize("name", sorted(set(BACKBONES) - {"clip"}))
def test_a_hollow_network_costs_what_a_real_one_computes(name: str) -> None:
    config = {"embed_size": 32, "word_dim": 12}
    block = hollow_batch(6, 9, regions=16, feature_dim=66)
    found = scoring_cost(hollow(name, 16, 66, **config), block, 6, 6)
    network = small_network(name).eval()
    with FlopCounterMode(display=False) as real, torch.no_grad():
        network.similarities(*encoded(network, small_batch(6, [8, 9, 8, 9, 8, 9])))
    assert found.flops == pytest.approx(real.get_total_flops(), rel=0.1)  # padding differs


def test_a_step_costs_more_with_the_batch_and_scoring_is_in_proportion_to_blocks() -> None:
    network = hollow("saf", 4, 8, embed_size=8, word_dim=8, sim_dim=8)
    few, many = (hollow_batch(n, regions=4, feature_dim=8) for n in (4, 8))
    assert 2 < step_cost(network, many).flops / step_cost(network, few).flops < 4
    once, more = (scoring_cost(network, many, 8 * n, 40 * n) for n in (1, 2))
    assert 2 < more.flops / once.flops < 4


def test_a_limit_is_the_arithmetic_or_the_memory_of_a_card() -> None:
    card = CARDS["A100"]
    assert card.seconds(Cost(19.5e12, 0, 1)) == 1
    assert card.seconds(Cost(0, 2.039e12, 1), "tf32") == 1
    assert card.seconds(Cost(0, 2.039e12, 1), "bf16-mixed") == 0.5


def test_doctor_states_the_peaks_of_a_card_that_is_known() -> None:
    assert _peaks("NVIDIA H100 80GB HBM3") == "; at best 494.5 TFLOP/s in TF32 and 3.35 TB/s"
    assert _peaks("NVIDIA GeForce GTX 1080") == ""
