"""Causes that rules name, and captions about which they say nothing."""

import numpy as np
import pytest

from baselines.audit.reasons import languages, reasons_of

PEOPLE, DEEDS, PLACES = (
    ("a man", "two women", "a small girl", "the boy", "an old dog", "three children"),
    ("runs", "is sitting", "plays with a ball", "looks up", "jumps"),
    ("in the park", "on a beach", "near the water", "at night", "over a fence"),
)
RIGHT = [f"{who} {does} {where}" for who in PEOPLE for does in DEEDS for where in PLACES]
N = len(RIGHT)
IMAGES = np.random.default_rng(0).standard_normal((N, 20))


def reason_of(caption):
    return str(reasons_of([*RIGHT[:-1], caption], np.arange(N), IMAGES)[-1])


def test_right_captions_have_no_reason():
    assert set(reasons_of(RIGHT, np.arange(N), IMAGES)) == {""}


@pytest.mark.parametrize(
    ("caption", "reason"),
    [
        ("image", "boilerplate"),
        ("Photo.", "boilerplate"),
        ("IMG_0123", "boilerplate"),
        ("DSC 0042", "boilerplate"),
        ("dog-in-park.jpeg", "boilerplate"),
        ("12345", "boilerplate"),
        ("https://example.org/1", "boilerplate"),
        ("www.shop.com/item-7", "boilerplate"),
        ("IMG-20200101-WA0001", "boilerplate"),
        ("PXL_20210101_123456", "boilerplate"),
        ("WhatsApp Image 2020-01-07 at 12.00", "boilerplate"),
        ("kein Bild", "boilerplate"),
        ("Foto 3", "boilerplate"),
        ("🐶🌳", "no words"),
        ("&nbsp;", "no words"),
        ("<p></p>", "no words"),
        ("...", "no words"),
        ("ein Hund läuft durch das Gras", "language"),
        ("un chien court dans l'herbe", "language"),
        ("un perro corre por la hierba", "language"),
        ("een man met een hoed", "language"),
        ("собака бежит по траве", "language"),
        ("一只狗在草地上奔跑", "language"),
        ("a group of", "cut off"),
        ("a man and his", "cut off"),
        ("a man walks along…", "cut off"),
        ("a man walks along &hellip;", "cut off"),
        ("A MAN STANDS ON A", "cut off"),
        ("a sign with the letter A", ""),
        ("dogs", ""),
        ("A DOG RUNS IN THE PARK", ""),
        ("&quot;a dog &amp; a cat&quot;", ""),
        ("<p>dogs &lt;l d&gt;</p>", ""),
        ("dogs https://www.example.de/un/la/1.html", ""),
        ("two dogs 😀", ""),
        ("photo of a man at sea", ""),
        ("a man in a sombrero near a taquería", ""),
        ("Die hard fans cheer", ""),
        ("a boy with a hat on", ""),
    ],
)
def test_a_caption_has_the_reason_that_a_person_would_name(caption, reason):
    assert reason_of(caption) == reason


def test_a_pasted_caption_is_repeated_and_a_common_one_is_not():
    pasted = list(RIGHT)
    pasted[10:30] = ["a product for sale with free shipping"] * 20
    pasted[40:44] = ["a dog runs"] * 4
    found = reasons_of(pasted, np.arange(N), IMAGES)
    assert np.flatnonzero(found == "repeated caption").tolist() == list(range(10, 30))
    templates = [f"a {kind} circle" for kind in ("red", "blue", "green")] * (N // 3)
    assert set(reasons_of(templates, np.arange(N), IMAGES)) == {""}


def test_a_pasted_picture_is_repeated_and_one_with_five_captions_is_not():
    image_of = np.arange(N) // 5
    assert set(reasons_of(RIGHT, image_of, IMAGES)) == {""}
    image_of = np.arange(N)
    image_of[20:40] = 20
    found = reasons_of(RIGHT, image_of, IMAGES)
    assert np.flatnonzero(found == "repeated picture").tolist() == list(range(20, 40))


def test_copies_and_near_equal_pictures():
    images = IMAGES.copy()
    images[5] = images[3] + 0.01
    image_of = np.append(np.arange(N), [7, 8])
    found = reasons_of([*RIGHT, RIGHT[7], "a cat on a sofa"], image_of, images)
    assert np.flatnonzero(found == "near-equal pictures").tolist() == [3, 5]
    assert np.flatnonzero(found == "copy").tolist() == [N]


def test_a_set_in_another_language_has_it_as_its_own():
    german = ["ein Hund läuft durch das Gras", "eine Frau sitzt auf der Bank", "zwei Kinder im Park mit Ball"]
    main, each = languages([*german, "a dog runs in the park"])
    assert main == "de"
    assert each == ["", "", "", "en"]


def test_one_common_letter_makes_no_language():
    hungarian = ["egy kutya fut a fűben", "egy nő ül a padon", "a fiú a vízbe ugrik"]
    assert languages(hungarian) == ("hu", ["", "", ""])
    english, spanish = "a dog runs on the grass near a boy", "un perro corre por la hierba"
    assert languages([english, spanish] * 10) == ("en", ["", "es"] * 10)


def test_one_script_has_several_kinds_of_letters():
    captions = ["犬が走る", "いぬがはしる", "ドッグ"] * 20
    main, each = languages(captions)
    assert (main, set(each)) == ("Chinese or Japanese", {""})
    assert languages([*captions, "a dog runs"])[1][-1] == "Latin"
