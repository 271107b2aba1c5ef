import io
import json
import sys

import pytest

from byteseam.cli import main


@pytest.fixture
def run(capsys, tiny_run):
    """``run("--prompt", "x")`` -> (exit code, stdout, stderr) of continuing it with the tiny run."""

    def call(*arguments):
        code = main(["generate", str(tiny_run), *map(str, arguments)])
        return code, *capsys.readouterr()

    return call


def answer_of(result):
    code, out, err = result
    assert (code, err) == (0, "")
    assert out.count("\n") == 1
    return json.loads(out)


def test_the_answer_in_json_is_one_object_and_nothing_else(run):
    answer = answer_of(run("--prompt", "to be é", "--max-bytes", "12", "--json"))
    produced = bytes.fromhex(answer["hex"])
    assert answer["prompt"] == "to be é"
    assert answer["text"] == produced.decode("utf-8", "replace")
    assert answer["bytes"] == len(produced) <= 12
    assert 0 <= answer["tokens"] <= answer["bytes"]


def test_the_text_goes_to_standard_output(run):
    common = ("--prompt", "to be é", "--max-bytes", "12", "--seed", "3")
    code, out, err = run(*common)
    assert (code, err) == (0, "")
    assert out == "to be é" + answer_of(run(*common, "--json"))["text"] + "\n"


def test_settings_reach_the_sampling(run):
    def text(*arguments):
        return answer_of(run("--prompt", "or", "--max-bytes", "8", "--json", *arguments))["hex"]

    greedy = text("--temperature", "0")
    assert text("--top-k", "1") == text("--top-p", "1e-9") == text("--temperature", "1e-30") == greedy
    assert text("--seed", "1") == text("--seed", "1") != text("--seed", "2")
    assert text("--temperature", "0.8") == text()
    assert text("--temperature", "1.5") != text()
    all_boundaries = ("--decide", "threshold", "--threshold", "0", "--temperature", "0")
    answer = answer_of(run("--prompt", "or", "--max-bytes", "8", "--json", *all_boundaries))
    assert answer["tokens"] == answer["bytes"] > 0


def test_a_prompt_from_standard_input_and_none_at_all(run, monkeypatch):
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(b"piped \xff")))
    assert answer_of(run("--prompt", "-", "--max-bytes", "2", "--json"))["prompt"] == "piped \ufffd"
    assert answer_of(run("--max-bytes", "2", "--json"))["prompt"] == ""


def test_a_prompt_longer_than_the_context(run):
    assert answer_of(run("--prompt", "to be " * 50, "--max-bytes", "2", "--json"))["bytes"] >= 0


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("--temperature", "-1"), "--temperature is -1, but it is at least 0"),
        (("--temperature", "nan"), "--temperature is nan, but"),
        (("--max-bytes", "0"), "--max-bytes is 0, but it is at least 1"),
        (("--top-k", "0"), "--top-k is 0, but it is at least 1"),
        (("--top-p", "0"), "--top-p is 0.0, but it lies in (0, 1]"),
        (("--top-p", "nan"), "--top-p is nan, but it lies in (0, 1]"),
        (("--prompt", "not printed", "--threshold", "0.1"), "--threshold goes with --decide threshold"),
    ],
)
def test_numbers_out_of_range_are_named(run, arguments, words):
    code, out, err = run(*arguments)
    assert (code, out) == (2, "")
    assert words in err
