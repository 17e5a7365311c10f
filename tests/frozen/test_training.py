"""Losses of every method's first epochs (of a closed form its AUROC), and what audits of the embedded pictures find."""

import hashlib
import json
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from support.drawings import tiny_encoder
from support.few_digits import few_digits_recipe, load_few, trained

from baselines.audit import find_wrong_pairs
from baselines.methods import METHODS
from baselines.training.job import TrainingJob
from baselines.training.recipe import Recipe
from baselines.training.train import Trainer
from ncl_bench import load_dataset

N_PAIRS = 1_050
SUMMARY = ("wrong", "low", "high", "n_rows", "n_judged", "n_pictures", "n_suspects")


@pytest.mark.parametrize("name", METHODS)
def test_first_epochs(name: str, frozen, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    scores = np.random.default_rng(0).random((200, 1000), np.float32)
    monkeypatch.setattr(Trainer, "_score_dev", lambda trainer: scores)
    monkeypatch.setattr(
        "baselines.training.job.load_dataset", lambda *a, **options: load_few(*a, n_pairs=200, **options)
    )
    recipe = few_digits_recipe(name, warmup_epochs=1, epochs=1, rounds=[1, 1], trusted_pairs=32)
    trained(TrainingJob(Recipe.from_dict(recipe), noise_ratio=0.4), tmp_path / "run")
    history = json.loads((tmp_path / "run" / "history.json").read_text())
    found = {
        f"{name} {epoch['index']}": epoch["diagnosis"]["clean_probability"]["auroc"]
        if METHODS[name].closed_form
        else epoch["loss"]
        for epoch in history
    }
    losses = frozen("losses", found)
    # later epochs weigh pairs by a mixture of the losses before, which carries the last bits of another processor into
    # the second digit
    for epoch, loss in found.items():
        assert loss == pytest.approx(losses[epoch], rel=1e-5 if epoch.endswith(" 0") else 0.2), epoch


@pytest.mark.parametrize("kind", ["pairs", "embeddings"])
def test_audits_of_pictograms(kind: str, frozen, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A fifth of the captions stand at the picture before theirs."""
    monkeypatch.setattr("baselines.encoders.load_encoder", lambda *_: tiny_encoder())
    monkeypatch.setattr("baselines.audit.judge.CHANCE", 2_000)  # fewer planted pairs, in a fifth of the time
    data = load_dataset("pictograms").subset(np.arange(N_PAIRS))
    paired = np.arange(N_PAIRS)
    paired[::5] = np.roll(paired[::5], 1)
    names = [f"{row}.png" for row in range(N_PAIRS)]
    rows = pd.DataFrame({"image": names, "caption": [data.captions[row] for row in paired]})
    if kind == "pairs":
        for row, name in enumerate(names):
            (tmp_path / name).write_bytes(data.images[row])
        table = find_wrong_pairs(rows, images=tmp_path, text_encoder="tfidf", device="cpu")
    else:
        images = data.image_features[np.arange(N_PAIRS)].mean(1)
        captions = images + images.std() * np.random.default_rng(0).standard_normal(images.shape)
        table = find_wrong_pairs(rows, image_embeddings=images, caption_embeddings=captions[paired])
    summary, shown = table.attrs["summary"], table.iloc[::29]
    found: dict[str, float | str] = {name: summary[name] for name in SUMMARY}
    for name in ("rank", "score", "probability", "similarity"):
        found |= {f"{name} {row}": value for row, value in shown[name].astype(float).items()}
    texts = {name: table[name].str.cat(sep="|", na_rep="").encode() for name in ("better_1", "reason")}
    hashes = {name: hashlib.sha256(text).hexdigest() for name, text in texts.items()}
    known = frozen("audits", {kind: found | hashes})[kind]
    assert hashes == {name: known[name] for name in hashes}
    assert found == pytest.approx({name: known[name] for name in found}, rel=1e-6)
