import gzip
import json
import sys

import pyarrow
import pyarrow.parquet
import pytest
import zstandard

from byteseam.data import readers
from byteseam.data.documents import Document, DocumentUnreadableError, Malformed, Skipped
from byteseam.data.readers import hugging_face, read_file, zstd_stream
from byteseam.errors import UserError

LINES = [
    b'{"text": "one"}',
    b"",
    b'{"text": "two", "more": [1]}',
    b"not json",
    b'["a list"]',
    b'{"other": "x"}',
    b'{"text": 3}',
    b'{"text": null}',
    b'{"text": "\xff"}',
    b'{"text": "\\ud800"}',
    b"[" * 100_000,
    b'{"text": ' + b"9" * 5000 + b"}",
    '{"text": "drei ❤"}'.encode(),
]
REASONS = {
    4: "not JSON",
    5: "JSON list",
    6: "no 'text' (it has 'other')",
    7: "'text' is int",
    8: "'text' is null",
    9: "not valid UTF-8",
    10: "half of a surrogate pair",
    11: "",
    12: "",
}


def content(items):
    return [b"".join(item.chunks()) for item in items if isinstance(item, Document)]


@pytest.mark.parametrize("suffix", [".jsonl", ".jsonl.gz", ".jsonl.zst", ".JSONL"])
def test_malformed_lines_are_named_and_the_rest_is_read(tmp_path, suffix):
    compress = {"gz": gzip.compress, "zst": zstandard.compress}.get(suffix.rpartition(".")[2], bytes)
    path = tmp_path / f"data{suffix}"
    path.write_bytes(compress(b"\xef\xbb\xbf" + b"\r\n".join(LINES)))
    items = list(read_file(path, "text"))
    assert content(items) == [b"one", b"two", "drei ❤".encode()]
    malformed = [item for item in items if isinstance(item, Malformed)]
    assert [item.name for item in malformed] == [f"{path}:{line}" for line in REASONS]
    for item, reason in zip(malformed, REASONS.values(), strict=True):
        assert reason in item.reason
        assert "\n" not in item.reason


def test_a_document_is_named_by_its_line(tmp_path):
    (tmp_path / "a.jsonl").write_text('\n{"t": "x"}\n')
    assert [item.name for item in read_file(tmp_path / "a.jsonl", "t")] == [f"{tmp_path / 'a.jsonl'}:2"]


@pytest.mark.parametrize("suffix", ["gz", "zst"])
def test_a_truncated_file_gives_what_it_has(tmp_path, suffix):
    lines = b"".join(json.dumps({"text": f"{i}" * 50}).encode() + b"\n" for i in range(50_000))
    whole = gzip.compress(lines, 1) if suffix == "gz" else zstandard.compress(lines)
    path = tmp_path / f"a.jsonl.{suffix}"
    path.write_bytes(whole[: len(whole) // 2])
    *read, last = read_file(path, "text")
    assert len(read) > 100
    assert all(isinstance(item, Document) for item in read)
    assert "breaks off" in last.reason
    assert isinstance(last, Malformed)


@pytest.mark.parametrize("name", ["a.jsonl.gz", "a.jsonl.zst", "a.parquet"])
def test_a_file_of_another_kind_is_skipped(tmp_path, name):
    (tmp_path / name).write_bytes(b"this is none of them")
    (item,) = read_file(tmp_path / name, "text")
    assert isinstance(item, Skipped)
    assert item.name == str(tmp_path / name)


def test_a_damaged_zstd_stream_is_reported(tmp_path):
    lines = b"".join(b'{"text": "%d"}\n' % i for i in range(1000))
    whole = bytearray(zstandard.ZstdCompressor(write_checksum=True).compress(lines))
    whole[-1] ^= 0xFF
    (tmp_path / "a.jsonl.zst").write_bytes(whole)
    assert any(not isinstance(item, Document) for item in read_file(tmp_path / "a.jsonl.zst", "text"))


def test_a_line_too_long_to_hold_is_malformed(tmp_path, monkeypatch):
    monkeypatch.setattr(readers, "LARGEST_RECORD_BYTES", 1000)
    monkeypatch.setattr(readers, "CHUNK_BYTES", 64)
    (tmp_path / "a.jsonl").write_bytes(b'{"text": "' + b"x" * 5000 + b'"}\n{"text": "y"}\n')
    long, short = read_file(tmp_path / "a.jsonl", "text")
    assert isinstance(long, Malformed)
    assert long.name.endswith(":1")
    assert "longer than 1000 bytes" in long.reason
    assert content([short]) == [b"y"]


def test_parquet_streams_text_and_binary(tmp_path):
    table = pyarrow.table({"body": ["a", None, "ü"] * 300, "raw": [b"\xff\x00", b"", None] * 300})
    pyarrow.parquet.write_table(table, tmp_path / "a.parquet", row_group_size=500)
    items = list(read_file(tmp_path / "a.parquet", "body"))
    assert content(items) == [b"a", "ü".encode()] * 300
    assert items[1] == Malformed(f"{tmp_path / 'a.parquet'}:2", "'body' is null, not text")
    assert content(read_file(tmp_path / "a.parquet", "raw")) == [b"\xff\x00", b""] * 300


def test_a_missing_parquet_column_is_named(tmp_path, one_sentence):
    pyarrow.parquet.write_table(pyarrow.table({"body": ["a"], "id": [1]}), tmp_path / "a.parquet")
    with pytest.raises(UserError) as error:
        list(read_file(tmp_path / "a.parquet", "text"))
    one_sentence(error, tmp_path / "a.parquet", "'text'", "'body', 'id'")


def test_a_parquet_file_damaged_inside_gives_what_it_has(tmp_path):
    path = tmp_path / "a.parquet"
    table = pyarrow.table({"text": [f"{i}" * 9 for i in range(10_000)]})
    pyarrow.parquet.write_table(table, path, row_group_size=1000, use_dictionary=False, compression="zstd")
    damaged = bytearray(path.read_bytes())
    damaged[len(damaged) // 2 : len(damaged) // 2 + 200] = bytes(200)
    path.write_bytes(damaged)
    items = list(read_file(path, "text"))
    assert isinstance(items[0], Document)
    assert isinstance(items[-1], Malformed)


def test_any_other_file_is_one_document_in_chunks(tmp_path, monkeypatch):
    monkeypatch.setattr(readers, "CHUNK_BYTES", 100)
    data = bytes(range(256)) * 2
    (tmp_path / "a.bin").write_bytes(data)
    (document,) = read_file(tmp_path / "a.bin", "text")
    chunks = list(document.chunks())
    assert b"".join(chunks) == data
    assert max(map(len, chunks)) == 100


def test_a_file_that_vanishes_says_so_when_read(tmp_path):
    (document,) = read_file(tmp_path / "gone", "text")
    with pytest.raises(DocumentUnreadableError, match="No such file"):
        list(document.chunks())


@pytest.mark.parametrize(
    ("name", "package"), [("a.jsonl.zst", "zstandard"), ("a.parquet", "pyarrow"), ("hf:x", "datasets")]
)
def test_a_missing_package_is_named_with_the_command(tmp_path, monkeypatch, one_sentence, name, package):
    monkeypatch.setitem(sys.modules, package, None)
    (tmp_path / name).write_bytes(b"x")
    items = hugging_face(name, "text", "train") if name.startswith("hf:") else read_file(tmp_path / name, "text")
    with pytest.raises(UserError) as error:
        list(items)
    one_sentence(error, package, name, "pip install 'byteseam[data]'")


def test_zstd_frames_follow_each_other(tmp_path):
    (tmp_path / "a.zst").write_bytes(zstandard.compress(b"one") + zstandard.compress(b"two"))
    with zstd_stream((tmp_path / "a.zst").open("rb"), "a") as stream:
        assert stream.read() == b"onetwo"


# Hugging Face datasets


@pytest.fixture
def dataset(tmp_path, monkeypatch):
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    folder = tmp_path / "dataset"
    folder.mkdir()
    pyarrow.parquet.write_table(
        pyarrow.table({"text": ["eins", None, "drei"], "n": [1, 2, 3]}), folder / "train.parquet"
    )
    pyarrow.parquet.write_table(pyarrow.table({"text": ["vier"], "n": [4]}), folder / "test.parquet")
    return folder


def test_a_local_dataset_is_streamed(dataset):
    source = hugging_face(f"hf:{dataset}", "text", "train")
    items = list(source)
    assert content(items) == [b"eins", b"drei"]
    assert items[1] == Malformed(f"hf:{dataset}:2", "'text' is null, not text")
    assert content(hugging_face(f"hf:{dataset}", "text", "test")) == [b"vier"]
    assert "split train" in source.description()


def test_a_dataset_changes_its_identity_with_its_files(dataset):
    source = hugging_face(f"hf:{dataset}", "text", "train")
    before = source.identity()
    (dataset / "train.parquet").touch()
    assert source.identity() != before


@pytest.mark.parametrize(
    ("field", "split", "named"), [("body", "train", "'text', 'n'"), ("text", "nosuch", "'nosuch'")]
)
def test_a_wrong_column_or_split_is_named(dataset, one_sentence, field, split, named):
    with pytest.raises(UserError) as error:
        list(hugging_face(f"hf:{dataset}", field, split))
    one_sentence(error, dataset, named)


def test_an_unknown_dataset_is_one_sentence(tmp_path, monkeypatch, one_sentence):
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    monkeypatch.chdir(tmp_path)
    (tmp_path / "empty").mkdir()
    with pytest.raises(UserError) as error:
        list(hugging_face("hf:./empty", "text", "train"))
    one_sentence(error, "hf:./empty")
    with pytest.raises(UserError, match="names no dataset"):
        hugging_face("hf:", "text", "train")
