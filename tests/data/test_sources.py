import gzip
import io
import os
import sys
from pathlib import Path

import pytest

from byteseam.data.documents import Document, Skipped, Source, one_line
from byteseam.data.sources import open_source
from byteseam.errors import UserError


def content(source):
    return [b"".join(item.chunks()) for item in source if isinstance(item, Document)]


def test_a_file_of_any_bytes_is_one_document(tmp_path):
    (tmp_path / "a").write_bytes(bytes(range(256)))
    source = open_source(str(tmp_path / "a"))
    assert content(source) == [bytes(range(256))]
    assert content(source) == [bytes(range(256))]  # again
    assert source.total_bytes() == 256


def test_a_home_folder_is_expanded(tmp_path, monkeypatch):
    monkeypatch.setenv("HOME", str(tmp_path))
    (tmp_path / "a").write_bytes(b"x")
    assert content(open_source("~/a")) == [b"x"]
    assert content(open_source("~/*")) == [b"x"]


def test_a_folder_is_read_in_order_and_what_is_passed_over_is_named(tmp_path):
    folder = tmp_path / "folder"
    (folder / "b").mkdir(parents=True)
    (folder / ".git").mkdir()
    (folder / ".git" / "x").write_bytes(b"hidden")
    for name, text in {"c.txt": "3", "b/z": "2", "b/a": "1", ".h": "hidden", "d.jsonl": '{"text": "4"}\n{'}.items():
        (folder / name).write_text(text)
    (folder / "link").symlink_to(folder)
    os.mkfifo(folder / "pipe")
    source = open_source(str(folder))
    assert content(source) == [b"1", b"2", b"3", b"4"]
    skipped = {Path(item.name).name: item.reason for item in source if isinstance(item, Skipped)}
    assert skipped == {".git": "hidden", ".h": "hidden", "link": "not a regular file", "pipe": "not a regular file"}
    assert source.total_bytes() == 1 + 1 + 1 + len('{"text": "4"}\n{')


def test_an_unreadable_subfolder_is_skipped(tmp_path, monkeypatch):
    (tmp_path / "locked").mkdir()
    (tmp_path / "a").write_bytes(b"x")
    scandir = os.scandir

    def refuse(path):
        if Path(path).name == "locked":
            raise PermissionError(13, "Permission denied")
        return scandir(path)

    monkeypatch.setattr(os, "scandir", refuse)
    items = list(open_source(str(tmp_path)))
    assert [item.reason for item in items if isinstance(item, Skipped)] == ["Permission denied"]


def test_a_glob_is_sorted_and_recursive(tmp_path):
    (tmp_path / "deep" / "er").mkdir(parents=True)
    for name in ("b.py", "a.py", "a.txt", "deep/er/c.py"):
        (tmp_path / name).write_text(name)
    assert content(open_source(str(tmp_path / "*.py"))) == [b"a.py", b"b.py"]
    assert content(open_source(str(tmp_path / "**" / "*.py"))) == [b"a.py", b"b.py", b"deep/er/c.py"]


def test_a_name_with_glob_characters_that_exists_is_that_file(tmp_path):
    (tmp_path / "a[1].txt").write_bytes(b"x")
    assert content(open_source(str(tmp_path / "a[1].txt"))) == [b"x"]


def test_standard_input_is_one_document(monkeypatch):
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(b"\xff\x00 text")))
    source = open_source("-")
    assert content(source) == [b"\xff\x00 text"]
    assert source.identity() is None
    assert source.total_bytes() is None


def test_a_dataset_is_opened_by_its_prefix():
    assert open_source("hf:name:config").name == "hf:name:config"


def test_jsonl_takes_the_named_column(tmp_path):
    (tmp_path / "a.jsonl.gz").write_bytes(gzip.compress(b'{"body": "x"}\n'))
    source = open_source(str(tmp_path / "a.jsonl.gz"), text_field="body")
    assert content(source) == [b"x"]
    assert source.total_bytes() is None


def test_the_identity_follows_the_files(tmp_path):
    (tmp_path / "a").write_bytes(b"x")
    (tmp_path / "b").write_bytes(b"y")
    folder, file = open_source(str(tmp_path)), open_source(str(tmp_path / "a"))
    before = folder.identity(), file.identity()
    assert (folder.identity(), file.identity()) == before
    os.utime(tmp_path / "b", (1, 1))
    assert folder.identity() != before[0]
    assert file.identity() == before[1]
    (tmp_path / "a").write_bytes(b"xx")
    assert file.identity() != before[1]


def test_missing_and_empty_things_are_named(tmp_path, one_sentence):
    (tmp_path / "empty").write_bytes(b"")
    (tmp_path / "folder").mkdir()
    (tmp_path / "folder" / ".hidden").write_bytes(b"x")
    for spec, words in {
        str(tmp_path / "gone"): "there is no file or folder",
        str(tmp_path / "empty"): "is empty",
        str(tmp_path / "folder"): "has no readable files",
        str(tmp_path / "*.txt"): "no file matches",
    }.items():
        with pytest.raises(UserError, match=words) as error:
            open_source(spec)
        one_sentence(error, spec)
    with pytest.raises(UserError, match="data source is empty"):
        open_source("")


def test_a_file_that_may_not_be_read_is_named(tmp_path, monkeypatch, one_sentence):
    (tmp_path / "a").write_bytes(b"x")

    def refuse(self, *args, **kwargs):
        raise PermissionError(13, "Permission denied")

    with monkeypatch.context() as patch:
        patch.setattr(Path, "open", refuse)
        with pytest.raises(UserError, match="Permission denied") as error:
            open_source(str(tmp_path / "a"))
    one_sentence(error, tmp_path / "a")
    with pytest.raises(UserError, match="cannot read"):
        open_source("x" * 5000)


def test_an_error_is_put_on_one_line():
    assert one_line(ValueError("a\n  b")) == "a b"
    assert one_line(ValueError()) == "ValueError"
    assert one_line(OSError(2, "No such file", "/secret")) == "No such file"
    assert len(one_line(ValueError("x" * 1000))) == 300


def test_a_document_gives_its_bytes_in_chunks(monkeypatch):
    monkeypatch.setattr("byteseam.data.documents.CHUNK_BYTES", 3)
    assert list(Document("d", b"1234567").chunks()) == [b"123", b"456", b"7"]
    assert list(Document("d", b"").chunks()) == []
    assert isinstance(open_source("-"), Source)
