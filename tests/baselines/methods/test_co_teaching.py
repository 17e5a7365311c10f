"""What methods share: losses of the controls, plans, titles, divisions of two networks, labels of the papers."""

import pytest
import torch
from support.doubles import FixedSimilarities, Steps, StoredBatches, bare_batch
from support.parity import FILES, batch_of, names_between, network_of, small_network, state_of
from support.rounding import assert_near
from torch import nn

from baselines.kit.losses import hardest_triplet, info_nce, mean_triplet, soft_margin
from baselines.kit.method import EpochPlan, Setting
from baselines.methods import METHODS
from baselines.methods.bicro import BiCroConfig, bicro_triplet
from baselines.methods.ncr import NCRConfig, ncr_triplet
from baselines.methods.pc2 import PC2Config, pc2_triplet

S = torch.rand(6, 6, generator=torch.Generator().manual_seed(0))
DECAY = {"epochs": 5, "learning_rate": 1.0, "lr_update": 2}


@pytest.mark.parametrize(
    ("name", "options", "losses"),
    [
        ("triplet", {"warmup_epochs": 1, "epochs": 1}, [mean_triplet(S, 0.2), hardest_triplet(S, 0.2)]),
        ("triplet", {"negatives": "mean", "epochs": 1}, [mean_triplet(S, 0.2)]),
        ("info_nce", {"temperature": 0.3, "epochs": 1}, [info_nce(S, 0.3) / 6]),
    ],
)
def test_a_control_trains_on_its_loss(name, options, losses):
    method = METHODS[name](METHODS[name].Config(**options), Setting(6, 1, 5, lambda: FixedSimilarities(S)))
    step = Steps(method)
    for plan in method.plan():
        method.train_epoch(plan, StoredBatches(bare_batch(6)), step)
    assert step.losses == pytest.approx([loss.sum().item() for loss in losses])


@pytest.mark.parametrize(
    ("name", "options", "rates", "flagged"),
    [
        ("ncr", {"warmup_epochs": 2, **DECAY}, [1, 1, 1, 1, 0.1, 0.1, 0.01], {}),
        ("gsc", DECAY, [1, 1, 0.2, 0.2, 0.04], {}),
        ("rince", {}, [2e-4 * 0.2 ** (epoch // 15) for epoch in range(60)], {}),
        (
            "pc2",
            {"warmup_epochs": 2, "noisy_from_epoch": 3, **DECAY, "lr_update": 4, "selection": "published"},
            [1, 1, 1, 1, 1, 1, 0.1],
            {"new_optimizers": [2], "forget_best": [5]},
        ),
        (
            "pc2",
            {"warmup_epochs": 1, "epochs": 1, "learning_rate": 1, "warmup_learning_rate": 3},
            [3, 1],
            {"new_optimizers": [1]},
        ),
        (
            "crcl",
            {
                "rounds": (3, 5),
                "freeze_epochs": 2,
                "learning_rate": 1,
                "lr_update": 2,
                "selection": "published",
            },
            [1, 1, 0.1, 1, 1, 0.1, 0.1, 0.01],
            {"new_networks": [3], "forget_best": [3]},
        ),
    ],
)
def test_a_plan_decays_and_renews_as_its_paper_does(name, options, rates, flagged):
    method = METHODS[name](
        METHODS[name].Config(**options), Setting(4, 36, 51, nn.Identity if name != "pc2" else vse)
    )
    plan = method.plan()
    assert [epoch.learning_rate for epoch in plan] == pytest.approx(rates)
    for flag in ("new_networks", "new_optimizers", "forget_best"):
        assert [k for k, epoch in enumerate(plan) if getattr(epoch, flag)] == flagged.get(flag, []), flag


@pytest.mark.parametrize(
    "name", ["bicro", "crcl", "cream", "dcl", "decl", "gsc_plus", "in2r", "npc", "pc2", "pcsr", "sps"]
)
def test_dev_chooses_among_all_rounds_and_phases(name):
    plan = METHODS[name](METHODS[name].Config(), Setting(4, 36, 51, vse)).plan()
    assert not any(epoch.forget_best for epoch in plan)


@pytest.mark.parametrize(
    ("name", "file"), [("cream", "S_cream_train"), ("sps", "T_sps_train"), ("in2r", "X_in2r_division")]
)
def test_schedules_match_the_published_code(name, file, golden):
    stored = golden(file)
    for dataset in names_between(stored, "schedule.", ".lr"):
        rates = stored[f"schedule.{dataset}.lr"]
        plan = METHODS[name].Config(epochs=len(rates)).plan()
        assert [(e.phase, e.learning_rate) for e in plan[:5]] == [("warmup", rates[0])] * 5
        assert_near([e.learning_rate for e in plan[5:]], rates, 1e-12)


@pytest.mark.parametrize(
    ("name", "options", "title"),
    [
        ("bicro", {}, "BiCro"),
        ("bicro", {"faults": "published"}, "BiCro (the code's faults)"),
        ("cream", {"faults": "published"}, "CREAM (the code's fault)"),
        ("in2r", {"rectification": "paper", "faults": "published"},
         "IN2R (the paper's rectification, the code's fault)"),
        ("npc", {"warmup_epochs": 2, "faults": "published"}, "NPC (after a warm-up, the code's faults)"),
        ("osa", {"warmup_epochs": 1}, "OSA (after a warm-up)"),
        ("dcl", {"warmup_epochs": 1}, "DCL (after a warm-up)"),
        ("pcsr", {"faults": "published"}, "PCSR (the code's faults)"),
        ("rcl", {"penalty": "tan"}, "RCL (tan)"),
        ("sps", {"faults": "published"}, "SPS (the code's fault)"),
    ],
)  # fmt: skip
def test_a_title_says_what_is_not_the_main_variant(name, options, title):
    assert METHODS[name].title_of(METHODS[name].Config(**options)) == title


def vse():
    return small_network("vse_infinity")


@pytest.mark.parametrize("name", ["ncr", "bicro", "pc2"])
def test_one_pass_divides_for_both_networks_and_is_kept_under_the_number_of_a_pair(name, golden):
    stored = golden(FILES["sgr"])
    batch = batch_of(stored, ids=5)
    setting = Setting(len(batch) + 8, 36, 50, lambda: network_of("sgr", state_of(stored)))
    method, batches = METHODS[name](METHODS[name].Config(), setting), StoredBatches(batch)
    method.co_divide(EpochPlan(0, 0, "train", 1.0), batches)
    assert batches.asked == [("divide",)]
    first, second = (memory.values for memory in method.clean_probability)
    assert (first[:5] == 1).all()
    assert (first[-3:] == 1).all()
    assert not (first[5:-3] == 1).all()
    if name == "ncr":
        assert torch.equal(method.estimates()["clean_probability"], (first + second) / 2)


@pytest.mark.parametrize(
    "triplet",
    [
        lambda s, y: ncr_triplet(s, y, NCRConfig(label_shape="paper")),
        lambda s, y: bicro_triplet(s, y, BiCroConfig(label_shape="paper")),
        lambda s, y: pc2_triplet(s, y, "row", PC2Config(label_shape="paper")),
        lambda s, y: pc2_triplet(s, y, "column", PC2Config(label_shape="paper")),
    ],
)
def test_labels_of_the_papers_give_each_pair_its_own_margin_in_both_directions(triplet):
    random = torch.Generator().manual_seed(0)
    similarities = torch.rand(5, 5, generator=random, dtype=torch.float64)
    labels = torch.rand(5, generator=random, dtype=torch.float64)
    margin = soft_margin(labels, 0.2)
    for i, loss in enumerate(triplet(similarities, labels)):
        others = [j for j in range(5) if j != i]
        caption_cost = max(max(margin[i] - similarities[i, i] + similarities[i, j], 0) for j in others)
        image_cost = max(max(margin[i] - similarities[i, i] + similarities[j, i], 0) for j in others)
        assert loss.item() == pytest.approx(float(caption_cost + image_cost), abs=1e-6)
