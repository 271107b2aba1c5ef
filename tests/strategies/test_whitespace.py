import pytest
import tiny
import torch
from torch import Tensor

from byteseam.strategies import Whitespace
from byteseam.strategies.whitespace import is_space_like, is_white_space


def marks(rule: str, *documents: bytes) -> str:
    return tiny.marks(Whitespace(rule=rule), *documents)


@pytest.mark.parametrize(
    ("text", "whitespace", "spacebyte"),
    [
        (b"to be", "M..|..", "M..|.."),
        (b"a, b", "M..|.", "M.|.."),  # the comma is space-like, so the space after it is the second of a run
        (b"a\r\n\tb", "M.|||.", "M.|..."),
        (b" a", "M|.", "M|."),  # the mark is not space-like
        (b"x=1", "M...", "M.|."),
        (b"\x0b\x0c\x1c", "M||.", "M|.."),
        (b"", "M", "M"),
    ],
)
def test_worked_by_hand(text, whitespace, spacebyte):
    assert marks("whitespace", text) == whitespace
    assert marks("spacebyte", text) == spacebyte


def test_utf8_continuation_bytes_are_not_space_like():
    # Lead bytes are, as in SpaceByte: a token ends after the first byte of a character.
    assert marks("spacebyte", "é€".encode()) == "M|.|.."
    assert marks("whitespace", "é€".encode()) == "M....."
    assert marks("spacebyte", b"\x80\xbf") == "M.."
    assert marks("spacebyte", b"\xff\xfe") == "M|."


def test_documents_know_nothing_of_each_other():
    # A document that ends with a space does not make the next one's first space the second of a run.
    assert marks("spacebyte", b"a ", b" b") == marks("spacebyte", b"a ") + marks("spacebyte", b" b") == "M.|M|."


def classified(rule) -> set[int]:
    found: Tensor = rule(torch.arange(257)[None])[0]
    return set(found.nonzero()[:, 0].tolist())


def test_the_classes_of_all_bytes():
    assert classified(is_white_space) == set(b"\t\n\x0b\x0c\r ")
    letters_and_digits = {each for each in range(128) if chr(each).isalnum()}
    assert classified(is_space_like) == set(range(256)) - letters_and_digits - set(range(0x80, 0xC0))
