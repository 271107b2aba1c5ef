"""The record of a prepared corpus, ``manifest.json``: what was read, how it was split, the files and their checksums.

Layout of a prepared corpus, format 1, for the splits ``train`` and ``validation``::

    manifest.json
    train-00000.bin           the bytes of the documents, end to end
    train-00000.offsets.npy   int64 [documents + 1]: where each document starts in that file; the last is its size
    train-00001.bin ...       a document never crosses files

The same source and settings give the same files, byte for byte.
"""

import hashlib
import json
import re
from collections.abc import Iterable
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Literal

from byteseam.data.documents import one_line
from byteseam.errors import UserError

FORMAT = 1
MANIFEST = "manifest.json"
NAMED_AT_MOST = 20
"""Of malformed and of skipped items, this many are named; all are counted."""

Split = Literal["train", "validation"]
SPLITS: tuple[Split, ...] = ("train", "validation")

_FILE_NAME = re.compile(r"\w[\w.-]*", re.ASCII)

SplitRule = Literal["document hash", "last document", "tail of the only document"]
"""How the validation split came about.

``document hash``: the documents whose hash falls below the validation fraction. ``last document``: by hash one split
would have stayed empty, so it got the last document read. ``tail of the only document``: its last bytes.
"""


@dataclass(frozen=True, slots=True)
class Shard:
    """One data file and its offsets."""

    file: str
    offsets: str
    bytes: int
    documents: int
    sha256: str
    offsets_sha256: str


@dataclass(frozen=True, slots=True)
class Omitted:
    """Items that were left out: how many, and the first of them by name with the reason."""

    count: int = 0
    named: tuple[tuple[str, str], ...] = ()

    def plus(self, name: str, reason: str) -> "Omitted":
        """With one more."""
        named = (*self.named, (name, reason)) if self.count < NAMED_AT_MOST else self.named
        return Omitted(self.count + 1, named)


@dataclass(frozen=True, slots=True)
class Manifest:
    """What a prepared corpus says about itself."""

    source: str
    description: str
    validation_fraction: float
    split_rule: SplitRule
    train: tuple[Shard, ...]
    validation: tuple[Shard, ...]
    malformed: Omitted = field(default_factory=Omitted)
    """Records that held no text."""
    skipped: Omitted = field(default_factory=Omitted)
    """Files passed over: hidden, unreadable, not regular."""
    empty: int = 0
    """Documents without a byte, left out."""

    def shards(self, split: Split) -> tuple[Shard, ...]:
        """The files of a split."""
        return self.train if split == "train" else self.validation

    def documents(self, split: Split) -> int:
        """Documents of a split."""
        return sum(shard.documents for shard in self.shards(split))

    def bytes(self, split: Split) -> int:
        """Bytes of a split."""
        return sum(shard.bytes for shard in self.shards(split))

    @property
    def fingerprint(self) -> str:
        """A hash of all the data, in hexadecimal: equal for equal documents in equal splits and order."""
        sums = [(shard.sha256, shard.offsets_sha256) for split in SPLITS for shard in self.shards(split)]
        return hashlib.sha256(json.dumps(sums).encode()).hexdigest()

    def summary(self) -> dict[str, Any]:
        """The manifest without its files, for people and ``--json``."""
        record = {**asdict(self), "fingerprint": self.fingerprint}
        for split in SPLITS:
            record[split] = {"documents": self.documents(split), "bytes": self.bytes(split)}
        return record


def write_manifest(manifest: Manifest, directory: Path) -> None:
    """Write ``manifest.json``; OSError passes through."""
    record = {"format": FORMAT, **asdict(manifest)}
    (directory / MANIFEST).write_text(json.dumps(record, indent=1) + "\n", encoding="ascii")


def is_prepared(directory: Path) -> bool:
    """True if the directory holds a prepared corpus."""
    return (directory / MANIFEST).is_file()


def read_manifest(directory: Path) -> Manifest:
    """The manifest of a prepared corpus.

    Raises:
        UserError: there is none, it is damaged, or a newer byteseam wrote it.
    """
    path = directory / MANIFEST
    try:
        record = json.loads(path.read_bytes())
    except FileNotFoundError as error:
        raise UserError(
            f"'{directory}' is no prepared corpus (it has no {MANIFEST}): make one with byteseam prepare"
        ) from error
    except OSError as error:
        raise UserError(f"cannot read '{path}': {one_line(error)}") from error
    except (ValueError, RecursionError) as error:
        raise _damaged(path, "it is not JSON") from error
    version = record.get("format") if isinstance(record, dict) else None
    if isinstance(version, int) and version > FORMAT:
        raise UserError(
            f"'{path}' has format {version}, newer than {FORMAT}, which this byteseam reads: upgrade byteseam"
        )
    if version != FORMAT:
        raise _damaged(path, "it has no known format")
    try:
        return _parse(record)
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise _damaged(path, f"{type(error).__name__}: {one_line(error, 80)}") from error


def _damaged(path: Path, why: str) -> UserError:
    return UserError(f"'{path}' is damaged ({why}): prepare the corpus again")


def _parse(record: dict[str, Any]) -> Manifest:
    if record["split_rule"] not in ("document hash", "last document", "tail of the only document"):
        raise ValueError("an unknown split_rule")
    return Manifest(
        source=str(record["source"]),
        description=str(record["description"]),
        validation_fraction=float(record["validation_fraction"]),
        split_rule=record["split_rule"],
        train=tuple(map(_shard, record["train"])),
        validation=tuple(map(_shard, record["validation"])),
        malformed=_omitted(record["malformed"]),
        skipped=_omitted(record["skipped"]),
        empty=int(record["empty"]),
    )


def _shard(record: dict[str, Any]) -> Shard:
    for name in (record["file"], record["offsets"]):
        # A manifest may come from a stranger: it names files beside itself, nothing else.
        if not isinstance(name, str) or not _FILE_NAME.fullmatch(name):
            raise ValueError(f"a shard may not be named {name!r}")
    for count in (record["bytes"], record["documents"]):
        if type(count) is not int or count < 1:
            raise ValueError("a shard has at least one byte and one document")
    return Shard(**record)


def _omitted(record: dict[str, Any]) -> Omitted:
    named: Iterable[Any] = record["named"]
    return Omitted(int(record["count"]), tuple((str(name), str(reason)) for name, reason in named))
