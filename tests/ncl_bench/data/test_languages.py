"""Names of languages: codes, names and what people write, against other words of tables."""

import pytest

from ncl_bench.data.languages import language_name, language_tag
from ncl_bench.data.tokenizers import default_tokenizer

TAGS = {
    "en": "en", "EN": "en", "English": "en", "eng": "en", "en-US": "en-US", "en_gb": "en-GB", " de ": "de",
    "zh": "zh", "zh-cn": "zh-CN", "zh_CN": "zh-CN", "cn": "zh", "Chinese": "zh", "cmn": "zh", "中文": "zh",
    "zh-hans-cn": "zh-Hans-CN", "Chinese (Simplified)": "zh-Hans", "traditional_chinese": "zh-Hant",
    "de_DE": "de-DE", "German": "de", "pt-br": "pt-BR", "Brazilian Portuguese": "pt-BR", "es-419": "es-419",
    "jp": "ja", "iw": "he", "eng_Latn": "en-Latn", "sr-Latn-RS": "sr-Latn-RS", "Français": "fr",
    "Franc\u0327ais": "fr", "Norwegian": "no", "nb-NO": "nb-NO", "no-NO": "no-NO", "Indonesian": "id",
    "id-ID": "id-ID", "fil": "fil",
}  # fmt: skip
OTHERS = (
    "id", "ID", "no", "nr", "ts", "image", "image_id", "en_id", "id_no", "url", "width", "height", "Split", "split",
    "caption", "comment_number", "text", "0", "", "en_test", "is_ok", "zh-xx", "cat", "lat", "raw", "de-AT-1996",
)  # fmt: skip


@pytest.mark.parametrize("name", TAGS)
def test_a_language_is_recognised_whatever_its_spelling(name):
    assert language_tag(name) == TAGS[name]
    assert language_tag(TAGS[name]) in (TAGS[name], None)  # None: `no` and `id` alone are columns of numbers


@pytest.mark.parametrize("name", OTHERS)
def test_other_words_name_no_language(name):
    assert language_tag(name) is None


def test_a_tag_has_an_english_name():
    names = {"de": "German", "zh-CN": "Chinese (zh-CN)", "gd": "Scottish Gaelic", "klingon": "Klingon"}
    assert {tag: language_name(tag) for tag in names} == names


@pytest.mark.parametrize(
    ("tokenizer", "languages"),
    [
        ("jieba", ("zh", "zh-cn", "cn", "Chinese", "ZH_TW", "yue", "cmn-Hans")),
        ("char", ("ja", "jp", "Thai", "lo-LA", "km", "Burmese", "bo", "dz")),
        ("word", ("en", "ko", "vi", "hi", "ja-Latn", "zh-Latn", "Tibetan caption", "id", "")),
    ],
)
def test_scripts_without_blanks_have_a_tokenizer_that_cuts_them(tokenizer, languages):
    assert {default_tokenizer(language) for language in languages} == {tokenizer}
