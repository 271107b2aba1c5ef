import json
from collections.abc import Callable

from hypothesis import given
from hypothesis import strategies as st

from byteseam.inspect import Record, render_jsonl


def test_worked_by_hand() -> None:
    data = "é a".encode()
    lines = render_jsonl(Record("x", data, [1, 1, 1, 0], [0.1, 0.123456789, 1, 0])).splitlines()
    assert [json.loads(line) for line in lines] == [
        {"start": 0, "end": 1, "text": None, "hex": "c3", "probability": 0.1, "closed": True},
        {"start": 1, "end": 2, "text": None, "hex": "a9", "probability": 0.123457, "closed": True},
        {"start": 2, "end": 3, "text": " ", "hex": "20", "probability": 1, "closed": True},
        {"start": 3, "end": 4, "text": "a", "hex": "61", "probability": None, "closed": False},
    ]


@given(st.binary(max_size=40), st.integers(0, 2**40 - 1))
def test_every_line_parses_and_the_bytes_come_back(data: bytes, bits: int) -> None:
    answer = render_jsonl(Record("x", data, [bool(bits >> at & 1) for at in range(len(data))]))
    spans = [json.loads(line) for line in answer.splitlines()]
    assert b"".join(bytes.fromhex(span["hex"]) for span in spans) == data
    assert all(span["text"] is None or span["text"].encode().hex() == span["hex"] for span in spans)
    assert not answer or answer.endswith("\n")


def test_nothing_hostile_reaches_a_terminal(record: Callable[..., Record], hostile: bytes) -> None:
    for every in (1, 3, 1000):
        answer = render_jsonl(record(hostile, every))
        assert all(" " <= character <= "~" or character == "\n" for character in answer)
        assert b"".join(bytes.fromhex(json.loads(line)["hex"]) for line in answer.splitlines()) == hostile


def test_an_empty_text_gives_no_line(record: Callable[..., Record]) -> None:
    assert render_jsonl(record(b"")) == ""
