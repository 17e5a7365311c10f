"""Checkpoints in the published layouts: imported, scored, and refused with one sentence."""

import argparse
import json
import os
import pickle
import shutil
from fractions import Fraction
from functools import partial
from pathlib import Path

import numpy as np
import pytest
import torch
from support.command import invoke
from support.refusals import refused
from support.rounding import assert_near

from baselines.backbones import BACKBONES, build_backbone
from baselines.kit.batches import TrainingBatches
from baselines.methods.mscn import MetaNetwork
from baselines.published import weights
from baselines.published.import_checkpoint import Provenance, import_checkpoint
from baselines.training.scoring import score
from baselines.training.submit import submit
from ncl_bench.data.load import load_dataset

SIZES = {"embed_size": 8, "word_dim": 6}
ENCODERS = ("img_enc.", "txt_enc.", "sim_enc.")

SGR_STEPS = {
    f"{weights.SGR_MODULE}{k}.{theirs}": f"reasoning.steps.{k}.{ours}"
    for k in range(3)
    for theirs, ours in weights.SGR_STEP.items()
}
GRAPH = {
    f"{weights.VSRN_GRAPH}{k + 1}.{theirs}": f"images.graph.{k}.{ours}"
    for k in range(4)
    for theirs, ours in (("project.", "project."), ("W.0.", "out."), ("W.1.", "norm."))
}
NAMES = {
    "sgr": weights.SGRAF | SGR_STEPS,
    "saf": weights.SGRAF | weights.SAF,
    "vse_infinity": weights.VSE_INFINITY,
    "scan": weights.SCAN,
    "imram": weights.IMRAM,
    "vsrn": weights.VSRN | GRAPH,
}
"""Beginnings of published names to those of ours, which golden parity compares with the published code."""


@pytest.fixture(autouse=True)
def few_images(monkeypatch):
    """Score the first twenty images."""

    def load(name, **options):
        dataset = load_dataset(name, **options)
        return dataset if options["split"] == "train" else dataset.first_images(20)

    monkeypatch.setattr("baselines.training.job.load_dataset", load)


def tiny(backbone, seed=0, extra_words=0, **options):
    """A network for digits in evaluation mode."""
    dataset = load_dataset("digits", split="dev")
    torch.manual_seed(seed)
    sizes = SIZES | ({"sim_dim": 4} if backbone in ("sgr", "saf") else {}) | options
    words = dataset.vocabulary.size + extra_words
    config = BACKBONES[backbone].Config(**sizes)
    return build_backbone(backbone, config, feature_dim=66, n_regions=16, vocabulary_size=words).eval()


def published(backbone, network):
    """A network's weights under the published names."""
    names = {ours: theirs for theirs, ours in reversed(NAMES[backbone].items())}  # the first one of several
    state = {}
    for name, x in network.state_dict().items():
        ours = max((prefix for prefix in names if name.startswith(prefix)), key=len)
        state[names[ours] + name.removeprefix(ours)] = x
    if backbone == "vse_infinity":
        state["img_enc.mlp.bns.1.weight"] = torch.ones(3)  # stored, but not used by any computation
    for name in [name for name in state if ".project." in name]:  # three convolutions of width 1
        for part, x in zip(("theta", "phi", "g"), state.pop(name).chunk(3), strict=True):
            state[name.replace("project", part)] = x.unsqueeze(-1) if x.dim() == 2 else x
    return state


def as_list(state, wrapper=""):
    """One state dict per encoder, as the published ``state_dict()`` returns them."""
    parts = [
        {wrapper + name.removeprefix(prefix): x for name, x in state.items() if name.startswith(prefix)}
        for prefix in ENCODERS
    ]
    return [part for part in parts if part]


def statement(method, **options):
    return Provenance(**({"method": method, "dataset": "digits", "noise_ratio": 0.4} | options))


def ncr_file(folder):
    a, b = (as_list(published("sgr", tiny("sgr", seed))) for seed in (0, 1))
    options = argparse.Namespace(margin=0.2, data_name="f30k_precomp")
    content = {"epoch": 39, "model_A": a, "model_B": b, "best_rsum": np.float64(480.5), "opt": options}
    torch.save(content, folder / "model_best.pth.tar")
    return folder / "model_best.pth.tar"


def test_two_networks_of_ncr_score_as_before(tmp_path):
    file = ncr_file(tmp_path)
    warnings = import_checkpoint(file, statement("ncr", seed=7), tmp_path / "run")
    assert warnings == [f"{file} says data_name f30k_precomp, which is flickr30k, but --dataset is digits"]
    submission = submit([tmp_path / "run"], tmp_path / "submission", device="cpu")
    expected = score([tiny("sgr", 0), tiny("sgr", 1)], load_dataset("digits", split="test"), np.arange(20))
    assert np.array_equal(np.load(tmp_path / "submission" / "test.npy"), expected)
    assert (submission.method, submission.backbone, submission.networks) == ("NCR", "SGR", 2)
    assert (submission.training_seeds, submission.selection_split) == ((7,), "dev")
    assert (submission.noise.unit, submission.noise.ratio) == ("caption", 0.4)
    assert submission.recipes == ()
    assert (submission.hardware, submission.training) == ("unknown", None)
    assert "imported from model_best.pth.tar" in submission.notes


def head(state):
    layers = {"first_hidden_layer.fc.weight": torch.ones(4, 128), "output_layer.weight": torch.ones(2, 4)}
    return [*as_list(state), layers]


def gsc(backbone, seed=0):
    """``SGRAF.state_dict()`` of GSC: the encoders, then three tensors of labels of the training pairs."""
    return [*list_of(backbone, seed=seed), torch.ones(50), torch.rand(50), torch.rand(50)]


def crcl(backbone, **content):
    """A checkpoint of CRCL, which holds its labels as a NumPy array."""
    network = list_of(backbone, extra_words=1)
    return {"epoch": 1, "model": network, "best_rsum": np.float64(9), "move_gt": np.ones(50), **content}


def l2rm():
    cost_function = {"weight": -torch.eye(8), "bias": torch.ones(8)}
    return {"model": [*list_of("sgr"), cost_function]}


def with_meta_network(seed):
    """SGR with a meta network in place of its last layer."""
    network = tiny("sgr", seed)
    network.head = MetaNetwork(4, 5)
    return network


def mscn():
    content = {"opt": argparse.Namespace(noise_ratio=0.4)}
    theirs = {"hidden": "first_hidden_layer.fc", "out": "output_layer"}
    for name, network in (("A", with_meta_network(0)), ("B", with_meta_network(1))):
        state, head = published("sgr", network), "sim_enc.sim_eval_w."
        content[f"net_{name}"] = as_list({n: x for n, x in state.items() if not n.startswith(head)})
        meta = {tuple(n.removeprefix(head).split(".")): x for n, x in state.items() if n.startswith(head)}
        content[f"meta_net_{name}"] = {f"{theirs[layer]}.{part}": x for (layer, part), x in meta.items()}
    return content


def imram(mode):
    network, whole = tiny("imram", mode=mode), tiny("imram").state_dict()
    network.load_state_dict({name: whole[name] for name in network.state_dict()})
    return network


def prefixed(backbone):
    return {f"module.{name}": x for name, x in published(backbone, tiny(backbone)).items()}


def list_of(backbone, **options):
    return as_list(published(backbone, tiny(backbone, **options)))


def twice(network):
    return {"model_A": network, "model_B": network}


I2T = {"direction": "i2t", "aggregation": "lse"}
LAYOUTS = {
    "two lists, DataParallel": (
        "ncr", lambda: twice(as_list(published("sgr", tiny("sgr")), "module.")), lambda: [tiny("sgr")], ()
    ),
    "CRCL": ("crcl", lambda: crcl("sgr"), lambda: [tiny("sgr", extra_words=1)], ()),
    "CRCL on VSE-infinity": (
        "crcl", lambda: crcl("vse_infinity"), lambda: [tiny("vse_infinity", extra_words=1)], ()
    ),
    "GSC, old torch": ("gsc", lambda: {"epoch": 3, "model": gsc("sgr"), "Eiters": 9}, lambda: [tiny("sgr")], ()),
    "GSC+": (
        "gsc_plus", lambda: {"model": [gsc("saf", 0), gsc("saf", 1)]}, lambda: [tiny("saf", 0), tiny("saf", 1)], ()
    ),
    "GSC+, two entries": ("gsc_plus", lambda: twice(gsc("sgr")), lambda: [tiny("sgr")], ()),
    "the list alone": ("gsc", lambda: gsc("sgr"), lambda: [tiny("sgr")], ()),
    "L2RM": ("l2rm", l2rm, lambda: [tiny("sgr")], ()),
    "PC2": ("pc2", lambda: twice(head(published("sgr", tiny("sgr")))), lambda: [tiny("sgr")], ()),
    "PCSR": ("pcsr", lambda: twice(head(published("sgr", tiny("sgr")))), lambda: [tiny("sgr")], ()),
    "MSCN, whose meta networks are last layers": (
        "mscn", mscn, lambda: [with_meta_network(0), with_meta_network(1)], ()
    ),
    "SCAN, direction from the command": (
        "triplet", lambda: {"model": list_of("scan", **I2T)}, lambda: [tiny("scan", **I2T)],
        tuple(f"backbone.{name}={value}" for name, value in I2T.items()),
    ),
    "VSRN without its captioner": (
        "triplet", lambda: {"model": list_of("vsrn", caption_weight=0)}, lambda: [tiny("vsrn", caption_weight=0)], ()
    ),
    "one state dict": ("triplet", lambda: prefixed("vse_infinity"), lambda: [tiny("vse_infinity")], ()),
    "IMRAM": ("triplet", lambda: {"model": prefixed("imram")}, lambda: [tiny("imram")], ()),
    "IMRAM, half of it": (
        "triplet", lambda: {"model": prefixed("imram")}, lambda: [imram("text")], ("backbone.mode=text",)
    ),
}  # fmt: skip
"""What the papers' code saves: the method, the content of the file, networks that score as it does, settings."""
LEFT_OUT = {"l2rm": "cost_function", "pc2": "img_pro_head", "pcsr": "img_pro_head"}


@pytest.mark.parametrize("case", LAYOUTS)
def test_layouts_of_the_papers_code_score_as_before(case, tmp_path):
    method, content, networks, settings = LAYOUTS[case]
    torch.save(content(), tmp_path / "file.tar", _use_new_zipfile_serialization="old torch" not in case)
    warnings = import_checkpoint(
        tmp_path / "file.tar", statement(method, settings=settings), tmp_path / "run"
    )
    left_out = [LEFT_OUT[method]] if method in LEFT_OUT else []
    assert warnings == [f"left out, because scoring does not need it: {name}" for name in left_out]
    submission = submit([tmp_path / "run"], tmp_path / "submission", device="cpu")
    expected = score(networks(), load_dataset("digits", split="test"), np.arange(20))
    assert_near(np.load(tmp_path / "submission" / "test.npy"), expected, 1e-5, scale=1)
    assert "seed of that training is unknown" in submission.notes
    assert submission.extra_clean_data.startswith("200 pairs that are known to match") == (method == "mscn")
    assert (submission.selection_split == "test") == (method == "pc2")


@torch.no_grad()
def test_in2r_is_centred_by_the_training_pairs(tmp_path):
    def network(**options):
        return tiny("vse_infinity", extra_words=1, caption_mlp=True, **options)

    torch.save(twice(as_list(published("vse_infinity", network()))), tmp_path / "file.tar")
    notes = import_checkpoint(tmp_path / "file.tar", statement("in2r"), tmp_path / "run")
    assert [note.split(":")[0] for note in notes] == [
        "vectors are centred by their mean over the training pairs"
    ]
    plain, centred = network(), network(centred=True)
    train = load_dataset("digits", split="train", noise_ratio=0.4)
    for batch in TrainingBatches(train, batch_size=len(train), seed=1).covering("all"):
        images, captions = plain.encode(batch)
    centred.load_state_dict(
        plain.state_dict()
        | {
            "centre_images.mean": images.vectors.mean(dim=0),
            "centre_captions.mean": captions.vectors.mean(dim=0),
        }
    )
    submit([tmp_path / "run"], tmp_path / "submission", device="cpu")
    expected = score([centred], load_dataset("digits", split="test"), np.arange(20))
    assert_near(
        np.load(tmp_path / "submission" / "test.npy"), expected, 1e-4, scale=1
    )  # small differences are scaled to unit length


def test_imported_weights_are_neither_trained_on_nor_overwritten(tmp_path):
    import_checkpoint(ncr_file(tmp_path), statement("ncr"), tmp_path / "run")
    before = (tmp_path / "run" / "best.safetensors").read_bytes()
    with refused():
        invoke("train", "ncr/digits_vse_infinity", "--to", tmp_path / "run")
    with refused():
        import_checkpoint(tmp_path / "model_best.pth.tar", statement("ncr"), tmp_path / "run")
    assert (tmp_path / "run" / "best.safetensors").read_bytes() == before


def test_the_command_says_what_comes_next(tmp_path):
    arguments = [str(ncr_file(tmp_path)), "--method", "ncr", "--dataset", "digits", "--noise-ratio", "0.2"]
    result = invoke("import-checkpoint", *arguments, "--to", tmp_path / "run")
    assert "ncl-bench score" in result.output
    described = json.loads((tmp_path / "run" / "run.json").read_text())
    assert described["noise"]["ratio"] == 0.2
    found = {"name": "sgr", "sim_dim": 4, "sgr_steps": 3, "dropout": 0.4, "block_captions": None}
    assert described["recipe"]["backbone"] == SIZES | found


class Malicious:
    def __reduce__(self):
        return os.system, ("touch pwned",)


class Evaluated:
    def __reduce__(self):
        return eval, ("open('pwned', 'w')",)


def without(name):
    return as_list({key: x for key, x in published("sgr", tiny("sgr")).items() if key != name})


def with_rows(rows):
    state = published("sgr", tiny("sgr"))
    state["txt_enc.embed.weight"] = state["txt_enc.embed.weight"][:rows].clone()
    return as_list(state)


REFUSED = {
    "os.system": (lambda: Malicious(), "gsc"),
    "eval": (lambda: {"model": Evaluated()}, "gsc"),
    "a class": (lambda: {"opt": Fraction(1, 2)}, "gsc"),
    "an array of objects": (lambda: crcl("sgr", move_gt=np.array([Malicious()])), "crcl"),
    "plain networks as MSCN": (lambda: twice(list_of("sgr")), "mscn"),
    "no network": (lambda: {"weights": torch.ones(2)}, "gsc"),
    "a size too few": (lambda: without("img_enc.fc.weight"), "gsc"),
    "another vocabulary": (lambda: with_rows(10), "gsc"),
}  # fmt: skip


@pytest.mark.parametrize("case", REFUSED)
def test_refusals_are_one_sentence_and_leave_nothing(case, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    make, method = REFUSED[case]
    torch.save(make(), "file.tar")
    refuse(statement(method))


def refuse(stated):
    arguments = ["import-checkpoint", "file.tar", "--method", stated.method, "--dataset", stated.dataset]
    with refused():
        invoke(*arguments, "--noise-ratio", "0.4", "--to", "run")
    assert [path.name for path in Path().iterdir()] == ["file.tar"]


@pytest.mark.parametrize(
    ("content", "method", "told"),
    [
        (
            lambda: {"model": head(published("sgr", tiny("sgr")))},
            "triplet",
            ["holds img_pro_head, which the code of pc2 or pcsr writes, but --method is triplet"],
        ),
        (
            lambda: l2rm() | {"opt": argparse.Namespace(noise_ratio=0.2, path=Path("x"))},
            "rcl",
            [
                "holds cost_function, which the code of l2rm writes, but --method is rcl",
                "says noise_ratio 0.2, but --noise-ratio is 0.4",
            ],
        ),
    ],
)
def test_what_the_file_says_otherwise_is_a_warning(content, method, told, tmp_path):
    torch.save(content(), tmp_path / "file.tar")
    given = f"--method {method} --dataset digits --noise-ratio 0.4 --to".split()
    command = ["import-checkpoint", str(tmp_path / "file.tar"), *given, str(tmp_path / "run")]
    result = invoke(*command)
    assert "WARNING: " in result.stderr
    assert all(words in result.stderr for words in told)


def flipped(content):
    weight = tiny("sgr").regions.weight.detach().numpy().tobytes()
    at = content.index(weight) + 2
    return content[:at] + bytes([content[at] ^ 1]) + content[at + 1 :]


def archived(kind, content):
    Path("in").mkdir()
    Path("in", "model_best.pth").write_bytes(content)
    packed = Path(shutil.make_archive("packed", kind, "in"))
    shutil.rmtree("in")
    content = packed.read_bytes()
    packed.unlink()
    return content


DAMAGED = {
    "a flipped byte of a tensor": flipped,
    **{kind: partial(archived, kind) for kind in ("tar", "gztar", "zip")},
    **{f"the first {n}": lambda content, n=n: content[:n] for n in (0, 1, 100, -100)},
    "half": lambda content: content[: len(content) // 2],
    "a plain pickle": lambda _: pickle.dumps({"model": Malicious()}),
}


@pytest.mark.filterwarnings("ignore:Detected pickle protocol")
@pytest.mark.parametrize("damage", DAMAGED)
def test_damaged_files_are_refused(damage, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    torch.save(gsc("sgr"), "file.tar")
    Path("file.tar").write_bytes(DAMAGED[damage](Path("file.tar").read_bytes()))
    refuse(statement("gsc"))
