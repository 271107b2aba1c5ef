"""Tokens as one HTML file that needs nothing else: no script, no network, light and dark."""

from collections.abc import Sequence
from html import escape
from itertools import groupby

import numpy as np

from byteseam.inspect.record import Record, Span
from byteseam.text import direction, glyphs, visible_label

_MOST_HEX_BYTES = 32  # in a hover text

_STYLE = """
:root{color-scheme:light dark;--paper:#fdfdfc;--ink:#1b1f24;--faint:#697077;--edge:#d5d9de;--escape:#b3122e;
--a:47 116 208;--b:214 128 0}
@media (prefers-color-scheme:dark){:root{--paper:#14171b;--ink:#e8eaed;--faint:#9aa2ab;--edge:#363c44;--escape:#ff8a8a;
--a:70 140 240;--b:226 150 30}}
body{margin:0 auto;padding:1.5rem 1.25rem 4rem;max-width:64rem;background:var(--paper);color:var(--ink);
font:16px/1.5 system-ui,sans-serif}
h1{font-size:1.4rem;margin:0 0 .25rem}h2{font-size:1.05rem;margin:2.2rem 0 .4rem;overflow-wrap:anywhere}
p{margin:.3rem 0;color:var(--faint);font-size:.9rem}
dl{display:flex;flex-wrap:wrap;gap:.2rem 1.6rem;margin:.4rem 0 .8rem}
dt{font-size:.78rem;color:var(--faint)}dd{margin:0;font-variant-numeric:tabular-nums}
pre{margin:0;padding:1rem;border:1px solid var(--edge);border-radius:8px;white-space:pre-wrap;overflow-wrap:anywhere;
font:15px/1.75 ui-monospace,SFMono-Regular,Menlo,Consolas,"DejaVu Sans Mono",monospace}
.t{padding:.12em 0;border-radius:3px;unicode-bidi:isolate;-webkit-box-decoration-break:clone;box-decoration-break:clone;
background:rgb(var(--c)/calc(.13 + .39*var(--p)))}
.a{--c:var(--a)}.b{--c:var(--b)}.o{background:none;outline:1px dashed var(--faint)}
.t:hover{outline:2px solid var(--ink)}
.t i{font-style:normal;color:var(--faint);unicode-bidi:isolate;direction:ltr}.t .e{color:var(--escape);font-size:.86em}
.cut{border-bottom:2px solid var(--escape)}
h3{font-size:.9rem;font-weight:600;margin:1.1rem 0 .3rem}
.w{background:rgb(var(--c)/calc(.75*var(--p)));cursor:default}.w.k{border-bottom:2px solid var(--ink)}
.w i{font-style:normal;color:var(--faint)}.w .e{color:var(--escape);font-size:.86em}
.bar{display:inline-block;width:6rem;height:.8em;border-radius:3px;vertical-align:-.05em;
background:linear-gradient(90deg,rgb(var(--a)/.13),rgb(var(--a)/.52))}
"""


def render_html(records: Sequence[Record], title: str) -> str:
    """A whole page with a section a record; the caller writes it as UTF-8.

    Tokens alternate between two hues, the stronger the more probable the boundary that closes them; pointing at one
    shows its byte offsets, bytes, probability and cost. The page itself forbids scripts and the network.
    """
    sections = "\n".join(_section(record) for record in records)
    heading = escape(visible_label(title))
    return f"""<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta http-equiv="Content-Security-Policy" content="default-src 'none'; style-src 'unsafe-inline'">
<meta name="viewport" content="width=device-width,initial-scale=1">
<title>{heading}</title>
<style>{_STYLE}</style>
</head>
<body>
<h1>{heading}</h1>
<p>One colour, one token. Probability of the boundary that ends it: 0 <span class="bar"></span> 1. \
Point at a token for its bytes. Dashed: still open. Underlined in red: ends inside a character.</p>
{sections}
</body>
</html>
"""


def _section(record: Record) -> str:
    spans = record.spans()
    tokens = "".join(_token(span, "ab"[number % 2]) for number, span in enumerate(spans))
    numbers = "".join(f"<div><dt>{name}</dt><dd>{value}</dd></div>" for name, value in _numbers(record, len(spans)))
    name = escape(visible_label(record.name))
    text = f'<pre dir="{direction(record.data)}">{tokens}</pre>'
    return f"<section>\n<h2>{name}</h2>\n<dl>{numbers}</dl>\n{text}{_worths(record)}\n</section>"


def _worths(record: Record) -> str:
    """The text once more, each character coloured by what a boundary after it is worth; nothing where that is unknown.

    A character of several bytes has the colour of the byte whose boundary would matter most.
    """
    if record.advantage_nats is None or not record.data:
        return ""
    largest = max(float(np.quantile(np.abs(record.advantage_nats), 0.98)), 1e-9)
    parts, place = [], 0
    for glyph in glyphs(record.data):
        places = range(place, place + glyph.size)
        place += glyph.size
        worth = float(max((record.advantage_nats[each] for each in places), key=abs))
        shade = round(min(abs(worth) / largest, 1.0), 3)
        classes = ("w a" if worth > 0 else "w b") + (" k" if any(record.boundary[each] for each in places) else "")
        hover = escape("\n".join(_worth(record, each) for each in places)).replace("\n", "&#10;")
        shown = escape(glyph.text)
        if glyph.kind != "plain":
            shown = f'<i class="e">{shown}</i>' if glyph.kind == "escape" else f"<i>{shown}</i>"
        after = {"break": "\n", "blank": "<wbr>"}.get(glyph.kind, "")
        parts.append(f'<span class="{classes}" style="--p:{shade:g}" title="{hover}">{shown}</span>{after}')
    heading = (
        f"What a boundary after each character is worth: blue buys, orange costs, in full colour {largest:.3f} "
        "nats or more; underlined where there is one"
    )
    return f'\n<h3>{heading}</h3>\n<pre dir="{direction(record.data)}">{"".join(parts)}</pre>'


def _worth(record: Record, place: int) -> str:
    """One byte's, in words."""
    assert record.advantage_nats is not None
    error = "" if record.advantage_error_nats is None else f" ± {record.advantage_error_nats[place]:.4f}"
    taken = "a boundary" if record.boundary[place] else "no boundary"
    return f"byte {place}: {record.advantage_nats[place]:+.4f}{error} nats; {taken}"


def _numbers(record: Record, tokens: int) -> list[tuple[str, str]]:
    numbers = [("bytes", f"{len(record.data):,}"), ("tokens", f"{tokens:,}")]
    for name, value in (
        ("bytes per token", record.bytes_per_token),
        ("bits per byte", record.bits_per_byte),
        ("bits per byte without tokens", record.early_bits_per_byte),
    ):
        if value is not None:
            numbers.append((name, f"{value:.3f}"))
    if record.decide is not None:
        numbers.append(("boundaries by", escape(visible_label(record.decide))))
    return numbers


def _token(span: Span, hue: str) -> str:
    parts = []
    for kind, run in groupby(glyphs(span.data), key=lambda glyph: glyph.kind):
        shown = [escape(glyph.text) for glyph in run]
        if kind == "plain":
            parts.append("".join(shown))
        elif kind == "blank":
            parts.append(f"<i>{''.join(shown)}</i><wbr>")
        elif kind == "break":
            parts.extend(f"<i>{text}</i>\n" for text in shown)
        else:
            parts.append(f'<i class="e">{"".join(shown)}</i>')
    classes = f"t {hue}" + ("" if span.closed else " o") + (" cut" if span.inside_character and span.closed else "")
    shade = 0.6 if span.probability is None else round(span.probability, 3)
    return f'<span class="{classes}" style="--p:{shade:g}" title="{_hover(span)}">{"".join(parts)}</span>'


def _hover(span: Span) -> str:
    count = span.end - span.start
    more = " …" if count > _MOST_HEX_BYTES else ""
    lines = [
        f"bytes {span.start} to {span.end - 1}" if count > 1 else f"byte {span.start}",
        span.data[:_MOST_HEX_BYTES].hex(" ") + more,
    ]
    if not span.closed:
        lines.append("open: no boundary ends it")
    if span.inside_character and span.closed:
        lines.append("ends inside a character")
    if span.probability is not None:
        lines.append(f"probability {span.probability:.4f}")
    if span.nll_nats is not None:
        lines.append(f"nll {span.nll_nats:.3f} nats")
    return escape("\n".join(lines)).replace("\n", "&#10;")
