"""Held-out text made harder: character noise, or text of another kind. The same seed gives the same noise."""

import re
from collections.abc import Callable

import numpy as np

from byteseam.errors import UserError
from byteseam.text import utf8_character_ends

SHARE = {"case": 0.1, "drop": 0.02, "double": 0.02, "swap": 0.02}
"""Share of the characters that a noise changes; of the letters, for ``case``."""

NOISES = (*SHARE, "nospace")
"""``case`` flips ASCII letters, ``drop`` and ``double`` single characters, ``swap`` neighbours, ``nospace`` takes all
ASCII white space away."""


def parse_probes(words: list[str]) -> tuple[str, ...]:
    """Names as they stand in tables: ``noise`` is all of `NOISES`, ``text=SOURCE`` another source's held-out text.

    Raises:
        UserError: for any other.
    """
    probes: list[str] = []
    for word in (part for text in words for part in text.split(",")):
        if word == "noise":
            probes += NOISES
        elif word in NOISES or re.fullmatch(r"text=.+", word):
            probes.append(word)
        else:
            raise UserError(f"--probe {word!r} is none of {', '.join(NOISES)}, noise, text=SOURCE")
    return tuple(dict.fromkeys(probes))


def noisy(data: bytes, noise: str, seed: int) -> bytes:
    r"""A document with noise. UTF-8 characters are moved whole; a byte that is none counts as a character.

    >>> noisy(b"a b\nc", "nospace", 0)
    b'abc'
    """
    characters = split_characters(data)
    random = np.random.default_rng(seed)
    return b"".join(_CHANGES[noise](characters, random.random(len(characters)) < SHARE.get(noise, 1.0)))


def split_characters(data: bytes) -> list[bytes]:
    """The UTF-8 characters of some bytes, in order."""
    ends = (np.flatnonzero(utf8_character_ends(np.frombuffer(data, np.uint8))) + 1).tolist()
    return [data[start:end] for start, end in zip([0, *ends], ends, strict=False)]


_Change = Callable[[list[bytes], np.ndarray], list[bytes]]


def _swapped(characters: list[bytes], where: np.ndarray) -> list[bytes]:
    out = list(characters)
    for place in np.flatnonzero(where[:-1]).tolist():
        out[place], out[place + 1] = out[place + 1], out[place]
    return out


def _each(change: Callable[[bytes], bytes]) -> _Change:
    return lambda characters, where: [
        change(each) if here else each for each, here in zip(characters, where.tolist(), strict=True)
    ]


_CHANGES: dict[str, _Change] = {
    "case": _each(bytes.swapcase),
    "drop": _each(lambda character: b""),
    "double": _each(lambda character: 2 * character),
    "swap": _swapped,
    "nospace": _each(lambda character: b"" if character in (b" ", b"\t", b"\n", b"\r", b"\v", b"\f") else character),
}
