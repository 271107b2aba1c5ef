import re
import unicodedata

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from byteseam.text import Utf8Stream, direction, glyphs, is_whitespace, utf8_character_ends, visible, visible_label

# Bytes that are likely to meet in a UTF-8 decoder's corner cases, and text of every script.
awkward_bytes = st.lists(
    st.sampled_from([*(bytes([value]) for value in (0x41, 0x80, 0xBF, 0xC0, 0xC2, 0xE0, 0xED, 0xEF, 0xF0, 0xF4, 0xFF))])
    | st.binary(max_size=4)
    | st.text(max_size=4).map(str.encode)
    | st.sampled_from(["·", "↵", "→", "⟨ff⟩", "⟨U+202E⟩", "\u202e", "e\u0301", "\n", " ", "\t", "\x00"]).map(
        str.encode
    ),
    max_size=20,
).map(b"".join)


def read_back(shown: str) -> bytes:
    """The inverse of `visible`, from its description."""

    def one(match: re.Match[str]) -> bytes:
        piece = match[0]
        if piece.startswith("⟨U+"):
            return chr(int(piece[3:-1], 16)).encode()
        if piece.startswith("⟨"):
            return bytes.fromhex(piece[1:-1])
        return {"·": b" ", "↵\n": b"\n", "→": b"\t"}.get(piece, piece.encode())

    return b"".join(one(match) for match in re.finditer(r"⟨[^⟩]+⟩|↵\n|.", shown, re.DOTALL))


def ends(data: bytes) -> list[int]:
    return [int(end) for end in utf8_character_ends(np.frombuffer(data, np.uint8))]


def test_whitespace_is_the_six_ascii_bytes() -> None:
    found = np.flatnonzero(is_whitespace(np.arange(256, dtype=np.uint8)))
    assert found.tolist() == [9, 10, 11, 12, 13, 32]


@pytest.mark.parametrize(
    ("data", "expected"),
    [
        (b"", []),
        (b"a", [1]),
        ("é".encode(), [0, 1]),
        ("a€b".encode(), [1, 0, 0, 1, 1]),
        ("🙂".encode(), [0, 0, 0, 1]),
        (b"\xf0\x9f\x99", [1, 1, 1]),  # unfinished
        (b"\x80\xbf", [1, 1]),  # nothing to continue
        (b"\xc0\xaf\xe0\x80\xaf", [1] * 5),  # overlong
        (b"\xed\xa0\x80", [1] * 3),  # a surrogate
        (b"\xf4\x90\x80\x80", [1] * 4),  # above U+10FFFF
        (b"\xe2\x82\xe2\x82\xac\xff", [1, 1, 0, 0, 1, 1]),
    ],
)
def test_character_ends(data: bytes, expected: list[int]) -> None:
    assert ends(data) == expected


@given(awkward_bytes)
def test_character_ends_are_those_of_python(data: bytes) -> None:
    lengths = [len(c.encode("utf-8", "surrogateescape")) for c in data.decode("utf-8", "surrogateescape")]
    assert ends(data) == [int(at == length) for length in lengths for at in range(1, length + 1)]


def test_character_ends_are_those_of_python_after_every_pair_of_bytes() -> None:
    for first in range(0xC0, 0x100):
        data = b"".join(bytes([first, second, 0x80, 0x80, 0x41]) for second in range(256))
        lengths = [len(c.encode("utf-8", "surrogateescape")) for c in data.decode("utf-8", "surrogateescape")]
        assert np.flatnonzero(ends(data)).tolist() == (np.cumsum(lengths) - 1).tolist()


@pytest.mark.parametrize(
    ("data", "shown"),
    [
        (b"a b\x00\xff", "a·b⟨00⟩⟨ff⟩"),
        (b"\ta\r\n", "→a⟨0d⟩↵\n"),
        (b"\x1b[31m\x7f\x9b", "⟨1b⟩[31m⟨7f⟩⟨9b⟩"),
        ("\u0085\u00a0\u2028\ufeff\U000e0041".encode(), "⟨U+0085⟩⟨U+00A0⟩⟨U+2028⟩⟨U+FEFF⟩⟨U+E0041⟩"),
        ("\u202eabc\u202c\u2066\u200f".encode(), "⟨U+202E⟩abc⟨U+202C⟩⟨U+2066⟩⟨U+200F⟩"),
        ("é e\u0301 नमस्ते".encode(), "é·e\u0301·नमस्ते"),
        ("\u0301".encode(), "⟨U+0301⟩"),
        ("·⟨↵→│".encode(), "⟨U+00B7⟩⟨U+27E8⟩⟨U+21B5⟩⟨U+2192⟩⟨U+2502⟩"),
        ("🙂".encode()[:2], "⟨f0⟩⟨9f⟩"),
        (b"\xed\xa0\x80", "⟨ed⟩⟨a0⟩⟨80⟩"),
        ("\u3164\u2800\uffa0".encode(), "⟨U+3164⟩⟨U+2800⟩⟨U+FFA0⟩"),
        (b"<b>&\"'", "<b>&\"'"),
    ],
)
def test_visible(data: bytes, shown: str) -> None:
    assert visible(data) == shown


def test_a_pile_of_combining_marks_is_cut_down() -> None:
    assert visible(("a" + "\u0300" * 6).encode()) == "a" + "\u0300" * 3 + "⟨U+0300⟩" * 3


@given(awkward_bytes)
def test_visible_can_be_read_back(data: bytes) -> None:
    assert read_back(visible(data)) == data


@given(awkward_bytes)
def test_nothing_shown_is_invisible_or_reorders_the_rest(data: bytes) -> None:
    assert sum(glyph.size for glyph in glyphs(data)) == len(data)
    for glyph in glyphs(data):
        assert glyph.cells > 0
        assert all(unicodedata.category(character)[0] not in "CZ" for character in glyph.text)
        assert not unicodedata.category(glyph.text[0]).startswith("M")


def test_every_character_of_unicode_can_be_shown_and_read_back() -> None:
    categories = {code: unicodedata.category(chr(code)) for code in range(0x110000)}
    sampled = {"Cn": 499, "Co": 499, "Lo": 7}  # unassigned, private and (mostly ideographs) other letters
    every = "".join(
        chr(c) for c, category in categories.items() if category != "Cs" and c % sampled.get(category, 1) == 0
    )
    text = every.encode()
    assert len(every) > 30_000
    assert read_back(visible(text)) == text


def test_a_label_keeps_its_spaces_and_survives_what_file_names_hold() -> None:
    assert visible_label("a b\udcff\n\u202e.txt") == "a b⟨ed⟩⟨b3⟩⟨bf⟩↵⟨U+202E⟩.txt"


def test_direction_follows_the_majority() -> None:
    assert direction(b"") == direction(b"abc 1") == direction("abc שלום de".encode()) == "ltr"
    assert direction("שלום a".encode()) == direction("\xff العربية".encode()) == "rtl"


@given(st.lists(awkward_bytes, max_size=6))
def test_a_stream_of_any_chunks_gives_what_the_whole_gives(chunks: list[bytes]) -> None:
    stream = Utf8Stream()
    given_out = "".join([stream.feed(chunk) for chunk in chunks]) + stream.flush()
    assert given_out == b"".join(chunks).decode("utf-8", "replace")


@given(awkward_bytes)
def test_a_stream_byte_by_byte_never_stalls_and_gives_whole_characters(data: bytes) -> None:
    stream, text = Utf8Stream(), ""
    for count, value in enumerate(data, 1):
        text += stream.feed(bytes([value]))
        settled = data[: max(count - 3, 0)].decode("utf-8", "ignore")
        assert len(text) >= len(settled)  # at most three bytes are held back
        assert data.decode("utf-8", "replace").startswith(text)  # nothing given out is ever taken back
    assert text + stream.flush() == data.decode("utf-8", "replace")
    assert stream.flush() == ""


def test_an_emoji_comes_out_with_its_last_byte() -> None:
    stream = Utf8Stream()
    assert [stream.feed(bytes([value])) for value in "🙂!".encode()] == ["", "", "", "🙂", "!"]


def test_a_broken_character_gives_way_to_the_next_one() -> None:
    stream = Utf8Stream()
    assert [stream.feed(bytes([value])) for value in b"\xf0\x9fA\xe2\x82"] == ["", "", "\ufffdA", "", ""]
    assert stream.flush() == "\ufffd"
    assert stream.feed(b"B") == "B"
