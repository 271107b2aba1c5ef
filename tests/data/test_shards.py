import functools
import hashlib
import itertools
import operator

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from byteseam.data.shards import ShardWriter


def contents(directory, shards):
    """What is on disk, by shard; checks the records on the way."""
    found = []
    for shard in shards:
        data, offsets = (directory / shard.file).read_bytes(), np.load(directory / shard.offsets, allow_pickle=False)
        assert offsets.dtype == np.dtype("<i8")
        assert (shard.bytes, shard.documents) == (len(data), len(offsets) - 1)
        assert shard.sha256 == hashlib.sha256(data).hexdigest()
        assert shard.offsets_sha256 == hashlib.sha256((directory / shard.offsets).read_bytes()).hexdigest()
        found.append([data[a:b] for a, b in itertools.pairwise(offsets)])
    return found


def put(writer, document):
    writer.begin()
    for start in range(0, len(document), 2):
        writer.write(document[start : start + 2])
    writer.end()


def test_a_document_never_crosses_shards(tmp_path):
    writer = ShardWriter(tmp_path, "train", 4)
    for document in (b"abc", b"defghijk", b"l", b"mno", b"p"):
        put(writer, document)
    assert contents(tmp_path, writer.finish()) == [[b"abc", b"defghijk"], [b"l", b"mno"], [b"p"]]
    assert sorted(path.name for path in tmp_path.glob("*.bin")) == [f"train-0000{i}.bin" for i in range(3)]


@settings(max_examples=50)
@given(
    st.lists(st.tuples(st.binary(min_size=1, max_size=6), st.sampled_from(["keep", "discard", "move"]))),
    st.integers(1, 10),
)
def test_taking_back_leaves_no_trace(tmp_path_factory, steps, shard_bytes):
    directory = tmp_path_factory.mktemp("shards")
    writer, other = ShardWriter(directory, "train", shard_bytes), ShardWriter(directory, "validation", shard_bytes)
    kept, moved = [], []
    for document, what in steps:
        if what == "discard":
            writer.begin()
            writer.write(document)
            writer.discard()
            continue
        put(writer, document)
        (kept if what == "keep" else moved).append(document)
        if what == "move":
            writer.move_last(other)
    assert (writer.documents, other.documents) == (len(kept), len(moved))
    shards = writer.finish()
    assert functools.reduce(operator.iadd, contents(directory, shards), []) == kept
    assert functools.reduce(operator.iadd, contents(directory, other.finish()), []) == moved
    assert len(list(directory.glob("train*.bin"))) == len(shards)


@pytest.mark.parametrize("shard_bytes", [1, 5, 100])
def test_the_last_document_can_be_moved_after_another_was_not_kept(tmp_path, shard_bytes):
    writer, other = ShardWriter(tmp_path, "train", shard_bytes), ShardWriter(tmp_path, "validation", shard_bytes)
    for document in (b"first", b"second"):
        put(writer, document)
    writer.begin()  # opens a new shard if the last is full
    writer.write(b"xyz")
    writer.discard()
    assert writer.last_bytes == 6
    assert writer.read_last(2, 3) == b"con"
    writer.move_last(other, keep_bytes=4)
    put(writer, b"third")
    assert functools.reduce(operator.iadd, contents(tmp_path, writer.finish()), []) == [b"first", b"seco", b"third"]
    assert contents(tmp_path, other.finish()) == [[b"nd"]]


def test_a_writer_of_nothing_leaves_nothing(tmp_path):
    writer = ShardWriter(tmp_path, "train", 10)
    assert writer.finish() == ()
    writer.begin()
    assert writer.finish() == ()
    assert list(tmp_path.iterdir()) == []
