import json
import shutil
import signal

import pytest

from byteseam.cli import main
from byteseam.commands import train as module
from byteseam.training import loop
from byteseam.training.run import read_jsonl


@pytest.fixture
def run(capsys):
    """``run("CONFIG.toml", ...)`` -> (exit code, stdout, stderr)."""

    def call(*arguments):
        code = main(["train", *map(str, arguments)])
        return code, *capsys.readouterr()

    return call


SHORT = "training.total_bytes=384"  # three steps


@pytest.fixture
def stop_at(monkeypatch):
    """``stop_at(2, signal.SIGTERM)``: the signal comes during that step."""

    def arrange(step, number):
        whole = loop.accumulate_gradients
        calls = []

        def interrupted(*arguments):
            calls.append(arguments)
            if len(calls) == step:
                signal.raise_signal(number)
            return whole(*arguments)

        monkeypatch.setattr(loop, "accumulate_gradients", interrupted)

    return arrange


def test_training_ends_with_its_figures_and_its_place(run, tiny_toml, tmp_path):
    code, out, err = run(tiny_toml, SHORT, "--out", tmp_path / "run")
    assert code == 0
    for words in ("bits per byte", "bytes per token", "policy entropy", "read                384 bytes (0.13 times"):
        assert words in out
    assert out.endswith(f"run                 {tmp_path / 'run'}\n")
    assert "after 0.0 MB:" in err  # the passage
    assert read_jsonl(tmp_path / "run" / "metrics.jsonl")[-1]["step"] == 3


def test_the_answer_in_json_is_one_object_and_nothing_else(run, tiny_toml, tmp_path):
    code, out, err = run(tiny_toml, SHORT, "--out", tmp_path / "run", "--json", "--quiet")
    assert (code, err) == (0, "")
    assert out.count("\n") == 1
    answer = json.loads(out)
    assert answer["run"] == str(tmp_path / "run")
    assert (answer["finished"], answer["steps"], answer["bytes_seen"]) == (True, 3, 384)
    assert answer["epochs"] == pytest.approx(0.13, abs=0.01)
    assert answer["seconds"] > 0
    assert answer["evaluation"]["bits_per_byte"] == read_jsonl(tmp_path / "run" / "metrics.jsonl")[-1]["bits_per_byte"]


@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_a_signal_gives_its_code_and_the_command_to_go_on(run, stop_at, tiny_toml, tmp_path, number, code):
    stop_at(2, number)
    place = tmp_path / "run"
    stopped, out, _ = run(tiny_toml, SHORT, "--out", place, "--quiet")
    assert stopped == code
    command = f"byteseam train --resume {place}"
    assert out == f"stopped at step 2; continue with: {command}\n"
    assert (place / "checkpoints" / "step-00000002").is_dir()
    assert run(*command.split()[2:], "--quiet")[0] == 0


def test_a_stopped_run_says_so_in_json(run, stop_at, tiny_toml, tmp_path):
    stop_at(1, signal.SIGTERM)
    code, out, _ = run(tiny_toml, SHORT, "--out", tmp_path / "run", "--json", "--quiet")
    answer = json.loads(out)
    assert (code, answer["finished"], answer["steps"], answer["evaluation"]) == (143, False, 1, None)


def test_a_run_has_a_name_of_its_own_where_none_is_given(run, tiny_toml, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert run(tiny_toml, SHORT, "--quiet")[0] == 0
    (made,) = (tmp_path / "runs").iterdir()
    assert made.name.startswith("score_function-")


def test_overrides_reach_the_run(run, tiny_toml, tmp_path):
    assert run(tiny_toml, "--out", tmp_path / "run", "--quiet", "--seed", "7", "--" + SHORT)[0] == 0
    text = (tmp_path / "run" / "config.toml").read_text()
    assert "seed = 7\n" in text
    assert "total_bytes = 384.0\n" in text


def test_a_moved_run_is_resumed_where_it_is(run, tiny_run, tmp_path):
    shutil.copytree(tiny_run, tmp_path / "moved")
    code, out, _ = run("--resume", tmp_path / "moved", "--quiet")
    assert code == 0
    assert out.endswith(f"run                 {tmp_path / 'moved'}\n")


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ((), "byteseam train needs a CONFIG.toml, or --resume RUN; configs/laptop.toml is a good start"),
        (("c.toml", "--resume", "r"), "--resume RUN goes on with the run's own configuration; leave CONFIG"),
        (("--resume", "r", "--seed", "3"), "--resume RUN goes on with the run's own configuration"),
        (("--resume", "r", "--out", "o"), "--resume RUN goes on with the run's own configuration"),
    ],
)
def test_arguments_that_do_not_go_together(run, arguments, words):
    code, out, err = run(*arguments)
    assert (code, out) == (2, "")
    assert words in err


def test_the_module_keeps_its_word():
    assert module.TAKES_OVERRIDES is True
