"""Sentence encoders: a drawn BERT against torch's own attention, and errors that name what to do."""

import json

import numpy as np
import pytest
import torch
from safetensors.torch import save_file
from support.refusals import refused
from tokenizers import Tokenizer, models, normalizers, pre_tokenizers, processors
from torch.nn.functional import gelu, layer_norm, linear, scaled_dot_product_attention

from baselines.audit.sentences import E5, MINILM, TFIDF, Bert, advice, default_encoder, sentence_vectors

DIM, HEADS, LAYERS, INNER = 8, 2, 2, 12
WORDS = ("[PAD]", "[CLS]", "[SEP]", "[UNK]", "a", "dog", "runs", "red", "ball", "over", "grass")


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """A BERT with random weights, under the names of published files."""
    made = tmp_path_factory.mktemp("bert")
    torch.manual_seed(0)
    sizes = {
        "embeddings.word_embeddings.weight": (len(WORDS), DIM),
        "embeddings.position_embeddings.weight": (16, DIM),
        "embeddings.token_type_embeddings.weight": (2, DIM),
        "embeddings.LayerNorm.weight": (DIM,),
        "embeddings.LayerNorm.bias": (DIM,),
    }
    for layer in range(LAYERS):
        for name, shape in {
            "attention.self.query": (DIM, DIM),
            "attention.self.key": (DIM, DIM),
            "attention.self.value": (DIM, DIM),
            "attention.output.dense": (DIM, DIM),
            "attention.output.LayerNorm": (DIM,),
            "intermediate.dense": (INNER, DIM),
            "output.dense": (DIM, INNER),
            "output.LayerNorm": (DIM,),
        }.items():
            sizes[f"encoder.layer.{layer}.{name}.weight"] = shape
            sizes[f"encoder.layer.{layer}.{name}.bias"] = shape[:1]
    save_file({name: torch.randn(shape) for name, shape in sizes.items()}, made / "model.safetensors")
    config = {
        "hidden_size": DIM,
        "num_attention_heads": HEADS,
        "num_hidden_layers": LAYERS,
        "intermediate_size": INNER,
        "layer_norm_eps": 1e-12,
        "max_position_embeddings": 16,
        "type_vocab_size": 2,
        "vocab_size": len(WORDS),
        "pad_token_id": 0,
    }
    (made / "config.json").write_text(json.dumps(config))
    tokenizer = Tokenizer(models.WordLevel({word: n for n, word in enumerate(WORDS)}, unk_token="[UNK]"))
    tokenizer.normalizer = normalizers.Lowercase()
    tokenizer.pre_tokenizer = pre_tokenizers.Whitespace()
    tokenizer.post_processor = processors.TemplateProcessing(
        single="[CLS] $A [SEP]", special_tokens=[("[CLS]", 1), ("[SEP]", 2)]
    )
    tokenizer.save(str(made / "tokenizer.json"))
    return made


def by_hand(network, tensors, ids):
    """The mean of one caption's tokens, from the published names."""

    def dense(x, name):
        return linear(x, tensors[f"{name}.weight"], tensors[f"{name}.bias"])

    def norm(x, name):
        return layer_norm(x, (DIM,), tensors[f"{name}.weight"], tensors[f"{name}.bias"], 1e-12)

    words, places, kinds = (
        tensors[f"embeddings.{name}_embeddings.weight"] for name in ("word", "position", "token_type")
    )
    x = norm(words[ids] + places[: len(ids)] + kinds[0], "embeddings.LayerNorm")
    for layer in range(LAYERS):
        at = f"encoder.layer.{layer}"
        q, k, v = (
            dense(x, f"{at}.attention.self.{name}").reshape(len(ids), HEADS, -1).transpose(0, 1)
            for name in ("query", "key", "value")
        )
        mixed = scaled_dot_product_attention(q, k, v).transpose(0, 1).reshape(len(ids), DIM)
        x = norm(x + dense(mixed, f"{at}.attention.output.dense"), f"{at}.attention.output.LayerNorm")
        inner = gelu(dense(x, f"{at}.intermediate.dense"))
        x = norm(x + dense(inner, f"{at}.output.dense"), f"{at}.output.LayerNorm")
    return x.mean(dim=0)


@torch.no_grad()
def test_a_folder_of_tensors_becomes_the_network_that_they_belong_to(folder):
    from safetensors.torch import load_file

    network = Bert(folder)
    captions = ["A dog runs", "a red ball over grass and more"]
    together = network(captions)
    for row, caption in zip(together, captions, strict=True):
        ids = network.tokenizer.encode(caption).ids
        np.testing.assert_allclose(
            row, by_hand(network, load_file(folder / "model.safetensors"), ids), atol=1e-5
        )


def test_equal_captions_have_equal_vectors_of_length_one(folder, monkeypatch):
    network = Bert(folder)
    monkeypatch.setattr("baselines.audit.sentences._minilm", lambda device: network)
    monkeypatch.setattr("baselines.audit.sentences.PACKAGE", "json")  # any installed one
    captions = ["a dog", "a red ball", "", "a dog"]
    vectors = sentence_vectors(captions, MINILM, device="cpu")
    np.testing.assert_array_equal(vectors[0], vectors[3])
    np.testing.assert_allclose(np.linalg.norm(vectors, axis=1), 1, atol=1e-6)


def test_tfidf_judges_other_languages_and_sets_without_the_package(monkeypatch):
    english, german = ["a dog runs in the grass"] * 3, ["ein Hund läuft durch das Gras"] * 3
    assert default_encoder(english) == TFIDF
    monkeypatch.setattr("baselines.audit.sentences.PACKAGE", "json")  # any installed one
    assert default_encoder(english) == MINILM
    assert default_encoder(german) == TFIDF
    assert f"{E5} finds more" in advice(german)
    monkeypatch.setattr("baselines.audit.sentences.E5_PACKAGE", "json")
    assert default_encoder(german) == E5


def test_what_is_missing_is_named(monkeypatch):
    monkeypatch.setattr("ncl_bench.extras.find_spec", lambda name: None)
    with refused():
        sentence_vectors(["a dog"], MINILM, device="cpu")
    with refused():
        sentence_vectors(["a dog"], "no-such-model", device="cpu")
