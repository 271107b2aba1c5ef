"""``byteseam estimators`` on a tiny run: table, numbers, records, and wrong turns."""

import json

import pytest

from byteseam.cli import main
from byteseam.inspect import Record
from byteseam.laboratory import sampled
from byteseam.laboratory.exact import PAPER


@pytest.fixture(autouse=True)
def _one_round(monkeypatch):
    monkeypatch.setattr(sampled, "TIMED_ROUNDS", 1)


@pytest.fixture
def run(capsys, tiny_run):
    """``run("--json")`` -> (exit code, stdout, stderr) on the tiny run."""

    def call(*arguments, place=tiny_run):
        code = main(["estimators", str(place), "--rollouts", "256", *map(str, arguments)])
        return code, *capsys.readouterr()

    return call


def test_the_answer_in_json(run):
    code, out, _ = run("--json", "--gammas", "0.9,0.5", "--rows", "2")
    answer = json.loads(out)
    assert code == 0
    assert (answer["rows"], answer["rollouts"]) == (2, 256)
    assert 0 < answer["policy_entropy_nats"] < 0.7
    assert [each["gamma"] for each in answer["discounts"]] == [0.9, 0.5]
    for each in answer["discounts"]:
        assert each["reference_rollouts"] == 128
        rows = {row["estimator"]: row for row in each["estimators"]}
        assert set(rows) == set(sampled.ESTIMATORS)
        assert rows[PAPER]["against_paper"] == rows[PAPER]["against_paper_bytes"] == 1
        assert all(row["milliseconds"] > 0 and row["trials"] > 0 for row in rows.values())
    assert "advantages" not in answer


def test_the_table_names_what_was_measured(run):
    code, out, _ = run("--only", "leave-one-out of 4")
    assert code == 0
    assert "early exit, leave-one-out of 4" in out
    assert "gamma 0.9; reference: 128 rollouts" in out
    assert "gamma 0.99;" in out
    assert "no baseline" not in out
    assert "is worth" not in out


def test_what_a_boundary_is_worth_comes_as_records_or_as_a_page(run, tmp_path):
    code, out, _ = run("--only", "leave-one-out of 4", "--rows", "2", "--advantages", tmp_path / "worth.jsonl")
    assert code == 0
    assert "white space" in out
    records = [Record.from_json(line) for line in (tmp_path / "worth.jsonl").read_text().splitlines()]
    assert [record.name for record in records] == ["row 0", "row 1"]
    assert all((record.advantage_nats != 0).any() for record in records)
    code, out, _ = run(
        "--only",
        "leave-one-out of 4",
        "--rows",
        "2",
        "--advantages",
        tmp_path / "worth.html",
        "--json",
        "--gammas",
        "1",
    )
    assert code == 0
    assert "is worth" in (tmp_path / "worth.html").read_text()
    kinds = json.loads(out)["advantages"]
    assert sum(kind["bytes"] for kind in kinds) == sum(len(record.data) for record in records)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("--rollouts", "100"), "--rollouts is 100, but a reference and its error take at least 256"),
        (("--rows", "1"), "--rows is 1, but the batch-relative baseline compares rows"),
        (("--gammas", "0.9,2"), "--gammas '0.9,2' is no list of discounts"),
        (("--gammas", "x"), "--gammas 'x' is no list of discounts"),
        (("--only", "nonsense"), "--only 'nonsense' is in the name of no estimator: likelihood"),
        (("--data", "/nowhere/at/all"), "/nowhere/at/all"),
        (("--advantages", "/nowhere/at/all.jsonl", "--only", "learned value"), "cannot write /nowhere/at/all.jsonl"),
    ],
)
def test_wrong_turns_get_one_sentence(run, arguments, message):
    code, out, err = run(*arguments)
    assert (code, out) == (2, "")
    last = err.strip().splitlines()[-1]
    assert message in last
    assert "Traceback" not in err


def test_a_run_without_a_policy_is_refused(run, tmp_path, tiny_config):
    from byteseam.training.loop import Listener
    from byteseam.training.start import start_run

    start_run(tiny_config("strategy.name=whitespace", "training.total_bytes=128"), tmp_path / "w", Listener()).train()
    code, _, err = run(place=tmp_path / "w")
    assert code == 2
    assert "strategy whitespace" in err
    assert "give a run of score_function" in err
