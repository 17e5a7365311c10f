"""Tokenizers and vocabularies: frozen rules, published files bit for bit, four languages."""

import json
import os
import unicodedata
from pathlib import Path

import nltk
import pytest
from hypothesis import given
from hypothesis import strategies as st
from nltk.tokenize import NLTKWordTokenizer
from support.damaged import JSON, assert_damage_is_refused, assert_refused
from support.processes import python
from support.refusals import refused

from ncl_bench.data.tokenizers import _jieba, split_words, tokenizer, train_bpe, turkic
from ncl_bench.data.vocabulary import (
    SPECIAL_WORDS,
    Vocabulary,
    build_vocabulary,
    load_vocabulary,
    parse_vocabulary,
    vocabulary_json,
)
from ncl_bench.errors import DataError

# What NLTKWordTokenizer of nltk 3.8.1 gives.
NLTK_3_8_1 = {
    "A red 'stop' sign isn't far.": "A red 'stop ' sign is n't far .",
    "a man with a sign that says 'no parking": "a man with a sign that says 'no parking",
    "a bike. a dog": "a bike. a dog",
    "a dog runs.": "a dog runs .",
    "they're the dog's toys, aren't they?": "they 're the dog 's toys , are n't they ?",
    "he can't; she cannot -- gonna go": "he ca n't ; she can not -- gon na go",
    'a "quoted" word (in brackets) at 10:30, for $3.50': (
        "a `` quoted '' word ( in brackets ) at 10:30 , for $ 3.50"
    ),
    "two... dogs & 'tis fun!": "two ... dogs & 't is fun !",
    "the boys' bikes": "the boys ' bikes",
    "a café – open": "a café – open",
    "wanna play more'n one game, d'ye?": "wan na play more 'n one game , d 'ye ?",
    "“curly” ‘quotes’": "“ curly ” ‘ quotes ’",
}
SAMPLES = {
    "en": "A dog runs over the green field.",
    "zh": "左上角是数字三，右下角是七。",
    "ja": "公園で犬が走っています。",
    "ru": "Собака бежит по полю.",
}


@pytest.mark.parametrize("sentence", NLTK_3_8_1)
def test_word_rules_are_those_of_nltk_3_8_1(sentence):
    assert " ".join(split_words(sentence)) == NLTK_3_8_1[sentence]


@given(st.lists(st.text('abcdnt019.,:;?!()[]{}<>-@#$%&*"`', min_size=1), min_size=1))
def test_word_rules_agree_with_installed_nltk_where_no_version_changed_them(parts):
    sentence = " ".join(parts)
    assert split_words(sentence) == NLTKWordTokenizer().tokenize(sentence)


def test_word_punkt_says_how_to_get_missing_data(monkeypatch, tmp_path):
    monkeypatch.setattr(nltk.data, "path", [str(tmp_path)])
    with refused(DataError):
        tokenizer("word-punkt")


@pytest.fixture
def punkt(monkeypatch, tmp_path):
    """A sentence splitter that was trained on next to nothing."""
    folder = tmp_path / "tokenizers" / "punkt_tab" / "english"
    folder.mkdir(parents=True)
    (folder / "collocations.tab").write_text("")
    (folder / "sent_starters.txt").write_text("a\n")
    (folder / "abbrev_types.txt").write_text("mr\n")
    (folder / "ortho_context.tab").write_text("")
    monkeypatch.setattr(nltk.data, "path", [str(tmp_path)])


@pytest.mark.parametrize(
    ("caption", "word", "word_punkt"),
    [
        ("A man rides a bike.", "a man rides a bike .", "a man rides a bike ."),
        ("A bike . A dog .", "a bike . a dog .", "a bike . a dog ."),
        ("A bike, a dog; isn't it?", "a bike , a dog ; is n't it ?", "a bike , a dog ; is n't it ?"),
        ("A 'STOP sign", "a 'stop sign", "a 'stop sign"),
        ("Mr. A runs.", "mr. a runs .", "mr. a runs ."),
        ("A bike. A dog.", "a bike. a dog .", "a bike . a dog ."),
        ("Look! A dog. :)", "look ! a dog. : )", "look ! a dog . : )"),
    ],
)
def test_word_and_word_punkt_differ_only_in_a_full_stop_that_ends_a_sentence_within(
    punkt, caption, word, word_punkt
):
    assert tokenizer("word")(caption) == word.split()
    assert tokenizer("word-punkt")(caption) == word_punkt.split()


def test_jieba_finds_chinese_words_and_keeps_everything_in_every_language():
    jieba = tokenizer("jieba")
    assert jieba(SAMPLES["zh"]) == ["左上角", "是", "数字", "三", "，", "右下角", "是", "七", "。"]
    for sample in SAMPLES.values():
        assert "".join(jieba(sample)) == sample.lower()


@pytest.mark.parametrize(
    ("caption", "tokens"),
    [
        ("公園で2匹の犬がRUNしています。", "公 園 で 2 匹 の 犬 が run し て い ま す 。"),
        ("「ビール」、ｶﾞﾑ！", "「 ビ ー ル 」 、 ｶ ﾞ ﾑ ！"),
        ("葛\U000e0100城", "葛\U000e0100 城"),
        ("ที่นี่ มีหมา 2 ตัว", "ที่ นี่ มี ห ม า 2 ตั ว"),
        ("ໝາດຳ", "ໝ າ ດ ຳ"),
        ("ឆ្កែ\u200bរត់", "ឆ្ កែ រ ត់"),
        ("ခွေးပြေး", "ခွေး ပြေး"),
        ("ཁྱི་རྒྱུག", "ཁྱི ་ རྒྱུ ག"),
        ("A dog isn't, über", "a dog is n't , über"),
    ],
)
def test_char_cuts_scripts_without_blanks_into_letters_with_their_signs(caption, tokens):
    assert tokenizer("char")(caption) == tokens.split()


@pytest.mark.parametrize("name", ["word", "word-punkt", "jieba", "char", "bpe"])
def test_tokens_do_not_depend_on_the_unicode_form(name, punkt, tmp_path):
    caption = "Ein Café für Ångström, ガム, nhà cửa"
    if name == "bpe":
        train_bpe([caption], tmp_path / "bpe.json")
    cut = tokenizer(name, file=tmp_path / "bpe.json" if name == "bpe" else None)
    assert cut(unicodedata.normalize("NFD", caption)) == cut(caption)


def test_published_words_in_another_unicode_form_keep_their_ids():
    vocabulary = Vocabulary((*SPECIAL_WORDS, "cafe\u0301", "e\u0301te\u0301", "été"), 7)
    assert vocabulary.encode(tokenizer("word")("cafe\u0301 café été e\u0301te\u0301")) == [1, 4, 4, 6, 6, 2]


@pytest.mark.parametrize("language", SAMPLES)
def test_bpe_loses_nothing_but_spaces_and_case(language, tmp_path):
    train_bpe(SAMPLES.values(), tmp_path / "bpe.json", size=120)
    sample = SAMPLES[language]
    pieces = tokenizer("bpe", file=tmp_path / "bpe.json")(sample)
    assert "".join(pieces) == sample.lower().replace(" ", "").replace("，", ",")


def test_bpe_training_gives_equal_bytes_in_every_process(tmp_path):
    captions = [f"{sample} {i % 7}" for i in range(50) for sample in SAMPLES.values()]
    train_bpe(captions, tmp_path / "here.json", size=150)
    script = (
        "import json, sys; from pathlib import Path; from ncl_bench.data.tokenizers import train_bpe; "
        "train_bpe(json.load(sys.stdin), Path(sys.argv[1]), size=150)"
    )
    environment = {**os.environ, "RAYON_NUM_THREADS": "1", "PYTHONHASHSEED": "7"}
    python(script, tmp_path / "there.json", input=json.dumps(captions), env=environment)
    assert (tmp_path / "here.json").read_bytes() == (tmp_path / "there.json").read_bytes()


def test_bert_reads_any_local_tokenizer_json(tmp_path):
    from tokenizers import Tokenizer, models, normalizers, pre_tokenizers

    pieces = Tokenizer(models.WordPiece({"[UNK]": 0, "run": 1, "##s": 2, "犬": 3}, unk_token="[UNK]"))
    pieces.normalizer = normalizers.BertNormalizer()
    pieces.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    (tmp_path / "bert.json").write_text(pieces.to_str())
    bert = tokenizer("bert", file=tmp_path / "bert.json")
    assert bert("Runs 犬犬 x") == ["run", "##s", "犬", "犬", "[UNK]"]
    assert bert.version.startswith("tokenizers-")


def test_ids_skips_empty_fields():
    assert tokenizer("ids")("4, 17,,256,") == ["4", "17", "256"]


@pytest.mark.parametrize(
    ("name", "file"),
    [
        ("wrod", None),
        ("bert", None),
        ("bert", Path("absent.json")),
        ("bpe", Path(__file__)),
    ],
)
def test_tokenizer_refuses(name, file):
    with refused(DataError):
        tokenizer(name, file=file)


def test_vocabulary_is_ordered_by_count_then_alphabet():
    counts = {"b": 4, "a": 4, "c": 7, "d": 3}
    assert build_vocabulary(counts).words == (*SPECIAL_WORDS, "c", "a", "b")
    assert build_vocabulary(counts, threshold=3).words == (*SPECIAL_WORDS, "c", "a", "b", "d")


@given(st.lists(st.text(max_size=3).filter(bool), unique=True), st.integers(0, 5))
def test_published_format_round_trips(words, spare):
    words = (*SPECIAL_WORDS, *(word for word in words if word not in SPECIAL_WORDS))
    vocabulary = Vocabulary(words, len(words) + spare)
    assert parse_vocabulary(vocabulary_json(vocabulary).encode(), "x") == vocabulary


def test_published_ids_stay_as_they_are(tmp_path):
    words = {"<start>": 5, "<end>": 2, "<unk>": 0, "chien": 9, "été": 3}
    content = {"word2idx": words, "idx2word": {str(i): w for w, i in words.items()}, "idx": 20}
    (tmp_path / "v.json").write_text(json.dumps(content))
    vocabulary = load_vocabulary(tmp_path / "v.json")
    assert vocabulary.size == 20
    assert vocabulary.encode(["chien", "été", "chat"]) == [5, 9, 3, 0, 2]
    assert vocabulary.decode([5, 9, 3, 7, 19, 2]) == ["chien", "été"]
    assert json.loads(vocabulary_json(vocabulary)) == {**content, "word2idx": words}


@pytest.mark.parametrize(
    "change",
    [
        lambda v: "not json",
        lambda v: {"word2idx": {}},
        lambda v: [1],
        lambda v: {**v, "idx": "9"},
        lambda v: {**v, "idx2word": {**v["idx2word"], "4": "cat"}},
        lambda v: {**v, "idx": 4},
        lambda v: {"word2idx": {"a": 0}, "idx2word": {"0": "a"}, "idx": 1},
    ],
)
def test_damaged_vocabularies_are_refused(change):
    good = json.loads(vocabulary_json(Vocabulary((*SPECIAL_WORDS, "dog"), 5)))
    changed = change(good)
    content = changed if isinstance(changed, str) else json.dumps(changed)
    with refused(DataError):
        parse_vocabulary(content.encode(), "v.json")


def test_jieba_neither_reads_nor_writes_a_file_that_others_may_write(tmp_path, monkeypatch):
    _jieba.cache_clear()
    (tmp_path / "jieba.cache").write_bytes(b"planted")
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    assert tokenizer("jieba")("我来到北京清华大学") == ["我", "来到", "北京", "清华大学"]
    assert [path.name for path in tmp_path.iterdir()] == ["jieba.cache"]
    assert (tmp_path / "jieba.cache").read_bytes() == b"planted"


def test_damaged_vocabularies_are_read_or_refused():
    def read(content):
        found = parse_vocabulary(content, "vocab.json")
        assert found.sha256
        found.decode(found.encode(["dog", "cat"]))
        parse_vocabulary(vocabulary_json(found).encode(), "again")

    good = vocabulary_json(Vocabulary((*SPECIAL_WORDS, "dog", "漢字", "", "'s"), 20)).encode()
    assert_damage_is_refused([good], read, JSON)
    words = {"<pad>": 0, "<start>": 1, "<end>": 2, "<unk>": 3, "dog": 10**12}
    large = {"word2idx": words, "idx2word": {str(10**12): "dog"}, "idx": 10**12 + 1}
    assert_refused(read, json.dumps(large).encode(), "idx is above 2000000")
    assert_refused(read, good.replace(b'"dog"', b'"\\ud800"'), "surrogates not allowed")


def test_damaged_tokenizers_are_read_or_refused(tmp_path):
    path = tmp_path / "tokenizer.json"
    train_bpe(["a dog runs", "the dog"], path, size=60)
    good = path.read_bytes()

    def read(content):
        path.write_bytes(content)
        tokenizer("bert", file=path)("A dog runs, 漢字")

    assert_damage_is_refused([good], read, JSON)
    unknown = good.replace(b'"unk_token":"<unk>"', b'"unk_token":"<uni>"')
    assert_refused(read, unknown, "cannot be read")


def test_turkish_capitals_keep_their_letters():
    # a decomposed capital is the same letter
    assert tokenizer("word")(turkic("I\u0307K\u0130 ISPARTA")) == ["iki", "\u0131sparta"]
