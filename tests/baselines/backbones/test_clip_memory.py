"""What ``docs/clip.md`` says of CLIP's size: counted where it is tiny, and the same formulas for papers' sizes."""

import copy
import re
from pathlib import Path

import pytest
import torch
from support.tiny_clip import MODEL, open_clip

PAGE = Path(__file__).parents[3] / "docs" / "clip.md"
BATCH = 256
FLOAT = 4


def tokens(model):
    """What a layer of either tower sees of an image and of a caption."""
    vision = model["vision_cfg"]
    return (vision["image_size"] // vision["patch_size"]) ** 2 + 1, model["text_cfg"]["context_length"]


def parameters(model):
    """Of both towers, and the temperature."""
    vision, text, dim = model["vision_cfg"], model["text_cfg"], model["embed_dim"]
    patches, longest = tokens(model)

    def layers(n, width):
        return n * (12 * width**2 + 13 * width)

    of_images = (3 * vision["patch_size"] ** 2 + 1 + patches + 4 + dim) * vision["width"]
    of_words = (49_408 + longest + 2 + dim) * text["width"]
    return sum(layers(tower["layers"], tower["width"]) for tower in (vision, text)) + of_images + of_words + 1


def kept(model, checkpointing):
    """Numbers that the layers keep for the backward pass, of one image and one caption."""
    total = 0
    for tower, length in zip(("vision_cfg", "text_cfg"), tokens(model), strict=True):
        layers, width = model[tower]["layers"], model[tower]["width"]
        total += (layers + 16 if checkpointing else 16 * layers) * length * width
    return total


def measured(side, layers, checkpointing, n=4):
    """Numbers that autograd holds after a forward pass, weights left out."""
    model = copy.deepcopy(MODEL)
    for tower in ("vision_cfg", "text_cfg"):
        model[tower]["layers"] = layers
    network = open_clip.CLIP(**model).train()
    network.set_grad_checkpointing(checkpointing)
    own = {x.untyped_storage().data_ptr() for x in (*network.parameters(), *network.buffers())}
    held = {}

    def hold(x):
        held.setdefault(x.untyped_storage().data_ptr(), x)
        return x

    inputs = torch.randn(n, 3, 32, 32) if side == "image" else torch.randint(1, 400, (n, 56))
    with torch.autograd.graph.saved_tensors_hooks(hold, lambda x: x):
        output = getattr(network, f"encode_{side}")(inputs)
    assert output.requires_grad
    return sum(x.untyped_storage().nbytes() // FLOAT for key, x in held.items() if key not in own)


@pytest.mark.parametrize(("side", "position"), [("image", 0), ("text", 1)])
@pytest.mark.parametrize("checkpointing", [False, True])
def test_a_layer_keeps_sixteen_numbers_for_each_that_it_sees_or_one(side, position, checkpointing):
    seen = 4 * tokens(MODEL)[position] * 32
    per_layer = (measured(side, 3, checkpointing) - measured(side, 1, checkpointing)) / 2 / seen
    assert per_layer == pytest.approx(1 if checkpointing else 16, rel=0.02)


@pytest.mark.parametrize("name", ["tiny", "ViT-S-32-alt", "ViT-B-32", "ViT-L-14"])
def test_the_number_of_parameters_is_that_of_the_formula(name):
    model = MODEL if name == "tiny" else open_clip.get_model_config(name)
    with torch.device("meta"):
        network = open_clip.CLIP(**model)
    assert sum(p.numel() for p in network.parameters()) == parameters(model)


def test_the_table_of_the_page_is_computed():
    rows = re.findall(
        r"^\| `([\w-]+)` \| ([\d.]+) \| ([\d.]+) \| ([\d.]+) \| ([\d.]+) \|", PAGE.read_text(), re.M
    )
    assert [row[0] for row in rows] == ["ViT-B-32", "ViT-B-16", "ViT-L-14"]
    for name, *stated in rows:
        model = open_clip.get_model_config(name)
        numbers = [parameters(model) / 1e6, 16 * parameters(model) / 1e9]
        numbers += [kept(model, checkpointing) * FLOAT * BATCH / 1e9 for checkpointing in (False, True)]
        assert stated == [f"{x:.1f}" for x in numbers], name
