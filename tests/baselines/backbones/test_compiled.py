"""A compiled forward pass: shapes that no length changes, no graph breaks, and the numbers of the uncompiled one."""

from functools import partial
from unittest.mock import patch

import pytest
import torch
from support.parity import TRAINED, gradients_of, small_batch, small_network, without_dropout
from support.rounding import assert_near
from support.tiny_clip import clip_batch, tiny_clip

from baselines.backbones import encoders
from baselines.kit import backbone

LENGTHS = [4, 2, 7, 5]
NAMES = [name for name in TRAINED if name != "clip"]


def network_and_batch(name):
    """A network without dropout in training, in double precision, and its batch."""
    if name == "clip":
        return without_dropout(tiny_clip()).train(), clip_batch(4)
    return without_dropout(small_network(name)).double().train(), small_batch(4, LENGTHS)


def everything(name, compiled=0):
    """Results, gradients and statistics of a step."""
    network, batch = network_and_batch(name)
    network.compiled = compiled
    output = network(batch)
    (output.similarities.square().sum() + output.auxiliary.sum()).backward()
    assert network.captions_encoded == len(batch)
    assert output.captions.lengths.tolist() == batch.caption_lengths.tolist()
    results = {"similarities": output.similarities, "auxiliary": output.auxiliary}
    results |= {"images": output.images.vectors, "captions": output.captions.vectors}
    detached = {key: value.detach() for key, value in results.items()}
    return detached | gradients_of(network) | dict(network.named_buffers())


@pytest.mark.parametrize("name", NAMES)
def test_the_path_of_a_gpu_gives_the_numbers_of_the_path_of_a_cpu(name):
    expected = everything(name)
    with patch.object(encoders, "CPU_PATH", ()):
        found = everything(name)
    assert_near(found, expected, 1e-12, scale=1e-3)


@pytest.mark.parametrize("name", NAMES)
def test_fixed_shapes_give_the_numbers_of_the_lengths(name):
    expected = everything(name)
    uncompiled = patch.object(backbone, "_graphs", lambda device: backbone._pass)
    with uncompiled, patch.object(torch.compiler, "is_compiling", lambda: True):
        found = everything(name, compiled=len(LENGTHS))
    assert_near(found, expected, 1e-12, scale=1e-3)


def test_batches_of_another_size_are_not_compiled():
    def refuse(device):
        raise AssertionError(device)

    with patch.object(backbone, "_graphs", refuse):
        everything("scan", compiled=3)


@pytest.mark.slow
@pytest.mark.timeout(1200)
@pytest.mark.parametrize("name", TRAINED)
def test_nothing_breaks_the_graph_of_a_backbone(name):
    expected = everything(name)
    whole = partial(torch.compile, fullgraph=True, backend="aot_eager")
    backbone._graphs.cache_clear()
    with patch.object(torch, "compile", whole):
        found = everything(name, compiled=4)
    backbone._graphs.cache_clear()
    assert_near(found, expected, 1e-5 if name == "clip" else 1e-11, scale=1e-3)


@pytest.mark.slow
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("name", ["scan", "sgr", "vsrn"])
def test_what_is_compiled_gives_the_same_numbers(name):
    assert_near(everything(name, compiled=4), everything(name), 1e-11, scale=1e-3)
