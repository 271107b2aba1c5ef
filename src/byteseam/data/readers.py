"""Documents from one file, by its format; and from a Hugging Face dataset. Everything streams in bounded memory.

A record that is not what it should be is yielded as `Malformed` with its place, and the reading goes on.
"""

import gzip
import io
import json
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import IO, Any, cast

from byteseam.data.documents import (
    CHUNK_BYTES,
    Document,
    DocumentUnreadableError,
    Item,
    Malformed,
    Skipped,
    Source,
    one_line,
)
from byteseam.errors import UserError

LARGEST_RECORD_BYTES = 1 << 28
"""A line of jsonl longer than this (256 MiB) is malformed: a record is parsed as a whole, in memory."""

_JSONL = (".jsonl", ".jsonl.gz", ".jsonl.zst")
_PARQUET_ROWS = 256  # rows held at a time
_ZSTD_INPUT_BYTES = 1 << 16


def missing_package(package: str, what: str) -> UserError:
    """The sentence for an optional package that is not installed."""
    return UserError(f"reading {what} needs the package {package}: pip install 'byteseam[data]'")


def is_records(path: Path) -> bool:
    """True if the file's name says that it holds records with a text column; False: the file is one document."""
    return path.name.lower().endswith((*_JSONL, ".parquet"))


def read_file(path: Path, text_field: str) -> Iterator[Item]:
    """The documents of one file: the records of jsonl (plain, gzip, zstd) and parquet; any other file is one document.

    Raises:
        UserError: a parquet file has no column ``text_field``; a package that the format needs is missing.
    """
    name = path.name.lower()
    if name.endswith(_JSONL):
        yield from _read_jsonl(path, text_field)
    elif name.endswith(".parquet"):
        yield from _read_parquet(path, text_field)
    else:
        yield Document(str(path), lambda: _file_chunks(path))


def stream_chunks(stream: IO[bytes]) -> Iterator[bytes]:
    """What is left in a binary stream, in chunks.

    Raises:
        DocumentUnreadableError: the stream breaks.
    """
    try:
        while chunk := stream.read(CHUNK_BYTES):
            yield chunk
    except OSError as error:
        raise DocumentUnreadableError(one_line(error)) from error


def _file_chunks(path: Path) -> Iterator[bytes]:
    try:
        stream = path.open("rb")
    except OSError as error:
        raise DocumentUnreadableError(one_line(error)) from error
    with stream:
        yield from stream_chunks(stream)


def _record(name: str, value: object, field: str) -> Item:
    """The document that a column's value holds."""
    if isinstance(value, bytes):
        return Document(name, value)
    if not isinstance(value, str):
        kind = "null" if value is None else type(value).__name__
        return Malformed(name, f"'{field}' is {kind}, not text")
    try:
        return Document(name, value.encode())
    except UnicodeEncodeError:
        return Malformed(name, f"'{field}' holds half of a surrogate pair, which UTF-8 cannot spell")


# jsonl


def _read_jsonl(path: Path, field: str) -> Iterator[Item]:
    number = 0
    try:
        with _open_decompressed(path) as stream:
            for number, line in enumerate(_lines(stream), start=1):
                if line is None:
                    yield Malformed(f"{path}:{number}", f"the line is longer than {LARGEST_RECORD_BYTES} bytes")
                elif line.strip():
                    yield _parse_line(f"{path}:{number}", line.removeprefix(b"\xef\xbb\xbf"), field)
    except (OSError, EOFError, zlib.error) as error:  # BadGzipFile is an OSError
        if number:
            yield Malformed(f"{path}:{number + 1}", f"the file breaks off here ({one_line(error)})")
        else:
            yield Skipped(str(path), one_line(error))


def _open_decompressed(path: Path) -> IO[bytes]:
    if path.name.lower().endswith(".gz"):
        return cast(IO[bytes], gzip.open(path, "rb"))
    if not path.name.lower().endswith(".zst"):
        return path.open("rb")
    return zstd_stream(path.open("rb"), f"'{path}'")


def zstd_stream(compressed: IO[bytes], what: str) -> IO[bytes]:
    """The decompressed stream, which owns ``compressed``. Reading raises EOFError where the data is damaged.

    Raises:
        UserError: the package zstandard is missing.
    """
    try:
        import zstandard
    except ImportError as error:
        compressed.close()
        raise missing_package("zstandard", what) from error

    class Zstd(io.RawIOBase):
        """Frames one after another. Unlike the package's own reader it tells where a file was cut off."""

        def __init__(self) -> None:
            self._frame = zstandard.ZstdDecompressor().decompressobj()
            self._begun = False
            self._input = b""
            self._output = memoryview(b"")

        def readable(self) -> bool:
            return True

        def readinto(self, buffer: Any) -> int:
            while not self._output:
                self._input = self._input or compressed.read(_ZSTD_INPUT_BYTES)
                if not self._input:
                    if self._begun:
                        raise EOFError("the compressed data end early")
                    return 0
                try:
                    self._output = memoryview(self._frame.decompress(self._input))
                except zstandard.ZstdError as error:
                    raise EOFError(str(error)) from error
                self._begun, self._input = not self._frame.eof, self._frame.unused_data
                if self._frame.eof:
                    self._frame = zstandard.ZstdDecompressor().decompressobj()
            size = min(len(buffer), len(self._output))
            buffer[:size], self._output = self._output[:size], self._output[size:]
            return size

        def close(self) -> None:
            compressed.close()
            super().close()

    return cast(IO[bytes], io.BufferedReader(Zstd(), CHUNK_BYTES))


def _lines(stream: IO[bytes]) -> Iterator[bytes | None]:
    """The lines of a stream; ``None`` for a line that is too long to be held."""
    while line := stream.readline(LARGEST_RECORD_BYTES):
        if len(line) < LARGEST_RECORD_BYTES or line.endswith(b"\n"):
            yield line
            continue
        while (rest := stream.readline(CHUNK_BYTES)) and not rest.endswith(b"\n"):
            pass
        yield None


def _parse_line(name: str, line: bytes, field: str) -> Item:
    try:
        record = json.loads(line.decode())
    except UnicodeDecodeError:
        return Malformed(name, "the line is not valid UTF-8")
    except ValueError as error:
        return Malformed(name, f"the line is not JSON ({one_line(error, 80)})")
    except RecursionError:
        return Malformed(name, "the line is nested too deeply")
    if not isinstance(record, dict):
        return Malformed(name, f"the line is a JSON {type(record).__name__}, not an object")
    if field not in record:
        return Malformed(name, f"the line has no '{field}' ({_listed(record)})")
    return _record(name, record[field], field)


def _listed(names: Any) -> str:
    """A few of the names that are there, for a message."""
    names = [str(name) for name in names]
    return "it has " + (", ".join(f"'{name[:40]}'" for name in names[:8]) or "nothing") + (", ..." * (len(names) > 8))


# parquet


def _read_parquet(path: Path, field: str) -> Iterator[Item]:
    try:
        import pyarrow as arrow
        import pyarrow.parquet as parquet
    except ImportError as error:
        raise missing_package("pyarrow", f"'{path}'") from error
    row = 0
    try:
        # Without pre_buffer and with a buffer, column chunks stream; whole row groups can be gigabytes.
        with parquet.ParquetFile(path, pre_buffer=False, buffer_size=CHUNK_BYTES) as file:
            if field not in file.schema_arrow.names:
                columns = _listed(file.schema_arrow.names)
                raise UserError(f"'{path}' has no column '{field}' ({columns}): name the one that holds the text")
            for batch in file.iter_batches(batch_size=_PARQUET_ROWS, columns=[field]):
                for value in batch.column(0):
                    row += 1
                    try:
                        yield _record(f"{path}:{row}", value.as_py(), field)
                    except UnicodeDecodeError:
                        yield Malformed(f"{path}:{row}", f"'{field}' is not valid UTF-8")
    except (arrow.ArrowException, OSError) as error:
        if row:
            yield Malformed(f"{path}:{row + 1}", f"the file breaks off here ({one_line(error)})")
        else:
            yield Skipped(str(path), f"not a readable parquet file ({one_line(error)})")


# Hugging Face datasets


def hugging_face(spec: str, text_field: str, split: str) -> Source:
    """``hf:NAME[:CONFIG]``: a dataset of the hub, or a local folder that `datasets` can load, in streaming mode.

    Raises:
        UserError: the package is missing, the dataset or split cannot be opened, there is no column ``text_field``.
    """
    name, _, config = spec.removeprefix("hf:").partition(":")
    if not name:
        raise UserError("'hf:' names no dataset: write hf:NAME or hf:NAME:CONFIG")

    def items() -> Iterator[Item]:
        try:
            import datasets
        except ImportError as error:
            raise missing_package("datasets", f"'{spec}'") from error
        row = 0
        try:
            rows = datasets.load_dataset(name, config or None, split=split, streaming=True)
            for row, record in enumerate(rows, start=1):
                if text_field not in record:
                    columns = _listed(record)
                    raise UserError(
                        f"'{spec}' has no column '{text_field}' ({columns}): name the one that holds the text"
                    )
                yield _record(f"{spec}:{row}", record[text_field], text_field)
        except (UserError, GeneratorExit):
            raise
        except Exception as error:  # whatever the loading scripts, the file formats and the network may raise
            raise UserError(
                f"the dataset '{spec}', split '{split}', stops after {row} rows: {one_line(error)}"
            ) from error

    def identity() -> str | None:
        files = sorted(path for path in Path(name).rglob("*") if path.is_file()) if Path(name).is_dir() else []
        return json.dumps([[str(path), path.stat().st_size, path.stat().st_mtime_ns] for path in files])

    def description() -> str:
        return f"Hugging Face dataset {name}, split {split}"

    return Source(spec, description, items, lambda: None, identity)
