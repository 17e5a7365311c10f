"""What the tests of methods with two networks share: stored networks, batches of three sets, comparisons."""

import torch
from support.doubles import StoredBatches, bare_batch
from support.parity import tensor

from baselines.kit.method import Setting


class SetsInTurn(StoredBatches):
    """Batches of three sets, by the names that the frame gives them.

    Attributes:
        sets: the pairs of each.
    """

    def __init__(self, clean, middle, noisy):
        super().__init__(clean=clean, middle=middle, noisy=noisy)
        none = torch.empty(0, dtype=torch.int64)
        self.sets = tuple(
            torch.cat([none, *(batch.pair_ids for batch in each)]) for each in (clean, middle, noisy)
        )


def stored_batches(stored, name):
    """The batches of a set, in order."""
    numbers = sorted(int(number) for number in stored.names(f"batch.{name}"))
    return [bare_batch(tensor(stored[f"batch.{name}{number}"])) for number in numbers]


def on_both_networks(method, stored, **options):
    """A method whose networks are the stored ones, A and B."""
    both = iter([stored.network("sgr", f"{letter}.") for letter in "AB"])
    n_pairs = sum(len(stored[f"batch.{name}.images"]) for name in stored.names("batch.", ".images"))
    return method(method.Config(**options), Setting(n_pairs, 1, 1, lambda: next(both)))


def mixtures_of(stored):
    """The stored posteriors of networks A and B by case; the tests of mixtures compare them."""
    return {
        case: [tensor(stored[f"{case}.prob_{network}"]) for network in "AB"]
        for case in stored.names("", ".np_seed")
    }


def assert_turns(method, step, stored, name):
    """Compare which network took each step, on how many pairs."""
    numbers = {network: k for k, network in enumerate(method.networks)}
    stored.equal([numbers[modules[0]] for modules, _, _ in step.calls], f"{name}network")
    stored.equal([len(batch) for _, batch, _ in step.calls], f"{name}batch_size")


def assert_similarities(method, batch, stored, name):
    """Compare the similarities of either network after its steps; they are stored in double precision."""
    for network, letter in zip(method.networks, "AB" if stored.double else "", strict=stored.double):
        with torch.no_grad():
            found = network.eval()(batch).similarities
        stored.near(found, f"{name}sims_{letter}", 0, 1e-6)


def near_trajectory(method, step, losses, labels, batch, stored, start):
    """Compare turns, losses, lengths of gradients, the labels of each step, and similarities at the end."""
    assert_turns(method, step, stored, start)
    stored.near(losses, f"{start}loss", 1e-2, 1e-5)
    stored.near(step.norms, f"{start}grad_norm", 3e-2, 1e-5)
    for number, given in enumerate(labels):
        stored.near(given[:, None], f"{start}labels{number}", 5e-3, 1e-6)
    assert_similarities(method, batch, stored, start)
