import json

import pytest

from byteseam.cli import main
from byteseam.training.checkpoint import latest_checkpoint


@pytest.fixture
def run(capsys, tiny_run):
    """``run("--json")`` -> (exit code, stdout, stderr) of scoring the tiny run."""

    def call(*arguments, place=tiny_run):
        code = main(["eval", str(place), *map(str, arguments)])
        return code, *capsys.readouterr()

    return call


def answer_of(result):
    code, out, _ = result
    assert code == 0
    assert out.count("\n") == 1
    return json.loads(out)


def test_the_answer_for_people_has_every_figure(run, tiny_run):
    code, out, _ = run()
    assert code == 0
    starts = [
        "bits per byte       ",
        "early exit          ",
        "bytes per token     ",
        "white space that is a boundary ",
        "word ends that carry a boundary ",
        "boundaries on white space ",
        "boundaries at a word end ",
        "boundaries inside a character ",
        "policy entropy      ",
        "scored              ",
    ]
    assert [line[: len(start)] for line, start in zip(out.splitlines(), starts, strict=True)] == starts
    assert "(95 % over documents: " in out
    assert "(target 3.00)" in out
    assert "scored              823 bytes of 12 documents" in out


def test_the_answer_in_json_is_one_object_and_nothing_else(run, tiny_run):
    answer = answer_of(run("--json"))
    last = json.loads((tiny_run / "metrics.jsonl").read_text().splitlines()[-1])
    assert answer["bits_per_byte"] == pytest.approx(last["bits_per_byte"], rel=1e-6)  # the same seed drew the same
    assert answer["rate"] == last["rate"]
    low, high = answer["bits_per_byte_interval"]
    assert low < answer["bits_per_byte"] < high
    assert (answer["run"], answer["step"], answer["decide"], answer["threshold"]) == (str(tiny_run), 20, "sample", None)
    assert (answer["documents"], answer["bytes_scored"]) == (12, 823)
    assert answer["bytes_per_token"] == pytest.approx(1 / answer["rate"])


def test_a_checkpoint_can_be_scored_alone(run, tiny_run):
    newest = latest_checkpoint(tiny_run / "checkpoints")
    assert answer_of(run("--json", place=newest))["bits_per_byte"] == answer_of(run("--json"))["bits_per_byte"]
    earlier = answer_of(run("--json", place=newest.with_name("step-00000015")))
    assert earlier["step"] == 15


@pytest.mark.parametrize("wanted", [2, 5])
def test_a_rate_is_calibrated(run, wanted):
    answer = answer_of(run("--json", "--decide", "rate", "--bytes-per-token", wanted))
    assert answer["bytes_per_token"] == pytest.approx(wanted, rel=0.15)
    assert answer["decide"] == "rate"
    assert 0 < answer["threshold"] < 1
    assert answer["warning"] is None


def test_thresholds_and_warnings(run):
    code, out, err = run("--json", "--decide", "threshold", "--threshold", "0.01")
    answer = json.loads(out)
    assert (code, answer["rate"], answer["threshold"]) == (0, 1.0, 0.01)
    assert answer["warning"].startswith("the boundaries have collapsed to one a byte")
    assert err == f"note: {answer['warning']}\n"
    none = answer_of(run("--json", "--decide", "threshold"))
    assert (none["rate"], none["bytes_per_token"], none["boundary_whitespace_share"]) == (0.0, None, None)


def test_the_seed_draws_other_boundaries(run):
    rates = [answer_of(run("--json", "--seed", seed))["rate"] for seed in (0, 0, 1)]
    assert rates[0] == rates[1] != rates[2]


def test_so_many_bytes_and_other_data(run, tmp_path, monkeypatch):
    assert answer_of(run("--json", "--max-bytes", "100"))["bytes_scored"] == 100
    monkeypatch.setenv("BYTESEAM_CACHE", str(tmp_path / "cache"))
    (tmp_path / "other.txt").write_text("another text " * 50)
    answer = answer_of(run("--json", "--data", tmp_path / "other.txt"))
    assert (answer["documents"], answer["bits_per_byte_interval"]) == (1, None)
    assert answer["bytes_scored"] == 130  # a fifth, as in the run


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("--max-bytes", "0"), "--max-bytes is 0, but at least 1 byte is scored"),
        (("--max-bytes", "nan"), "--max-bytes is nan, but"),
        (("--threshold", "0.3"), "--threshold goes with --decide threshold, not with --decide sample"),
        (("--bytes-per-token", "3"), "--bytes-per-token goes with --decide rate, not with --decide sample"),
        (("--decide", "threshold", "--threshold", "1.5"), "--threshold is 1.5, but a probability lies between 0 and 1"),
        (("--decide", "threshold", "--threshold", "nan"), "--threshold is nan, but a probability lies"),
        (("--decide", "rate", "--bytes-per-token", "0.5"), "--bytes-per-token is 0.5, but a token has at least 1 byte"),
        (("--decide", "rate", "--bytes-per-token", "nan"), "--bytes-per-token is nan, but a token has at least"),
        (("--decide", "x"), "argument --decide: invalid choice: 'x'"),
    ],
)
def test_numbers_out_of_range_are_named(run, arguments, words):
    code, out, err = run(*arguments)
    assert (code, out) == (2, "")
    assert words in err
