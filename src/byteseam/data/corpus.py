"""`Corpus`: one split of a prepared corpus, memory-mapped."""

from collections.abc import Sequence
from functools import cached_property
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from byteseam.data.archives import file_sha256
from byteseam.data.documents import one_line
from byteseam.data.manifest import Manifest, Shard, Split, read_manifest
from byteseam.errors import UserError


class Corpus:
    """Documents of bytes, read from disk as they are used.

    Two orders of positions run through all documents, end to end: *bytes*, and *targets*, where every document is
    followed by its mark and so has one more. Memory: 16 bytes a document; the bytes themselves stay on disk.
    """

    def __init__(self, directory: Path, split: Split, manifest: Manifest) -> None:
        self.directory = directory
        self.split: Split = split
        self.manifest = manifest
        self._shards: list[NDArray[np.uint8]] = []
        starts = [np.zeros(1, np.int64)]
        total = 0
        for shard in manifest.shards(split):
            data, offsets = _open_shard(directory, shard)
            self._shards.append(data)
            starts.append(offsets[1:] + total)
            total += shard.bytes
        self.byte_starts: NDArray[np.int64] = np.concatenate(starts)
        """int64 [documents + 1], where each document starts among the bytes; the last is their number."""
        self._shard_starts = np.cumsum([0, *(len(data) for data in self._shards)])
        if not len(self):
            raise UserError(f"the {split} split of '{directory}' has no documents: prepare it again")

    @classmethod
    def open(cls, directory: Path | str, split: Split = "train") -> "Corpus":
        """Open a split of a prepared corpus. Sizes are checked, checksums are not (`verify`).

        Raises:
            UserError: it is no prepared corpus, of a newer format, or a file is missing, truncated or damaged.
        """
        directory = Path(directory)
        return cls(directory, split, read_manifest(directory))

    @classmethod
    def of(cls, documents: Sequence[bytes]) -> "Corpus":
        """Documents at hand as a corpus, in memory; it has no directory and no manifest."""
        corpus = cls.__new__(cls)
        corpus._shards = [np.frombuffer(b"".join(documents), np.uint8)]
        corpus.byte_starts = np.cumsum([0, *map(len, documents)], dtype=np.int64)
        corpus._shard_starts = np.array([0, corpus.byte_starts[-1]])
        return corpus

    def __len__(self) -> int:
        """Documents."""
        return len(self.byte_starts) - 1

    @property
    def total_bytes(self) -> int:
        """Bytes of all documents, marks not counted."""
        return int(self.byte_starts[-1])

    @property
    def total_targets(self) -> int:
        """Bytes and one mark a document."""
        return self.total_bytes + len(self)

    @cached_property
    def target_starts(self) -> NDArray[np.int64]:
        """int64 [documents + 1], where each document starts among the targets; the last is their number."""
        return self.byte_starts + np.arange(len(self.byte_starts))

    def document(self, index: int) -> NDArray[np.uint8]:
        """The bytes of a document, as a view of the file.

        Raises:
            IndexError: there is no document of that number.
        """
        if not 0 <= index < len(self):
            raise IndexError(f"document {index} of {len(self)}")
        start, stop = self.byte_starts[index], self.byte_starts[index + 1]
        shard = np.searchsorted(self._shard_starts, start, "right") - 1
        base = self._shard_starts[shard]
        return self._shards[shard][start - base : stop - base]

    def take(self, positions: NDArray[np.int64]) -> NDArray[np.uint8]:
        """The bytes at some positions, in an array of the same shape."""
        if len(self._shards) == 1:
            return self._shards[0][positions]
        owners = np.searchsorted(self._shard_starts, positions, "right") - 1
        taken = np.empty(positions.shape, np.uint8)
        for shard in np.unique(owners):
            here = owners == shard
            taken[here] = self._shards[shard][positions[here] - self._shard_starts[shard]]
        return taken

    def verify(self) -> None:
        """Read every file of the split and compare its checksum with the manifest's.

        Raises:
            UserError: a file has changed.
        """
        for shard in self.manifest.shards(self.split):
            for name, expected in ((shard.file, shard.sha256), (shard.offsets, shard.offsets_sha256)):
                if file_sha256(self.directory / name) != expected:
                    raise UserError(f"'{self.directory / name}' is not what was prepared (checksum): prepare it again")


def _open_shard(directory: Path, shard: Shard) -> tuple[NDArray[np.uint8], NDArray[np.int64]]:
    path, offsets_path = directory / shard.file, directory / shard.offsets
    try:
        size = path.stat().st_size
        if size != shard.bytes:
            raise UserError(f"'{path}' has {size} bytes instead of {shard.bytes}: prepare the corpus again")
        offsets = np.load(offsets_path, allow_pickle=False)
        # A plain array over the map: indexing a np.memmap builds a subclass each time, which costs.
        data = np.asarray(np.memmap(path, np.uint8, "r")) if size else np.zeros(0, np.uint8)
    except (ValueError, EOFError) as error:
        raise UserError(f"'{offsets_path}' is damaged ({one_line(error, 80)}): prepare the corpus again") from error
    except OSError as error:
        raise UserError(f"cannot read '{error.filename or path}': {one_line(error)}") from error
    fits = (
        isinstance(offsets, np.ndarray)
        and offsets.dtype == np.int64
        and offsets.shape == (shard.documents + 1,)
        and offsets[0] == 0
        and offsets[-1] == size
        and bool((offsets[1:] > offsets[:-1]).all())
    )
    if not fits:
        raise UserError(f"'{offsets_path}' does not fit its data file: prepare the corpus again")
    return data, offsets
