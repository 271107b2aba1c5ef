import pytest
from hypothesis import given
from hypothesis import strategies as st

from byteseam.data.text import fasta_records, html_text, sections, tagged_words


@given(st.lists(st.sampled_from([b"a", b"bc ", b"\n", b"\n\n", b"\n \n", "é".encode(), "❤".encode(), b"\x80"])))
def test_sections_join_to_the_text_and_fit(parts):
    text = b"".join(parts)
    pieces = list(sections(text, 10))
    assert b"".join(pieces) == text
    assert all(0 < len(piece) <= 10 for piece in pieces)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (b"aa\n\nbb\n\ncc\ndd", [b"aa\n\nbb\n\n", b"cc\ndd"]),  # after the last paragraph that fits
        (b"aa\n \t\nbb\ncc\ndd\nee", [b"aa\n \t\n", b"bb\ncc\ndd\n", b"ee"]),  # a blank line may hold spaces
        (b"aaa\nbbb\nccc\n", [b"aaa\nbbb\n", b"ccc\n"]),  # else after the last line
        ("éééééé".encode(), ["ééééé".encode(), "é".encode()]),
        (b"a" + "éééééé".encode(), [b"a" + "éééé".encode(), "éé".encode()]),  # never inside a character
        (b"\x80" * 12, [b"\x80" * 6, b"\x80" * 6]),
        (b"", []),
    ],
)
def test_sections_cut_at_the_best_place(text, expected):
    pieces = list(sections(text, 10))
    if text == b"\x80" * 12:  # no UTF-8 at all: anywhere will do
        assert b"".join(pieces) == text
    else:
        assert pieces == expected


def test_valid_text_stays_valid():
    text = "日本語のテキスト" * 100
    for piece in sections(text.encode(), 100):
        piece.decode()


def test_html_becomes_paragraphs():
    page = """<?xml version="1.0"?><html><head><title>No</title><style>p {}</style></head><body>
    <ul class="docnav"><li>Back <br/> <a href="x">to</a></li></ul><img src="x"/>
    <h1>A   title</h1><p>One &amp; <em>two</em>,<br>three.</p>
    <ul><li>x</li><li>y</li></ul><pre>  a
      b</pre><div>caf&eacute;&nbsp;!</div><script>no()</script></body></html>"""
    text = html_text(page, lambda attributes: attributes.get("class") == "docnav")
    assert text == "A title\n\nOne & two,\nthree.\n\nx\n\ny\n\n  a\n      b\n\ncafé\xa0!\n"


def test_html_of_strangers_does_not_break():
    assert html_text("</div></p>a</pre><pre>b") == "a\n\nb\n"
    assert html_text("") == "\n"


def test_fasta_records_are_joined_and_capital():
    assert list(fasta_records(b">one x|y\nacGT\nNN\r\n>two\n\n>\nA")) == [("one", b"ACGTNN"), ("two", b""), ("", b"A")]
    assert list(fasta_records(b"")) == []


def test_tagged_words_keep_their_ends():
    (gold,) = tagged_words("迈向/v  的/u  a/b/w\n\n。/w\n".encode())
    assert gold.text == "迈向的a/b\n。\n".encode()
    assert gold.word_ends == [6, 9, 12, 13, 16, 17]
    words = [gold.text[a:b].decode() for a, b in zip([0, *gold.word_ends], gold.word_ends, strict=False)]
    assert words == ["迈向", "的", "a/b", "\n", "。", "\n"]


def test_tagged_words_are_cut_between_lines():
    texts = list(tagged_words(b"ab/x cd/y\n" * 10, limit=12))
    assert [text.text for text in texts] == [b"abcd\nabcd\n"] * 5
    assert [text.name for text in texts] == list("01234")
    assert all(text.word_ends == [2, 4, 5, 7, 9, 10] for text in texts)
