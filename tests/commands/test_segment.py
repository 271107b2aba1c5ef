import io
import json
import os
import shutil
import sys

import pytest

from byteseam.cli import main
from byteseam.inspect import Record

TEXT = "to be or not to be é"


@pytest.fixture
def run(capsys, monkeypatch, tiny_run):
    """``run("a text", "--json")`` -> (exit code, stdout, stderr) of cutting it with the tiny run."""
    for name in ("NO_COLOR", "FORCE_COLOR"):
        monkeypatch.delenv(name, raising=False)

    def call(*arguments, place=tiny_run):
        code = main(["segment", str(place), *map(str, arguments)])
        return code, *capsys.readouterr()

    return call


def record_of(result):
    code, out, err = result
    assert (code, err) == (0, "")
    assert out.count("\n") == 1
    return Record.from_json(out)


def test_tokens_in_a_terminal(run, monkeypatch):
    code, out, err = run(TEXT)
    assert (code, err) == (0, "")
    assert out.replace("│", "").replace("⟨c3⟩", "é").replace("⟨a9⟩", "") == TEXT.replace(" ", "·") + "\n"
    assert "│" in out
    monkeypatch.setenv("FORCE_COLOR", "1")
    assert "\x1b[" in run(TEXT)[1]


def test_the_answer_in_json_is_one_object_and_nothing_else(run):
    record = record_of(run(TEXT, "--json"))
    assert (record.data, record.name, record.decide) == (TEXT.encode(), "text", "sample")
    assert record.bits_per_byte > 0


def test_tokens_as_json_lines(run):
    code, out, _ = run(TEXT, "--format", "jsonl")
    spans = [json.loads(line) for line in out.splitlines()]
    assert code == 0
    assert b"".join(bytes.fromhex(span["hex"]) for span in spans) == TEXT.encode()
    assert [span["start"] for span in spans[1:]] == [span["end"] for span in spans[:-1]]
    assert all(0 < span["probability"] < 1 for span in spans if span["closed"])


@pytest.mark.parametrize(("form", "start", "end"), [("html", "<!doctype html>", "</html>"), ("svg", "<svg", "</svg>")])
def test_tokens_as_a_picture(run, tmp_path, form, start, end):
    code, out, err = run("<b>&", "--format", form)
    assert (code, err) == (0, "")
    assert out.lower().startswith(start)
    assert out.strip().endswith(end)
    assert "<b>&" not in out
    assert run("<b>&", "--format", form, "--out", tmp_path / "x")[1:] == ("", "")
    assert (tmp_path / "x").read_text(encoding="utf-8").strip() == out.strip()
    assert [path.name for path in tmp_path.iterdir()] == ["x"]


def test_a_written_file_has_no_colours(run, tmp_path, monkeypatch):
    monkeypatch.setenv("FORCE_COLOR", "3")
    assert run(TEXT, "--out", tmp_path / "x")[0] == 0
    assert "\x1b" not in (tmp_path / "x").read_text()


# What is read


def test_a_text_that_names_a_file_is_that_file(run, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "words").write_bytes(b"in the \xff file")
    record = record_of(run("words", "--json"))
    assert (record.name, record.data) == ("words", b"in the \xff file")
    assert record_of(run("word", "--json")).data == b"word"
    assert record_of(run(tmp_path, "--json")).data == os.fsencode(tmp_path)  # a folder is no file


@pytest.mark.parametrize("text", ["a/b", "x" * 300, "nul\0", "", "-"])
def test_any_text_is_a_text(run, monkeypatch, text):
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(b"piped \x80")))
    record = record_of(run(text, "--json"))
    assert record.data == (b"piped \x80" if text == "-" else text.encode())
    assert record.name == ("standard input" if text == "-" else "text")


def test_bytes_on_the_command_line_stay_bytes(run):
    assert record_of(run(os.fsdecode(b"\xff\xfe"), "--json")).data == b"\xff\xfe"


def test_a_file_by_its_own_option(run, tmp_path):
    (tmp_path / "-").write_text("dashed")
    assert record_of(run("--file", tmp_path / "-", "--json")).data == b"dashed"


def test_without_a_text_it_is_the_held_out_passage(run, tiny_run):
    record = record_of(run("--json"))
    assert (record.name, record.data) == ("held-out passage", (tiny_run / "passage.bin").read_bytes())


def test_a_moved_run_works(run, tiny_run, tmp_path):
    shutil.copytree(tiny_run, tmp_path / "moved")
    assert record_of(run(TEXT, "--json", place=tmp_path / "moved")) == record_of(run(TEXT, "--json"))


# How


def test_ways_to_decide(run):
    sample = [record_of(run(TEXT * 3, "--json", "--seed", seed)) for seed in (0, 0, 1)]
    assert sample[0] == sample[1] != sample[2]
    every = record_of(run(TEXT, "--json", "--decide", "threshold", "--threshold", "0"))
    assert (every.bytes_per_token, every.decide) == (1.0, "threshold")
    rate = record_of(run("--json", "--decide", "rate", "--bytes-per-token", "2"))
    assert (rate.bytes_per_token, rate.decide) == (pytest.approx(2, rel=0.3), "rate")


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("a", "--file", "b"), "give a TEXT or a --file, not both"),
        (("--file", "no/such/file"), "cannot read no/such/file: No such file or directory"),
        (("a", "--json", "--format", "html"), "--json prints the record; leave out --format html"),
        (("a", "--out", "no/such/folder/x"), "cannot write no/such/folder/x: No such file or directory"),
        (("a", "--out", "."), "cannot write .: "),
        (("a", "--threshold", "0.5"), "--threshold goes with --decide threshold"),
    ],
)
def test_mistakes_are_one_sentence(run, tmp_path, monkeypatch, arguments, words):
    monkeypatch.chdir(tmp_path)
    code, out, err = run(*arguments)
    assert (code, out) == (2, "")
    assert words in err
    assert err.count("\n") == 1
    assert list(tmp_path.iterdir()) == []


def test_a_bare_checkpoint_has_no_passage(run, tiny_run, tmp_path):
    shutil.copytree(tiny_run / "checkpoints" / "step-00000020", tmp_path / "a" / "b")
    code, _, err = run(place=tmp_path / "a" / "b")
    assert (code, err) == (2, "byteseam: there is no TEXT: give a text, a file, or - for standard input\n")


def test_what_a_boundary_is_worth_is_measured_where_asked_for(run, tmp_path):
    record = record_of(run(TEXT, "--json"))
    assert record.advantage_nats is None
    code, out, _ = run(TEXT, "--json", "--advantages", "3")
    record = Record.from_json(out)
    assert code == 0
    assert (record.advantage_nats != 0).any()
    assert (record.advantage_error_nats > 0).any()
    code, out, _ = run(TEXT, "--advantages", "--format", "html")
    assert code == 0
    assert "What a boundary after each character is worth" in out


def test_an_error_takes_two_segmentations(run):
    code, out, err = run(TEXT, "--advantages", "1")
    assert (code, out) == (2, "")
    assert "--advantages is 1" in err
