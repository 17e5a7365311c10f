"""Captions that describe no picture, as crawlers and captioning models leave them behind, by kind.

A kind is told by what its texts have in common: who speaks to whom, the part of digits and signs, separators without
function words, repeated runs of words. What is usual in the set decides too: keywords are no fault where all captions
are keywords, and a cut is one where many captions end at the same length in words that seldom end one.
"""

import re
from collections import Counter
from collections.abc import Callable, Sequence
from itertools import pairwise

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from ncl_bench.data.scripts import LATIN, script_of, terms
from ncl_bench.npy import BoolArray

REFUSAL, PRODUCT, CODE, CREDIT = "refusal of a model", "price or number", "code", "date or credit"
KEYWORDS, TEMPLATE, LOOP = "keyword list", "template error", "loop"
JUNK = (TEMPLATE, REFUSAL, CODE, CREDIT, PRODUCT, LOOP, KEYWORDS)
"""Where several hold, the first is named."""


def _joined(lines: str) -> str:
    """A pattern that is written in several lines."""
    return "".join(map(str.strip, lines.splitlines()))


# What a model says of itself, and no caption of a picture, a paragraph for each language; a blank stands for any.
_REFUSALS = _joined(r"""
    i cannot|i can't|i can not|i couldn't|i could not|i am unable|i'm unable|i am not able|i'm not able|
    i'm sorry|i am sorry|i apologi[sz]e|i'm afraid|i don't have|i do not have|i won't|i will not|
    i don't see|i do not see|i see no|i must decline|i'd be happy|i would be happy|i'd need|i would need|
    i need more|i'm just an?|i am an ai|as an? (ai|language|artificial|text|assistant|multimodal)|
    language model|(my|safety|content) (guidelines|policy)|^\W*(sorry|apologies|
    unfortunately)(,| but| i| for| the| this| we| no)|my (apologies|capabilities|programming)|
    please (provide|upload|share|attach|send|try|describe|clarify|supply|note that i|let me)|let me know|
    (image|photo|picture|file|text|description|content|link|context|question|request|
    prompt)s? (that )?you|you('ve| have)? (provided|uploaded|shared|attached|sent|describe|given|
    are asking)|(can|may) i (help|assist)|happy to (help|assist)|feel free to|(no|without|any) (image|
    picture|photo|file|attachment)s? (was|were|is|has|have|provided|attached|uploaded|given|available|
    found|detected|selected|loaded|supplied|received)|(the|this) (assistant|model|ai|system) (declin|
    refus|cannot|can't|could|was|is un|did|does)|(content|response|output|caption|description|
    image) (was |has been |is )?(filtered|blocked|censored|moderated|flagged|withheld)|
    not (been )?(provided|uploaded|attached|supported|permitted|allowed)|against (my|our|the) (guidelines|
    policy|rules)|(didn't|did not|doesn't|does not|failed to) (seem to )?(load|come through|upload|open|
    arrive|attach)|(could not|couldn't|cannot|can't|not) be (loaded|displayed|shown|found|opened|retrieved|
    generated|processed|read|decoded|identified|determined)|no (photo |image |picture |alt |video )?(description|
    caption|alt|preview|title)s? (is |was |were )?(available|provided|found|given|generated)|(image|photo|picture|
    description|caption|preview|content|page|file)s? (is |was |currently )*(unavailable|missing$|not (found|
    available))|
    (?:^|[^e] )(unable|not able|not possible|cannot|can't|failed) (to )?(be )?(view|see|
    access|describ|identif|provid|assist|process|analy[sz]|determin|generat|load|display|comply|fulfil|
    interpret|help|creat)|(sure|certainly|absolutely|of course)[!,] (here|i|the|this|let)|
    here('s| is| are) (a|an|the|some|your|one|two|three|few) (possible |short |brief |detailed |suggested |
    concise )*(caption|description|alt|summary|sentence)|(caption|description)s? (above|below|would|could|can|will|
    must|should|is (based|not))|(no|any|possible|following) (caption|description)s? |(usage|privacy) polic|
    (blocked|flagged) by the (moderation|content|safety|filter)|i (can )?only see|nothing (was|is|
    has been) (attached|uploaded|provided|shared|received)|
    there (doesn't|does not) (appear|seem) to be|training data|

    tut mir leid|ich kann|ich könnte|kann ich|ich bin nicht|ich sehe|ich habe kein|leider|als (ki|
    sprachmodell)|sprachmodell|entschuldigung|ich entschuldige|bitte (lade|laden|gib|geben|teile|teilen|
    stell|stellen|senden)|nicht möglich|kein(en)? (bild|foto|zugriff)|ich darf|darf ich|nicht (angezeigt|
    geladen|gefunden|beschrieben|verarbeitet)|(ki|sprach)[- ]?(assistent|modell)|richtlinien|

    désolée?|je ne (peux|suis|vois|dispose|parviens)|je n'ai|je m'excuse|je regrette|malheureusement|
    en tant qu'(ia|assistant|intelligence|un modèle)|modèle de langage|veuillez|aucune (image|photo)|
    n'est pas possible|impossible d|nos règles|enfreint|n'a pas (pu|été)|pas accès|merci de (fournir|charger|
    partager)|

    lo siento|no puedo|no veo|no tengo|no me es posible|lamento|lamentablemente|desafortunadamente|
    disculpa|como (ia|modelo|asistente|una ia)|modelo de lenguaje|por favor,? (proporcion|sub|compart|
    adjunt|env)|no (es|fue|ha sido) posible|no se (pudo|puede|ha|proporcion)|ninguna (imagen|foto)|
    nuestras (normas|políticas)|no ha (adjuntado|sido)|
    sin acceso|no dispongo|

    mi dispiace|mi scuso|non posso|non riesco|non vedo|non sono in grado|purtroppo|come (ia|modello|
    assistente)|modello linguistico|per favore,? (fornisc|caric|condivid|alleg|inv)|si prega di|spiacente|
    mi spiace|non è (stat[oa] )?(possibile|caricat|fornit)|nessuna (immagine|foto)|non ho (accesso|modo)|
    in quanto (ia|ai|modello)|

    desculpe|lamento|sinto muito|não posso|não consigo|não vejo|não tenho|infelizmente|como (ia|modelo|
    uma ia)|modelo de linguagem|por favor,? (forne|envi|carreg|partilh|compartilh)|não (é|foi) possível|
    nenhuma (imagem|foto)|não houve|não disponho|não me é possível|assistente de ia|

    het spijt me|ik kan|kan ik|ik zie|ik heb geen|ik ben niet|helaas|als (ai|taalmodel)|taalmodel|
    mijn excuses|(gelieve|kunt u|kun je)|niet mogelijk|geen (afbeelding|foto|toegang)|ai-assistent|

    jag kan|jag ser|jag har|jag är|kan jag|tyvärr|förlåt|beklagar|som (en )?(ai|språkmodell)|språkmodell|
    inte möjligt|ingen (bild|tillgång)|inte tillgång|

    jeg kan|jeg ser|jeg har|jeg er|kan jeg|desværre|beklager|undskyld|som (en )?(ai|sprogmodel)|
    sprogmodel|ikke muligt|intet (billede|foto)|ikke adgang|

    dessverre|som (en )?språkmodell|vennligst|ikke mulig|ikke tilgang|inget bilde|ingen bilde|

    en voi|en pysty|en näe|en osaa|valitettavasti|pahoittelen|pahoittelut|anteeksi|olen pahoillani|
    kielimalli|ei ole mahdollista|ei voida|ei pysty|kuvaa ei|

    nie mogę|nie jestem|nie widzę|nie potrafię|przykro mi|przepraszam|niestety|jako (ai|model)|
    model językowy|proszę|nie jest możliwe|nie można|nie udało|brak (obraz|zdjęci|dostęp)|nie mam|

    nemohu|nemůžu|nevidím|nejsem|nedokážu|omlouvám|bohužel|je mi líto|jazykový model|prosím|není možné|
    nelze|nepodařilo|nemám|žádný obráz|

    nem tudo[km]|nem látok|nem áll módomban|sajnálom|sajnos|elnézést|bocsánat|nyelvi modell|kérem|kérjük|
    nem lehet|nem sikerült|nincs (kép|hozzáfér)|

    nu pot|nu văd|nu sunt|îmi pare rău|din păcate|îmi cer scuze|model de limbaj|vă rog|vă rugăm|
    ne pare rău|nu este posibil|nu (a|s-a) putut|nu am (acces|cum)|

    üzgünüm|özür dilerim|maalesef|ne yazık ki|yapamam|edemem|edemiyorum|göremiyorum|yardımcı olamam|
    dil modeli|lütfen|mümkün değil|(tanımla|aç|gör|görüntüle|yardımcı ol|yap|ed|belirle)(y?a|y?e)m(ıyor|
    iyor|[ae]m(?!\w))|

    maaf|saya tidak|saya belum|sayangnya|model bahasa|tidak (dapat|bisa) (saya|mem|men|mel|meng)|
    sebagai (ai|model)|mohon|tidak ada (gambar|foto)|tidak memiliki|

    не могу|не вижу|не способ|извините|простите|сожале|увы|языков(ая|ой) модел|пожалуйста|невозможно|
    не удалось|нет доступа|не имею|не загрузил|не могла?|

    抱歉|对不起|對不起|不好意思|我无法|我無法|我不能|无法(识别|查看|描述|提供|处理|生成|访问)|作为(一个|
    一名)?(人工|AI|语言)|语言模型|語言模型|很遗憾|请(上传|提供)|
    作为.{0,4}(助手|模型)|(没有|沒有|未).{0,4}(能力|图片|图像|圖片|上传|提供)|看不到|

    申し訳|すみません|ごめんなさい|できません|できかねます|言語モデル|残念ながら|提供してください|ありません|(添付|
    提供|読み込|アップロード)され(て|ま)|ありかねます|ことはできず|

    죄송|미안|할 수 없|수 없습니다|불가능합니다|언어 모델|유감|할 수가 없|수 없어|수가 없|올려 주세요|제공해|

    آسف|عذر[اًا]+|أعتذر|لا أستطيع|لا يمكنني|لا أرى|نموذج لغوي|للأسف|يرجى|لا يمكن|لم يتم|لا توجد صورة|
    غير قادر|

    ขออภัย|ขอโทษ|เสียใจ|ไม่สามารถ|โมเดลภาษา|กรุณา|ไม่พบ|ไม่มีรูป|ไม่มีภาพ|

    माफ़|माफ|क्षमा|खेद|असमर्थ|नहीं (कर|देख|दे) सक|भाषा मॉडल|कृपया|नहीं (मिल|दिख)|संभव नहीं
    """)
# a word begins where no letter of an alphabet stands before it; Chinese and Thai have no blanks
_REFUSAL = re.compile(rf"(?<![A-Za-zÀ-ɏЀ-ӿ])(?:{_REFUSALS})".replace(" ", r"\s+"), re.IGNORECASE)
_SPEAKER = re.compile(r"\b(?:i|i'm|i'll|i'd|me|my|we|we're|us|our|you|you'd|you're|your)\b", re.IGNORECASE)
_ABOUT = re.compile(
    _joined(r"""
    \b(?:images?|photos?|pictures?|photographs?|captions?|texts?|requests?|service|information|questions?|
    content|details?|files?|links?|ai|model|training|guidelines|policy|not|cannot(?! see)|decline|avoid|
    unable|possible|describe|recogni[sz]e|identify|answer|help|assist|provide|share|sharing|upload|sorry|
    (?:can|could|would)(?! (?:see|tell)))\b|n't\b
    """),
    re.IGNORECASE,
)
"""A speaker or a reader, and what a model speaks of: no caption in English has both, unless it quotes a sign."""
_PICTURED = _joined(r"""
    image|photo|picture|caption|sentence|description|words?|text|bild|foto|satz|image|phrase|légende|imagen|
    frase|oración|imagem|legenda|immagine|didascalia|afbeelding|zin|billede|bilde|kuva|obraz|zdjęci|obrázek|
    kép|imagine|resim|görsel|fotoğraf|gambar|изображени|картин|фото|图|圖|画像|写真|이미지|사진|صورة|ภาพ|चित्र|तस्वीर
    """)
_ORDERED = _joined(r"""
    describe|write|generate|create|respond|reply|provide|give|summari[sz]e|list|explain|translate|answer|complete|
    return|identify|produce|caption|rewrite|you are|your task|beschreibe?n?|schreibe?|erstelle?|décri\w+|écri\w+|
    génér\w+|descri\w+|escrib\w+|gener\w+|scriv\w+|escrev\w+|beschrijf|schrijf|beskriv|skriv|kuvaile|
    kirjoita|opisz|napisz|popiš\w*|napiš\w*|írd? le|írj|descrie|scrie|açıkla|tanımla|yaz|jelaskan|
    deskripsikan|tulis|опиши\w*|напиши\w*|描述|生成|写|説明|설명|صف|อธิบาย|वर्णन
    """)
_TEMPLATE = re.compile(
    _joined(r"""
    \{\{?\s*[\w .|'\"\[\]-]{0,40}\}?\}|\$\{|%\(?\w*\)?[sd](?!\w)|<\|[^|>]{1,40}\|?>|</?s>|
    (?-i:\[/?[A-Z_]{2,20}\d*\]|<[A-Z][A-Z_ ]+\d*>)|<(?:image|img_?\d*|caption|text|object|name|unk|pad|eos|
    bos|sep|cls|mask|prompt|title|subject|blank|\w+_\w+|[a-z]{3,}(?: [a-z]{2,})+)>|\[[^\][]*\b(?:insert|
    your|caption|image|photo|description|object|subject|name|title|placeholder|redacted|text|here|
    \w+_\w+)\b[^\][]*\]|#{2,}\s*\w+\s*:?|\blorem ipsum\b|(?-i:\b\w*(?:Error|Exception)\b)(?:\s*:|\s+\d|$)|
    ^(?:error|warning|exception)\b\s*[:(]|\btraceback \(|\\[ntur\"x]|^\W*(?:caption|captions|description|
    output|answer|response|assistant|user|system|prompt|instructions?|human|bot|model|alt|alt[ -]?text|
    question|q|a|input|result|label|text|image|title|gpt|ai|bildunterschrift|beschreibung|légende|
    descripción|didascalia|legenda|bijschrift|opis|kuvateksti)\s*\d*\s*[:=>]|<(?!/?(?:p|b|i|u|em|br|a|div|
    span|li|ul|ol|h[1-6]|strong|img|td|tr|table|small|sup|sub)\b)[a-z_]{3,20}>|\bgoes here\b|^(?:sample|
    insert|placeholder|dummy|default|example) (?:text|description|caption|title|image|alt)\b|^here (?:is|
    are)\b|\bthis is an? (?:template|placeholder|test|sample|dummy)\b|\B\$[a-z]\w+|#(?:REF|N/A|VALUE|NAME|DIV)\b|
    _{3,}|\.{4,}|\bX{3,}\b|\bxxx+\b
    """),
    re.IGNORECASE,
)
_NOTHING = re.compile(
    r"\b(?:undefined|null|nan|nil|placeholder|n/a|fixme|nonetype|(?-i:TODO|TBD|NULL|None(?!\s+of)))\b|^error\b",
    re.IGNORECASE,
)
"""What a program writes for a value that is missing; a name like others where captions are no sentences."""
_PROMPT = re.compile(
    rf"^\W*(?:please |bitte |por favor |请|請)?(?:{_ORDERED})(?!\w*ing).*(?:{_PICTURED})", re.IGNORECASE
)
_CODE = re.compile(
    _joined(r"""
    \w\(\w*[^()]*\)\s*[;{.:=]|\w+\(\)|[\w\])'\"]\s*(?:=>|->|==|!=|:=|\+=|&&|\|\|)\s*|
    \b[a-z]{2,}[A-Z]\w*\b.*[.({=;]|[{;]\s*$|^\s*(?://|/\*|#!|#include|<!--|<\?|\$ |> |>>> )|
    \b\w+\s*=\s*[\"'\d\[{]|\b\w+ = \w+|\b[\w-]+\s*:\s*[^\s;]+;|^(?:import|from|def|class|return|print|const|
    let|var|function|public|private|static|void|package|using|echo)\s+[\w.*{$]+(?:\s*[;(:={]|\s+(?:import|
    as|extends|implements)\b|$)|\b(?:SELECT|INSERT|UPDATE|DELETE|CREATE|DROP|ALTER)\b.*\b(?:FROM|INTO|SET|
    TABLE|WHERE|VALUES|DATABASE|INDEX)\b|^(?:git|kubectl|npm|docker|pip3?|cargo|yarn|brew|
    sudo)\s+[a-z-]+\s+\S+(?:\s+\S+){0,3}$|^(?:sudo|git|npm|npx|pip3?|cd|ls|docker|kubectl|curl|wget|
    apt(?:-get)?|brew|yarn|cargo|chmod|mkdir|rm|cp|mv|ssh|grep|cat|python3?|node|make|java|gcc|conda|
    tar)\s+(?:[-+]{1,2}\w|[a-z]+(?:\s+-|\s+\S*[./_=-])|\S*[./~])|(?:^|\s)--[a-z][\w-]+|<\w+\s[^<>]*=[^<>]*>|
    \bat\s+[\w$.]+\([\w.]+:\d+\)|\bfor\s+\w+\s+in\s+range\b|^\W*[\w.]+\([^()]*\)|\w\([\"']|
    \blambda\s+\w+\s*:|^import \w+(?:,\s*\w+)+$|\b0x[0-9a-fA-F]{4,}|^(?:(?:export|set|env)\s+\w+|[A-Z_]{2,})=\S|
    ^end (?:if|sub|for|while)$|^\W*[\"']\w+[\"']\s*:|^(?:while|if|for|else|try|except)\b[^.]*:|^@\w+|
    ^\w+\s+[\"'][\w./-]+[\"'];?$|\w\.\w+\(|\b(?:public|private|protected|static|async|const|
    final)\s+(?:static|void|class|int|function|async)\b|\bif\s*\(.*\)|\\(?:frac|begin|text|sum|alpha)\b
    """)
)
_NAME = re.compile(r"\b[a-z]+_[a-z_]+\w*\b|\b[a-z]{2,}[A-Z]\w*\b")
_MONTH = r"[^\W\d_]{3,12}\.?"
_DATE = re.compile(
    _joined(rf"""
    \b\d{{1,4}}[./-]\d{{1,2}}[./-]\d{{1,4}}\b|\b\d{{1,2}}(?:st|nd|rd|th|er|\.)?\s+(?:de |of |
    di )?{_MONTH},?\s+(?:de |del )?\d{{4}}\b|\b{_MONTH}\s+\d{{1,2}}(?:st|nd|rd|th)?,?\s+\d{{4}}\b|
    \b{_MONTH},?\s+(?:de )?(?:19|20)\d\d\b|\b(?:19|20)\d\d\b|\b(?:jan|feb|mar|apr|may|jun|jul|aug|sep|oct|
    nov|dec)[a-z]*\.?\s+\d{{1,2}}(?:st|nd|rd|th)?\b|\b\d{{1,2}}\s+(?:jan|feb|mar|apr|may|jun|jul|aug|sept?|
    oct|nov|dec)\b|\d{{2,4}}\s*[年년]|\b\d{{1,2}}[:h]\d{{2}}(?::\d{{2}})?\s*(?:[ap]\.?m\.?)?|
    \d{{1,2}}\s*月\s*\d{{1,2}}
    """),
    re.IGNORECASE,
)
_CREDIT = re.compile(
    _joined(r"""
    (?:(?<!\w)©|\(c\)|[ck]opyright)[\s:by©(c)-]*(?-i:\d{4}|[A-ZÀ-Þ])|copyrighted|copyright (?:reserved|
    notice|holder|owner)|all rights reserved|alle rechte|(?:todos los|todos os) (?:derechos|direitos)|
    tous droits|tutti i diritti|\b(?:image|photo|picture|video|illustration|graphic|art|photograph|bild|
    foto|photographie|imagen|imagem|immagine|fotografía|fotografia|fotografie|beeld|kuva|zdjęcie|fot|kép|
    fotó|fotoğraf|gambar|фото|снимок)s?\.?\s*(?:credits?|courtesy|source|©|:|/|nachweis|credit:|reproduced|
    supplied|provided by|taken by)|(?:photo|image|picture|photograph|illustration|foto|bild|shot|taken|
    captured)\w*\s+(?:by|von|de|di|door|af|av|par|por|van|oleh)(?-i:\s+[A-ZÀ-ÞŁŚŻŽČŠ]|\s+@)|\bcourtesy\b|
    \bcredits?\s*:|\b(?:getty|shutterstock|reuters|alamy|istock|unsplash|wikimedia|(?:via|on|from) flickr|
    afp|pexels|pixabay|dpa|epa|ap photo|associated press|adobe stock|depositphotos|dreamstime)\b|
    \bcc[ -]by\b|creative commons (?:attribution|licen|zero|by)|\blicen[sc]ed\b|bildnachweis|bildquelle|
    \b(?:source|quelle|fuente|fonte|bron|källa|kilde|lähde|źródło|zdroj|forrás|sursă|kaynak|sumber|
    источник)\s*:|crédit|crédito|photographed by|\bphotographers?\s*(?:[:/|]|unknown)|\bfot\.|
    \bstaff photographer|\b(?:image|photo|picture) via\b|\bcredit line\b|posted (?:on|by)|published|
    uploaded|last updated|\bvia @|摄影|攝影|版权|圖片來源|图片来源|图源|
    撮影|提供元|사진\s*[=:]|제공|تصوير|حقوق|ภาพโดย|साभार|
    фотограф|все права|\b\d+ (?:second|minute|min|hour|day|week|month|year)s? ago|\bmin(?:ute)? read\b|\blast (?:
    edited|updated|modified)|^by(?-i:(?: [A-Z]\w+\.?){2,})|\bpublic domain\b|\bused (?:with|by) permission|
    ^(?:submitted|archive|file|stock|handout) (?:photo|image|picture)s?\W*$
    """),
    re.IGNORECASE,
)
_MONEY = (
    r"(?:[$€£¥₹₽₩₺฿₴]|US\$|R\$|USD|EUR|GBP|CHF|SEK|NOK|DKK|PLN|CZK|HUF|RON|TRY|IDR|INR|JPY|CNY|RMB|AUD"
    r"|CAD|zł|kr\.?|Kč|Ft|lei|TL|Rp\.?|руб\.?|元|円|원|บาท)"
)
_PRICE = re.compile(
    _joined(rf"""
    \bbuy \d|^free (?:shipping|delivery|returns)|\bpack of \d|\b\d for \d\b|\bon sale\b|\bsale[!:]|\bprice on\b|
    \d\s?(?:dollars?|euros?|pounds|cents|[GMTK]B|mAh|[GM]?Hz|ml|cl|oz|dpi)\b|
    \b\d+[.,]\d\d\b(?![.,:]\d)|\b(?:only \d+ left|(?:qty|quantity|size|price|preis|prix|precio|prezzo|preço|prijs|
    pris|hinta|cena|ár|preț|fiyat|harga|цена)\s*:?\s*\d)|(?<!\w){_MONEY}\s?\d|\d\s?(?:,-|{_MONEY})(?!\w)|\d+\s?%\s*(?:off|
    rabatt|de (?:réduction|descuento|desconto)|discount|sale|korting|sconto)|\b(?:sku|isbn|ean|upc|gtin|
    asin|mpn|art(?:ikel|icle|ículo|icolo)?|item|model|modell?o?|part|prod(?:uct|ukt)?|order|bestell|
    ref(?:erence|erencia|erentie)?|réf(?:érence)?|código|codice|catalog(?:ue)?|lot|serial|style|no|nr|cód|
    tuote|kod|арт(?:икул)?|货号|型号|品番)(?:nummer|[\s._-]*(?:no|nr|num(?:ber)?|code|id|n°|nº|
    #))*[\s.:#°º-]*(?=[\w-]*\d)[\w-]*\d{{2,}}|
    (?<![\w-])(?=[\w/-]*\d)(?-i:[A-Z0-9]{{1,}}[A-Z0-9]*(?:[-/][A-Z0-9]+){{1,}}|
    [A-Z]{{2,}}\d{{3,}}[A-Z0-9]*)(?![\w-])|(?<![\w-])\d{{5,}}(?![\w-])
    """),
    re.IGNORECASE,
)
_MONEYED = re.compile(rf"(?<!\w){_MONEY}\s?\d")
_CALLED = re.compile("[^\\w\\s.,'’\"“”!?:&()\\-–—#/;|\N{DEGREE SIGN}]")
_STUTTER = re.compile(r"([^\W\d_]{1,4})\1{5,}", re.IGNORECASE)
_SEPARATOR = re.compile(r"\s*(?:[,;|/·•、，؛،>\t\n]|\s[-–—]\s|\s(?=#))\s*")
FEWEST_SIGNS, MOST_OF_SIGNS, MOST_OF_DIGITS = 3, 0.06, 0.3
"""Part of the letters, digits and signs of a caption."""
LEAST_ITEMS, LEAST_BARE = 4, 5
"""Keywords: items between separators, and words without any function word where no separator stands (one more in other
languages than English, where verbs have no form that is known)."""
LEAST_ACTING, LEAST_FOLLOWED, LEAST_TOGETHER = 0.05, 0.3, 0.6
"""Part of a word's occurrences that a verb follows, if it is a subject; part of a verb's that an object follows; part
of the neighbours in a text that are neighbours elsewhere, if it is a sentence."""
LEAST_FIRST = 0.01
"""Part of the captions that begin with a word, from which on it is a usual beginning, such as an article."""
FEWEST_FUNCTION_WORDS = 0.9
"""Part of the captions of a set that hold a function word, above which keywords are a fault."""
LEAST_OF_EXCESS = 0.35
"""Part of the captions of one length, beyond the usual number, that end in a word that seldom ends one."""
FEWEST_SEEN, FEWEST_ELSEWHERE = 3, 5
"""Uses of a word from which on it is known what it does, and captions from which on how seldom it ends one."""
SELDOM = 0.12
"""Part of a word's occurrences that end a caption, up to which it is a sign of a cut."""


def junk_of(
    captions: Sequence[str], texts: Sequence[str], plain: Sequence[str], stops: frozenset[str]
) -> dict[str, BoolArray]:
    """Kind to whether each caption is of it.

    Args:
        captions: with their tags, as they are shown, without URLs.
        texts: the same without tags.
        plain: their lower-case words, with blanks.
        stops: function words of the language of the set; empty where none is known.
    """
    split = [each.split() for each in plain]
    rated = [each for each in split if len(each) >= LEAST_ITEMS]
    spoken = bool(stops) and sum(not stops.isdisjoint(each) for each in rated) >= FEWEST_FUNCTION_WORDS * max(
        1, len(rated)
    )
    talks_english = spoken and {"a", "the", "of"} <= stops
    usage = _Usage(split, stops, talks_english)
    function = [sum(word in stops for word in each) / max(1, len(each)) for each in split]
    rules: dict[str, Callable[[int], bool]] = {
        REFUSAL: lambda row: bool(
            _REFUSAL.search(texts[row])
            or (talks_english and _SPEAKER.search(texts[row]) and _ABOUT.search(texts[row]))
        ),
        TEMPLATE: lambda row: bool(
            _TEMPLATE.search(captions[row])
            or (spoken and _PROMPT.search(texts[row]))
            or (spoken and _NOTHING.search(texts[row]))
        ),
        CODE: lambda row: _is_code(texts[row]) or (spoken and _NAME.search(texts[row]) is not None),
        CREDIT: lambda row: _is_credit(texts[row]),
        PRODUCT: lambda row: (
            _is_product(texts[row], function[row]) if spoken else _MONEYED.search(texts[row]) is not None
        ),
        LOOP: lambda row: _is_loop(texts[row], spoken),
        KEYWORDS: lambda row: spoken and _is_list(texts[row], split[row], stops, usage),
    }
    return {kind: np.array([rule(row) for row in range(len(captions))], bool) for kind, rule in rules.items()}


def _is_code(text: str) -> bool:
    signs = len(_CALLED.findall(text))
    many = signs >= FEWEST_SIGNS and signs > MOST_OF_SIGNS * len(text) and text.isascii()
    return many or _CODE.search(text) is not None


def _is_credit(text: str) -> bool:
    """Whether a date or a credit is all that a caption says: little is left without names and numbers."""
    credited = _CREDIT.search(text) is not None
    if not (credited or _DATE.search(text)):
        return False
    left = [
        word for word in re.findall(r"[^\W\d_]+", _DATE.sub(" ", _CREDIT.sub(" ", text))) if word.islower()
    ]
    return len(left) <= (4 if credited else 3)


def _is_product(text: str, function: float) -> bool:
    digits = len(re.findall(r"\d", text)) / max(1, sum(letter.isalnum() for letter in text))
    return digits >= MOST_OF_DIGITS or (_PRICE.search(text) is not None and function <= 0.35)


def _is_loop(text: str, spoken: bool) -> bool:
    """Whether a run of words follows itself to the end, or several times, or letters do in one word."""
    if _STUTTER.search(text):
        return True
    words = terms(text)
    n = len(words)
    for size in range(1, n):
        run, whole = 0, 0
        # lists of names may repeat one, and people say "very very very"
        least = 3 * size if not spoken or size == 1 else 4 if size == 2 else 2 * size - 1
        for word, later in zip(words, words[size:], strict=False):
            run = run + 1 if word == later else 0
            whole = max(whole, run)
        if whole >= least:
            return True
        # the last turn ends in its middle where the captioner stopped
        if spoken and (run >= max(size, 2) + (size == 2) or (run + size == n and run >= max(4, size / 3))):
            return True
    return False


class _Usage:
    """How the captions of a set use their words; captions without a function word, such as lists, teach nothing."""

    def __init__(self, split: Sequence[Sequence[str]], stops: frozenset[str], english: bool) -> None:
        spoken = [each for each in split if not stops.isdisjoint(each)]
        first = Counter(each[0] for each in split if each)
        self.usual = {word for word, n in first.items() if n >= LEAST_FIRST * len(split)}
        articles = self.usual & stops
        self.n = Counter(word for each in spoken for word in each)
        self.pairs = Counter(pair for each in spoken for pair in pairwise(each))
        before, behind, held, self.follows, self.acts = (Counter[str]() for _ in range(5))
        for (word, after), n in self.pairs.items():
            before[word] += n * (after in articles)
            behind[after] += n * (word in articles)
            self.acts[word] += n * (after.endswith("ing") or self._is_third(after))
        # verbs and prepositions, of which lists of keywords have few
        self.verbs = {word for word, n in self.n.items() if before[word] >= max(2, 0.2 * n)}
        for (word, after), n in self.pairs.items():
            self.follows[word] += n * (after in articles or (after not in stops and after not in self.verbs))
        # numerals and the like begin a caption, before a noun and without an article
        self.counts = {
            word
            for word, n in Counter(each[0] for each in spoken).items()
            if n >= max(2, 0.25 * self.n[word])
            and self.follows[word] - before[word] >= 0.8 * self.n[word]
            and behind[word] <= 0.25 * self.n[word]
        }
        for (word, after), n in self.pairs.items():
            held[after] += n * (word in stops or word in self.counts)
        # verbs are seldom behind a function word or a numeral, plurals often
        self.third = {word for word, n in self.n.items() if self._is_third(word) and held[word] <= 0.1 * n}
        self.english = english

    def is_sentence(self, words: Sequence[str]) -> bool:
        """Whether words without a function word go together, begin like a caption, or hold a verb as used elsewhere."""
        if not self.english:
            return any(word in self.verbs or word in self.usual for word in words)
        if words[0] in self.counts or not self.third.isdisjoint(words[1:]):
            return True
        seen = sum(self.pairs[pair] >= FEWEST_SEEN for pair in pairwise(words))
        return seen >= LEAST_TOGETHER * (len(words) - 1) or any(
            self._is_verb(word, here, after)
            for word, here, after in zip(words[:-1], words[1:], [*words[2:], ""], strict=True)
        )

    def _is_verb(self, word: str, here: str, after: str) -> bool:
        """Whether ``here`` is what ``word`` does: "dog chasing cats", "dog chases cats", "dogs chase cats"."""
        doing = word.endswith("ing")
        subject = self.n[word] < FEWEST_SEEN or self.acts[word] >= LEAST_ACTING * self.n[word]
        if not (subject or doing or word in self.verbs):
            return False
        # "running" is seldom followed by a noun, "chasing" often
        usual = not after or self.n[here] < FEWEST_SEEN or self.pairs[here, after] > 0
        usual = usual or self.follows[here] >= LEAST_FOLLOWED * self.n[here]
        if usual and (here in self.verbs or (here.endswith("ing") and not doing)):
            return True
        if doing:
            return False
        if word.endswith("s") or word in ("people", "men", "women", "children"):
            return bool((self.n[f"{here}s"] or self.n[f"{here}es"]) and self._acted(here))
        new = here.endswith("s") and self.n[here] < FEWEST_SEEN <= self.n[word]
        return new or self._is_third(here)

    def _is_third(self, word: str) -> bool:
        """Whether a word is a verb of the third person, such as "runs"."""
        if not word.endswith("s") or word.endswith("ss"):
            return False
        return self._acted(word[:-1]) or (word.endswith("es") and self._acted(word[:-2]))

    def _acted(self, verb: str) -> bool:
        return any(self.n[f"{stem}ing"] for stem in (verb, verb[:-1], verb + verb[-1:]))


def _is_list(text: str, words: Sequence[str], stops: frozenset[str], usage: _Usage) -> bool:
    """Whether a text is a list of short items, or bare words that are no sentence."""
    items = [each for each in _SEPARATOR.split(text.strip(" .,;#|")) if each.strip()]
    lengths: list[float] = [len(re.findall(r"\w+", each)) for each in items]
    function = sum(word in stops for word in words)
    if script_of(text) != LATIN and items:
        lengths = [max(length, len(each) / 4) for length, each in zip(lengths, items, strict=True)]
    if len(re.findall(r"#\w", text)) >= LEAST_ITEMS - 1 or re.fullmatch(r"\s*\w+(?:-\w+){3,}\s*", text):
        return True
    if len(items) >= LEAST_ITEMS and np.mean(lengths) <= 2.5 and function <= len(items) / 5:
        return True
    bare = len(words) >= LEAST_BARE + (not usage.english) and not function
    return bare and not text.rstrip().endswith(".") and not usage.is_sentence(words)


def cut_at_a_length(texts: Sequence[str], plain: Sequence[str]) -> BoolArray:
    """Captions that end at a length at which suspiciously many end, in a word that seldom ends one.

    Lengths are counted in letters, and in words. A cut word occurs nowhere else, or is one that goes on elsewhere.
    """
    split = [each.split() for each in plain]
    # a caption that many pictures have is no cut
    unique = ~pd.Series(plain).duplicated().to_numpy()
    is_open = np.array([text.rstrip()[-1:].isalnum() for text in texts], bool) & unique
    is_cut = np.zeros(len(texts), bool)
    for lengths in (np.array([len(text.strip()) for text in texts]), np.array([len(each) for each in split])):
        counts = np.bincount(lengths[unique], minlength=1).astype(float)
        opened = np.bincount(lengths[is_open], minlength=len(counts))
        for length in range(1, len(counts)):
            near = np.r_[counts[max(0, length - 3) : length], counts[length + 1 : length + 4]]
            usual = float(np.median(near)) if len(near) else 0.0
            # many more than at lengths nearby, and most of the excess ends in the middle
            if counts[length] > 2 * usual + 5 and opened[length] >= LEAST_OF_EXCESS * (
                counts[length] - usual
            ):
                rows = np.flatnonzero((lengths == length) & is_open)
                torn = rows[_torn(split, lengths == length, rows)]
                if len(torn) >= max(5, LEAST_OF_EXCESS * (counts[length] - usual)):
                    is_cut[torn] = True
    return is_cut


def _torn(split: Sequence[Sequence[str]], among: BoolArray, rows: NDArray[np.intp]) -> BoolArray:
    """Whether the last word of each row is one that goes on in the other captions, or the beginning of another word."""
    every, last = Counter[str](), Counter[str]()
    for each, inside in zip(split, among.tolist(), strict=True):
        if each and not inside:
            every.update(set(each))
            last[each[-1]] += 1
    beginnings = {word[:size] for word in every for size in range(1, len(word))}
    words = [split[row][-1] if split[row] else "" for row in rows.tolist()]
    return np.array(
        [
            last[word] <= SELDOM * every[word]
            if every[word] >= FEWEST_ELSEWHERE
            else word in beginnings or len(word) < 3
            for word in words
        ],
        bool,
    )
