"""Boundaries by a regular expression on words, numbers and punctuation, read causally."""

import unicodedata
from functools import cache
from typing import ClassVar

import numpy as np
import torch
from jaxtyping import Float, Int
from numpy.typing import NDArray
from pydantic.dataclasses import dataclass
from torch import Tensor, nn

from byteseam.model.unet import document_starts
from byteseam.strategies.base import EXACT, Pooled, fixed_decision
from byteseam.types import DOCUMENT_MARK, Batch, Decision, Encoded

INSIDE, LETTER, DIGIT, SPACE, LINE, PUNCTUATION, START = range(7)
"""Kinds of bytes: inside a character that goes on, or the last byte of a character of such a kind; the mark."""

MOST_DIGITS = 3
"""Digits of a number that go into one token."""


@dataclass(frozen=True, kw_only=True, config=EXACT)
class Regex(Pooled):
    r"""AU-Net's rule for words, at the byte where it becomes known. Learns nothing.

    A boundary where punctuation, a number or line ends begin, at every fourth digit, and at the white space that ends
    a word: ``(?<![^\w\s])[^\w\s] | (?<!\d)\d | (?<=\d{3})\d | (?<![\r\n])[\r\n] | (?<=\w)\s`` on characters, each
    on the character's last byte, where one knows which it is. AU-Net's other rules look ahead and are left out; so is
    its fixed capacity, which drops boundaries. Bytes that are no UTF-8 count as letters.
    """

    name: ClassVar[str] = "regex"
    source: ClassVar[str] = "AU-Net (Videau et al. 2025, arXiv 2506.14761)"
    by_rule: ClassVar[bool] = True
    steered: ClassVar[bool] = False

    def decide(self, policy: nn.Module, encoded: Encoded, batch: Batch, uniforms: Float[Tensor, "B L"]) -> Decision:
        """Looks at the character that ends here and the one before; certain."""
        kinds = character_kinds(batch.byte_ids.cpu().numpy())
        boundary = torch.from_numpy(word_boundaries(kinds)).to(batch.byte_ids.device)
        return fixed_decision(boundary, document_starts(batch.document_ids), batch.mask)


def word_boundaries(kinds: NDArray[np.int8]) -> NDArray[np.bool_]:
    """Where the rule has a boundary; kinds [B, L] from `character_kinds`."""
    index = np.arange(kinds.shape[1])
    ends = kinds != INSIDE
    # The kind of the character before the one that ends here: of the latest end strictly before.
    latest = np.maximum.accumulate(np.where(ends, index, -1), axis=1)
    earlier = np.concatenate([np.full_like(latest[:, :1], -1), latest[:, :-1]], axis=1)
    before = np.where(earlier >= 0, np.take_along_axis(kinds, np.maximum(earlier, 0), axis=1), START)
    word = (before == LETTER) | (before == DIGIT)
    begins = np.isin(kinds, (DIGIT, LINE, PUNCTUATION)) & (before != kinds)
    # A number's digits are bytes of their own, so that they are counted by places.
    number = np.maximum.accumulate(np.where((kinds == DIGIT) & (before != DIGIT), index, -1), axis=1)
    fourth = (kinds == DIGIT) & (before == DIGIT) & ((index - number) % MOST_DIGITS == 0)
    return begins | fourth | (np.isin(kinds, (SPACE, LINE)) & word)


def character_kinds(byte_ids: Int[NDArray[np.int64], "B L"]) -> NDArray[np.int8]:
    """int8 [B, L]: the kind of the character that ends at each byte, judged by the bytes up to it alone."""
    ids = np.asarray(byte_ids)

    def back(places: int) -> NDArray[np.int64]:
        moved = np.full_like(ids, DOCUMENT_MARK)
        moved[:, places:] = ids[:, : ids.shape[1] - places] if places < ids.shape[1] else ids[:, :0]
        return moved

    one, two, three = back(1), back(2), back(3)

    def trails(bytes_: NDArray[np.int64]) -> NDArray[np.bool_]:
        return (bytes_ >= 0x80) & (bytes_ <= 0xBF)

    def leads(bytes_: NDArray[np.int64], low: int, high: int) -> NDArray[np.bool_]:
        return (bytes_ >= low) & (bytes_ <= high)

    here = trails(ids)
    pair = here & leads(one, 0xC2, 0xDF)
    triple = here & trails(one) & leads(two, 0xE0, 0xEF)
    quadruple = here & trails(one) & trails(two) & leads(three, 0xF0, 0xF4)
    unfinished = (
        leads(ids, 0xC2, 0xF4) | (here & leads(one, 0xE0, 0xF4)) | (here & trails(one) & leads(two, 0xF0, 0xF4))
    )
    kinds = np.full(ids.shape, LETTER, np.int8)
    table = _kinds_of_characters()
    kinds = np.where(ids < 0x80, table[np.clip(ids, 0, 0x7F)], kinds)
    kinds = np.where(pair, table[((one & 0x1F) << 6) | (ids & 0x3F)], kinds)
    kinds = np.where(triple, table[((two & 0x0F) << 12) | ((one & 0x3F) << 6) | (ids & 0x3F)], kinds)
    kinds = np.where(quadruple, LETTER, kinds)  # emoji and rare ideographs
    kinds = np.where(unfinished, INSIDE, kinds)
    return np.where(ids == DOCUMENT_MARK, START, kinds).astype(np.int8)


@cache
def _kinds_of_characters() -> NDArray[np.int8]:
    """The kind of every character of the basic plane, by its Unicode category."""
    table = np.full(0x10000, PUNCTUATION, np.int8)
    for number in range(0x10000):
        category = unicodedata.category(chr(number))
        if category[0] in "LMC" or chr(number) == "_":
            table[number] = LETTER
        elif category[0] == "N":
            # Digits beyond ASCII have several bytes; they are taken as letters, which the count of three leaves alone.
            table[number] = DIGIT if number < 0x80 else LETTER
        elif category[0] == "Z":
            table[number] = SPACE
    for character in "\t\v\f":
        table[ord(character)] = SPACE
    for character in "\n\r":
        table[ord(character)] = LINE
    return table
