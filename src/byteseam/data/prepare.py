"""`prepare`: any source to memory-mapped shards, in bounded memory, all or nothing."""

import contextlib
import errno
import hashlib
import os
import secrets
import shutil
from pathlib import Path

from byteseam.data.documents import Document, DocumentUnreadableError, Malformed, Progress, Skipped, Source, one_line
from byteseam.data.manifest import Manifest, Omitted, SplitRule, write_manifest
from byteseam.data.shards import ShardWriter
from byteseam.errors import UserError

SHARD_BYTES = 1 << 30
"""A data file takes no further document once it has this size."""


_Omissions = dict[type[Malformed] | type[Skipped], Omitted]


class OutputExistsError(UserError):
    """The directory to be made is there already."""


def prepare(
    source: Source,
    out: Path,
    *,
    validation_fraction: float = 0.05,
    progress: Progress | None = None,
    shard_bytes: int = SHARD_BYTES,
) -> Manifest:
    """Write the documents of ``source`` to the new directory ``out``, split into train and validation.

    A document goes to validation if its hash (blake2b of the content, as a fraction of the largest) is below
    ``validation_fraction``: the same document always goes the same way. If that leaves one split empty, the last
    document read is moved into it. A source of one document is cut: its last ``validation_fraction`` bytes, from the
    start of a UTF-8 character on, become the validation document. Empty documents are left out and counted.

    Everything is written to a hidden directory beside ``out``, which is renamed at the end; after an error or an
    interrupt nothing is left. ``progress`` is called with the document bytes read so far and those expected.

    Raises:
        OutputExistsError: ``out`` exists.
        UserError: no documents, a fraction outside (0, 1), no space, no permission.
    """
    if not 0 < validation_fraction < 1:
        raise UserError(f"the validation fraction is {validation_fraction:g}: give one above 0 and below 1")
    if os.path.lexists(out):
        raise OutputExistsError(f"'{out}' exists already: choose another directory or remove it")
    partial = out.parent / f".{out.name}.partial-{os.getpid()}-{secrets.token_hex(4)}"
    made: list[Path] = []
    try:
        made += [folder for folder in (out.parent, *out.parent.parents) if not folder.exists()]
        partial.mkdir(parents=True)
        manifest = _write(source, partial, validation_fraction, progress, shard_bytes)
        write_manifest(manifest, partial)
        _publish(partial, out)
        return manifest
    except BaseException as error:  # an interrupt too
        shutil.rmtree(partial, ignore_errors=True)
        for folder in made:
            with contextlib.suppress(OSError):
                folder.rmdir()
        if isinstance(error, OSError):
            raise UserError(_sentence(error, out)) from error
        raise


def _publish(partial: Path, out: Path) -> None:
    try:
        partial.rename(out)
    except OSError as error:
        if os.path.lexists(out):  # another process was faster
            raise OutputExistsError(f"'{out}' exists already: choose another directory or remove it") from error
        raise


def _sentence(error: OSError, out: Path) -> str:
    if error.errno in (errno.ENOSPC, errno.EDQUOT):
        return f"no space left to write '{out}': free some, or choose a directory on another disk"
    if error.errno in (errno.EACCES, errno.EPERM, errno.EROFS):
        return f"no permission to write '{out}': choose another directory"
    return f"cannot write '{out}': {one_line(error)}"


def _write(source: Source, directory: Path, fraction: float, progress: Progress | None, shard_bytes: int) -> Manifest:
    train, validation = (ShardWriter(directory, split, shard_bytes) for split in ("train", "validation"))
    omitted: _Omissions = {Malformed: Omitted(), Skipped: Omitted()}
    empty = done = 0
    total = source.total_bytes() if progress else None
    try:
        for item in source:
            if not isinstance(item, Document):
                omitted[type(item)] = omitted[type(item)].plus(item.name, item.reason)
                continue
            # It goes to train, and from there to validation if its hash, known at its end, says so: twice written
            # then, but never held in memory.
            digest = hashlib.blake2b(digest_size=8)
            train.begin()
            try:
                for chunk in item.chunks():
                    train.write(chunk)
                    digest.update(chunk)
                    done += len(chunk)
                    if progress:
                        progress(done, total)
            except DocumentUnreadableError as error:
                train.discard()
                omitted[Skipped] = omitted[Skipped].plus(item.name, str(error))
                continue
            if not train.document_bytes:
                empty += 1
                continue
            train.end()
            if int.from_bytes(digest.digest()) < fraction * 2**64:
                train.move_last(validation)
        rule = _fill_both(source, train, validation, fraction, omitted, empty)
        return Manifest(
            source.name,
            source.description(),
            fraction,
            rule,
            train.finish(),
            validation.finish(),
            omitted[Malformed],
            omitted[Skipped],
            empty,
        )
    finally:
        train.abandon()
        validation.abandon()


def _fill_both(
    source: Source,
    train: ShardWriter,
    validation: ShardWriter,
    fraction: float,
    omitted: _Omissions,
    empty: int,
) -> SplitRule:
    """See to it that neither split is empty; how the split came about."""
    documents = train.documents + validation.documents
    if not documents:
        raise UserError(f"'{source.name}' has no documents to read{_reasons(omitted, empty)}")
    if documents > 1:
        if train.documents and validation.documents:
            return "document hash"
        full, bare = (train, validation) if train.documents else (validation, train)
        full.move_last(bare)
        return "last document"
    if validation.documents:
        validation.move_last(train)
    size = train.last_bytes
    if size < 2:
        raise UserError(f"'{source.name}' has one byte in all, too little to hold any out: give more text")
    keep = min(max(size - round(size * fraction), 1), size - 1)
    # From the start of a character on, if there is one within the length of a character.
    following = train.read_last(keep, 4)
    keep += next((step for step, byte in enumerate(following) if byte & 0xC0 != 0x80), 0)
    train.move_last(validation, keep)
    return "tail of the only document"


def _reasons(omitted: _Omissions, empty: int) -> str:
    parts = [f"{empty} empty"] if empty else []
    for kind, items in omitted.items():
        if items.count:
            name, reason = items.named[0]
            parts.append(f"{items.count} {kind.__name__.lower()}, the first '{name}': {reason}")
    return f" ({'; '.join(parts)})" if parts else ""
