import json
import subprocess
import sys
from collections.abc import Callable
from math import log

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from byteseam.errors import UserError
from byteseam.inspect import Record


@st.composite
def records(draw: st.DrawFn) -> Record:
    data = draw(st.binary(max_size=24) | st.text(max_size=12).map(str.encode))
    size = {"min_size": len(data), "max_size": len(data)}
    finite = st.lists(st.floats(-1e300, 1e300), **size)
    return Record(
        name=draw(st.text(max_size=4)),
        data=data,
        boundary=draw(st.lists(st.booleans(), **size)),
        probability=draw(st.none() | st.lists(st.floats(0, 1), **size)),
        nll_nats=draw(st.none() | finite),
        early_nll_nats=draw(st.none() | finite),
        decide=draw(st.none() | st.just("rate")),
        advantage_nats=draw(st.none() | finite),
        advantage_error_nats=draw(st.none() | finite),
    )


def test_spans_worked_by_hand() -> None:
    # "to é!" with boundaries after the space, inside é and after é.
    data = "to é!".encode()
    record = Record("x", data, [0, 0, 1, 1, 1, 0], [0.1, 0.2, 0.9, 0.4, 0.5, 0.3], [1, 2, 3, 4, 5, 6])
    found = [(s.start, s.end, s.text, s.hex, s.closed, s.probability, s.nll_nats) for s in record.spans()]
    assert found == [
        (0, 3, "to ", "746f20", True, 0.9, 6),
        (3, 4, None, "c3", True, 0.4, 4),
        (4, 5, None, "a9", True, 0.5, 5),
        (5, 6, "!", "21", False, None, 6),
    ]
    assert [span.inside_character for span in record.spans()] == [False, True, False, False]


def test_no_boundary_is_one_open_token_and_no_bytes_are_no_token() -> None:
    assert [(s.start, s.end, s.closed) for s in Record("x", b"abc", [0, 0, 0]).spans()] == [(0, 3, False)]
    assert Record("x", b"", []).spans() == []


def test_numbers_worked_by_hand() -> None:
    record = Record("x", b"abcde", [0, 1, 0, 1, 0], nll_nats=[log(2)] * 5, early_nll_nats=[log(4)] * 5)
    assert record.bytes_per_token == 2.5
    assert record.bits_per_byte == pytest.approx(1)
    assert record.early_bits_per_byte == pytest.approx(2)


def test_unknown_numbers_are_none() -> None:
    record = Record("x", b"ab", [0, 0])
    assert (record.bytes_per_token, record.bits_per_byte, record.early_bits_per_byte) == (None, None, None)
    empty = Record("x", b"", [], [], [], [])
    assert (empty.bytes_per_token, empty.bits_per_byte) == (None, None)


@given(records())
def test_the_bytes_of_the_spans_are_the_text(record: Record) -> None:
    spans = record.spans()
    assert b"".join(span.data for span in spans) == record.data
    assert b"".join(bytes.fromhex(span.hex) for span in spans) == record.data
    assert [span.start for span in spans] == [0, *(span.end for span in spans)][: len(spans)]
    assert sum(span.closed for span in spans) == record.boundary.sum()
    assert all(span.closed for span in spans[:-1])


@given(records())
def test_json_round_trip_is_exact(record: Record) -> None:
    line = record.to_json()
    again = Record.from_json(line)
    assert again == record
    assert (again.name, again.data, again.decide) == (record.name, record.data, record.decide)
    for name in ("boundary", "probability", "nll_nats", "early_nll_nats", "advantage_nats", "advantage_error_nats"):
        ours, theirs = getattr(record, name), getattr(again, name)
        assert ours is theirs is None or (ours.dtype == theirs.dtype and ours.tobytes() == theirs.tobytes())
    assert line.isascii()
    assert len(line.splitlines()) == 1


def test_json_holds_text_where_it_can() -> None:
    assert json.loads(Record("x", "é".encode(), [0, 1]).to_json())["text"] == "é"
    assert json.loads(Record("x", b"\xff", [1]).to_json())["base64"] == "/w=="
    assert json.loads(Record("x", b"abcd", [0, 1, 0, 1]).to_json())["boundary"] == [1, 3]


@pytest.mark.parametrize(
    "line",
    [
        "",
        "[]",
        "3",
        "null",
        "{}",
        "[" * 100_000,
        '{"format": 2}',
        '{"format": 1, "name": "x", "base64": "?", "boundary": []}',
        '{"format": 1, "name": "x", "text": 3, "boundary": []}',
        '{"format": 1, "name": "x", "text": "\\ud800", "boundary": []}',
        *(
            json.dumps(
                {
                    "format": 1,
                    "name": "x",
                    "text": "ab",
                    "decide": None,
                    "boundary": [],
                    "probability": None,
                    "nll_nats": None,
                    "early_nll_nats": None,
                }
                | change
            )
            for change in (
                {"boundary": [2]},
                {"boundary": [-1]},
                {"boundary": [0.5]},
                {"boundary": [[0]]},
                {"boundary": ["0"]},
                {"boundary": [10**30]},
                {"boundary": None},
                {"probability": [0.5]},
                {"probability": [0.5, 2]},
                {"probability": [0.5, float("nan")]},
                {"nll_nats": [1, "a"]},
                {"nll_nats": {"a": 1}},
                {"name": 3},
                {"decide": 3},
            )
        ),
    ],
)
def test_json_of_something_else_is_one_sentence(line: str) -> None:
    with pytest.raises(UserError, match="not a byteseam record") as caught:
        Record.from_json(line)
    assert len(str(caught.value)) < 300


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"boundary": [1]}, "boundary has shape"),
        ({"probability": [0.5, 1.5]}, "must lie in"),
        ({"probability": [0.5, float("nan")]}, "not finite"),
        ({"nll_nats": [0, float("inf")]}, "not finite"),
        ({"early_nll_nats": [0]}, "early_nll_nats has shape"),
    ],
)
def test_what_is_refused(changes: dict[str, list[float]], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        Record(**({"name": "x", "data": b"ab", "boundary": [0, 1]} | changes))  # type: ignore[arg-type]


def test_arrays_are_copied_and_fixed(record: Callable[..., Record]) -> None:
    boundary = np.array([False, True])
    made = Record("x", b"ab", boundary)
    boundary[0] = True
    assert made.boundary.tolist() == [False, True]
    with pytest.raises(ValueError, match="read-only"):
        made.boundary[0] = True


def test_equality_and_hash(record: Callable[..., Record]) -> None:
    assert record(b"abc") == record(b"abc")
    assert hash(record(b"abc")) == hash(record(b"abc"))
    assert record(b"abc") != record(b"abc", 2)
    assert record(b"abc") != "abc"


def test_importing_it_loads_no_torch() -> None:
    code = "import byteseam.inspect, sys; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
