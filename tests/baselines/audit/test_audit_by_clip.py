"""CLIP in one command: OpenCLIP's code with drawn weights; the docs say what was run with published ones."""

from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import torch
from PIL import Image
from support.drawings import describe
from support.processes import python
from support.refusals import refused
from support.tiny_clip import MODEL, open_clip

from baselines.audit import find_wrong_pairs
from baselines.audit.judge import judge_embeddings
from baselines.audit.sentences import sentence_vectors
from baselines.encoders import load_clip, load_encoder
from ncl_bench.data.pictures import read_picture

N = 60


@pytest.fixture(scope="module")
def name(tmp_path_factory):
    """An encoder by its option: an architecture that OpenCLIP knows, and a file of weights."""
    import json

    from safetensors.torch import save_file

    folder = tmp_path_factory.mktemp("clip")
    (folder / "tiny-audit.json").write_text(json.dumps(MODEL))
    open_clip.add_model_config(folder)
    torch.manual_seed(0)
    save_file(open_clip.create_model("tiny-audit").state_dict(), folder / "weights.safetensors")
    return f"open_clip:tiny-audit:{folder / 'weights.safetensors'}"


def test_pictures_and_captions_are_encoded_as_openclip_does(name, tmp_path):
    pixels = np.random.default_rng(0).integers(0, 256, (50, 80, 3), np.uint8)
    Image.fromarray(pixels).save(tmp_path / "0.png")
    encoder = load_encoder(name)
    network, _, _ = load_clip(name)
    _, _, transform = open_clip.create_model_and_transforms("tiny-audit")
    seen = torch.from_numpy(
        read_picture(tmp_path / "0.png", "", encoder.size, encoder.interpolation, encoder.crop)
    )
    with torch.no_grad():
        ours = encoder(seen[None])[0, :, 0, 0]
        theirs = network.encode_image(transform(Image.fromarray(pixels))[None])[0]
        captions = network.encode_text(open_clip.get_tokenizer("tiny-audit")(["a dog", "a red ball"]))
    assert torch.cosine_similarity(ours, theirs, dim=0) > 0.99
    expected = torch.nn.functional.normalize(captions)
    np.testing.assert_allclose(
        sentence_vectors(["a dog", "a red ball"], name, device="cpu"), expected, atol=1e-5
    )


def test_one_command_audits_with_clip_and_resumes(name, tmp_path, monkeypatch):
    random = np.random.default_rng(0)
    for row in range(N):
        Image.fromarray(random.integers(0, 256, (40, 40, 3), np.uint8)).save(tmp_path / f"{row}.png")
    frame = pd.DataFrame(
        {"image": [f"{row}.png" for row in range(N)], "caption": [f"thing {row} is here" for row in range(N)]}
    )
    first = find_wrong_pairs(frame, images=tmp_path, to=tmp_path / "audit", encoder=name, device="cpu")
    assert first["score"].notna().all()
    monkeypatch.setattr("baselines.audit.judge.sentence_vectors", None)  # done before
    again = find_wrong_pairs(frame, images=tmp_path, to=tmp_path / "audit", encoder=name, device="cpu")
    pd.testing.assert_frame_equal(first, again)


@pytest.mark.parametrize("mixed", [False, True])
def test_cca_is_fitted_on_top_where_it_tells_more(mixed, monkeypatch):
    monkeypatch.setattr("baselines.audit.judge.FEWEST_FOR_SHARE", 200)
    random = np.random.default_rng(0)
    images = random.standard_normal((400, 16))
    captions = images + random.standard_normal((400, 16))
    if mixed:  # both sides say the same in other directions, so that a cosine says nothing
        captions = captions @ np.linalg.qr(random.standard_normal((16, 16)))[0]
    raw = (images * captions).sum(1) / np.linalg.norm(images, axis=1) / np.linalg.norm(captions, axis=1)
    found = judge_embeddings(images, captions, np.arange(400)).table["similarity"]
    assert np.allclose(found, raw, atol=1e-5) is not mixed
    assert found.mean() > 0.4


def test_unknown_names_are_refused():
    with refused():
        load_encoder("open_clip:no-such-model")
    with refused():
        load_encoder("open_clip:ViT-B-32:no-such-weights")


FRESH = """
import sys
from baselines.backbones.clip_models import open_clip_package
open_clip_package().add_model_config(sys.argv[1])
from ncl_bench.cli import app
app(sys.argv[2:])
"""


def test_the_command_runs_in_a_process_of_its_own(name, tmp_path):
    """Beside a torch for CPUs too, for which torchvision's operators are not built."""
    describe(tmp_path, 50)
    weights = name.split(":")[2]
    arguments = [tmp_path / "captions.csv", "--images", tmp_path / "photos", "--encoder", name]
    python(FRESH, Path(weights).parent, "audit", *arguments, "--to", tmp_path / "audit")
    assert len(pd.read_csv(tmp_path / "audit" / "pairs.csv")) == 50
