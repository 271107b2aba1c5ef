import json

import numpy as np
import pytest

from byteseam.data.corpus import Corpus
from byteseam.errors import UserError

DOCUMENTS = [b"to be", b"or", b"\x00\xff", b"not to be", b"!"]


@pytest.mark.parametrize("shard_bytes", [1, 4, 100])
def test_documents_are_found_in_all_shards(corpus_of, shard_bytes):
    corpus = corpus_of(DOCUMENTS, shard_bytes)
    assert len(corpus) == 5
    assert [corpus.document(i).tobytes() for i in range(5)] == DOCUMENTS
    assert corpus.document(0).dtype == np.uint8
    assert corpus.total_bytes == 19
    assert corpus.total_targets == 24
    assert corpus.byte_starts.tolist() == [0, 5, 7, 9, 18, 19]
    assert corpus.target_starts.tolist() == [0, 6, 9, 12, 22, 24]
    positions = np.array([[0, 18, 7], [6, 8, 9]])
    assert corpus.take(positions).tolist() == [list(b"t!\x00"), list(b"r\xffn")]
    corpus.verify()


def test_there_is_no_document_beyond_the_last(corpus_of):
    corpus = corpus_of(DOCUMENTS)
    for index in (-1, 5):
        with pytest.raises(IndexError):
            corpus.document(index)


def test_the_files_cannot_be_written_to(corpus_of):
    with pytest.raises(ValueError, match="read-only"):
        corpus_of(DOCUMENTS).document(0)[0] = 1


def test_the_other_split_is_opened_by_name(corpus_of):
    directory = corpus_of(DOCUMENTS).directory
    assert Corpus.open(str(directory), "validation").document(0).tobytes() == b"held out"


@pytest.mark.parametrize("change", [lambda data: data[:-1], lambda data: data + b"x", lambda data: b""])
def test_a_shard_of_another_size_is_named(corpus_of, one_sentence, change):
    directory = corpus_of(DOCUMENTS).directory
    path = directory / "train-00000.bin"
    path.write_bytes(change(path.read_bytes()))
    with pytest.raises(UserError, match="bytes instead of 19") as error:
        Corpus.open(directory)
    one_sentence(error, path)


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"not numpy",
        np.array([0, 5, 7, 9, 18]),
        np.array([0, 5, 7, 9, 18, 19], np.float64),
        np.array([1, 5, 7, 9, 18, 19]),
        np.array([0, 5, 7, 9, 18, 20]),
        np.array([0, 9, 7, 9, 18, 19]),
        np.array([0, 5, 5, 9, 18, 19]),
        np.array([0, 5, 7, 9, 18, {}], dtype=object),
    ],
)
def test_damaged_offsets_are_named(corpus_of, one_sentence, content):
    directory = corpus_of(DOCUMENTS).directory
    path = directory / "train-00000.offsets.npy"
    if isinstance(content, bytes):
        path.write_bytes(content)
    else:
        np.save(path, content, allow_pickle=True)
    with pytest.raises(UserError) as error:
        Corpus.open(directory)
    one_sentence(error, path)


@pytest.mark.parametrize("name", ["train-00000.bin", "train-00000.offsets.npy"])
def test_a_missing_file_is_named(corpus_of, one_sentence, name):
    directory = corpus_of(DOCUMENTS).directory
    (directory / name).unlink()
    with pytest.raises(UserError, match="No such file") as error:
        Corpus.open(directory)
    one_sentence(error, directory / name)


def test_a_changed_byte_is_found_by_verify(corpus_of, one_sentence):
    directory = corpus_of(DOCUMENTS).directory
    path = directory / "train-00000.bin"
    path.write_bytes(path.read_bytes().swapcase())
    with pytest.raises(UserError, match="checksum") as error:
        Corpus.open(directory).verify()
    one_sentence(error, path)


def test_a_split_without_shards_and_no_corpus_at_all_are_named(corpus_of, tmp_path, one_sentence):
    with pytest.raises(UserError, match="no prepared corpus"):
        Corpus.open(tmp_path)
    directory = corpus_of(DOCUMENTS).directory
    record = json.loads((directory / "manifest.json").read_text())
    (directory / "manifest.json").write_text(json.dumps({**record, "train": []}))
    with pytest.raises(UserError, match="has no documents") as error:
        Corpus.open(directory)
    one_sentence(error, "train", directory)
