"""The comparison as one HTML file that needs nothing else: no script, no network, light and dark."""

import json
from collections.abc import Callable, Sequence
from html import escape
from typing import Any

from byteseam.comparison.tables import LEGEND, heading, notes, tables
from byteseam.inspect import Record
from byteseam.text import direction, glyphs, visible_label

Cells = dict[str, Any]
Point = tuple[float, float]

AXES: dict[str, tuple[str, float, Callable[[Cells, Cells], float | None]]] = {
    "bytes": ("MB trained on", 1e6, lambda run, point: point.get("bytes_seen")),
    "flops": ("TFLOP spent", 1e12, lambda run, point: point["bytes_seen"] * run["flops_per_byte"]),
    "seconds": ("seconds", 1.0, lambda run, point: point.get("seconds")),
}
"""What curves are drawn against: title, unit, and how a point's place is found."""

COLOURS = (
    "#2f74d0",
    "#c4441c",
    "#2a8a43",
    "#8a4fc4",
    "#b07d00",
    "#0f8f94",
    "#c2367f",
    "#667080",
    "#7a5230",
    "#5a8f00",
    "#d6306a",
    "#3b3f9e",
)

LINE_BYTES = 84
WIDTH, HEIGHT, LEFT, BOTTOM, TOP = 640, 300, 52, 34, 10

_STYLE = """
:root{color-scheme:light dark;--paper:#fdfdfc;--ink:#1b1f24;--faint:#5d646b;--edge:#d5d9de;--a:47 116 208;--b:214 128 0;
--bad:#b3122e}
@media (prefers-color-scheme:dark){:root{--paper:#14171b;--ink:#e8eaed;--faint:#a3abb4;--edge:#363c44;--a:90 150 245;
--b:226 150 30;--bad:#ff8a8a}}
body{margin:0 auto;padding:1.5rem 1rem 4rem;max-width:76rem;background:var(--paper);color:var(--ink);
font:16px/1.5 system-ui,sans-serif}
h1{font-size:1.4rem;margin:0 0 .25rem}h2{font-size:1.1rem;margin:2.4rem 0 .5rem}
p{margin:.3rem 0;color:var(--faint);font-size:.9rem}.bad{color:var(--bad)}
.wide{overflow-x:auto}.wide:focus{outline:2px solid var(--faint)}
table{border-collapse:collapse;font-size:.86rem;font-variant-numeric:tabular-nums}
th,td{padding:.25rem .6rem;border-bottom:1px solid var(--edge);text-align:right;white-space:nowrap}
th:first-child,td:first-child{text-align:left;position:sticky;left:0;background:var(--paper)}
.heat{background:rgb(var(--a)/calc(.5*var(--v)))}
.charts{display:flex;flex-wrap:wrap;gap:1rem}.charts>figure{margin:0;flex:1 1 24rem;min-width:0}
figcaption{font-size:.85rem;color:var(--faint)}
svg{width:100%;height:auto}svg text{fill:var(--faint);font:11px system-ui,sans-serif}
.grid{stroke:var(--edge)}.line{fill:none;stroke-width:1.8}.thin{stroke-width:.8;opacity:.4}.target{stroke:var(--ink);
stroke-dasharray:4 4;opacity:.6}
fieldset{border:0;padding:0;margin:.4rem 0}label{margin-right:1rem}
.axis{display:none}
#axis-bytes:checked~.axis-bytes,#axis-flops:checked~.axis-flops,#axis-seconds:checked~.axis-seconds{display:flex}
.key{display:flex;flex-wrap:wrap;gap:.2rem 1rem;font-size:.85rem;padding:0;list-style:none}
.key i{display:inline-block;width:1.4em;height:.2em;vertical-align:.25em;margin-right:.4em}
.cuts{font:13px/1.55 ui-monospace,SFMono-Regular,Menlo,Consolas,"DejaVu Sans Mono",monospace;margin:0 0 1rem;padding:0}
.cuts div{display:flex;white-space:pre}.cuts b{flex:0 0 11em;overflow:hidden;text-overflow:ellipsis;font-weight:400;
color:var(--faint);position:sticky;left:0;background:var(--paper)}
.x{background:rgb(var(--a)/.25)}.y{background:rgb(var(--b)/.28)}.x,.y{border-radius:2px;unicode-bidi:isolate}
.split{border-bottom:2px solid var(--bad)}
"""


def to_html(report: Cells) -> str:
    """The whole page; the caller writes it as UTF-8. It forbids scripts and the network itself."""
    title = escape(visible_label(f"byteseam compare: {heading(report)}"))
    said = "".join(f'<p class="bad">{_safe(note)}</p>' for note in notes(report))
    return f"""<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta http-equiv="Content-Security-Policy" content="default-src 'none'; style-src 'unsafe-inline'">
<meta name="viewport" content="width=device-width,initial-scale=1">
<title>{title}</title>
<style>{_STYLE}</style>
</head>
<body>
<h1>{title}</h1>
{"".join(_table(*each) for each in tables(report))}
<p>{escape(LEGEND)}</p>
{said}
<h2>Over training</h2>
{_charts(report)}
<h2>The same passage, cut by each</h2>
<p>One colour, one token; underlined: a boundary inside a character. The passage is held out, the model the first
seed's.</p>
{_passages(report)}
<h2>Agreement of boundaries with each other</h2>
<p>F1, the mean over seeds, on the first held-out documents.</p>
{_matrix(report)}
</body>
</html>
"""


def _safe(text: str) -> str:
    return escape(visible_label(text))


def _scrolling(inner: str) -> str:
    """What may be wider than a phone; reached by the keyboard."""
    return f'<div class="wide" tabindex="0">{inner}</div>'


def _table(titles: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    head = "".join(f'<th scope="col">{_safe(title)}</th>' for title in titles)
    body = "".join(f"<tr>{''.join(f'<td>{_safe(cell)}</td>' for cell in row)}</tr>" for row in rows)
    return _scrolling(f"<table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>")


def _matrix(report: Cells) -> str:
    labels = [entry["label"] for entry in report["entries"]]
    head = "".join(f'<th scope="col">{_safe(label)}</th>' for label in ["", *labels])
    lines = []
    for label, values in zip(labels, report["pairwise_f1"], strict=True):
        cells = "".join(
            "<td></td>" if value is None else f'<td class="heat" style="--v:{value:.3f}">{value:.2f}</td>'
            for value in values
        )
        lines.append(f"<tr><td>{_safe(label)}</td>{cells}</tr>")
    return _scrolling(f"<table><thead><tr>{head}</tr></thead><tbody>{''.join(lines)}</tbody></table>")


def _charts(report: Cells) -> str:
    labels = [entry["label"] for entry in report["entries"]]
    colours = {label: COLOURS[number % len(COLOURS)] for number, label in enumerate(labels)}
    key = "".join(f'<li><i style="background:{colours[label]}"></i>{_safe(label)}</li>' for label in labels)
    choices, panes = [], []
    for number, (name, (title, _, _)) in enumerate(AXES.items()):
        checked = " checked" if not number else ""
        choices.append(f'<input type="radio" name="axis" id="axis-{name}"{checked}>')
        choices.append(f'<label for="axis-{name}">{title}</label>')
        figures = [
            _figure(report, name, "bits_per_byte", "bits per byte; thick: held out, thin: training", colours, None),
            _figure(
                report, name, "rate", "rate, tokens a byte; dashed: asked for", colours, 1 / report["bytes_per_token"]
            ),
        ]
        panes.append(f'<div class="charts axis axis-{name}">{"".join(figures)}</div>')
    return f'<form>{"".join(choices)}{"".join(panes)}</form><ul class="key">{key}</ul>'


def _figure(
    report: Cells, axis: str, quantity: str, caption: str, colours: dict[str, str], target: float | None
) -> str:
    title, unit, place = AXES[axis]
    lines: list[tuple[str, bool, list[Point]]] = []
    for run in report["curves"]:
        for held_out in (False, True):
            points = [
                (x / unit, point[quantity])
                for point in run["points"]
                if bool(point["held_out"]) == held_out and quantity in point and (x := place(run, point)) is not None
            ]
            lines.append((colours[run["label"]], held_out, sorted(points)))
    # The first steps would squeeze all that matters into a corner.
    values = [y for _, held_out, points in lines for _, y in points[0 if held_out else len(points) // 4 :]]
    if not values:
        return f"<figure><figcaption>{caption}: nothing yet</figcaption></figure>"
    most_x = max(x for _, _, points in lines for x, _ in points) or 1.0
    values += [] if target is None else [target]
    low, high = min(values), max(values)
    pad = 0.05 * (high - low) or 0.05
    low, high = low - pad, high + pad

    def at(x: float, y: float) -> str:
        inner = HEIGHT - BOTTOM - TOP
        across = LEFT + (WIDTH - LEFT - 8) * x / most_x
        return f"{across:.1f},{TOP + inner * (1 - (min(max(y, low), high) - low) / (high - low)):.1f}"

    drawn = []
    for step in range(5):
        y, x = low + (high - low) * step / 4, most_x * step / 4
        (_, across_y), (across_x, _) = at(0, y).split(","), at(x, low).split(",")
        drawn.append(f'<path class="grid" d="M{LEFT},{across_y}H{WIDTH - 8}"/>')
        drawn.append(f'<text x="{LEFT - 6}" y="{float(across_y) + 4:.1f}" text-anchor="end">{y:.3g}</text>')
        drawn.append(f'<text x="{across_x}" y="{HEIGHT - BOTTOM + 16}" text-anchor="middle">{x:.3g}</text>')
    drawn.append(f'<text x="{WIDTH - 8}" y="{HEIGHT - 4}" text-anchor="end">{title}</text>')
    if target is not None:
        drawn.append(f'<path class="target" d="M{at(0, target)}L{at(most_x, target)}"/>')
    for colour, held_out, points in lines:
        if points:
            path = "L".join(at(*point) for point in points)
            drawn.append(f'<path class="line{"" if held_out else " thin"}" stroke="{colour}" d="M{path}"/>')
            if held_out:
                drawn += [
                    f'<circle r="2.6" fill="{colour}" cx="{cx}" cy="{cy}"/>'
                    for cx, cy in (at(*point).split(",") for point in points)
                ]
    picture = f'<svg viewBox="0 0 {WIDTH} {HEIGHT}" role="img" aria-label="{caption}">{"".join(drawn)}</svg>'
    return f"<figure>{picture}<figcaption>{caption}</figcaption></figure>"


def _passages(report: Cells) -> str:
    records = [(each["label"], Record.from_json(json.dumps(each["record"]))) for each in report["passages"]]
    blocks = []
    for data in dict.fromkeys(record.data for _, record in records):
        same = [(label, _shown(record)) for label, record in records if record.data == data]
        for first in range(0, len(data), LINE_BYTES):
            lines = (
                f"<div><b>{_safe(label)}</b><span>{''.join(shown[first : first + LINE_BYTES])}</span></div>"
                for label, shown in same
            )
            blocks.append(f'<div class="cuts" dir="{direction(data)}">{"".join(lines)}</div>')
    return _scrolling("".join(blocks))


def _shown(record: Record) -> list[str]:
    """Per byte what is shown of it: a character at its first byte, nothing at the others. All alike but in colour."""
    cells = [""] * len(record.data)
    hue, start = 0, 0
    while start < len(record.data):
        end = start + 1
        while end < len(record.data) and record.data[end] & 0xC0 == 0x80 and end - start < 4:
            end += 1
        text = "".join(glyph.text for glyph in glyphs(record.data[start:end]))
        inside = bool(record.boundary[start : end - 1].any())
        kind = ("x", "y")[hue % 2] + (" split" if inside else "")
        cells[start] = f'<span class="{kind}">{escape(text)}</span>'
        hue += int(record.boundary[start:end].sum())
        start = end
    return cells
