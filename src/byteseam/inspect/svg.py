"""Tokens as one small SVG picture that looks the same everywhere."""

from collections.abc import Iterator
from html import escape
from itertools import groupby

from byteseam.inspect.layout import ESCAPE_INK, FAINT_INK, FEWEST_COLUMNS, INK, PALETTE, Cell, lines
from byteseam.inspect.record import Record
from byteseam.text import Glyph, visible_label

_CELL_WIDTH, _LINE_HEIGHT, _BOX_HEIGHT, _BASELINE, _FONT_SIZE, _MARGIN = 8.5, 24, 20, 15, 14, 18
_PAPER, _EDGE = "#fdfdfc", "#d5d9de"
_FONTS = "ui-monospace,SFMono-Regular,Menlo,Consolas,'DejaVu Sans Mono',monospace"
_INKS = {"plain": INK, "blank": FAINT_INK, "break": FAINT_INK, "escape": ESCAPE_INK}


def render_svg(record: Record, width_columns: int = 80) -> str:
    """The text with a coloured box round every token, on a light card of its own; an open last token has a dashed box.

    ``width_columns`` is the length of a line. Every character is centred in its own place, so that no font can move the
    letters out of their boxes.
    """
    columns = max(width_columns, FEWEST_COLUMNS)
    spans = record.spans()
    rows = list(lines(spans, columns))
    closed = len(spans) if not spans or spans[-1].closed else len(spans) - 1
    width = columns * _CELL_WIDTH + 2 * _MARGIN
    height = max(len(rows), 1) * _LINE_HEIGHT + 2 * _MARGIN - (_LINE_HEIGHT - _BOX_HEIGHT)
    drawn = [part for number, row in enumerate(rows) for part in _row(row, _MARGIN + number * _LINE_HEIGHT, closed)]
    return "\n".join(
        [
            f'<svg xmlns="http://www.w3.org/2000/svg" width="{width:g}" height="{height:g}" '
            f'viewBox="0 0 {width:g} {height:g}" role="img">',
            f"<title>{escape(visible_label(record.name))}</title>",
            f'<rect x=".5" y=".5" width="{width - 1:g}" height="{height - 1:g}" rx="8" '
            f'fill="{_PAPER}" stroke="{_EDGE}"/>',
            f'<g font-family="{_FONTS}" font-size="{_FONT_SIZE}" text-anchor="middle">',
            *drawn,
            "</g>",
            "</svg>\n",
        ]
    )


def _row(row: list[Cell], top: int, closed: int) -> Iterator[str]:
    """The boxes of one line, then its letters; tokens from ``closed`` on are open."""
    letters: list[str] = []
    column = 0
    for token, group in groupby(row, key=lambda cell: cell.token):
        shown = [cell.glyph for cell in group]
        yield _box(token, column, sum(glyph.cells for glyph in shown), top, token < closed)
        for (kind, one_cell_each), run in groupby(shown, key=lambda glyph: (glyph.kind, _one_cell_each(glyph))):
            pieces = [(glyph.text, glyph.cells) for glyph in run]
            if one_cell_each:  # in one element, with a list of places
                pieces = [("".join(text for text, _ in pieces), sum(cells for _, cells in pieces))]
            for text, cells in pieces:
                centres = [column + at + 0.5 for at in range(cells)] if one_cell_each else [column + cells / 2]
                places = " ".join(f"{_MARGIN + centre * _CELL_WIDTH:g}" for centre in centres)
                letters.append(f'<text x="{places}" y="{top + _BASELINE}" fill="{_INKS[kind]}">{escape(text)}</text>')
                column += cells
    yield from letters


def _box(token: int, column: int, cells: int, top: int, closed: bool) -> str:
    x, width = _MARGIN + column * _CELL_WIDTH, cells * _CELL_WIDTH
    place = f'x="{x + 0.5:g}" y="{top}" width="{max(width - 1, 1):g}" height="{_BOX_HEIGHT}" rx="3"'
    if closed:
        return f'<rect {place} fill="{PALETTE[token % len(PALETTE)]}"/>'
    return f'<rect {place} fill="none" stroke="{FAINT_INK}" stroke-dasharray="3 2"/>'


def _one_cell_each(glyph: Glyph) -> bool:
    """True when every UTF-16 unit of the glyph takes one column, so that a list of positions can place them."""
    return len(glyph.text) == glyph.cells and max(glyph.text) < "\U00010000"
