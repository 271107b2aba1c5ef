"""What bytes look like: white space, UTF-8 characters, a safe visible form, and streaming decoding.

Text comes from strangers. `visible` therefore shows every byte, keeps their order, and can be read back without doubt:
what could hide, reorder or restyle its surroundings is spelled out between ``OPEN`` and ``CLOSE``, bytes as two
hexadecimal digits, characters as ``U+...``.
"""

import codecs
import unicodedata
from collections import Counter
from functools import lru_cache
from typing import Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

SPACE, NEWLINE, TAB, OPEN, CLOSE, BAR = "\u00b7", "\u21b5", "\u2192", "\u27e8", "\u27e9", "\u2502"
"""How a space, a line feed and a tab are shown; the brackets of escapes; the bar that may stand between tokens."""

Kind = Literal["plain", "blank", "break", "escape"]
"""``plain``: itself; ``blank``: a space or tab; ``break``: a line feed; ``escape``: spelled out."""

_MARKS_PER_LETTER = 3  # Hindi, Thai, Vietnamese and Hebrew need no more; a taller pile is an attack on the display
_SPELLED_OUT = frozenset(
    # What `visible` itself uses, so that it stays readable back, and letters that show nothing at all.
    [SPACE, NEWLINE, TAB, OPEN, CLOSE, BAR, "\u2800", "\u3164", "\uffa0", "\u034f", "\u17b4", "\u17b5"]
    + [chr(code) for code in (*range(0x115F, 0x1200), *range(0xD7B0, 0xD800))]
    + [chr(code) for code in (*range(0x180B, 0x1810), *range(0xFE00, 0xFE10), *range(0xE0100, 0xE01F0))]
)


class Glyph(NamedTuple):
    """One shown piece: a character with its combining marks, or one byte or character spelled out."""

    text: str
    """What to print; no control characters, no line feed."""
    kind: Kind
    cells: int
    """Columns that it takes in a terminal."""
    size: int = 1
    """Bytes that it stands for."""


def is_whitespace(data: NDArray[np.uint8]) -> NDArray[np.bool_]:
    """[n] -> [n], True at ASCII white space: tab, line feed, vertical tab, form feed, carriage return, space."""
    return (data == 32) | ((data >= 9) & (data <= 13))


def utf8_character_ends(data: NDArray[np.uint8]) -> NDArray[np.bool_]:
    """[n] -> [n], True where a character ends; a byte that is no part of valid UTF-8 is a character of its own.

    A boundary where this is False falls inside a character.
    """
    following = np.zeros((3, len(data)), np.uint8)  # the next three bytes; 0, which continues nothing, past the end
    for distance in (1, 2, 3):
        following[distance - 1, : max(len(data) - distance, 0)] = data[distance:]
    continues = (following & 0xC0) == 0x80
    second = following[0]
    two = (data >= 0xC2) & (data <= 0xDF) & continues[0]
    three = (data >= 0xE0) & (data <= 0xEF) & continues[0] & continues[1]
    three &= ((data != 0xE0) | (second >= 0xA0)) & ((data != 0xED) | (second < 0xA0))  # overlong; surrogates
    four = (data >= 0xF0) & (data <= 0xF4) & continues[0] & continues[1] & continues[2]
    four &= ((data != 0xF0) | (second >= 0x90)) & ((data != 0xF4) | (second < 0x90))  # overlong; above U+10FFFF
    inside = two | three | four
    inside[1:] |= (three | four)[:-1]
    inside[2:] |= four[:-2]
    return ~inside


def glyphs(data: bytes) -> list[Glyph]:
    """The pieces to show for ``data``, in order; every byte belongs to exactly one of them."""
    shown: list[Glyph] = []
    room = 0  # combining marks that the last piece may still take
    for character in data.decode("utf-8", "surrogateescape"):
        glyph, role = _glyph(character)
        if role == "mark":
            if room:
                room -= 1
                last = shown[-1]
                size = last.size + glyph.size
                shown[-1] = Glyph(last.text + character, "plain", last.cells + glyph.cells, size)
                continue
            glyph = _spelled(f"U+{ord(character):04X}", glyph.size)
        room = _MARKS_PER_LETTER if role == "letter" else 0
        shown.append(glyph)
    return shown


def visible(data: bytes) -> str:
    r"""``data`` as text that shows every byte and can be read back; a line feed is shown and then taken.

    >>> visible(b"a b\x00\xff")
    'a·b⟨00⟩⟨ff⟩'
    """
    return "".join(glyph.text + "\n" if glyph.kind == "break" else glyph.text for glyph in glyphs(data))


def visible_label(text: str) -> str:
    """A name (of a file, of a text) made safe to show: as `visible`, with spaces left as they are."""
    return visible(text.encode("utf-8", "surrogatepass")).replace(SPACE, " ").replace("\n", "")


def direction(data: bytes) -> Literal["ltr", "rtl"]:
    """``rtl`` when most letters are written from right to left."""
    if data.isascii():
        return "ltr"
    counts: Counter[str] = Counter()
    for character, count in Counter(data.decode("utf-8", "ignore")).items():
        counts[unicodedata.bidirectional(character)] += count
    return "rtl" if counts["R"] + counts["AL"] > counts["L"] else "ltr"


class Utf8Stream:
    """Bytes in as they come, whole characters out: never half a character, never more than three bytes held back.

    All that is given out equals ``bytes.decode("utf-8", "replace")`` of all that went in.
    """

    def __init__(self) -> None:
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")

    def feed(self, data: bytes) -> str:
        """The text that ``data`` completes; U+FFFD stands for what can no longer become a character."""
        return self._decoder.decode(data)

    def flush(self) -> str:
        """The end: U+FFFD for an unfinished character, if any. The stream is then as new."""
        rest = self._decoder.decode(b"", final=True)
        self._decoder.reset()
        return rest


def _spelled(name: str, size: int = 1) -> Glyph:
    return Glyph(f"{OPEN}{name}{CLOSE}", "escape", len(name) + 2, size)


@lru_cache(maxsize=8192)
def _glyph(character: str) -> tuple[Glyph, Literal["letter", "mark", "other"]]:
    """How one character is shown, and whether it carries combining marks or is one."""
    code, category = ord(character), unicodedata.category(character)
    if character == " ":
        return Glyph(SPACE, "blank", 1), "other"
    if character == "\n":
        return Glyph(NEWLINE, "break", 1), "other"
    if character == "\t":
        return Glyph(TAB, "blank", 1), "other"
    if code < 0x20 or code == 0x7F:
        return _spelled(f"{code:02x}"), "other"
    if 0xDC80 <= code <= 0xDCFF:  # how "surrogateescape" hands over an invalid byte
        return _spelled(f"{code - 0xDC00:02x}"), "other"
    size = len(character.encode())
    if category in ("Mn", "Mc") and character not in _SPELLED_OUT:
        return Glyph(character, "plain", 0 if category == "Mn" else 1, size), "mark"
    if category[0] in "CZ" or category == "Me" or character in _SPELLED_OUT:
        return _spelled(f"U+{code:04X}", size), "other"
    cells = 2 if unicodedata.east_asian_width(character) in "WF" else 1
    return Glyph(character, "plain", cells, size), "letter" if category[0] == "L" else "other"
