import io
import re
from collections.abc import Callable
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from byteseam.inspect import Record, colour_mode, legend, render_terminal
from byteseam.inspect.layout import FEWEST_COLUMNS
from byteseam.text import glyphs, visible

SGR = re.compile(r"\x1b\[[0-9;]*m")
texts = st.binary(max_size=60) | st.text(max_size=40).map(str.encode) | st.text("ab \n", max_size=60).map(str.encode)


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def shown(record: Record) -> str:
    """Every token's bytes made visible, without the line feeds."""
    return "".join(visible(span.data).replace("\n", "") for span in record.spans())


def test_without_colour_worked_by_hand() -> None:
    data = b"to be\n\tor\xff"
    record = Record("x", data, [0, 0, 1, 0, 1, 1, 0, 0, 0, 0])
    assert render_terminal(record, colour="none", width=40) == "to·│be│↵│\n→or⟨ff⟩"
    closed = Record("x", data, [0, 0, 1, 0, 1, 1, 0, 0, 0, 1])
    assert render_terminal(closed, colour="none", width=40) == "to·│be│↵│\n→or⟨ff⟩│"


def test_true_colour_worked_by_hand() -> None:
    answer = render_terminal(Record("x", b"a b", [1, 1, 0]), colour="truecolor", width=40)
    assert answer == (
        "\x1b[38;2;27;31;36m\x1b[48;2;207;227;255ma\x1b[38;2;134;142;150m\x1b[48;2;255;226;174m·\x1b[0m\x1b[4mb\x1b[0m"
    )


def test_256_colours_use_no_others(record: Callable[..., Record]) -> None:
    answer = render_terminal(record(b"some text of tokens\xff", 2), colour="256", width=40)
    assert set(SGR.findall(answer)) <= {
        *(f"\x1b[48;5;{colour}m" for colour in (153, 223, 157, 225, 189)),
        *(f"\x1b[38;5;{colour}m" for colour in (16, 244, 124)),
        "\x1b[0m",
        "\x1b[4m",
    }


@pytest.mark.parametrize("colour", ["truecolor", "256"])
def test_neighbours_differ(record: Callable[..., Record], colour: str) -> None:
    answer = render_terminal(record(b"x" * 20, 1), colour=colour, width=40)  # type: ignore[arg-type]
    backgrounds = re.findall(r"\x1b\[48;[0-9;]*m", answer)
    assert len(backgrounds) == 20
    assert all(one != other for one, other in pairwise(backgrounds))


def test_hostile_text_sends_no_command(record: Callable[..., Record], hostile: bytes) -> None:
    for every in (1, 2, 3, 7, 1000):
        plain = render_terminal(record(hostile, every), colour="none", width=60)
        assert "\x1b" not in plain
        coloured = SGR.sub("", render_terminal(record(hostile, every), colour="truecolor", width=60))
        for answer in (plain, coloured):
            assert all(c == "\n" or c.isprintable() for c in answer)


@given(texts, st.integers(0, 2**60 - 1), st.integers(1, 50))
def test_any_bytes_in_any_width(data: bytes, bits: int, width: int) -> None:
    record = Record("x", data, [bool(bits >> at & 1) for at in range(len(data))])
    plain = render_terminal(record, colour="none", width=width)
    coloured = render_terminal(record, colour="truecolor", width=width)
    assert "\x1b" not in plain
    assert plain.replace("\n", "").count("│") == record.boundary.sum()
    assert plain.replace("\n", "").replace("│", "") == shown(record)
    assert SGR.sub("", coloured).replace("\n", "") == shown(record)
    lines = coloured.split("\n") if data else []
    for line in lines:
        assert line.startswith("\x1b[")
        assert line.endswith("\x1b[0m")
    for line in [SGR.sub("", line) for line in lines] + plain.split("\n"):
        assert columns(line) <= max(width, FEWEST_COLUMNS)


def columns(line: str) -> int:
    """Columns of a shown line: its own symbols take one, everything else what the glyph says."""
    own = re.sub(r"[·↵→⟨⟩│]", "x", line)
    return sum(glyph.cells if glyph.kind != "escape" else 1 for glyph in glyphs(own.encode()))


def test_lines_break_after_white_space_then_between_tokens_then_anywhere() -> None:
    def rows(data: bytes, *ends: int) -> list[str]:
        boundary = [at in ends for at in range(len(data))]
        return SGR.sub("", render_terminal(Record("x", data, boundary), colour="256", width=12)).split("\n")

    assert rows(b"abcdefgh ijklmno") == ["abcdefgh·", "ijklmno"]
    assert rows(b"abcdefghijklmno", 9) == ["abcdefghij", "klmno"]
    assert rows(b"abcdefghijklmno") == ["abcdefghijkl", "mno"]
    assert rows(b"abcdefghijkl") == ["abcdefghijkl"]
    assert rows(b"abcdefghijkl\n") == ["abcdefghijkl", "↵"]
    assert rows("你好你好你好你".encode()) == ["你好你好你好", "你"]


@pytest.mark.parametrize(
    ("environ", "terminal", "expected"),
    [
        ({"TERM": "xterm-256color"}, True, "256"),
        ({"TERM": "xterm-256color"}, False, "none"),
        ({"TERM": "xterm-256color", "COLORTERM": "truecolor"}, True, "truecolor"),
        ({"TERM": "xterm", "COLORTERM": "24bit"}, True, "truecolor"),
        ({"TERM": "xterm-direct"}, True, "truecolor"),
        ({"TERM": "dumb", "COLORTERM": "truecolor"}, True, "none"),
        ({}, True, "none"),
        ({"WT_SESSION": "1"}, True, "truecolor"),
        ({"TERM": "xterm", "NO_COLOR": "1"}, True, "none"),
        ({"TERM": "xterm", "NO_COLOR": ""}, True, "256"),
        ({"NO_COLOR": "1", "FORCE_COLOR": "3"}, True, "none"),
        ({"FORCE_COLOR": "1"}, False, "256"),
        ({"FORCE_COLOR": "3", "TERM": "dumb"}, False, "truecolor"),
        ({"FORCE_COLOR": "true", "COLORTERM": "truecolor"}, False, "truecolor"),
        ({"FORCE_COLOR": "0", "TERM": "xterm"}, True, "none"),
        ({"FORCE_COLOR": "", "TERM": "xterm"}, True, "256"),
    ],
)
def test_colour_mode(environ: dict[str, str], terminal: bool, expected: str) -> None:
    assert colour_mode(stream=Terminal() if terminal else io.StringIO(), environ=environ) == expected


def test_auto_asks_the_environment(record: Callable[..., Record], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("NO_COLOR", raising=False)
    monkeypatch.setenv("FORCE_COLOR", "3")
    monkeypatch.setenv("COLUMNS", "20")
    answer = render_terminal(record(b"x" * 50, 50))
    assert answer == render_terminal(record(b"x" * 50, 50), colour="truecolor", width=20)
    assert "underlined" in legend()
    monkeypatch.setenv("NO_COLOR", "1")
    assert "\x1b" not in render_terminal(record(b"x" * 50))
    assert "│ ends a token" in legend()


def test_an_empty_text_is_an_empty_answer(record: Callable[..., Record]) -> None:
    assert render_terminal(record(b""), colour="256", width=40) == ""
    assert render_terminal(record(b""), colour="none", width=40) == ""


def test_a_megabyte_of_one_byte(record: Callable[..., Record]) -> None:
    answer = render_terminal(record(b"T" * 1_000_000, 10**9), colour="256", width=80)
    assert answer.count("\n") == 12_499
