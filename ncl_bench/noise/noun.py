"""Noise of a shared noun: a caption takes the image of another one that names the same thing (docs/protocol.md).

LEMoN calls this noise ``noun`` and takes nouns from a tagger. A tagger needs a model, and another version of it draws
other noise. So nouns are found here by the words around them, in the captions themselves.
"""

import re
from collections import Counter
from collections.abc import Sequence

import numpy as np

from ncl_bench.errors import NoiseError
from ncl_bench.noise.unit import Task, Unit, choose
from ncl_bench.npy import Int64Array

# the word lists and numbers are frozen by the protocol: others would find other nouns, and draw another noise
_DETERMINERS = (
    "a an another eight five four her his its many nine our several seven six some ten that the their these this those "
    "three two"
)
_FOLLOWERS = (
    "above across against along are around as at before behind below beside between by down during for from has have "
    "in inside into is near next of off on onto outside over that through to toward towards under up was were which "
    "while who with ."
)
_NO_NOUNS = "all and both each few he it one or other others she someone something them there they what"
DETERMINERS = frozenset(_DETERMINERS.split())
"""English words that begin a noun phrase."""
FOLLOWERS = frozenset(_FOLLOWERS.split())
"""English words that end a noun phrase, and the full stop."""
NO_NOUNS = DETERMINERS | FOLLOWERS | frozenset(_NO_NOUNS.split())
LEAST_COUNT, ONE_OF = 3, 50
"""A noun stands in such a place this often, and in one of so many of its occurrences."""
_TOKEN = re.compile(r"[^\W_]+|[^\w\s]")


def find_nouns(captions: Sequence[str]) -> list[frozenset[str]]:
    """Find the nouns of every caption.

    A noun is a word that stands, at least 3 times and in at least 1 of 50 of its occurrences, between a determiner and
    a word that ends a noun phrase: ``a dog on``, ``the water .``. Only English captions have such words.

    Args:
        captions: texts of a whole split.

    Returns:
        The nouns of each caption, in lower case; plurals are words of their own.
    """
    tokens = [_TOKEN.findall(caption.lower()) for caption in captions]
    count = Counter(token for each in tokens for token in each)
    framed = Counter(
        word
        for each in tokens
        # a caption's end is the end of a phrase, with or without a full stop
        for before, word, after in zip(each, each[1:], [*each[2:], "."], strict=False)
        if before in DETERMINERS and after in FOLLOWERS
    )
    nouns = {
        word
        for word, n in framed.items()
        if n >= LEAST_COUNT and ONE_OF * n >= count[word] and word not in NO_NOUNS
    }
    return [frozenset(nouns.intersection(each)) for each in tokens]


def pair_by_noun(
    drawn: Int64Array,
    captions: Sequence[str],
    caption_to_image: Int64Array,
    random: np.random.RandomState,
) -> Int64Array:
    """Give drawn captions the image of another caption with a noun in common.

    Args:
        drawn: int64 ``(m,)``, the captions to move, in the order of the draw.
        captions: texts of the whole split.
        caption_to_image: int64 ``(n_captions,)``, the clean pairing, which ascends.
        random: chooses, for each drawn caption, one of its nouns and then a caption of another image with this noun.

    Returns:
        A new int64 ``(n_captions,)`` array. An image may be taken several times, or lose all its captions. A caption
        whose nouns no other image's caption has keeps its image.

    Raises:
        NoiseError: more than one in ten drawn captions keep their image.
    """
    nouns = find_nouns(captions)
    having: dict[str, list[int]] = {}
    for image, own in zip(caption_to_image.tolist(), nouns, strict=True):
        for noun in own:
            having.setdefault(noun, []).append(image)
    moved, kept = caption_to_image.copy(), 0
    images = {noun: np.array(of_captions, np.int64) for noun, of_captions in having.items()}
    for caption in drawn.tolist():
        image = int(caption_to_image[caption])
        choices = []
        for noun in sorted(nouns[caption]):  # the order of a set differs between processes
            # captions of one image stand together
            first, last = np.searchsorted(images[noun], [image, image + 1]).tolist()
            if others := len(images[noun]) - (last - first):
                choices.append((noun, others, first, last))
        if not choices:
            kept += 1
            continue
        # int64 by name: the default is another type on Windows, and draws other numbers
        noun, others, first, last = choices[random.randint(len(choices), dtype=np.int64)]
        one = int(random.randint(others, dtype=np.int64))
        moved[caption] = images[noun][one if one < first else one + last - first]
    if kept > len(drawn) // 10:
        raise NoiseError(
            f"{kept:,} of {len(drawn):,} drawn captions have no noun in common with another image's caption; expected "
            "at most one in ten, as in English sentences; choose the unit caption or similar"
        )
    return moved


def draw(task: Task) -> Int64Array:
    """Give ``int(ratio * n_captions)`` captions, those of the unit ``caption``, the image of a common noun."""
    chosen = choose(len(task.clean), task.ratio, task.random)
    return pair_by_noun(chosen, task.captions, task.clean, task.random)


NOUN = Unit("noun", "captions moved to a common noun", draw, reads_captions=True, exchanges=False)
