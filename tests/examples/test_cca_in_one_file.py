"""The one-file CCA finds the vectors and judges the pairs as ``baselines.methods.cca`` does."""

import cca_in_one_file as one_file
import numpy as np
import torch
from support.few_digits import digits_job, load_few, trained
from support.one_file import seed_of_the_engine
from support.rounding import assert_near

import baselines.training.job

SETTING = {"image_ridges": [2.0], "word_ridges": [1.0], "components": [24], "judge": [1.0, 1.0, 24]}


def test_it_projects_and_judges_as_the_method_does(tmp_path, monkeypatch):
    monkeypatch.setattr(one_file, "seed_of", seed_of_the_engine)
    monkeypatch.setattr(one_file, "COMPONENTS", 24)
    monkeypatch.setattr(baselines.training.job, "load_dataset", load_few)
    recipe = {"backbone": {"name": "linear"}}
    method = trained(
        digits_job({"name": "cca_filtered", "rounds": 1, **SETTING}, recipe=recipe), tmp_path
    ).method
    train, dev = load_few("digits", split="train", noise_ratio=0.4), load_few("digits", split="dev")
    occurrences = one_file.counts(train)
    idf = one_file.inverse_frequency(occurrences)
    image_of = np.asarray(train.caption_to_image)
    x = one_file.image_vectors(train)[image_of]
    y = one_file.caption_vectors(occurrences, idf)[:, idf > 0]

    # the method's last round was fitted on what the round before kept
    kept = np.flatnonzero(method.kept.values.numpy())
    similarity = one_file.judged(x, y, image_of, np.arange(len(x)))
    assert one_file.keep(similarity, 1 - len(kept) / len(x)).tolist() == kept.tolist()
    assert_near(one_file.judged(x, y, image_of, kept), method.similarity.values.numpy())

    sides = one_file.fit(x[kept], y[kept], (2.0, 1.0), one_file.most_components(image_of))
    images = one_file.project(one_file.image_vectors(dev), sides[0])
    captions = one_file.project(one_file.caption_vectors(one_file.counts(dev), idf)[:, idf > 0], sides[1])
    pairs = dev.to_torch()
    with torch.no_grad():
        of_engine = (
            method.network.encode_images(pairs["image_features"], pairs["image_lengths"]).vectors[
                :: dev.captions_per_image
            ]
            @ method.network.encode_captions(pairs["caption_tokens"], pairs["caption_lengths"]).vectors.T
        )
    assert_near(images @ captions.T, of_engine.numpy())
