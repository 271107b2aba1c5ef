"""Text out of what archives hold: sections of books, prose of HTML pages, genomes, tagged words; pure functions."""

import re
from collections.abc import Callable, Iterator
from html.parser import HTMLParser
from typing import NamedTuple

SECTION_BYTES = 16_000
"""A long text is cut into documents of at most this size, so that a split by document has many to choose from."""

_PARAGRAPH_END = re.compile(rb"\n[ \t\r]*\n\s*")
_VOID = frozenset(
    ["area", "base", "br", "col", "embed", "hr", "img", "input", "link", "meta", "source", "track", "wbr"]
)
_PARAGRAPHS = frozenset(
    ["blockquote", "div", "dl", "h1", "h2", "h3", "h4", "h5", "h6", "ol", "p", "pre", "table", "ul"]
)
_LINES = frozenset(["br", "dd", "dt", "li", "tr"])
_UNSEEN = frozenset(["head", "script", "style"])


def sections(text: bytes, limit: int = SECTION_BYTES) -> Iterator[bytes]:
    """Cut a text into pieces of at most ``limit`` bytes, which joined give the text again.

    The cut is after the last paragraph that fits; if one paragraph alone is too long, after its last line that fits; if
    one line alone is too long, between two UTF-8 characters.
    """
    start = 0
    while len(text) - start > limit:
        window = text[start : start + limit]
        size = max((match.end() for match in _PARAGRAPH_END.finditer(window)), default=window.rfind(b"\n") + 1)
        if not size:
            size = limit
            # Step back from the middle of a character; four continuation bytes in a row are no UTF-8, so cut anyway.
            while limit - size < 4 and size > 1 and text[start + size] & 0xC0 == 0x80:
                size -= 1
        yield text[start : start + size]
        start += size
    if start < len(text):
        yield text[start:]


def html_text(page: str, unseen: Callable[[dict[str, str | None]], bool] = lambda attributes: False) -> str:
    """The text of an HTML page: paragraphs apart by a blank line, items and rows by a line feed, ``pre`` as it is.

    Elements whose attributes ``unseen`` accepts are left out with all that they hold (navigation, banners).
    """
    parser = _Text(unseen)
    parser.feed(page)
    parser.close()
    text = re.sub(r"[ \t]*\n[ \t]*(?=\n)|[ \t]+(?=\n)", "\n", "".join(parser.pieces).replace("\r", ""))
    return re.sub(r"\n{3,}", "\n\n", text).strip("\n") + "\n"


class _Text(HTMLParser):
    def __init__(self, unseen: Callable[[dict[str, str | None]], bool]) -> None:
        super().__init__()
        self.pieces: list[str] = []
        self._unseen = unseen
        self._hidden_depth = 0  # open elements from the outermost one that is left out
        self._pre_depth = 0

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        if tag in _VOID:
            self._break(tag)
        elif self._hidden_depth or tag in _UNSEEN or self._unseen(dict(attrs)):
            self._hidden_depth += 1
        else:
            self._break(tag)
            self._pre_depth += tag == "pre"

    def handle_endtag(self, tag: str) -> None:
        if tag in _VOID:
            return
        if self._hidden_depth:
            self._hidden_depth -= 1
        else:
            self._pre_depth -= tag == "pre" and self._pre_depth > 0
            self._break(tag)

    def handle_data(self, data: str) -> None:
        if self._hidden_depth:
            return
        if not self._pre_depth:
            data = re.sub(r"[ \t\r\n\f]+", " ", data)  # not \s: no-break and ideographic spaces are text
            if not self.pieces or self.pieces[-1].endswith(("\n", " ")):
                data = data.lstrip(" ")
        if data:
            self.pieces.append(data)

    def _break(self, tag: str) -> None:
        if not self._hidden_depth and (tag in _PARAGRAPHS or tag in _LINES):
            self.pieces.append("\n\n" if tag in _PARAGRAPHS else "\n")


def fasta_records(text: bytes) -> Iterator[tuple[str, bytes]]:
    """(name, sequence in capitals) of every record; the name is the first word of the header."""
    for record in text.split(b">")[1:]:
        header, _, lines = record.partition(b"\n")
        words = header.split()
        yield (words[0].decode("ascii", "replace") if words else ""), b"".join(lines.split()).upper()


class GoldText(NamedTuple):
    """A text whose word boundaries are known."""

    name: str
    text: bytes
    word_ends: list[int]
    """Byte offsets just after every word, rising; the last is the length. A line feed is a word of its own."""


def tagged_words(lines: bytes, limit: int = SECTION_BYTES) -> Iterator[GoldText]:
    """Texts with gold words out of lines of ``word/tag  word/tag``; several lines a text, as many as fit in ``limit``.

    The words of a line are written without spaces, as the language does, with a line feed at the end.
    """
    text, ends, number = bytearray(), list[int](), 0
    for line in lines.splitlines():
        words = [word for token in line.split() if (word := token.rpartition(b"/")[0] or token)]
        if not words:
            continue
        if text and len(text) + sum(map(len, words)) + 1 > limit:
            yield GoldText(str(number), bytes(text), ends)
            text, ends, number = bytearray(), [], number + 1
        for word in [*words, b"\n"]:
            text += word
            ends.append(len(text))
    if text:
        yield GoldText(str(number), bytes(text), ends)
