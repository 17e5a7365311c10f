"""Two processes compute what one computes: similarities, losses, weights, divisions and scores."""

import json
import os
import signal
from dataclasses import replace

import numpy as np
import pytest
import torch
from rich.console import Console
from support.parity import TRAINED
from support.rounding import assert_near
from support.two_processes import ends_of_two_processes, in_two_processes
from torch import distributed

import baselines.training.job
from baselines.backbones import BACKBONES, build_backbone
from baselines.kit.batches import Batch, TrainingBatches
from baselines.kit.distributed import (
    average_gradients,
    copy_first_rank,
    device_for,
    from_first_rank,
    gathered_on_first,
    own_columns,
    own_strips,
)
from baselines.kit.losses import hardest_triplet
from baselines.methods import METHODS
from baselines.training.job import TrainingJob, build_method
from baselines.training.recipe import Recipe
from baselines.training.run_folder import RunFolder
from baselines.training.scoring import score
from baselines.training.step import OptimiserStep
from baselines.training.submit import submit
from baselines.training.train import Trainer, TrainingProgress
from ncl_bench.errors import TrainingError

STEPS = 5  # hardest negatives of sharp attention let rounding grow thirtyfold in a step of IMRAM
PAIRS = 9  # not a multiple of the number of processes
VSE = {"name": "vse_infinity", "embed_size": 16, "word_dim": 8}
SGR = {"name": "sgr", "embed_size": 8, "word_dim": 6, "sim_dim": 6}
SAF = SGR | {"name": "saf"}
CONSTANTS = {"mscn": {"trusted_pairs": 6, "batch_size": 16}, "pc2": {"classes": 4}}
"""What a method cannot take its default of on a few pairs."""
PAIRWISE = {
    f"{name} on {'vse_infinity' if method.needs_cosines else 'sgr'}": (
        VSE if method.needs_cosines else SGR,
        name,
    )
    for name, method in METHODS.items()
    if not method.closed_form
} | {f"{name} on saf": (SAF, name) for name in ("gsc", "gsc_plus")}
"""Every method that takes steps; GSC compares items of one modality in another way with either network."""
MECHANISMS = ["ncr on sgr", "npc on vse_infinity", "mscn on sgr", "gsc_plus on saf"]
"""Of two networks that divide for each other, a bank read by rows, a module of its own, one modality alone."""


def network_and_batch(name):
    torch.manual_seed(3)
    config = BACKBONES[name].Config(**small(name))
    network = build_backbone(name, config, feature_dim=10, n_regions=4, vocabulary_size=30)
    lengths = torch.randint(3, 8, (PAIRS,))
    tokens = torch.randint(4, 30, (PAIRS, 8)) * (torch.arange(8) < lengths[:, None])
    features = torch.randn(PAIRS, 4, 10).double()
    # in float32 the hardest negatives of SAF let rounding grow a thousandfold within twenty steps
    return network.double(), Batch(features, torch.full((PAIRS,), 4), tokens, lengths, torch.arange(PAIRS))


def small(name):
    sizes = {"embed_size": 12, "word_dim": 6, "sim_dim": 5}
    sizes |= {"caption_hidden": 7, "caption_word_dim": 5}
    return {key: size for key, size in sizes.items() if key in BACKBONES[name].Config.model_fields}


def some_steps(name):
    network, batch = network_and_batch(name)
    network.train()
    # not Adam, which blows up the rounding of gradients that are zero in exact arithmetic
    optimizer = torch.optim.SGD(network.parameters(), lr=0.01)
    losses = []
    for _ in range(STEPS):
        loss = hardest_triplet(network(batch).similarities, 0.2).sum()
        optimizer.zero_grad()
        loss.backward()
        average_gradients(network.parameters())
        optimizer.step()
        losses.append(loss.detach())
    return torch.stack(losses), network.state_dict()


def steps_of_every_backbone():
    return {name: some_steps(name) for name in TRAINED if not BACKBONES[name].reads_images}


def test_every_backbone_trains_in_two_processes_as_in_one(tmp_path):
    expected = steps_of_every_backbone()
    for found in in_two_processes(tmp_path / "ranks", steps_of_every_backbone):
        assert found.keys() == expected.keys()
        for name in expected:
            assert_near(found[name], expected[name], 1e-5, scale=1, name=name)


def by_plain_descent(method):
    """Make the method's optimisers plain gradient descent (see above)."""
    own = method.make_optimizer

    def make_optimizer(self, module, learning_rate):
        groups = own(self, module, learning_rate).param_groups
        return torch.optim.SGD([weight for group in groups for weight in group["params"]], lr=0.01)

    method.make_optimizer = make_optimizer


def renumbered(dataset):
    return replace(dataset, pair_ids=np.arange(len(dataset)))


def job(method, backbone, n_pairs):
    """A run on a few pairs, by plain gradient descent."""
    from support.few_digits import load_few  # composes the digits, which the other tests do not need

    def load(name, **options):
        dataset = load_few(name, **options)
        if options["split"] != "train":
            return dataset
        # an image that comes twice in a batch ties with itself, and rounding would choose
        firsts = np.sort(np.unique(dataset.caption_to_image, return_index=True)[1])
        return renumbered(dataset.subset(firsts[:n_pairs]))

    baselines.training.job.load_dataset = load
    by_plain_descent(METHODS[method["name"]])
    recipe = {"dataset": "digits", "batch_size": 16, "backbone": backbone, "method": method}
    return TrainingJob(Recipe.from_dict(recipe), noise_ratio=0.4)


@pytest.fixture
def undone(monkeypatch):
    """``job`` changes the optimisers and the loader of its process; undone afterwards."""
    monkeypatch.setattr(baselines.training.job, "load_dataset", baselines.training.job.load_dataset)
    for method in METHODS.values():
        monkeypatch.setattr(method, "make_optimizer", method.make_optimizer)


def killed_run(folder, last_batch):
    """Train until the second rank kills itself before a batch; what stops the first one."""
    trainer = ncr_trainer(folder)

    def on_batch(pairs, running_loss):
        nonlocal last_batch
        last_batch -= 1
        if last_batch == 0 and distributed.get_rank() == 1:
            os.kill(os.getpid(), signal.SIGKILL)

    progress = TrainingProgress(len(trainer.plans), Console(quiet=True))
    progress.advance = on_batch
    try:
        trainer.run(progress)
    except TrainingError as error:
        (folder / "said").write_text(str(error))
        os._exit(2)
    raise AssertionError("the run went on alone")


def ncr_trainer(folder):
    """NCR divides the pairs; one that is divided otherwise trains otherwise."""
    method = {"name": "ncr", "warmup_epochs": 1, "epochs": 1}
    return Trainer(job(method, VSE, 64), RunFolder(folder / "run"), "cpu")


def whole_run(folder):
    """Train with NCR and score test."""
    trainer = ncr_trainer(folder)
    trainer.run(TrainingProgress(len(trainer.plans), Console(quiet=True)))
    submit([folder / "run"], folder / "submission", device="cpu")
    return {"state": trainer.method.state_dict(), "epochs_recorded": len(trainer.history)}


@pytest.mark.usefixtures("undone")
def test_the_engine_in_two_processes_does_what_it_does_in_one(tmp_path):
    (tmp_path / "one").mkdir()
    expected = whole_run(tmp_path / "one")
    first, second = in_two_processes(tmp_path / "two", whole_run, tmp_path / "two")
    assert_near(first["state"], expected["state"], 1e-5, scale=1)
    torch.testing.assert_close(second["state"], first["state"], rtol=0, atol=0)
    histories = [json.loads((tmp_path / n / "run" / "history.json").read_text()) for n in ("one", "two")]
    for entry, other in zip(*histories, strict=True):
        assert entry["steps"] == other["steps"] >= STEPS
        assert other["loss"] == pytest.approx(entry["loss"], abs=1e-5)
    scores = [np.load(tmp_path / n / "submission" / "test.npy") for n in ("one", "two")]
    assert_near(scores[1], scores[0], 1e-5, scale=1)
    assert first["epochs_recorded"] == len(histories[0])
    assert second["epochs_recorded"] == 0


@pytest.mark.slow
def test_the_engine_killed_in_two_processes_goes_on_with_the_same_bits(tmp_path):
    from support.few_digits import outcome

    in_two_processes(tmp_path / "two", whole_run, tmp_path / "two")
    broken = tmp_path / "broken"
    assert ends_of_two_processes(broken, killed_run, broken, 15) == [2, -signal.SIGKILL]
    assert "another process of this command has ended" in (broken / "said").read_text()
    assert not (broken / "run" / "training.json").exists()
    (broken / "store").unlink()
    in_two_processes(broken, whole_run, broken)
    assert outcome(broken / "run") == outcome(tmp_path / "two" / "run")


class DoubleBatches(TrainingBatches):
    """In float32 hardest negatives and mixtures magnify rounding."""

    def _read(self, wanted):
        return map(doubled, super()._read(wanted))

    def read(self, pair_ids, images_of=None):
        return doubled(super().read(pair_ids, images_of))


def doubled(batch):
    return replace(batch, image_features=batch.image_features.double())


def epochs(name):
    """The first epoch of a method and its last, with dropout, and scores of some images of dev."""
    backbone, method_name = PAIRWISE[name]
    own_job = job({"name": method_name, **CONSTANTS.get(method_name, {})}, backbone, 400)
    device_for("cpu", "32-true")
    train = own_job.load("train")
    train = renumbered(train.subset(np.argsort(train.tokens.lengths, kind="stable")[:48]))  # short captions
    method = build_method(own_job, train).double()
    step = OptimiserStep(gradient_clip=2.0)
    step.optimizers = {module: method.make_optimizer(module, 0.01) for module in method.trained_modules()}
    others = np.setdiff1d(train.pair_ids, method.setting.trusted_ids)
    losses = []
    torch.manual_seed(1)
    first, *_, last = method.plan()
    for seed, plan in enumerate((first, last)):
        method.train_epoch(plan, DoubleBatches(train, batch_size=16, seed=seed, pair_rows=others), step)
        losses.append(step.epoch_means()["loss"])
    method.float().eval()
    scores = score(method.networks, own_job.load("dev"), np.arange(9))
    return {
        "steps": step.count,
        "losses": torch.tensor(losses),
        "state": method.state_dict(),
        "next random number": torch.rand(1),
        "scores": torch.from_numpy(scores),
    }


def all_epochs(names):
    return {name: epochs(name) for name in names}


@pytest.mark.usefixtures("undone")
@pytest.mark.parametrize(
    "names", [MECHANISMS, pytest.param(sorted(PAIRWISE), marks=pytest.mark.slow)], ids=["mechanisms", "all"]
)
def test_every_method_trains_in_two_processes_as_in_one(names, tmp_path):
    whole = all_epochs(names)
    for rank, ranks in enumerate(in_two_processes(tmp_path / "two", all_epochs, names)):
        for name in names:
            expected, found = dict(whole[name]), ranks[name]
            assert expected["steps"] >= STEPS, name
            if rank > 0:
                del expected["scores"]
                assert found.pop("scores").numel() == 0
            assert_near(found, expected, 1e-5, scale=1, name=name)
            assert found["next random number"] == expected["next random number"]


def talk():
    rank = distributed.get_rank()
    module = torch.nn.BatchNorm1d(2)
    module.running_mean.fill_(rank + 1)
    copy_first_rank(module)
    blocks = gathered_on_first(torch.full((3, 2 - rank), float(rank)), [2, 1])
    idle = gathered_on_first(torch.ones(3, 1 - rank), [1])

    def refuse():
        assert rank == 0
        raise TrainingError("the disk is full")

    try:
        from_first_rank(refuse)
    except TrainingError as error:
        refused = str(error)
    return {
        "value": from_first_rank(lambda: f"from {rank}"),
        "refused": refused,
        "mean": module.running_mean,
        "blocks": [block.tolist() for block in blocks],
        "idle": [block.tolist() for block in idle],
    }


def test_what_rank_0_has_or_refuses_reaches_the_others_and_blocks_reach_rank_0(tmp_path):
    first, second = in_two_processes(tmp_path / "ranks", talk)
    for found in (first, second):
        assert found["value"] == "from 0"
        assert found["refused"] == "the disk is full"
        assert found["mean"].tolist() == [1, 1]
    assert first["blocks"] == [[[0, 0]] * 3, [[1]] * 3]
    assert first["idle"] == [[[1]] * 3]
    assert second["blocks"] == second["idle"] == []


def test_strips_of_the_ranks_cover_every_column_once_and_weigh_the_same(
    monkeypatch,
):
    for world, n, size in [(1, 10, 4), (2, 128, 128), (3, 128, 5), (4, 128, 128), (4, 3, 2)]:
        monkeypatch.setattr("baselines.kit.distributed.world_size", lambda world=world: world)
        columns, weights = [], []
        for r in range(world):
            monkeypatch.setattr("baselines.kit.distributed.rank", lambda r=r: r)
            strips = own_strips(n, size)
            assert all(0 < strip.stop - strip.start <= size for strip in strips)
            columns += [column for strip in strips for column in range(n)[strip]]
            weights.append(sum(n - column for strip in strips for column in range(n)[strip]))
        assert sorted(columns) == sorted(list(range(n)) * (1 if n >= world else world))
        assert max(weights) <= 1.2 * min(weights)


def test_shares_cover_every_column_once(monkeypatch):
    for world in (1, 2, 3, 5):
        monkeypatch.setattr("baselines.kit.distributed.world_size", lambda world=world: world)
        for n in (0, 1, 7, 128):
            columns = []
            for r in range(world):
                monkeypatch.setattr("baselines.kit.distributed.rank", lambda r=r: r)
                columns += list(range(n))[own_columns(n)]
            assert columns == list(range(n))
