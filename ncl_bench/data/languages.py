"""Recognise the names of languages that people give to captions and columns."""

import re
import unicodedata

# ISO 639-1, with the languages without a two-letter code that retrieval sets use (fil, quz, yue).
_CODES_AND_NAMES = """\
aa afar|ab abkhazian|ae avestan|af afrikaans|ak akan|am amharic|an aragonese|ar arabic|as assamese|av avaric|ay aymara
az azerbaijani|ba bashkir|be belarusian|bg bulgarian|bi bislama|bm bambara|bn bengali|bo tibetan|br breton|bs bosnian
ca catalan|ce chechen|ch chamorro|co corsican|cr cree|cs czech|cu church slavic|cv chuvash|cy welsh|da danish
de german|dv divehi|dz dzongkha|ee ewe|el greek|en english|eo esperanto|es spanish|et estonian|eu basque|fa persian
ff fulah|fi finnish|fil filipino|fj fijian|fo faroese|fr french|fy western frisian|ga irish|gd scottish gaelic
gl galician|gn guarani|gu gujarati|gv manx|ha hausa|he hebrew|hi hindi|ho hiri motu|hr croatian|ht haitian creole
hu hungarian|hy armenian|hz herero|ia interlingua|id indonesian|ie interlingue|ig igbo|ii sichuan yi|ik inupiaq|io ido
is icelandic|it italian|iu inuktitut|ja japanese|jv javanese|ka georgian|kg kongo|ki kikuyu|kj kuanyama|kk kazakh
kl kalaallisut|km khmer|kn kannada|ko korean|kr kanuri|ks kashmiri|ku kurdish|kv komi|kw cornish|ky kyrgyz|la latin
lb luxembourgish|lg ganda|li limburgish|ln lingala|lo lao|lt lithuanian|lu luba-katanga|lv latvian|mg malagasy
mh marshallese|mi maori|mk macedonian|ml malayalam|mn mongolian|mr marathi|ms malay|mt maltese|my burmese|na nauru
nb norwegian bokmal|nd north ndebele|ne nepali|ng ndonga|nl dutch|nn norwegian nynorsk|no norwegian|nr south ndebele
nv navajo|ny nyanja|oc occitan|oj ojibwa|om oromo|or odia|os ossetic|pa punjabi|pi pali|pl polish|ps pashto
pt portuguese|qu quechua|quz cusco quechua|rm romansh|rn rundi|ro romanian|ru russian|rw kinyarwanda|sa sanskrit
sc sardinian|sd sindhi|se northern sami|sg sango|si sinhala|sk slovak|sl slovenian|sm samoan|sn shona|so somali
sq albanian|sr serbian|ss swati|st southern sotho|su sundanese|sv swedish|sw swahili|ta tamil|te telugu|tg tajik
th thai|ti tigrinya|tk turkmen|tl tagalog|tn tswana|to tongan|tr turkish|ts tsonga|tt tatar|tw twi|ty tahitian
ug uyghur|uk ukrainian|ur urdu|uz uzbek|ve venda|vi vietnamese|vo volapuk|wa walloon|wo wolof|xh xhosa|yi yiddish
yo yoruba|yue cantonese|za zhuang|zh chinese|zu zulu"""
_NAME_OF = dict(line.split(" ", 1) for line in _CODES_AND_NAMES.replace("\n", "|").split("|"))
# What people write for a language besides its tag and its name: codes of countries, three-letter codes,
# withdrawn codes, and other names.
_ALSO = {
    other: tag
    for tag, others in {
        "ar": "ara", "bn": "ben bangla", "cs": "cz ces cze", "da": "dk dan", "de": "deu ger deutsch",
        "el": "gr ell gre", "en": "eng", "es": "spa español castilian", "fa": "fas per farsi", "fi": "fin suomi",
        "fr": "fra fre français", "he": "iw heb", "hi": "hin", "hu": "hun", "it": "ita italiano",
        "ja": "jp jpn 日本語", "km": "khm cambodian", "ko": "kor 한국어", "lo": "laotian", "my": "mya myanmar",
        "nb": "bokmal bokmål", "nl": "nld flemish", "nn": "nynorsk", "pl": "pol polski", "pt": "por português",
        "ro": "ron moldovan", "ru": "rus русский", "sv": "swe", "th": "tha", "tr": "tur türkçe", "uk": "ua ukr",
        "vi": "vn vie", "yi": "ji", "zh": "cn zho chi cmn mandarin 中文 汉语 漢語",
        "zh-Hans": "简体中文", "zh-Hant": "繁體中文",
    }.items()
    for other in others.split()
}  # fmt: skip
_NAMES = {name: code for code, name in _NAME_OF.items()} | {
    "norwegian bokmål": "nb",
    "luba katanga": "lu",
    "haitian": "ht",
    "brazilian portuguese": "pt-BR",
    "simplified chinese": "zh-Hans",
    "chinese simplified": "zh-Hans",
    "traditional chinese": "zh-Hant",
    "chinese traditional": "zh-Hant",
    "mandarin chinese": "zh",
}
# ISO 15924, the scripts that written corpora name.
_SCRIPTS = """\
Arab Armn Beng Cyrl Deva Ethi Geor Grek Gujr Guru Hang Hans Hant Hebr Jpan Khmr Knda Kore Laoo Latn Mlym Mong Mymr
Olck Orya Sinh Taml Telu Tfng Thai Tibt"""
# ISO 3166-1, without which every `is_ok` would be a language of a country.
_REGIONS = """\
AD AE AF AG AI AL AM AO AQ AR AS AT AU AW AX AZ BA BB BD BE BF BG BH BI BJ BL BM BN BO BQ BR BS BT BV BW BY BZ CA CC
CD CF CG CH CI CK CL CM CN CO CR CU CV CW CX CY CZ DE DJ DK DM DO DZ EC EE EG EH ER ES ET FI FJ FK FM FO FR GA GB GD
GE GF GG GH GI GL GM GN GP GQ GR GS GT GU GW GY HK HM HN HR HT HU ID IE IL IM IN IO IQ IR IS IT JE JM JO JP KE KG KH
KI KM KN KP KR KW KY KZ LA LB LC LI LK LR LS LT LU LV LY MA MC MD ME MF MG MH MK ML MM MN MO MP MQ MR MS MT MU MV MW
MX MY MZ NA NC NE NF NG NI NL NO NP NR NU NZ OM PA PE PF PG PH PK PL PM PN PR PS PT PW PY QA RE RO RS RU RW SA SB SC
SD SE SG SH SI SJ SK SL SM SN SO SR SS ST SV SX SY SZ TC TD TF TG TH TJ TK TL TM TN TO TR TT TV TW TZ UA UG UM US UY
UZ VA VC VE VG VI VN VU WF WS YE YT ZA ZM ZW"""
# Codes that tables use for numbers: identifiers, numbers, times, heights. Alone they name no language.
_COLUMN_WORDS = {"id", "no", "nr", "sn", "ts", "ht"}


def language_tag(name: str) -> str | None:
    """Return the BCP 47 tag of a language code or an English language name, or None for other words.

    Letter case, `_` for `-`, and blanks around the name do not count: `zh-cn` and `zh_CN` are `zh-CN`,
    `EN` is `en`, `Chinese` and the country's code `cn` are `zh`. A script and a region are kept.

    `id`, `no`, `nr`, `sn`, `ts` and `ht` are codes of languages (Indonesian, Norwegian, ...), but tables use
    them for numbers, so alone they are None. `id-ID` and `Indonesian` are read as the language, and a
    language that was asked for by name needs no tag. A region `ID` counts after `id` only (`en_id` is None).
    """
    name = unicodedata.normalize("NFC", name).strip().lower()
    words = " ".join(re.findall(r"[^\W_]+", name))
    tag = _NAMES.get(words) or _ALSO.get(words)
    if tag is not None:
        return tag
    match = re.fullmatch(r"([^\W\d_]{2,3})(?:[-_]([a-z]{4}))?(?:[-_]([a-z]{2}|419))?", name)
    if match is None:
        return None
    code, script, region = match.groups()
    language = code if code in _NAME_OF else _ALSO.get(code)
    if language is None:
        return None
    script = script and script.capitalize()
    region = region and region.upper()
    if script not in (None, *_SCRIPTS.split()):
        return None
    if region not in (None, "419", *_REGIONS.split()):
        return None
    if language in _COLUMN_WORDS and not script and region != language.upper():
        return None
    if region == "ID" and language != "id":
        return None
    return "-".join(filter(None, (language, script, region)))


def language_name(tag: str) -> str:
    """Return the English name of a tag of :func:`language_tag`, such as ``German`` or ``Chinese (zh-CN)``."""
    code = tag.partition("-")[0]
    name = _NAME_OF.get(code, code).title()
    return name if tag == code else f"{name} ({tag})"
