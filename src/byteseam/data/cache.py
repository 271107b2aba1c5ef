"""From a configuration's source to a prepared directory, made behind the scenes once and found again."""

import difflib
import hashlib
import json
import re
import shutil
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Protocol

from byteseam.data.archives import cache_directory
from byteseam.data.documents import Progress, Source, one_line
from byteseam.data.manifest import FORMAT, is_prepared, read_manifest
from byteseam.data.prepare import OutputExistsError, prepare
from byteseam.data.recipes import RECIPES, open_recipe
from byteseam.data.sources import open_source
from byteseam.errors import UserError

DEMO_CORPORA = ("gutenberg", "python-docs", "python-stdlib")
"""What the demo trains on, in order of preference: prose first, for its words are what one wants to see found.

`python-docs` has 2 MB of English (topics alone would be half a megabyte) and needs no download; some systems leave the
topics and docstrings' sources out, and then whatever there is of the library's code will do.
"""

_STALE_SECONDS = 86_400  # a partial directory untouched for a day was left by a process that was killed


class DataSettings(Protocol):
    """What `resolve` reads of ``[data]`` (`byteseam.config.DataConfig`)."""

    @property
    def source(self) -> str: ...
    @property
    def text_field(self) -> str: ...
    @property
    def hf_split(self) -> str: ...
    @property
    def validation_fraction(self) -> float: ...


def find_source(spec: str, *, text_field: str = "text", hf_split: str = "train") -> Source:
    """A named corpus, or else whatever `open_source` makes of ``spec``.

    A name wins over a file of that name, which is ``./NAME``.

    Raises:
        UserError: there is no such corpus and no such file; near names are suggested.
    """
    if spec in RECIPES:
        return open_recipe(spec)
    if spec == "-" or re.search(r"[/\\:*?\[]", spec) or Path(spec).expanduser().exists():
        return open_source(spec, text_field=text_field, hf_split=hf_split)
    if not spec:
        raise UserError("the data source is empty: name a corpus, a file, a folder, a glob or hf:NAME")
    near = difflib.get_close_matches(spec.lower(), RECIPES, n=2)
    hint = f"did you mean {' or '.join(near)}?" if near else f"the corpora are {', '.join(RECIPES)}"
    raise UserError(f"there is no corpus, file or folder '{spec}': {hint}")


def resolve(data: DataSettings, *, progress: Progress | None = None) -> Path:
    """The prepared directory for the settings.

    A prepared directory is used as it is. Anything else is prepared into the cache, under a key of the source, the
    settings, and what tells whether the content changed (sizes and times of files; an archive's checksum), and found
    there the next time. Two processes may do so at once: the first to finish wins, the other uses its result.

    Raises:
        UserError: see `find_source`, `prepare`; standard input, which cannot be read again when a run resumes.
    """
    if data.source == "-":
        raise UserError(
            "a run cannot read standard input again when it resumes: first use byteseam prepare - DIRECTORY"
        )
    if data.source not in RECIPES and data.source and is_prepared(Path(data.source).expanduser()):
        directory = Path(data.source).expanduser()
        read_manifest(directory)
        return directory
    source = find_source(data.source, text_field=data.text_field, hf_split=data.hf_split)
    directory = cache_directory() / "corpora" / _key(source, data)
    if not is_prepared(directory):
        try:
            directory.parent.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            remedy = "set BYTESEAM_CACHE to a folder that can be written"
            raise UserError(f"cannot write the cache '{directory.parent}' ({one_line(error)}): {remedy}") from error
        _remove_stale(directory.parent)
        try:
            prepare(source, directory, validation_fraction=data.validation_fraction, progress=progress)
        except OutputExistsError:
            if not is_prepared(directory):
                raise
    read_manifest(directory)
    return directory


def resolve_with_fallback(
    names: Sequence[str] = DEMO_CORPORA, *, validation_fraction: float = 0.05, progress: Progress | None = None
) -> tuple[str, Path, str | None]:
    """The first of some named corpora that can be had: (name, prepared directory, notice).

    The notice says in one sentence why it is not the first; ``None`` if it is.

    Raises:
        UserError: none can be had; the reason is the last one's.
    """
    reasons = []
    for name in names:
        try:
            directory = resolve(_Plain(name, validation_fraction), progress=progress)
        except UserError as error:
            reasons.append(str(error))
            continue
        notice = f"training on {name} instead of {names[0]}: {reasons[0]}" if reasons else None
        return name, directory, notice
    raise UserError(reasons[-1] if reasons else "no corpus was named")


class _Plain:
    """Settings with nothing but a source and a fraction."""

    text_field, hf_split = "text", "train"

    def __init__(self, source: str, validation_fraction: float) -> None:
        self.source, self.validation_fraction = source, validation_fraction


def _key(source: Source, data: DataSettings) -> str:
    """The name of the directory: a readable part and a hash."""
    settings = [FORMAT, source.name, data.text_field, data.hf_split, data.validation_fraction, source.identity()]
    readable = re.sub(r"[^A-Za-z0-9._-]+", "-", Path(source.name).name).strip(".-")[:40] or "corpus"
    return f"{readable}-{hashlib.sha256(json.dumps(settings).encode()).hexdigest()[:16]}"


def _remove_stale(folder: Path) -> None:
    """Remove what killed processes left half-written."""
    for partial in folder.glob(".*.partial-*"):
        try:
            newest = max(path.stat().st_mtime for path in (partial, *partial.iterdir()))
        except OSError:  # just renamed or removed by its owner
            continue
        if time.time() - newest > _STALE_SECONDS:
            shutil.rmtree(partial, ignore_errors=True)
