import json

import pytest

from byteseam.data.manifest import MANIFEST, Manifest, Omitted, Shard, is_prepared, read_manifest, write_manifest
from byteseam.errors import UserError

SHARD = Shard("train-00000.bin", "train-00000.offsets.npy", 10, 2, "a" * 64, "b" * 64)
HELD_OUT = Shard("validation-00000.bin", "validation-00000.offsets.npy", 3, 1, "c" * 64, "d" * 64)
GIVEN = Manifest(
    "x", "an \ud800 x", 0.05, "document hash", (SHARD,), (HELD_OUT,), Omitted().plus("a.jsonl:3", "why"), Omitted(2), 5
)


@pytest.fixture
def written(tmp_path):
    """A directory with a manifest, and a function that changes its record."""
    write_manifest(GIVEN, tmp_path)

    def change(**changes):
        record = json.loads((tmp_path / MANIFEST).read_text())
        for key, value in changes.items():
            if value is None:
                del record[key]
            else:
                record[key] = value
        (tmp_path / MANIFEST).write_text(json.dumps(record))
        return tmp_path

    return change


def test_what_is_written_is_read(tmp_path):
    assert not is_prepared(tmp_path)
    write_manifest(GIVEN, tmp_path)
    assert is_prepared(tmp_path)
    assert read_manifest(tmp_path) == GIVEN
    assert (GIVEN.documents("train"), GIVEN.bytes("train"), GIVEN.bytes("validation")) == (2, 10, 3)


def test_the_format_is_pinned(tmp_path):
    write_manifest(GIVEN, tmp_path)
    record = json.loads((tmp_path / MANIFEST).read_text())
    assert record["format"] == 1
    assert set(record) == {
        "format", "source", "description", "validation_fraction", "split_rule",
        "train", "validation", "malformed", "skipped", "empty",
    }  # fmt: skip
    assert set(record["train"][0]) == {"file", "offsets", "bytes", "documents", "sha256", "offsets_sha256"}
    assert record["malformed"] == {"count": 1, "named": [["a.jsonl:3", "why"]]}


def test_all_are_counted_and_the_first_twenty_named():
    omitted = Omitted()
    for number in range(30):
        omitted = omitted.plus(str(number), "why")
    assert omitted.count == 30
    assert omitted.named == tuple((str(number), "why") for number in range(20))


def test_the_fingerprint_follows_the_data_alone():
    other = Manifest("y", "another", 0.05, "document hash", (SHARD,), (HELD_OUT,))
    assert other.fingerprint == GIVEN.fingerprint
    assert Manifest("y", "another", 0.05, "document hash", (HELD_OUT,), (SHARD,)).fingerprint != GIVEN.fingerprint
    assert GIVEN.summary()["fingerprint"] == GIVEN.fingerprint
    assert GIVEN.summary()["train"] == {"documents": 2, "bytes": 10}


def test_a_newer_format_asks_for_a_newer_program(written, one_sentence):
    with pytest.raises(UserError, match="upgrade byteseam") as error:
        read_manifest(written(format=2))
    one_sentence(error, "format 2", "manifest.json")


@pytest.mark.parametrize(
    "changes",
    [
        {"format": None},
        {"format": "1"},
        {"format": 0},
        {"train": None},
        {"train": 3},
        {"train": [{}]},
        {"empty": "many"},
        {"malformed": []},
        {"skipped": {"count": 1, "named": [1]}},
        {"split_rule": "chance"},
        {"validation_fraction": "x"},
    ],
)
def test_a_damaged_manifest_is_named(written, one_sentence, changes):
    with pytest.raises(UserError, match="is damaged") as error:
        read_manifest(written(**changes))
    one_sentence(error, "manifest.json", "prepare the corpus again")


@pytest.mark.parametrize("name", ["../secret", "/etc/passwd", "a/b", "..", ".hidden", "", "a\\b", "a\nb", 3, None])
def test_a_hostile_manifest_names_no_file_elsewhere(written, name):
    shard = {"file": name, "offsets": "o", "bytes": 1, "documents": 1, "sha256": "", "offsets_sha256": ""}
    with pytest.raises(UserError, match="is damaged"):
        read_manifest(written(train=[shard]))


@pytest.mark.parametrize("counts", [{"bytes": -1}, {"bytes": 1.5}, {"documents": 0}, {"documents": "2"}, {"more": 1}])
def test_a_shard_has_whole_counts(written, counts):
    shard = {"file": "f", "offsets": "o", "bytes": 1, "documents": 1, "sha256": "", "offsets_sha256": "", **counts}
    with pytest.raises(UserError, match="is damaged"):
        read_manifest(written(train=[shard]))


@pytest.mark.parametrize("text", ["", "{", "[]", "3", "[" * 100_000, "\xff"])
def test_what_is_no_manifest_is_named(tmp_path, one_sentence, text):
    (tmp_path / MANIFEST).write_text(text, encoding="latin-1")
    with pytest.raises(UserError, match="is damaged") as error:
        read_manifest(tmp_path)
    one_sentence(error, "manifest.json")


def test_no_manifest_and_no_permission_are_one_sentence(tmp_path, monkeypatch, one_sentence):
    with pytest.raises(UserError, match="no prepared corpus") as error:
        read_manifest(tmp_path)
    one_sentence(error, tmp_path, "byteseam prepare")

    def refuse(self):
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(type(tmp_path), "read_bytes", refuse)
    with pytest.raises(UserError, match="Permission denied"):
        read_manifest(tmp_path)
