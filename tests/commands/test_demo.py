import signal

import pytest

from byteseam.cli import main
from byteseam.commands import demo
from byteseam.data import cache
from byteseam.data import recipes as recipes_module
from byteseam.data.documents import Document
from byteseam.data.recipes import Recipe
from byteseam.errors import UserError
from byteseam.training import loop

SHORT = "training.total_bytes=384"


@pytest.fixture
def run(capsys, tmp_path, monkeypatch):
    """``run("--out", "x")`` -> (exit code, stdout, stderr) of the demo in an empty folder."""
    monkeypatch.setenv("BYTESEAM_CACHE", str(tmp_path / "cache"))
    (tmp_path / "here").mkdir()
    monkeypatch.chdir(tmp_path / "here")

    def call(*arguments):
        code = main(["demo", *map(str, arguments), SHORT])
        return code, *capsys.readouterr()

    return call


@pytest.fixture
def corpora(monkeypatch):
    """The first corpus of the demo cannot be had, the second can."""

    def offline(path):
        raise UserError("pip cannot download it: go online")
        yield

    def here(path):
        return (Document(str(number), b"document %d of a few words" % number) for number in range(40))

    makers = dict(zip(cache.DEMO_CORPORA, (offline, here, here), strict=True))
    table = {name: Recipe(name, name, "none", 100, None, documents) for name, documents in makers.items()}
    monkeypatch.setattr(cache, "RECIPES", table)
    monkeypatch.setattr(recipes_module, "RECIPES", table)
    monkeypatch.setattr(recipes_module, "_python_files", lambda library: iter([]))


def test_it_ends_with_the_passage_and_what_to_try_next(run, tiny_toml, tmp_path):
    code, out, err = run("--config", tiny_toml)
    assert code == 0
    place = "runs/demo"
    assert f"run                 {place}\n" in out
    passage = (tmp_path / "here" / place / "passage.bin").read_bytes().decode()
    shown = out.partition(f"run                 {place}\n")[2]
    assert passage.split()[0] in shown.replace("│", "")
    assert "│ ends a token; · space, ↵ line end" in shown
    for command in (
        f"byteseam segment {place} 'any text you like'",
        f"byteseam segment {place} --decide threshold --format html --out tokens.html",
        f"byteseam generate {place} --prompt 'It was a dark'",
        f"byteseam eval {place}",
        f"byteseam train {tiny_toml} --data.source python-stdlib",
    ):
        assert f"  {command}\n" in out
    assert "the passage below is held out" in err


def test_a_second_one_has_a_place_of_its_own(run, tiny_toml, tmp_path):
    for _ in range(2):
        assert run("--config", tiny_toml)[0] == 0
    assert sorted(path.name for path in (tmp_path / "here" / "runs").iterdir()) == ["demo", "demo-2"]
    assert run("--config", tiny_toml, "--out", tmp_path / "mine")[0] == 0
    assert (tmp_path / "mine" / "config.toml").is_file()


def test_without_the_first_corpus_it_takes_the_next_and_says_so(run, corpora, tiny_toml, tmp_path):
    code, _, err = run("--config", tiny_toml, "--data.source", cache.DEMO_CORPORA[0], "--out", "r")
    assert code == 0
    first, second, _ = cache.DEMO_CORPORA
    assert f"note: training on {second} instead of {first}: pip cannot download it: go online\n" in err
    assert f'source = "{second}"' in (tmp_path / "here" / "r" / "config.toml").read_text()


def test_a_stopped_one_says_how_to_go_on(run, monkeypatch, tiny_toml):
    whole = loop.accumulate_gradients

    def interrupted(*arguments):
        signal.raise_signal(signal.SIGINT)
        return whole(*arguments)

    monkeypatch.setattr(loop, "accumulate_gradients", interrupted)
    code, out, _ = run("--config", tiny_toml)
    assert (code, out) == (130, "stopped at step 1; continue with: byteseam train --resume runs/demo\n")


def test_the_laptop_configuration_is_found_from_anywhere(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert demo.default_config().is_file()
    (tmp_path / "configs").mkdir()
    (tmp_path / "configs" / "laptop.toml").touch()
    assert demo.default_config().resolve() == tmp_path.resolve() / "configs" / "laptop.toml"
