import errno
import functools
import hashlib
import operator
import tracemalloc
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from byteseam.data import prepare as module
from byteseam.data.corpus import Corpus
from byteseam.data.documents import Document, DocumentUnreadableError, Malformed, Skipped, Source
from byteseam.data.manifest import read_manifest
from byteseam.data.prepare import OutputExistsError, prepare
from byteseam.data.sources import open_source
from byteseam.errors import UserError


def held_out(document, fraction):
    return int.from_bytes(hashlib.blake2b(document, digest_size=8).digest()) / 2**64 < fraction


def read(out):
    return tuple(
        [bytes(c.document(i)) for i in range(len(c))]
        for c in (Corpus.open(out, "train"), Corpus.open(out, "validation"))
    )


def test_documents_are_split_by_hash_in_order(tmp_path, source_of):
    documents = [f"document {i}\n".encode() for i in range(200)]
    manifest = prepare(source_of(documents), tmp_path / "out", validation_fraction=0.2, shard_bytes=500)
    assert manifest == read_manifest(tmp_path / "out")
    assert manifest.split_rule == "document hash"
    assert len(manifest.train) > 3
    assert read(tmp_path / "out") == (
        [document for document in documents if not held_out(document, 0.2)],
        [document for document in documents if held_out(document, 0.2)],
    )
    for split in ("train", "validation"):
        Corpus.open(tmp_path / "out", split).verify()


@settings(max_examples=40)
@given(st.lists(st.binary(max_size=12), min_size=1, max_size=6), st.floats(0.01, 0.99), st.integers(1, 20))
def test_nothing_is_lost_and_no_split_is_empty(tmp_path_factory, source_of, documents, fraction, shard_bytes):
    out = tmp_path_factory.mktemp("prepare") / "out"
    real = [document for document in documents if document]
    if sum(map(len, documents)) < 2:
        with pytest.raises(UserError):
            prepare(source_of(documents), out, validation_fraction=fraction)
        return
    manifest = prepare(source_of(documents), out, validation_fraction=fraction, shard_bytes=shard_bytes)
    train, validation = read(out)
    assert train
    assert validation
    assert manifest.empty == len(documents) - len(real)
    if len(real) == 1:
        assert manifest.split_rule == "tail of the only document"
        assert train[0] + validation[0] == real[0]
    else:
        assert sorted(train + validation) == sorted(real)
    for split in ("train", "validation"):
        Corpus.open(out, split).verify()


def test_the_same_source_gives_the_same_files(tmp_path, source_of):
    documents = [f"{i}".encode() * 50 for i in range(50)]
    for name in "ab":
        prepare(source_of(documents), tmp_path / name)
    files = [{path.name: path.read_bytes() for path in (tmp_path / name).iterdir()} for name in "ab"]
    assert files[0] == files[1]


@pytest.mark.parametrize(("fraction", "expected"), [(1e-9, ([b"a", b"b"], [b"c"])), (1 - 1e-9, ([b"c"], [b"a", b"b"]))])
def test_a_split_left_empty_gets_the_last_document(tmp_path, source_of, fraction, expected):
    items = [b"a", b"b", b"c", b"", Malformed("m", "why")]
    manifest = prepare(source_of(items), tmp_path / "out", validation_fraction=fraction, shard_bytes=1)
    assert manifest.split_rule == "last document"
    assert read(tmp_path / "out") == expected
    for split in ("train", "validation"):
        Corpus.open(tmp_path / "out", split).verify()


@pytest.mark.parametrize(
    ("text", "fraction", "held"),
    [
        (b"0123456789", 0.2, b"89"),
        (b"0123456789", 0.001, b"9"),
        (b"0123456789", 0.999, b"123456789"),
        ("aaaaaaéa".encode(), 0.25, b"a"),  # not from the middle of the character
        (b"\x80" * 10, 0.2, b"\x80\x80"),  # no characters at all
        (b"ab", 0.5, b"b"),
    ],
)
def test_the_only_document_is_cut(tmp_path, source_of, text, fraction, held):
    manifest = prepare(source_of([text]), tmp_path / "out", validation_fraction=fraction)
    assert manifest.split_rule == "tail of the only document"
    assert read(tmp_path / "out") == ([text.removesuffix(held)], [held])
    for split in ("train", "validation"):
        Corpus.open(tmp_path / "out", split).verify()


def test_what_is_left_out_is_counted_and_named(tmp_path, source_of):
    def broken():
        yield b"some of it"
        raise DocumentUnreadableError("Input/output error")

    items = [b"one", Malformed("a:1", "bad"), b"", Document("b", broken), b"two", Skipped(".h", "hidden"), b"three"]
    manifest = prepare(source_of(items), tmp_path / "out", validation_fraction=0.5)
    assert manifest.malformed.named == (("a:1", "bad"),)
    assert manifest.skipped.named == (("b", "Input/output error"), (".h", "hidden"))
    assert manifest.empty == 1
    assert sorted(functools.reduce(operator.iadd, read(tmp_path / "out"), [])) == [b"one", b"three", b"two"]
    Corpus.open(tmp_path / "out").verify()


def test_progress_counts_bytes(tmp_path, source_of):
    seen = []
    prepare(source_of([b"abc", b"de"]), tmp_path / "out", progress=lambda *counts: seen.append(counts))
    assert seen == [(3, 5), (5, 5)]


def test_a_huge_file_is_streamed(tmp_path):
    with (tmp_path / "huge").open("wb") as file:
        file.truncate(48 << 20)
    source = open_source(str(tmp_path / "huge"))
    tracemalloc.start()
    try:
        manifest = prepare(source, tmp_path / "out")
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert manifest.bytes("train") + manifest.bytes("validation") == 48 << 20
    assert peak < 12 << 20


# Bad input and bad luck


def nothing_left(folder):
    return [path for path in folder.iterdir() if path.name != "kept"] == []


def test_an_existing_output_is_kept(tmp_path, source_of, one_sentence):
    (tmp_path / "out").mkdir()
    with pytest.raises(OutputExistsError, match="exists already") as error:
        prepare(source_of([b"a", b"b"]), tmp_path / "out")
    one_sentence(error, tmp_path / "out")
    (tmp_path / "link").symlink_to(tmp_path / "nowhere")
    with pytest.raises(OutputExistsError):
        prepare(source_of([b"a", b"b"]), tmp_path / "link")


def test_an_output_that_appears_meanwhile_is_kept(tmp_path, source_of):
    def items():
        yield Document("a", b"a")
        (tmp_path / "out").mkdir()
        (tmp_path / "out" / "mine").write_text("x")
        yield Document("b", b"b")

    source = Source("s", lambda: "s", items, lambda: None, lambda: None)
    with pytest.raises(OutputExistsError):
        prepare(source, tmp_path / "out")
    assert [path.name for path in tmp_path.rglob("*")] == ["out", "mine"]


@pytest.mark.parametrize("problem", [KeyboardInterrupt, SystemExit, RuntimeError, UserError])
def test_an_interrupt_leaves_nothing(tmp_path, problem):
    def items():
        yield Document("a", b"a" * 1000)
        yield Document("b", b"b" * 1000)
        raise problem("stop")

    source = Source("s", lambda: "s", items, lambda: None, lambda: None)
    with pytest.raises(problem, match="stop"):
        prepare(source, tmp_path / "new" / "folders" / "out", shard_bytes=10)
    assert nothing_left(tmp_path)


@pytest.mark.parametrize(
    ("number", "words"),
    [
        (errno.ENOSPC, "no space left to write"),
        (errno.EDQUOT, "no space left to write"),
        (errno.EACCES, "no permission to write"),
        (errno.EROFS, "no permission to write"),
        (errno.EIO, "Input/output error"),
    ],
)
@pytest.mark.parametrize("when", ["mkdir", "open", "write", "close", "manifest", "rename"])
def test_a_disk_that_fails_is_one_sentence_and_leaves_nothing(
    tmp_path, monkeypatch, source_of, one_sentence, number, words, when
):
    def fail(*args, **kwargs):
        raise OSError(number, module.os.strerror(number))

    target, name = {
        "mkdir": (Path, "mkdir"),
        "open": (Path, "open"),
        "write": (module.ShardWriter, "write"),
        "close": (module.os, "fsync"),
        "manifest": (Path, "write_text"),
        "rename": (Path, "rename"),
    }[when]
    with monkeypatch.context() as patch:
        patch.setattr(target, name, fail)
        with pytest.raises(UserError, match=words) as error:
            prepare(source_of([b"a" * 99, b"b" * 99]), tmp_path / "new" / "out")
    one_sentence(error, tmp_path / "new" / "out")
    assert nothing_left(tmp_path)


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs a device that is always full")
def test_a_disk_that_is_really_full(tmp_path, monkeypatch, source_of):
    """What is left in a buffer cannot be written on closing either."""
    monkeypatch.setattr(Path, "open", lambda self, mode, **kwargs: open("/dev/full", "r+b", **kwargs))  # noqa: SIM115
    with pytest.raises(UserError, match="no space left"):
        prepare(source_of([b"a" * 5_000_000, b"b"]), tmp_path / "out")
    assert nothing_left(tmp_path)


def test_a_source_without_documents_says_why(tmp_path, source_of, one_sentence):
    items = [b"", Malformed("x.jsonl:7", "not JSON"), Malformed("x.jsonl:8", "not JSON"), Skipped("y", "hidden")]
    with pytest.raises(UserError, match="has no documents to read") as error:
        prepare(source_of(items, name="x.jsonl"), tmp_path / "out")
    one_sentence(error, "1 empty", "2 malformed", "'x.jsonl:7': not JSON", "1 skipped", "'y': hidden")
    with pytest.raises(UserError, match="one byte"):
        prepare(source_of([b"x"]), tmp_path / "out")
    assert nothing_left(tmp_path)


@pytest.mark.parametrize("fraction", [0, 1, -0.1, 1.5, float("nan")])
def test_a_fraction_out_of_range_is_named(tmp_path, source_of, one_sentence, fraction):
    with pytest.raises(UserError, match="above 0 and below 1") as error:
        prepare(source_of([b"a", b"b"]), tmp_path / "out", validation_fraction=fraction)
    one_sentence(error, f"{fraction:g}")
