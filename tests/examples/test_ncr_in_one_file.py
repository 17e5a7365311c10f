"""The one-file NCR takes the steps of the trainer with ``baselines.methods.ncr``, to the bit."""

from pathlib import Path
from typing import Any

import ncr_in_one_file as one_file
import pytest
import torch
from pydantic import BaseModel
from support.few_digits import digits_job, load_few, trained
from torch import Tensor

import baselines.training.job
from baselines.backbones import BACKBONES
from baselines.kit import CosineBackbone, Encoded, derive_seed
from baselines.kit.mixture import clean_posterior, is_clean

SCHEDULE = {"warmup_epochs": 2, "epochs": 2}  # the second epoch trains on noisy batches too


class NoOptions(BaseModel):
    """The network has none."""


class OneFileNetwork(CosineBackbone):
    """The network of the example, as the trainer wants it."""

    name, title, Config = "one_file", "One file", NoOptions
    embed_size = one_file.SIZE

    def __init__(self, config: Any, feature_dim: int, n_regions: int, vocabulary_size: int) -> None:
        super().__init__()
        self.network = one_file.Network(feature_dim, vocabulary_size)

    def encode_images(self, image_features: Tensor, image_lengths: Tensor) -> Encoded:
        return Encoded(
            self.network.images(image_features), torch.ones(len(image_features), dtype=torch.int64)
        )

    def encode_captions(self, caption_tokens: Tensor, caption_lengths: Tensor) -> Encoded:
        vectors = self.network.captions(caption_tokens, caption_lengths)
        return Encoded(vectors, torch.ones(len(vectors), dtype=torch.int64))


def seed_of_the_engine(kind: str, *purpose: object) -> int:
    return derive_seed(0, kind, 0, *purpose) if kind == "order" else derive_seed(0, kind, *purpose)


@pytest.fixture
def losses(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """The loss of every step that anybody takes."""
    found: list[float] = []
    backward = Tensor.backward

    def recording(loss: Tensor, *arguments: Any, **options: Any) -> None:
        found.append(loss.item())
        backward(loss, *arguments, **options)

    monkeypatch.setattr(Tensor, "backward", recording)
    return found


def test_it_takes_the_steps_of_the_engine(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, losses: list[float]
) -> None:
    monkeypatch.setattr(one_file, "seed_of", seed_of_the_engine)
    train = load_few("digits", split="train", noise_ratio=0.4)
    torch.manual_seed(derive_seed(0, "networks", 0))
    networks = [one_file.Network(train.feature_dim, train.vocabulary.size) for _ in "AB"]
    first = networks[0].word.weight.clone()
    assert len(list(one_file.algorithm_1(networks, train, **SCHEDULE))) == SCHEDULE["epochs"]
    of_one_file = losses[:]
    losses.clear()

    monkeypatch.setitem(BACKBONES, "one_file", OneFileNetwork)
    monkeypatch.setattr(baselines.training.job, "load_dataset", load_few)
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


def test_it_divides_like_the_engine_where_the_mixture_does_not_converge_and_where_all_pairs_are_clean() -> (
    None
):
    losses = torch.linspace(0, 1, 500) ** 8
    assert one_file.clean_probability(losses.numpy(), 7).equal(clean_posterior(losses, random_state=7))
    for w in (torch.linspace(0, 1, 500), torch.linspace(0.96, 1, 500)):
        clean, noisy = one_file.divide(w)
        assert clean.tolist() == is_clean(w, one_file.CLEAN).nonzero().ravel().tolist()
        assert sorted([*clean, *noisy]) == list(range(500))
