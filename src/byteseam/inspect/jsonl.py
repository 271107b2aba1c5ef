"""Tokens as JSON lines."""

import json

from byteseam.inspect.record import Record


def render_jsonl(record: Record) -> str:
    """One JSON object a line and token: ``start``, ``end`` (bytes), ``text``, ``hex``, ``probability``, ``closed``.

    ``text`` is null where the bytes are not valid UTF-8. Printable ASCII only, so that no character of the text can
    break a line or command a terminal. Probabilities have six digits.
    """
    lines = []
    for span in record.spans():
        fields = {
            "start": span.start,
            "end": span.end,
            "text": span.text,
            "hex": span.hex,
            "probability": None if span.probability is None else float(f"{span.probability:.6g}"),
            "closed": span.closed,
        }
        lines.append(json.dumps(fields).replace("\x7f", "\\u007f") + "\n")
    return "".join(lines)
