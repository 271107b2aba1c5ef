"""Tokens in a terminal: a background colour each, or a bar between them where there is no colour."""

import os
import shutil
import sys
from collections.abc import Mapping
from itertools import groupby
from typing import Literal, TextIO

from byteseam.inspect.layout import ESCAPE_INK, FAINT_INK, INK, PALETTE, Cell, lines
from byteseam.inspect.record import Record
from byteseam.text import BAR, CLOSE, NEWLINE, OPEN, SPACE, TAB, Kind

Colour = Literal["truecolor", "256", "none"]

_INKS: dict[Kind, str] = {"plain": INK, "blank": FAINT_INK, "break": FAINT_INK, "escape": ESCAPE_INK}
_NEAREST_256 = dict(zip((*PALETTE, INK, FAINT_INK, ESCAPE_INK), (153, 223, 157, 225, 189, 16, 244, 124), strict=True))
_FORCED: dict[str, Colour] = {"0": "none", "false": "none", "1": "256", "2": "256", "3": "truecolor"}
_RESET = "\x1b[0m"
_OPEN_TOKEN = "\x1b[4m"  # underlined, in the terminal's own colours: not yet a token


def colour_mode(*, stream: TextIO | None = None, environ: Mapping[str, str] | None = None) -> Colour:
    """What ``stream`` (standard output if None) can show.

    ``NO_COLOR`` (any value) turns colour off. ``FORCE_COLOR`` decides for streams that are no terminal, too: ``0`` or
    ``false`` off, ``1`` or ``2`` 256 colours, ``3`` true colour, anything else what ``COLORTERM`` and ``TERM`` say, at
    least 256. Without either, colour needs a terminal whose ``TERM`` is set and not ``dumb``.
    """
    environ = os.environ if environ is None else environ
    stream = sys.stdout if stream is None else stream
    if environ.get("NO_COLOR"):
        return "none"
    windows_terminal, term = "WT_SESSION" in environ, environ.get("TERM", "")
    true_colour = environ.get("COLORTERM", "").lower() in ("truecolor", "24bit") or term.endswith("-direct")
    best: Colour = "truecolor" if true_colour or windows_terminal else "256"
    if force := environ.get("FORCE_COLOR", "").lower():
        return _FORCED.get(force, best)
    able = stream.isatty() and (windows_terminal or term not in ("", "dumb"))
    return best if able else "none"


def render_terminal(record: Record, *, colour: Colour | Literal["auto"] = "auto", width: int | None = None) -> str:
    """The text with its tokens, ready to print; no line feed at the end.

    ``colour="auto"`` asks `colour_mode`; ``width`` is in columns, the terminal's if None. Colours never cross a line's
    end, so lines can be indented or put side by side. With ``none`` the answer holds no control character but the line
    feed.
    """
    mode = colour_mode() if colour == "auto" else colour
    columns = shutil.get_terminal_size().columns if width is None else width
    spans = record.spans()
    if mode == "none":
        rows = lines(spans, columns, bar=BAR)
        return "\n".join("".join(cell.glyph.text for cell in row) for row in rows)
    last_open = len(spans) - 1 if spans and not spans[-1].closed else None
    return "\n".join(_coloured(row, mode, last_open) for row in lines(spans, columns))


def legend(colour: Colour | Literal["auto"] = "auto") -> str:
    """How to read `render_terminal`: one line."""
    mode = colour_mode() if colour == "auto" else colour
    tokens = f"{BAR} ends a token" if mode == "none" else "one colour, one token (underlined: still open)"
    return f"{tokens}; {SPACE} space, {NEWLINE} line end, {TAB} tab, {OPEN}ff{CLOSE} a byte"


def _coloured(row: list[Cell], mode: Colour, last_open: int | None) -> str:
    parts = []
    for (token, kind), cells in groupby(row, key=lambda cell: (cell.token, cell.glyph.kind)):
        text = "".join(cell.glyph.text for cell in cells)
        if token == last_open:
            style = _RESET + _OPEN_TOKEN
        else:
            style = _sgr(_INKS[kind], 38, mode) + _sgr(PALETTE[token % len(PALETTE)], 48, mode)
        parts.append(style + text)
    return "".join(parts) + _RESET


def _sgr(colour: str, layer: int, mode: Colour) -> str:
    """The escape sequence that sets the letters' (38) or the background's (48) colour."""
    if mode == "256":
        return f"\x1b[{layer};5;{_NEAREST_256[colour]}m"
    red, green, blue = bytes.fromhex(colour[1:])
    return f"\x1b[{layer};2;{red};{green};{blue}m"
