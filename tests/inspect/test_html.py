import json
from collections.abc import Callable
from html.parser import HTMLParser

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from byteseam.inspect import Record, render_html
from byteseam.text import visible

VOID = {"meta", "wbr"}


class Page(HTMLParser):
    """Checks that tags nest, and collects the text of each ``pre``, its tokens, and every attribute."""

    def __init__(self, source: str) -> None:
        super().__init__(convert_charrefs=True)
        self.open: list[str] = []
        self.tags: set[str] = set()
        self.texts: list[str] = []
        self.tokens: list[dict[str, str | None]] = []
        self.words: list[str] = []
        self.feed(source)
        self.close()
        assert not self.open

    def handle_starttag(self, tag: str, attributes: list[tuple[str, str | None]]) -> None:
        self.tags.add(tag)
        names = [name for name, _ in attributes]
        assert len(set(names)) == len(names)
        assert not any(name.startswith("on") or name in ("src", "href") for name in names)
        if tag not in VOID:
            self.open.append(tag)
        if tag == "pre":
            self.texts.append("")
        if tag == "span" and "pre" in self.open:
            self.tokens.append(dict(attributes))

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_comment(self, data: str) -> None:
        raise AssertionError(data)

    def handle_data(self, data: str) -> None:
        if "pre" in self.open:
            self.texts[-1] += data
        self.words.append(data)


def test_hostile_text_stays_text(record: Callable[..., Record], hostile: bytes) -> None:
    for every in (1, 2, 3, 7, 1000):
        page = Page(render_html([record(hostile, every)], "x"))
        assert "script" not in page.tags
        assert page.texts == ["".join(visible(span.data) for span in record(hostile, every).spans())]


def test_hostile_names_and_titles_stay_text(record: Callable[..., Record], hostile: bytes) -> None:
    name = hostile.decode("utf-8", "surrogateescape") + "\ud800"
    source = render_html([record(b"abc", name=name)], name)
    page = Page(source)
    assert "script" not in page.tags
    assert "\u202e" not in source
    assert "\x00" not in source
    source.encode()  # nothing that cannot be written


def test_the_page_needs_nothing_else(record: Callable[..., Record]) -> None:
    source = render_html([record(b"http://example.org/ <img src=x>")], "x")
    assert "default-src 'none'" in source
    page = Page(source)
    assert not page.tags & {"script", "img", "link", "iframe", "object", "form", "a", "svg"}
    style = source[source.index("<style>") : source.index("</style>")]
    assert "url(" not in style
    assert "@import" not in style
    assert "prefers-color-scheme:dark" in style


@given(st.lists(st.binary(max_size=30) | st.text(max_size=10).map(str.encode), max_size=3), st.integers(0, 2**30 - 1))
def test_any_bytes_parse_and_come_back(texts: list[bytes], bits: int) -> None:
    made = [Record("x", data, [bool(bits >> at & 1) for at in range(len(data))]) for data in texts]
    page = Page(render_html(made, "x"))
    assert page.texts == ["".join(visible(span.data) for span in one.spans()) for one in made]
    assert len(page.tokens) == sum(len(one.spans()) for one in made)


def test_hover_and_shade_worked_by_hand() -> None:
    data = "to é".encode()
    page = Page(render_html([Record("x", data, [0, 0, 1, 1, 0], [0, 0, 0.875, 0.5, 0], [1, 1, 0.5, 2, 3])], "x"))
    assert [token["title"] for token in page.tokens] == [
        "bytes 0 to 2\n74 6f 20\nprobability 0.8750\nnll 2.500 nats",
        "byte 3\nc3\nends inside a character\nprobability 0.5000\nnll 2.000 nats",
        "byte 4\na9\nopen: no boundary ends it\nnll 3.000 nats",
    ]
    assert [token["style"] for token in page.tokens] == ["--p:0.875", "--p:0.5", "--p:0.6"]
    assert [token["class"] for token in page.tokens] == ["t a", "t b cut", "t a o"]


def test_the_header_has_the_numbers(record: Callable[..., Record]) -> None:
    words = " ".join(Page(render_html([record(b"abcdefghi", 3)], "A title")).words)
    for expected in ("A title", "bytes per token 3.000", "bits per byte ", "boundaries by sample", "tokens 3"):
        assert expected in words
    words = " ".join(Page(render_html([record(b"abc", known=False)], "x")).words)
    assert "bits per byte" not in words
    assert "boundaries by" not in words


def test_right_to_left_text_reads_from_the_right(record: Callable[..., Record]) -> None:
    assert '<pre dir="rtl">' in render_html([record("שלום".encode(), 8)], "x")
    assert '<pre dir="ltr">' in render_html([record(b"abc")], "x")


def test_no_records_and_an_empty_text(record: Callable[..., Record]) -> None:
    assert Page(render_html([], "x")).texts == []
    assert Page(render_html([record(b"")], "x")).texts == [""]


@pytest.mark.parametrize("value", [0x00, 0x20, 0x54, 0xFF])
def test_a_token_of_a_hundred_thousand_bytes(record: Callable[..., Record], value: int) -> None:
    data = bytes([value]) * 100_000
    source = render_html([record(data, 10**9)], "x")
    assert len(source) < 10 * len(data)
    assert Page(source).texts == [visible(data)]
    assert len(json.dumps(Page(source).tokens)) < 400


def test_what_a_boundary_is_worth_worked_by_hand() -> None:
    data = "a <é".encode()
    worth = [0.5, -0.25, 0.0, 0.125, -1.0]
    record = Record("x", data, [0, 1, 0, 0, 0], advantage_nats=worth, advantage_error_nats=[0.1] * 5)
    page = Page(render_html([record], "x"))
    assert page.texts == [visible(data[:2]) + visible(data[2:]), "a·<é"]
    shown = page.tokens[-4:]
    assert [token["class"] for token in shown] == ["w a", "w b k", "w b", "w b"]
    largest = float(np.quantile(np.abs(worth), 0.98))
    shades = [float((token["style"] or "").removeprefix("--p:")) for token in shown]
    assert shades == [round(0.5 / largest, 3), round(0.25 / largest, 3), 0.0, 1.0]
    assert shown[1]["title"] == "byte 1: -0.2500 ± 0.1000 nats; a boundary"
    assert shown[3]["title"] == (
        "byte 3: +0.1250 ± 0.1000 nats; no boundary\nbyte 4: -1.0000 ± 0.1000 nats; no boundary"
    )
    bare = Record("x", data, [0] * 5, advantage_nats=[0.0] * 5)
    assert Page(render_html([bare], "x")).tokens[-1]["title"].startswith("byte 3: +0.0000 nats")


def test_worths_of_hostile_text_stay_text(hostile: bytes) -> None:
    worth = [(-1) ** place * place for place in range(len(hostile))]
    page = Page(render_html([Record("x", hostile, [0] * len(hostile), advantage_nats=worth)], "x"))
    assert "script" not in page.tags
    assert page.texts[1] == visible(hostile)
