"""What a run folder says is read back, and damaged records are refused in a sentence."""

import json

import pytest
from support.refusals import refused

from baselines.training.measures import Epoch
from baselines.training.run_folder import Outcome, RunFolder

DEV = {"r_sum": 100.0}
BACKBONE, METHOD = {"name": "vse_infinity", "embed_size": 64}, {"name": "triplet", "epochs": 6}
NOISE = {"unit": "caption", "ratio": 0.4, "seed": 0, "sha256": "cd", "realised_ratio": 0.3999, "source": None}
RUN = {"seed": 3, "precision": "32-true", "fingerprint": "ab", "noise": NOISE}
RUN["recipe"] = {"dataset": "digits", "backbone": BACKBONE, "method": METHOD}
EPOCH = {"index": 0, "round": 0, "phase": "train", "epoch": 0, "learning_rate": 0.1, "steps": 7}
EPOCH |= {"taken": [7], "dev": DEV, "best": True, "loss": 2.0, "terms": {"cross_modal": 1.5}}


def test_what_a_run_need_not_say_has_a_default(tmp_path):
    (tmp_path / "run.json").write_text(json.dumps(RUN))
    run = RunFolder(tmp_path).read_run()
    assert run.recipe.method["margin"] == 0.2
    assert (run.vocabulary, run.trained_on, run.imported, run.noise.published) == (None, None, None, None)


def test_what_is_written_is_read_back(tmp_path):
    (tmp_path / "run.json").write_text(json.dumps(RUN))
    folder = RunFolder(tmp_path)
    run = folder.read_run()
    folder.write_run(run)
    assert folder.read_run() == run
    assert "imported" not in json.loads((tmp_path / "run.json").read_text())
    history = [Epoch.model_validate(EPOCH)]
    folder.write_history(history)
    assert folder.read_history() == history
    assert not folder.finished
    outcome = Outcome(epochs=1, best_epoch=0, dev=DEV, best_sha256="ab")
    folder.write_outcome(outcome)
    assert folder.finished
    assert folder.read_outcome() == outcome


@pytest.mark.parametrize(
    "content",
    [
        "{",
        "[]",
        json.dumps(RUN | {"seed": "x"}),
        json.dumps(RUN | {"sed": 1}),
        json.dumps(RUN).replace("triplet", "gone"),
    ],
)
def test_a_damaged_record_is_one_sentence(content, tmp_path):
    (tmp_path / "run.json").write_text(content)
    with refused():
        RunFolder(tmp_path).read_run()
