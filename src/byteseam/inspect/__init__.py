"""One plain record per text, and what can be made of it: a terminal's colours, HTML, JSON lines, SVG. No model here."""

from byteseam.inspect.html import render_html
from byteseam.inspect.jsonl import render_jsonl
from byteseam.inspect.record import Record, Span
from byteseam.inspect.svg import render_svg
from byteseam.inspect.terminal import Colour, colour_mode, legend, render_terminal

__all__ = [
    "Colour",
    "Record",
    "Span",
    "colour_mode",
    "legend",
    "render_html",
    "render_jsonl",
    "render_svg",
    "render_terminal",
]
