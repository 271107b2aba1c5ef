"""``open_source``: documents from a file, a folder, a glob, jsonl, parquet, a Hugging Face dataset or standard input.

A huge file is never loaded whole: it is one document, read in chunks. Named corpora are in `byteseam.data.recipes`.
"""

import glob
import hashlib
import os
import sys
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path

from byteseam.data.documents import Document, Item, Skipped, Source, one_line
from byteseam.data.readers import hugging_face, is_records, read_file, stream_chunks
from byteseam.errors import UserError

_GLOB_CHARACTERS = frozenset("*?[")


def open_source(spec: str, *, text_field: str = "text", hf_split: str = "train") -> Source:
    """The documents that ``spec`` names.

    * a file: one document, any bytes; ``.jsonl`` (``.gz``, ``.zst``) and ``.parquet``: one a record, the text in the
      column ``text_field``
    * a folder: the same for every file in it, recursively, in the order of the names; hidden files, links to folders
      and whatever is no regular file are skipped and counted
    * a glob (``**`` for any depth): the same for every file that matches
    * ``hf:NAME[:CONFIG]``: the split ``hf_split`` of a Hugging Face dataset, streamed
    * ``-``: standard input, one document, read once

    Raises:
        UserError: there is no such thing, it is empty or unreadable. Iterating raises it where only reading can tell.
    """
    if spec == "-":
        return Source("-", lambda: "standard input", _standard_input, lambda: None, lambda: None)
    if spec.startswith("hf:"):
        return hugging_face(spec, text_field, hf_split)
    if not spec:
        raise UserError("the data source is empty: name a file, a folder, a glob, hf:NAME or a corpus")
    path = Path(spec).expanduser()
    if _exists(path):
        return _folder(spec, path, text_field) if path.is_dir() else _file(spec, path, text_field)
    if _GLOB_CHARACTERS & set(spec):
        return _glob(spec, text_field)
    raise UserError(f"there is no file or folder '{spec}'")


def _exists(path: Path) -> bool:
    try:
        return path.exists()
    except OSError as error:  # a folder on the way may not be entered; a name may be too long
        raise UserError(f"cannot read '{path}': {one_line(error)}") from error


def _standard_input() -> Iterator[Item]:
    yield Document("standard input", lambda: stream_chunks(sys.stdin.buffer))


def _file(spec: str, path: Path, text_field: str) -> Source:
    try:
        with path.open("rb"):  # a permission is best found out before anything is written
            size = path.stat().st_size if path.is_file() else None
    except OSError as error:
        raise UserError(f"cannot read '{spec}': {one_line(error)}") from error
    if size == 0:
        raise UserError(f"the file '{spec}' is empty")
    packed = path.name.lower().endswith((".gz", ".zst", ".parquet")) and is_records(path)
    return Source(
        spec,
        lambda: f"the file {path.name}",
        lambda: read_file(path, text_field),
        lambda: None if packed else size,  # the size of compressed records says little
        lambda: _fingerprint([path]) if path.is_file() else None,
    )


def _folder(spec: str, folder: Path, text_field: str) -> Source:
    if not any(isinstance(found, Path) for found in _walk(folder)):
        raise UserError(f"the folder '{spec}' has no readable files")
    return _many(spec, f"the folder {folder.absolute().name}", lambda: _walk(folder), text_field)


def _glob(spec: str, text_field: str) -> Source:
    pattern = os.path.expanduser(spec)

    def matches() -> Iterator[Path | Skipped]:
        # Sorted, so that the order of documents does not depend on the file system.
        yield from (path for path in map(Path, sorted(glob.glob(pattern, recursive=True))) if path.is_file())

    if not any(matches()):
        raise UserError(f"no file matches '{spec}'")
    return _many(spec, f"the files {spec}", matches, text_field)


def _many(spec: str, description: str, paths: Callable[[], Iterator[Path | Skipped]], text_field: str) -> Source:
    def items() -> Iterator[Item]:
        for found in paths():
            if isinstance(found, Skipped):
                yield found
            else:
                yield from read_file(found, text_field)

    def files() -> Iterator[Path]:
        return (found for found in paths() if isinstance(found, Path))

    return Source(spec, lambda: description, items, lambda: sum(map(_size, files())), lambda: _fingerprint(files()))


def _walk(folder: Path) -> Iterator[Path | Skipped]:
    """The files below a folder, sorted by name, and what is passed over. Links to folders are not followed."""
    try:
        entries = sorted(os.scandir(folder), key=lambda entry: entry.name)
    except OSError as error:
        yield Skipped(str(folder), one_line(error))
        return
    for entry in entries:
        if entry.name.startswith("."):
            yield Skipped(entry.path, "hidden")
        elif entry.is_dir(follow_symlinks=False):
            yield from _walk(Path(entry.path))
        elif not entry.is_file():
            yield Skipped(entry.path, "not a regular file")
        else:
            yield Path(entry.path)


def _size(path: Path) -> int:
    try:
        return path.stat().st_size
    except OSError:  # gone since it was listed; reading it will report that
        return 0


def _fingerprint(paths: Iterable[Path]) -> str:
    """A hash of the files' names, sizes and times of change: cheap, and different once a file is written to."""
    digest = hashlib.sha256()
    for path in paths:
        try:
            status = path.stat()
        except OSError:
            continue
        digest.update(repr((str(path.absolute()), status.st_size, status.st_mtime_ns)).encode())
    return digest.hexdigest()
