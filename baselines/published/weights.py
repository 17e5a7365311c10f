"""Load weights with the names of the papers' code into our networks."""

from collections.abc import Callable, Iterable, Mapping
from typing import Any, NamedTuple

import torch
from torch import Tensor

from baselines.backbones import BACKBONES, build_backbone
from baselines.kit.backbone import Backbone

SGRAF = {
    "img_enc.fc.": "regions.",
    "txt_enc.embed.": "words.embedding.",
    "txt_enc.cap_rnn.": "words.gru.",
    "sim_enc.v_global_w.embedding_local.": "image_vector.local.",
    "sim_enc.v_global_w.embedding_global.": "image_vector.overall.",
    "sim_enc.v_global_w.embedding_common.0.": "image_vector.common.",
    "sim_enc.t_global_w.embedding_local.": "caption_vector.local.",
    "sim_enc.t_global_w.embedding_global.": "caption_vector.overall.",
    "sim_enc.t_global_w.embedding_common.0.": "caption_vector.common.",
    "sim_enc.sim_tranloc_w.": "local_nodes.",
    "sim_enc.sim_tranglo_w.": "global_nodes.",
    "sim_enc.sim_eval_w.": "head.",
}
SAF = {"sim_enc.SAF_module.attn_sim_w.": "reasoning.score.", "sim_enc.SAF_module.bn.": "reasoning.norm."}
SGR_MODULE, VSRN_GRAPH = "sim_enc.SGR_module.", "img_enc.Rs_GCN_"
SGR_STEP = {"graph_query_w.": "query.", "graph_key_w.": "key.", "sim_graph_w.": "out."}
VSE_INFINITY = {
    "img_enc.fc.": "regions.linear.",
    "img_enc.mlp.layers.0.": "regions.hidden.",
    "img_enc.mlp.bns.0.": "regions.norm.",
    "img_enc.mlp.layers.1.": "regions.out.",
    "img_enc.gpool.": "region_pooling.",
    "txt_enc.embed.": "words.embedding.",
    "txt_enc.rnn.": "words.gru.",
    "txt_enc.gpool.": "word_pooling.",
    "txt_enc.cap_rnn.": "words.gru.",
    "txt_enc.fc.": "word_layers.linear.",
    "txt_enc.mlp.layers.0.": "word_layers.hidden.",
    "txt_enc.mlp.bns.0.": "word_layers.norm.",
    "txt_enc.mlp.layers.1.": "word_layers.out.",
}
"""The last five belong to IN2R, which passes captions through an MLP."""
SCAN = {"img_enc.fc.": "regions.", "txt_enc.embed.": "words.embedding.", "txt_enc.rnn.": "words.gru."}
IMRAM = {
    "img_enc.fc_local.": "regions.",
    "txt_enc.embed.": "words.embedding.",
    "txt_enc.rnn.": "words.gru.",
    "linear_t2i.": "directions.t2i.unit.linear.",
    "gate_t2i.": "directions.t2i.unit.gate.",
    "linear_i2t.": "directions.i2t.unit.linear.",
    "gate_i2t.": "directions.i2t.unit.gate.",
}
VSRN = {
    "img_enc.fc.": "images.regions.",
    "img_enc.img_rnn.": "images.gru.",
    "img_enc.bn.": "images.norm.",
    "txt_enc.embed.": "captions.embedding.",
    "txt_enc.rnn.": "captions.gru.",
    "caption_model.encoder.vid2hid.": "captioner.regions.",
    "caption_model.encoder.rnn.": "captioner.encoder.",
    "caption_model.decoder.embedding.": "captioner.embedding.",
    "caption_model.decoder.attention.linear1.": "captioner.attention.",
    "caption_model.decoder.attention.linear2.": "captioner.score.",
    "caption_model.decoder.rnn.weight_ih_l0": "captioner.cell.weight_ih",
    "caption_model.decoder.rnn.weight_hh_l0": "captioner.cell.weight_hh",
    "caption_model.decoder.rnn.bias_ih_l0": "captioner.cell.bias_ih",
    "caption_model.decoder.rnn.bias_hh_l0": "captioner.cell.bias_hh",
    "caption_model.decoder.out.": "captioner.out.",
}
META_NETWORK = {"first_hidden_layer.fc.": "head.hidden.", "output_layer.": "head.out."}
"""Last layers of MSCN."""


def backbone_of(names: Iterable[str]) -> str | None:
    """Backbone whose weights have these names; None if there is none."""
    names = list(names)
    return next(
        (
            key
            for key, (sign, _) in CHECKPOINT_FORMATS.items()
            if any(name.startswith(sign) for name in names)
        ),
        None,
    )


class Reading(NamedTuple):
    """How to read the weights of a backbone.

    Attributes:
        state: their name to tensor.
        names: prefix of their names to prefix of ours.
        sizes: backbone options that follow from the weights.
        n_regions: regions per image; 1 if any number is allowed.
        unused: prefixes of weights that no computation reads.
    """

    state: Mapping[str, Tensor]
    names: Mapping[str, str]
    sizes: Mapping[str, Any] = {}
    n_regions: int = 1
    unused: tuple[str, ...] = ()


def network_from(backbone: str, state: Mapping[str, Tensor], **options: Any) -> Backbone:
    """Build a network from the weights of a checkpoint; sizes are read from the tensors.

    Args:
        backbone: a key of ``CHECKPOINT_FORMATS``.
        state: their name to tensor, without the prefix ``module.``.
        options: options of the backbone's ``Config`` that do not follow from the weights.

    Returns:
        The network in the precision of its weights.
    """
    layer = "img_enc.fc_local.weight" if backbone == "imram" else "img_enc.fc.weight"
    embed_size, feature_dim = (size_of(state, layer, dim) for dim in (0, 1))
    vocabulary_size, word_dim = (size_of(state, "txt_enc.embed.weight", dim) for dim in (0, 1))
    reading = CHECKPOINT_FORMATS[backbone][1](state, options)
    sizes = {"embed_size": embed_size, "word_dim": word_dim, **reading.sizes}
    network = build_backbone(
        backbone,
        BACKBONES[backbone].Config(**{**sizes, **options}),
        feature_dim=feature_dim,
        n_regions=reading.n_regions,
        vocabulary_size=vocabulary_size,
    )
    network.load_weights(translate(reading.state, reading.names, reading.unused))
    return network


def _sgraf(state: Mapping[str, Tensor], names: Mapping[str, str], **sizes: int) -> Reading:
    n_regions = size_of(state, "sim_enc.v_global_w.embedding_local.1.weight")
    sizes["sim_dim"] = size_of(state, "sim_enc.sim_eval_w.weight", 1)
    return Reading(state, {**SGRAF, **names}, sizes, n_regions)


def _saf(state: Mapping[str, Tensor], _: Mapping[str, Any]) -> Reading:
    return _sgraf(state, SAF)


def _sgr(state: Mapping[str, Tensor], _: Mapping[str, Any]) -> Reading:
    steps = [name for name in state if name.startswith(SGR_MODULE) and name.endswith(".sim_graph_w.bias")]
    n_steps = max(1, len(steps))
    names = {
        f"{SGR_MODULE}{k}.{theirs}": f"reasoning.steps.{k}.{ours}"
        for k in range(n_steps)
        for theirs, ours in SGR_STEP.items()
    }
    return _sgraf(state, names, sgr_steps=n_steps)


def _vse_infinity(state: Mapping[str, Tensor], options: Mapping[str, Any]) -> Reading:
    of_in2r = "txt_enc.fc.weight" in state
    sizes = {
        "position_dim": size_of(state, "img_enc.gpool.linear.weight", 1),
        "caption_mlp": of_in2r,
        # no weight tells of it: the code that has an MLP over captions also centres, and stores no mean
        "centred": options.get("centred", of_in2r),
    }
    names = VSE_INFINITY
    if sizes["centred"]:
        means = {name: f"{name}mean" for name in ("centre_images.", "centre_captions.")}
        embed_size = size_of(state, "img_enc.fc.weight")
        state = {**state, **{mean: torch.zeros(embed_size) for mean in means.values()}}
        names = {**names, **{name: name for name in means}}
    return Reading(state, names, sizes, unused=("img_enc.mlp.bns.1.", "txt_enc.mlp.bns.1."))


def _scan(state: Mapping[str, Tensor], _: Mapping[str, Any]) -> Reading:
    return Reading(state, SCAN)


def _imram(state: Mapping[str, Tensor], options: Mapping[str, Any]) -> Reading:
    left_out = {"text": "i2t", "image": "t2i"}.get(options.get("mode", "full"))
    return Reading(state, IMRAM, unused=(f"linear_{left_out}.", f"gate_{left_out}.") if left_out else ())


def _vsrn(state: Mapping[str, Tensor], _: Mapping[str, Any]) -> Reading:
    """Read VSRN; published checkpoints lack ``caption_model.`` and give a network without captioner."""
    sign = VSRN_GRAPH
    size_of(state, f"{sign}1.g.bias")
    n_layers = sum(name.startswith(sign) and name.endswith(".g.bias") for name in state)
    names = dict(VSRN)
    for k in range(n_layers):
        theirs, ours = f"{sign}{k + 1}.", f"images.graph.{k}."
        names |= {f"{theirs}W.0.": f"{ours}out.", f"{theirs}W.1.": f"{ours}norm."}
        names |= {f"{theirs}project.": f"{ours}project."}
    sizes: dict[str, Any] = {
        "graph_layers": n_layers,
        "image_encoder": "batch_norm" if "img_enc.bn.weight" in state else "scaled",
        "caption_weight": 0.0,
    }
    if any(name.startswith("caption_model.") for name in state):
        del sizes["caption_weight"]
        sizes["caption_hidden"] = size_of(state, "caption_model.encoder.vid2hid.weight")
        sizes["caption_word_dim"] = size_of(state, "caption_model.decoder.embedding.weight", 1)
    return Reading(_as_linear(state, sign, n_layers), names, sizes)


def _as_linear(state: Mapping[str, Tensor], sign: str, n_layers: int) -> dict[str, Tensor]:
    """Turn convolutions of width 1 into matrices, and join three of each graph layer into one."""
    state = {
        name: x.squeeze(-1) if name.startswith(sign) and x.dim() == 3 else x for name, x in state.items()
    }
    for k in range(1, n_layers + 1):
        for kind in ("weight", "bias"):
            names = [f"{sign}{k}.{part}.{kind}" for part in ("theta", "phi", "g")]
            for name in names:
                size_of(state, name)
            state[f"{sign}{k}.project.{kind}"] = torch.cat([state.pop(name) for name in names])
    return state


CHECKPOINT_FORMATS: Mapping[str, tuple[str, Callable[[Mapping[str, Tensor], Mapping[str, Any]], Reading]]] = {
    "imram": ("linear_t2i.", _imram),
    "saf": ("sim_enc.SAF_module.", _saf),
    "sgr": (SGR_MODULE, _sgr),
    "vse_infinity": ("img_enc.gpool.", _vse_infinity),
    "vsrn": (VSRN_GRAPH, _vsrn),
    "scan": ("txt_enc.rnn.", _scan),
}
"""Backbone to a prefix of its weight names, of which the first match counts, and to the reader of its weights."""


def translate(
    state: Mapping[str, Tensor], names: Mapping[str, str], unused: tuple[str, ...] = ()
) -> dict[str, Tensor]:
    """Rename the weights of a network.

    Args:
        state: their name to tensor.
        names: prefix of their names to prefix of ours; the longest match is used.
        unused: prefixes of weights that no computation reads; they are left out.

    Returns:
        Our name to tensor.
    """
    translated = {}
    for name, tensor in state.items():
        if name.startswith(unused):
            continue
        prefix = max((p for p in names if name.startswith(p)), key=len, default=None)
        if prefix is None:
            raise ValueError(f"its weights hold {name!r}, which is no part of this backbone")
        translated[names[prefix] + name[len(prefix) :]] = tensor
    return translated


def size_of(state: Mapping[str, Tensor], name: str, dim: int = 0) -> int:
    """Size of a weight along a dimension."""
    if name not in state or state[name].dim() <= dim:
        raise ValueError(f"its weights lack {name!r}")
    return state[name].shape[dim]
