import argparse
import io
import json
import sys

import pytest

from byteseam.commands import prepare
from byteseam.errors import UserError


@pytest.fixture
def run(capsys):
    """``run("SOURCE", "OUT")`` -> (exit code, stdout, stderr)."""

    def call(*arguments):
        parser = argparse.ArgumentParser()
        prepare.add_arguments(parser)
        code = prepare.run(parser.parse_args([str(argument) for argument in arguments]))
        return code, *capsys.readouterr()

    return call


@pytest.fixture
def lines(tmp_path):
    path = tmp_path / "a.jsonl"
    texts = [json.dumps({"body": f"text {i}"}) for i in range(30)]
    path.write_text("\n".join([*texts, "not json", "", '{"body": ""}']))
    return path


def test_the_answer_in_json_is_one_object_and_nothing_else(run, lines, tmp_path):
    code, out, err = run(lines, tmp_path / "out", "--text-field", "body", "--validation-fraction", "0.3", "--json")
    assert code == 0
    assert err == ""
    assert out.count("\n") == 1
    answer = json.loads(out)
    assert answer["out"] == str(tmp_path / "out")
    assert answer["train"]["documents"] + answer["validation"]["documents"] == 30
    assert answer["malformed"]["count"] == 1
    assert answer["malformed"]["named"][0][0] == f"{lines}:31"
    assert answer["empty"] == 1
    assert answer["validation_fraction"] == 0.3
    assert (tmp_path / "out" / "manifest.json").exists()


def test_the_answer_for_people_names_what_was_left_out(run, lines, tmp_path):
    code, out, _ = run(lines, tmp_path / "out", "--text-field", "body")
    assert code == 0
    for words in (
        "the file a.jsonl",
        "train",
        "validation",
        f"{lines}:31: the line is not JSON",
        "1 documents left out",
    ):
        assert words in out
    assert str(tmp_path / "out") in out


def test_more_than_twenty_are_not_all_named(run, tmp_path):
    (tmp_path / "a.jsonl").write_text("x\n" * 50 + '{"text": "one"}\n{"text": "two"}')
    _, out, _ = run(tmp_path / "a.jsonl", tmp_path / "out")
    assert ":20: the line" in out
    assert ":21: the line" not in out
    assert "\n            ...\n" in out


def test_names_of_strangers_cannot_steer_the_terminal(run, tmp_path):
    (tmp_path / "texts").mkdir()
    for name in ("a", "b", ".\x1b[31mred\n"):
        (tmp_path / "texts" / name).write_text(name)
    _, out, _ = run(tmp_path / "texts", tmp_path / "out")
    assert "\x1b" not in out
    assert r"\x1b[31mred\n: hidden" in out


def test_standard_input_is_read(run, tmp_path, monkeypatch):
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(b"from a pipe " * 10)))
    _, out, _ = run("-", tmp_path / "out", "--json")
    assert json.loads(out)["split_rule"] == "tail of the only document"


def test_a_typo_and_an_existing_output_are_user_errors(run, tmp_path):
    with pytest.raises(UserError, match="did you mean gutenberg"):
        run("gutenbreg", tmp_path / "out")
    (tmp_path / "a").write_text("text")
    with pytest.raises(UserError, match="exists already"):
        run(tmp_path / "a", tmp_path)


def test_the_bar_shows_on_a_terminal_only(monkeypatch, capsys):
    with prepare.progress_bar("preparing x") as advance:
        advance(5, 3)
        advance(10, None)
    assert capsys.readouterr() == ("", "")
