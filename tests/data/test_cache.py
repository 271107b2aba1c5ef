import os
import time
from types import SimpleNamespace

import pytest

from byteseam.data import cache as module
from byteseam.data import recipes
from byteseam.data.cache import DEMO_CORPORA, find_source, resolve, resolve_with_fallback
from byteseam.data.corpus import Corpus
from byteseam.data.documents import Document
from byteseam.data.prepare import prepare
from byteseam.data.recipes import Recipe
from byteseam.errors import UserError


def settings(source, **changes):
    return SimpleNamespace(
        **{"source": str(source), "text_field": "text", "hf_split": "train", "validation_fraction": 0.5, **changes}
    )


def train(directory):
    corpus = Corpus.open(directory)
    return [corpus.document(i).tobytes() for i in range(len(corpus))]


@pytest.fixture
def folder(tmp_path):
    (tmp_path / "texts").mkdir()
    for name in "abcd":
        (tmp_path / "texts" / name).write_text(f"text {name}")
    return tmp_path / "texts"


@pytest.fixture
def corpora(cache, monkeypatch):
    """Two named corpora: one that cannot be had, and one that can."""

    def offline(path):
        raise UserError("pip cannot download it: go online")
        yield

    def here(path):
        return (Document(str(i), b"document %d" % i) for i in range(20))

    table = {
        name: Recipe(name, name, "none", 100, None, documents)
        for name, documents in {"gutenberg": offline, "python-docs": here, "python-stdlib": here}.items()
    }
    monkeypatch.setattr(module, "RECIPES", table)
    monkeypatch.setattr(recipes, "RECIPES", table)
    monkeypatch.setattr(recipes, "_python_files", lambda library: iter([]))


def test_a_path_is_prepared_once_behind_the_scenes(cache, folder, monkeypatch):
    first = resolve(settings(folder))
    assert first.parent == cache / "corpora"
    assert first.name.startswith("texts-")
    monkeypatch.setattr(module, "prepare", None)  # not called again
    assert resolve(settings(folder)) == first


def test_changed_files_and_settings_are_prepared_anew(cache, folder):
    seen = {resolve(settings(folder)), resolve(settings(folder, validation_fraction=0.4))}
    seen.add(resolve(settings(folder, text_field="body")))
    (folder / "e").write_text("more")
    seen.add(resolve(settings(folder)))
    os.utime(folder / "e", (1, 1))
    seen.add(resolve(settings(folder)))
    assert len(seen) == 5


def test_a_prepared_directory_is_used_as_it_is(cache, folder, tmp_path):
    prepare(find_source(str(folder)), tmp_path / "mine")
    assert resolve(settings(tmp_path / "mine")) == tmp_path / "mine"
    assert not cache.exists()
    (tmp_path / "mine" / "manifest.json").write_text("{")
    with pytest.raises(UserError, match="is damaged"):
        resolve(settings(tmp_path / "mine"))


def test_a_named_corpus_is_prepared_and_wins_over_a_file(corpora, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "python-docs").write_text("a file of that name!")
    assert resolve(settings("python-docs")).name.startswith("python-docs-")
    assert sum(text.startswith(b"document") for text in train(resolve(settings("python-docs")))) > 3
    assert b"".join(train(resolve(settings("./python-docs")))) == b"a file of "


def test_of_two_processes_the_first_wins(cache, folder, monkeypatch):
    """The other one prepares while this one does, and is done first."""

    def slower(source, out, **options):
        prepare(source, out, **options)
        return prepare(source, out, **options)

    monkeypatch.setattr(module, "prepare", slower)
    directory = resolve(settings(folder))
    assert [path.name for path in directory.parent.iterdir()] == [directory.name]
    assert train(directory)


def test_something_else_in_the_way_is_named(cache, folder, one_sentence):
    directory = resolve(settings(folder))
    (directory / "manifest.json").unlink()
    with pytest.raises(UserError, match="exists already") as error:
        resolve(settings(folder))
    one_sentence(error, directory)


def test_what_killed_processes_left_is_removed_after_a_day(cache, folder):
    stale, fresh = (cache / "corpora" / f".texts-1.partial-{name}" for name in ("1-aa", "2-bb"))
    for partial in (stale, fresh):
        partial.mkdir(parents=True)
        (partial / "train-00000.bin").write_bytes(b"x")
    yesterday = time.time() - 100_000
    for path in (stale / "train-00000.bin", stale, fresh):
        os.utime(path, (yesterday, yesterday))
    resolve(settings(folder))
    assert not stale.exists()
    assert fresh.exists()  # its file is being written to


@pytest.mark.parametrize(
    ("source", "words"),
    [
        ("gutenburg", "did you mean gutenberg?"),
        ("Python-Docs", "did you mean python-docs"),
        ("zzz", "the corpora are python-stdlib"),
        ("", "the data source is empty"),
        ("-", "byteseam prepare - DIRECTORY"),
        ("./gutenberg", "no file or folder"),
        ("no/such/file.txt", "no file or folder"),
        ("*.nothing", "no file matches"),
        ("hf:", "names no dataset"),
    ],
)
def test_what_is_not_there_is_one_sentence(cache, tmp_path, monkeypatch, one_sentence, source, words):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(UserError) as error:
        resolve(settings(source))
    one_sentence(error, words)
    assert not (cache / "corpora").exists() or not list((cache / "corpora").iterdir())


def test_a_cache_that_cannot_be_written_is_named(folder, tmp_path, monkeypatch, one_sentence):
    (tmp_path / "file").write_text("in the way")
    monkeypatch.setenv("BYTESEAM_CACHE", str(tmp_path / "file"))
    with pytest.raises(UserError, match="cannot write the cache") as error:
        resolve(settings(folder))
    one_sentence(error, tmp_path / "file", "BYTESEAM_CACHE")


def test_progress_reaches_the_caller(cache, folder):
    seen = []
    resolve(settings(folder), progress=lambda *counts: seen.append(counts))
    assert seen[-1] == (24, 24)


def test_the_first_corpus_that_can_be_had_is_taken(corpora, one_sentence):
    name, directory, notice = resolve_with_fallback()
    assert name == DEMO_CORPORA[1] == "python-docs"
    assert notice == "training on python-docs instead of gutenberg: pip cannot download it: go online"
    assert train(directory)
    assert resolve_with_fallback(["python-docs", "gutenberg"])[2] is None
    with pytest.raises(UserError, match="go online"):
        resolve_with_fallback(["gutenberg"])
    with pytest.raises(UserError, match="no corpus was named"):
        resolve_with_fallback([])
