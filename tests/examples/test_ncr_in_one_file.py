"""The one-file NCR takes the steps of the trainer with ``baselines.methods.ncr``, to the bit."""

import ncr_in_one_file as one_file
import torch
from support.few_digits import digits_job, trained
from support.one_file import beside_the_engine

from baselines.kit.mixture import clean_posterior, is_clean

SCHEDULE = {"warmup_epochs": 2, "epochs": 2}  # the second epoch trains on noisy batches too


def test_it_takes_the_steps_of_the_engine(tmp_path, monkeypatch):
    losses, train, networks = beside_the_engine(one_file, monkeypatch)
    first = networks[0].word.weight.clone()
    assert len(list(one_file.algorithm_1(networks, train, **SCHEDULE))) == SCHEDULE["epochs"]
    of_one_file = losses[:]
    losses.clear()

    method = SCHEDULE | {
        "name": "ncr",
        "label_shape": "paper",
        "clean_threshold": one_file.CLEAN,
        "warmup_learning_rate": one_file.WARMUP_RATE,
        "learning_rate": one_file.RATE,
    }
    recipe = {"backbone": {"name": "one_file"}, "batch_size": one_file.BATCH}
    method_of_engine = trained(digits_job(method, recipe=recipe), tmp_path / "run").method
    divided = [memory.values > one_file.CLEAN for memory in method_of_engine.clean_probability]
    assert all(1 < clean.sum() < len(train) - 1 for clean in divided)
    assert not networks[0].word.weight.equal(first)
    # weights alone would not do: the gradient of a hinge does not see how large a label is
    assert of_one_file == losses
    for network, of_engine in zip(networks, method_of_engine.networks, strict=True):
        for name, weight in network.state_dict().items():
            assert weight.equal(of_engine.network.state_dict()[name]), name


def test_it_divides_like_the_engine_where_the_mixture_does_not_converge_and_where_all_pairs_are_clean():
    losses = torch.linspace(0, 1, 500) ** 8
    assert one_file.clean_probability(losses.numpy(), 7).equal(clean_posterior(losses, random_state=7))
    for w in (torch.linspace(0, 1, 500), torch.linspace(0.96, 1, 500)):
        clean, noisy = one_file.divide(w)
        assert clean.tolist() == is_clean(w, one_file.CLEAN).nonzero().ravel().tolist()
        assert sorted([*clean, *noisy]) == list(range(500))
