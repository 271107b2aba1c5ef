"""`ShardWriter`: the data files of one split while they are written."""

import contextlib
import hashlib
import os
from array import array
from pathlib import Path
from typing import BinaryIO

import numpy as np

from byteseam.data.archives import file_sha256
from byteseam.data.documents import CHUNK_BYTES
from byteseam.data.manifest import Shard


class ShardWriter:
    """Appends documents, a document in one shard, and takes the last one back where it turns out to belong elsewhere.

    Memory: eight bytes a document of the shard that is open. Every method may raise OSError.
    """

    def __init__(self, directory: Path, split: str, shard_bytes: int) -> None:
        self.documents = 0
        """Ended so far, in all shards."""
        self.document_bytes = 0
        """Of the document that was begun last."""
        self._directory, self._split, self._shard_bytes = directory, split, shard_bytes
        self._closed: list[Shard] = []
        self._file: BinaryIO | None = None
        self._offsets = array("q", [0])
        self._digest = hashlib.sha256()
        self._mark()

    @property
    def last_bytes(self) -> int:
        """Size of the document that ended last and is still here."""
        self._reopen_if_bare()
        return self._offsets[-1] - self._offsets[-2]

    def begin(self) -> None:
        """Start a document; in a new shard if the open one is full."""
        if self._file is not None and self._offsets[-1] >= self._shard_bytes:
            self._close_shard()
        if self._file is None:
            self._file = (self._directory / f"{self._stem}.bin").open("w+b", buffering=CHUNK_BYTES)
            self._offsets, self._digest = array("q", [0]), hashlib.sha256()
        self._mark()
        self.document_bytes = 0

    def write(self, chunk: bytes) -> None:
        """More bytes of the document that was begun."""
        assert self._file is not None
        self._file.write(chunk)
        self._digest.update(chunk)
        self.document_bytes += len(chunk)

    def end(self) -> None:
        """The document is complete."""
        self._offsets.append(self._offsets[-1] + self.document_bytes)
        self.documents += 1

    def discard(self) -> None:
        """Forget the document that was begun and not ended."""
        self._truncate(self._offsets[-1])

    def move_last(self, other: "ShardWriter", keep_bytes: int = 0) -> None:
        """Move the document that ended last to another writer, except for its first ``keep_bytes`` bytes."""
        self._reopen_if_bare()
        assert self._file is not None
        start = self._offsets[-2] + keep_bytes
        other.begin()
        self._file.seek(start)
        while chunk := self._file.read(CHUNK_BYTES):
            other.write(chunk)
        other.end()
        self._truncate(start)
        if keep_bytes:
            self._offsets[-1] = start
        else:
            self._offsets.pop()
            self.documents -= 1

    def read_last(self, start: int, size: int) -> bytes:
        """``size`` bytes from ``start`` of the document that ended last."""
        self._reopen_if_bare()
        assert self._file is not None
        self._file.seek(self._offsets[-2] + start)
        content = self._file.read(size)
        self._file.seek(0, os.SEEK_END)
        return content

    def finish(self) -> tuple[Shard, ...]:
        """Close the last shard; all of them."""
        if self._file is not None:
            self._close_shard()
        return tuple(self._closed)

    def abandon(self) -> None:
        """Let go of the open file, come what may: its folder is about to be removed."""
        with contextlib.suppress(OSError):  # what is still in the buffer may not fit either
            if self._file is not None:
                self._file.close()

    @property
    def _stem(self) -> str:
        return f"{self._split}-{len(self._closed):05d}"

    def _mark(self) -> None:
        """Remember the checksum of what is there, so that what comes next can be taken back."""
        self._marked, self._marked_digest = self._offsets[-1], self._digest.copy()

    def _truncate(self, size: int) -> None:
        assert self._file is not None
        self._file.seek(size)
        self._file.truncate()
        if size == self._marked:
            self._digest = self._marked_digest.copy()
        else:
            self._file.flush()
            self._digest = _sha256(self._directory / f"{self._stem}.bin")

    def _reopen_if_bare(self) -> None:
        """Go back to the shard before, if the open one has no document (the last to be begun was not kept)."""
        if self._file is None or len(self._offsets) > 1 or not self._closed:
            return
        self._file.close()
        (self._directory / f"{self._stem}.bin").unlink()
        shard = self._closed.pop()
        offsets = self._directory / shard.offsets
        self._offsets = array("q", np.load(offsets).tolist())
        offsets.unlink()
        self._digest = _sha256(self._directory / shard.file)
        self._mark()
        self._file = (self._directory / shard.file).open("r+b", buffering=CHUNK_BYTES)
        self._file.seek(0, os.SEEK_END)

    def _close_shard(self) -> None:
        assert self._file is not None
        stem = self._stem
        path, offsets_path = self._directory / f"{stem}.bin", self._directory / f"{stem}.offsets.npy"
        self._file.flush()
        os.fsync(self._file.fileno())
        self._file.close()
        self._file = None
        if len(self._offsets) == 1:  # its only document moved away
            path.unlink()
            return
        np.save(offsets_path, np.frombuffer(self._offsets, np.int64).astype("<i8"))
        size, documents = self._offsets[-1], len(self._offsets) - 1
        self._closed.append(
            Shard(path.name, offsets_path.name, size, documents, self._digest.hexdigest(), file_sha256(offsets_path))
        )


def _sha256(path: Path) -> "hashlib._Hash":
    with path.open("rb") as stream:
        return hashlib.file_digest(stream, "sha256")
