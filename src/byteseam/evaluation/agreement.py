"""How boundaries agree with white space, with UTF-8, and with a given set: counts that add up over documents.

A boundary "on" byte i ends a token after byte i. A space may end a token or begin the next one, so the boundary just
before it is as good a word boundary as the one on it; both are counted, apart. A word here is a longest run of bytes
that are no white space, with white space after it. By chance alone ``whitespace_boundary_share`` equals the rate, and a
share of boundaries equals the share of such bytes in the text.
"""

from dataclasses import dataclass, fields

import numpy as np
from numpy.typing import NDArray

from byteseam.text import is_whitespace, utf8_character_ends
from byteseam.types import Mean


@dataclass(frozen=True, slots=True)
class Agreement:
    """Shares in [0, 1], each with what it is a share of; they add up over documents."""

    whitespace_boundary_share: Mean
    """White-space bytes that carry a boundary."""
    word_end_share: Mean
    """Words with a boundary on their last byte or on the white-space byte right after it."""
    boundary_whitespace_share: Mean
    """Boundaries that are on a white-space byte."""
    boundary_word_end_share: Mean
    """Boundaries that are on a white-space byte or on the last byte of a word."""
    boundary_inside_character_share: Mean
    """Boundaries that fall inside a UTF-8 character."""

    def __add__(self, other: "Agreement") -> "Agreement":
        return Agreement(*(getattr(self, part.name) + getattr(other, part.name) for part in fields(self)))

    def values(self) -> dict[str, float]:
        """Name -> share; NaN where there was nothing to count."""
        return {part.name: getattr(self, part.name).value for part in fields(self)}


@dataclass(frozen=True, slots=True)
class Match:
    """Boundaries against a gold set; counts that add up over documents."""

    hits: int
    """Boundaries that are in both."""
    found: int
    """Boundaries that were found."""
    gold: int
    """Boundaries of the gold set."""

    def __add__(self, other: "Match") -> "Match":
        return Match(self.hits + other.hits, self.found + other.found, self.gold + other.gold)

    @property
    def precision(self) -> Mean:
        """Share of the found boundaries that are gold."""
        return Mean(float(self.hits), float(self.found))

    @property
    def recall(self) -> Mean:
        """Share of the gold boundaries that were found."""
        return Mean(float(self.hits), float(self.gold))

    @property
    def f1(self) -> Mean:
        """The harmonic mean of precision and recall: twice the hits over all boundaries of both sets."""
        return Mean(2.0 * self.hits, float(self.found + self.gold))


def agreement(data: NDArray[np.uint8], boundary: NDArray[np.bool_]) -> Agreement:
    """The shares for one document: ``data`` [n] bytes, ``boundary`` [n]. Raises ValueError when the shapes differ."""
    _check(data, boundary)
    whitespace = is_whitespace(data)
    word_end = np.zeros(len(data), np.bool_)
    word_end[:-1] = ~whitespace[:-1] & whitespace[1:]
    marked = boundary.copy()
    marked[:-1] |= boundary[1:]
    return Agreement(
        whitespace_boundary_share=_share(boundary, whitespace),
        word_end_share=_share(marked, word_end),
        boundary_whitespace_share=_share(whitespace, boundary),
        boundary_word_end_share=_share(whitespace | word_end, boundary),
        boundary_inside_character_share=_share(~utf8_character_ends(data), boundary),
    )


def match(boundary: NDArray[np.bool_], gold: NDArray[np.bool_]) -> Match:
    """Counts for one document, [n] against [n]. Raises ValueError when the shapes differ."""
    _check(gold, boundary)
    return Match(hits=int((boundary & gold).sum()), found=int(boundary.sum()), gold=int(gold.sum()))


def _share(condition: NDArray[np.bool_], among: NDArray[np.bool_]) -> Mean:
    return Mean(float((condition & among).sum()), float(among.sum()))


def _check(values: NDArray[np.generic], boundary: NDArray[np.bool_]) -> None:
    if values.ndim != 1 or values.shape != boundary.shape:
        raise ValueError(f"need two arrays of one length, not {values.shape} and {boundary.shape}")
    if boundary.dtype != np.bool_:
        raise ValueError(f"boundary must be bool, not {boundary.dtype}")
