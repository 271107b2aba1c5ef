"""The rule for words against Python's own regular expressions, read prefix by prefix."""

import random
import re

import numpy as np
import pytest
from tiny import marks

from byteseam.strategies import Regex
from byteseam.strategies.regex import INSIDE, LETTER, character_kinds

RULE = re.compile(r"(?<![^\w\s])[^\w\s]|(?<!\d)\d|(?<=\d)\d|(?<![\r\n])[\r\n]|(?<=\w)\s", re.ASCII)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("to be", "M..|.."),
        ("a  b", "M.|.."),  # the white space that ends a word, not the next
        ("Hi!! ok", "M..|...."),  # punctuation begins; white space after it ends no word
        ("x=12345", "M.||..|."),  # a number begins, and goes on with its fourth digit
        ("a\n\nb", "M.|.."),
        (".\n", "M||"),
        ("_a1 ", "M..||"),
    ],
)
def test_by_hand(text, expected):
    assert marks(Regex(), text.encode()) == expected


def expected_by_the_pattern(text: str) -> str:
    """Character by character what the pattern says, given the text up to there; digits are counted in a plain loop."""
    out, run = "M", 0
    for place, character in enumerate(text):
        run = run + 1 if character.isdigit() else 0
        hit = RULE.match(text[: place + 1], place) is not None
        if character.isdigit():
            hit = run % 3 == 1
        out += "|" if hit else "."
    return out


@pytest.mark.parametrize("seed", range(20))
def test_random_text_as_the_pattern_says(seed):
    draw = random.Random(seed)
    text = "".join(draw.choices("aZ_09 \t\n\r.,!-(", k=60))
    assert marks(Regex(), text.encode()) == expected_by_the_pattern(text)


def test_beyond_ascii_a_boundary_is_on_a_characters_last_byte():
    # The full stop and the comma are punctuation of three bytes each.
    assert marks(Regex(), "天地，人。".encode()) == "M......" + "..|" + "..." + "..|"
    assert marks(Regex(), "é b".encode()) == "M..|."
    assert marks(Regex(), "a\u00a0b".encode()) == "M..|.", "a no-break space is white space"


def test_what_is_no_utf8_counts_as_letters():
    assert marks(Regex(), b"\xff a\x80 \xc0") == "M.|..|."
    kinds = character_kinds(np.array([[0x80, 0xFF, 0xE4, 0xB8, 0x41]]))
    assert kinds.tolist() == [[LETTER, LETTER, INSIDE, INSIDE, LETTER]]


def test_later_bytes_change_nothing():
    text = "Zürich, 2026: 1234567 people — and «more»…\n\nEnd.".encode()
    whole = marks(Regex(), text)
    for size in range(len(text)):
        assert marks(Regex(), text[:size]) == whole[: size + 1]


def test_documents_do_not_see_each_other():
    texts = (b"abc", b" d", b"12", b"34")
    assert marks(Regex(), *texts) == "".join(marks(Regex(), text) for text in texts)
