"""What each method remembers of a pair, counted; docs/large-sets.md says what 12 million pairs take."""

import re
from functools import partial
from pathlib import Path

import torch

from baselines.backbones import BACKBONES, build_backbone
from baselines.kit.method import Setting
from baselines.methods import METHODS

PAGE = Path(__file__).parents[3] / "docs" / "large-sets.md"
MILLIONS = 12
SMALLER, LARGER = 70_000, 80_000
"""Pairs; more than IN2R ever stores."""


def tiny_network(name):
    sizes = {"embed_size": 256} if name == "linear" else {"embed_size": 4, "word_dim": 4, "sim_dim": 4}
    config = BACKBONES[name].Config(**sizes)
    return build_backbone(name, config, feature_dim=4, n_regions=2, vocabulary_size=20)


def remembered(name, n_pairs):
    """Bytes of everything in a method's state."""
    method = METHODS[name]
    config = method.Config()
    trusted = torch.arange(method.extra_clean_data(config))
    network = partial(tiny_network, "linear" if method.closed_form else "sgr")
    state = method(config, Setting(n_pairs, 2, 20, network, trusted_ids=trusted)).state_dict()
    return sum(tensor.nbytes for tensor in state.values())


def test_the_page_says_what_methods_remember_of_a_pair():
    stated = {
        title: (int(each.replace(",", "")), whole)
        for title, each, whole in re.findall(
            r"^\| ([\w+, -]+) \| ([\d,]+) \| ([\d.,]+ [MG]B|nothing) \|$",
            PAGE.read_text("utf-8"),
            re.MULTILINE,
        )
    }
    counted = {}
    for name, method in METHODS.items():
        per_pair = (remembered(name, LARGER) - remembered(name, SMALLER)) / (LARGER - SMALLER)
        assert per_pair == int(per_pair), name
        size = MILLIONS * int(per_pair)
        whole = f"{size / 1000:.1f} GB" if size >= 1000 else f"{size} MB" if size else "nothing"
        counted[method.title] = (int(per_pair), whole)
    assert stated == counted
