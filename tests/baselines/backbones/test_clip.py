"""CLIP through OpenCLIP: its own numbers, strict weights, images decoded once as evaluated and cropped in training."""

import io
from dataclasses import replace
from itertools import combinations

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from PIL import Image
from safetensors.torch import load_file, save_file
from support.doubles import Steps, StoredBatches
from support.refusals import refused
from support.rounding import assert_near
from support.tiny_clip import END, MODEL, START, WORDS, clip_batch, open_clip, random_weights, tiny_clip

from baselines.backbones import BACKBONES
from baselines.backbones.clip import CLIP
from baselines.backbones.clip_inputs import ImagePatches, patches_of, pixels_of, random_box
from baselines.backbones.clip_models import CLIPConfig, architecture
from baselines.kit.batches import TrainingBatches, collate, derive_seed
from baselines.kit.method import Setting
from baselines.methods.npc import NPC
from baselines.methods.osa import OSA, OSAConfig, random_pairs
from ncl_bench.data.load import load_dataset
from ncl_bench.errors import DataError, TrainingError

TRAIN = load_dataset("digits", split="train")


@pytest.fixture(scope="module")
def network():
    return tiny_clip().eval()


@torch.no_grad()
def test_similarities_are_those_of_open_clip(network):
    """With OpenCLIP's transform, tokenizer and model; ours goes through patches and short rows of tokens."""
    view = CLIP.inputs(network.config, TRAIN)
    rows = np.array([3, 700, 1311])
    similarities = network(collate(view, rows)).similarities
    model = open_clip.CLIP(**MODEL)
    model.load_state_dict(network.towers.state_dict())
    transform = open_clip.image_transform(32, is_train=False)
    files = [TRAIN.images[image] for image in TRAIN.caption_to_image[rows].tolist()]
    pixels = torch.stack([transform(Image.open(io.BytesIO(file))) for file in files])
    tokens = open_clip.SimpleTokenizer()([TRAIN.captions[row] for row in rows.tolist()], 56)
    images, captions, _ = model.eval()(pixels, tokens)
    assert_near(similarities, images @ captions.T, 1e-6, scale=1)


@given(st.integers(1, 3), st.integers(1, 4), st.integers(1, 5))
def test_patches_hold_every_pixel_at_its_place(n, grid, patch):
    pixels = torch.arange(n * 3 * (grid * patch) ** 2.0).view(n, 3, grid * patch, grid * patch)
    patches = patches_of(pixels, patch)
    assert patches.shape == (n, grid * grid, 3 * patch * patch)
    first = pixels[-1, :, :patch, (grid - 1) * patch :]
    assert torch.equal(patches[-1, grid - 1].view(3, patch, patch), first)
    assert torch.equal(pixels_of(patches, patch), pixels)


@torch.no_grad()
def test_a_caption_ignores_padding_and_what_a_method_did_to_its_ends(network):
    batch = clip_batch(5)
    whole = network.encode_captions(batch.caption_tokens, batch.caption_lengths).vectors
    for k, length in enumerate(batch.caption_lengths.tolist()):
        tokens = batch.caption_tokens[k : k + 1, :length].clone()
        tokens[:, 0], tokens[:, -1] = 400, 500
        alone = network.encode_captions(tokens, torch.tensor([length])).vectors
        assert_near(alone, whole[k : k + 1], 1e-6, scale=1)


@torch.no_grad()
def test_words_that_a_method_adds_are_words_and_no_end():
    network, batch = tiny_clip(words=WORDS + 2).eval(), clip_batch(2)
    table = network.towers.token_embedding.weight
    assert torch.equal(table[:WORDS], tiny_clip().towers.token_embedding.weight)
    tokens, vectors = batch.caption_tokens.clone(), []
    for place, word in ((1, int(tokens[0, 1])), (1, WORDS + 1), (2, 17)):  # an end would hide what follows it
        tokens[:, place] = word
        vectors.append(network.encode_captions(tokens, batch.caption_lengths).vectors)
    assert not torch.allclose(vectors[1], vectors[0])
    assert not torch.allclose(vectors[2], vectors[1])


def gradients(network):
    network.zero_grad()
    network(clip_batch(6)).similarities.exp().sum().backward()
    return [p.grad for p in network.parameters() if p.grad is not None]


def test_gradient_checkpointing_changes_no_number():
    plain, checkpointed = tiny_clip().train(), tiny_clip(gradient_checkpointing=True).train()
    assert checkpointed.towers.visual.transformer.grad_checkpointing
    assert checkpointed.towers.transformer.grad_checkpointing
    assert not plain.towers.transformer.grad_checkpointing
    torch.testing.assert_close(gradients(checkpointed), gradients(plain), rtol=0, atol=0)


def test_every_weight_learns_but_the_temperature():
    network = tiny_clip().train()
    gradients(network)
    assert {name for name, p in network.named_parameters() if p.grad is None} == {"towers.logit_scale"}
    assert not network.towers.logit_scale.requires_grad


@pytest.mark.parametrize("method", [NPC, OSA])
def test_methods_that_fine_tune_clip_train_its_temperature(method):
    made = method(method.Config(rising_steps=0, learning_rate=0.01), Setting(6, 16, WORDS, tiny_clip))
    batches, step = StoredBatches(clip_batch(6)), Steps(made, 0.01)
    network = made.networks[0]
    before = network.logit_scale.item()
    made.prepare(batches)
    made.prepared.fill_(True)
    batches.read = lambda ids: clip_batch(6)
    made.train_epoch(made.plan()[0], batches, step)
    assert network.logit_scale.item() != before
    assert network.logit_scale.item() == pytest.approx(before, abs=0.03)


@torch.no_grad()
def test_unrelated_images_and_captions_are_drawn_where_a_network_reads_images():
    """The paper pairs them, the published code takes all pairings."""
    shifts = []
    for faults in ("repaired", "published"):
        made = OSA(OSAConfig(faults=faults), Setting(6, 16, WORDS, tiny_clip))
        made.prepare(StoredBatches(clip_batch(6)))
        cosines = (
            made.networks[0]
            .eval()(random_pairs(clip_batch(6), derive_seed(StoredBatches.seed, "shift")))
            .similarities
        )
        shifts.append(cosines.mean() if faults == "published" else cosines.diagonal().mean())
        assert_near(made.shift, shifts[-1], scale=1)
    assert shifts[0] != shifts[1]


@torch.no_grad()
def test_half_precision_follows_single_precision():
    network, batch = tiny_clip().eval(), clip_batch(40)
    exact = network(batch).similarities
    network.mixed = True
    half = network(batch).similarities
    assert half.dtype == torch.float32
    assert not torch.equal(half, exact)
    assert half.unique().numel() > 0.9 * exact.unique().numel()
    assert_near(half, exact, 0.02, scale=1)


def test_a_caption_is_cut_to_what_the_tower_reads():
    config = CLIPConfig(model={**MODEL, "text_cfg": {**MODEL["text_cfg"], "context_length": 6}})
    view = CLIP.inputs(config, TRAIN.subset(np.arange(9)))
    tokens, lengths = view.tokens.padded(np.array([0, 1]))
    assert lengths.tolist() == [6, 6]
    assert tokens[:, 0].tolist() == [START] * 2
    assert tokens[:, -1].tolist() == [END] * 2
    assert view.tokens.lengths.max() == 6
    assert view.vocabulary.size == WORDS


def test_subsets_and_first_images_keep_captions_and_images_together():
    view = CLIP.inputs(tiny_clip().config, load_dataset("digits", split="dev"))
    part = view.first_images(7).subset(np.array([30, 2]))
    np.testing.assert_array_equal(part.tokens.padded(np.array([1]))[0], view.tokens.padded(np.array([2]))[0])
    np.testing.assert_array_equal(part.image_features[np.array([6])], view.image_features[np.array([6])])
    assert part.image_features.shape == (7, 16, 192)


def in_order(batches):
    """Images of all pairs, by pair."""
    ids, images = (torch.cat(x) for x in zip(*((b.pair_ids, b.image_features) for b in batches), strict=True))
    return images[ids.argsort()].numpy()


def test_training_crops_by_seed_epoch_and_pair_and_evaluation_never():
    view = CLIP.inputs(CLIPConfig(model=MODEL, smallest_crop=0.5), TRAIN).subset(np.arange(40))
    whole = view.image_features[view.caption_to_image]

    def images(epoch, seed=0):
        batches = TrainingBatches(view, batch_size=16, seed=seed)
        batches.epoch_key = ("train", epoch)
        return in_order(batches.shuffled("train"))

    first = images(0)
    np.testing.assert_array_equal(images(0), first)
    for one, other in combinations((whole, first, images(1), images(0, seed=1)), 2):
        assert (one != other).any(axis=(1, 2)).all()
    assert not np.array_equal(first[0], first[1])  # two captions of one image
    batches = TrainingBatches(view, batch_size=16, seed=0)
    np.testing.assert_array_equal(in_order(batches.covering("divide")), whole)
    np.testing.assert_array_equal(batches.read(torch.tensor([5])).image_features[0], whole[5])


def test_a_smallest_crop_of_one_changes_no_image():
    view = CLIP.inputs(CLIPConfig(model=MODEL, smallest_crop=1), TRAIN).subset(np.arange(20))
    found = in_order(TrainingBatches(view, batch_size=20, seed=0).shuffled("train"))
    np.testing.assert_array_equal(found, view.image_features[view.caption_to_image])


@given(st.integers(1, 500), st.integers(1, 500), st.floats(0.01, 1), st.integers(0, 2**31))
def test_a_random_crop_lies_in_the_image_and_is_no_smaller_than_said(width, height, smallest, seed):
    left, top, right, bottom = random_box((width, height), smallest, np.random.default_rng(seed))
    assert 0 <= left < right <= width + 1e-9
    assert 0 <= top < bottom <= height + 1e-9
    area = (right - left) * (bottom - top)
    cut = right - left > width - 1e-9 or bottom - top > height - 1e-9  # a side longer than the image's is cut
    assert cut or area >= smallest * width * height * (1 - 1e-9)


def test_a_damaged_image_is_named():
    patches = ImagePatches([b"\x89PNG no"], np.array(["i7"]), torch.tensor, 32, 8, 1.0)
    with refused(DataError):
        patches[np.array([0])]


def file_of(mode, size, colour=0):
    stream = io.BytesIO()
    Image.new(mode, size, colour).save(stream, "TIFF")
    return stream.getvalue()


def test_grey_of_16_bits_keeps_its_brightness():
    grey = file_of("I;16", (4, 4), 77 * 256 + 3)
    patches = ImagePatches([grey], np.array(["grey"]), pixels_as_they_are, 4, 4, 1.0)
    assert (patches[np.array([0])] == 77).all()


def pixels_as_they_are(image):
    return torch.from_numpy(np.array(image)).permute(2, 0, 1).float()


def test_images_of_any_mode_and_shape_are_read():
    view = CLIP.inputs(tiny_clip().config, TRAIN)
    shapes = {"L": (40, 20), "RGBA": (20, 41), "P": (33, 33), "CMYK": (1, 50)}
    files = [file_of(*each) for each in shapes.items()]
    patches = replace(view.image_features, files=files, image_ids=np.arange(4))
    assert patches[np.arange(4)].shape == (4, 16, 192)
    assert np.isfinite(patches.augmented(np.arange(4), [(row,) for row in range(4)])).all()


def test_weights_of_a_file_are_loaded_every_one(tmp_path):
    path = random_weights(tmp_path / "weights.safetensors")
    network = tiny_clip(words=WORDS + 1, weights=str(path))
    added = network.towers.token_embedding.weight[WORDS:].clone()
    network.load_pretrained()
    stored = load_file(path)
    found = network.towers.state_dict()
    assert torch.equal(found["token_embedding.weight"][WORDS:], added)
    found["token_embedding.weight"] = found["token_embedding.weight"][:WORDS]
    assert found.keys() == stored.keys()
    assert all(torch.equal(found[name], stored[name]) for name in stored)
    said = CLIP.pretrained_encoder(network.config)
    assert said.startswith("CLIP (weights.safetensors, sha256 ")
    assert CLIP.pretrained_encoder(tiny_clip().config) == ""


@pytest.mark.parametrize("damage", ["missing", "left over", "shape", "bytes", "absent"])
def test_weights_that_do_not_fit_are_refused_with_a_sentence(damage, tmp_path):
    path = random_weights(tmp_path / "weights.safetensors")
    state = load_file(path)
    if damage == "missing":
        del state["token_embedding.weight"]
    elif damage == "left over":
        state["visual.more"] = torch.zeros(1)
    elif damage == "shape":
        state["visual.proj"] = torch.zeros(3, 3)
    save_file(state, path)
    if damage == "bytes":
        path.write_bytes(path.read_bytes()[:50])
    elif damage == "absent":
        path.unlink()
    with refused(TrainingError):
        tiny_clip(weights=str(path)).load_pretrained()


@pytest.mark.parametrize(
    "options",
    [
        {"model": "ViT-B-33"},
        {"model": "ViT-B-16-SigLIP"},
        {"model": {**MODEL, "vision_cfg": {"with": 3}}},
        {"model": "ViT-B-32", "pretrained": "opanai"},
        {"pretrained": "openai", "model": MODEL},
    ],
)
def test_an_unknown_model_is_refused_with_a_sentence(options):
    with refused(TrainingError):
        tiny_clip(**options)


def test_named_weights_bring_their_activation_and_normalisation(monkeypatch):
    """OpenAI's weights were trained with another GELU; nothing is fetched to know that."""
    assert architecture(CLIPConfig(pretrained="openai"))["quick_gelu"]
    assert "quick_gelu" not in architecture(CLIPConfig(pretrained="laion2b_s34b_b79k"))
    config = CLIPConfig(model="ViT-L-14-336", pretrained="openai")
    assert CLIP.title_of(config) == "CLIP ViT-L/14-336"
    assert CLIP.title_of(CLIPConfig(model="ViT-B-32-quickgelu")) == "CLIP ViT-B/32"
    monkeypatch.setattr(open_clip, "download_pretrained", refuse)
    with refused(TrainingError):
        CLIP.pretrained_encoder(config)


def refuse(*args):
    raise OSError("no network")


def test_named_weights_are_read_through_the_loader_of_open_clip(tmp_path, monkeypatch):
    """A stand-in for a download: a checkpoint of PyTorch with names of several devices."""
    model = "ViT-S-32-alt"
    torch.manual_seed(3)
    plain = open_clip.CLIP(**open_clip.get_model_config(model))
    path = tmp_path / "fetched.pt"
    torch.save({"state_dict": {f"module.{name}": x for name, x in plain.state_dict().items()}}, path)
    monkeypatch.setattr(open_clip, "list_pretrained_tags_by_model", lambda name: ["mine"])
    found = {"url": "", "mean": (0.5, 0.5, 0.5)}
    monkeypatch.setattr(open_clip, "get_pretrained_cfg", lambda name, tag: found)
    monkeypatch.setattr(open_clip, "download_pretrained", lambda found: str(path))
    config = CLIPConfig(model=model, pretrained="mine")
    network = CLIP(config, 3 * 32 * 32, 49, WORDS)
    network.load_pretrained()
    stored = plain.state_dict()
    assert all(torch.equal(x, stored[name]) for name, x in network.towers.state_dict().items())
    assert CLIP.pretrained_encoder(config).startswith("CLIP ViT-S/32-alt (mine, sha256 ")
    white = CLIP.inputs(config, TRAIN).image_features.transform(Image.new("RGB", (5, 5), "white"))
    assert_near(white.mean(), torch.tensor((1 - 0.5) / 0.26863).mean(), 0.1)


def test_datasets_without_images_or_texts_are_refused_and_so_are_images_alone():
    config = CLIPConfig(model=MODEL)
    with refused(DataError):
        CLIP.inputs(config, replace(TRAIN, images=None))
    with refused(DataError):
        CLIP.inputs(config, replace(TRAIN, captions=None))
    bare = replace(TRAIN, image_features=np.zeros((TRAIN.n_images, 0, 0), np.float32))
    assert CLIP.inputs(config, bare).n_regions == 16
    with refused(DataError):
        BACKBONES["sgr"].inputs(None, bare)


def test_networks_with_statistics_of_a_batch_encode_it_whole():
    convolutions = {"image_size": 32, "layers": [1, 1, 1, 1], "width": 8, "head_width": 16, "patch_size": 8}
    assert not tiny_clip(model={**MODEL, "vision_cfg": convolutions}).shared_out
    assert tiny_clip().shared_out
