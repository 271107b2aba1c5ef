"""The command as a user calls it."""

import json
import os
import signal
import subprocess
import sys
import time

import pytest

from byteseam import cli

OVERRIDES = ("--training.total_bytes", "640", "--training.threads", "1")


@pytest.fixture
def compare(tiny_toml, tmp_path, capsys):
    def call(strategies: str, *more: str) -> tuple[int, str, str]:
        arguments = ["compare", str(tiny_toml), "--strategies", strategies, "--out", str(tmp_path / "out"), *more]
        code = cli.main([*arguments, *OVERRIDES])
        return code, *capsys.readouterr()

    return call


def test_a_comparison_from_nothing_to_its_page_and_further(compare, tmp_path):
    code, out, err = compare("uniform,whitespace", "--jobs", "2")
    assert code == 0, err
    assert "uniform, seed 0: done" in err
    assert "640 bytes a run, reference uniform" in out
    for kind in ("json", "md", "csv", "html"):
        assert (tmp_path / "out" / f"report.{kind}").stat().st_size > 100
    # One more strategy: what is finished is not run again.
    code, out, err = compare("hnet", "--reference", "uniform", "--json")
    assert code == 0
    assert "uniform, seed 0" not in err
    assert "hnet, seed 0: done" in err
    report = json.loads(out)
    assert [entry["label"] for entry in report["entries"]] == ["uniform", "whitespace", "hnet"]
    assert report["entries"][2]["difference"]["by_seed"][0] != 0
    assert report["entries"][0]["bpe_f1"] is None or 0 < report["entries"][0]["bpe_f1"] < 1


def test_a_budget_of_minutes_is_timed_once_and_spent_alike(compare, tmp_path):
    code, out, err = compare("uniform,stride", "--budget", "minutes=0.01", "--json")
    assert code == 0, err
    assert "timing each strategy" in err
    plan = json.loads((tmp_path / "out" / "comparison.json").read_text())
    trained = {entry["label"]: entry["bytes_trained"] for entry in json.loads(out)["entries"]}
    for label, speed in plan["bytes_per_second"].items():
        assert trained[label] == pytest.approx(0.6 * speed, abs=128)
    code, out, _ = compare("uniform", "--budget", "minutes=0.01", "--json")
    assert json.loads((tmp_path / "out" / "comparison.json").read_text()) == plan


def test_all_failed_is_an_exit_code_of_its_own(compare):
    code, out, _ = compare("broken:uniform[training.learning_rate=1e30]")
    assert code == 1
    assert "broken, seed 0, failed: " in out
    assert "Traceback" not in out


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (["unifrom"], 'strategy.name must be one of .*got "unifrom"; did you mean "uniform"'),
        (["uniform,uniform"], "two entries of the label 'uniform'"),
        (["uniform", "--budget", "bytes=10"], "less than one step of 128"),
        (["uniform", "--budget", "20M"], "cannot be read"),
        (["uniform", "--seeds", "none"], "--seeds 'none' is neither"),
        (["uniform", "--reference", "hnet"], "--reference 'hnet' is none of the entries: uniform"),
        (["uniform", "--probe", "noize"], "--probe 'noize' is none of"),
        (["uniform", "--jobs", "0"], "--jobs is 0"),
        (["uniform", "--max-bytes", "0"], "--max-bytes is 0"),
        (["uniform", "--data.source", "/no/such/place"], "/no/such/place"),
    ],
)
def test_mistakes_are_one_sentence_and_leave_nothing(compare, tmp_path, arguments, sentence):
    import re

    code, out, err = compare(*arguments)
    assert (code, out) == (2, "")
    assert err.count("\n") == 1
    assert re.search(sentence, err), err
    assert not (tmp_path / "out").exists()


def test_a_place_of_another_comparison_is_refused_and_kept(compare, tmp_path):
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / "letter").write_text("dear")
    code, _, err = compare("uniform")
    assert code == 2
    assert "holds no comparison" in err
    assert (tmp_path / "out" / "letter").read_text() == "dear"


def test_an_interrupt_saves_and_the_same_command_goes_on(tiny_toml, tmp_path):
    out = tmp_path / "out"
    command = [
        sys.executable,
        "-m",
        "byteseam",
        "compare",
        str(tiny_toml),
        "--strategies",
        "score_function",
        "--out",
        str(out),
    ]
    command += ["--training.total_bytes", str(128 * 400), "--training.checkpoint_every_bytes", "1e9"]
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    process = subprocess.Popen(command, env=environment, stderr=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    metrics, limit = out / "runs" / "score_function-0" / "metrics.jsonl", time.monotonic() + 120
    while not (metrics.exists() and metrics.stat().st_size):
        assert process.poll() is None
        assert time.monotonic() < limit
        time.sleep(0.01)
    process.send_signal(signal.SIGTERM)
    _, err = process.communicate(timeout=120)
    assert process.returncode == 128 + signal.SIGTERM, err
    assert "the same command goes on" in err
    assert list((out / "runs" / "score_function-0" / "checkpoints").iterdir()), "a checkpoint was saved"
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=240)
    assert done.returncode == 0, done.stderr
    assert "score_function" in done.stdout
