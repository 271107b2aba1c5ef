"""What a source yields: documents, and the names of what had to be left out."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass

CHUNK_BYTES = 1 << 20
"""How much of a document is in memory at a time."""

Progress = Callable[[int, int | None], None]
"""Called with the bytes done so far and the bytes expected (``None``: unknown; approximate for some sources)."""


class DocumentUnreadableError(Exception):
    """A document broke off while it was read. The message is the reason; the document is left out and counted."""


@dataclass(frozen=True, slots=True)
class Document:
    """Bytes that belong together: a file, a record, a section of a book."""

    name: str
    """Where it came from, for messages: a path, ``file:line``, ``archive/member``."""
    data: bytes | Callable[[], Iterator[bytes]]
    """The content, or a function that opens it and yields it in chunks of at most `CHUNK_BYTES`."""

    def chunks(self) -> Iterator[bytes]:
        """The content, piece by piece.

        Raises:
            DocumentUnreadableError: it cannot be opened or read to its end.
        """
        if not isinstance(self.data, bytes):
            yield from self.data()
            return
        for start in range(0, len(self.data), CHUNK_BYTES):
            yield self.data[start : start + CHUNK_BYTES]


@dataclass(frozen=True, slots=True)
class Malformed:
    """A record that should have held text and does not."""

    name: str
    reason: str


@dataclass(frozen=True, slots=True)
class Skipped:
    """A file that was passed over: hidden, unreadable, or not a regular file."""

    name: str
    reason: str


Item = Document | Malformed | Skipped


@dataclass(frozen=True, slots=True)
class Source:
    """Where documents come from. Iterating reads them in a fixed order, in bounded memory."""

    name: str
    """As the user wrote it."""
    description: Callable[[], str]
    """One line for the manifest: what it is and, where known, its licence and version. Asked for after reading."""
    items: Callable[[], Iterator[Item]]
    total_bytes: Callable[[], int | None]
    """Bytes to expect, for progress; ``None``: unknown."""
    identity: Callable[[], str | None]
    """Changes when the content does (sizes and times of files, checksum of an archive); ``None``: cannot be told."""

    def __iter__(self) -> Iterator[Item]:
        return self.items()


def one_line(error: object, limit: int = 300) -> str:
    """The text of an error on one line, shortened to ``limit`` characters; its type's name if it has no text."""
    if isinstance(error, OSError) and error.strerror:
        return error.strerror
    text = " ".join(str(error).split()) or type(error).__name__
    return text if len(text) <= limit else text[: limit - 3] + "..."
