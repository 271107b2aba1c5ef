"""Tokens laid out in columns, for the terminal and for SVG, and the colours that tell neighbours apart."""

from collections.abc import Iterable, Iterator
from typing import NamedTuple

from byteseam.inspect.record import Span
from byteseam.text import Glyph, glyphs

PALETTE = ("#cfe3ff", "#ffe2ae", "#cdeccb", "#f9d2e0", "#ddd4fb")
"""Backgrounds of one token after the other; light, for dark letters."""
INK, FAINT_INK, ESCAPE_INK = "#1b1f24", "#868e96", "#b3122e"
"""Letters; marks of white space; escapes."""

FEWEST_COLUMNS = 12
"""Room for the longest escape and a bar; narrower layouts are made this wide."""


class Cell(NamedTuple):
    """One glyph in its place in a line."""

    token: int
    """The number of its token, from 0."""
    glyph: Glyph


def lines(spans: Iterable[Span], columns: int, *, bar: str = "") -> Iterator[list[Cell]]:
    """The glyphs of tokens, broken into lines of at most ``columns`` columns (at least ``FEWEST_COLUMNS``).

    A line ends after a line feed; a full one is cut after white space if some is near, else between tokens, else
    anywhere. ``bar`` (one column) follows the last glyph of every closed token.
    """
    columns = max(columns, FEWEST_COLUMNS)
    line: list[Cell] = []
    used = 0
    for cell in _cells(spans, bar):
        while line and used + cell.glyph.cells > columns:
            cut = _cut(line, cell, columns // 3)
            yield line[:cut]
            line = line[cut:]
            used = sum(kept.glyph.cells for kept in line)
        line.append(cell)
        used += cell.glyph.cells
        if cell.glyph.kind == "break":
            yield line
            line, used = [], 0
    if line:
        yield line


def _cells(spans: Iterable[Span], bar: str) -> Iterator[Cell]:
    for token, span in enumerate(spans):
        shown = glyphs(span.data)
        if bar and span.closed:
            last = shown[-1]
            shown[-1] = last._replace(text=last.text + bar, cells=last.cells + 1)
        yield from (Cell(token, glyph) for glyph in shown)


def _cut(line: list[Cell], following: Cell, reach: int) -> int:
    """How many cells of a full line stay on it, at least one."""
    between_tokens = 0
    after = following
    for kept in range(len(line), max(len(line) - reach, 0), -1):
        cell = line[kept - 1]
        if cell.glyph.kind == "blank" and after.glyph.kind != "blank":
            return kept
        if not between_tokens and cell.token != after.token:
            between_tokens = kept
        after = cell
    return between_tokens or len(line)
