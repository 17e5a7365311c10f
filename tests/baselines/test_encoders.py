"""Encoders by name: what they see, what they give, and whose weights they take."""

import hashlib
import sys

import numpy as np
import pytest
import torch
from safetensors.torch import save_file
from support.drawings import SIZE, draw, drawing, tiny_encoder
from support.refusals import refused
from support.rounding import assert_near

from baselines.backbones.torchvision import import_beside
from baselines.encoders import LITE0, load_encoder
from baselines.features import FeatureOptions, extract, list_images

MAPS, TOKENS = "test_resnet", "test_vit"


@pytest.fixture(scope="module")
def timm():
    import_beside("timm")
    return pytest.importorskip("timm")


@pytest.fixture
def weights(timm, tmp_path):
    """Write random weights of a model, with its classifier, to a file."""

    def written(name, suffix=".safetensors"):
        torch.manual_seed(0)
        tensors = timm.create_model(name).state_dict()
        path = tmp_path / f"{name}{suffix}"
        if suffix == ".safetensors":
            save_file(tensors, path)
        else:
            torch.save({"state_dict": tensors} if suffix == ".tar" else tensors, path)
        return path

    return written


def pictures(n, size):
    return torch.from_numpy(np.stack([np.asarray(drawing(i, (size, size))) for i in range(n)]))


def test_the_default_encoder_needs_no_timm_and_sees_what_it_was_trained_with(monkeypatch):
    monkeypatch.setitem(sys.modules, "timm", None)
    encoder = load_encoder()
    seen = pictures(2, encoder.size)
    with torch.inference_mode():
        grid = encoder(seen)
        expected = encoder.network.extract_features((seen.permute(0, 3, 1, 2).float() - 127) / 128)
    assert grid.shape == (2, 1280, 7, 7)
    assert_near(grid, expected)
    assert encoder.weights_sha256.startswith("57934424")  # the published file's name says so


@pytest.mark.parametrize(
    ("name", "shape"),
    [(MAPS, (3, 96, 5, 5)), (TOKENS, (3, 64, 10, 10)), ("test_efficientnet", (3, 256, 5, 5))],
)
def test_models_of_timm_give_grids(name, shape, weights, timm):
    file = weights(name)
    encoder = load_encoder(name, file)
    seen = pictures(3, encoder.size)
    with torch.inference_mode():
        grid = encoder(seen)
        settings = timm.data.resolve_model_data_config(encoder.network)
        mean, std = (torch.tensor(settings[key]).reshape(3, 1, 1) for key in ("mean", "std"))
        features = encoder.network.forward_features((seen.permute(0, 3, 1, 2) / 255 - mean) / std)
    assert grid.shape == shape
    if features.ndim == 3:  # one token stands for the whole image; the others are the patches, row by row
        features = torch.stack([features[:, 1 + 10 * row : 11 + 10 * row] for row in range(10)], dim=1)
        features = features.permute(0, 3, 1, 2)
    assert_near(grid, features, 1e-4)
    assert encoder.weights == file.name
    assert encoder.weights_sha256 == hashlib.sha256(file.read_bytes()).hexdigest()


def test_maps_with_the_numbers_last_are_turned(monkeypatch):
    encoder = tiny_encoder()
    expected = encoder(pictures(2, SIZE))
    first = encoder.network.forward_features
    monkeypatch.setattr(encoder.network, "forward_features", lambda seen: first(seen).permute(0, 2, 3, 1))
    assert torch.equal(encoder(pictures(2, SIZE)), expected)


@pytest.mark.parametrize("shape", [(2, 5), (2, 7, 5), (2, 4, 4, 6)])
def test_a_network_without_a_grid_is_refused(shape, monkeypatch):
    encoder = tiny_encoder()
    monkeypatch.setattr(encoder.network, "forward_features", lambda seen: torch.zeros(shape))
    with refused():
        encoder(pictures(2, SIZE))


def test_every_kind_of_weights_file_gives_the_same_network(weights):
    first, *others = (
        load_encoder(MAPS, weights(MAPS, suffix)).network.state_dict()
        for suffix in (".safetensors", ".pth", ".tar")
    )
    for other in others:
        assert first.keys() == other.keys()
        assert all(torch.equal(first[name], other[name]) for name in first)


def test_weights_that_do_not_fit_are_refused(weights, tmp_path):
    tensors = torch.load(weights(MAPS, ".pth"), weights_only=True)
    torch.save(tensors | {"more": torch.zeros(1)}, tmp_path / "more.pth")
    for name, file in (
        (MAPS, weights(TOKENS, ".pth")),
        (MAPS, tmp_path / "more.pth"),
        (LITE0, weights(MAPS)),
    ):
        with refused():
            load_encoder(name, file)


class Hostile:
    def __reduce__(self):
        return print, ("never printed",)


@pytest.mark.parametrize("content", [Hostile(), {"a": Hostile()}, [1, 2], {"a": 1}])
def test_nothing_is_unpickled_but_tensors(content, timm, tmp_path, capsys):
    torch.save(content, tmp_path / "weights.pth")
    with refused():
        load_encoder(MAPS, tmp_path / "weights.pth")
    assert "never printed" not in capsys.readouterr().out


@pytest.mark.parametrize("name", ["gone.safetensors", "gone.pth", "text.safetensors", "text.pth"])
def test_files_that_hold_no_weights_are_refused(name, timm, tmp_path):
    (tmp_path / "text.safetensors").write_text("hello")
    (tmp_path / "text.pth").write_text("hello")
    with refused():
        load_encoder(MAPS, tmp_path / name)


def test_unknown_names_and_missing_packages_are_told(timm, monkeypatch):
    with refused():
        load_encoder("resnet1e9")
    for name, package in ((LITE0, "efficientnet_lite_pytorch"), (MAPS, "timm")):
        monkeypatch.setattr("ncl_bench.extras.find_spec", lambda asked, gone=package: asked != gone or None)
        with refused():
            load_encoder(name)


def test_without_a_network_weights_are_asked_for(timm, monkeypatch):
    def no_network(name, **options):
        raise OSError("the hub cannot be reached\nand so on")

    monkeypatch.setattr(timm, "create_model", no_network)
    with refused():
        load_encoder("resnet18")


def test_published_weights_are_named_and_hashed(timm, monkeypatch):
    make = timm.create_model

    def fetched(name, pretrained, num_classes):
        torch.manual_seed(0)
        return make(name, num_classes=num_classes)

    monkeypatch.setattr(timm, "create_model", fetched)
    first, second = load_encoder(MAPS), load_encoder(MAPS)
    assert first.weights == "timm/test_resnet.r160_in1k"
    assert first.weights_sha256 == second.weights_sha256
    torch.manual_seed(1)
    monkeypatch.setattr(timm, "create_model", lambda name, pretrained, num_classes: make(name, num_classes=0))
    assert load_encoder(MAPS).weights_sha256 != first.weights_sha256


def test_a_model_of_timm_encodes_a_folder(weights, tmp_path):
    draw(tmp_path / "photos", 10)
    encoder = load_encoder(TOKENS, weights(TOKENS))
    done = extract(
        list_images(tmp_path / "photos"), encoder, tmp_path / "out", FeatureOptions(grid=2, batch_size=4)
    )
    assert np.load(tmp_path / "out" / "train_ims.npy").shape == (8, 4, 64)
    assert (done.encoder, done.weights, done.preprocessing.size) == (TOKENS, "test_vit.safetensors", 160)
    assert done.versions["timm"]
