"""The comparison as tables: for the terminal, Markdown and CSV, from the report alone."""

import csv
import io
from collections.abc import Callable
from typing import Any

from byteseam.console import stdout_width

Cells = dict[str, Any]


def _number(pattern: str, *path: str) -> Callable[[Cells], str]:
    def text(entry: Cells) -> str:
        value: Any = entry
        for name in path:
            value = value.get(name) if isinstance(value, dict) else None
        return "" if value is None else format(value, pattern)

    return text


def _bits(entry: Cells) -> str:
    if entry.get("bits_per_byte") is None:
        return ""
    spread = f" ±{entry['spread'] / 2:.3f}" if len(entry["seeds"]) > 1 else ""
    return f"{entry['bits_per_byte']:.3f}{spread}"


def _bracketed(entry: Cells, text: str) -> str:
    """In brackets where the rate is another, so that nobody reads it as equal."""
    return text if entry["difference_comparable"] or not text else f"[{text}]"


def _if_matched(entry: Cells, text: str) -> str:
    """In brackets where no threshold brought the rate there."""
    return text if not text or entry["matched"]["comparable"] else f"[{text}]"


def _interval(entry: Cells) -> str:
    found = entry.get("difference")
    if not found or found["low"] is None:
        return ""
    return _bracketed(entry, f"{found['low']:+.3f} to {found['high']:+.3f}")


def _tokens(entry: Cells) -> str:
    text = _number(".2f", "bytes_per_token")(entry)
    return text if entry["comparable"] or not text else f"{text} !"


def _scaled(pattern: str, name: str, unit: float) -> Callable[[Cells], str]:
    return lambda entry: "" if entry.get(name) is None else format(entry[name] / unit, pattern)


COLUMNS: dict[str, Callable[[Cells], str]] = {
    "entry": lambda entry: str(entry["label"]),
    "seeds": lambda entry: str(len(entry["seeds"])),
    "bits/byte": _bits,
    "vs ref": lambda entry: _bracketed(entry, _number("+.3f", "difference", "mean")(entry)),
    "95 %": _interval,
    "B/token": _tokens,
    "MFLOP/B": _scaled(".2f", "training_flops_per_byte", 1e6),
    "s": _number(",.0f", "seconds"),
    "kB/s": _scaled(".1f", "bytes_per_second", 1e3),
}
"""Title -> cell of one entry."""

BOUNDARY_COLUMNS: dict[str, Callable[[Cells], str]] = {
    "entry": COLUMNS["entry"],
    "on space": _number(".2f", "agreement", "whitespace_boundary_share"),
    "of them space": _number(".2f", "agreement", "boundary_whitespace_share"),
    "word ends": _number(".2f", "agreement", "word_end_share"),
    "BPE F1": _number(".2f", "bpe_f1"),
    "gold F1": _number(".2f", "gold_f1"),
    "a byte later": _number(".2f", "gold_later_f1"),
    "in character": _number(".3f", "agreement", "boundary_inside_character_share"),
    "matched": lambda entry: _if_matched(entry, _number(".3f", "matched", "bits_per_byte")(entry)),
    "matched vs ref": lambda entry: _if_matched(entry, _number("+.3f", "matched", "difference", "mean")(entry)),
}
"""The same for where boundaries fall; probes follow."""

LEGEND = (
    "bits/byte: mean over seeds, ± half their spread. vs ref: paired difference to the reference, 95 % over documents; "
    "in brackets where it or the reference is at another rate. B: byte. MFLOP/B: in training, at the realised rate. "
    "On space: share of white space that carries a boundary; of them space: share of boundaries on white space. "
    "Matched: at the comparison's rate, by a threshold; in brackets where none brings it there."
)

Table = tuple[list[str], list[list[str]]]


def tables(report: Cells) -> list[Table]:
    """Titles and rows of text: what it costs, and where the boundaries fall. Columns where nobody has anything go."""
    probes = {probe: _number(".3f", "probes", probe) for probe in report["probes"]}
    return [_table(report, columns) for columns in (COLUMNS, BOUNDARY_COLUMNS | probes)]


def _table(report: Cells, columns: dict[str, Callable[[Cells], str]]) -> Table:
    rows = [[cell(entry) for cell in columns.values()] for entry in report["entries"]]
    kept = [place for place in range(len(columns)) if any(row[place] for row in rows)]
    titles = list(columns)
    return [titles[place] for place in kept], [[row[place] for place in kept] for row in rows]


def notes(report: Cells) -> list[str]:
    """What must be said beside the table: rates that are off, runs that failed."""
    off = [f"{entry['label']}: {entry['rate_note']}" for entry in report["entries"] if entry.get("rate_note")]
    failed = [f"{each['label']}, seed {each['seed']}, failed: {each['reason']}" for each in report["failures"]]
    return [f"! {note}; not compared as if it were equal" for note in off] + failed


def heading(report: Cells) -> str:
    """What was compared, in one line."""
    amount, kind = report["budget"]["amount"], report["budget"]["kind"]
    spent = f"{amount:,.0f} bytes" if kind == "bytes" else f"{amount:g} {'FLOPs' if kind == 'flops' else kind}"
    return (
        f"{report['source']}, {report['bytes_per_token']:g} bytes per token, {spent} a run, "
        f"reference {report['reference']}"
    )


def to_terminal(report: Cells) -> str:
    """The tables with rich, and their notes."""
    from rich import box
    from rich.console import Console
    from rich.table import Table as Shown

    written = io.StringIO()
    console = Console(file=written, highlight=False, markup=False, width=stdout_width(160))
    for titles, rows in tables(report):
        shown = Shown(box=box.SIMPLE_HEAD, pad_edge=False, padding=(0, 1, 0, 0))
        for number, title in enumerate(titles):
            shown.add_column(title, justify="right" if number else "left", no_wrap=not number, overflow="fold")
        for row in rows:
            shown.add_row(*row)
        console.print(shown)
    for note in notes(report):
        console.print(note, soft_wrap=True)
    return written.getvalue().rstrip("\n")


def to_markdown(report: Cells) -> str:
    """A page with the table, its notes and the agreement of all with all."""
    lines = [f"{heading(report)}."]
    for titles, rows in tables(report):
        lines += ["", *_markdown_table(titles, rows)]
    lines += ["", LEGEND]
    lines += ["", *(f"* {_escaped(note)}" for note in notes(report))]
    labels = [entry["label"] for entry in report["entries"]]
    matrix = [
        [label, *("" if value is None else f"{value:.2f}" for value in values)]
        for label, values in zip(labels, report["pairwise_f1"], strict=True)
    ]
    lines += ["", "F1 of boundaries with each other:", "", *_markdown_table(["", *labels], matrix)]
    return "\n".join(lines) + "\n"


def _markdown_table(titles: list[str], rows: list[list[str]]) -> list[str]:
    aligned = ["---", *["---:"] * (len(titles) - 1)]
    return [f"| {' | '.join(map(_escaped, cells))} |" for cells in (titles, aligned, *rows)]


def _escaped(text: str) -> str:
    return text.replace("|", "\\|").replace("\n", " ")


def to_csv(report: Cells) -> str:
    """One line an entry with plain numbers, whole precision."""
    flat = [_flat(entry) for entry in report["entries"]]
    names = list(dict.fromkeys(name for entry in flat for name in entry))
    out = io.StringIO()
    writer = csv.DictWriter(out, names, lineterminator="\n")
    writer.writeheader()
    writer.writerows(flat)
    return out.getvalue()


def _flat(entry: Cells, prefix: str = "") -> Cells:
    cells: Cells = {}
    for name, value in entry.items():
        if isinstance(value, dict):
            cells |= _flat(value, f"{prefix}{name}.")
        else:
            cells[prefix + name] = " ".join(map(str, value)) if isinstance(value, list) else value
    return cells
