"""Sources and corpora that the tests make themselves."""

import gzip
import io
import itertools
import lzma
import tarfile
import zipfile
from pathlib import Path

import pytest
import zstandard

from byteseam.data.corpus import Corpus
from byteseam.data.documents import Document, Source
from byteseam.data.manifest import Manifest, write_manifest
from byteseam.data.shards import ShardWriter


@pytest.fixture(scope="session")
def source_of():
    """``source_of([b"one", b"two"])``: a source of those documents; other items go as they are."""

    def make(items, name="made"):
        wrapped = [Document(f"d{i}", item) if isinstance(item, bytes) else item for i, item in enumerate(items)]
        return Source(
            name, lambda: "made by a test", lambda: iter(wrapped), lambda: sum(map(len, items)), lambda: "same"
        )

    return make


@pytest.fixture(scope="session")
def corpus_of(tmp_path_factory):
    """``corpus_of([b"one", b"two"])``: a corpus whose train split is just that, in that order."""
    numbers = itertools.count()
    root = tmp_path_factory.mktemp("corpora")

    def make(documents, shard_bytes=1 << 30):
        directory: Path = root / str(next(numbers))
        directory.mkdir()
        shards = {}
        for split, content in (("train", documents), ("validation", [b"held out"])):
            writer = ShardWriter(directory, split, shard_bytes)
            for document in content:
                writer.begin()
                writer.write(document)
                writer.end()
            shards[split] = writer.finish()
        write_manifest(Manifest("made", "made", 0.5, "document hash", **shards), directory)
        return Corpus.open(directory, "train")

    return make


@pytest.fixture
def cache(tmp_path, monkeypatch):
    """The cache directory, empty and the test's own."""
    monkeypatch.setenv("BYTESEAM_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache"


@pytest.fixture
def one_sentence():
    """``one_sentence(error, "name", ...)``: the message is one line and names the things."""

    def check(error, *names):
        text = str(error.value)
        assert "\n" not in text
        assert len(text) < 600
        for name in names:
            assert str(name) in text

    return check


class Archives:
    """Tiny archives of every kind, made on the spot."""

    @staticmethod
    def wheel(path, files):
        with zipfile.ZipFile(path, "w") as archive:
            for name, content in files.items():
                archive.writestr(name, content)
        return path

    @staticmethod
    def tar(files):
        buffer = io.BytesIO()
        with tarfile.open(fileobj=buffer, mode="w") as archive:
            folder = tarfile.TarInfo("./usr")
            folder.type = tarfile.DIRTYPE
            archive.addfile(folder)
            for name, content in files.items():
                member = tarfile.TarInfo(name)
                member.size = len(content)
                archive.addfile(member, io.BytesIO(content))
        return buffer.getvalue()

    @classmethod
    def sdist(cls, path, files):
        path.write_bytes(gzip.compress(cls.tar(files)))
        return path

    @classmethod
    def deb(cls, path, files, suffix=".xz"):
        compress = {".xz": lzma.compress, ".gz": gzip.compress, ".zst": zstandard.compress}.get(suffix, bytes)
        members = {"debian-binary": b"2.0\n", "control.tar.xz": b"odd", f"data.tar{suffix}": compress(cls.tar(files))}
        content = b"!<arch>\n"
        for name, data in members.items():
            content += f"{name:<16}{0:<12}{0:<6}{0:<6}{100644:<8}{len(data):<10}`\n".encode()
            content += data + b"\n" * (len(data) % 2)
        path.write_bytes(content)
        return path


@pytest.fixture(scope="session")
def archives():
    """``archives.wheel(path, {name: content})``, and ``sdist`` and ``deb``."""
    return Archives
