"""Captions of no picture are named by kind, in the language of the set; captions and names of pictures are not."""

import numpy as np
import pytest

from baselines.audit.junk import CODE, CREDIT, KEYWORDS, LOOP, PRODUCT, REFUSAL, TEMPLATE
from baselines.audit.reasons import BOILERPLATE, CUT_OFF, REPEATED, REPEATED_PICTURE, STOP_WORDS, reasons_of
from ncl_bench.data.load import load_dataset

WHO = (
    "a man",
    "two women",
    "a small girl",
    "the boy",
    "an old dog",
    "three children",
    "a group of people",
    "a player",
)
DOES = (
    "runs",
    "is sitting",
    "plays with a ball",
    "looks up at the sky",
    "jumps",
    "holds a red cup",
    "is waiting",
)
WHERE = ("in the park", "on a beach", "near the water", "at night", "over a fence", "by the side of a road")
RIGHT = [f"{who} {does} {where}" for who in WHO for does in DOES for where in WHERE]
N = len(RIGHT)
IMAGES = np.random.default_rng(0).standard_normal((N, 20))


def reason_of(caption, others=RIGHT):
    return str(reasons_of([*others[:-1], caption], np.arange(len(others)), IMAGES[: len(others)])[-1])


@pytest.mark.parametrize(
    ("kind", "captions"),
    {
        REFUSAL: (
            "I'm sorry, I can't describe people.",
            "As an AI model I cannot see this.",
            "Please upload an image.",
            "The picture could not be loaded.",
            "No photo description available.",
            "Nothing was attached to your message.",
            "A caption would be a guess.",
        ),
        BOILERPLATE: (
            "Click here to read the story",
            "Add to cart",
            "Please enable JavaScript",
            "Image may contain: dog",
            "Read more »",
            "Home > Shop > Dogs",
            "Share on Facebook",
            "In den Warenkorb",
            "Lire la suite",
            "Leer más",
            "Läs mer",
            "Czytaj dalej",
            "Подробнее",
            "続きを読む",
        ),
        PRODUCT: ("Now only $19.99", "SKU: AB-1234-5", "60x40 cm, 2 kg, ref. 4711", "Buy 2 get 1 free"),
        CODE: (
            "for (i = 0; i < n; i++) { f(i); }",
            "import numpy as np",
            "SELECT id FROM users WHERE age > 3",
        ),
        CREDIT: ("Photo by Anna Kern", "12 March 2019", "© 2020 Reuters", "Posted on 12.03.2019, 10:45"),
        KEYWORDS: (
            "dog, grass, park, animal, summer",
            "#dog #park #fun #summer",
            "dog grass park nature animal summer pet",
            "dog beach waiting fence park",
        ),
        TEMPLATE: (
            "a photo of {object}",
            "[INSERT CAPTION]",
            "Describe the image in one sentence.",
            "a photo of null",
        ),
        LOOP: (
            "a boy runs a boy runs a boy runs",
            "a dog in the sun and the sun and the sun and the sun",
            "a boy runs over a fence runs over a fence runs over a",
            "a boy runs over a fence by the sea a boy runs over a",
            "a small girl looks up at the sky at the sky",
            "a dog in the paparapapapapapapapapa",
        ),
    }.items(),
)
def test_a_kind_is_named(kind, captions):
    assert {caption: reason_of(caption) for caption in captions} == dict.fromkeys(captions, kind)


@pytest.mark.parametrize(
    "caption",
    [
        "a man in a red shirt and a man in a blue shirt",
        "a sign in the window of a shop, near a bus and two cars",
        "a player with the number 12 on the shirt",
        "a photo of a man by the sea",
        "a boy, a girl, a dog and a cat sit on a wall",
        "a bowl of edamame on a table",
        "log in the water by the road",
        "sign in front of a shop",
        "a girl looks at Facebook",
        "one dog is black and one dog is brown",
        "people sign up to throw a log in to the river",
        "the old dog bites the rope the small girl is holding on to",
    ],
)
def test_a_caption_is_not(caption):
    assert reason_of(caption) == ""


SAID = [
    f"{who} {does} {where}"
    for who in ("a man", "two women", "three boys", "a dog")
    for does in ("wearing a cap", "wears a cap", "running", "runs", "holding a red rope")
    for where in WHERE
]


@pytest.mark.parametrize(
    ("caption", "kind"),
    {
        "some happy women wear bright clothes": "",
        "young man wears bright sunny clothes": "",
        "young man holding bright flags": "",
        "small dog running park ball rope": KEYWORDS,
    }.items(),
)
def test_a_verb_that_is_used_as_elsewhere_makes_a_sentence(caption, kind):
    assert reason_of(caption, SAID) == kind


REFUSALS = {
    "de": "Tut mir leid, ich kann das Bild nicht sehen.",
    "fr": "Je ne peux pas décrire cette image.",
    "es": "Lo siento, no puedo ver la imagen.",
    "it": "Mi dispiace, non posso descrivere la foto.",
    "pt": "Desculpe, não consigo ver a imagem.",
    "nl": "Het spijt me, ik kan de foto niet zien.",
    "sv": "Tyvärr kan jag inte se bilden.",
    "da": "Jeg kan desværre ikke se billedet.",
    "nb": "Beklager, jeg kan ikke se bildet.",
    "fi": "Valitettavasti en voi nähdä kuvaa.",
    "pl": "Przepraszam, nie mogę opisać zdjęcia.",
    "cs": "Omlouvám se, obrázek nevidím.",
    "hu": "Sajnálom, nem látom a képet.",
    "ro": "Îmi pare rău, nu pot vedea imaginea.",
    "tr": "Üzgünüm, görseli göremiyorum.",
    "id": "Maaf, saya tidak bisa melihat gambar.",
}


@pytest.mark.parametrize("language", sorted(set(STOP_WORDS) - {"en"}))
def test_refusals_are_known_in_the_language_of_the_set(language):
    stops = STOP_WORDS[language].split()
    random = np.random.default_rng(0)
    own = [
        " ".join([f"w{chr(97 + k % 26)}x", *random.permutation(stops)[:4], f"v{k % 7}b"]) for k in range(60)
    ]
    assert reason_of(REFUSALS[language], own) == REFUSAL


@pytest.mark.parametrize("dataset", ["pictograms", "digits"])
def test_names_and_templates_of_the_embedded_datasets_are_no_junk(dataset):
    captions = list(map(str, load_dataset(dataset, split="train").captions))[:2_000]
    found = reasons_of(
        captions, np.arange(len(captions)), np.random.default_rng(0).random((len(captions), 4))
    )
    assert {*found} & {REFUSAL, PRODUCT, CODE, CREDIT, KEYWORDS, TEMPLATE, LOOP, CUT_OFF} == set()


@pytest.mark.parametrize("cut", [lambda text: text[:16], lambda text: " ".join(text.split()[:3])])
def test_many_captions_that_end_at_one_length_are_cut(cut):
    random = np.random.default_rng(0)
    endings = ("slowly", "with some friends", "during a warm afternoon", "again", "while people watch")
    right = [f"{text} {endings[row % 5]}" for row, text in enumerate(RIGHT)]
    rows = random.permutation(N)[:60]
    given = [cut(text) if row in set(rows.tolist()) else text for row, text in enumerate(right)]
    found = reasons_of(given, np.arange(N), IMAGES)
    assert (found[rows] == CUT_OFF).sum() >= 30
    assert (np.delete(found, rows) == "").all()


def test_seven_pictures_of_one_caption_and_eight_captions_of_one_picture():
    pasted, image_of = list(RIGHT), np.arange(N)
    pasted[:7] = ["a thing on a table in a room"] * 7
    image_of[20:28] = 20
    found = reasons_of(pasted, image_of, IMAGES)
    assert (found[:7] == REPEATED).all()
    assert (found[20:28] == REPEATED_PICTURE).all()
    assert (np.delete(found, [*range(7), *range(20, 28)]) == "").all()
