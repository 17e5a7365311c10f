"""The one-file GSC takes the steps of the trainer with ``gsc_plus`` of ``baselines.methods.gsc``, to the bit."""

import gsc_in_one_file as one_file
from support.few_digits import digits_job, trained
from support.one_file import beside_the_engine

EPOCHS = 3  # the labels weight the pairs from the second epoch on, and remember from the third


def test_it_takes_the_steps_of_the_engine(tmp_path, monkeypatch):
    losses, train, networks = beside_the_engine(one_file, monkeypatch)
    first = networks[0].word.weight.clone()
    labels = list(one_file.algorithm_1(networks, train, EPOCHS))[-1]
    of_one_file = losses[:]
    losses.clear()

    method = {"name": "gsc_plus", "epochs": EPOCHS, "learning_rate": one_file.RATE}
    recipe = {"backbone": {"name": "one_file"}, "batch_size": one_file.BATCH}
    of_engine = trained(digits_job(method, recipe=recipe), tmp_path / "run").method
    assert not networks[0].word.weight.equal(first)
    assert of_one_file == losses
    for k, own in enumerate(labels):
        assert own.y.equal(of_engine.indicators[k].label.values)
        assert own.y.std() > 0
    for network, other in zip(networks, of_engine.networks, strict=True):
        for name, weight in network.state_dict().items():
            assert weight.equal(other.network.state_dict()[name]), name
